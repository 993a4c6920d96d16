// What has no graph among compiled blocks of transformers' models.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/lower.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const MeasuredRow& row_named(const std::string& id) { return row_of(rows_in("allocator-transformers"), id); }

StepProgram lower(const MeasuredRow& row, const Strategy& asked) {
  const Strategy strategy = resolve(asked, *row.model, *row.cluster);
  switch (engine_of(strategy)) {
    case Engine::fsdp2:
      return program::lower_hf_fsdp2(program::on_cluster(*row.cluster, *row.model, strategy));
    case Engine::torch_ddp:
      return program::lower_hf_ddp(program::on_cluster(*row.cluster, *row.model, strategy));
    default:
      return program::lower_hf_eager(program::on_cluster(*row.cluster, *row.model, strategy));
  }
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

TEST(CompiledRows, GraphsThatAreNotKnownAreRefused) {
  const MeasuredRow& llama = row_named("hf-llama-3.2-1b-bf16-sdpa-b2-s2048-adamw-compile-blocks");
  Strategy eager_attention = llama.strategy;
  eager_attention.attention = AttentionKernel::eager;
  expect_refused(llama, eager_attention, "eager attention");
  Strategy reentrant = llama.strategy;
  reentrant.recompute.kind = Recompute::Kind::full;
  reentrant.recompute.reentrant = true;
  expect_refused(llama, reentrant, "reentrant");
  for (const MeasuredRow& row : rows_in("allocator-transformers")) {
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
  const std::vector<MeasuredRow>& rows = rows_in("allocator-compiled-ddp");
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
