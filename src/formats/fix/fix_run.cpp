// A change said in the files of a run: what the program's own files would have of it, taken from two exports, put where the user has it.
#include "plimsoll/fix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "formats/fix/text_edits.hpp"
#include "formats/foreign/read_run.hpp"
#include "formats/lines.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace formats {
namespace {

/// What the exported files have with the change that they did not have without: a key of a format, or an option of a launch.
struct Edit {
  std::string format;  ///< "axolotl"; of options of a launch "shell"
  std::string path;
  Node value;
};

struct Target {
  const char* format;  ///< as read_foreign notes it
  const char* to;      ///< as export_run writes it
};

/// The export that writes what a run was read from.
const Target& target_of(const std::vector<std::string>& formats) {
  static const std::vector<Target> all = {{"axolotl", "axolotl"},     {"llama-factory", "llama-factory"}, {"torchtitan", "torchtitan"}, {"torchtune", "torchtune"},
                                          {"megatron", "megatron"},   {"accelerate", "accelerate"},       {"deepspeed", "deepspeed"},   {"trl", "accelerate"},
                                          {"transformers", "accelerate"}};
  for (const Target& target : all)
    if (std::find(formats.begin(), formats.end(), target.format) != formats.end()) return target;
  fail("files of " + (formats.empty() ? std::string("no program") : formats.back()) + " are not written",
       {}, "axolotl, LLaMA-Factory, TorchTitan, torchtune, Megatron-LM, Accelerate, DeepSpeed, transformers and TRL are");
}

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

/// Options and their values of a script's words: "--recompute-granularity" → "full".
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

/// "axolotl:axolotl.yaml" without the format.
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
      if (!value.is_scalar()) fail("'" + path + "' is a list", format, "set it to " + value.word() + " by hand");
      edits.push_back({format, path, value});
    }
    for (const auto& [path, value] : old)
      if (fresh.count(path) == 0 && format == "shell") fail("the change takes '" + path + "' away", format, "take it out by hand");
  }
  if (edits.empty()) fail("the change has no key in these files", {}, "say it on the command line");
  return edits;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') == std::string::npos ? 0 : path.rfind('.') + 1); }

/// "--recompute-granularity" and "recompute_granularity" are one name.
std::string name_of_option(std::string option) {
  option.erase(0, std::min(option.find_first_not_of('-'), option.size()));
  std::replace(option.begin(), option.end(), '-', '_');
  return option;
}

struct Place {
  std::string file;
  std::string path;
  std::size_t line = 0;  ///< of a script: where its launch begins
};

Place split_place(const std::string& where, const std::string& path) {
  const std::size_t colon = where.rfind(':'), pointer = where.find('#');
  if (pointer != std::string::npos) {  // JSON says itself where it is
    std::string inside = where.substr(std::min(pointer + 2, where.size()));
    std::replace(inside.begin(), inside.end(), '/', '.');
    return {where.substr(0, pointer), inside, 0};
  }
  if (colon == std::string::npos) return {where, path, 0};
  return {where.substr(0, colon), path, static_cast<std::size_t>(std::strtoul(where.c_str() + colon + 1, nullptr, 10))};
}

/// A run's files as they become, one edit after the other.
class Texts {
 public:
  Texts(const ForeignRun& run, const std::vector<std::string>& files, const ForeignOptions& options) : run_(run) {
    Reading reading;
    for (const NamedText& file : options.texts) reading.add_file(file.name, file.text);
    for (const std::string& input : files) {
      const bool forced = input.find(':') != std::string::npos && !reading_has(reading, input);
      const std::string name = forced ? without_format(input) : input;
      const std::string text = reading.text_of(name);
      texts_.push_back({name, text, text});
    }
  }

  /// Where the run says what `ours` is, or, where it does not, where its program would.
  Place place_of(const Edit& edit, const std::string& ours) const {
    for (const ForeignKey& key : run_.keys)
      if (key.kind == ForeignKey::Kind::said && key.key == ours) return split_place(key.where, key.foreign);
    for (const ForeignKey& key : run_.keys) {  // a table within another program's file: DeepSpeed's in training_arguments.json
      const Place there = split_place(key.where, key.foreign);
      const std::string inner = "." + key.foreign;
      const bool within = key.kind == ForeignKey::Kind::said && there.path.size() > inner.size() && there.path.compare(there.path.size() - inner.size(), inner.size(), inner) == 0;
      if (within && edit.format == "deepspeed") return {there.file, there.path.substr(0, there.path.size() - inner.size() + 1) + edit.path, 0};
    }
    for (const FixedFile& file : texts_) {
      const Syntax syntax = syntax_of(file.name, file.after);
      if (syntax == Syntax::shell) continue;
      const std::string format = recognised_format(parse(syntax, file.after, file.name), file.name);
      if (format == edit.format || (format == "trl" && edit.format == "transformers")) return {file.name, edit.path, 0};
    }
    const bool of_a_launch = edit.format == "shell" || edit.format == "transformers" || edit.format == "trl";
    if (!of_a_launch) fail("none of the files is one of " + edit.format, {}, "'" + edit.path + "' would be set there");
    if (edit.format != "shell" && edit.path.find('.') != std::string::npos) fail("'" + edit.path + "' is no option of a launch", {}, "set it to " + edit.value.word() + " by hand");
    for (const ForeignKey& key : run_.keys)  // a launch that says anything of the program
      if (key.kind == ForeignKey::Kind::said && key.where.find('#') == std::string::npos && is_script_of(split_place(key.where, "").file) && key.key.rfind("cluster.", 0) != 0)
        return split_place(key.where, edit.path);
    fail("none of the files is one of " + edit.format, {}, "say '" + edit.path + "' where its program reads it");
  }

  /// Puts the value there; what was said, for people.
  std::string put(const Place& place, const Node& value) {
    const auto file = std::find_if(texts_.begin(), texts_.end(), [&](const FixedFile& one) { return one.name == place.file; });
    if (file == texts_.end()) fail("'" + place.path + "' stands in another file", place.file, "name that file, too");
    const Syntax syntax = syntax_of(file->name, file->after);
    if (syntax == Syntax::shell) {
      const std::string option = option_in(file->after, place.path);
      file->after = set_in_launch(file->after, place.line, option, value.word(), file->name);
      return file->name + ": " + option + (value.word().empty() ? "" : " " + value.word());
    }
    const Node tree = parse(syntax, file->after, file->name);
    const auto set = syntax == Syntax::json ? set_in_json : syntax == Syntax::toml ? set_in_toml : set_in_yaml;
    file->after = set(file->after, tree, place.path, value, file->name);
    return fmt::format("{}: {}{}{}", file->name, place.path, syntax == Syntax::toml ? " = " : ": ", value.word());
  }

  const std::vector<FixedFile>& all() const { return texts_; }

 private:
  static bool reading_has(const Reading& reading, const std::string& input) {
    try {
      (void)reading.text_of(input);
      return true;
    } catch (const Error&) {
      return false;
    }
  }
  bool is_script_of(const std::string& name) const {
    return std::any_of(texts_.begin(), texts_.end(), [&](const FixedFile& file) { return file.name == name && is_script(name, file.after); });
  }
  /// As the script spells it ("--gradient-checkpointing"), else as the program's files do.
  static std::string option_in(const std::string& text, const std::string& path) {
    const std::string wanted = name_of_option(path);
    for (const auto& [option, value] : options_of(text))
      if (name_of_option(option.substr(0, option.find('='))) == wanted) return option.substr(0, option.find('='));
    return path.rfind("--", 0) == 0 ? path : "--" + path;
  }

  const ForeignRun& run_;
  std::vector<FixedFile> texts_;
};

/// What an exported file's key was read as; nullptr: as nothing.
const ForeignKey* read_as(const ForeignRun& exported, const Edit& edit) {
  const std::string wanted = name_of_option(last_part(edit.path));
  for (const bool whole : {true, false})
    for (const ForeignKey& key : exported.keys)
      if (key.kind == ForeignKey::Kind::said && (whole ? key.foreign == edit.path : name_of_option(last_part(key.foreign)) == wanted)) return &key;
  return nullptr;
}

/// Whether the run has that value already, said, by default, or because another follows from it.
bool is_there(const ForeignRun& run, const ForeignKey* wanted) {
  return wanted != nullptr && std::any_of(run.keys.begin(), run.keys.end(), [&](const ForeignKey& key) { return key.key == wanted->key && key.value == wanted->value; });
}

/// Whether what the files say now is the change, and all else that they said before is as it was.
bool says(const ForeignRun& fixed, const ForeignRun& before, const Strategy& wanted, const std::vector<std::pair<std::string, std::string>>& change) {
  const Strategy now = resolve(fixed.strategy, fixed.model, fixed.cluster), then = resolve(before.strategy, before.model, before.cluster),
                 meant = resolve(wanted, before.model, before.cluster);
  for (const auto& [key, value] : change)
    if (settled_value(now, key) != settled_value(meant, key)) return false;
  return std::all_of(before.keys.begin(), before.keys.end(), [&](const ForeignKey& key) {
    if (key.kind != ForeignKey::Kind::said) return true;
    const auto kept = settled_value(now, key.key);
    return kept == settled_value(then, key.key) || kept == settled_value(meant, key.key);
  });
}

bool same_plan(const ForeignRun& run, const Strategy& changed) {
  const Strategy then = resolve(run.strategy, run.model, run.cluster), meant = resolve(changed, run.model, run.cluster);
  return std::all_of(strategy_options().begin(), strategy_options().end(),
                     [&](const StrategyOption& option) { return settled_value(then, option.key) == settled_value(meant, option.key); });
}

bool names(const std::vector<std::pair<std::string, std::string>>& change, const ForeignKey* key) {
  return key != nullptr && std::any_of(change.begin(), change.end(), [&](const auto& each) { return each.first == key->key; });
}

}  // namespace
}  // namespace formats

Fix fix_run(const std::vector<std::string>& files, const ForeignOptions& options, const std::vector<std::pair<std::string, std::string>>& change) {
  using namespace formats;
  const ForeignRun run = read_foreign(files, options);
  Strategy changed = run.strategy;
  auto said = changed.options;
  said.insert(said.end(), change.begin(), change.end());
  set_options(changed, said);
  const char* to = target_of(run.formats).to;
  const std::string name = run.model_name.empty() ? run.model.name : run.model_name;
  // TRL's trainers are told of a step by the arguments of transformers' Trainer, which is what is compared.
  const ExportPlan plan{.model_name = name, .model = run.model, .cluster = run.cluster, .strategy = run.strategy, .to_compare = true},
      with{.model_name = name, .model = run.model, .cluster = run.cluster, .strategy = changed, .to_compare = true};
  const ExportedRun before = export_run(plan, to), after = export_run(with, to);
  const ForeignRun back = read_exported(after, with);
  for (const std::string& line : after.no_equal)
    if (std::find(before.no_equal.begin(), before.no_equal.end(), line) == before.no_equal.end())
      fail(std::string(to) + " cannot be told of this change: " + line, {}, "another change; 'plimsoll explain --from' lists them");

  if (same_plan(run, changed)) fail("these files say " + as_flags(change) + " already");
  const std::vector<Edit> edits = edits_between(before, after);
  for (const bool all : {false, true}) {  // the keys of the change alone, or what else the exports differ in, where these do not suffice
    Fix fix;
    fix.flags = as_flags(change);
    Texts texts(run, files, options);
    for (const Edit& edit : edits) {
      const ForeignKey* key = read_as(back, edit);
      if (is_there(run, key) || (!all && !names(change, key))) continue;
      fix.said.push_back(texts.put(texts.place_of(edit, key == nullptr ? std::string() : key->key), edit.value));
    }
    ForeignOptions again = options;
    for (const FixedFile& file : texts.all()) {
      std::erase_if(again.texts, [&](const NamedText& text) { return text.name == file.name; });
      again.texts.push_back({file.name, file.after});
      if (file.after != file.before) fix.files.push_back(file);
    }
    if (fix.files.empty()) continue;
    const ForeignRun fixed = read_foreign(files, again);
    if (!says(fixed, run, changed, change)) continue;
    fix.before = estimate(run.model, run.cluster, run.strategy);
    fix.after = estimate(fixed.model, fixed.cluster, fixed.strategy);
    return fix;
  }
  fail("no value of these files says " + as_flags(change) + " and leaves the rest as it is", {}, "change them by hand, and read them again with --show-resolved");
}

std::string difference_of(const FixedFile& file) {
  constexpr std::size_t kAround = 3;
  const std::vector<std::string> before = formats::lines_of(file.before), after = formats::lines_of(file.after);
  const std::size_t fewer = std::min(before.size(), after.size());
  std::size_t same = 0;  // at the end
  while (same < fewer && before[before.size() - 1 - same] == after[after.size() - 1 - same]) ++same;
  const std::size_t end_before = before.size() - same, end_after = after.size() - same;
  // Lines are replaced one for one or added, never taken away: a line that is another's next is one that was added before it.
  struct Line {
    char mark;
    const std::string* text;
  };
  std::vector<Line> all;
  std::size_t i = 0, j = 0;
  while (i < end_before || j < end_after) {
    if (i < end_before && j < end_after && before[i] == after[j]) {
      all.push_back({' ', &before[i]});
      ++i, ++j;
    } else if (j + 1 < end_after && i < end_before && after[j + 1] == before[i] && end_before - i < end_after - j) {
      all.push_back({'+', &after[j++]});
    } else {
      if (i < end_before) all.push_back({'-', &before[i++]});
      if (j < end_after) all.push_back({'+', &after[j++]});
    }
  }
  for (; i < before.size(); ++i) all.push_back({' ', &before[i]});
  std::string text = fmt::format("--- {}\n+++ {}\n", file.name, file.name);
  bool gap = false;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const std::size_t first = at > kAround ? at - kAround : 0, last = std::min(all.size(), at + kAround + 1);
    const bool near = std::any_of(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(last), [](const Line& line) { return line.mark != ' '; });
    if (!near) {
      gap = true;
      continue;
    }
    if (gap && at > 0) text += "…\n";
    gap = false;
    text += all[at].mark + *all[at].text + "\n";
  }
  return text;
}

}  // namespace plimsoll
