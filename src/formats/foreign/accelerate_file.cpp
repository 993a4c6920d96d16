// Accelerate's configuration file, and the flags of `accelerate launch`, which carry the same names (accelerate/commands/config,
// launch.py).
#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "accelerate 1.15";

const Rows& rows() {
  static const Rows table = {
      {"compute_environment", kRefused, "LOCAL_MACHINE", nullptr, "a machine of a cloud service"},
      {"distributed_type", kCode, "", nullptr, "data_parallel: MULTI_GPU ddp, FSDP, DEEPSPEED, MEGATRON_LM; NO none"},
      {"mixed_precision", "mixed_precision", "no=no,false=no,fp16=fp16,bf16=bf16,fp8=fp8", nullptr, "none: the Trainer's own, or no"},
      {"num_processes", "gpus", "", nullptr, "of all machines"},
      {"num_machines", "cluster.nodes"},
      {"gradient_accumulation_steps", "grad_accum"},
      {"machine_rank", kNothing},
      {"main_process_ip", kNothing},
      {"main_process_port", kNothing},
      {"main_training_function", kNothing},
      {"rdzv_backend", kNothing},
      {"rdzv_conf", kNothing},
      {"same_network", kNothing},
      {"enable_cpu_affinity", kNothing},
      {"debug", kNothing},
      {"gpu_ids", kNothing},
      {"downcast_bf16", kNothing, "", nullptr, "TPU alone"},
      {"use_cpu", kCode, "", nullptr, "true: training on the processor, which is refused, where one process is started; other launchers drop it"},
      {"cpu", kRefused, "false", nullptr, "training on the processor"},
      {"dynamo_config", kCode, "", nullptr, "compile"},
      {"dynamo_config.*", kCode},
      {"dynamo_backend", "compile", "no=false,inductor=true,*=!"},
      {"dynamo_mode", kNothing},
      {"dynamo_use_fullgraph", kNothing},
      {"dynamo_use_dynamic", kNothing},
      {"dynamo_use_regional_compilation", kCode, "", nullptr, "compile: blocks"},
      {"fp8_config.backend", "fp8_backend", "TE=te,AO=ao,MSAMP=msamp", nullptr, "0.30"},
      {"fp8_config.optimization_level", "fp8_opt_level", "", nullptr, "MS-AMP"},
      {"fp8_config.opt_level", "fp8_opt_level", "", nullptr, "MS-AMP"},
      {"fp8_config.enable_fsdp_float8_all_gather", kNothing, "", nullptr, "torchao; 1.7"},
      {"fp8_config.pad_inner_dim", kNothing, "", nullptr, "torchao; 1.7"},
      {"fp8_config.*", kNothing},
      {"fp8_backend", "fp8_backend", "te=te,ao=ao,msamp=msamp"},
      {"fp8_opt_level", "fp8_opt_level"},
      {"fsdp_config", kCode, "", nullptr, "FSDP's keys"},
      {"fsdp_config.*", kCode},
      {"parallelism_config.parallelism_config_dp_replicate_size", "dp_replicate", "", nullptr, "1.10"},
      {"parallelism_config.parallelism_config_dp_shard_size", "dp_shard", "", nullptr, "1.10"},
      {"parallelism_config.parallelism_config_tp_size", "tp", "", nullptr, "1.10"},
      {"parallelism_config.parallelism_config_cp_size", "cp", "", nullptr, "1.10"},
      {"parallelism_config.parallelism_config_cp_backend", kRefused, "torch", nullptr, "this backend of context parallelism"},
      {"parallelism_config.parallelism_config_cp_comm_strategy", kRefused, "allgather,alltoall", nullptr,
       "this exchange of context parallelism"},
      {"parallelism_config.parallelism_config_sp_size", kRefused, "1", nullptr, "Ulysses sequence parallelism"},
      {"parallelism_config.*", kNothing},
      {"deepspeed_config", kCode, "", nullptr, "DeepSpeed's keys, or deepspeed_config_file"},
      {"deepspeed_config.*", kCode},
      {"megatron_lm_config.megatron_lm_tp_degree", "tp"},
      {"megatron_lm_config.megatron_lm_pp_degree", "pp"},
      {"megatron_lm_config.megatron_lm_num_micro_batches", "grad_accum"},
      {"megatron_lm_config.megatron_lm_sequence_parallelism", "sequence_parallel"},
      {"megatron_lm_config.megatron_lm_recompute_activations", "recompute", "true=selective,false=none"},
      {"megatron_lm_config.megatron_lm_use_distributed_optimizer", "data_parallel", "true=megatron-distopt,false=ddp"},
      {"megatron_lm_config.megatron_lm_gradient_clipping", "clip_grad_norm"},
      {"megatron_lm_config.megatron_lm_expert_model_parallel_size", "ep"},
      {"megatron_lm_config.megatron_lm_context_parallel_size", "cp"},
      {"megatron_lm_config.megatron_lm_use_custom_fsdp", kRefused, "false", nullptr, "Megatron's FSDP under Accelerate"},
      {"megatron_lm_config.megatron_lm_optimizer_cpu_offload", kRefused, "false", nullptr, "an optimizer on the host under Megatron"},
      {"megatron_lm_config.megatron_lm_use_precision_aware_optimizer", kRefused, "false", nullptr, "an optimizer with states of other types"},
      {"megatron_lm_config.megatron_lm_decoder_last_pipeline_num_layers", kRefused, "null", nullptr, "stages of different sizes"},
      {"megatron_lm_config.megatron_lm_recompute_granularity", kRefused, "null", nullptr, "recomputation by Megatron under Accelerate"},
      {"megatron_lm_config.megatron_lm_recompute_method", kRefused, "null", nullptr, "recomputation by Megatron under Accelerate"},
      {"megatron_lm_config.megatron_lm_recompute_num_layers", kRefused, "null", nullptr, "recomputation by Megatron under Accelerate"},
      {"megatron_lm_config.megatron_lm_attention_backend", kRefused, "null,auto", nullptr, "attention chosen under Megatron"},
      {"megatron_lm_config.megatron_lm_expert_tensor_parallel_size", kRefused, "null,1", nullptr, "experts with a degree of their own"},
      {"megatron_lm_config.*", kNothing},
      {"mpirun_config.*", kNothing},
      {"ipex_config.*", kNothing},
      {"tpu_env", kNothing},
      {"tpu_name", kNothing},
      {"tpu_zone", kNothing},
      {"tpu_use_cluster", kNothing},
      {"tpu_use_sudo", kNothing},
      {"command_file", kNothing},
      {"commands", kNothing},
      {"num_cpu_threads_per_process", kNothing},
      {"max_restarts", kNothing, "", nullptr, "of the command line alone, as what follows"},
      {"monitor_interval", kNothing},
      {"tee", kNothing},
      {"log_dir", kNothing},
      {"role", kNothing},
      {"fp8_margin", kNothing},
      {"fp8_interval", kNothing},
      {"fp8_format", kNothing},
      {"fp8_amax_history_len", kNothing},
      {"fp8_amax_compute_algo", kNothing},
      {"fp8_override_linear_precision", kNothing},
      {"fp8_use_autocast_during_eval", kNothing},
      {"fp8_enable_fsdp_float8_all_gather", kNothing},
      {"fp8_pad_inner_dim", kNothing},
      {"mpirun_hostfile", kNothing},
  };
  return table;
}

/// What stands below `deepspeed_config` where no file does (DeepSpeedPlugin).
const Rows& deepspeed_rows() {
  static const Rows table = {
      {"zero_stage", "zero_stage", "", "2"},
      {"gradient_accumulation_steps", "grad_accum"},
      {"gradient_clipping", "clip_grad_norm", "none=false,*"},
      {"offload_optimizer_device", "deepspeed.zero_optimization.offload_optimizer.device", "", "none"},
      {"offload_param_device", "deepspeed.zero_optimization.offload_param.device", "", "none"},
      {"zero3_init_flag", "zero_init"},
      {"zero3_save_16bit_model", kNothing},
      {"offload_optimizer_nvme_path", kNothing},
      {"offload_param_nvme_path", kNothing},
      {"deepspeed_multinode_launcher", kNothing},
      {"deepspeed_hostfile", kNothing},
      {"deepspeed_exclusion_filter", kNothing},
      {"deepspeed_inclusion_filter", kNothing},
      {"deepspeed_moe_layer_cls_names", kRefused, "null", nullptr, "a mixture of experts gathered as one module (leaf modules)"},
      {"deepspeed_config_file", kCode},
  };
  return table;
}

int recognises(const Node& tree) {
  return 3 * count_of(tree, {"distributed_type", "compute_environment", "fsdp_config.fsdp_sharding_strategy"}) +
         count_of(tree, {"num_machines", "num_processes", "machine_rank", "mixed_precision"});
}

/// Accelerator.prepare_model: compile_regions takes the place of torch.compile(model). What lies around the blocks (embedding, last norm,
/// head) it compiles as well, each by itself; here that stays eager.
void read_regional(Reading& reading, const Node& config) {
  constexpr const char* kKey = "dynamo_use_regional_compilation";
  const Node* regional = config.find(kKey);
  if (!regional || regional->word() != "true" || !reading.is("compile", "true")) return;
  reading.forget("compile");
  reading.say("compile", "blocks", kKey, regional->where);
}

void read_dynamo(Reading& reading, const Node& config) {
  static const Rows table = {{"dynamo_backend", "compile", "NO=false,INDUCTOR=true,*=!"},
                             {"dynamo_mode", kNothing},
                             {"dynamo_use_regional_compilation", kCode},
                             {"*", kNothing}};
  if (!config.is_table()) return;
  read_rows(reading, table, config, "dynamo_config.");
  read_regional(reading, config);
}

void read_deepspeed(Reading& reading, const Node& tree) {
  reading.assume("framework", "deepspeed", "distributed_type: DEEPSPEED", kRelease);
  const Node* config = tree.find("deepspeed_config");
  if (!config || config->is_null()) return;
  const Node* file = config->find("deepspeed_config_file");
  read_rows(reading, deepspeed_rows(), *config, "deepspeed_config.", Unknown::dropped);  // launch.py takes them by name
  if (file && !file->is_null()) return reading.include(file->word(), *file, "deepspeed");
  take_defaults(reading, deepspeed_rows(), kRelease);
}

void read_kind(Reading& reading, const Node& tree) {
  const Node* kind = tree.find("distributed_type");
  const Node* fsdp = tree.find("fsdp_config");
  const std::string name = kind ? kind->word() : fsdp && !fsdp->is_null() ? "FSDP" : "";
  if (name.empty()) return;
  const std::string where = kind ? kind->where : fsdp->where;
  if (name == "DEEPSPEED") return read_deepspeed(reading, tree);
  if (name == "MEGATRON_LM") {
    reading.assume("framework", "megatron-lm", "distributed_type: MEGATRON_LM", kRelease);
    return;
  }
  if (name == "FSDP") {
    const Node none;
    return read_fsdp(reading, fsdp ? *fsdp : none, "fsdp_config.", 1, kRelease);
  }
  if (name == "NO") return reading.say("data_parallel", "none", "distributed_type", where);
  if (name == "MULTI_GPU") return;
  if (name == "TP") return reading.derive("data_parallel", "none", "distributed_type TP");
  refuse("distributed_type " + name.substr(0, 40) + " is not modelled", where, "NO, MULTI_GPU, FSDP or DEEPSPEED");
}

/// YAML 1.1 takes a bare `no` for a truth, and accelerate launch fails at it.
void require_word(const Node& tree) {
  const Node* precision = tree.find("mixed_precision");
  if (precision && precision->is_scalar() && !precision->quoted && precision->text == "false")
    fail("accelerate launch fails at it: AttributeError: 'bool' object has no attribute 'lower' (YAML takes a bare no for false)", precision->where,
         "mixed_precision: 'no'");
}

/// accelerate/commands/launch.py: the launchers of several processes go by --cpu, and only simple_launcher hands a file's use_cpu on.
void read_processor(Reading& reading, const Node& tree) {
  const Node *cpu = tree.find("use_cpu"), *kind = tree.find("distributed_type");
  if (!cpu) return;
  if (cpu->is_null() || cpu->word() == "false" || (kind && kind->word() != "NO")) return reading.leave_unread("use_cpu", cpu->where);
  refuse("not modelled: training on the processor, found use_cpu: " + cpu->word().substr(0, 60), cpu->where, way_without("false"));
}

void read(Reading& reading, const Node& tree) {
  require_word(tree);
  read_rows(reading, rows(), tree, {}, Unknown::refused);
  read_processor(reading, tree);
  read_kind(reading, tree);
  if (const Node* config = tree.find("dynamo_config"); config && !config->is_null()) read_dynamo(reading, *config);
  read_regional(reading, tree);
  reading.assume("framework", "accelerate", "Accelerate around a PyTorch loop", kRelease);
  if (!reading.has("precision")) reading.assume("mixed_precision", "no", "mixed_precision: no", kRelease);
}

}  // namespace

Format accelerate_format() { return {"accelerate", "Accelerate's configuration file", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
