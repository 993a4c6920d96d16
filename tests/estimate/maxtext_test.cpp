// MaxText's steps in whole reports: bytes of a compiler's plan, and no closed form where no layer is lowered.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

Report report_of(const char* model) {
  const Strategy strategy = parse_strategy(R"({"framework": "jax-maxtext", "seq_len": 1024, "micro_batch": 1})", "strategy");
  return estimate(load_model(model), parse_cluster("8xh100-sxm"), strategy);
}

// No allocator caches between planned buffers; the fp32 weights, both moments and gradients of 1,235,814,400 parameters are cut over eight
// ranks (norms are whole), and the report says what of XLA's memory is not modelled.
TEST(Maxtext, MemoryIsThatOfPlannedBuffers) {
  const Report report = report_of("llama-3.2-1b");
  const RankMemory& memory = report.worst_rank().memory;
  EXPECT_EQ(memory.basis, Basis::played);
  EXPECT_EQ(memory.reserved, memory.allocated);
  EXPECT_GT(memory.allocated.count, 4 * 4 * 1'235'814'400LL / 8);
  EXPECT_EQ(report.time.basis, Basis::played);
  EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(),
                          [](const std::string& note) { return note.find("XLA_PYTHON_CLIENT_MEM_FRACTION") != std::string::npos; }));
}

TEST(Maxtext, OtherLayersHaveNoClosedForm) {
  try {
    report_of("gpt2");
    FAIL() << "gpt2 was estimated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(error.message().find("layers other than Llama's"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace plimsoll
