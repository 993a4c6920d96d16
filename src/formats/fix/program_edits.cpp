#include "formats/fix/program_edits.hpp"

#include <algorithm>

#include "formats/foreign/read_run.hpp"
#include "formats/lines.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

struct Target {
  const char* format;  ///< as read_foreign notes it
  const char* to;      ///< as export_run writes it
};

}  // namespace

const char* writer_of(const std::vector<std::string>& formats) {
  static const std::vector<Target> all = {{"axolotl", "axolotl"},     {"llama-factory", "llama-factory"}, {"torchtitan", "torchtitan"}, {"torchtune", "torchtune"},
                                          {"megatron", "megatron"},   {"accelerate", "accelerate"},       {"deepspeed", "deepspeed"},   {"trl", "accelerate"},
                                          {"transformers", "accelerate"}};
  for (const Target& target : all)
    if (std::find(formats.begin(), formats.end(), target.format) != formats.end()) return target.to;
  fail("files of " + (formats.empty() ? std::string("no program") : formats.back()) + " are not written",
       {}, "axolotl, LLaMA-Factory, TorchTitan, torchtune, Megatron-LM, Accelerate, DeepSpeed, transformers and TRL are");
}

ChangedExport export_changed(const ForeignRun& run, const std::vector<std::pair<std::string, std::string>>& change, const std::string& writer) {
  Strategy changed = run.strategy;
  auto said = changed.options;
  said.insert(said.end(), change.begin(), change.end());
  set_options(changed, said);
  const std::string name = run.model_name.empty() ? run.model.name : run.model_name;
  const auto plan_of = [&](const Strategy& strategy) {  // TRL's trainers are told of a step by the arguments of transformers' Trainer, which is what is compared
    return ExportPlan{.model_name = name, .model = run.model, .cluster = run.cluster, .strategy = strategy, .to_compare = true};
  };
  const ExportPlan with = plan_of(changed);
  ExportedRun before = export_run(plan_of(run.strategy), writer), after = export_run(with, writer);
  ForeignRun back = read_exported(after, with);
  return {std::move(changed), std::move(before), std::move(after), std::move(back)};
}

namespace {

void leaves(const Node& tree, const std::string& above, std::map<std::string, Node>& into) {
  for (const auto& [key, member] : tree.members) {
    const std::string path = above.empty() ? key : above + "." + key;
    const bool of_tables = member.is_list() && std::any_of(member.members.begin(), member.members.end(), [](const auto& each) { return !each.second.is_scalar(); });
    if (member.is_table())
      leaves(member, path, into);
    else if (!of_tables)  // data sets and the like, which no change of a plan touches
      into[path] = member;
  }
}

}  // namespace

std::map<std::string, Node> options_of(const std::string& text) {
  std::map<std::string, Node> options;
  std::vector<std::string> words(1);
  for (const char c : text)
    if (c == ' ' || c == '\n' || c == '\\' || c == '\t') {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += c;
    }
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].rfind("--", 0) != 0) continue;
    const bool value = i + 1 < words.size() && words[i + 1].rfind("--", 0) != 0;
    options[words[i]] = Node::scalar(value ? words[i + 1] : "", "");
  }
  return options;
}

namespace {

std::map<std::string, Node> said_in(const NamedText& file, std::string& format) {
  const Syntax syntax = syntax_of(file.name, file.text);
  if (syntax == Syntax::shell) {
    format = "shell";
    return options_of(file.text);
  }
  const Node tree = parse(syntax, file.text, file.name);
  format = recognised_format(tree, file.name);
  std::map<std::string, Node> all;
  leaves(tree, "", all);
  return all;
}

const NamedText* file_of(const ExportedRun& run, const std::string& name) {
  const auto found = std::find_if(run.files.begin(), run.files.end(), [&](const NamedText& file) { return file.name == name; });
  return found == run.files.end() ? nullptr : &*found;
}

/// The table that is gone with a key, or the key alone.
std::string nothing_left_of(const std::string& path, const std::map<std::string, Node>& fresh) {
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const std::string table = path.substr(0, dot + 1);
    const auto next = fresh.lower_bound(table);
    if (next == fresh.end() || next->first.rfind(table, 0) != 0) return path.substr(0, dot);
  }
  return path;
}

}  // namespace

std::string without_format(const std::string& input) {
  const std::size_t colon = input.find(':');
  return colon == std::string::npos ? input : input.substr(colon + 1);
}

std::vector<Edit> edits_between(const ExportedRun& before, const ExportedRun& after) {
  std::vector<Edit> edits;
  const auto is_read = [&](const NamedText& file) {
    return std::any_of(after.reads.begin(), after.reads.end(), [&](const std::string& input) { return without_format(input) == file.name; });
  };
  for (const NamedText& file : after.files) {
    const NamedText *now = &file, *then = file_of(before, file.name);
    const std::size_t dot = std::min(file.name.rfind('.'), file.name.size());
    const std::string kind = file.name.substr(dot);
    const bool data = kind == ".json" || kind == ".yaml" || kind == ".toml";  // those that a file that is read names are read as well
    if ((!data && !is_read(file)) || then == nullptr || now->text == then->text) continue;
    std::string format;
    const auto old = said_in(*then, format), fresh = said_in(*now, format);
    for (const auto& [path, value] : fresh) {
      const auto same = old.find(path);
      if (same != old.end() && same->second.word() == value.word()) continue;
      edits.push_back({format, path, value});
    }
    for (const auto& [path, value] : old)
      if (fresh.count(path) == 0) edits.push_back({format, nothing_left_of(path, fresh), value, true});
  }
  if (edits.empty()) fail("the change has no key in these files", {}, "say it on the command line");
  return edits;
}

namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1); }

}  // namespace

std::string name_of_option(std::string option) {
  option.erase(0, std::min(option.find_first_not_of('-'), option.size()));
  std::replace(option.begin(), option.end(), '-', '_');
  return option;
}

const ForeignKey* read_as(const ForeignRun& exported, const Edit& edit) {
  const std::string wanted = name_of_option(last_part(edit.path));
  for (const bool whole : {true, false})
    for (const ForeignKey& key : exported.keys)
      if (key.kind == ForeignKey::Kind::said && (whole ? key.foreign == edit.path : name_of_option(last_part(key.foreign)) == wanted)) return &key;
  return nullptr;
}

bool is_there(const ForeignRun& run, const ForeignKey* wanted) {
  return wanted != nullptr && std::any_of(run.keys.begin(), run.keys.end(), [&](const ForeignKey& key) { return key.key == wanted->key && key.value == wanted->value; });
}

bool names(const std::vector<std::pair<std::string, std::string>>& change, const ForeignKey* key) {
  return key != nullptr && std::any_of(change.begin(), change.end(), [&](const auto& each) { return each.first == key->key; });
}

std::string without_equal(const ExportedRun& before, const ExportedRun& after) {
  for (const std::string& line : after.no_equal)
    if (std::find(before.no_equal.begin(), before.no_equal.end(), line) == before.no_equal.end()) return line;
  return {};
}

}  // namespace plimsoll::formats
