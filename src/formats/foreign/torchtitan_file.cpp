// TorchTitan: the TOML of its releases up to 0.2, and the overrides of a command line, which have the same names in 0.3
// (config/job_config.py, config/configs.py). Its Python configs are not run: what one of them sets beyond the defaults must be said.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/torchtitan_flavors.hpp"
#include "plimsoll/error.hpp"
#include "units/text.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kToml = "torchtitan 0.2";

const Rows& rows() {
  static const Rows table = {
      {"model.name", kCode, "", nullptr, "with model.flavor: model"},
      {"model.flavor", kCode, "", nullptr, "with model.name: model"},
      {"model.converters", kCode, "", nullptr, "float8, mx: precision"},
      {"module", kCode, "", nullptr, "0.3: model.name of the command line"},
      {"release", kCode, "", nullptr, "0.3 in a file of plimsoll export"},
      {"config", kCode, "", nullptr, "0.3: the model's name and flavor, \"llama3_8b\""},
      {"training.local_batch_size", kCode, "", nullptr,
       "micro_batch; with a pipeline local_batch_size / pipeline_parallel_microbatch_size micro-batches"},
      {"training.batch_size", kCode, "", nullptr, "local_batch_size before 2025-05"},
      {"training.global_batch_size", "global_batch", "-1=-,*"},
      {"training.seq_len", "seq_len", "", "2048"},
      {"training.max_norm", "clip_grad_norm", "", "1.0"},
      {"training.enable_cpu_offload", "offload", "true=params+grads+optimizer,false=-"},
      {"training.dtype", "param_dtype", "float32=fp32,bfloat16=bf16", "float32"},
      {"training.mixed_precision_param", "precision", "bfloat16=bf16,float32=fp32", "bfloat16"},
      {"training.mixed_precision_reduce", "reduce_dtype", "float32=fp32,bfloat16=bf16", "float32"},
      {"training.disable_cuda_graphs", kNothing, "", nullptr, "0.3"},
      {"training.compile", "compile", "", nullptr, "before 2025-08"},
      {"training.tensor_parallel_degree", "tp", "", nullptr, "before 2025-02"},
      {"training.data_parallel_replicate_degree", "dp_replicate", "", nullptr, "before 2025-02"},
      {"training.data_parallel_shard_degree", "dp_shard", "-1=-,*", nullptr, "before 2025-02"},
      {"training.max_context_length", kRefused, "", nullptr, "a batch in tokens (after 0.3)"},
      {"training.num_tokens_per_microbatch_per_dp_rank", kRefused, "", nullptr, "a batch in tokens (after 0.3)"},
      {"parallelism.data_parallel_replicate_degree", "dp_replicate", "", "1"},
      {"parallelism.data_parallel_shard_degree", "dp_shard", "-1=-,*"},
      {"parallelism.fsdp_reshard_after_forward", "fsdp.reshard_after_forward", "", "default"},
      {"parallelism.tensor_parallel_degree", "tp", "", "1"},
      {"parallelism.enable_sequence_parallel", "sequence_parallel", "", nullptr, "0.3"},
      {"parallelism.disable_loss_parallel", "loss_parallel", "true=false,false=-", nullptr, "0.2"},
      {"parallelism.enable_async_tensor_parallel", "async_tp", "", nullptr, "0.2"},
      {"parallelism.pipeline_parallel_degree", "pp", "", "1"},
      {"parallelism.pipeline_parallel_schedule", kCode, "", nullptr, "pp_schedule"},
      {"parallelism.pipeline_parallel_microbatch_size", kCode, "", nullptr, "micro_batch of a pipeline"},
      {"parallelism.pipeline_parallel_layers_per_stage", kRefused, "null", nullptr, "a fixed number of layers per stage"},
      {"parallelism.pipeline_parallel_first_stage_less_layers", kRefused, "1", nullptr, "another share of the first stage"},
      {"parallelism.pipeline_parallel_last_stage_less_layers", kRefused, "1", nullptr, "another share of the last stage"},
      {"parallelism.pipeline_parallel_schedule_csv", kRefused, "", nullptr, "a schedule from a file"},
      {"parallelism.module_fqns_per_model_part", kRefused, "", nullptr, "stages given by modules"},
      {"parallelism.context_parallel_degree", "cp", "", "1"},
      {"parallelism.context_parallel_rotate_method", kNothing},
      {"parallelism.context_parallel_load_balancer", kNothing},
      {"parallelism.expert_parallel_degree", "ep", "", "1"},
      {"parallelism.expert_tensor_parallel_degree", "etp", "", nullptr, "0.2"},
      {"parallelism.expert_parallel_comm_backend", "moe_dispatcher", "standard=alltoall,deepep=deepep", nullptr, "0.2"},
      {"parallelism.spmd_backend", "spmd_backend", "", nullptr, "0.3"},
      {"parallelism.enable_fsdp_symm_mem", kRefused, "false", nullptr, "symmetric memory under FSDP"},
      {"parallelism.enable_compiled_autograd", kRefused, "false", nullptr, "compiled autograd"},
      {"activation_checkpoint.mode", kCode, "", nullptr, "recompute: none, full, selective"},
      {"activation_checkpoint.selective_ac_option", kCode, "", nullptr, "op: selective-ac-op; a number: every-N-layers"},
      {"activation_checkpoint.memory_budget", kNothing, "", nullptr, "of mode memory_budget"},
      {"activation_checkpoint.*", kNothing},
      {"optimizer.name", "optimizer", "AdamW=adamw,Adam=adam,*=!", "AdamW"},
      {"optimizer.implementation", "optimizer_impl", "fused=fused,foreach=foreach,for-loop=for-loop", "fused"},
      {"optimizer.early_step_in_backward", "optimizer_in_bwd", "", "false"},
      {"optimizer.fused", "optimizer_impl", "true=fused,false=foreach", nullptr, "before 2025-05"},
      {"optimizer.*", kNothing},
      {"compile.enable", "compile", "true=blocks,false=false", "false"},
      {"compile.enable_async_tensor_parallel", "async_tp", "", nullptr, "0.3"},
      {"compile.components", kNothing},
      {"loss.num_chunks", "loss_chunks", "", nullptr, "0.3"},
      {"quantize.linear.float8.enable_fsdp_float8_all_gather", kNothing, "", nullptr, "read with recipe_name"},
      {"quantize.linear.float8.recipe_name", "fp8_recipe", "tensorwise=tensorwise,rowwise=rowwise,*=!"},
      {"float8.recipe_name", "fp8_recipe", "tensorwise=tensorwise,rowwise=rowwise,*=!", nullptr, "before 2025-09"},
      {"debug.moe_force_load_balance", "moe_forced_balance", "", nullptr, "0.2"},
      {"memory_estimation.enable", kRefused, "false", nullptr, "torchtitan's own estimate"},
      {"fault_tolerance.enable", kRefused, "false", nullptr, "TorchFT"},
  };
  return table;
}

int recognises(const Node& tree) {
  return 3 * count_of(tree, {"parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree", "activation_checkpoint.mode",
                             "training.local_batch_size", "training.data_parallel_shard_degree"}) +
         count_of(tree, {"job.dump_folder", "training.seq_len", "model.flavor", "metrics.log_freq"});
}

/// torchtitan/models/*/__init__.py; the published sizes have the published shapes.
constexpr TitanFlavor kFlavors[] = {
    {"llama3", "1B", "llama-3.2-1b"},
    {"llama3", "3B", "llama-3.2-3b"},
    {"llama3", "8B", "llama-3.1-8b"},
    {"llama3", "70B", "llama-3.1-70b"},
    {"llama3", "405B", "llama-3.1-405b"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
    {"deepseek_v3", "16B", "deepseek-v2-lite"},
    {"deepseek_v3", "236B", "deepseek-v2"},
    {"deepseek_v3", "671B", "deepseek-v3"},
    {"gpt_oss", "20b", "gpt-oss-20b"},
    {"gpt_oss", "120b", "gpt-oss-120b"},
};

/// models/llama3, flavor debugmodel: what every example of torchtitan's starts from.
void say_debug_model(Reading& reading, const std::string& foreign, const std::string& where) {
  const std::pair<const char*, const char*> fields[] = {{"hidden_size", "256"},
                                                        {"num_layers", "6"},
                                                        {"num_attention_heads", "16"},
                                                        {"num_key_value_heads", "16"},
                                                        {"intermediate_size", "768"},
                                                        {"vocab_size", "2048"},
                                                        {"mlp", "swiglu"},
                                                        {"norm", "rmsnorm"},
                                                        {"positions", "rope"},
                                                        {"tie_embeddings", "false"}};
  for (const auto& [field, value] : fields) reading.say(std::string("model.") + field, value, foreign, where);
}

void say_flavor(Reading& reading, const std::string& name, std::string flavor, const Node& from) {
  const std::string foreign = "model " + name + " " + flavor;
  for (const char* attention : {"_flex_attn", "_varlen_attn", "_flex", "_varlen"})
    if (const std::size_t at = flavor.rfind(attention);
        at != std::string::npos && at + std::string_view(attention).size() == flavor.size()) {
      reading.say("attention", std::string_view(attention).find("flex") != std::string_view::npos ? "flex" : "flash-varlen", foreign,
                  from.where);
      flavor.resize(at);
    }
  if (name == "llama3" && flavor == "debugmodel") return say_debug_model(reading, foreign, from.where);
  std::vector<std::string> known;
  for (const TitanFlavor& one : kFlavors) {
    std::string spelt = lower(one.flavor);
    std::replace(spelt.begin(), spelt.end(), '.', '_');  // 0_6b of a configuration's name
    std::replace(spelt.begin(), spelt.end(), '-', '_');
    const bool same = lower(flavor) == lower(one.flavor) || lower(flavor) == spelt;
    if (name == one.family && same) return reading.say("model", one.shipped, foreign, from.where);
    known.push_back(std::string(one.family) + "/" + one.flavor);
  }
  fail("torchtitan's model " + name.substr(0, 40) + "/" + flavor.substr(0, 40) + " is not known here", from.where,
       suggest(name.substr(0, 40) + "/" + flavor.substr(0, 40), known) + " or give MODEL");
}

/// "llama3_8b" of --config: the model's name and its flavor.
void read_model(Reading& reading, const Node& tree) {
  const Node *name = tree.find("model.name"), *flavor = tree.find("model.flavor"), *config = tree.find("config"),
             *module = tree.find("module");
  if (config && !config->is_null() && module && !module->is_null()) {
    const std::string whole = config->word(), family = module->word().substr(module->word().rfind('.') + 1);
    if (whole.rfind(family + "_", 0) != 0)
      fail("--config " + whole.substr(0, 60) + " is no configuration of " + family, config->where, "give MODEL");
    return say_flavor(reading, family, whole.substr(family.size() + 1), *config);
  }
  if (name || flavor) say_flavor(reading, name ? name->word() : "llama3", flavor ? flavor->word() : "debugmodel", flavor ? *flavor : *name);
}

void read_recompute(Reading& reading, const Node& tree) {
  const Node *mode = tree.find("activation_checkpoint.mode"), *option = tree.find("activation_checkpoint.selective_ac_option");
  const std::string name = mode ? mode->word() : "selective", which = option ? option->word() : "2";
  const std::string where = mode ? mode->where : kToml;
  std::string ours;
  if (name == "none" || name == "full") {
    ours = name;
  } else if (name == "selective") {
    ours = which == "op" ? "selective-ac-op" : "every-" + which + "-layers";
  } else if (name == "memory_budget") {
    refuse("activation_checkpoint.mode memory_budget is not modelled", where, "none, selective or full");
  } else {
    fail("'" + name.substr(0, 60) + "' is no mode of activation_checkpoint", where,
         suggest(name.substr(0, 60), {"none", "selective", "full"}));
  }
  if (mode) {
    reading.say("recompute", ours, "activation_checkpoint.mode", where);
  } else {
    reading.assume("recompute", ours, "activation_checkpoint.mode: selective, every 2nd layer", kToml);
  }
}

void read_schedule(Reading& reading, const Node& tree) {
  static const Row names = {
      "pipeline_parallel_schedule", "pp_schedule",
      "1F1B=1f1b,GPipe=gpipe,Interleaved1F1B=interleaved-1f1b,InterleavedZeroBubble=interleaved-zero-bubble,ZBVZeroBubble=zbv,"
      "DualPipeV=dualpipev,LoopedBFS=!,PipelineScheduleSingle=!,PipelineScheduleMulti=!"};
  if (reading.count("pp") <= 1) return;
  const Node* schedule = tree.find("parallelism.pipeline_parallel_schedule");
  if (schedule && !schedule->is_null()) {
    reading.say("pp_schedule", to_ours(names, schedule->word(), schedule->where), "parallelism.pipeline_parallel_schedule",
                schedule->where);
  } else {
    reading.assume("pp_schedule", "1f1b", "parallelism.pipeline_parallel_schedule: 1F1B", kToml);
  }
}

/// A pipeline cuts the local batch into micro-batches; without one the local batch is one.
void read_batch(Reading& reading, const Node& tree) {
  const Node* local = tree.find("training.local_batch_size");
  if (!local) local = tree.find("training.batch_size");
  if (local) reading.say("local_batch", local->word(), "training.local_batch_size", local->where);
  if (!local) reading.assume("local_batch", "8", "training.local_batch_size: 8", kToml);
  const std::int64_t batch = reading.count("local_batch");
  if (reading.count("pp") <= 1) {
    if (local) return reading.say("micro_batch", local->word(), "training.local_batch_size", local->where);
    return reading.assume("micro_batch", "8", "training.local_batch_size: 8", kToml);
  }
  const Node* micro = tree.find("parallelism.pipeline_parallel_microbatch_size");
  if (micro) reading.say("micro_batch", micro->word(), "parallelism.pipeline_parallel_microbatch_size", micro->where);
  if (!micro) reading.assume("micro_batch", "1", "parallelism.pipeline_parallel_microbatch_size: 1", kToml);
  const std::int64_t each = reading.count("micro_batch");
  if (batch % each != 0)
    fail("local_batch_size " + std::to_string(batch) + " is no multiple of the pipeline's micro-batch " + std::to_string(each),
         local ? local->where : micro->where);
  if (!reading.has("global_batch"))
    reading.derive("micro_batches_per_step", std::to_string(batch / each), "local_batch_size / pipeline_parallel_microbatch_size");
}

void read_precision(Reading& reading, const Node& tree) {
  const Node* converters = tree.find("model.converters");
  if (!converters || converters->is_null()) return;
  const std::string names = converters->word();
  if (names.empty()) return;
  if (names != "float8" && names != "quantize.linear.float8" && names != "mx" && names != "quantize.linear.mx")
    refuse("model.converters " + names.substr(0, 60) + " is not modelled", converters->where, "float8 or mx");
  reading.overriding(
      [&] { reading.say("precision", names.find("mx") != std::string::npos ? "mxfp8" : "fp8", "model.converters", converters->where); });
  if (!reading.has("fp8_recipe") && names.find("mx") == std::string::npos) {
    const Node* gather = tree.find("quantize.linear.float8.enable_fsdp_float8_all_gather");
    const bool gathers = gather && gather->text == "true";
    reading.derive("fp8_recipe", gathers ? "tensorwise, fp8 all-gather" : "tensorwise", "float8 without recipe_name");
  }
}

void read_data_parallel(Reading& reading) {
  const std::int64_t replicas = reading.count("dp_replicate"), shards = reading.count("dp_shard"), cp = reading.count("cp");
  if (replicas > 1 && shards == 1 && cp <= 1) reading.derive("data_parallel", "ddp", "data_parallel_replicate_degree without shards");
}

/// Releases from 0.3 on: a command line with --module and --config, or a file that says so (plimsoll export).
bool is_zero_three(const Node& tree) {
  const Node* release = tree.find("release");
  return (tree.find("config") != nullptr && tree.find("module") != nullptr) || (release && release->text == "0.3");
}

void read(Reading& reading, const Node& tree) {
  reading.assume("framework", "torchtitan", "torchtitan", kToml);
  if (!is_zero_three(tree)) reading.assume("framework_version", "2025-12", "a file of the releases before 0.3", kToml);
  read_rows(reading, rows(), tree);
  take_defaults(reading, rows(), is_zero_three(tree) ? "torchtitan 0.3" : kToml);
  if (!reading.has("model") && !reading.has("model.hidden_size")) read_model(reading, tree);
  if (!is_zero_three(tree) || tree.find("activation_checkpoint.mode")) read_recompute(reading, tree);
  read_schedule(reading, tree);
  read_batch(reading, tree);
  read_precision(reading, tree);
  read_data_parallel(reading);
}

}  // namespace

const TitanFlavor* titan_flavor(const std::string& shipped) {
  for (const TitanFlavor& one : kFlavors)
    if (shipped == one.shipped) return &one;
  return nullptr;
}

Format torchtitan_format() { return {"torchtitan", "torchtitan's TOML and command line", kToml, rows, recognises, read}; }

}  // namespace plimsoll::formats
