// What is written is read back as the same run: random strategies per program, and the parts of a folder that starts one.
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <random>

#include "foreign_test.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/gate.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// Keys that a program can be told, each with the values that it has words for.
struct Space {
  const char* format;
  std::vector<const char*> models;
  Options fixed;
  std::vector<std::pair<const char*, std::vector<const char*>>> choices;
};
void PrintTo(const Space& space, std::ostream* out) { *out << space.format; }

const std::vector<Space>& spaces() {
  static const std::vector<Space> all = {
      {"accelerate",
       {"llama-3.2-1b", "qwen2.5-0.5b", "gpt2"},
       {{"framework", "accelerate"}},
       {{"data_parallel", {"ddp", "fsdp1", "fsdp2"}},
        {"fsdp.reshard_after_forward", {"always", "never"}},
        {"micro_batch", {"1", "2", "4"}},
        {"grad_accum", {"1", "3"}},
        {"seq_len", {"512", "1024"}},
        {"precision", {"fp32", "bf16", "fp16"}},
        {"recompute", {"none", "full"}},
        {"optimizer", {"adamw", "adafactor", "sgd"}},
        {"attention", {"sdpa", "eager"}},
        {"clip_grad_norm", {"true", "false"}},
        {"ddp.no_sync", {"true"}},
        {"tf32", {"true", "false"}}}},
      {"deepspeed",
       {"llama-3.2-1b", "qwen2.5-0.5b"},
       {{"framework", "deepspeed"}, {"precision", "bf16"}},
       {{"zero_stage", {"0", "1", "2", "3"}},
        {"micro_batch", {"1", "2"}},
        {"grad_accum", {"1", "2"}},
        {"seq_len", {"512", "1024"}},
        {"recompute", {"none", "full"}},
        {"clip_grad_norm", {"true", "false"}},
        {"deepspeed.zero_optimization.reduce_bucket_size", {"500000000", "20000000"}},
        {"deepspeed.zero_optimization.contiguous_gradients", {"true", "false"}},
        {"deepspeed.zero_optimization.overlap_comm", {"true", "false"}}}},
      {"torchtitan",
       {"llama-3.1-8b", "qwen3-1.7b"},
       {{"framework", "torchtitan"}, {"framework_version", "0.2.2"}, {"precision", "bf16"}},
       {{"micro_batch", {"1", "2"}},
        {"tp", {"1", "2"}},
        {"seq_len", {"2048", "4096"}},
        {"recompute", {"none", "full", "selective-ac-op", "every-2-layers"}},
        {"optimizer_impl", {"fused", "foreach", "for-loop"}},
        {"compile", {"false", "blocks"}},
        {"fsdp.reshard_after_forward", {"default", "always", "never"}}}},
      {"torchtune",
       {"llama-3.1-8b", "qwen2.5-1.5b"},
       {{"framework", "torchtune"}, {"precision", "pure-bf16"}, {"packed", "true"}},
       {{"micro_batch", {"1", "2"}},
        {"grad_accum", {"1", "4"}},
        {"seq_len", {"2048"}},
        {"recompute", {"none", "full"}},
        {"optimizer_impl", {"fused", "foreach"}},
        {"clip_grad_norm", {"true", "false"}},
        {"loss", {"chunked-ce", "ce"}}}},
      {"megatron",
       {"llama-3.1-8b", "qwen2.5-7b", "gpt2-large"},
       {{"framework", "megatron-lm"}, {"precision", "bf16"}},
       {{"tp", {"1", "2", "4"}},
        {"pp", {"1", "2"}},
        {"micro_batch", {"1", "2"}},
        {"global_batch", {"32", "64"}},
        {"seq_len", {"1024"}},
        {"data_parallel", {"ddp", "megatron-distopt"}},
        {"optimizer", {"adamw"}},
        {"recompute", {"none", "selective", "full"}},
        {"overlap_grad_reduce", {"true", "false"}},
        {"layer_spec", {"te", "local"}},
        {"clip_grad_norm", {"true", "false"}}}},
      {"axolotl",
       {"llama-3.2-1b", "qwen2.5-0.5b"},
       {{"framework", "accelerate"}, {"precision", "bf16"}},
       {{"data_parallel", {"fsdp1", "fsdp2"}},
        {"fsdp.reshard_after_forward", {"always", "never"}},
        {"micro_batch", {"1", "2"}},
        {"grad_accum", {"1", "4"}},
        {"seq_len", {"512", "2048"}},
        {"recompute", {"none", "full"}},
        {"attention", {"sdpa", "eager"}},
        {"ddp.no_sync", {"true"}}}},
      {"torchrun",
       {"llama-3.2-1b", "qwen2.5-0.5b", "gpt2"},
       {{"framework", "transformers"}},
       {{"data_parallel", {"ddp", "fsdp1", "fsdp2"}},
        {"fsdp.reshard_after_forward", {"always", "never"}},
        {"micro_batch", {"1", "2", "4"}},
        {"grad_accum", {"1", "3"}},
        {"seq_len", {"512", "1024"}},
        {"precision", {"fp32", "bf16", "fp16"}},
        {"recompute", {"none", "full"}},
        {"attention", {"sdpa", "eager"}},
        {"clip_grad_norm", {"true", "false"}},
        {"ddp.no_sync", {"true"}},
        {"tf32", {"true", "false"}}}},
      {"sbatch",
       {"llama-3.1-8b", "qwen2.5-7b"},
       {{"framework", "megatron-core"}, {"precision", "bf16"}},
       {{"tp", {"1", "2", "4"}},
        {"pp", {"1", "2"}},
        {"micro_batch", {"1", "2"}},
        {"global_batch", {"32", "64"}},
        {"seq_len", {"1024"}},
        {"data_parallel", {"ddp", "megatron-distopt"}},
        {"recompute", {"none", "selective", "full"}},
        {"overlap_grad_reduce", {"true", "false"}},
        {"layer_spec", {"te", "local"}},
        {"clip_grad_norm", {"true", "false"}}}},
      {"k8s-pytorchjob",
       {"llama-3.2-1b", "qwen2.5-0.5b"},
       {{"framework", "deepspeed"}, {"precision", "bf16"}},
       {{"zero_stage", {"1", "2", "3"}},
        {"offload", {"none", "optimizer"}},
        {"micro_batch", {"1", "2"}},
        {"grad_accum", {"1", "2"}},
        {"seq_len", {"512", "1024"}},
        {"recompute", {"none", "full"}},
        {"clip_grad_norm", {"true", "false"}}}},
      {"llama-factory",
       {"llama-3.2-1b", "qwen2.5-0.5b"},
       {{"framework", "accelerate"}, {"precision", "bf16"}},
       {{"data_parallel", {"ddp", "fsdp2"}},
        {"fsdp.reshard_after_forward", {"always", "never"}},
        {"micro_batch", {"1", "2"}},
        {"grad_accum", {"1", "4"}},
        {"seq_len", {"512", "2048"}},
        {"recompute", {"none", "full"}},
        {"attention", {"sdpa", "eager"}},
        {"ddp.no_sync", {"true"}}}},
  };
  return all;
}

class RoundTrip : public testing::TestWithParam<Space> {};

// Export reads its own files back (ExportedRun::no_equal): for what a program can be told, nothing may come back different.
TEST_P(RoundTrip, OfRandomStrategiesLosesNothing) {
  const Space& space = GetParam();
  std::mt19937 random(7);
  int written = 0;
  for (int round = 0; round < 40; ++round) {
    const std::string model = space.models[random() % space.models.size()];
    Options options = space.fixed;
    std::string said = model;
    for (const auto& [key, values] : space.choices) options.emplace_back(key, values[random() % values.size()]);
    for (const auto& [key, value] : options) said += " " + key + "=" + value;
    Strategy strategy;
    set_options(strategy, options);
    strategy.options.clear();
    const ExportPlan plan{model, load_model(model), parse_cluster("8xh100-sxm"), strategy};
    try {
      (void)resolve(plan.strategy, plan.model, plan.cluster);
    } catch (const Error&) {
      continue;  // this framework does not run it
    }
    const ExportedRun run = export_run(plan, space.format);
    std::string lost;
    for (const std::string& line : run.no_equal) lost += line + "\n";
    EXPECT_EQ(lost, "") << said;
    ++written;
  }
  EXPECT_GT(written, 10);
}

INSTANTIATE_TEST_SUITE_P(OfPrograms, RoundTrip, testing::ValuesIn(spaces()));

Strategy strategy_of(const Options& options) {
  Strategy strategy;
  set_options(strategy, options);
  return strategy;
}

std::string file_of(const ExportedRun& run, const std::string& name) {
  for (const NamedText& file : run.files)
    if (file.name == name) return file.text;
  return "(no such file)";
}

TEST(Export, ABatchScriptStartsTheProgramsOwnLauncherOnEveryNode) {
  const ExportPlan plan{"llama-3.1-8b", load_model("llama-3.1-8b"), parse_cluster("4x8xh100-sxm"),
                        strategy_of({{"framework", "megatron-lm"}, {"tp", "4"}, {"seq_len", "4096"}, {"global_batch", "64"}})};
  const ExportedRun run = export_run(plan, "sbatch");
  EXPECT_NE(file_of(run, "job.sbatch").find("#SBATCH --nodes=4\n"), std::string::npos);
  EXPECT_NE(file_of(run, "run.sh").find("--tensor-model-parallel-size 4"), std::string::npos);
  EXPECT_NE(file_of(run, "run.sh").find("CUDA_DEVICE_MAX_CONNECTIONS=1"), std::string::npos);
  const ExportedRun job = export_run(plan, "k8s-pytorchjob");
  EXPECT_NE(file_of(job, "job.yaml").find("kind: PyTorchJob"), std::string::npos);
  EXPECT_NE(file_of(job, "job.yaml").find("replicas: 3"), std::string::npos);
  EXPECT_EQ(file_of(export_run(plan, "slurm"), "job.sbatch"), file_of(run, "job.sbatch"));   // called by its machine
}

// Kubeflow's operator 1 numbers master and workers in RANK, Trainer 2 in torchrun's variables, an indexed job in JOB_COMPLETION_INDEX; JobSet's pods have names
// of its own service.
TEST(Export, KubernetesJobsTellEveryNodeItsPlace) {
  const ExportPlan plan{"llama-3.1-8b", load_model("llama-3.1-8b"), parse_cluster("4x8xmi300x"),
                        strategy_of({{"framework", "transformers"}, {"data_parallel", "ddp"}, {"seq_len", "1024"}})};
  const std::string set = file_of(export_run(plan, "k8s-jobset"), "job.yaml");
  const YAML::Node jobset = YAML::Load(set), job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"], pod = job["template"]["spec"];
  EXPECT_EQ(job["completions"].as<int>(), 4);
  EXPECT_EQ(pod["restartPolicy"].as<std::string>(), "Never");
  const std::string name = jobset["metadata"]["name"].as<std::string>();
  EXPECT_EQ(pod["containers"][0]["command"][2].as<std::string>(), "MASTER_ADDR=" + name + "-node-0-0." + name + " NODE_RANK=$JOB_COMPLETION_INDEX bash run.sh");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["amd.com/gpu"].as<int>(), 8);

  const YAML::Node trainer = YAML::Load(file_of(export_run(plan, "trainjob"), "job.yaml"))["spec"]["trainer"];
  EXPECT_EQ(trainer["numNodes"].as<int>(), 4);
  EXPECT_EQ(trainer["resourcesPerNode"]["limits"]["amd.com/gpu"].as<int>(), 8);
  EXPECT_NE(trainer["command"][2].as<std::string>().find("NODE_RANK=$PET_NODE_RANK bash run.sh"), std::string::npos);

  const YAML::Node old = YAML::Load(file_of(export_run(plan, "k8s-pytorchjob"), "job.yaml"))["spec"]["pytorchReplicaSpecs"];
  EXPECT_EQ(old["Worker"]["replicas"].as<int>(), 3);
  EXPECT_EQ(old["Worker"]["template"]["spec"]["containers"][0]["command"][2].as<std::string>(), "NODE_RANK=${RANK:-0} bash run.sh");
}

// Megatron-LM has no adapters: a run that trained all weights instead would not be the plan's.
TEST(Export, WhatIsTrainedIsNotLost) {
  const ExportPlan plan{"qwen2.5-7b", load_model("qwen2.5-7b"), parse_cluster("8xh100-sxm"),
                        strategy_of({{"lora.r", "16"}, {"lora.target_modules", "all-linear"}, {"micro_batch", "1"}, {"seq_len", "2048"}})};
  try {
    (void)export_run(plan, "megatron");
    FAIL() << "it was written";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("megatron cannot be told of adapters"), std::string::npos) << error.what();
  }
}

// The header's prediction is that of the files as they are read: the same report as of reading them.
TEST(Export, PredictsWhatTheFilesSay) {
  const ExportPlan plan{"llama-3.2-1b", load_model("llama-3.2-1b"), parse_cluster("2xrtx4090"),
                        strategy_of({{"data_parallel", "ddp"}, {"micro_batch", "1"}, {"seq_len", "1024"}, {"attention", "flash"}}), true};
  const ExportedRun run = export_run(plan, "axolotl");
  const Folder folder;
  const ForeignRun back = read_foreign({folder.write("axolotl.yaml", file_of(run, "axolotl.yaml"))}, {"llama-3.2-1b", "2xrtx4090", {}});
  ASSERT_TRUE(run.predicted.has_value());
  EXPECT_EQ(run.predicted->worst_rank().memory.reserved, estimate(back.model, back.cluster, back.strategy).worst_rank().memory.reserved);
  EXPECT_NE(file_of(run, "axolotl.yaml").find("pretraining_dataset:\n  - path: \"allenai/c4\""), std::string::npos) << file_of(run, "axolotl.yaml");
}

// Another program's strategy: what it cannot be told is said.
TEST(Export, ConversionsSayWhatHasNoEqual) {
  const ExportPlan plan{"llama-3.1-8b", load_model("llama-3.1-8b"), parse_cluster("8xh100-sxm"),
                        strategy_of({{"framework", "transformers"}, {"data_parallel", "fsdp2"}, {"seq_len", "2048"}})};
  const ExportedRun run = export_run(plan, "torchtitan");
  ASSERT_FALSE(run.no_equal.empty());
  EXPECT_EQ(run.no_equal.front(), "framework: transformers is torchtitan here");
  EXPECT_THROW((void)export_run(plan, "tochtitan"), Error);
}

// A campaign's steps, checkpoints and limit reach the program's own files and the job.
TEST(Export, HowLongTheRunIsReachesTheFiles) {
  ExportPlan plan{"llama-3.1-8b", load_model("llama-3.1-8b"), parse_cluster("8xh100-sxm"), strategy_of({{"framework", "megatron-lm"}, {"tp", "8"}, {"seq_len", "2048"}})};
  plan.length = {1234, 500, 90061, "llama"};
  const auto text_of = [](const ExportedRun& run, const std::string& name) {
    for (const NamedText& file : run.files)
      if (file.name == name) return file.text;
    return std::string();
  };
  const ExportedRun megatron = export_run(plan, "sbatch");
  for (const char* said : {"--train-iters 1234", "--save-interval 500", "--save checkpoints"})
    EXPECT_NE(text_of(megatron, "run.sh").find(said), std::string::npos) << said << "\n" << text_of(megatron, "run.sh");
  for (const char* said : {"#SBATCH --job-name=llama\n", "#SBATCH --time=1-01:01:01\n", "#SBATCH --output=%x-%j.out\n"})
    EXPECT_NE(text_of(megatron, "job.sbatch").find(said), std::string::npos) << said << "\n" << text_of(megatron, "job.sbatch");
  plan.strategy = strategy_of({{"framework", "accelerate"}, {"fsdp", "full"}, {"seq_len", "2048"}});
  const ExportedRun trainer = export_run(plan, "axolotl");
  for (const char* said : {"max_steps: 1234\n", "save_steps: 500\n", "save_strategy: \"steps\"\n"})
    EXPECT_NE(text_of(trainer, "axolotl.yaml").find(said), std::string::npos) << said;
  plan.strategy = strategy_of({{"framework", "torchtune"}, {"fsdp", "full"}, {"seq_len", "2048"}});
  const ExportedRun tune = export_run(plan, "torchtune");
  EXPECT_NE(text_of(tune, "recipe.yaml").find("max_steps_per_epoch: 1234"), std::string::npos);
  EXPECT_TRUE(std::any_of(tune.no_equal.begin(), tune.no_equal.end(), [](const std::string& line) { return line.rfind("save-every: 500", 0) == 0; }));
  plan.strategy = strategy_of({{"framework", "torchtune"}, {"fsdp", "full"}, {"seq_len", "2048"}, {"qat.group_size", "128"}});
  const ExportedRun aware = export_run(plan, "torchtune");  // another recipe prepares a model with a quantizer
  EXPECT_NE(text_of(aware, "recipe.yaml").find("Int8DynActInt4WeightQATQuantizer"), std::string::npos);
  EXPECT_NE(text_of(aware, "run.sh").find(" qat_distributed --config recipe.yaml"), std::string::npos);
}

// A case that grew beyond what is allowed fails, one that shrank does not.
TEST(Gate, GrowthBeyondTheAllowedFails) {
  const Folder folder;
  const auto file = [&](const char* micro_batch) {
    return folder.write("case.json", std::string("{\"model\": \"gpt2\", \"on\": \"1xh100-sxm\", \"framework\": \"transformers\", "
                                                 "\"precision\": \"bf16\", \"seq_len\": 512, \"micro_batch\": ") +
                                         micro_batch + "}");
  };
  const std::string baseline = folder.write("base.json", gate_baseline({gate_case(file("2"), {})}));
  std::vector<GateCase> same = {gate_case(file("2"), {})}, more = {gate_case(file("4"), {})}, less = {gate_case(file("1"), {})};
  for (auto* cases : {&same, &more, &less}) compare_with_baseline(*cases, baseline, {});
  EXPECT_TRUE(same.front().failures.empty());
  // A sequence less of memory, and a step whose host decides: as long, for half the tokens.
  ASSERT_EQ(less.front().failures.size(), 1u);
  EXPECT_NE(less.front().failures.front().find("it slowed from"), std::string::npos) << less.front().failures.front();
  EXPECT_GE(more.front().failures.size(), 1u) << gate_text(more);
  EXPECT_NE(gate_junit(more).find("failures=\"1\""), std::string::npos);
  EXPECT_NE(gate_markdown(more).find("❌"), std::string::npos);
  const std::vector<GateCase> broken = {gate_case(folder.path("none.yaml"), {})};
  EXPECT_EQ(broken.front().failures.size(), 1u);
}

// A step that is longer because it trains more tokens is no slower; that it holds more is another matter.
TEST(Gate, ALargerBatchIsNoSlowerStep) {
  GateCase now;
  now.name = "a.json";
  now.verdict = "fits";
  now.reserved = 100;
  now.step_seconds = 1.9;
  now.tokens_per_second = 2000;
  GateCase before = now;
  before.step_seconds = 1;
  before.tokens_per_second = 1900;
  const Folder folder;
  const std::string baseline = folder.write("base.json", gate_baseline({before}));
  std::vector<GateCase> cases = {now};
  compare_with_baseline(cases, baseline, {});
  EXPECT_TRUE(cases.front().failures.empty()) << gate_text(cases);
  EXPECT_NE(gate_text(cases).find("step +90.0 %, speed +5.3 %"), std::string::npos) << gate_text(cases);
}

// A case of the baseline that was not run is told in every form, and fails nothing.
TEST(Gate, WhatWasNotRunIsTold) {
  GateCase a, b;
  a.name = "a.json", b.name = "b.json";
  a.verdict = b.verdict = "fits";
  const Folder folder;
  const std::string baseline = folder.write("base.json", gate_baseline({a, b}));
  std::vector<GateCase> cases = {a};
  compare_with_baseline(cases, baseline, {});
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_TRUE(cases[1].missing && cases[1].failures.empty());
  for (const std::string& text : {gate_text(cases), gate_markdown(cases), gate_junit(cases)})
    EXPECT_NE(text.find("in the baseline, not run"), std::string::npos) << text;
  EXPECT_EQ(gate_benchmark(cases).find("b.json"), std::string::npos);
}

// --fail-on tight. Llama-3.1-8B with FSDP2 on 16 H100 has a band that reaches beyond the device.
TEST(Gate, ATightRunFailsWhereAsked) {
  const Folder folder;
  const std::string file = folder.write("case.json", "{\"model\": \"llama-3.1-8b\", \"on\": \"2x8xh100-sxm\", \"framework\": \"accelerate\", "
                                                     "\"data_parallel\": \"fsdp2\", \"seq_len\": 8192, \"micro_batch\": 1}");
  GateOptions strict;
  strict.fail_on_tight = true;
  const GateCase usual = gate_case(file, {}), asked = gate_case(file, strict);
  ASSERT_EQ(usual.verdict, "tight") << gate_text({usual});
  EXPECT_TRUE(usual.failures.empty());
  ASSERT_EQ(asked.failures.size(), 1u);
  EXPECT_EQ(asked.failures.front().substr(0, 6), "tight:");
}

}  // namespace
}  // namespace plimsoll
