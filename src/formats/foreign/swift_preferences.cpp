// ms-swift's training by preferences and rewards (swift/arguments/rlhf_args.py of 4.6): what `swift rlhf` has beside `swift sft`.
#include "formats/foreign/swift.hpp"
#include "formats/foreign/keys.hpp"
#include "formats/foreign/trl_trainers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

const Rows& rows() {
  static const Rows table = {
      {"rlhf_type", kCode, "", "dpo", "dpo, kto, orpo, cpo; simpo: task cpo; rm: task reward; grpo, ppo and gkd are refused"},
      {"ref_model", kCode, "", nullptr, "the model itself unless said; another is refused"},
      {"ref_adapters", kRefused, "null", nullptr, "a reference with adapters of its own"},
      {"ref_model_type", kNothing},
      {"ref_model_revision", kNothing},
      {"cpo_alpha", kCode, "", nullptr, "supervised_term"},
      {"loss_type", kCode, "", nullptr, "kl_batch, of kto"},
      {"use_logits_to_keep", kRefused, "true,null", nullptr, "logits of prompts"},
      {"precompute_ref_log_probs", kRefused, "false", nullptr, "numbers from before training"},
      {"beta", kNothing},
      {"label_smoothing", kNothing},
      {"rpo_alpha", kNothing, "", nullptr, "a term of numbers of the batch's size, which are computed either way"},
      {"ld_alpha", kNothing},
      {"discopop_tau", kNothing},
      {"loss_weights", kNothing},
      {"simpo_gamma", kNothing},
      {"desirable_weight", kNothing},
      {"undesirable_weight", kNothing},
      {"center_rewards_coefficient", kNothing},
      {"max_completion_length", kNothing, "", nullptr, "of trainers that write answers"},
      {"task_type", kNothing, "", nullptr, "of rm: seq_cls"},
      {"num_labels", kNothing, "", nullptr, "of rm: 1"},
  };
  return table;
}

std::string task_of(const Node& own) {
  static const std::pair<const char*, const char*> tasks[] = {{"dpo", "dpo"}, {"kto", "kto"},   {"orpo", "orpo"},
                                                              {"cpo", "cpo"}, {"simpo", "cpo"}, {"rm", "reward"}};
  const Node* type = stated(own, "rlhf_type");
  const std::string word = type ? type->word() : "dpo", where = type ? type->where : own.where;
  for (const auto& [theirs, ours] : tasks)
    if (word == theirs) return ours;
  if (word == "grpo" || word == "ppo" || word == "gkd") refuse("not modelled: ms-swift's training by rewards or a teacher (rlhf_type: " + word + ")", where, "dpo, kto, orpo, cpo, simpo or rm");
  fail("expected dpo, kto, orpo, cpo, simpo, rm, grpo, ppo or gkd, found '" + word.substr(0, 40) + "'", where);
}

}  // namespace

SwiftPreferences split_swift_preferences(const Node& tree) {
  SwiftPreferences split{Node::table(tree.where), Node::table(tree.where)};
  for (const auto& member : tree.members) (find_row(rows(), member.first) ? split.own : split.rest).members.push_back(member);
  (void)task_of(split.own);  // a trainer that is not modelled is named before keys that it alone has
  for (const char* key : {"packing", "padding_free"})  // a row holds both answers of all its pairs (PackingDataset)
    if (const Node* value = tree.find(key); is_on(value))
      refuse(std::string("not modelled: preferences packed into rows, found ") + key + ": true", value->where, "set it to false");
  return split;
}

void read_swift_preferences(Reading& reading, const Node& own, const Node* model) {
  read_rows(reading, rows(), own);
  const Node *type = own.find("rlhf_type"), *reference = stated(own, "ref_model"), *loss = stated(own, "loss_type");
  if (reference && (!model || reference->word() != model->word()))
    refuse("not modelled: a reference that is another model, found ref_model: " + reference->word().substr(0, 60), reference->where, "leave it out: it is the model itself");
  const std::string task = task_of(own);
  reading.forget("task");
  reading.say("task", task, "rlhf_type", type ? type->where : own.where);
  if (task == "cpo") read_supervised_term(reading, own);
  if (task == "kto" && loss) reading.say("kl_batch", loss->word() == "apo_zero_unpaired" ? "false" : "true", "loss_type", loss->where);
  reading.derive("trainer", "ms-swift", "ms-swift's own forward (rlhf_trainers)");
}

}  // namespace plimsoll::formats
