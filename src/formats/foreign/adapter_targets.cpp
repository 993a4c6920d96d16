// What adapters' targets become when the model is known: the names of linears that a program looks for itself, the modules that an expression
// of PEFT's matches.
#include <algorithm>
#include <set>
#include <sstream>

#include "formats/foreign/format.hpp"
#include "formats/foreign/trained_modules.hpp"
#include "formats/shell/pattern.hpp"
#include "framework/peft.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream words(list);
  for (std::string name; std::getline(words, name, ',');)
    if (!name.empty()) names.push_back(name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

void replace_targets(Reading& reading, const std::vector<std::string>& targets) {
  std::string list;
  for (const std::string& target : targets) list += (list.empty() ? "" : ",") + target;
  const ForeignKey key = *reading.find("lora.target_modules");
  reading.forget("lora.target_modules");
  reading.say("lora.target_modules", list, key.foreign, key.where);
}

// ---- expressions --------------------------------------------------------------------------------------------------------

constexpr const char* kPlain = "brackets, alternatives, [...], \\d, \\w, ., *, + and ? are read";

}  // namespace

std::string extended_expression(const std::string& python, const std::string& where) {
  std::string made;
  bool in_brackets = false;
  const auto no = [&](std::size_t at) {
    refuse("not modelled: '" + python.substr(at, 3) + "' of the regular expression " + python.substr(0, 60), where, kPlain);
  };
  for (std::size_t i = 0; i < python.size(); ++i) {
    const char c = python[i];
    if (c == '\\') {
      if (++i == python.size()) fail("a regular expression that ends in a backslash", where);
      const char escaped = python[i];
      if (escaped == 'd' || escaped == 'w')
        made += std::string(in_brackets ? "" : "[") + (escaped == 'd' ? "0-9" : "0-9A-Za-z_") + (in_brackets ? "" : "]");
      else if (std::isalnum(static_cast<unsigned char>(escaped)) != 0 || in_brackets)
        no(i - 1);
      else
        made += std::string("\\") + escaped;
    } else if (in_brackets) {
      in_brackets = c != ']';
      made += c;
    } else if (c == '(' && python.compare(i, 3, "(?:") == 0) {
      made += '(';
      i += 2;
    } else if (c == '(' && python.compare(i, 2, "(?") == 0) {
      no(i);
    } else if ((c == '*' || c == '+' || c == '?') && i + 1 < python.size() && (python[i + 1] == '?' || python[i + 1] == '+')) {
      no(i);  // a lazy or possessive count
    } else if (c == '{') {
      no(i);
    } else {
      in_brackets = c == '[';
      made += c;
      if (in_brackets && i + 1 < python.size() && python[i + 1] == '^') made += python[++i];
    }
  }
  return "^(" + made + ")$";
}

namespace {

/// A module of a block that has a weight, in all its layers.
struct Weighted {
  std::string name;                ///< within a layer: "mlp.gate_proj"
  std::vector<std::string> paths;  ///< whole, as PEFT sees them
  bool linear;
  bool of_images;  ///< beside the language model
  bool head;
};

std::vector<Weighted> modules_of(const Model& model) {
  std::vector<Weighted> modules;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      if (op.parameters.empty()) continue;
      const auto path = [](const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); };
      Weighted module{path(op.parameters.front().name),
                      {},
                      op.kind == OperatorKind::linear,
                      block.stream == Block::Stream::second,
                      block.role == Block::Role::head};
      for (std::int64_t i = 0; i < block.repeat; ++i) module.paths.push_back(path(full_name(block, i, op.parameters.front())));
      modules.push_back(std::move(module));
    }
  return modules;
}

std::string example_of(const Model& model) {
  for (const Weighted& module : modules_of(model))
    if (module.linear) return module.paths.front();
  return "model.layers.0.self_attn.q_proj";
}

bool matches(const std::string& extended, const std::string& path, shell::Effort& effort, const std::string& where) {
  try {
    return shell::matched_by_expression(extended, path, effort).has_value();
  } catch (const Error& error) {  // which says no place
    throw Error(error.code(), error.message(), where, kPlain);
  }
}

/// The linears that an expression matches: a name where it is that of all, whole paths where it is not. Throws Error (refused): it matches
/// other modules, too.
std::vector<std::string> matched(const Model& model, const std::string& expression, const std::string& where) {
  constexpr std::size_t kMostSteps = 100'000'000;
  shell::Effort effort(kMostSteps);
  const std::string extended = extended_expression(expression, where);
  std::set<std::string> broken;  // names of which not all linears match
  std::vector<std::pair<std::string, std::string>> found;
  for (const Weighted& module : modules_of(model))
    for (const std::string& path : module.paths) {
      const bool is_target = matches(extended, path, effort, where);
      if (is_target && !module.linear) refuse("not modelled: an adapter of " + path + ", which the regular expression matches", where, "match linears alone");
      if (is_target) found.emplace_back(module.name, path);
      if (!is_target) broken.insert(module.name);
    }
  std::vector<std::string> targets;
  for (const auto& [name, path] : found) {
    const std::string& target = broken.count(name) > 0 ? path : name;
    if (!has(targets, target)) targets.push_back(target);
  }
  return targets;
}

/// "q_proj" of "self_attn.q_proj".
std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool names(const std::string& target, const std::string& path) { return path == target || path.ends_with("." + target); }

}  // namespace

void spare_towers(Reading& reading, const Model& model) {
  const std::vector<Weighted> modules = modules_of(model);
  const bool every = reading.is("lora.target_modules", framework::kAllLinear);
  std::vector<std::string> wanted = names_in(reading.value("lora.target_modules")), targets;
  if (every) {
    wanted.clear();
    for (const Weighted& module : modules)
      if (module.linear && !module.of_images && !module.head && !has(wanted, leaf_of(module.paths.front())))
        wanted.push_back(leaf_of(module.paths.front()));
  }
  for (const std::string& target : wanted) {
    std::vector<std::string> paths;
    bool shared = false;
    for (const Weighted& module : modules)
      for (const std::string& path : module.paths) {
        if (!names(target, path)) continue;
        shared = shared || module.of_images;
        if (!module.of_images) paths.push_back(path);
      }
    if (!shared) paths = {target};
    targets.insert(targets.end(), paths.begin(), paths.end());
  }
  replace_targets(reading, targets);
}

void expand_expression(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model& model) {
    const ForeignKey* key = reading.find("lora.target_modules");
    if (!key || key->value == framework::kAllLinear) return;
    if (model.has_experts())  // PEFT asks it of names that experts had before 5.0, too (_resolve_string_target_modules)
      refuse("not modelled: a regular expression over the modules of a mixture", key->where, "list attention's linears");
    const std::vector<std::string> targets = matched(model, key->value, key->where);
    if (targets.empty())
      fail("no linear's whole path matches the regular expression " + key->value.substr(0, 80), key->where,
           "one that matches paths as " + example_of(model) + ", or a list of names");
    replace_targets(reading, targets);
  });
}

void name_linears(Reading& said, const std::string& beside) {
  said.when_model_is_known([beside](Reading& reading, const Model& model) {
    if (!reading.is("lora.target_modules", framework::kAllLinear)) return;
    std::vector<std::string> names = framework::linear_names(model);
    const std::size_t own = names.size();
    for (const std::string& name : names_in(beside))
      if (!has(names, name)) names.push_back(name);
    const std::optional<Release> release = reading.release_of(Package::transformers);
    const bool parameters = model.has_experts() && (!release || release->since(5, 0));
    if (!parameters && names.size() == own) return;  // PEFT's own word for the same linears
    replace_targets(reading, names);
  });
}

}  // namespace plimsoll::formats
