// Torch's FSDP as Accelerate's plugin takes it (accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin).
#include <algorithm>
#include <cmath>

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
      {"auto_wrap_policy", kCode, "", nullptr,
       "TRANSFORMER_BASED_WRAP: a unit per layer; NO_WRAP: fsdp.units none; SIZE_BASED_WRAP: fsdp.min_num_params"},
      {"transformer_layer_cls_to_wrap", "fsdp.units"},
      {"transformer_cls_names_to_wrap", "fsdp.units"},
      {"min_num_params", kCode, "", nullptr, "fsdp.min_num_params, of SIZE_BASED_WRAP alone"},
      {"backward_prefetch", kCode, "", nullptr, "FSDP1: fsdp.backward_prefetch"},
      {"forward_prefetch", "fsdp.forward_prefetch"},
      {"limit_all_gathers", kCode, "", nullptr, "FSDP1: fsdp.limit_all_gathers"},
      {"use_orig_params", kCode, "", nullptr, "FSDP1: fsdp.use_orig_params"},
      {"activation_checkpointing", kCode, "", nullptr, "true: recompute full, whatever gradient_checkpointing says"},
      {"ignored_modules", kRefused, "null", nullptr, "a module that FSDP leaves whole"},
      {"mixed_precision_policy", kRefused, "bf16,fp16", nullptr, "a policy of its own for FSDP's precision"},
      {"cpu_offload_pin_memory", kRefused, "true", nullptr, "offload to memory that is not pinned"},
      {"state_dict_type", kNothing},
      {"final_state_dict_type", kNothing},
      {"sync_module_states", kNothing, "", nullptr, "at loading alone"},
      {"cpu_ram_efficient_loading", "host_loading", "true=first-rank,false=every-rank"},
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

/// A number of parameters as YAML and JSON have it: 100000000 or 1e8.
std::string count_of_parameters(const Node& value) {
  char* end = nullptr;
  const std::string text = value.word();
  const double number = std::strtod(text.c_str(), &end);
  constexpr double kMost = 1e15;
  if (text.empty() || *end != 0 || !(number >= 1 && number <= kMost) || number != std::floor(number))
    fail("'" + text.substr(0, 60) + "' is no number of parameters (min_num_params)", value.where, "100000000");
  return std::to_string(static_cast<std::int64_t>(number));
}

/// How the model is cut: Trainer's word "auto_wrap" stands for the policy, which by size needs a least size.
void read_wrapping(Reading& reading, const Node& config, const std::string& prefix, const ReadRelease& release) {
  const Node *policy = config.find("auto_wrap_policy"), *least = config.find("min_num_params");
  const bool sized = least && !least->is_null() && least->word() != "0";
  const ForeignKey* word = reading.find("auto_wrap");
  const ProgramDefault usual = program_default(reading, prefix + "auto_wrap_policy", nullptr, release);
  const bool said = policy && !policy->is_null();
  const std::string name = said   ? upper(policy->word())
                           : word ? (sized ? "SIZE_BASED_WRAP" : "TRANSFORMER_BASED_WRAP")
                                  : usual.word.value_or("");
  if (name.empty() || name == "TRANSFORMER_BASED_WRAP") return;
  const std::string foreign = prefix + "auto_wrap_policy", where = said ? policy->where : word ? word->where : std::string();
  if (name == "SIZE_BASED_WRAP") {
    reading.forget("fsdp.units");  // classes are not asked for
    if (sized) return reading.say("fsdp.min_num_params", count_of_parameters(*least), prefix + "min_num_params", least->where);
    return reading.assume("fsdp.min_num_params", "100000000", prefix + "min_num_params: 1e8", release);
  }
  if (name != "NO_WRAP")
    fail("'" + name.substr(0, 60) + "' is no wrap policy (" + foreign + ")", where,
         suggest(name.substr(0, 60), {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"}));
  reading.forget("fsdp.units");
  if (said) return reading.say("fsdp.units", "none", foreign, where);
  reading.assume("fsdp.units", "none", usual.told, usual.release);
}

/// Under FSDP1 Accelerate's plugin fills in sharding_strategy, FULL_SHARD where nobody says it, and prefers it to reshard_after_forward
/// (FullyShardedDataParallelPlugin.__post_init__ and prepare_model of 1.6 to 1.15): a strategy that is said so is lost.
void full_shard_instead(Reading& reading, const std::string& said) {
  if (reading.is("fsdp.strategy", "FULL_SHARD")) return;
  if (const ForeignKey* other = reading.find("fsdp.strategy"); other && other->foreign != "fsdp") return;  // sharding_strategy itself
  reading.forget("fsdp.strategy");
  reading.derive("fsdp.strategy", "FULL_SHARD", said + " under FSDP1, where Accelerate reads sharding_strategy alone");
}

void read_resharding(Reading& reading, const Node& config, const std::string& prefix, bool second, const ReadRelease& release) {
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
      (void)to_ours(names, upper(text), value->where);
      full_shard_instead(reading, foreign + ": " + text);
    }
  }
  const ForeignKey* strategy = reading.find("fsdp.strategy");
  if (!strategy) return;
  if (!second) {
    const bool lost = strategy->foreign == "fsdp" && program_default(reading, "fsdp.word", "sharding_strategy", release).word == "reshard_after_forward";
    if (lost) full_shard_instead(reading, "fsdp: " + strategy->value);
    return;
  }
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
const Rows& first_rows() {
  static const Rows rows = {
      {"limit_all_gathers", "fsdp.limit_all_gathers", "", "true"},
      {"use_orig_params", "fsdp.use_orig_params"},
      {"backward_prefetch", "fsdp.backward_prefetch",
       "BACKWARD_PRE=BACKWARD_PRE,BACKWARD_POST=BACKWARD_POST,NO_PREFETCH=NO_PREFETCH,1=BACKWARD_PRE,2=BACKWARD_POST"},
  };
  return rows;
}

void read_first(Reading& reading, const Node& config, const std::string& prefix, const ReadRelease& release) {
  for (const Row& row : first_rows()) {
    const Node* value = config.find(row.foreign);
    if (value && !value->is_null()) reading.say(std::string(row.ours), to_ours(row, value->word(), value->where), prefix + row.foreign, value->where);
  }
  take_defaults(reading, first_rows(), release, prefix);
}

/// FSDP's own checkpointing takes the place of Trainer's, which people then switch off.
void read_checkpointing(Reading& reading, const Node& config, const std::string& prefix) {
  const Node* value = config.find("activation_checkpointing");
  if (!value || value->is_null() || value->text == "false") return;
  if (value->text != "true") fail("expected true or false for " + prefix + "activation_checkpointing", value->where);
  reading.overriding([&] { reading.say("recompute", "full", prefix + "activation_checkpointing", value->where); });
}

}  // namespace

void read_fsdp(Reading& reading, const Node& config, const std::string& prefix, int version, const ReadRelease& release) {
  if (!config.is_null() && !config.is_table()) fail("expected a table of FSDP's keys", config.where);
  Node plain = without_prefix(config);
  for (auto& [name, unused] : plain.members)
    if (name == "backward_prefetch_policy") name = "backward_prefetch";  // Accelerate's name before 0.25
  read_rows(reading, fsdp_rows(), plain, prefix, Unknown::refused);
  const ProgramDefault usual = program_default(reading, prefix + "version", version == 2 ? "2" : "1", release);
  if (!reading.has("data_parallel")) reading.assume("data_parallel", usual.word == "2" ? "fsdp2" : "fsdp1", usual.told, usual.release);
  const bool second = reading.is("data_parallel", "fsdp2");
  read_wrapping(reading, plain, prefix, release);
  read_checkpointing(reading, plain, prefix);
  read_resharding(reading, plain, prefix, second, release);
  if (!second) read_first(reading, plain, prefix, release);
}

}  // namespace plimsoll::formats
