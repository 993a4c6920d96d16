#include "formats/foreign/example_scripts.hpp"

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

/// DataTrainingArguments of run_glue.py, run_classification.py and run_xnli.py, of what decides memory or time.
const Rows& sequence_rows() {
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

/// run_ner.py: a batch is as long as its longest text, which nothing bounds by default.
const Rows& token_rows() {
  static const Rows table = {
      {"max_seq_length", "seq_len"},
      {"task_name", kNothing, "", nullptr, "a column's name"},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"text_column_name", kNothing},
      {"label_column_name", kNothing},
      {"label_all_tokens", kNothing},
      {"return_entity_level_metrics", kNothing},
      {"ignore_mismatched_sizes", kNothing},
  };
  return table;
}

/// run_qa.py.
const Rows& answer_rows() {
  static const Rows table = {
      {"max_seq_length", "seq_len", "", "384"},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"doc_stride", kNothing, "", nullptr, "how many pieces a text is cut into"},
      {"version_2_with_negative", kNothing},
      {"null_score_diff_threshold", kNothing},
      {"n_best_size", kNothing},
      {"max_answer_length", kNothing, "", nullptr, "of evaluation"},
  };
  return table;
}

/// run_mlm.py: the tokenizer's own length, 1,024 at most.
const Rows& masked_rows() {
  static const Rows table = {
      {"max_seq_length", "seq_len"},
      {"mlm_probability", kNothing},
      {"line_by_line", kNothing, "", nullptr, "batches are planned at their longest"},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"validation_split_percentage", kNothing},
  };
  return table;
}

/// run_image_classification.py: images of the size that the model's config has.
const Rows& image_rows() {
  static const Rows table = {
      {"train_dir", kNothing},
      {"validation_dir", kNothing},
      {"train_val_split", kNothing},
      {"image_column_name", kNothing},
      {"label_column_name", kNothing},
      {"ignore_mismatched_sizes", kNothing},
      {"image_processor_name", kNothing},
  };
  return table;
}

/// run_summarization.py and run_translation.py.
const Rows& pair_rows() {
  static const Rows table = {
      {"max_source_length", "seq_len", "", "1024"},
      {"max_target_length", "tgt_len", "", "128"},
      {"val_max_target_length", kNothing},
      {"num_beams", kNothing, "", nullptr, "of evaluation"},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"ignore_pad_token_for_loss", kNothing},
      {"source_prefix", kNothing},
      {"source_lang", kNothing},
      {"target_lang", kNothing},
      {"lang", kNothing},
      {"forced_bos_token", kNothing},
      {"text_column", kNothing},
      {"summary_column", kNothing},
      {"predict_with_generate", kNothing, "", nullptr, "of evaluation"},
      {"resize_position_embeddings", kRefused, "false,null", nullptr, "tables of positions that are lengthened"},
  };
  return table;
}

/// run_seq2seq_qa.py.
const Rows& written_answer_rows() {
  static const Rows table = {
      {"max_seq_length", "seq_len", "", "384"},
      {"max_answer_length", "tgt_len", "", "30"},
      {"val_max_answer_length", kNothing},
      {"doc_stride", kNothing},
      {"context_column", kNothing},
      {"question_column", kNothing},
      {"answer_column", kNothing},
      {"pad_to_max_length", kNothing, "", nullptr, "batches are planned at their longest"},
      {"version_2_with_negative", kNothing},
      {"null_score_diff_threshold", kNothing},
      {"n_best_size", kNothing},
      {"num_beams", kNothing, "", nullptr, "of evaluation"},
      {"ignore_pad_token_for_loss", kNothing},
      {"predict_with_generate", kNothing, "", nullptr, "of evaluation"},
  };
  return table;
}

enum class Classes : std::uint8_t { none, of_benchmark, of_data };

struct ExampleScript {
  std::string_view name;
  const char *task, *auto_class;
  const Rows& (*rows)();
  Classes classes;
};

constexpr const char *kSequences = "AutoModelForSequenceClassification", *kPairs = "AutoModelForSeq2SeqLM";
constexpr ExampleScript kScripts[] = {
    {"run_glue.py", "cls", kSequences, sequence_rows, Classes::of_benchmark},
    {"run_classification.py", "cls", kSequences, sequence_rows, Classes::of_benchmark},
    {"run_xnli.py", "cls", kSequences, sequence_rows, Classes::of_benchmark},
    {"run_ner.py", "token-cls", "AutoModelForTokenClassification", token_rows, Classes::of_data},
    {"run_qa.py", "qa", "AutoModelForQuestionAnswering", answer_rows, Classes::none},
    {"run_mlm.py", "mlm", "AutoModelForMaskedLM", masked_rows, Classes::none},
    {"run_image_classification.py", "image", "AutoModelForImageClassification", image_rows, Classes::of_data},
    {"run_summarization.py", "seq2seq", kPairs, pair_rows, Classes::none},
    {"run_translation.py", "seq2seq", kPairs, pair_rows, Classes::none},
    {"run_seq2seq_qa.py", "seq2seq", kPairs, written_answer_rows, Classes::none},
};

const ExampleScript* script_of(const std::string& program) {
  const std::string name = base_name_of(program);
  const auto* found = std::find_if(std::begin(kScripts), std::end(kScripts), [&](const ExampleScript& each) { return each.name == name; });
  return found == std::end(kScripts) ? nullptr : found;
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

void read_classes(Reading& reading, const ExampleScript& script, const Node& own, const std::string& where) {
  const std::string name(script.name);
  if (script.classes == Classes::none) return;
  if (script.classes == Classes::of_benchmark) {
    const Node *task = own.find("task_name"), *regresses = own.find("do_regression");
    if (name == "run_glue.py" && task && !task->is_null())
      return reading.say("num_labels", std::to_string(glue_classes(*task)), "task_name", task->where);
    if (is_on(regresses)) return reading.say("num_labels", "1", "do_regression", regresses->where);
    if (name == "run_xnli.py") return reading.derive("num_labels", std::to_string(kXnliClasses), "run_xnli.py: XNLI's classes");
  }
  if (!reading.is_answered("num_labels"))
    fail("how many classes there are stands in the data of " + name + " alone", where, "give --num-labels");
}

/// Where a script cuts its texts to what the data or the tokenizer has.
void read_open_length(Reading& said, const ExampleScript& script, const std::string& where) {
  if (said.is_answered("seq_len")) return;
  if (script.name == "run_ner.py")
    fail("run_ner.py's batches are as long as their longest text where --max_seq_length is not said", where,
         "give --max_seq_length, or --seq of a batch's longest");
  if (script.name != "run_mlm.py") return;
  said.when_model_is_known([](Reading& reading, const Model& model) {
    constexpr std::int64_t kMost = 1024;
    if (model.max_positions > kMost) reading.derive("seq_len", std::to_string(kMost), "run_mlm.py: the tokenizer's length, 1024 at most");
  });
}

}  // namespace

bool is_example_script(const std::string& program) { return script_of(program) != nullptr; }

void read_example_script(Reading& reading, const Node& flags, const std::string& program) {
  const ExampleScript& script = *script_of(program);
  const std::string name(script.name);
  const auto [own, rest] = deal_keys(script.rows(), flags);
  reading.say("task", script.task, name, flags.where);
  read_classes(reading, script, own, flags.where);
  reading.derive("checkpoint.auto_class", script.auto_class, name);
  read_rows(reading, script.rows(), own);
  take_defaults(reading, script.rows(), kRelease);
  read_open_length(reading, script, flags.where);
  const Format format = training_arguments_format();
  reading.note_format(format.name);
  format.read(reading, rest);
}

const char* unmodelled_example(const std::string& program) {
  static constexpr std::pair<std::string_view, const char*> kScriptsBeside[] = {
      {"run_swag.py", "a choice among answers"},
      {"run_plm.py", "XLNet's permuted words"},
      {"run_qa_beam_search.py", "answers by a search of beams"},
      {"run_clip.py", "images and texts that are compared"},
      {"run_mae.py", "a masked autoencoder"},
      {"run_mim.py", "masked images"},
      {"run_semantic_segmentation.py", "classes of pixels"},
      {"run_instance_segmentation.py", "instances in images"},
      {"run_object_detection.py", "objects in images"},
      {"run_audio_classification.py", "classes of sounds"},
      {"run_speech_recognition_ctc.py", "speech by CTC"},
      {"run_speech_recognition_ctc_adapter.py", "speech by CTC"},
  };
  std::string name = base_name_of(program);
  constexpr std::string_view kLoop = "_no_trainer.py";
  if (name.starts_with("run_") && name.ends_with(kLoop)) {
    const std::string with_trainer = name.substr(0, name.size() - kLoop.size()) + ".py";
    const bool otherwise_read = script_of(with_trainer) || with_trainer == "run_clm.py" || with_trainer == "run_fim.py";
    return otherwise_read ? "the Trainer's step by a loop of its own" : unmodelled_example(with_trainer);
  }
  for (const auto& [script, what] : kScriptsBeside)
    if (name == script) return what;
  return nullptr;
}

}  // namespace plimsoll::formats
