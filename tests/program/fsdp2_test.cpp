// torch.distributed.fsdp.fully_shard: which units a framework makes.
#include <gtest/gtest.h>

#include <set>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "program/lower.hpp"

namespace plimsoll::program {
namespace {

StepProgram lowered(const std::string& model_name, const std::string& version) {
  Strategy said;
  set_options(
      said,
      {{"framework", "accelerate"}, {"framework_version", version}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "128"}});
  const Model model = load_model(model_name);
  return lower_hf_fsdp2(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
}

// Accelerate 1.14 gives the input embedding a unit of its own. T5's is the encoder's and the decoder's as well, which read it through
// modules of theirs, whose call gathers nothing: no run of it was seen. Until 1.13 it is the root's, gathered while the model runs.
TEST(SecondFsdp, SharedEmbeddingsOfAnEncoderAndADecoderAreNoUnit) {
  EXPECT_THROW(lowered("t5-large", "1.14.0"), Error);
  EXPECT_FALSE(lowered("t5-large", "1.13.0").step.empty());
}

// get_input_embeddings() of a model with a vision tower is the language model's table, not the tower's patches or positions; tied to the head, both
// are of the tail, which is gathered once a step (reshard_after_forward false): vocabulary · hidden elements, for no norm is a child of the base model.
TEST(SecondFsdp, ATowersEmbeddingsAreNotTheInputs) {
  for (const char* name : {"gemma-3-4b", "qwen2-vl-2b"}) {
    const StepProgram program = lowered(name, "1.15.0");
    const Model model = load_model(name);
    const std::int64_t table = 2 * model.vocab_size * model.hidden_size;  // in bf16
    std::int64_t gathers = 0;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::collective)
        gathers += program.collectives[each.id].kind == CollectiveKind::all_gather && program.collectives[each.id].bytes == table;
    EXPECT_EQ(gathers, 1) << name;
  }
}

// ERNIE 4.5's routers are made in fp32 (Ernie4_5_MoeTopKRouter). Beside weights in bf16 a layer has trained parameters of two types, which
// FSDPParamGroup._init_mp_dtypes raises at: "FSDP expects uniform original parameter dtype"; beside weights in fp32 it has one.
TEST(SecondFsdp, RefusesTrainedParametersOfTwoTypesInAGroup) {
  const auto of_weights = [](const std::string& type) {
    Strategy said;
    set_options(
        said, {{"framework", "transformers"}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "128"}, {"param_dtype", type}});
    const Model model = load_model("ernie-4.5-21b-a3b");
    return lower_hf_fsdp2(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
  };
  EXPECT_THROW(of_weights("bf16"), Error);
  EXPECT_FALSE(of_weights("fp32").step.empty());
}

// Gemma3Model makes the masks around its text model and hands it no positions: which frame compiles them was not seen, and is refused.
TEST(SecondFsdp, RefusesCompiledMasksAroundATextModel) {
  Strategy said;
  set_options(said, {{"framework", "transformers"}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "128"}, {"compile", "true"}});
  const Model model = load_model("gemma-3-4b");
  try {
    lower_hf_fsdp2(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
    FAIL() << "it was played";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused) << error.what();
  }
}

// Accelerator._prepare_fsdp2 compiles the model and shards it behind. Dynamo enters no hook of FSDP2 (_fsdp_common.py, _dynamo_disable), and
// leaves a frame that breaks within a loop to Python (symbolic_convert.py); each function of transformers' that such a frame calls is a graph.
// Llama's are its mask, its rotary tables, 16 layers, its final norm, and what follows the head; GPT-2's, whose final norm is PyTorch's and
// which turns no heads, its mask, 12 layers and its loss. All but masks and tables have a backward. Regional compilation takes the layers alone.
TEST(SecondFsdp, FunctionsBetweenHooksAreGraphs) {
  const auto graphs = [](const std::string& name, const char* compile) {
    Strategy said;
    set_options(said, {{"framework", "accelerate"}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "128"}, {"compile", compile}});
    const Model model = load_model(name);
    const StepProgram program = lower_hf_fsdp2(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
    std::int64_t found = 0;
    for (const Instruction& each : program.step)
      if (each.kind == InstructionKind::host && static_cast<HostWork>(each.id) == HostWork::compiled_layer) found += each.bytes;
    return found;
  };
  EXPECT_EQ(graphs("llama-3.2-1b", "true"), (16 + 4) + (16 + 2));
  EXPECT_EQ(graphs("llama-3.2-1b", "blocks"), 16 + 16);
  EXPECT_EQ(graphs("gpt2", "true"), (12 + 2) + (12 + 1));
}

// GPT-2's loss warns of its configuration, at which Dynamo breaks: the exception holds the frame that it compiles, so that the first step's
// logits, 128 rows of 50,257 16-bit numbers, live until the collector comes behind the optimizer. Of a later step they end with the backward.
TEST(SecondFsdp, TheFirstLogitsOfABrokenFrameStay) {
  Strategy said;
  set_options(said, {{"framework", "accelerate"},
                     {"data_parallel", "fsdp2"},
                     {"micro_batch", "1"},
                     {"seq_len", "128"},
                     {"precision", "bf16"},
                     {"compile", "true"}});
  const Model model = load_model("gpt2");
  const StepProgram program = lower_hf_fsdp2(on_h100(model, resolve(said, model, parse_cluster("4xh100-sxm"))));
  const auto kernels_behind = [](const std::vector<Instruction>& part) {
    std::set<std::uint32_t> logits;
    std::int64_t behind = 0;  // the last one that ends
    for (const Instruction& each : part) {
      if (each.kind == InstructionKind::alloc && each.bytes == 128 * 50257 * 2) logits.insert(each.id);
      if (each.kind == InstructionKind::kernel) ++behind;
      if (each.kind == InstructionKind::free && logits.contains(each.id)) behind = 0;
    }
    return behind;
  };
  EXPECT_EQ(kernels_behind(program.first_step), 0);
  EXPECT_GT(kernels_behind(program.step), 0);
}

}  // namespace
}  // namespace plimsoll::program
