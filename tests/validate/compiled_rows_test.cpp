// Compiled blocks of transformers' models: what every measured row must give, and what has no graph.
// Rows: PyTorch 2.15's caching allocator on a CUDA runtime without a GPU, transformers 5.23, module.compile() on every decoder layer.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/memory.hpp"
#include "plimsoll/rows.hpp"
#include "program/lower.hpp"

namespace plimsoll {
namespace {

const std::vector<MeasuredRow>& transformers_rows() {
  static const std::vector<MeasuredRow> rows = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-transformers.json");
  return rows;
}

const MeasuredRow& row_named(const std::string& id) {
  for (const MeasuredRow& row : transformers_rows()) {
    if (row.id == id) return row;
  }
  throw std::runtime_error("no row " + id);
}

bool is_compiled(const MeasuredRow& row) { return row.strategy.compile == Strategy::Compile::blocks; }

double measured(const MeasuredRow& row, const std::string& quantity) {
  for (const auto& value : row.measured) {
    if (value.quantity == quantity) return value.value;
  }
  throw std::runtime_error(row.id + " did not measure " + quantity);
}

StepProgram lower(const MeasuredRow& row, const Strategy& asked) {
  const Strategy strategy = resolve(asked, *row.model, *row.cluster);
  switch (engine_of(strategy)) {
    case Engine::fsdp2:
      return program::lower_hf_fsdp2(*row.model, strategy);
    case Engine::torch_ddp:
      return program::lower_hf_ddp(*row.model, strategy);
    default:
      return program::lower_hf_eager(*row.model, strategy);
  }
}

MemoryTrace play(const MeasuredRow& row) {
  PlayMemoryOptions options;
  options.allocator = row.strategy.allocator;
  return play_memory(lower(row, row.strategy), options);
}

void expect_refused(const MeasuredRow& row, const Strategy& asked, const std::string& reason) {
  try {
    lower(row, asked);
    FAIL() << row.id << " should be refused: " << reason;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

// llama, mistral, qwen2 (with biases) and GPT-2 (with dropout), each in bf16, under autocast, under FSDP2, and with checkpointing inside
// the graph. Peaks are the allocator's own: nothing is fitted, so a tenth of a percent is what reuse among small buffers may cost.
TEST(CompiledRows, EveryRowComesOut) {
  int rows = 0;
  for (const MeasuredRow& row : transformers_rows()) {
    if (!is_compiled(row)) continue;
    ++rows;
    const MemoryTrace trace = play(row);
    EXPECT_NEAR(static_cast<double>(trace.peak_allocated.count) / measured(row, quantity::allocated), 1, 0.001) << row.id;
    EXPECT_NEAR(static_cast<double>(trace.peak_reserved.count) / measured(row, quantity::reserved), 1, 0.01) << row.id;
    EXPECT_NEAR(static_cast<double>(trace.backward_peak.count) / measured(row, quantity::backward_peak), 1, 0.001) << row.id;
  }
  EXPECT_EQ(rows, 16);
}

// The plain llama rows in bf16 are exact to the byte, with and without checkpointing.
TEST(CompiledRows, LlamaInBf16IsExact) {
  for (const char* id :
       {"hf-llama-3.2-1b-bf16-sdpa-b2-s2048-adamw-compile-blocks", "hf-llama-3.2-1b-bf16-sdpa-b4-s2048-ac-adamw-compile-blocks"}) {
    const MeasuredRow& row = row_named(id);
    const MemoryTrace trace = play(row);
    EXPECT_EQ(static_cast<double>(trace.peak_allocated.count), measured(row, quantity::allocated)) << id;
    EXPECT_EQ(static_cast<double>(trace.peak_reserved.count), measured(row, quantity::reserved)) << id;
  }
}

TEST(CompiledRows, GraphsThatAreNotKnownAreRefused) {
  const MeasuredRow& llama = row_named("hf-llama-3.2-1b-bf16-sdpa-b2-s2048-adamw-compile-blocks");
  Strategy eager_attention = llama.strategy;
  eager_attention.attention = AttentionKernel::eager;
  expect_refused(llama, eager_attention, "eager attention");
  Strategy reentrant = llama.strategy;
  reentrant.recompute.kind = Recompute::Kind::full;
  reentrant.recompute.reentrant = true;
  expect_refused(llama, reentrant, "reentrant");
  for (const MeasuredRow& row : transformers_rows()) {
    if (row.model->model_type != "falcon" || !row.refused.empty()) continue;
    Strategy compiled = row.strategy;
    compiled.compile = Strategy::Compile::blocks;
    expect_refused(row, compiled, "compiled blocks");
    return;
  }
  FAIL() << "no row of another family";
}

// DDPOptimizer.__init__ asserts that its first bucket (1 MiB) is no larger than the others, whatever is compiled.
TEST(CompiledRows, BucketsSmallerThanDdpsFirstOneFail) {
  const std::vector<MeasuredRow> rows = load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/allocator-compiled-ddp.json");
  ASSERT_FALSE(rows.empty());
  for (const Strategy::Compile compile : {Strategy::Compile::model, Strategy::Compile::blocks}) {
    Strategy strategy = rows.front().strategy;
    strategy.compile = compile;
    strategy.ddp.bucket_cap_mb = 0.5;
    try {
      lower(rows.front(), strategy);
      FAIL() << "such a run fails";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("buckets"), std::string::npos) << error.what();
    }
    strategy.ddp.bucket_cap_mb = 1;
    EXPECT_NO_THROW(lower(rows.front(), strategy));
  }
}

}  // namespace
}  // namespace plimsoll
