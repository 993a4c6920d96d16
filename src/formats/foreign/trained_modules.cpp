// Which modules a program trains where it freezes the others: by expressions over parameters' names, or a model's part for images.
#include "formats/foreign/trained_modules.hpp"

#include <algorithm>
#include <string_view>

#include "formats/foreign/format.hpp"
#include "formats/shell/pattern.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// A parameter as named_parameters() has it, tied ones once.
struct Named {
  std::string name;
  bool of_images = false;  ///< of the part beside the language model
  bool trained = false;
};

std::vector<Named> parameters_of(const Model& model) {
  std::vector<Named> all;
  for (const Block& block : model.blocks)
    for (std::int64_t i = 0; i < block.repeat; ++i)
      for (const ParameterTensor* parameter : block.parameter_list())
        if (parameter->tied_to.empty()) all.push_back({full_name(block, i, *parameter), block.stream == Block::Stream::second});
  return all;
}

/// Whether a name is a path's or of what is below it.
bool lies_below(const std::string& name, const std::string& path) {
  return path.empty() || (name.size() > path.size() && name.compare(0, path.size(), path) == 0 && name[path.size()] == '.');
}

/// The modules below `path` that are trained with all that they hold. Throws Error (refused): one that trains a parameter of its own and
/// not the other.
void add_trained(const std::vector<Named>& all, const std::string& path, const std::string& where, std::vector<std::string>& modules) {
  bool every = true, any = false;
  for (const Named& one : all) {
    if (!lies_below(one.name, path)) continue;
    every = every && one.trained;
    any = any || one.trained;
  }
  if (any && every && !path.empty()) modules.push_back(path);
  if (!any || (every && !path.empty())) return;
  const std::size_t front = path.empty() ? 0 : path.size() + 1;
  std::string last;
  for (const Named& one : all) {
    if (!lies_below(one.name, path)) continue;
    const std::size_t dot = one.name.find('.', front);
    if (dot == std::string::npos) {
      if (one.trained)
        refuse("not modelled: " + one.name + " trained beside what its module holds frozen", where, "expressions that match whole modules");
      continue;
    }
    const std::string child = one.name.substr(0, dot);
    if (child == last) continue;  // siblings stand in order
    last = child;
    if (std::find(modules.begin(), modules.end(), child) == modules.end()) add_trained(all, child, where, modules);
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

/// re.compile(re.sub(r"\.(?!\+)", "\\.", pattern)).match as an expression of whole names (LayerNamePattern of axolotl's freeze.py).
std::string whole_names(std::string pattern, const std::string& where) {
  if (pattern.ends_with("]") && pattern.find_last_of('[') != std::string::npos) {
    const std::string range = pattern.substr(pattern.find_last_of('[') + 1);
    if (range.find_first_not_of("0123456789:]") == std::string::npos)
      refuse("not modelled: rows of a parameter that are trained alone, found " + pattern.substr(0, 60), where, "whole parameters");
  }
  std::string literal;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    literal += pattern[i] == '.' && (i + 1 == pattern.size() || pattern[i + 1] != '+') ? std::string("\\.") : std::string(1, pattern[i]);
  if (literal.rfind('^', 0) == 0) literal.erase(0, 1);
  if (literal.ends_with("$")) {
    literal.pop_back();
  } else {
    literal += ".*";
  }
  return extended_expression(literal, where);
}

void mark(std::vector<Named>& all, const std::vector<std::string>& patterns, const std::string& front, const std::string& where) {
  constexpr std::size_t kMostSteps = 100'000'000;
  shell::Effort effort(kMostSteps);
  for (const std::string& pattern : patterns) {
    const std::string expression = whole_names(pattern, where);
    for (Named& one : all)
      if (!one.trained) one.trained = shell::matched_by_expression(expression, front + one.name, effort).has_value();
  }
}

}  // namespace

void train_matched(Reading& said, const std::vector<std::string>& patterns, const std::string& key, const std::string& where) {
  said.when_model_is_known([patterns, key, where](Reading& reading, const Model& model) {
    std::vector<Named> all = parameters_of(model);
    const bool adapted = reading.has("lora.r");
    mark(all, patterns, adapted ? "base_model.model." : "", where);
    const bool any = std::any_of(all.begin(), all.end(), [](const Named& one) { return one.trained; });
    if (!any && adapted)
      fail(key +
               " beside an adapter freezes the adapter as well: names of PEFT's model begin with base_model.model., and no expression "
               "matches one from its start",
           where, "leave it out: an adapter leaves everything else frozen");
    if (!any)
      fail(key + " matches no parameter of " + model.name + ": nothing would be trained", where,
           "one that matches names such as " + all.back().name);
    if (adapted)
      refuse("not modelled: parameters trained beside adapters, found " + key, where,
             "leave it out, or name modules as lora_modules_to_save");
    const bool all_of_them = std::all_of(all.begin(), all.end(), [](const Named& one) { return one.trained; });
    if (all_of_them) return;
    std::vector<std::string> modules;
    add_trained(all, {}, where, modules);
    reading.say("trained_modules", joined(modules), key, where);
  });
}

void train_language_alone(Reading& said, const std::string& program, const TowerKeys& keys) {
  said.when_model_is_known([program, keys](Reading& reading, const Model& model) {
    if (model.patch_size > 0) refuse("not modelled: a model of images alone under " + program, {}, "a language model");
    if (!sees_images(model)) return;
    if (!keys.trains.empty())
      refuse("not modelled: the part of " + model.architecture + " that reads images, trained, found " + keys.trains, keys.where,
             "a frozen one, which " + program + " has by itself");
    reading.leave_unknown("a batch's images, and the frozen tower that reads them, not modelled (" + program + ")", keys.where);
    if (reading.has("lora.r")) return spare_towers(reading, model);
    std::vector<Named> all = parameters_of(model);
    for (Named& one : all) one.trained = !one.of_images;
    std::vector<std::string> modules;
    add_trained(all, {}, keys.where, modules);
    reading.derive("trained_modules", joined(modules), program + " freezes the vision tower and what projects from it");
  });
}

}  // namespace plimsoll::formats
