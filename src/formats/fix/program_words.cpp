// A change in the words of the program whose files a run was read from.
#include <algorithm>

#include "formats/fix/program_edits.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/fix.hpp"

namespace plimsoll {
namespace {

using Change = std::vector<std::pair<std::string, std::string>>;

/// Whether the trainer's arguments stand behind a launch, and not in a file of their own.
bool is_launched(const ForeignRun& run) {
  return std::find(run.formats.begin(), run.formats.end(), "shell") != run.formats.end() ||
         std::any_of(run.keys.begin(), run.keys.end(), [](const ForeignKey& key) { return key.where == "the command line"; });
}

std::string in_words(const formats::Edit& edit, bool launched) {
  if (edit.gone) return "no " + edit.path;
  const bool option = edit.format == "shell" || (launched && (edit.format == "transformers" || edit.format == "trl"));
  if (!option) return edit.path + (edit.format == "torchtitan" ? " = " : ": ") + edit.value.word();
  const std::string name = edit.path.rfind("--", 0) == 0 ? edit.path : "--" + edit.path;
  return edit.value.word().empty() ? name : name + " " + edit.value.word();
}

/// Throws Error: what cannot be exported.
std::optional<std::vector<std::string>> words_of(const Change& change, const ForeignRun& run, const std::string& writer) {
  const auto [changed, before, after, back] = formats::export_changed(run, change, writer);
  if (!formats::without_equal(before, after).empty()) return {};
  std::vector<std::string> words;
  const bool launched = is_launched(run);
  for (const formats::Edit& edit : formats::edits_between(before, after)) {
    if (!edit.gone && formats::is_there(run, formats::read_as(back, edit))) continue;
    std::string word = in_words(edit, launched);
    if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

ProgramWords::ProgramWords(const ForeignRun& run) : run_(std::make_shared<ForeignRun>(run)) {
  try {
    writer_ = formats::writer_of(run.formats);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
  }
}

std::optional<std::vector<std::string>> ProgramWords::said(const Change& change) const {
  if (writer_.empty()) return {};
  try {
    return words_of(change, *run_, writer_);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return {};
  }
}

}  // namespace plimsoll
