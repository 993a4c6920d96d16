#include "option_words.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plimsoll/plimsoll.hpp"
#include "strategy/listed_words.hpp"

namespace plimsoll::cli {
namespace {

void gather(const Command& command, const std::string& above, std::vector<NamedCommand>& all) {
  const std::string path = above.empty() ? command.name : above + " " + command.name;
  if (command.run) all.push_back({path, command});
  for (const Command& child : command.children) gather(child, path, all);
}

std::vector<std::string> names_in(const std::string& json, const std::vector<std::string>& lists) {
  std::vector<std::string> names;
  const auto object = nlohmann::json::parse(json);
  for (const std::string& list : lists)
    for (const auto& each : object.at(list)) names.push_back(each.is_string() ? each.get<std::string>() : each.at("name").get<std::string>());
  return names;
}

}  // namespace

std::vector<NamedCommand> runnable_commands() {
  std::vector<NamedCommand> all;
  for (const Command& command : all_commands()) gather(command, {}, all);
  return all;
}

std::vector<std::string> values_of(const Option& option) {
  if (option.name == "--format" || option.name == "SHELL") return strategy::listed_words(option.help);
  for (const StrategyOption& each : strategy_options()) {
    std::string flag = "--" + each.key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag == option.name) return strategy::listed_words(each.values);
  }
  return {};
}

std::vector<std::string> model_names() { return names_in(model_list_json(), {"models"}); }
std::vector<std::string> hardware_names() { return names_in(hardware_json({}), {"accelerators", "clusters"}); }

bool takes_value(const Option& option) {
  return option.kind == Option::value || option.kind == Option::value_list || option.kind == Option::words;
}
bool is_flag(const Option& option) { return option.name.rfind('-', 0) == 0; }
bool takes_model(const Option& option) { return option.name == "MODEL"; }
bool takes_hardware(const Option& option) { return option.name == "--on"; }

}  // namespace plimsoll::cli
