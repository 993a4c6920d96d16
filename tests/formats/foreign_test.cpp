// Configurations as projects ship them, read as a model, a cluster and a strategy. What each key must become is written beside the file
// from the program's own sources (the tables of docs/formats name the release).
#include "foreign_test.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "formats/foreign/node.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

struct Case {
  std::vector<std::string> files;
  std::string model, on;
  Keys keys;
  std::vector<std::string> releases = {};
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.files.front(); }

class Samples : public testing::TestWithParam<Case> {};

TEST_P(Samples, SayWhatTheirProgramReadsInThem) {
  const Case& one = GetParam();
  std::vector<std::string> files;
  for (const std::string& file : one.files) files.push_back(sample(file));
  const ForeignRun run = read_foreign(files, {one.model, one.on, {}, one.releases});
  for (const auto& [key, value] : one.keys) EXPECT_EQ(value_in(run, key), value) << key;
  const Strategy resolved = resolve(run.strategy, run.model, run.cluster);  // and nothing in it contradicts itself
  EXPECT_GT(resolved.gpus, 0);
  EXPECT_NE(show_resolved(run).find(one.keys.front().first), std::string::npos);
}

const Case kSamples[] = {
    {{"llama-factory/tower_lora.yaml"},
     "",
     "8xh100-sxm",
     {{"task", "lora"}, {"trained_modules", "(nothing)"}, {"lora.r", "8"}, {"recompute", "full"}, {"param_dtype", "bf16"}}},
    {{"ms-swift/tower.sh"},
     "",
     "h100-sxm",
     {{"task", "full"},
      {"trained_modules", "model.language_model,lm_head"},
      {"seq_len", "4096"},
      {"zero_stage", "2"}}},
    {{"accelerate/fsdp2_config.yaml"},
     "llama-3.1-8b",
     "h100-sxm",
     {{"data_parallel", "fsdp2"},
      {"gpus", "2"},
      {"mixed_precision", "bf16"},
      {"fsdp.reshard_after_forward", "always"},
      {"offload", "none"}}},
    {{"accelerate/slurm_fsdp.yaml"},
     "gpt2",
     "4xh100-sxm",
     {{"data_parallel", "fsdp1"}, {"fsdp.strategy", "FULL_SHARD"}, {"fsdp.use_orig_params", "true"}, {"mixed_precision", "no"}}},
    {{"accelerate/latest_fsdp.yaml"},
     "bert-base-uncased",
     "h100-sxm",
     {{"fsdp.units", "BertLayer"}, {"gpus", "1"}, {"fsdp.backward_prefetch", "BACKWARD_PRE"}}},
    {{"accelerate/multi_node.yaml"}, "gpt2", "a100-80gb-sxm", {{"cluster.nodes", "2"}, {"gpus", "8"}}},
    {{"accelerate/0_34_0_fp8.yaml"}, "llama-3.2-1b", "h100-sxm", {{"mixed_precision", "fp8"}, {"fp8_backend", "te"}}},
    {{"deepspeed/ds_z2_config.json"},
     "qwen2.5-0.5b",
     "8xh100-sxm",
     {{"zero_stage", "2"}, {"deepspeed.zero_optimization.reduce_bucket_size", "500000000"}, {"framework", "deepspeed"}}},
    {{"llama-factory/qwen3_full_sft.yaml", "deepspeed/ds_z3_config.json"},
     "",
     "4xh100-sxm",
     // Qwen3-4B: hidden_size 2560; Trainer fills "auto" with 2560², 0.9 · 2560² and 10 · 2560.
     {{"model", "Qwen/Qwen3-4B-Instruct-2507"},
      {"framework", "deepspeed"},
      {"zero_stage", "3"},
      {"micro_batch", "1"},
      {"grad_accum", "2"},
      {"seq_len", "2048"},
      {"precision", "bf16"},
      {"deepspeed.zero_optimization.reduce_bucket_size", "6553600"},
      {"deepspeed.zero_optimization.stage3_prefetch_bucket_size", "5898240"},
      {"deepspeed.zero_optimization.stage3_param_persistence_threshold", "25600"},
      {"recompute", "full"}}},
    {{"llama-factory/llama3_qlora_sft.yaml", "accelerate/slurm_fsdp.yaml"},
     "",
     "2xh100-sxm",
     {{"base_weights", "nf4-double-quant"},
      {"lora.r", "8"},
      {"lora.alpha", "16"},
      {"lora.target_modules", "all-linear"},
      {"data_parallel", "fsdp1"}}},
    {{"axolotl/fft-8b-liger-fsdp.yaml"},
     "",
     "8xh100-sxm",
     {{"data_parallel", "fsdp1"},
      {"offload", "params+grads+optimizer"},
      {"fsdp.units", "LlamaDecoderLayer"},
      {"attention", "flash"},
      {"loss", "liger-fused-linear"},
      {"packed", "true"},
      {"fsdp.use_orig_params", "false"},
      {"fsdp.no_sync", "true"}}},
    {{"axolotl/fft-8b.yaml"},
     "",
     "8xh100-sxm",
     {{"micro_batch", "1"}, {"seq_len", "8192"}, {"precision", "bf16"}, {"param_dtype", "bf16"}, {"recompute", "full"}}},
    {{"axolotl/lora-8b.yml"},
     "",
     "1xh100-sxm",
     {{"lora.r", "32"}, {"lora.alpha", "16"}, {"lora.modules_to_save", "embed_tokens,lm_head"}, {"lora.target_modules", "all-linear"}}},
    {{"torchtune/8B_full.yaml"},
     "",
     "8xh100-sxm",
     {{"model", "llama-3.1-8b"},
      {"precision", "pure-bf16"},
      {"recompute", "full"},
      {"loss", "chunked-ce"},
      {"optimizer_impl", "fused"},
      {"fsdp.units", "tok_embeddings,output"}}},
    {{"torchtune/8B_qlora_single_device.yaml"},
     "",
     "1xh100-sxm",
     {{"task", "qlora"}, {"lora.r", "8"}, {"lora.target_modules", "q_proj,v_proj,output_proj,w1,w2,w3"}, {"grad_accum", "8"}}},
    {{"torchtune/70B_lora.yaml"}, "", "8xh100-sxm", {{"model", "llama-3.1-70b"}, {"lora.r", "16"}}},
    {{"torchtitan/llama3_8b.toml"},
     "",
     "64xh100-sxm",
     {{"model", "llama-3.1-8b"},
      {"micro_batch", "1"},
      {"seq_len", "8192"},
      {"recompute", "selective-ac-op"},
      {"optimizer_impl", "fused"},
      {"compile", "false"}}},
    {{"torchtitan/llama3_405b.toml"},
     "",
     "512xh100-sxm",
     {{"model", "llama-3.1-405b"}, {"tp", "8"}, {"precision", "fp8"}, {"recompute", "full"}, {"async_tp", "true"}}},
    {{"torchtitan/experimental_2024.toml"},
     "",
     "8xh100-sxm",
     {{"pp", "4"}, {"releases.torchtitan", "2025-02-14"}, {"async_tp", "true"}, {"precision", "fp8"}, {"micro_batch", "1"}}},
    {{"torchtitan/compiled_loss.toml"},
     "",
     "8xh100-sxm",
     {{"model", "deepseek-v2-lite"}, {"releases.torchtitan", "0.2.2"}, {"compile", "false"}, {"loss", "compiled"}, {"ep", "8"}}},
    {{"torchtitan/debug_model.toml"}, "", "8xh100-sxm", {{"model.hidden_size", "256"}, {"model.vocab_size", "2048"}, {"micro_batch", "8"}}},
    {{"torchtitan/qwen3_32b.toml"}, "", "16xh100-sxm", {{"model", "qwen3-32b"}, {"recompute", "full"}}},
    {{"megatron/train_llama3_8b_h100_fp8.sh"},
     "",
     "h100-sxm",
     {{"cluster.gpus_per_node", "8"},
      {"model.num_layers", "32"},
      {"model.intermediate_size", "14336"},
      {"model.num_key_value_heads", "8"},
      {"model.vocab_size", "128257"},  // NullTokenizer has one beside those of --vocab-size
      {"micro_batch", "1"},
      {"global_batch", "128"},
      {"precision", "fp8"},
      {"fp8_recipe", "delayed"},
      {"fp8_params", "true"},
      {"data_parallel", "megatron-distopt"},
      {"cross_entropy_fusion", "native"},
      {"overlap_param_gather", "true"},
      {"grad_dtype", "bf16"},
      {"tp", "1"}}},
    {{"megatron/train_gpt3_175b_distributed.sh"},
     "",
     "16x8xh100-sxm",
     {{"tp", "8"},
      {"pp", "16"},
      {"model.hidden_size", "12288"},
      {"model.intermediate_size", "49152"},
      {"model.vocab_size", "50257"},
      {"precision", "fp16"},
      {"model.positions", "learned"},
      {"global_batch", "1536"},
      {"pp_layers", "[6,6,6,6,6,6,6,6,6,6,6,6,6,6,6,6]"}}},
    {{"megatron/train_mixtral_8x7b_distributed.sh"},
     "",
     "4x8xh100-sxm",
     {{"ep", "8"},
      {"pp", "4"},
      {"data_parallel", "megatron-distopt"},
      {"moe_dispatcher", "alltoall"},
      {"model.vocab_size", "32000"},
      {"model.megatron_config", R"({"num_moe_experts":8,"moe_router_topk":2,"moe_ffn_hidden_size":14336})"}}},
    {{"primus/llama3.1_8B-BF16-pretrain.yaml"},
     "",
     "8xmi300x",
     {{"framework", "primus"},
      {"model", "llama-3.1-8b"},
      {"micro_batch", "2"},
      {"global_batch", "128"},
      {"cross_entropy_fusion", "te"},
      {"gradient_accumulation_fusion", "false"}}},
    {{"primus/titan_llama3.1_8B.yaml"},
     "",
     "8xmi300x",
     {{"framework", "torchtitan"},
      {"model", "llama-3.1-8b"},
      {"micro_batch", "4"},
      {"seq_len", "8192"},
      {"recompute", "none"},
      {"compile", "blocks"}}},
    {{"transformers/sft_multigpu.sh"},
     "llama-3.1-8b",
     "h100-sxm",
     {{"lora.r", "8"},
      {"lora.target_modules", "all-linear"},
      {"micro_batch", "8"},
      {"recompute_reentrant", "false"},
      {"precision", "bf16"}}},
    {{"transformers/sft_qlora_fsdp.sh", "accelerate/fsdp_qlora.yaml"},
     "llama-2-70b",
     "h100-sxm",
     {{"base_weights", "nf4-double-quant"},
      {"bnb_4bit_quant_storage", "bf16"},
      {"fsdp.use_orig_params", "false"},
      {"fsdp.backward_prefetch", "BACKWARD_PRE"},
      {"offload", "params+grads+optimizer"}}},
    {{"transformers/arguments.json"},
     "",
     "8xh100-sxm",
     {{"data_parallel", "fsdp1"},
      {"fsdp.units", "Gemma2DecoderLayer"},
      {"fsdp.backward_prefetch", "BACKWARD_PRE"},
      {"optimizer_impl", "foreach"}}},
    {{"transformers/trl_cli.yaml"}, "", "1xh100-sxm", {{"model", "Qwen/Qwen2.5-0.5B"}, {"seq_len", "512"}, {"optimizer_impl", "fused"}}},
    {{"axolotl/lora-fsdp-checkpointing.yaml"},
     "",
     "8xh100-sxm",
     {{"recompute", "full"}, {"fsdp.units", "LlamaDecoderLayer"}, {"lora.r", "8"}},
     {"axolotl=0.8"}},  // whose adapters have no kernels of their own by default
    // gradient_accumulation_steps is 1 by itself (HyperparametersConfig), so that normalize_config leaves batch_size alone.
    {{"axolotl/whole-batch.yml"}, "", "8xh100-sxm", {{"grad_accum", "1"}, {"attention", "memory-efficient"}, {"precision", "fp16"}}},
    // bfloat16 is autocast as bf16 is; layers 1 and 2 of 16 alone match, so that whole paths stand.
    {{"axolotl/expression.yaml"},
     "",
     "1xh100-sxm",
     {{"precision", "bf16"},
      {"lora.target_modules", "model.layers.1.self_attn.o_proj,model.layers.2.self_attn.o_proj,model.layers.1.mlp.down_proj,model.layers.2.mlp.down_proj"},
      {"ddp.find_unused_parameters", "false"}}},
    // In a tower and in the layers a linear is called mlp.gate_proj: of the names that stand, those are the layers' alone.
    {{"axolotl/images.yaml"}, "", "1xh100-sxm", {{"lora.target_modules", "self_attn.q_proj,self_attn.v_proj"}, {"recompute_reentrant", "true"}}},
    // Mixtral's router and experts are parameters in transformers 5: its linears are attention's.
    {{"axolotl/mixture.yaml"}, "", "1xh200-sxm", {{"lora.target_modules", "q_proj,k_proj,v_proj,o_proj"}, {"precision", "fp16"}}},
    {{"axolotl/rewards.yaml"}, "", "1xh100-sxm", {{"task", "reward"}, {"compile", "true"}}},
    {{"llama-factory/mixture.yaml"}, "", "8xh200-sxm", {{"lora.target_modules", "q_proj,k_proj,v_proj,o_proj"}, {"ddp.find_unused_parameters", "false"}}},
    {{"llama-factory/qwen3_full_fsdp2.yaml", "accelerate/fsdp2_config.yaml"},
     "",
     "2xh100-sxm",
     {{"data_parallel", "fsdp2"}, {"recompute_reentrant", "false"}}},
    {{"llama-factory/llama3_fp8_fsdp.yaml"}, "", "8xh100-sxm", {{"precision", "fp8"}, {"fsdp.units", "LlamaDecoderLayer"}}},
    {{"deepspeed/zero3_field_names.json"},
     "llama-3.1-8b",
     "8xh100-sxm",
     {{"zero_stage", "3"}, {"deepspeed.zero_optimization.stage3_max_live_parameters", "0"}, {"clip_grad_norm", "1.0"}}},
    {{"megatron/deepspeed_gpt_dense.sh"},
     "",
     "h100-sxm",
     {{"framework", "megatron-deepspeed"}, {"zero_stage", "1"}, {"recompute", "full"}, {"model.num_layers", "24"}, {"precision", "fp16"}}},
    {{"nemo/llama_7b.yaml"},
     "",
     "h100-sxm",
     {{"framework", "nemo"}, {"tp", "2"}, {"model.vocab_size", "32000"}, {"sequence_parallel", "true"}}},
    // Stage 1 switches the fused permutation on, use_turbo_deepep the dispatcher, whatever else says of them.
    {{"primus/mixtral_sync_free.yaml"}, "", "8xmi300x", {{"moe_permute_fusion", "true"}, {"moe_dispatcher", "deepep"}, {"ep", "8"}}},
    {{"torchtune/llama3_dora.yaml"},
     "",
     "1xh100-sxm",
     {{"lora.use_dora", "true"}, {"lora.target_modules", "q_proj,v_proj,output_proj,w1,w2,w3"}}},
    {{"torchtune/8B_lora_dpo.yaml"}, "", "8xh100-sxm", {{"task", "dpo"}, {"lora.r", "8"}, {"micro_batch", "4"}, {"recompute", "full"}}},
    {{"llm-foundry/llama-3-8b_domain_adapt.yaml"},
     "",
     "8xh100-sxm",
     {{"model", "meta-llama/Meta-Llama-3-8B"},
      {"global_batch", "1024"},
      {"micro_batch", "8"},
      {"recompute", "full"},
      {"seq_len", "4096"},
      {"clip_grad_norm", "1.0"}}},
};

// The launch scripts name one machine and leave the number of machines to whoever starts them: --on with a count says it.
INSTANTIATE_TEST_SUITE_P(OfProjects, Samples, testing::ValuesIn(kSamples));

struct Refusal {
  std::vector<std::string> files;
  std::string model, on, says;
};
void PrintTo(const Refusal& one, std::ostream* out) { *out << one.files.front(); }

class Refused : public testing::TestWithParam<Refusal> {};

TEST_P(Refused, ByName) {
  const Refusal& one = GetParam();
  std::vector<std::string> files;
  for (const std::string& file : one.files) files.push_back(sample(file));
  const std::string problem = problem_of(files, {one.model, one.on, {}});
  EXPECT_NE(problem.find(one.says), std::string::npos) << problem;
}

const Refusal kRefusals[] = {
    {{"accelerate/invalid_keys.yaml"}, "gpt2", "8xh100-sxm", "unknown key 'invalid_key'"},
    {{"deepspeed/ds_z2_config.json"}, "", "8xh100-sxm", "which model"},
    {{"accelerate/slurm_fsdp.yaml"}, "gpt2", "", "which devices"},
    {{"accelerate/slurm_fsdp.yaml"}, "gpt2", "h100-sxm", "how many devices"},
    {{"slurm/submit_multinode_fsdp.sh"}, "gpt2", "h100-sxm", "complete_nlp_example.py is not known"},
    {{"accelerate/fsdp2_config.yaml", "accelerate/multi_node.yaml"}, "gpt2", "h100-sxm", "disagrees with"},
    {{"transformers/sft_unsloth.sh"}, "mistral-7b-v0.1", "1xh100-sxm", "Unsloth"},
    {{"axolotl/images-full.yaml"}, "", "1xh100-sxm", "images in training of all weights"},
    {{"axolotl/lookahead.yaml"}, "", "1xh100-sxm", "'(?!\' of the regular expression"},
    {{"llama-factory/predict.yaml"}, "", "8xh100-sxm", "do_predict and without do_train does not train"},
    {{"llama-factory/no_autocast.yaml"}, "", "8xh100-sxm", "without autocast"},
    {{"llama-factory/neat_packing.yaml"}, "", "8xh100-sxm", "a mask of blocks"},
    {{"ms-swift/packed_pairs.sh"}, "", "h100-sxm", "preferences packed into rows"},
    {{"ms-swift/tower-trained.sh"}, "", "h100-sxm", "reads images, trained, found freeze_vit: false"},
    {{"torchtune/no_length.yaml"}, "", "8xh100-sxm", "how long samples are is not said"},
    {{"ms-swift/grpo.sh"}, "", "h100-sxm", "how long prompts are is not said"},
    {{"llama-factory/llama3_badam.yaml"}, "", "8xh100-sxm", "BAdam"},
    {{"llm-foundry/gpt2-small.yaml"}, "", "8xh100-sxm", "another n_positions"},
    {{"megatron/bert_340m.sh"}, "", "h100-sxm", "pretrain_bert.py"},
    {{"megatron/text_generation_server.sh"}, "", "h100-sxm", "does not train"},
    {{"nemo/inference.yaml"}, "gpt2", "1xh100-sxm", "does not train"},
    {{"nemo/griffin.yaml"}, "", "8xh100-sxm", "attention within windows"},
    {{"nemo/missing_value.yaml"}, "gpt2", "h100-sxm", "'???' is no whole number"},
    {{"primus/titan_llama3.1_8B_fp8.yaml"}, "", "8xmi300x", "in fp8"},
    {{"peft/oft.json"}, "gpt2", "1xh100-sxm", "OFT"},
    {{"fsdp_config/xla.json"}, "gpt2", "8xh100-sxm", "FSDP on XLA"},
};
INSTANTIATE_TEST_SUITE_P(OfProjects, Refused, testing::ValuesIn(kRefusals));

// The script names Accelerate's file by a path of its own machine: the file that is given beside it stands for it, and Slurm's directives
// say the nodes: 4 of 4 GPUs. Its own --mixed_precision is the program's argument, not the launcher's.
TEST(Foreign, ABatchScriptWithTheFileThatItNames) {
  // The script that it starts is not known, and its own --mixed_precision fp16 would win over the file's.
  const std::string script = sample("slurm/submit_multinode_fsdp.sh");
  const std::string said = problem_of({sample("accelerate/slurm_fsdp.yaml"), script}, {"gpt2", "h100-sxm", {}});
  EXPECT_NE(said.find("complete_nlp_example.py is not known"), std::string::npos) << said;
  EXPECT_NE(said.find("--mixed-precision fp16"), std::string::npos) << said;
  std::ifstream file(script);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t from = text.find("export SCRIPT_ARGS"), to = text.find("export CMD");
  text.replace(from, to - from, "export SCRIPT_ARGS=\"\"\n");
  const Folder folder;
  const ForeignRun run = read_foreign({sample("accelerate/slurm_fsdp.yaml"), folder.write("job.sh", text)}, {"gpt2", "h100-sxm", {}});
  EXPECT_EQ(run.cluster.nodes, 4);
  EXPECT_EQ(run.cluster.gpus(), 16);
  EXPECT_EQ(value_in(run, "data_parallel"), "fsdp1");
}

TEST(Foreign, ALaunchLineWithTrainingArguments) {
  const std::vector<std::string> line = {"torchrun",
                                         "--nnodes=2",
                                         "--nproc-per-node",
                                         "8",
                                         "run_clm.py",
                                         "--model_name_or_path",
                                         "meta-llama/Llama-3.1-8B",
                                         "--per_device_train_batch_size",
                                         "2",
                                         "--gradient_accumulation_steps=4",
                                         "--bf16",
                                         "--gradient_checkpointing",
                                         "--block_size",
                                         "4096",
                                         "--fsdp",
                                         "full_shard auto_wrap",
                                         "--dtype",
                                         "bfloat16"};
  const ForeignRun run = read_foreign({}, {"", "h100-sxm", line});
  EXPECT_EQ(run.cluster.gpus(), 16);
  EXPECT_EQ(run.cluster.nodes, 2);
  const Keys wanted = {{"micro_batch", "2"},
                       {"grad_accum", "4"},
                       {"precision", "bf16"},
                       {"recompute", "full"},
                       {"seq_len", "4096"},
                       {"data_parallel", "fsdp2"},
                       {"fsdp.reshard_after_forward", "always"},
                       {"optimizer_impl", "fused"},
                       {"fsdp.no_sync", "true"}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(value_in(run, key), value) << key;
  EXPECT_EQ(run.model.layers, 32);
}

TEST(Foreign, TorchtitanFromItsCommandLine) {
  const ForeignRun run =
      read_foreign({}, {"",
                        "h100-sxm",
                        {"torchrun", "--nproc_per_node=8", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b",
                         "--training.local_batch_size=2", "--training.seq_len", "8192", "--parallelism.tensor_parallel_degree", "2"}});
  EXPECT_EQ(value_in(run, "micro_batch"), "2");
  EXPECT_EQ(value_in(run, "tp"), "2");
  EXPECT_EQ(run.model.layers, 32);
  EXPECT_EQ(run.strategy.releases.find(Package::torchtitan), nullptr);  // 0.3: the newest that is modelled
  EXPECT_EQ(resolve(run.strategy, run.model, run.cluster).sequence_parallel, true) << "ParallelismConfig.enable_sequence_parallel";
}

// config_registry.py of 0.3, llama3_70b: eight sequences of 8192 a rank, tensor parallelism over 8, full recomputation.
TEST(Foreign, TorchtitanNamedConfigurationSetsWhatTheLineDoesNot) {
  const ForeignRun run = read_foreign(
      {}, {"", "h100-sxm", {"torchrun", "--nproc_per_node=8", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_70b"}});
  const Keys wanted = {{"tp", "8"}, {"micro_batch", "8"}, {"seq_len", "8192"}, {"recompute", "full"}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(value_in(run, key), value) << key;
  EXPECT_EQ(run.model.layers, 80);
}

// configs.py of 0.3: enable_sequence_parallel is true unless a file says otherwise.
TEST(Foreign, TorchtitanWithoutSequenceParallelism) {
  const ForeignRun run =
      read_foreign({}, {"",
                        "h100-sxm",
                        {"torchrun", "--nproc_per_node=8", "-m", "torchtitan.train", "--module", "llama3", "--config", "llama3_8b",
                         "--parallelism.tensor_parallel_degree=2", "--parallelism.enable_sequence_parallel=false"}});
  EXPECT_EQ(value_in(run, "sequence_parallel"), "false");
  EXPECT_EQ(resolve(run.strategy, run.model, run.cluster).sequence_parallel, false);
}

// Accelerator.prepare_model: torch.compile of the model, or of its repeated blocks. Without a compiler the second key says nothing.
TEST(Foreign, RegionalCompilationIsThatOfBlocks) {
  const Folder folder;
  const auto compiled = [&](const std::string& dynamo) {
    const std::string text = "distributed_type: 'NO'\nmixed_precision: bf16\nnum_processes: 1\ndynamo_config:\n" + dynamo;
    return value_in(read_foreign({folder.write("a.yaml", text)}, {"gpt2", "1xh100-sxm", {}}), "compile");
  };
  EXPECT_EQ(compiled("  dynamo_backend: INDUCTOR\n"), "true");
  EXPECT_EQ(compiled("  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n"), "blocks");
  EXPECT_EQ(compiled("  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: false\n"), "true");
  EXPECT_EQ(compiled("  dynamo_backend: 'NO'\n  dynamo_use_regional_compilation: true\n"), "false");
}

// What a script computes it never executes: the file that the substitution would make is not there, and the value is asked for.
TEST(Foreign, CommandSubstitutionIsNeverExecuted) {
  const Folder folder;
  const std::string made = folder.path("made");
  const std::string script = folder.write(
      "run.sh", "#!/bin/bash\nTP=$(touch " + made + "; echo 2)\nX=`touch " + made +
                    "`\ntorchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size $TP --num-layers 2 --hidden-size 64\n");
  const std::string problem = problem_of({script}, {"gpt2", "h100-sxm", {}});
  EXPECT_NE(problem.find("never executed"), std::string::npos) << problem;
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST(Foreign, VariablesArraysAndArithmeticOfAScript) {
  const Folder folder;
  const std::string script = folder.write("run.sh", R"(#!/bin/bash
#SBATCH --nodes=2 --time=1
#SBATCH --gres=gpu:h100:8
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
TP=${TP:-4}; LAYERS=$((TP * (5 + 3)))
MODEL=(--num-layers $LAYERS --hidden-size 2048   # a comment
       --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048)
MODEL+=("--vocab-size 50304")
if [ "$TP" -gt 2 ] && true; then SP=--sequence-parallel; else SP=; fi
case $TP in 2) MB=1 ;; 4) MB=3 ;; *) MB=9 ;; esac
srun --ntasks-per-node=1 bash -c "torchrun --nproc_per_node $SLURM_GPUS_ON_NODE --nnodes $SLURM_NNODES pretrain_gpt.py ${MODEL[*]} --tensor-model-parallel-size $TP $SP --micro-batch-size $MB --bf16 $EXTRA_ARGS --global-batch-size 12"
)");
  const ForeignRun run = read_foreign({script}, {"", "h100-sxm", {}, {}, {}, {"EXTRA_ARGS="}});
  const Keys wanted = {{"tp", "4"},
                       {"model.num_layers", "32"},
                       {"model.vocab_size", "50304"},
                       {"sequence_parallel", "true"},
                       {"micro_batch", "3"},
                       {"precision", "bf16"},
                       {"cluster.nodes", "2"},
                       {"cluster.gpus_per_node", "8"},
                       {"allocator.expandable_segments", "true"}};
  for (const auto& [key, value] : wanted) EXPECT_EQ(value_in(run, key), value) << key;
}

// What tools print of machines: 2 nodes of 8 H100 each, by Slurm and by Kubernetes; a matrix of 4 GPUs says how many a node has and no
// more.
TEST(Foreign, MachinesAsToolsPrintThem) {
  const Folder folder;
  const std::string slurm = folder.write("sinfo.txt", "NODELIST GRES\nn1 gpu:h100:8(S:0-1)\nn2 gpu:h100:8(S:0-1)\nn2 gpu:h100:8(S:0-1)\n");
  const ForeignRun by_slurm = read_foreign({slurm}, {"gpt2", "", {}});
  EXPECT_EQ(by_slurm.cluster.nodes, 2);
  EXPECT_EQ(by_slurm.cluster.gpus(), 16);
  const std::string node =
      R"({"kind":"Node","metadata":{"labels":{"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"}},"status":{"capacity":{"nvidia.com/gpu":"8"}}})";
  const ForeignRun by_kubernetes =
      read_foreign({folder.write("nodes.json", R"({"kind":"List","items":[)" + node + "," + node + "]}")}, {"gpt2", "h100-sxm", {}});
  EXPECT_EQ(by_kubernetes.cluster.gpus(), 16);
  const std::string topology =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\nGPU0\t X \tNV18\tNV18\tNV18\tPIX\t0-55\nGPU1\tNV18\t X \tNV18\tNV18\tPXB\t0-55\n"
      "GPU2\tNV18\tNV18\t X \tNV18\tSYS\t0-55\nGPU3\tNV18\tNV18\tNV18\t X \tSYS\t0-55\nNIC0\tPIX\tPXB\tSYS\tSYS\t X \n";
  const ForeignRun by_matrix = read_foreign({folder.write("topo.txt", topology)}, {"gpt2", "h100-sxm", {}});
  EXPECT_EQ(by_matrix.cluster.gpus(), 4);
  EXPECT_FALSE(by_matrix.unread.empty());
}

// Megatron reads recompute_method and recompute_num_layers with full recomputation alone; before 2022 activations_checkpoint_method asked
// for it (megatron/arguments.py of v2.5: checkpoint_activations is activations_checkpoint_method uniform).
TEST(Foreign, HowMegatronDealsWithRecomputedLayers) {
  const auto run = [](std::vector<std::string> flags) {
    std::vector<std::string> line = {"torchrun",
                                     "--nproc_per_node=8",
                                     "pretrain_gpt.py",
                                     "--num-layers",
                                     "4",
                                     "--hidden-size",
                                     "512",
                                     "--num-attention-heads",
                                     "8",
                                     "--seq-length",
                                     "1024",
                                     "--max-position-embeddings",
                                     "1024",
                                     "--micro-batch-size",
                                     "1",
                                     "--global-batch-size",
                                     "8",
                                     "--vocab-size",
                                     "50304",
                                     "--bf16"};
    line.insert(line.end(), flags.begin(), flags.end());
    return read_foreign({}, {"", "h100-sxm", line});
  };
  const ForeignRun none = run({"--recompute-method", "uniform", "--recompute-num-layers", "2"});
  EXPECT_EQ(value_in(none, "recompute"), "none");
  EXPECT_EQ(value_in(none, "recompute_method"), "(nothing)");
  EXPECT_EQ(value_in(none, "recompute_num_layers"), "(nothing)");
  const ForeignRun full = run({"--recompute-granularity", "full", "--recompute-method", "block", "--recompute-num-layers", "2"});
  EXPECT_EQ(value_in(full, "recompute_method"), "block");
  EXPECT_EQ(value_in(full, "recompute_num_layers"), "2");
  const ForeignRun early = run({"--activations-checkpoint-method", "uniform"});
  EXPECT_EQ(value_in(early, "recompute"), "full");
  EXPECT_EQ(value_in(early, "recompute_method"), "uniform");
}

// CRLF, a byte order mark: the same run.
TEST(Foreign, LineEndsAndByteOrderMarks) {
  const Folder folder;
  const std::string text =
      "\xEF\xBB\xBF"
      "distributed_type: FSDP\r\nfsdp_config:\r\n  fsdp_version: 2\r\nmixed_precision: bf16\r\nnum_processes: 4\r\n";
  const ForeignRun run = read_foreign({folder.write("a.yaml", text)}, {"gpt2", "h100-sxm", {}});
  EXPECT_EQ(value_in(run, "data_parallel"), "fsdp2");
  EXPECT_EQ(run.cluster.gpus(), 4);
}

// zero3_bf16.json has sub_group_size 0: a group of the optimizer for every parameter.
TEST(Foreign, SubGroupsOfOneParameter) {
  const ForeignRun run = read_foreign({sample("axolotl/zero3_bf16.json")}, {"gpt2", "8xh100-sxm", {}});
  EXPECT_EQ(value_in(run, "deepspeed.zero_optimization.sub_group_size"), "0");
  EXPECT_GT(estimate(run.model, run.cluster, run.strategy).ranks.front().memory.allocated.count, 0);
}

// megatron_gpt_config.yaml says its positions as ${.encoder_seq_length}, beside themselves, and its vocabulary by the tokenizer.
TEST(Foreign, NemosConfigurationNamesValuesBesideThemselves) {
  const ForeignRun run = read_foreign({sample("nemo/megatron_gpt_config.yaml")}, {{}, "h100-sxm", {}});
  EXPECT_EQ(value_in(run, "framework"), "nemo");
  EXPECT_EQ(value_in(run, "model.max_positions"), "512");
  EXPECT_EQ(value_in(run, "model.vocab_size"), "50257");
  EXPECT_EQ(value_in(run, "precision"), "fp16");
  EXPECT_EQ(run.cluster.gpus(), 1);
}

// llm-foundry's MPT of 7B without ALiBi: GPT-2's tensors, d_model 4096 · expansion 4, 32 layers, positions up to 2048.
// 50368·4096 + 2048·4096 + 32·(12·4096² + 13·4096) + 2·4096 = 6,658,859,008
TEST(Foreign, MptWithLearnedPositionsHasTheTensorsOfGpt2) {
  const ForeignRun run = read_foreign({sample("llm-foundry/mpt-7b.yaml")}, {{}, "8xh100-sxm", {}});
  EXPECT_EQ(value_in(run, "framework"), "llm-foundry");
  EXPECT_EQ(run.model.parameters(), 6'658'859'008);
}

// Windows line ends and a byte order mark change nothing of any sample.
TEST(Foreign, LineEndsAndByteOrderMarksOfSamplesChangeNothing) {
  const Folder folder;
  int read = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sample(""))) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || name == "SOURCES.md") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    std::string windows = "\xEF\xBB\xBF";
    for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
    const ForeignOptions options{"llama-3.1-8b", "8xh100-sxm", {}};
    const auto outcome = [&](const std::string& contents) {
      const std::string path = folder.write(name, contents);
      try {
        const ForeignRun run = read_foreign({path}, options);
        std::string said;
        for (const ForeignKey& key : run.keys) said += key.key + "=" + key.value + "\n";
        ++read;
        return said;
      } catch (const Error& error) {
        return error.message();
      }
    };
    EXPECT_EQ(outcome(text), outcome(windows)) << name;
  }
  EXPECT_GT(read, 40);
}

TEST(Foreign, HostileTextsCostAMessage) {
  const Folder folder;
  std::string bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n";
  for (char name = 'b'; name < 'k'; ++name) {
    const std::string before(1, static_cast<char>(name - 1));
    bomb += std::string(1, name) + ": &" + name + " [";
    for (int i = 0; i < 10; ++i) bomb += (i == 0 ? "*" : ",*") + before;
    bomb += "]\n";
  }
  const std::string circle = "distributed_type: &x\n  a: *x\n",
                    references = "model: {_component_: torchtune.a, b: ${model.c}, c: ${model.b}}\n";
  std::string deep, brackets(5000, '[');
  for (int i = 0; i < 3000; ++i) deep += "{a: ";
  const std::string nested = "#!/bin/bash\nX=" + [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "${A:-";
    return text;
  }() + "\ntorchrun a.py\n";
  std::string dotted = "a", deep_inline = "x = ";
  for (int i = 0; i < 100'000; ++i) dotted += ".a";
  for (int i = 0; i < 20; ++i) deep_inline += "{ a.b.c.d.e.f.g.h = ";
  const std::pair<const char*, std::string> texts[] = {{"bomb.yaml", bomb},
                                                       {"circle.yaml", circle},
                                                       {"references.yaml", references},
                                                       {"deep.yaml", deep},
                                                       {"brackets.json", brackets},
                                                       {"x.toml", "a = ["},
                                                       {"deep_keys.toml", dotted + " = 1"},
                                                       {"deep_table.toml", "[" + dotted + "]\na = 1"},
                                                       {"deep_inline.toml", deep_inline},
                                                       {"letter.toml", "a\xc8\x91=1"},
                                                       {"nested.sh", nested},
                                                       {"tabs.yaml", "a:\n\tb: 1\n"},
                                                       {"name.toml", "[%rain*ng]\na = 1\n"},
                                                       {"other.toml", "[package]\nname = \"serde\"\n"},
                                                       {"empty.yaml", ""},
                                                       {"list.yaml", "- 1\n- 2\n"}};
  for (const auto& [name, text] : texts) {
    const std::string problem = problem_of({folder.write(name, text)}, {"gpt2", "8xh100-sxm", {}});
    EXPECT_NE(problem, "read") << name;
    EXPECT_LT(problem.size(), 2000u) << name;
  }
  const std::string large = folder.path("large.yaml");
  std::ofstream(large) << "a: 1\n";
  std::filesystem::resize_file(large, std::uintmax_t{100} << 20);  // told from its size, before it is read
  EXPECT_NE(problem_of({large}, {"gpt2", "8xh100-sxm", {}}).find("large"), std::string::npos);
}

/// What TOML allows is not taken for depth: dots in strings, comments, numbers, dates and long texts; names outside ASCII in quotes.
TEST(Foreign, DepthOfTomlIsOfItsNames) {
  std::string dots;
  for (int i = 0; i < 200; ++i) dots += ".x";
  const std::string text = "a = 1.5 # " + dots + "\nb = \"" + dots + "\"\nc = '" + dots + "'\nd = \"\"\"\n" + dots + "\n\\\"\"\"\"\n\"\xc8\x91\" = 1979-05-27T07:32:00.999\ne = [" +
                           [] {
                             std::string list;
                             for (int i = 0; i < 200; ++i) list += "1.5, ";
                             return list;
                           }() + "2.5]\n[f.g.h.i]\nj = {k.l = 1, m = [[1.5], [2.5]]}\n";
  const formats::Node tree = formats::parse_toml_text(text, "x.toml");
  EXPECT_EQ(tree.members.size(), 7U);
  EXPECT_EQ(tree.find("f.g.h.i.j.k.l")->text, "1");
}

// Of the two names, q_proj is the language model's alone in Qwen2.5-VL: the tower's attention has one linear for all three. up_proj is both's, and
// becomes the paths of the language model's 36 layers.
TEST(Foreign, AdaptersStayOutOfAFrozenTower) {
  const ForeignRun run = read_foreign({sample("llama-factory/tower_lora.yaml")}, {"", "8xh100-sxm", {}});
  const std::string targets = value_in(run, "lora.target_modules");
  EXPECT_EQ(std::count(targets.begin(), targets.end(), ','), 36);
  EXPECT_NE(targets.find("model.language_model.layers.35.mlp.up_proj,q_proj"), std::string::npos) << targets;
  EXPECT_EQ(targets.find("visual"), std::string::npos) << targets;
  const auto is_told = [](const std::string& told) { return told.find("tower that reads them") != std::string::npos; };
  EXPECT_EQ(std::count_if(run.unknown.begin(), run.unknown.end(), is_told), 1);
}

/// How many of a run's routers add to the loss.
std::int64_t balanced(const ForeignRun& run) {
  std::int64_t found = 0;
  for (const Block& block : run.model.blocks)
    found += std::count_if(block.operators.begin(), block.operators.end(),
                           [](const Operator& op) { return op.kind == OperatorKind::router && op.function == "auxiliary_loss"; });
  return found;
}

// ms-swift hands output_router_logits=True to a mixture's forward where the coefficient is above 0 (trainers/seq2seq_trainer.py), LLaMA-Factory sets it
// for the types that it lists, axolotl where model_config says so: with it the step has the routers' loss of all layers, one-hot choices of
// 128 experts by 8 in eight bytes each, so that it is some gigabytes more.
TEST(Foreign, ProgramsThatAskForRoutersLogitsHaveTheirLoss) {
  const Folder folder;
  const auto swift = [&](const std::string& flags) {
    return read_foreign({folder.write("s.sh", "swift sft --model Qwen/Qwen3-30B-A3B --dataset a --max_length 2048 --torch_dtype bfloat16 --tuner_type lora "
                                              "--target_modules q_proj v_proj " + flags + "\n")},
                        {"", "1xh100-sxm", {}});
  };
  EXPECT_EQ(balanced(swift("")), 0);
  EXPECT_EQ(balanced(swift("--router_aux_loss_coef 0")), 0);
  EXPECT_EQ(balanced(swift("--router_aux_loss_coef 1e-3")), 1);
  const std::string factory = "stage: sft\ncutoff_len: 1024\nper_device_train_batch_size: 2\nbf16: true\nlora_target: q_proj,v_proj\nmodel_name_or_path: ";
  const auto read = [&](const std::string& name, const std::string& text) { return read_foreign({folder.write(name, text)}, {"", "1xh100-sxm", {}}); };
  EXPECT_EQ(balanced(read("a.yaml", factory + "Qwen/Qwen3-30B-A3B\nmoe_aux_loss_coef: 0.001\n")), 1);
  EXPECT_EQ(balanced(read("b.yaml", factory + "openai/gpt-oss-20b\nmoe_aux_loss_coef: 0.001\n")), 0);  // not among its types
  EXPECT_EQ(balanced(read("c.yml", "base_model: mistralai/Mixtral-8x7B-v0.1\nsequence_len: 1024\nmicro_batch_size: 1\nattn_implementation: flash_attention_2\nmodel_config: {output_router_logits: true}\n")), 1);
}

/// transformers' folder or wheel; none is shipped.
const char* package() { return std::getenv("PLIMSOLL_TRANSFORMERS"); }

// axolotl goes by the table of AutoModelForImageTextToText, then by that of AutoModelForCausalLM; parameters are PyTorch's own of that class.
TEST(Foreign, AModelWithoutAFamilyIsPlayedByTransformersCode) {
  const std::string file = sample("axolotl/coded.yaml");
  EXPECT_NE(problem_of({file}, {"", "1xh100-sxm", {}}).find("add --code WHEEL"), std::string::npos);
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  ForeignOptions options{"", "1xh100-sxm", {}};
  options.packages = {package()};
  const ForeignRun run = read_foreign({file}, options);
  EXPECT_EQ(run.model.architecture, "Qwen3VLForConditionalGeneration");
  EXPECT_EQ(run.model.parameters(), 4'437'815'808);
  EXPECT_EQ(value_in(run, "recompute"), "full");
  // The vision tower rests in a batch of text; LLaMA-Factory freezes it (tower_lora.yaml, tower_full.yaml say so of a family's).
  const auto is_tower = [](const Block& block) { return block.stream == Block::Stream::second; };
  EXPECT_EQ(std::count_if(run.model.blocks.begin(), run.model.blocks.end(), is_tower), 1);
  const Folder folder;
  const ForeignRun frozen = read_foreign({folder.write("f.yaml", "model_name_or_path: Qwen/Qwen3-VL-4B-Instruct\nstage: sft\nfinetuning_type: full\ncutoff_len: 1024\n"
                                                                 "per_device_train_batch_size: 1\npure_bf16: true\n")}, options);
  EXPECT_EQ(value_in(frozen, "trained_modules"), "model.language_model");
  ForeignOptions several = options;
  several.on = "8xh100-sxm";
  const ForeignRun sharded = read_foreign({folder.write("z.yaml", "model_name_or_path: Qwen/Qwen3-VL-4B-Instruct\nstage: sft\nfinetuning_type: full\ncutoff_len: 1024\n"
                                                                  "per_device_train_batch_size: 1\nbf16: true\ndeepspeed: " + sample("axolotl/zero3_bf16.json") + "\n")}, several);
  EXPECT_GT(estimate(sharded.model, sharded.cluster, sharded.strategy).ranks.front().memory.allocated.count, 0);
  const auto played = estimate(run.model, run.cluster, run.strategy);
  EXPECT_GT(played.ranks.front().memory.allocated.count, 0);
}

// A file whose own words name a model type has that one's configuration; of a name that is nowhere shipped the sizes are asked for.
TEST(Foreign, SizesThatNobodyShipsAreAskedFor) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  const Folder folder;
  const std::string file = folder.write("a.yml", "base_model: somebody/unheard-of\nmicro_batch_size: 1\nsequence_len: 512\nattn_implementation: flash_attention_2\n");
  ForeignOptions options{"", "1xh100-sxm", {}};
  options.packages = {package()};
  EXPECT_NE(problem_of({file}, options).find("the sizes of 'somebody/unheard-of' are not known"), std::string::npos);
}

// transformers' code plays transformers' modules alone; a name of a file that can be none of its types is not looked for among these.
TEST(Foreign, CodeIsOfTransformersModulesAlone) {
  ForeignOptions options{"", "1xh100-sxm", {}};
  options.packages = {"nowhere.whl"};
  options.said_beside = {"seq_len"};
  EXPECT_NE(problem_of({sample("torchtune/no_length.yaml")}, options).find("transformers' code is not what torchtune runs, which has layers of its own"), std::string::npos);
  const Folder folder;
  const std::string file = folder.write("a.yaml", "model_name_or_path: <model>\nstage: sft\nfinetuning_type: lora\ncutoff_len: 1024\nper_device_train_batch_size: 1\nbf16: true\n");
  EXPECT_NE(problem_of({file}, options).find("the sizes of '<model>' are not known"), std::string::npos) << problem_of({file}, options);
}

// A length that a flag says is not asked for.
TEST(Foreign, ALengthThatIsSaidBesideTheFilesIsNotAskedFor) {
  const std::string file = sample("torchtune/no_length.yaml");
  const std::string said = problem_of({file}, {"", "8xh100-sxm", {}});
  EXPECT_NE(said.find("no_length.yaml:5: how long samples are is not said"), std::string::npos) << said;
  ForeignOptions beside{"", "8xh100-sxm", {}};
  beside.said_beside = {"seq_len"};
  EXPECT_EQ(value_in(read_foreign({file}, beside), "micro_batch"), "4");
}

}  // namespace
}  // namespace plimsoll
