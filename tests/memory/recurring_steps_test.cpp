// Steps that are not played because an earlier one told how they end: the trace is that of playing them all.
#include <gtest/gtest.h>

#include "devices.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// `capacity` in MiB.
void expect_played(const StepProgram& program, std::int64_t capacity) {
  PlayMemoryOptions options;
  options.capacity = Bytes(capacity << 20);
  options.steps = 7;
  const MemoryTrace skipped = play_memory(program, options);
  options.skip_recurring_steps = false;
  const MemoryTrace played = play_memory(program, options);
  EXPECT_EQ(skipped.peak_allocated, played.peak_allocated);
  EXPECT_EQ(skipped.peak_reserved, played.peak_reserved);
  EXPECT_EQ(skipped.optimizer_reserved, played.optimizer_reserved);
  EXPECT_EQ(skipped.forward_peak, played.forward_peak);
  EXPECT_EQ(skipped.backward_peak, played.backward_peak);
  EXPECT_EQ(skipped.persistent, played.persistent);
  EXPECT_EQ(skipped.requested_at_peak, played.requested_at_peak);
  EXPECT_EQ(skipped.peak_step, played.peak_step);
  EXPECT_EQ(skipped.peak_phase, played.peak_phase);
  EXPECT_EQ(skipped.peak_label, played.peak_label);
  EXPECT_EQ(skipped.alloc_retries, played.alloc_retries);
  EXPECT_EQ(skipped.out_of_memory.has_value(), played.out_of_memory.has_value());
}

StepProgram lowered(const char* model_name, const char* cluster, const Options& options) {
  Strategy said;
  set_options(said, options);
  const Model model = load_model(model_name);
  return program::lower_transformers(program::on_h100(model, resolve(said, model, parse_cluster(cluster))));
}

// Devices on which all fits, on which cached segments are given back in the middle of a step, and on which it does not fit.
TEST(RecurringSteps, AreTheOnesPlayed) {
  const StepProgram sharded =
      lowered("llama-3.2-1b", "8xh100-sxm",
              {{"framework", "transformers"}, {"data_parallel", "fsdp2"}, {"micro_batch", "1"}, {"seq_len", "1024"}, {"grad_accum", "3"}});
  const StepProgram alone = lowered("gpt2", "1xh100-sxm", {{"framework", "transformers"}, {"micro_batch", "2"}, {"seq_len", "512"}});
  for (const StepProgram* program : {&sharded, &alone}) {
    PlayMemoryOptions roomy;
    const std::int64_t reserved = play_memory(*program, roomy).peak_reserved.count >> 20;
    for (const std::int64_t capacity :
         {2 * reserved, reserved, reserved * 99 / 100, reserved * 97 / 100, reserved * 94 / 100, reserved / 2})
      expect_played(*program, capacity);
  }
}

}  // namespace
}  // namespace plimsoll
