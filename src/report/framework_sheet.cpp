// The catalogue of frameworks: what each takes by default and can do.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "plimsoll/framework.hpp"
#include "plimsoll/report.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of_kind(Recompute::Kind kind) {
  constexpr const char* kNames[] = {"automatic", "none", "full", "selective", "operators", "alternate"};
  return kNames[static_cast<int>(kind)];
}

template <class Values, class Name>
std::vector<std::string> names_of(const Values& values, Name name) {
  std::vector<std::string> names;
  for (const auto& value : values) names.emplace_back(name(value));
  return names;
}

std::vector<std::string> degrees_of(const FrameworkProfile& profile) {
  std::vector<std::string> degrees{"data"};
  for (const auto& [can, name] : {std::pair{profile.tensor, "tensor"}, {!profile.schedules.empty(), "pipeline"}, {profile.context, "context"},
                                  {profile.expert, "expert"}, {profile.sequence_parallel, "sequence"}})
    if (can) degrees.emplace_back(name);
  return degrees;
}

/// The packages that the framework stands on, each with the oldest and the newest release that was read.
std::vector<std::string> releases_of(const FrameworkProfile& profile) {
  std::vector<std::string> lines;
  std::vector<Package> packages = packages_of(profile.name);
  if (profile.code != ModelCode::maxtext) packages.push_back(Package::torch);
  for (const Package package : packages) {
    const PackageFacts& facts = facts_of(package);
    lines.push_back(fmt::format("{} {} to {}", name_of(package), facts.oldest.text(), facts.newest.text()));
  }
  return lines;
}

Json object_of(const FrameworkProfile& profile) {
  const auto named = [](auto value) { return std::string(name_of(value)); };
  if (!profile.refused.empty()) return {{"name", profile.name}, {"title", profile.title}, {"refused", profile.refused}};
  return {{"name", profile.name},
          {"title", profile.title},
          {"aliases", profile.aliases},
          {"source", profile.source},
          {"releases", releases_of(profile)},
          {"layers_of", named(profile.code)},
          {"parallelism", degrees_of(profile)},
          {"schedules", profile.schedules},
          {"data_parallel", names_of(profile.kinds, named)},
          {"attention", names_of(profile.attentions, named)},
          {"loss", names_of(profile.losses, named)},
          {"recompute", names_of(profile.recomputes, name_of_kind)},
          {"low_precision", names_of(profile.low_precisions, named)},
          {"adapters", profile.adapters},
          {"offload_activations", profile.offload_activations},
          {"usual", {{"bf16", named(profile.bf16)}, {"fp16", named(profile.fp16)}, {"data_parallel", named(profile.data_parallel)},
                     {"attention", named(profile.attention)}, {"loss", named(profile.loss)}, {"clip_grad_norm", profile.clip_grad_norm}}}};
}

std::string joined(const Json& list) {
  std::string text;
  for (const auto& each : list) text += (text.empty() ? "" : ", ") + each.get<std::string>();
  return text.empty() ? "none" : text;
}

}  // namespace

std::string framework_list() {
  std::string text;
  for (const FrameworkProfile& profile : frameworks())
    text += fmt::format("{:<24}{}{}\n", profile.name, profile.title, profile.refused.empty() ? "" : " (refused: " + profile.refused + ")");
  return text;
}

std::string framework_sheet(const std::string& name) {
  const FrameworkProfile& profile = find_framework(name);
  if (!profile.refused.empty()) return wrapped("", profile.title + " is refused: " + profile.refused);
  const Json object = object_of(profile);
  std::string text = profile.title + "\n";
  for (const auto& [key, value] : object.items()) {
    if (key == "name" || key == "title" || key == "usual") continue;
    const std::string shown = value.is_array() ? joined(value) : value.is_boolean() ? (value.get<bool>() ? "yes" : "no") : value.get<std::string>();
    text += wrapped(fmt::format("  {:<22}", spoken(key)), shown);
  }
  text += "where nothing is said\n";
  for (const auto& [key, value] : object["usual"].items())
    text += fmt::format("  {:<22}{}\n", spoken(key), value.is_boolean() ? (value.get<bool>() ? "yes" : "no") : value.get<std::string>());
  return text;
}

std::string framework_json(const std::string& name) {
  if (!name.empty()) {
    Json object = object_of(find_framework(name));
    object.update(Json{{"schema", "plimsoll/framework/1"}});
    return json_text(object);
  }
  Json all = Json::array();
  for (const FrameworkProfile& profile : frameworks()) all.push_back(object_of(profile));
  return json_text({{"schema", "plimsoll/frameworks/1"}, {"frameworks", std::move(all)}});
}

}  // namespace plimsoll
