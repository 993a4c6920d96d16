// Defaults are those of the release that was stated: what each must be is written in models/releases.json beside its source.
#include <gtest/gtest.h>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

constexpr const char* kArguments = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "bf16": true, "block_size": 512})";
constexpr const char* kFsdp1 = "distributed_type: FSDP\nfsdp_config: {fsdp_version: 1}\nnum_processes: 8\n";
constexpr const char* kZero =
    R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 1})";

ForeignRun read_text(const std::string& name, const std::string& text, const std::vector<std::string>& releases,
                     const std::string& on = "8xh100-sxm") {
  const Folder folder;
  return read_foreign({folder.write(name, text)}, {"gpt2", on, {}, releases});
}

/// Where a key's value is from, as --show-resolved has it.
std::string origin_in(const ForeignRun& run, const std::string& key) {
  for (const ForeignKey& one : run.keys)
    if (one.key == key) return one.where + " | " + one.foreign;
  return {};
}

// TrainingArguments.optim: adamw_hf (a loop over tensors) until 4.31, adamw_torch until 4.57, adamw_torch_fused since 5.0.
TEST(Releases, OptimizersOfTransformers) {
  EXPECT_EQ(value_in(read_text("a.json", kArguments, {}), "optimizer_impl"), "fused");
  EXPECT_EQ(value_in(read_text("a.json", kArguments, {"transformers=4.46.3"}), "optimizer_impl"), "foreach");
  EXPECT_EQ(value_in(read_text("a.json", kArguments, {"transformers==4.28.1"}), "optimizer_impl"), "for-loop");
  EXPECT_EQ(origin_in(read_text("a.json", kArguments, {"transformers=4.46.3"}), "optimizer_impl"),
            "transformers 4.46.3 | optim: adamw_torch");
  EXPECT_EQ(origin_in(read_text("a.json", kArguments, {}), "optimizer_impl"),
            "transformers 5.23 | optim: adamw_torch_fused, before 5.0 adamw_torch, before 4.32 adamw_hf");
}

// --fsdp_use_orig_params of `accelerate launch`: false until 0.24, true since 0.25. FSDP1 prefetches nothing and wraps nothing unless told.
TEST(Releases, FirstFsdpOfAccelerate) {
  const ForeignRun old = read_text("a.yaml", kFsdp1, {"accelerate=0.24.1"}), now = read_text("a.yaml", kFsdp1, {});
  EXPECT_EQ(value_in(old, "fsdp.use_orig_params"), "false");
  EXPECT_EQ(value_in(now, "fsdp.use_orig_params"), "true");
  EXPECT_EQ(value_in(now, "fsdp.backward_prefetch"), "NO_PREFETCH");
  EXPECT_EQ(value_in(now, "fsdp.units"), "none");
  EXPECT_EQ(old.strategy.releases.of(Package::accelerate).text(), "0.24.1");
}

// fsdp: "full_shard" alone wraps nothing before 5.10, where the policy became the layers'; auto_wrap has always meant them.
TEST(Releases, WrappingOfTransformers) {
  const std::string front = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "block_size": 512, "fsdp": ")";
  EXPECT_EQ(value_in(read_text("a.json", front + "full_shard\"}", {"transformers=4.46.3"}), "fsdp.units"), "none");
  EXPECT_EQ(value_in(read_text("a.json", front + "full_shard auto_wrap\"}", {"transformers=4.46.3"}), "fsdp.units"), "(nothing)");
  EXPECT_EQ(value_in(read_text("a.json", front + "full_shard\"}", {}), "fsdp.units"), "(nothing)");
  EXPECT_EQ(value_in(read_text("a.json", front + "full_shard\"}", {"transformers=5.0.0"}), "data_parallel"), "fsdp1");
  EXPECT_EQ(value_in(read_text("a.json", front + "full_shard\"}", {"transformers=5.10.2"}), "data_parallel"), "fsdp2");
}

// Since 5.10 the Trainer hands a strategy's name to Accelerate as reshard_after_forward, which its plugin does not read under FSDP1: sharding_strategy
// is FULL_SHARD there (rehearsed: two ranks gather every layer again in the backward pass). Accelerate's own file says either key.
TEST(Releases, StrategiesOfTheFirstFsdp) {
  const std::string front = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "block_size": 512, "fsdp": "shard_grad_op auto_wrap", )",
                    first = front + R"("fsdp_config": {"version": 1}})", second = front + R"("fsdp_config": {"version": 2}})";
  EXPECT_EQ(value_in(read_text("a.json", first, {"transformers=5.9.0"}), "fsdp.strategy"), "SHARD_GRAD_OP");
  EXPECT_EQ(value_in(read_text("a.json", first, {"transformers=5.10.2"}), "fsdp.strategy"), "FULL_SHARD");
  EXPECT_EQ(value_in(read_text("a.json", second, {}), "fsdp.reshard_after_forward"), "never");
  const std::string file = "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 1\n";
  EXPECT_EQ(value_in(read_text("a.yaml", file + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n", {}), "fsdp.strategy"), "SHARD_GRAD_OP");
  EXPECT_EQ(value_in(read_text("a.yaml", file + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n", {}), "fsdp.strategy"), "FULL_SHARD");
}

// DeepSpeedEngine.communication_data_type and get_data_types: fp16 or bf16 where the JSON switches it on, else fp32 (rehearsed: under ZeRO-2 a reduction of
// 4 bytes and a gathering of 2 for each of a bf16 model's numbers; under ZeRO-1 with overlap two buckets of 4 bytes a number, 46 % of the peak).
TEST(Releases, GradientsOfDeepSpeedTravelInFp32WithoutAHalfOfItsOwn) {
  const std::string front = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "block_size": 512, "dtype": "bfloat16", )";
  const auto sent = [&](const std::string& rest) { return value_in(read_text("a.json", front + rest, {}), "deepspeed.communication_data_type"); };
  EXPECT_EQ(sent(R"("deepspeed": {"zero_optimization": {"stage": 2}}})"), "fp32");
  EXPECT_EQ(value_in(read_text("a.json", front + R"("deepspeed": {"zero_optimization": {"stage": 1}}})", {}), "deepspeed.data_types.grad_accum_dtype"), "fp32");
  EXPECT_EQ(sent(R"("deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}})"), "(nothing)");
  EXPECT_EQ(sent(R"("bf16": true, "deepspeed": {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}})"), "(nothing)");
}

// zero.Init casts what is built within it to fp16, bf16 or fp32, as its JSON says (rehearsed: a bf16 model's plan has the peak of an fp32 one).
TEST(Releases, WeightsWithinZeroInitAreFp32WithoutAHalfOfItsOwn) {
  const std::string front = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "block_size": 512, "dtype": "bfloat16", )";
  const ForeignRun run = read_text("a.json", front + R"("deepspeed": {"zero_optimization": {"stage": 3}}})", {});
  EXPECT_EQ(value_in(run, "param_dtype"), "fp32");
  EXPECT_EQ(value_in(run, "precision"), "fp32");
}

// GRADIENT_CLIPPING_DEFAULT 0 until 0.19.2, then 1.0; offloaded states are pinned by default since 0.19.5.
TEST(Releases, ClippingAndPinningOfDeepSpeed) {
  const std::string pinned = "deepspeed.zero_optimization.offload_optimizer.pin_memory";
  const ForeignRun old = read_text("z.json", kZero, {"deepspeed=0.16.9"}), now = read_text("z.json", kZero, {});
  EXPECT_EQ(value_in(old, "clip_grad_norm"), "0");
  EXPECT_EQ(value_in(now, "clip_grad_norm"), "1.0");
  EXPECT_EQ(value_in(old, pinned), "false");
  EXPECT_EQ(value_in(now, pinned), "true");
}

// Weights come in fp32 until 4.57, then in the type of their checkpoint, which a config.json tells.
TEST(Releases, TheTypeOfWeights) {
  const Folder folder;
  const std::string
      config = folder.write(
          "config.json",
          R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257, "torch_dtype": "bfloat16"})"),
      arguments = folder.write("a.json", R"({"per_device_train_batch_size": 1, "bf16": true, "block_size": 512, "output_dir": "o"})");
  EXPECT_EQ(value_in(read_foreign({config, arguments}, {"", "1xh100-sxm", {}}), "param_dtype"), "bf16");
  EXPECT_EQ(value_in(read_foreign({config, arguments}, {"", "1xh100-sxm", {}, {"transformers=4.57.1"}}), "param_dtype"), "fp32");
}

// pip's requirements state releases, in whichever order the files are given; torch is the key of that name.
TEST(Releases, OfRequirements) {
  const Folder folder;
  const std::string arguments = folder.write("a.json", kArguments),
                    pinned = folder.write("requirements.txt",
                                          "# the run's\nTransformers[torch] == 4.46.3 ; python_version > '3.8'\naccelerate>=1.0\n"
                                          "torch==2.4.1+cu124\n-r other.txt\n");
  for (const auto& files : {std::vector<std::string>{arguments, pinned}, {pinned, arguments}}) {
    const ForeignRun run = read_foreign(files, {"", "1xh100-sxm", {}});
    EXPECT_EQ(value_in(run, "optimizer_impl"), "foreach");
    EXPECT_EQ(run.strategy.releases.of(Package::torch).text(), "2.4.1");
  }
}

// A fuzzer's find: a line that ends behind its equals signs states nothing, in a text of which nobody knows yet what it is.
TEST(Releases, WithoutAReleaseALineIsNoRequirement) {
  const Folder folder;
  EXPECT_FALSE(problem_of({folder.write("requirements.txt", "transformers==\n")}, {"", "1xh100-sxm", {}}).empty());
}

TEST(Releases, OfThePipLinesOfAScript) {
  const ForeignRun run =
      read_text("run.sh",
                "#!/bin/bash\npython -m pip install -q 'transformers==4.31.0' torch==2.1.0\n"
                "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --bf16 True\n",
                {}, "h100-sxm");
  EXPECT_EQ(value_in(run, "optimizer_impl"), "for-loop");
}

TEST(Releases, WhatCannotBeStatedIsSaid) {
  const Folder folder;
  const std::string file = folder.write("a.json", kArguments);
  const auto problem = [&](const std::vector<std::string>& releases) { return problem_of({file}, {"", "1xh100-sxm", {}, releases}); };
  EXPECT_NE(problem({"transformer=4.46"}).find("did you mean 'transformers'"), std::string::npos) << problem({"transformer=4.46"});
  EXPECT_NE(problem({"transformers"}).find("a package and its release"), std::string::npos);
  EXPECT_NE(problem({"transformers=4.46", "transformers=5.0"}).find("disagrees"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
