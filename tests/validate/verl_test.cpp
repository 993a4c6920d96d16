// What verl's workers hold phase by phase, by the rows of bench/corpus/allocator-verl.json and by what must follow from them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plimsoll/estimate.hpp"
#include "validate/measured_rows.hpp"

namespace plimsoll {
namespace {

const MeasuredRow& row_of(const std::string& id) {
  const auto& rows = rows_in("allocator-verl");
  return *std::find_if(rows.begin(), rows.end(), [&](const MeasuredRow& row) { return row.id == id; });
}

RankMemory memory_of(const MeasuredRow& row, const Strategy& strategy) { return estimate(*row.model, *row.cluster, strategy).worst_rank().memory; }

std::int64_t allocated_in(const RankMemory& memory, Phase phase) {
  const auto found = std::find_if(memory.phases.begin(), memory.phases.end(), [&](const PhaseMemory& each) { return each.phase == phase; });
  return found == memory.phases.end() ? 0 : found->allocated.count;
}

constexpr std::int64_t kRoot = 2 * 32000 * 512 * 2;  // embedding and head in bf16, which the reference's root keeps gathered
constexpr std::int64_t kSlack = 100'000;             // tables, norms, the allocator's rounding

// Of two ranks each holds half of the weights and of AdamW's moments in fp32, 12 bytes in all, during the rollout too; where they rest there
// is nothing but the reference's root.
TEST(VerlRows, WhatRestsIsNotOnTheDeviceWhileTheEngineWrites) {
  const MeasuredRow &stays = row_of("verl-w2-kl"), &rests = row_of("verl-w2-off");
  const std::int64_t states = 12 * stays.model->parameters() / 2;
  EXPECT_NEAR(allocated_in(memory_of(stays, stays.strategy), Phase::rollout), states + kRoot, kSlack);
  EXPECT_NEAR(allocated_in(memory_of(rests, rests.strategy), Phase::rollout), kRoot, kSlack);
}

// The gradient of whole logits takes their place, unless entropy's own gradient of them stands beside it.
TEST(VerlRows, EntropyKeepsTheLogitsGradientApart) {
  const MeasuredRow& row = row_of("verl-w2-nogc");
  Strategy plain = row.strategy;
  set_option(plain, "micro_batch", "16");
  Strategy entropic = plain;
  entropic.post_training->workers.learns_entropy = true;
  const std::int64_t logits = 16LL * 512 * 32000 * 2;
  const RankMemory first = memory_of(row, plain), second = memory_of(row, entropic);
  EXPECT_GT(allocated_in(second, Phase::backward) - allocated_in(first, Phase::backward), logits - kSlack);
}

// The engine has its share of the whole device while it writes, and leaves a context and its graphs on it while it sleeps.
TEST(VerlRows, ASleepingEngineLeavesItsProcess) {
  const MeasuredRow& row = row_of("verl-w2");
  Strategy beside = row.strategy;
  set_options(beside, {{"rollout", "colocated"}, {"engine_share", "0.3"}, {"engine_sleeps", "true"}});
  const RankMemory memory = memory_of(row, beside);
  ASSERT_EQ(memory.phases.size(), 5U);
  const double share = 0.3 * static_cast<double>(memory.capacity.count);
  EXPECT_GE(static_cast<double>(memory.phases.front().engine.count), share);
  EXPECT_GT(memory.phases.back().engine.count, 0);
  EXPECT_LT(static_cast<double>(memory.phases.back().engine.count), 0.25 * share);
}

}  // namespace
}  // namespace plimsoll
