// What the keys of TRL's configurations of preferences and rewards say together.
#include "formats/foreign/trl_trainers.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// By verb, by script and by our task.
constexpr std::pair<std::string_view, TrlTrainer> kTrainers[] = {
    {"sft", TrlTrainer::sft},   {"reward", TrlTrainer::reward}, {"dpo", TrlTrainer::dpo},   {"kto", TrlTrainer::kto},
    {"orpo", TrlTrainer::orpo}, {"cpo", TrlTrainer::cpo},       {"grpo", TrlTrainer::grpo}, {"rloo", TrlTrainer::rloo},
    {"gkd", TrlTrainer::gkd}};

constexpr const char* kRead = "TRL 1.16";

bool writes_answers(TrlTrainer trainer) { return trainer == TrlTrainer::grpo || trainer == TrlTrainer::rloo; }

TrlTrainer trainer_of(const std::string& word) {
  for (const auto& [name, trainer] : kTrainers)
    if (name == word) return trainer;
  return TrlTrainer::none;
}

/// beta 0 has no reference (GRPOConfig's default since 0.18; RLOOConfig's is 0.05).
void read_divergence(Reading& reading, const Node& own) {
  const Node* beta = own.find("beta");
  if (!beta || beta->is_null()) return;
  const bool none = is_zero(*beta);
  if (none) reading.say("reference", "none", "beta", beta->where);
  if (!none && reading.has("lora.r")) reading.derive("reference", "adapter-off", "beta: a KL term against the model with its adapters off");
  if (!none && !reading.has("lora.r"))
    reading.when_model_is_known([where = beta->where](Reading& said, const Model&) {
      said.derive("reference", said.has("lora.r") ? "adapter-off" : "model", "beta: a KL term against what the model was");
    });
}

/// The engine: vLLM's server or vLLM beside the trainer.
void read_engine(Reading& reading, const Node& own) {
  const Node *uses = own.find("use_vllm"), *mode = own.find("vllm_mode");
  if (!is_on(uses))
    refuse("not modelled: answers that transformers' own generate writes", uses ? uses->where : own.where, "use_vllm: true, in either vllm_mode");
  if (mode && mode->word() != "server" && mode->word() != "colocate")
    fail("expected server or colocate, found '" + mode->word().substr(0, 40) + "'", mode->where);
  if (mode) reading.say("rollout", mode->word() == "server" ? "elsewhere" : "colocated", "vllm_mode", mode->where);
}

/// A sequence is a prompt and an answer. Releases from 0.28 on bound the prompt no more: its length is a matter of the data.
void read_lengths(Reading& reading, TrlTrainer trainer, const Node& own) {
  const Node *prompt = own.find("max_prompt_length"), *answer = own.find("max_completion_length");
  if (trainer == TrlTrainer::rloo && (!answer || answer->is_null()))
    fail("how long answers are is not said (RLOOConfig's 512, 256 in earlier releases)", own.where, "max_completion_length: 512");
  const ProgramDefault usual = program_default(reading, "max_completion_length", "512", kRead);
  const std::string tokens = answer && !answer->is_null() ? answer->word() : usual.word.value_or("512");
  if ((!prompt || prompt->is_null()) && reading.is_answered("prompt_len") && reading.is_answered("seq_len")) return;
  if (!prompt || prompt->is_null())
    fail("how long prompts are is not said, and an answer stands behind one", own.where, "give --prompt-len and --seq, the prompt and " + tokens + " tokens of its answer");
  const auto whole = [](const Node& node) { return std::atoll(node.word().c_str()); };
  const std::int64_t first = whole(*prompt), second = answer && !answer->is_null() ? whole(*answer) : std::atoll(tokens.c_str());
  if (first < 1 || second < 1) fail("expected lengths of at least 1 token", first < 1 ? prompt->where : answer->where);
  reading.say("prompt_len", std::to_string(first), "max_prompt_length", prompt->where);
  reading.derive("seq_len", std::to_string(first + second), "max_prompt_length and max_completion_length");
}

/// Answers are scored once more where steps learn of them twice, or where vLLM's numbers are corrected for.
void read_scoring(Reading& reading, const Node& own) {
  const Node *corrects = own.find("vllm_importance_sampling_correction"), *iterations = own.find("num_iterations");
  const bool again = iterations && !iterations->is_null() && iterations->word() != "1";
  if (again) refuse("not modelled: steps that learn of the same answers again (num_iterations)", iterations->where, "num_iterations: 1");
  if (corrects && !corrects->is_null())
    reading.say("old_log_probs", is_on(corrects) ? "true" : "false", "vllm_importance_sampling_correction", corrects->where);
}

/// "KTOConfig".
std::string config_of(TrlTrainer trainer) {
  if (trainer == TrlTrainer::reward) return "RewardConfig";
  std::string name(verb_of(trainer));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  return name + "Config";
}

/// SFTConfig's own keys, which the others' parsers do not know; GRPO's sequences have no length of their own either.
void refuse_keys_of_sft(TrlTrainer trainer, const Node& tree) {
  if (trainer == TrlTrainer::gkd) return;  // GKDConfig is an SFTConfig
  static constexpr std::string_view kOfSft[] = {"packing",     "packing_strategy",     "eval_packing",         "dataset_text_field",
                                                "eos_token",   "assistant_only_loss",  "completion_only_loss", "chat_template_path",
                                                "dataset_kwargs"};
  const bool writes = writes_answers(trainer);
  for (const auto& [name, value] : tree.members) {
    const bool of_sft = std::find(std::begin(kOfSft), std::end(kOfSft), name) != std::end(kOfSft) && !is_key_of(trainer, name);
    if (of_sft || (writes && name == "max_length"))
      fail("unknown key '" + name + "': " + config_of(trainer) + " has none", value.where, writes && !of_sft ? "max_completion_length" : "leave it out: it is SFTConfig's");
  }
}

}  // namespace

std::string_view verb_of(TrlTrainer trainer) {
  for (const auto& [name, each] : kTrainers)
    if (each == trainer) return name;
  return {};
}

TrlTrainer trl_trainer_of_verb(const std::string& verb) {
  const TrlTrainer trainer = trainer_of(verb);
  const bool by_script = trainer == TrlTrainer::orpo || trainer == TrlTrainer::cpo || trainer == TrlTrainer::gkd;
  return by_script ? TrlTrainer::none : trainer;
}

TrlTrainer trl_trainer_of_script(const std::string& program) {
  constexpr std::string_view kModule = "trl.scripts.", kFolder = "trl/scripts/", kExamples = "examples/scripts/";
  if (program.rfind(kModule, 0) == 0) return trainer_of(program.substr(kModule.size()));
  for (const std::string_view folder : {kFolder, kExamples}) {
    const std::size_t at = program.find(folder);
    const bool ours = at != std::string::npos && (folder == kFolder || at == 0) && program.ends_with(".py");
    if (!ours) continue;
    const std::string script = program.substr(at + folder.size(), program.size() - at - folder.size() - 3);
    return script == "reward_modeling" && folder == kExamples ? TrlTrainer::reward : trainer_of(script);
  }
  return TrlTrainer::none;
}

bool loads_by_name(const std::string& program) {
  constexpr std::string_view kExamples = "examples/scripts/";
  const std::size_t at = program.find(kExamples);
  if (at == std::string::npos) return false;
  const std::string script = program.substr(at + kExamples.size());
  return script == "orpo.py" || script == "cpo.py" || script == "kto.py";
}

bool is_zero(const Node& number) { return number.word().find_first_not_of("0.") == std::string::npos; }

void read_supervised_term(Reading& reading, const Node& tree) {
  const Node* alpha = stated(tree, "cpo_alpha");
  if (!alpha) return;
  reading.say("supervised_term", is_zero(*alpha) ? "false" : "true", "cpo_alpha", alpha->where);
}

/// GKD: a share `lmbda` of the steps learns of texts that the model writes itself; which divergence `beta` is.
void read_distillation(Reading& reading, const Node& own) {
  const Node *share = stated(own, "lmbda"), *beta = stated(own, "beta");
  if (!share || !is_zero(*share))
    refuse("not modelled: texts that the model writes itself before it learns of them (lmbda, 0.5 by itself)",
           share ? share->where : own.where, "lmbda: 0.0");
  if (!beta) return;
  const double weight = std::atof(beta->word().c_str());
  reading.say("divergence", weight == 0 ? "forward" : weight == 1 ? "reverse" : "mixture", "beta", beta->where);
}

bool is_key_of(TrlTrainer trainer, const std::string& key) { return find_row(rows_of(trainer), key) != nullptr; }

Node read_trl_trainer(Reading& reading, TrlTrainer trainer, const Node& tree) {
  const Rows& rows = rows_of(trainer);
  refuse_keys_of_sft(trainer, tree);
  auto [own, rest] = deal_keys(rows, tree);
  const std::string name(verb_of(trainer));
  reading.say("task", name, "trl " + name, tree.where);
  read_rows(reading, rows, own);
  read_supervised_term(reading, own);
  if (trainer == TrlTrainer::gkd) read_distillation(reading, own);
  if (!writes_answers(trainer)) return rest;
  read_engine(reading, own);
  read_divergence(reading, own);
  read_lengths(reading, trainer, own);
  if (trainer == TrlTrainer::grpo) read_scoring(reading, own);
  return rest;
}

}  // namespace plimsoll::formats
