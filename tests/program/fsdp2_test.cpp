// torch.distributed.fsdp.fully_shard: which units a framework makes.
#include <gtest/gtest.h>

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
  return lower_hf_fsdp2(model, resolve(said, model, parse_cluster("4xh100-sxm")));
}

// Accelerate 1.14 gives the input embedding a unit of its own. T5's is the encoder's and the decoder's as well, which read it through
// modules of theirs, whose call gathers nothing: no run of it was seen. Until 1.13 it is the root's, gathered while the model runs.
TEST(SecondFsdp, SharedEmbeddingsOfAnEncoderAndADecoderAreNoUnit) {
  EXPECT_THROW(lowered("t5-large", "1.14.0"), Error);
  EXPECT_FALSE(lowered("t5-large", "1.13.0").step.empty());
}

}  // namespace
}  // namespace plimsoll::program
