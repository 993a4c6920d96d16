// What TRL's configurations of preferences and rewards have beside TrainingArguments.
#pragma once

#include <string>
#include <string_view>

#include "formats/foreign/keys.hpp"
#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// TRL's trainers that are read.
enum class TrlTrainer : std::uint8_t { none, sft, reward, dpo, kto, orpo, cpo, grpo, rloo, gkd };
/// "kto": TRL's verb, and our task but for sft.
std::string_view verb_of(TrlTrainer trainer);

/// Of a verb of `trl`, or of a script (trl/scripts/dpo.py, examples/scripts/dpo.py, trl.scripts.dpo); none: another program, or a trainer
/// that is not read.
TrlTrainer trl_trainer_of_verb(const std::string& verb);
TrlTrainer trl_trainer_of_script(const std::string& program);
/// Whether a script of TRL's examples hands from_pretrained the model's name alone, and none of ModelConfig's keys that it parses.
bool loads_by_name(const std::string& program);

/// The keys that the trainer's configuration has beside TrainingArguments'; of sft none.
const Rows& rows_of(TrlTrainer trainer);
/// Whether a key is one of those.
bool is_key_of(TrlTrainer trainer, const std::string& key);
/// Whether a number that was written is 0.
bool is_zero(const Node& number);
/// CPOConfig's cpo_alpha, which other programs have by the same name: 0 leaves the next token out.
void read_supervised_term(Reading& reading, const Node& tree);

/// GKDConfig's lmbda and beta, which ms-swift has by the same names. Throws Error (refused): texts that the model writes itself.
void read_distillation(Reading& reading, const Node& tree);

/// The trainer's own keys, read out of `tree`: answers what is left of it. Throws Error, naming the key: what is not modelled, an engine that
/// is not.
Node read_trl_trainer(Reading& reading, TrlTrainer trainer, const Node& tree);

}  // namespace plimsoll::formats
