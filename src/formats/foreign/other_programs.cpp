// Programs whose files are not read, by keys that only theirs have: such a file is refused by name and never taken for a neighbour's.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

struct OtherProgram {
  const char* name;
  /// Keys that stand together in its files and in nobody else's; any of the rows will do.
  std::vector<std::vector<const char*>> marks;
};

const std::vector<OtherProgram>& other_programs() {
  static const std::vector<OtherProgram> programs = {
      // nemo_automodel/recipes/llm/train_ft.py
      {"NeMo AutoModel",
       {{"step_scheduler"}, {"model._target_", "distributed"}, {"recipe", "model._target_"}, {"recipe_args", "dist_env"}}},
      // llamafactory/v1/config
      {"LLaMA-Factory v1", {{"dist_config"}, {"model_class", "model"}, {"init_config", "model"}, {"kernel_config", "model"}}},
      // megatron/neox_arguments
      {"GPT-NeoX",
       {{"pipe_parallel_size"}, {"pipe-parallel-size"}, {"attention-config"}, {"attention_config"}, {"train_micro_batch_size_per_gpu", "num_layers"},
        {"train_micro_batch_size_per_gpu", "num-layers"}, {"num-layers", "hidden-size"}, {"zero_optimization", "train_iters"},
        {"checkpoint_factor"},
        {"train_micro_batch_size_per_gpu", "checkpoint_activations"}, {"text_gen_type"}, {"checkpoint_validation_with_forward_pass"}}},
      // litgpt/pretrain.py, finetune/lora.py
      {"LitGPT", {{"checkpoint_dir", "train"}, {"model_name", "precision", "train"}, {"initial_checkpoint_dir", "train"}, {"train.lr_warmup_steps"}}},
      // olmo/config.py
      {"OLMo",
       {{"fsdp.wrapping_strategy"}, {"model.mlp_ratio"}, {"model.max_sequence_length"}, {"tokenizer.identifier"}, {"save_interval_unsharded"}}},
      {"OLMo-core", {{"train_module"}, {"model._CLASS_"}}},
      // lightning/pytorch/cli.py
      {"Lightning's command line", {{"model.class_path"}, {"data.class_path"}, {"trainer", "seed_everything"}}},
      // megatron/bridge/training/config.py: ConfigContainer
      {"Megatron-Bridge", {{"train.global_batch_size"}, {"train.train_iters"}, {"train.micro_batch_size", "model.tensor_model_parallel_size"}}},
      // open_instruct/finetune.py: FlatArguments
      {"open-instruct", {{"with_tracking"}, {"dataset_mixer_list"}, {"checkpointing_steps", "model_name_or_path"}}},
      // levanter/trainer.py: TrainerConfig
      {"Levanter", {{"trainer.train_batch_size"}, {"trainer.mp"}}},
      {"MaxText", {{"base_emb_dim"}, {"ici_fsdp_parallelism"}, {"base_config", "per_device_batch_size"}}},
      // nemo_rl/algorithms/grpo.py: MasterConfig; verl's trainer of EasyR1
      {"NeMo-RL", {{"policy.train_global_batch_size"}, {"policy.train_micro_batch_size"}, {"grpo.num_prompts_per_step"}, {"dpo.reference_policy_kl_penalty"}}},
      {"EasyR1", {{"worker.actor", "algorithm"}, {"worker.rollout", "algorithm"}}},
      {"trlX", {{"method.name", "train.seq_length"}}},
      {"kohya's scripts", {{"network_module"}, {"pretrained_model_name_or_path", "resolution"}}},
      {"Ludwig", {{"input_features", "output_features"}}},
      {"axolotl's cloud", {{"provider", "volumes"}, {"provider", "gpu"}, {"gpu_count", "project_name"}}},
  };
  return programs;
}

}  // namespace

void refuse_other_programs(const Node& tree, const std::string& path) {
  for (const OtherProgram& program : other_programs())
    for (const std::vector<const char*>& mark : program.marks)
      if (std::all_of(mark.begin(), mark.end(), [&](const char* key) { return tree.find(key) != nullptr; }))
        refuse(std::string("a file of ") + program.name + " is not read (" + mark.front() + " stands in it)", path,
               "say the run by flags (plimsoll estimate MODEL --on …), or rehearse the program itself: plimsoll rehearse --on … -- COMMAND");
}

}  // namespace plimsoll::formats
