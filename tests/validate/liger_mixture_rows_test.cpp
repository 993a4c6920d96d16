// Liger's fused experts, rotation, norms and loss in Mixtral and Qwen3's mixtures against the peaks of PyTorch 2.15's own caching allocator
// on a CUDA runtime without a GPU (bench/corpus/allocator-liger-mixtures.json).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& rows() {
  static const std::vector<MeasuredRow> all = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-liger-mixtures.json");
  return all;
}

StepProgram lowered(const MeasuredRow& row) {
  return program::lower_transformers(*row.model, resolve(row.strategy, *row.model, *row.cluster));
}

// Blocks of some MiB that the allocator does not split are counted whole: which ones depends on where they come to lie.
TEST(LigerMixtureRows, AgreeWithPyTorch) {
  ASSERT_FALSE(rows().empty());
  for (const MeasuredRow& row : rows()) {
    const MemoryTrace trace = play_memory(lowered(row), {});
    const double allocated = measured(row, quantity::allocated), reserved = measured(row, quantity::reserved);
    EXPECT_NEAR(static_cast<double>(trace.peak_allocated.count), allocated, 0.005 * allocated) << row.id;
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count), reserved, 0.02 * reserved) << row.id;
  }
}

TEST(LigerMixtureRows, StepsLeaveWhatTheyFound) {
  for (const MeasuredRow& row : rows()) expect_leaves_what_it_found(lowered(row));
}

}  // namespace
}  // namespace plimsoll
