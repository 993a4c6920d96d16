// A change said in the files of a run: what the program's own files would have of it, taken from two exports, put where the user has it.
#include "plimsoll/fix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "formats/fix/program_edits.hpp"
#include "formats/fix/text_edits.hpp"
#include "formats/foreign/read_run.hpp"
#include "formats/lines.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace formats {
namespace {

/// Keys of files that the export has no more may stay where the change can be said beside them.
void require_nothing_gone(std::vector<Edit>& edits) {
  std::erase_if(edits, [](const Edit& edit) { return edit.gone && edit.format != "shell"; });
  for (const Edit& edit : edits)
    if (edit.gone) fail("the change takes '" + edit.path + "' away", edit.format, "take it out by hand");
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

}  // namespace
}  // namespace formats

Fix fix_run(const std::vector<std::string>& files, const ForeignOptions& options, const std::vector<std::pair<std::string, std::string>>& change) {
  using namespace formats;
  const ForeignRun run = read_foreign(files, options);
  const char* to = writer_of(run.formats);
  const auto [changed, before, after, back] = export_changed(run, change, to);
  if (const std::string line = without_equal(before, after); !line.empty())
    fail(std::string(to) + " cannot be told of this change: " + line, {}, "another change; 'plimsoll explain --from' lists them");

  if (same_plan(run, changed)) fail("these files say " + as_flags(change) + " already");
  std::vector<Edit> edits = edits_between(before, after);
  require_nothing_gone(edits);
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
