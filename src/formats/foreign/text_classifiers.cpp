#include "formats/foreign/text_classifiers.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/wrappers.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "transformers 5.23";

/// Classes of GLUE's tasks (Wang et al. 2019, table 1, as the data sets "nyu-mll/glue" have them); stsb is a number, learnt by regression.
constexpr std::pair<std::string_view, int> kGlueClasses[] = {{"cola", 2}, {"mnli", 3}, {"mrpc", 2}, {"qnli", 2}, {"qqp", 2},
                                                             {"rte", 2},  {"sst2", 2}, {"stsb", 1}, {"wnli", 2}};
/// Entailment, neutral, contradiction (XNLI, Conneau et al. 2018).
constexpr int kXnliClasses = 3;

/// DataTrainingArguments of the three, of what decides memory or time.
const Rows& rows() {
  static const Rows table = {
      {"max_seq_length", "seq_len", "", "128"},
      {"task_name", kCode, "", nullptr, "num_labels: GLUE's"},
      {"do_regression", kCode, "", nullptr, "num_labels 1"},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"do_lower_case", kNothing},
      {"language", kNothing},
      {"train_language", kNothing},
      {"text_column_names", kNothing},
      {"text_column_delimiter", kNothing},
      {"label_column_name", kNothing},
      {"metric_name", kNothing},
      {"remove_splits", kNothing},
      {"remove_columns", kNothing},
      {"ignore_mismatched_sizes", kNothing},
  };
  return table;
}

/// The classes of a GLUE task. Throws Error: a name that GLUE has not.
int glue_classes(const Node& task) {
  std::vector<std::string> names;
  for (const auto& [name, classes] : kGlueClasses) {
    if (task.word() == name) return classes;
    names.emplace_back(name);
  }
  fail("GLUE has no task '" + task.word().substr(0, 40) + "'", task.where, suggest(task.word(), names));
}

void read_classes(Reading& reading, const Node& own, const std::string& script, const std::string& where) {
  const Node *task = own.find("task_name"), *regresses = own.find("do_regression");
  if (script == "run_glue.py" && task && !task->is_null())
    return reading.say("num_labels", std::to_string(glue_classes(*task)), "task_name", task->where);
  if (is_on(regresses)) return reading.say("num_labels", "1", "do_regression", regresses->where);
  if (script == "run_xnli.py") return reading.derive("num_labels", std::to_string(kXnliClasses), "run_xnli.py: XNLI's classes");
  if (!reading.is_answered("num_labels")) fail("how many classes there are stands in the data of " + script + " alone", where, "give --num-labels");
}

}  // namespace

bool is_text_classifier(const std::string& program) {
  const std::string script = base_name_of(program);
  return script == "run_glue.py" || script == "run_classification.py" || script == "run_xnli.py";
}

void read_text_classifier(Reading& reading, const Node& flags, const std::string& program) {
  const auto [own, rest] = deal_keys(rows(), flags);
  const std::string script = base_name_of(program);
  reading.say("task", "cls", script, flags.where);
  read_classes(reading, own, script, flags.where);
  reading.derive("checkpoint.auto_class", "AutoModelForSequenceClassification", script);
  read_rows(reading, rows(), own);
  take_defaults(reading, rows(), kRelease);
  const Format format = training_arguments_format();
  reading.note_format(format.name);
  format.read(reading, rest);
}

}  // namespace plimsoll::formats
