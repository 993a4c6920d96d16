// Compiled blocks of transformers' models: what has no graph, and those that code describes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "devices.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"
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

// data/compiled_code.json: small models, most of types that code alone describes, whose layers PyTorch 2.15 compiled on the runtime without
// a GPU (an H100 of sm_90, transformers 5.23.0, four steps of AdamW, a second run, whose kernels lay on disk): the last step's peaks and
// launches.
TEST(CompiledRows, LayersThatCodeDescribesAreTheRealCompilers) {
  const char* const package = std::getenv("PLIMSOLL_TRANSFORMERS");
  if (package == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  std::ifstream stream(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/validate/data/compiled_code.json");
  const nlohmann::json rows = nlohmann::json::parse(stream);
  ASSERT_GE(rows.size(), 12U);
  for (const nlohmann::json& row : rows) {
    const std::string id = row["id"], config = row["config"].dump();
    std::vector<std::pair<std::string, std::string>> options{
        {"framework", "transformers"}, {"torch", "2.15"},           {"transformers", "5.23.0"}, {"optimizer", "adamw"},
        {"optimizer_impl", "foreach"}, {"clip_grad_norm", "false"}, {"compile", "blocks"}};
    for (const auto& [key, value] : row["strategy"].items()) options.emplace_back(key, value.get<std::string>());
    const Cluster cluster = parse_cluster("1xh100-sxm");
    const Model model = model_of_package({package, config, "config.json", "", "", {}, {}});
    Strategy said;
    set_options(said, options);
    const RankReport rank = estimate(model, cluster, said).ranks.at(0);
    EXPECT_EQ(rank.memory.closed_form_because, "") << id;
    EXPECT_EQ(rank.memory.allocated.count, row["allocated_bytes"].get<std::int64_t>()) << id;
    EXPECT_EQ(rank.memory.reserved.count, row["reserved_bytes"].get<std::int64_t>()) << id;
    ASSERT_TRUE(rank.work) << id;
    EXPECT_EQ(rank.work->launches, row["launches"].get<std::int64_t>()) << id;
  }
}

}  // namespace
}  // namespace plimsoll
