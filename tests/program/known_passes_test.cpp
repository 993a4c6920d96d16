// The passes of a step, recorded once: a later step that is a copy of the first is the step that would have been recorded.
#include "program/known_passes.hpp"

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

struct Run {
  Model model = load_model("pythia-70m");
  Strategy strategy;

  Run(Options options, const char* cluster) {
    options.insert(options.end(), {{"framework", "transformers"}, {"micro_batch", "1"}, {"seq_len", "128"}});
    Strategy said;
    set_options(said, options);
    strategy = resolve(said, model, parse_cluster(cluster));
  }
};

/// pythia-70m under fully_shard; each step recorded on its own unless `recurs`.
StepProgram sharded(const Options& options, bool recurs) {
  const Run run(options, "4xh100-sxm");
  Tape tape(h100(), TorchRelease(run.strategy.releases.of(Package::torch)));
  const std::unique_ptr<Module> root = hf_modules(run.model, run.strategy, tape);
  const std::unique_ptr<Network> network = hf_network(run.model, run.strategy, *root, tape);
  Fsdp2Options sharding;
  sharding.mesh = data_mesh(run.strategy);
  sharding.param_dtype = DType::bf16;
  Fsdp2 sharded(tape, *root, wrap_units(run.model, *root, run.strategy.fsdp.units), sharding);
  sharded.materialize();
  const Batch batch = hf_batch(run.model, run.strategy, tape);
  const std::vector<Tensor> shards = sharded.shards();
  const std::unique_ptr<Optimizer> optimizer = hf_grouped_optimizer(run.model, run.strategy, *root, tape, shards);
  TrainingLoop loop{*network, *optimizer, shards};
  loop.passes_recur = recurs;
  record_hf_steps(tape, loop, run.strategy, batch, false);
  return tape.take();
}

/// The same on one device.
StepProgram alone(const Options& options, bool recurs) {
  const Run run(options, "1xh100-sxm");
  Tape tape(h100(), TorchRelease(run.strategy.releases.of(Package::torch)));
  const std::unique_ptr<Module> root = hf_modules(run.model, run.strategy, tape);
  materialize(*root, tape);
  const std::unique_ptr<Network> network = hf_network(run.model, run.strategy, *root, tape);
  const std::vector<Tensor> parameters = trainable_tensors(*root);
  const std::unique_ptr<Optimizer> optimizer = hf_optimizer(run.model, run.strategy, *root, tape);
  const Batch batch = hf_batch(run.model, run.strategy, tape);
  TrainingLoop loop{*network, *optimizer, parameters};
  loop.passes_recur = recurs;
  record_hf_steps(tape, loop, run.strategy, batch, false);
  return tape.take();
}

/// Whether the step's first tensor has the name that it has in the first step: a tape gives each name once, a copy keeps it.
bool is_copied(const StepProgram& program) {
  const auto name = [](const std::vector<Instruction>& part) {
    return std::find_if(part.begin(), part.end(), [](const Instruction& each) { return each.kind == InstructionKind::alloc; })->id;
  };
  return name(program.first_step) == name(program.step);
}

using Recorder = StepProgram (*)(const Options&, bool);

void expect_same(Recorder record, const Options& options) {
  const StepProgram apart = record(options, false), copied = record(options, true);
  EXPECT_FALSE(is_copied(apart));
  EXPECT_TRUE(is_copied(copied));
  EXPECT_EQ(told(copied), told(apart));
  EXPECT_EQ(worked(copied), worked(apart));
}

TEST(KnownPasses, AreWhatALaterStepOfAShardedModelRecords) {
  expect_same(sharded, {{"data_parallel", "fsdp2"}});
  expect_same(sharded, {{"data_parallel", "fsdp2"}, {"recompute", "full"}, {"grad_accum", "3"}});
  expect_same(sharded, {{"data_parallel", "fsdp2"}, {"optimizer", "sgd"}, {"grad_accum", "12"}});  // of which 8 are recorded
}

TEST(KnownPasses, AreWhatALaterStepOnOneDeviceRecords) {
  expect_same(alone, {{"precision", "amp-bf16"}, {"clip_grad_norm", "true"}});
  expect_same(alone, {{"precision", "pure-bf16"}, {"grad_accum", "3"}, {"recompute", "full"}});
}

// PyTorch 2.6 keeps the workspaces of cuBLAS that the first products of either pass take: the second step has none to take. The micro-batch
// that stands for those left out lies behind them, so by as much earlier.
TEST(KnownPasses, AreCopiedWithoutTheWorkspacesThatTheFirstStepKeeps) {
  expect_same(alone, {{"torch", "2.6"}});
  expect_same(sharded, {{"torch", "2.6"}, {"data_parallel", "fsdp2"}, {"recompute", "full"}});
  const Options many = {{"torch", "2.6"}, {"grad_accum", "12"}};
  expect_same(alone, many);
  const Repeated copied = alone(many, true).repeated, apart = alone(many, false).repeated;
  EXPECT_EQ(copied.begin, apart.begin);
  EXPECT_EQ(copied.end, apart.end);
}

// Whatever else outlives the passes may be why the next ones differ.
TEST(KnownPasses, AreForgottenWhereTheFirstStepLeavesMoreThanGradients) {
  Tape tape(h100());
  tape.record_into(Tape::Part::first_step);
  const Tensor left = tape.empty({1024}, DType::fp32);
  KnownPasses passes;
  passes.learn(tape, {});
  tape.record_into(Tape::Part::step);
  EXPECT_FALSE(passes.record(tape, {}));
}

// Before PyTorch 2.0 zero_grad() sets gradients to zero instead of dropping them: later passes add to them.
TEST(KnownPasses, AreNotRepeatedOntoGradients) {
  const Options old = {{"torch", "1.13"}, {"attention", "eager"}};
  const StepProgram program = alone(old, true);
  EXPECT_FALSE(is_copied(program));
  EXPECT_EQ(told(program), told(alone(old, false)));
}

}  // namespace
}  // namespace plimsoll::program
