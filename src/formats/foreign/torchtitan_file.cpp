// TorchTitan: the TOML of its releases up to 0.2, and the overrides of a command line, which have the same names in 0.3
// (config/job_config.py, config/configs.py). Its Python configs are not run: what one of them sets beyond the defaults must be said.
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/torchtitan_flavors.hpp"
#include "plimsoll/error.hpp"
#include "units/text.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char *kToml = "torchtitan 0.2", *k03 = "torchtitan 0.3";

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
      {"training.compile", "compile", "true=blocks,false=false", nullptr, "before 2025-08"},
      {"training.data_parallel_degree", "dp_shard", "-1=-,*", nullptr, "before 2024-09"},
      {"training.fp8_linear", kCode, "", nullptr, "before 2024-07: precision"},
      {"training.enable_fp8_linear", kCode, "", nullptr, "July 2024: precision"},
      {"training.enable_loss_parallel", "loss_parallel", "", nullptr, "before 2024-09"},
      {"training.disable_loss_parallel", "loss_parallel", "true=false,false=-", nullptr, "before 2025-03"},
      {"experimental.pipeline_parallel_degree", "pp", "", nullptr, "before 2025-03"},
      {"experimental.pipeline_parallel_schedule", kCode, "", nullptr, "before 2025-03: pp_schedule"},
      {"experimental.pipeline_parallel_microbatches", kCode, "", nullptr, "before 2025-03: micro-batches of a pipeline, its degree by default"},
      {"experimental.pipeline_parallel_split_points", kRefused, "", nullptr, "stages given by modules"},
      {"experimental.context_parallel_degree", "cp", "", nullptr, "before 2025-03"},
      {"experimental.context_parallel_rotate_method", kNothing},
      {"experimental.enable_async_tensor_parallel", "async_tp", "", nullptr, "before 2025-03"},
      {"experimental.enable_compiled_autograd", kRefused, "false", nullptr, "compiled autograd"},
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
      {"compile.enable", kCode, "", nullptr, "with compile.components: compile, loss"},
      {"compile.enable_async_tensor_parallel", "async_tp", "", nullptr, "0.3"},
      {"compile.components", kCode, "", nullptr, "model: compile of every block; loss: the compiled loss"},
      {"float8.enable_float8_linear", kCode, "", nullptr, "before 2025-02: precision"},
      {"float8.enable_fsdp_float8_all_gather", kNothing, "", nullptr, "read with the recipe"},
      {"float8.precompute_float8_dynamic_scale_for_fsdp", kNothing},
      {"loss.num_chunks", "loss_chunks", "", nullptr, "0.3"},
      {"quantize.linear.float8.enable_fsdp_float8_all_gather", kNothing, "", nullptr, "read with recipe_name"},
      {"quantize.linear.float8.recipe_name", "fp8_recipe", "tensorwise=tensorwise,rowwise=rowwise,*=!"},
      {"quantize.linear.float8.filter_fqns", kCode, "", nullptr, "output, which stays in bf16"},
      {"quantize.linear.mx.filter_fqns", kCode, "", nullptr, "output, which stays in bf16"},
      {"float8.filter_fqns", kCode, "", nullptr, "before 2025-09"},
      {"mx.filter_fqns", kCode, "", nullptr, "before 2025-09"},
      {"float8.recipe_name", "fp8_recipe", "tensorwise=tensorwise,rowwise=rowwise,*=!", nullptr, "before 2025-09"},
      {"debug.moe_force_load_balance", "moe_forced_balance", "", nullptr, "0.2"},
      {"memory_estimation.enable", kRefused, "false", nullptr, "torchtitan's own estimate"},
      {"fault_tolerance.enable", kRefused, "false", nullptr, "TorchFT"},
  };
  return table;
}

int recognises(const Node& tree) {
  return 3 * count_of(tree, {"parallelism.data_parallel_shard_degree", "parallelism.tensor_parallel_degree", "activation_checkpoint.mode",
                             "training.local_batch_size", "training.data_parallel_shard_degree", "training.data_parallel_degree",
                             "model.flavor"}) +
         count_of(tree, {"job.dump_folder", "training.seq_len", "metrics.log_freq"});
}

/// torchtitan/models/*/__init__.py; the published sizes have the published shapes.
constexpr TitanFlavor kFlavors[] = {
    {"llama2", "7B", "llama-2-7b"},
    {"llama2", "13B", "llama-2-13b"},
    {"llama2", "70B", "llama-2-70b"},
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
  if (const TitanFlavor* known = titan_flavor(name, flavor)) return reading.say("model", known->shipped, foreign, from.where);
  reading.say("model", name.substr(0, 40) + "/" + flavor.substr(0, 40), foreign, from.where);  // where MODEL is given, that one is taken
}

/// Settings of a named configuration (torchtitan/models/*/config_registry.py of 0.3).
struct NamedConfig {
  const char* name;
  const char *batch, *length, *recompute;
  std::vector<std::pair<const char*, const char*>> more;
};

const std::vector<NamedConfig>& named_configs() {
  static const std::vector<NamedConfig> table = {
      {"llama3_debugmodel", "8", "2048", "selective-ac-op", {}},
      {"llama3_8b", "1", "8192", "selective-ac-op", {}},
      {"llama3_8b_mxfp8", "1", "8192", "selective-ac-op", {{"compile", "blocks"}, {"precision", "mxfp8"}}},
      {"llama3_70b", "8", "8192", "full", {{"tp", "8"}}},
      {"llama3_405b", "2", "8192", "full", {{"tp", "8"}, {"compile", "blocks"}, {"async_tp", "true"}, {"precision", "fp8"}}},
      {"qwen3_0_6b", "4", "4096", "selective-ac-op", {}},
      {"qwen3_1_7b", "4", "4096", "selective-ac-op", {}},
      {"qwen3_14b", "4", "4096", "full", {}},
      {"qwen3_30b_a3b", "2", "4096", "full", {}},
      {"qwen3_32b", "2", "4096", "full", {}},
      {"deepseek_v3_16b", "4", "4096", "selective-ac-op", {{"ep", "8"}}},
      {"deepseek_v3_671b", "4", "4096", "selective-ac-op", {{"ep", "2"}}},
      {"gpt_oss_20b", "1", "8192", "full", {}},
      {"gpt_oss_120b", "1", "8192", "full", {}},
  };
  return table;
}

/// What `--config NAME` sets and no argument says otherwise.
void take_named_config(Reading& reading, const Node& tree) {
  const Node* config = tree.find("config");
  if (!config || config->is_null()) return;
  const std::string foreign = "--config " + config->word();
  for (const NamedConfig& one : named_configs()) {
    if (config->word() != one.name) continue;
    const auto set = [&](const char* key, const char* value) { reading.assume(key, value, foreign, k03); };
    set("local_batch", one.batch);
    set("seq_len", one.length);
    set("recompute", one.recompute);
    for (const auto& [key, value] : one.more) set(key, value);
  }
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
  if (!schedule) schedule = tree.find("experimental.pipeline_parallel_schedule");
  if (schedule && !schedule->is_null()) {
    reading.say("pp_schedule", to_ours(names, schedule->word(), schedule->where), "parallelism.pipeline_parallel_schedule",
                schedule->where);
  } else {
    reading.assume("pp_schedule", "1f1b", "parallelism.pipeline_parallel_schedule: 1F1B", kToml);
  }
}

/// Before April 2025 a pipeline was told how many micro-batches it has, by default as many as stages.
void read_micro_batch_count(Reading& reading, const Node& tree, std::int64_t batch) {
  const Node* count = tree.find("experimental.pipeline_parallel_microbatches");
  const std::int64_t stages = reading.count("pp");
  const std::int64_t micro_batches = count && !count->is_null() ? std::strtoll(count->word().c_str(), nullptr, 10) : stages;
  if (micro_batches < 1 || batch % micro_batches != 0)
    fail("training.batch_size " + std::to_string(batch) + " is no multiple of the pipeline's " + std::to_string(micro_batches) +
             " micro-batches",
         count ? count->where : tree.find("experimental.pipeline_parallel_degree")->where);
  reading.derive("micro_batch", std::to_string(batch / micro_batches), "batch_size / pipeline_parallel_microbatches");
  if (!reading.has("global_batch"))
    reading.derive("micro_batches_per_step", std::to_string(micro_batches), "pipeline_parallel_microbatches");
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
    return reading.assume("micro_batch", reading.value("local_batch"), "training.local_batch_size: " + reading.value("local_batch"), kToml);
  }
  if (tree.find("experimental.pipeline_parallel_degree")) return read_micro_batch_count(reading, tree, batch);
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

/// Releases from 0.3 on: a command line with --module and --config, or a file that says so (plimsoll export).
bool is_zero_three(const Node& tree) {
  const Node* release = tree.find("release");
  return (tree.find("config") != nullptr && tree.find("module") != nullptr) || (release && release->text == "0.3");
}

/// compile.enable compiles what compile.components lists, by default all: every block, and the loss.
void read_compile(Reading& reading, const Node& tree) {
  const Node *enable = tree.find("compile.enable"), *components = tree.find("compile.components");
  if (!enable || enable->is_null()) return reading.assume("compile", "false", "compile.enable: false", kToml);
  const bool on = is_on(enable);
  const auto compiles = [&](const char* what) {
    if (!on) return false;
    return !components || components->is_null() || components->word().find(what) != std::string::npos;
  };
  reading.say("compile", compiles("model") ? "blocks" : "false", "compile.enable", enable->where);
  if (is_zero_three(tree)) return reading.derive("compiled_loss", compiles("loss") ? "true" : "false", "compile.components");
  if (compiles("loss") && !compiles("model")) reading.derive("loss", "compiled", "compile.components");
}

/// How 8-bit products were asked for before converters: training.fp8_linear, then switches.
const Node* early_float8(const Node& tree) {
  for (const char* key : {"float8.enable_float8_linear", "training.enable_fp8_linear", "training.fp8_linear"}) {
    const Node* node = tree.find(key);
    if (node && !node->is_null() && node->text != "false" && !node->text.empty()) return node;
  }
  return nullptr;
}

bool gathers_float8(const Node& tree) {
  for (const char* key : {"quantize.linear.float8.enable_fsdp_float8_all_gather", "float8.enable_fsdp_float8_all_gather"})
    if (is_on(tree.find(key))) return true;
  return false;
}

void say_float8(Reading& reading, const char* foreign, const Node& from, const Node& tree) {
  reading.overriding([&] { reading.say("precision", "fp8", foreign, from.where); });
  if (!reading.has("fp8_recipe"))
    reading.derive("fp8_recipe", gathers_float8(tree) ? "tensorwise, fp8 all-gather" : "tensorwise", "float8 without recipe_name");
}

/// The layers' products alone are in 8 bits here.
void refuse_other_products(const Node& tree) {
  for (const char* key : {"quantize.linear.float8.filter_fqns", "quantize.linear.mx.filter_fqns", "float8.filter_fqns", "mx.filter_fqns"}) {
    const Node* names = tree.find(key);
    if (!names || names->is_null() || names->word().empty() || names->word() == "output") continue;
    refuse("not modelled: which products are in 8 bits, found " + std::string(key) + ": " + names->word().substr(0, 60), names->where,
           "set it to [\"output\"]");
  }
}

void read_precision(Reading& reading, const Node& tree) {
  if (const Node* early = early_float8(tree)) return say_float8(reading, "float8.enable_float8_linear", *early, tree);
  const Node* converters = tree.find("model.converters");
  if (!converters || converters->is_null()) return;
  const std::string names = converters->word();
  if (names.empty()) return;
  if (names != "float8" && names != "quantize.linear.float8" && names != "mx" && names != "quantize.linear.mx")
    refuse("model.converters " + names.substr(0, 60) + " is not modelled", converters->where, "float8 or mx");
  refuse_other_products(tree);
  if (names.find("mx") == std::string::npos) return say_float8(reading, "model.converters", *converters, tree);
  reading.overriding([&] { reading.say("precision", "mxfp8", "model.converters", converters->where); });
}

void read_data_parallel(Reading& reading) {
  const std::int64_t replicas = reading.count("dp_replicate"), shards = reading.count("dp_shard"), cp = reading.count("cp");
  if (replicas > 1 && shards == 1 && cp <= 1) reading.derive("data_parallel", "ddp", "data_parallel_replicate_degree without shards");
}

/// Keys that later releases do not read, by the last day that they were read.
void assume_release(Reading& reading, const Node& tree) {
  struct LastRead {
    const char *key, *day;
  };
  static constexpr LastRead kLastRead[] = {
      {"training.fp8_linear", "2024-07-15"},
      {"training.data_parallel_degree", "2024-09-09"},
      {"float8.enable_float8_linear", "2025-02-14"},
      {"optimizer.fused", "2025-02-23"},
      {"experimental.pipeline_parallel_degree", "2025-03-17"},
      {"experimental.context_parallel_degree", "2025-03-17"},
      {"experimental.enable_async_tensor_parallel", "2025-03-17"},
      {"training.tensor_parallel_degree", "2025-03-17"},
      {"training.batch_size", "2025-06-04"},
      {"training.compile", "2025-08-19"},
      {"float8.recipe_name", "2025-09-29"},
  };
  for (const LastRead& one : kLastRead)
    if (tree.find(one.key)) return reading.assume("releases.torchtitan", one.day, std::string(one.key) + ": read until then", kToml);
  reading.assume("releases.torchtitan", "0.2.2", "the last release that reads TOML", kToml);
}

void read(Reading& reading, const Node& tree) {
  reading.assume("framework", "torchtitan", "torchtitan", kToml);
  if (is_zero_three(tree)) {
    read_rows(reading, rows(), tree);
  } else {
    assume_release(reading, tree);
    read_rows(reading, rows(), *Schema::of("torchtitan"), tree, Unknown::dropped);  // ConfigManager warns of them
  }
  if (is_zero_three(tree)) take_named_config(reading, tree);
  take_defaults(reading, rows(), is_zero_three(tree) ? "torchtitan 0.3" : kToml);
  if (!reading.has("model") && !reading.has("model.hidden_size")) read_model(reading, tree);
  if (!is_zero_three(tree) || tree.find("activation_checkpoint.mode")) read_recompute(reading, tree);
  read_compile(reading, tree);
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

const TitanFlavor* titan_flavor(const std::string& family, const std::string& flavor) {
  for (const TitanFlavor& one : kFlavors) {
    std::string spelt = lower(one.flavor);
    std::replace(spelt.begin(), spelt.end(), '.', '_');  // 0_6b of a configuration's name
    std::replace(spelt.begin(), spelt.end(), '-', '_');
    if (family == one.family && (lower(flavor) == lower(one.flavor) || lower(flavor) == spelt)) return &one;
  }
  return nullptr;
}

Format torchtitan_format() { return {"torchtitan", "torchtitan's TOML and command line", kToml, rows, recognises, read}; }

}  // namespace plimsoll::formats
