// torch.distributed.fsdp.FullyShardedDataParallel: what is gathered when, and which modules are units.
#include <gtest/gtest.h>

#include <algorithm>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

StepProgram lowered(const std::string& model_name, std::vector<std::pair<std::string, std::string>> options) {
  options.insert(options.end(), {{"data_parallel", "fsdp1"}, {"precision", "bf16"}, {"micro_batch", "1"}, {"seq_len", "128"}});
  Strategy said;
  set_options(said, options);
  const Model model = load_model(model_name);
  return lower_hf_fsdp1(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
}

/// The step's gathers and reductions in order: "G" and "R".
std::string collectives_of(const std::string& model_name, const std::vector<std::pair<std::string, std::string>>& options) {
  const StepProgram program = lowered(model_name, options);
  std::string order;
  for (const Instruction& each : program.step) {
    if (each.kind != InstructionKind::collective) continue;
    const CollectiveKind kind = program.collectives[each.id].kind;
    if (kind == CollectiveKind::all_gather) order += 'G';
    if (kind == CollectiveKind::reduce_scatter) order += 'R';
  }
  return order;
}

// pythia-70m has 6 layers, a unit each; the root keeps what forward gathered. Forward: 7 gathers. Backward, without a prefetch: each layer
// is gathered when its gradients are due, and reduced; the root's come last. With BACKWARD_PRE every unit first gathers the next one.
TEST(FirstFsdp, GathersTheNextUnitWhereItIsToldTo) {
  const std::string forward = "GGGGGGG";
  EXPECT_EQ(collectives_of("pythia-70m", {{"framework", "transformers"}, {"fsdp.backward_prefetch", "NO_PREFETCH"}}),
            forward + "GRGRGRGRGRGRR");
  EXPECT_EQ(collectives_of("pythia-70m", {{"framework", "transformers"}}), forward + "GGRGRGRGRGRRR");
  EXPECT_EQ(collectives_of("pythia-70m", {{"framework", "accelerate"}}), forward + "GRGRGRGRGRGRR");  // hands over no prefetch
}

// The whole model in one unit is gathered once and reduced once.
TEST(FirstFsdp, OneUnit) { EXPECT_EQ(collectives_of("pythia-70m", {{"framework", "accelerate"}, {"fsdp.units", "none"}}), "GR"); }

// size_based_auto_wrap_policy from 20e6 on: the two embeddings (50304 · 512 = 25.8e6 each) are units; the six layers are 18.9e6 together,
// which stay with the root. Forward gathers three units, backward the two that were given back; three are reduced.
TEST(FirstFsdp, UnitsBySize) {
  const std::string order = collectives_of("pythia-70m", {{"framework", "transformers"}, {"fsdp.min_num_params", "20000000"}});
  EXPECT_EQ(std::count(order.begin(), order.end(), 'G'), 5) << order;
  EXPECT_EQ(std::count(order.begin(), order.end(), 'R'), 3) << order;
}

/// Kernels of the backward pass that are launched before it first gathers.
int kernels_before_the_gather(const std::string& least) {
  const StepProgram program = lowered("pythia-70m", {{"framework", "transformers"}, {"fsdp.min_num_params", least}});
  auto at = std::find_if(program.step.begin(), program.step.end(), [](const Instruction& each) {
    return each.kind == InstructionKind::phase && static_cast<Phase>(each.id) == Phase::backward;
  });
  int kernels = 0;
  for (; at != program.step.end() && at->kind != InstructionKind::collective; ++at) kernels += at->kind == InstructionKind::kernel ? 1 : 0;
  return kernels;
}

// From 15e6 on the layers and the last norm are a unit, "gpt_neox", and nothing is left for the root: without a handle its hook gathers
// nothing ahead (_pre_backward_hook returns), and the head is gathered when its own gradient is there: after the backward of nll_loss,
// log_softmax and the cast of the logits. From 20e6 on the root holds the layers, and its hook gathers the head before all of these: only
// the loss's own gradient and the cast of the shard come first.
TEST(FirstFsdp, ARootWithoutParametersGathersNothingAhead) {
  EXPECT_EQ(kernels_before_the_gather("20000000"), 2);
  EXPECT_GE(kernels_before_the_gather("15000000"), 2 + 3);
}

// The same with whole parameters: the root has no gradient to show.
TEST(FirstFsdp, ARootWithoutParametersHasNoGradient) {
  EXPECT_NO_THROW(collectives_of("pythia-70m", {{"framework", "accelerate"}, {"fsdp", "none"}, {"fsdp.min_num_params", "1000"}}));
}

// PEFT's fsdp_auto_wrap_policy: of 6 layers each has an adapter of two matrices, so 6 · 3 units and the root. Forward gathers them all,
// backward all but the root, which was not given back; the adapters' 12 gradients alone are reduced. What surrounds them is frozen.
TEST(FirstFsdp, AdaptersAreUnitsOfTheirOwn) {
  for (const char* original : {"true", "false"}) {
    const std::string order = collectives_of("pythia-70m", {{"framework", "accelerate"}, {"lora.r", "8"}, {"fsdp.use_orig_params", original}});
    EXPECT_EQ(std::count(order.begin(), order.end(), 'G'), (6 * 3 + 1) + 6 * 3) << order;
    EXPECT_EQ(std::count(order.begin(), order.end(), 'R'), 6 * 2) << order;
  }
}

// The Trainer sets PEFT's policy in the place of that which was asked for (update_fsdp_plugin_peft): the classes stay, the adapters come to them.
TEST(FirstFsdp, AdaptersAreUnitsBesideTheClassesThatAreAskedFor) {
  const std::string order = collectives_of("pythia-70m", {{"framework", "accelerate"}, {"lora.r", "8"}, {"fsdp.units", "GPTNeoXLayer"}});
  EXPECT_EQ(order, collectives_of("pythia-70m", {{"framework", "accelerate"}, {"lora.r", "8"}}));
}

// forward_prefetch gathers the next unit of forward earlier, and no unit more often: in backward a recomputation runs units that ran in this
// pass, which _get_handle_to_prefetch passes over (_needs_pre_forward_unshard), and what is gathered ahead is given back before the next
// micro-batch.
TEST(FirstFsdp, ForwardPrefetchGathersNothingTwice) {
  const auto gathers = [](const char* prefetch) {
    const std::string order = collectives_of(
        "pythia-70m", {{"framework", "accelerate"}, {"lora.r", "8"}, {"recompute", "full"}, {"recompute_reentrant", "false"}, {"grad_accum", "2"},
                       {"fsdp.no_sync", "true"}, {"fsdp.forward_prefetch", prefetch}});
    return std::count(order.begin(), order.end(), 'G');
  };
  EXPECT_EQ(gathers("true"), gathers("false"));
}

// 4-bit weights are flattened with the norms beside them, so that they must lie in the norms' type (FlatParamHandle, uniform dtype).
TEST(FirstFsdp, QuantisedWeightsLieInTheTypeOfTheOthers) {
  const auto gathers = [](const std::string& storage) {
    std::vector<std::pair<std::string, std::string>> options = {
        {"framework", "accelerate"}, {"task", "qlora"}, {"lora.r", "8"}, {"param_dtype", "bf16"}};
    if (!storage.empty()) options.emplace_back("bnb_4bit_quant_storage", storage);
    return collectives_of("pythia-70m", options).size();
  };
  EXPECT_THROW(gathers(""), Error);
  EXPECT_GT(gathers("bf16"), 0U);
}

// gpt2's head is its embedding: in two units PyTorch fails at the first forward, "size mismatch".
TEST(FirstFsdp, TiedWeightsOfTwoUnitsAreRefused) {
  EXPECT_THROW(collectives_of("gpt2", {{"framework", "accelerate"}, {"fsdp.min_num_params", "20000000"}}), Error);
}

// A router of ERNIE 4.5 has a frozen parameter beside its weight: FlatParamHandle takes both only with use_orig_params.
TEST(FirstFsdp, FlattensFrozenParametersOnlyWithTheOriginalOnes) {
  const auto flattened = [](const std::string& original) {
    return lowered("ernie-4.5-21b-a3b", {{"framework", "transformers"}, {"fsdp.use_orig_params", original}});
  };
  EXPECT_THROW(flattened("false"), Error);
  EXPECT_FALSE(flattened("true").step.empty());
}

}  // namespace
}  // namespace plimsoll::program
