// DeepSpeed's JSON. Its keys below `zero_optimization` are keys of ours (strategy/deepspeed_options.cpp); what is said otherwise by the
// program around it, and "auto", which Trainer and Accelerate fill in, are resolved here (transformers/integrations/deepspeed.py).
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"
#include "strategy/names.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "DeepSpeed 0.19";

const Rows& rows() {
  static const Rows table = {
      {"train_batch_size", "global_batch"},
      {"train_micro_batch_size_per_gpu", "micro_batch"},
      {"gradient_accumulation_steps", "grad_accum"},
      {"gradient_clipping", "clip_grad_norm", "", "1.0"},
      {"bf16.enabled", "precision", "true=bf16,false=-"},
      {"fp16.enabled", "precision", "true=fp16,false=-"},
      {"bf16.bf16_master_weights_and_grads", "deepspeed.bf16.bf16_master_weights_and_grads"},
      {"bf16.bf16_optimizer_states", "deepspeed.bf16.bf16_optimizer_states"},
      {"bf16.*", kNothing},
      {"fp16.fp16_master_weights_and_grads", "deepspeed.fp16.fp16_master_weights_and_grads"},
      {"fp16.*", kNothing, "", nullptr, "scaling of the loss"},
      {"optimizer.type", "deepspeed.optimizer.type"},
      {"optimizer.params.lr", kNothing},
      {"optimizer.params.betas", kNothing},
      {"optimizer.params.eps", kNothing},
      {"optimizer.params.weight_decay", kNothing},
      {"scheduler.*", kNothing},
      {"zero_optimization.stage", "zero_stage", "", "0"},
      {"zero_optimization.offload_optimizer.device", "deepspeed.zero_optimization.offload_optimizer.device"},
      {"zero_optimization.offload_param.device", "deepspeed.zero_optimization.offload_param.device"},
      {"zero_optimization.cpu_offload", "deepspeed.zero_optimization.offload_optimizer.device", "true=cpu,false=none", nullptr,
       "before 0.3.16"},
      {"zero_optimization.cpu_offload_params", "deepspeed.zero_optimization.offload_param.device", "true=cpu,false=none", nullptr,
       "before 0.3.16"},
      {"zero_optimization.stage3_gather_fp16_weights_on_model_save", kNothing, "", nullptr, "before 0.6"},
      {"zero_optimization.load_from_fp32_weights", kNothing},
      {"zero_optimization.gather_16bit_weights_on_model_save", kNothing},
      {"zero_optimization.prefetch_bucket_size", "deepspeed.zero_optimization.stage3_prefetch_bucket_size"},
      {"zero_optimization.param_persistence_threshold", "deepspeed.zero_optimization.stage3_param_persistence_threshold"},
      {"zero_optimization.model_persistence_threshold", "deepspeed.zero_optimization.stage3_model_persistence_threshold"},
      {"zero_optimization.max_live_parameters", "deepspeed.zero_optimization.stage3_max_live_parameters"},
      {"zero_optimization.max_reuse_distance", "deepspeed.zero_optimization.stage3_max_reuse_distance"},
      {"zero_optimization.module_granularity_threshold", "deepspeed.zero_optimization.stage3_module_granularity_threshold"},
      {"zero_optimization.use_all_reduce_for_fetch_params", "deepspeed.zero_optimization.stage3_use_all_reduce_for_fetch_params"},
      {"zero_optimization.leaf_module.*", kRefused, "", nullptr, "a mixture of experts gathered as one module (leaf_module)"},
      {"zero_optimization.zenflow.*", kRefused, "", nullptr, "ZenFlow"},
      {"zero_optimization.*", "deepspeed.zero_optimization.*"},
      {"hybrid_engine.enabled", kRefused, "false", nullptr, "the hybrid engine"},
      {"hybrid_engine.*", kNothing},
      {"amp.enabled", kRefused, "false,auto", nullptr, "apex's amp"},
      {"amp.*", kNothing},
      {"elasticity.enabled", kRefused, "false", nullptr, "an elastic world (elasticity)"},
      {"elasticity.*", kNothing},
      {"data_efficiency.enabled", kRefused, "false", nullptr, "data efficiency (routing of tokens)"},
      {"data_efficiency.*", kNothing},
      {"curriculum_learning.enabled", kRefused, "false", nullptr, "a curriculum of lengths"},
      {"curriculum_learning.*", kNothing},
      {"progressive_layer_drop.enabled", kRefused, "false", nullptr, "progressive layer drop"},
      {"progressive_layer_drop.*", kNothing},
      {"expert_parallel.enabled", kRefused, "false", nullptr, "DeepSpeed's expert parallelism (AutoEP)"},
      {"expert_parallel.*", kNothing},
      {"compression_training.*", kRefused, "", nullptr, "compression while training"},
      {"compile.deepcompile", kRefused, "false", nullptr, "DeepCompile"},
      {"activation_checkpointing.partition_activations", kNothing, "", nullptr,
       "acts where the model calls DeepSpeed's checkpointing itself"},
      {"activation_checkpointing.*", kNothing},
      {"zero_allow_untested_optimizer", kNothing},
      {"zero_force_ds_cpu_optimizer", kNothing},
      {"steps_per_print", kNothing},
      {"wall_clock_breakdown", kNothing},
      {"torch_autocast.*", kCode},
      {"*", "deepspeed.*"},
  };
  return table;
}

int recognises(const Node& tree) {
  return 3 * count_of(tree, {"zero_optimization", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer"}) +
         count_of(tree, {"train_batch_size", "gradient_clipping", "fp16.enabled", "bf16.enabled", "steps_per_print"});
}

/// DeepSpeedConfig takes its tables by name and drops others: one whose name is nearly a table's would be dropped with all that it says.
void refuse_misspelt_tables(const Node& tree) {
  std::vector<std::string> tables;
  for (const Row& row : rows())
    if (const std::string_view name(row.foreign); name.find('.') != std::string_view::npos) tables.emplace_back(name.substr(0, name.find('.')));
  for (const auto& [name, value] : tree.members) {
    if (!value.is_table() || std::find(tables.begin(), tables.end(), name) != tables.end()) continue;
    const std::string near = slip_of(name, tables);
    if (!near.empty()) fail("unknown key '" + name.substr(0, 60) + "'", value.where, "did you mean '" + near + "'?");
  }
}

bool is_auto(const Node& node) { return node.is_scalar() && node.text == "auto"; }

/// Takes all "auto" out of a tree, telling where each stood.
void take_autos(Node& tree, const std::string& path, std::vector<std::pair<std::string, std::string>>& autos) {
  std::erase_if(tree.members, [&](auto& member) {
    const std::string key = path + member.first;
    if (is_auto(member.second)) {
      autos.emplace_back(key, member.second.where);
      return true;
    }
    if (member.second.is_table()) take_autos(member.second, key + ".", autos);
    return false;
  });
}

bool has_trainer(const Reading& reading) {
  for (const char* name : {"transformers", "accelerate", "axolotl", "llama-factory", "trl", "ms-swift"})
    if (reading.has_format(name)) return true;
  return false;
}

/// Whether a frozen model is an engine of its own: a teacher, or a copy of the model, of which TRL takes none beside adapters.
bool keeps_reference(const Reading& reading) {
  PostTraining post;
  for (const auto& [name, kind] : strategy::post_training_names())
    if (reading.is("task", name)) post.kind = kind;
  return post.compares() && (post.kind == PostTraining::Kind::gkd || !reading.has("lora.r"));
}

/// What Trainer fills in where the file says "auto"; what it would take from its own arguments stands with those already.
void resolve_auto(Reading& reading, const Model& model, const std::string& key, const std::string& where) {
  const std::string filled = "auto of " + where;
  const std::int64_t h = model.hidden_size;
  if (key == "zero_optimization.reduce_bucket_size") reading.derive("deepspeed." + key, std::to_string(h * h), filled + ": hidden_size²");
  if (key == "zero_optimization.stage3_prefetch_bucket_size")
    reading.derive("deepspeed." + key, std::to_string(h * h * 9 / 10), filled + ": 0.9 · hidden_size²");
  if (key == "zero_optimization.stage3_param_persistence_threshold")
    reading.derive("deepspeed." + key, std::to_string(10 * h), filled + ": 10 · hidden_size");
  if (!keeps_reference(reading)) return;
  const std::string left = filled + ": DeepSpeed's default, for TRL makes the reference's engine before Trainer fills it in (prepare_deepspeed)";
  const DeepSpeedOptions own;
  if (key == "zero_optimization.stage3_prefetch_bucket_size")
    reading.derive("reference_prefetch_bucket_size", std::to_string(own.stage3_prefetch_bucket_size), left);
  if (key == "zero_optimization.stage3_param_persistence_threshold")
    reading.derive("reference_param_persistence_threshold", std::to_string(own.stage3_param_persistence_threshold), left);
}

/// Releases differ in whether what is offloaded lies in pinned memory.
void take_pinning(Reading& reading, const Node& said) {
  static const Rows table = {{"zero_optimization.offload_optimizer.pin_memory", "deepspeed.zero_optimization.offload_optimizer.pin_memory"},
                             {"zero_optimization.offload_param.pin_memory", "deepspeed.zero_optimization.offload_param.pin_memory"}};
  for (const Row& row : table) {
    const std::string key = row.foreign;
    if (said.find(key.substr(0, key.rfind('.'))) != nullptr) take_default(reading, row, kRelease);
  }
}

/// An object is one value of our table: torch_autocast has several keys that mean something together.
void read_autocast(Reading& reading, const Node& tree) {
  const Node* autocast = tree.find("torch_autocast");
  if (!autocast || !autocast->is_table()) return;
  std::string json;
  for (const auto& [name, value] : autocast->members) {
    std::string text = value.is_list() ? "[" : "";
    if (value.is_list()) {
      for (const auto& [unused, one] : value.members) text += (text.size() > 1 ? ",\"" : "\"") + one.word() + "\"";
      text += "]";
    } else {
      text = value.quoted ? "\"" + value.word() + "\"" : value.word();
    }
    json += (json.empty() ? "\"" : ",\"") + name + "\":" + text;
  }
  reading.say("deepspeed.torch_autocast", "{" + json + "}", "torch_autocast", autocast->where);
}

/// DeepSpeed makes the optimizer that its file names; Trainer's `optim` is then not asked.
void drop_trainer_optimizer(Reading& reading, const Model&) {
  const ForeignKey* made = reading.find("optimizer_impl");
  if (made && made->kind == ForeignKey::Kind::by_default) reading.forget("optimizer_impl");
}

/// Stage 3's optimizer alone is handed offload_param (engine.py, _configure_zero_optimizer).
void drop_parameter_offload(Reading& reading, Node& said) {
  const Node *stage = said.find("zero_optimization.stage"), *offload = said.find("zero_optimization.offload_param");
  if (!stage || !stage->is_scalar() || stage->text == "3" || !offload || offload->is_null()) return;
  reading.leave_unread("zero_optimization.offload_param: DeepSpeed drops it below stage 3", offload->where);
  for (auto& [name, table] : said.members)
    if (name == "zero_optimization") std::erase_if(table.members, [](const auto& member) { return member.first == "offload_param"; });
}

void read(Reading& reading, const Node& tree) {
  Node said = tree;
  std::vector<std::pair<std::string, std::string>> autos;
  take_autos(said, {}, autos);
  refuse_misspelt_tables(said);
  drop_parameter_offload(reading, said);
  read_rows(reading, rows(), said);
  read_autocast(reading, said);
  reading.derive("framework", "deepspeed", "DeepSpeed's JSON");
  take_defaults(reading, rows(), kRelease);
  take_pinning(reading, said);
  if (!reading.has("precision") && autos.empty()) reading.assume("precision", "fp32", "fp16.enabled: false, bf16.enabled: false", kRelease);
  if (said.find("optimizer.type")) reading.when_model_is_known(drop_trainer_optimizer);
  if (autos.empty()) return;
  reading.when_model_is_known([autos](Reading& r, const Model& model) {
    if (!has_trainer(r)) return;  // DeepSpeed itself drops "auto" and takes its default
    for (const auto& [key, where] : autos) resolve_auto(r, model, key, where);
  });
}

}  // namespace

void read_deepspeed_reference(Reading& reading, const Node& value) {
  if (!value.is_table()) return reading.include(value.word(), value, "deepspeed");
  reading.note_format("deepspeed");
  read(reading, value);
}

Format deepspeed_format() { return {"deepspeed", "DeepSpeed's JSON", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
