// Torch's FSDP as Accelerate's plugin takes it (accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin).
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {

const Rows& fsdp_rows() {
  static const Rows rows = {
      {"version", "data_parallel", "1=fsdp1,2=fsdp2"},
      {"sharding_strategy", "fsdp.strategy",
       "FULL_SHARD=FULL_SHARD,SHARD_GRAD_OP=SHARD_GRAD_OP,NO_SHARD=NO_SHARD,HYBRID_SHARD=HYBRID_SHARD,HYBRID_SHARD_ZERO2=HYBRID_SHARD_"
       "ZERO2,"
       "1=FULL_SHARD,2=SHARD_GRAD_OP,3=NO_SHARD,4=HYBRID_SHARD,5=HYBRID_SHARD_ZERO2",
       nullptr, "FSDP1; under FSDP2 reshard_after_forward says it"},
      {"reshard_after_forward", kCode, "", nullptr,
       "FSDP2: true or false, which is fsdp.reshard_after_forward; FSDP1: the name of a strategy"},
      {"offload_params", "offload", "true=params+grads+optimizer,false=none"},
      {"cpu_offload", "offload", "true=params+grads+optimizer,false=none"},
      {"auto_wrap_policy", kCode, "", nullptr, "TRANSFORMER_BASED_WRAP: a unit per layer; NO_WRAP and SIZE_BASED_WRAP are not modelled"},
      {"transformer_layer_cls_to_wrap", "fsdp.units"},
      {"transformer_cls_names_to_wrap", "fsdp.units"},
      {"min_num_params", kNothing, "", nullptr, "of SIZE_BASED_WRAP alone"},
      {"backward_prefetch", kCode, "", nullptr, "FSDP1: BACKWARD_PRE is modelled; FSDP2 has none"},
      {"forward_prefetch", "fsdp.forward_prefetch"},
      {"limit_all_gathers", kCode, "", nullptr, "FSDP1: fsdp.limit_all_gathers"},
      {"use_orig_params", kCode, "", nullptr, "FSDP1: fsdp.use_orig_params"},
      {"activation_checkpointing", "recompute", "true=full,false=none"},
      {"ignored_modules", kRefused, "null", nullptr, "a module that FSDP leaves whole"},
      {"mixed_precision_policy", kRefused, "bf16,fp16", nullptr, "a policy of its own for FSDP's precision"},
      {"cpu_offload_pin_memory", kRefused, "true", nullptr, "offload to memory that is not pinned"},
      {"state_dict_type", kNothing},
      {"final_state_dict_type", kNothing},
      {"sync_module_states", kNothing, "", nullptr, "at loading alone"},
      {"cpu_ram_efficient_loading", kNothing, "", nullptr, "at loading alone: host memory"},
      {"xla", kRefused, "false", nullptr, "FSDP on XLA"},
      {"xla_fsdp_v2", kNothing},
      {"xla_fsdp_grad_ckpt", kNothing},
      {"xla_fsdp_settings.*", kNothing},
      {"fsdp_size", "dp_shard", "", nullptr, "transformers 5"},
      {"tp_size", "tp", "", nullptr, "transformers 5"},
      {"enable_expert_parallel", kRefused, "false", nullptr, "expert parallelism of transformers"},
  };
  return rows;
}

namespace {

/// "fsdp_offload_params" and "offload_params" are one key.
Node without_prefix(const Node& config) {
  Node plain = Node::table(config.where);
  for (const auto& [name, value] : config.members) plain.members.emplace_back(name.rfind("fsdp_", 0) == 0 ? name.substr(5) : name, value);
  return plain;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

void read_wrapping(const Node& config, const std::string& prefix) {
  const Node* policy = config.find("auto_wrap_policy");
  if (!policy || policy->is_null()) return;
  const std::string name = upper(policy->word());
  if (name == "TRANSFORMER_BASED_WRAP") return;
  if (name != "NO_WRAP" && name != "SIZE_BASED_WRAP")
    fail("'" + name.substr(0, 60) + "' is no wrap policy (" + prefix + "auto_wrap_policy)", policy->where,
         suggest(name.substr(0, 60), {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}));
  refuse("units of " + name + " are not modelled (" + prefix + "auto_wrap_policy)", policy->where, "TRANSFORMER_BASED_WRAP is");
}

void read_resharding(Reading& reading, const Node& config, const std::string& prefix, bool second) {
  const Node* value = config.find("reshard_after_forward");
  const Row names = *find_row(fsdp_rows(), "sharding_strategy");
  if (value && !value->is_null()) {
    const std::string text = value->word();
    const bool truth = text == "true" || text == "false";
    if (second && !truth && upper(text) != "FULL_SHARD" && upper(text) != "SHARD_GRAD_OP" &&
        (text.empty() || text.find_first_not_of("0123456789") != std::string::npos))
      fail("FSDP2 takes true or false, found " + text.substr(0, 60), value->where);
    const std::string foreign = prefix + "reshard_after_forward";
    if (second && (truth || upper(text) == "FULL_SHARD" || upper(text) == "SHARD_GRAD_OP")) {
      reading.say("fsdp.reshard_after_forward", text == "true" || upper(text) == "FULL_SHARD" ? "always" : "never", foreign, value->where);
    } else if (second) {
      reading.say("fsdp.reshard_after_forward", text, foreign, value->where);
    } else if (truth) {
      fail("FSDP1 takes the name of a strategy, found " + text, value->where, "FULL_SHARD or SHARD_GRAD_OP; or say fsdp_version: 2");
    } else {
      reading.say("fsdp.strategy", to_ours(names, upper(text), value->where), foreign, value->where);
    }
  }
  const ForeignKey* strategy = reading.find("fsdp.strategy");
  if (!second || !strategy) return;
  const std::string name = strategy->value;
  if (name != "FULL_SHARD" && name != "SHARD_GRAD_OP" && name != "HYBRID_SHARD")
    fail("FSDP2 has no " + name, strategy->where, "fsdp_version: 1, or reshard_after_forward");
  const std::string why = "sharding_strategy " + name + " under FSDP2";
  reading.derive("fsdp.reshard_after_forward", name == "SHARD_GRAD_OP" ? "never" : "always", why);
  if (name == "HYBRID_SHARD")
    refuse("HYBRID_SHARD under FSDP2 says no mesh", strategy->where, "give parallelism_config_dp_shard_size and dp_replicate_size");
  reading.forget("fsdp.strategy");
}

/// FSDP1 alone.
void read_first(Reading& reading, const Node& config, const std::string& prefix, const Release& release) {
  for (const char* key : {"limit_all_gathers", "use_orig_params"}) {
    const Node* value = config.find(key);
    if (value && !value->is_null()) reading.say("fsdp." + std::string(key), value->word(), prefix + key, value->where);
  }
  reading.assume("fsdp.limit_all_gathers", "true", "limit_all_gathers", release);
  const Node* prefetch = config.find("backward_prefetch");
  if (prefetch && !prefetch->is_null() && upper(prefetch->word()) != "BACKWARD_PRE" && prefetch->word() != "1")
    refuse("FSDP1 with backward_prefetch " + prefetch->word() + " is not modelled", prefetch->where, "BACKWARD_PRE is");
}

}  // namespace

void read_fsdp(Reading& reading, const Node& config, const std::string& prefix, int version, const Release& release) {
  if (!config.is_null() && !config.is_table()) fail("expected a table of FSDP's keys", config.where);
  const Node plain = without_prefix(config);
  read_rows(reading, fsdp_rows(), plain, prefix, Unknown::refused);
  if (!reading.has("data_parallel"))
    reading.assume("data_parallel", version == 2 ? "fsdp2" : "fsdp1", "fsdp_version: " + std::to_string(version), release);
  const bool second = reading.is("data_parallel", "fsdp2");
  read_wrapping(plain, prefix);
  read_resharding(reading, plain, prefix, second);
  if (!second) read_first(reading, plain, prefix, release);
}

}  // namespace plimsoll::formats
