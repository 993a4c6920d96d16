// Equal layers of which some run: the program is that in which all of them do.
#include "program/equal_layers.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"
#include "programs.hpp"

namespace plimsoll::program {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

struct ResolvedRun {
  Model model;
  Strategy strategy;

  ResolvedRun(const char* name, Options options, const char* cluster) : model(load_model(name)) {
    options.insert(options.end(), {{"framework", "transformers"}, {"micro_batch", "1"}, {"seq_len", "256"}});
    Strategy said;
    set_options(said, options);
    strategy = resolve(said, model, parse_cluster(cluster));
  }
};

/// What was recorded, and how many of the tree's layers ran for it.
struct Recorded {
  bool whole = false;  ///< record_hf_steps' answer
  StepProgram program;
  std::size_t layers_run = 0;
};

using Change = void (*)(Module& root, Tape& tape);
void nothing(Module&, Tape&) {}

/// Counts the calls of the model's layers; `some`: of equal layers some run.
Recorded record(const ResolvedRun& run, bool some, Change change) {
  Tape tape(h100(), TorchRelease(run.strategy.releases.of(Package::torch)));
  const std::unique_ptr<Module> root = hf_modules(run.model, run.strategy, tape);
  Recorded recorded;
  for (Module* layer : layer_modules(run.model, *root))
    layer->pre_forward.push_back([&](Module&, std::vector<Tensor*>&) { ++recorded.layers_run; });
  change(*root, tape);
  const std::unique_ptr<Network> network = hf_network(run.model, run.strategy, *root, tape);
  std::unique_ptr<Fsdp2> sharded;
  if (run.strategy.gpus > 1) {
    Fsdp2Options sharding;
    sharding.mesh = data_mesh(run.strategy);
    sharding.param_dtype = DType::bf16;
    sharding.reshard_after_forward = run.strategy.fsdp.reshard != FsdpOptions::Reshard::never;
    sharded = std::make_unique<Fsdp2>(tape, *root, wrap_units(run.model, *root, run.strategy.fsdp.units), sharding);
    sharded->materialize();
  } else {
    materialize(*root, tape);
  }
  const Batch batch = hf_batch(run.model, run.strategy, tape);
  const std::vector<Tensor> leaves = sharded ? sharded->shards() : trainable_tensors(*root);
  const std::unique_ptr<Optimizer> optimizer = hf_grouped_optimizer(run.model, run.strategy, *root, tape, leaves);
  TrainingLoop loop{*network, *optimizer, leaves};
  loop.passes_recur = true;
  std::unique_ptr<EqualLayers> equal;
  if (some) equal = hf_equal_layers(run.model, run.strategy, *root, tape, leaves.size());
  tape.equal_layers = equal.get();
  recorded.whole = record_hf_steps(tape, loop, run.strategy, batch, false);
  recorded.program = tape.take();
  return recorded;
}

constexpr std::size_t kRun = 8;  // layers that run of a stack of more than a dozen

/// The first line in which two programs differ; empty: none.
std::string difference(const std::vector<std::string>& some, const std::vector<std::string>& all) {
  const auto [one, other] = std::mismatch(some.begin(), some.end(), all.begin(), all.end());
  if (one == some.end() && other == all.end()) return {};
  return std::to_string(one - some.begin()) + ": " + (one == some.end() ? "the end" : *one) + ", not " + (other == all.end() ? "the end" : *other);
}

/// Both ways; the second step is a copy of the first, so each layer that runs is called once, twice where a checkpoint runs it again.
void expect_same(const char* model, const Options& options, const char* cluster) {
  const ResolvedRun run(model, options, cluster);
  SCOPED_TRACE(std::string(model) + " on " + cluster);
  const Recorded all = record(run, false, nothing), some = record(run, true, nothing);
  ASSERT_TRUE(all.whole);
  ASSERT_TRUE(some.whole);
  EXPECT_EQ(some.layers_run * static_cast<std::size_t>(run.model.layers), all.layers_run * kRun);
  EXPECT_EQ(difference(told(some.program), told(all.program)), "");
  EXPECT_EQ(difference(worked(some.program), worked(all.program)), "");
}

TEST(EqualLayers, OfAShardedModelStandForOneAnother) {
  expect_same("llama-3.1-8b", {{"data_parallel", "fsdp2"}}, "8xh100-sxm");
  expect_same("llama-3.1-8b", {{"data_parallel", "fsdp2"}, {"recompute", "full"}, {"optimizer", "sgd"}}, "8xh100-sxm");
  expect_same("qwen2.5-7b", {{"data_parallel", "fsdp2"}, {"reshard_after_forward", "never"}}, "4xh100-sxm");
  expect_same("llama-3.1-8b", {{"data_parallel", "fsdp2"}, {"torch", "2.6"}, {"clip_grad_norm", "true"}}, "8xh100-sxm");
}

TEST(EqualLayers, OnOneDeviceStandForOneAnother) {
  expect_same("llama-3.1-8b", {{"precision", "amp-bf16"}, {"clip_grad_norm", "true"}}, "1xh100-sxm");
  expect_same("llama-3.1-8b", {{"precision", "pure-bf16"}, {"recompute", "full"}, {"attention", "eager"}}, "1xh100-sxm");
  expect_same("phi-2", {{"precision", "amp-fp16"}, {"torch", "2.6"}}, "1xh100-sxm");
}

// Layers of families that texts tell, which give one tensor (mpt) or several, of which the stack takes the first.
TEST(EqualLayers, OfTextsStandForOneAnother) {
  expect_same("falcon-7b", {{"precision", "amp-bf16"}, {"clip_grad_norm", "true"}}, "1xh100-sxm");
  expect_same("falcon-7b", {{"data_parallel", "fsdp2"}, {"attention", "eager"}, {"recompute", "full"}}, "8xh100-sxm");
  expect_same("mpt-7b", {{"data_parallel", "fsdp2"}, {"attention", "eager"}}, "8xh100-sxm");
  expect_same("bloom-560m", {{"precision", "pure-bf16"}, {"attention", "eager"}, {"recompute", "full"}}, "1xh100-sxm");
  expect_same("starcoderbase", {{"data_parallel", "fsdp2"}}, "8xh100-sxm");
}

// T5's decoder: its first layer has a table that the others read, its layers read the encoder's output and give three tensors. Of 24, 23 are
// alike.
TEST(EqualLayers, OfADecoderStandForOneAnother) {
  const ResolvedRun run("t5-3b", {{"data_parallel", "fsdp2"}, {"tgt_len", "64"}}, "8xh100-sxm");
  const Recorded some = record(run, true, nothing), all = record(run, false, nothing);
  ASSERT_TRUE(some.whole);
  EXPECT_EQ(some.layers_run + 23 - kRun, all.layers_run);
  EXPECT_EQ(difference(told(some.program), told(all.program)), "");
  EXPECT_EQ(difference(worked(some.program), worked(all.program)), "");
}

// gemma-2 alternates between two kinds of layers: the model describes each as a block of its own.
TEST(EqualLayers, OfTwoKindsRunAll) {
  const ResolvedRun run("gemma-2-9b", {{"data_parallel", "fsdp2"}}, "8xh100-sxm");
  EXPECT_EQ(record(run, true, nothing).layers_run, record(run, false, nothing).layers_run);
}

// Hooks make the fourth layer, next to the gap, allocate what its neighbours do not: the layers in between can not be told from those that ran.
TEST(EqualLayers, ThatSayOtherThingsAreNotWrittenDown) {
  const ResolvedRun run("llama-3.1-8b", {{"data_parallel", "fsdp2"}}, "8xh100-sxm");
  const Recorded some = record(run, true, [](Module& root, Tape& tape) {
    root.find("model.layers.3.mlp")->pre_forward.push_back([&tape](Module&, std::vector<Tensor*>&) { tape.scratch(4096); });
  });
  EXPECT_FALSE(some.whole);
}

}  // namespace
}  // namespace plimsoll::program
