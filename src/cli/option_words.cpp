#include "option_words.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plimsoll/plimsoll.hpp"

namespace plimsoll::cli {
namespace {

void gather(const Command& command, const std::string& above, std::vector<NamedCommand>& all) {
  const std::string path = above.empty() ? command.name : above + " " + command.name;
  if (command.run) all.push_back({path, command});
  for (const Command& child : command.children) gather(child, path, all);
}

bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.") == std::string::npos;
}

/// "none, full, selective, every-N-layers, …": the words of a list; nothing where the text describes instead ("ranks").
std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word = word.substr(0, word.find_first_of(" ("));
    if (is_word(word)) words.push_back(word);
  }
  return words.size() > 1 ? words : std::vector<std::string>{};
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
  if (option.name == "--format" || option.name == "SHELL") return words_of(option.help);
  for (const StrategyOption& each : strategy_options()) {
    std::string flag = "--" + each.key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    if (flag == option.name) return words_of(each.values);
  }
  return {};
}

std::vector<std::string> model_names() { return names_in(model_list_json(), {"models"}); }
std::vector<std::string> hardware_names() { return names_in(hardware_json({}), {"accelerators", "clusters"}); }

bool takes_value(const Option& option) { return option.kind == Option::value || option.kind == Option::value_list; }
bool is_flag(const Option& option) { return option.name.rfind('-', 0) == 0; }
bool takes_model(const Option& option) { return option.name == "MODEL"; }
bool takes_hardware(const Option& option) { return option.name == "--on"; }

}  // namespace plimsoll::cli
