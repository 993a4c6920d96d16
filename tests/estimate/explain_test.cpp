#include "plimsoll/explain.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

LiveTensor tensor(Category category, std::int64_t bytes, const char* label) { return {category, Bytes(bytes), label, Bytes(bytes)}; }

// Layers 0, 1, 2 and 5 hold the same; the second tensor of layer 1 is larger; another category and another operator stay apart.
TEST(GroupAlive, LayersBecomeRanges) {
  const auto groups = group_alive({tensor(Category::activation, 10, "h.0.mlp: gelu"), tensor(Category::activation, 10, "h.1.mlp: gelu"),
                                   tensor(Category::activation, 30, "h.1.mlp: gelu"), tensor(Category::activation, 10, "h.2.mlp: gelu"),
                                   tensor(Category::activation, 10, "h.5.mlp: gelu"), tensor(Category::temporary, 5, "h.0.mlp: gelu"),
                                   tensor(Category::activation, 7, "h.0.mlp: linear")});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].module, "h.0-2,5.mlp");
  EXPECT_EQ(groups[0].operation, "gelu");
  EXPECT_EQ(groups[0].count, 5);
  EXPECT_EQ(groups[0].bytes, Bytes(70));
  EXPECT_EQ(groups[0].largest, Bytes(30));
  EXPECT_EQ(groups[1].operation, "linear");
  EXPECT_EQ(groups[2].category, Category::temporary);
}

// Only whole components of a path are numbers; experts within layers are numbers of their own.
TEST(GroupAlive, DigitsInNamesAreNoLayers) {
  const auto groups =
      group_alive({tensor(Category::parameter, 1, "layers.0.experts.3.w1"), tensor(Category::parameter, 1, "layers.1.experts.4.w1"),
                   tensor(Category::parameter, 1, "layers.0.experts.3.w2"), tensor(Category::parameter, 1, "123456789012345678901")});
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0].module, "layers.0-1.experts.3-4.w1");
  EXPECT_TRUE(group_alive({}).empty());
}

// GPT-2's products are computed a second time under full recompute, which the change to none spares: a quarter of the products' work at least
// leaves the step, and the activations that are kept take memory.
TEST(Explain, AFasterStepThatTakesMoreMemory) {
  Strategy strategy;
  set_options(strategy, {{"micro_batch", "8"}, {"seq_len", "1024"}, {"recompute", "full"}});
  const Explanation explanation = explain(load_model("gpt2"), parse_cluster("1xh100-sxm"), strategy);
  const auto none = std::find_if(explanation.faster.begin(), explanation.faster.end(),
                                 [](const Change& change) { return change.flag == "--recompute none"; });
  ASSERT_NE(none, explanation.faster.end());
  EXPECT_LT(*none->slowdown, 0.9);
  EXPECT_LT(none->saved, Bytes(0));
  for (const Change& change : explanation.changes) EXPECT_GT(change.saved, Bytes(0)) << change.flag;
  for (std::size_t i = 1; i < explanation.faster.size(); ++i) EXPECT_LE(*explanation.faster[i - 1].slowdown, *explanation.faster[i].slowdown);
}

TEST(Explain, NoSuchStage) {
  Strategy strategy;
  strategy.micro_batch = 1;
  strategy.seq_len = 128;
  const Model model = load_model("gpt2");
  const Cluster cluster = parse_cluster("1xh100-sxm");
  EXPECT_THROW(explain(model, cluster, strategy, 1), Error);
  EXPECT_THROW(playable_rank(model, cluster, strategy, -1), Error);
  EXPECT_EQ(explain(model, cluster, strategy).explained().stage, 0);
}

// DDP of BERT-large over two nodes after one micro-batch: 1.25 GiB of gradients, more than its backward pass hides. Four micro-batches reduce
// them once for four times the sequences.
TEST(Explain, SaysWhatTheStepWaitsFor) {
  const Model model = load_model("bert-large-uncased");
  const Cluster cluster = parse_cluster("2x8xa100-80gb-sxm");
  Strategy said;
  set_options(said, {{"data_parallel", "ddp"}, {"micro_batch", "1"}, {"seq_len", "512"}});
  const Explanation explanation = explain(model, cluster, said);
  ASSERT_FALSE(explanation.causes.empty());
  const std::string all = fmt::format("{}", fmt::join(explanation.causes, "\n"));
  EXPECT_NE(all.find("GiB of fp32 gradients are summed over 16 GPUs of 2 nodes after a single micro-batch"), std::string::npos) << all;
  ASSERT_FALSE(explanation.collectives.empty());
  const DearCollective& longest = explanation.collectives.front();
  EXPECT_EQ(longest.what, "all-reduce of fp32 gradients over 16 GPUs of 2 nodes");
  EXPECT_GT(longest.exposed.value, 0);
  EXPECT_LE(longest.exposed.value, longest.seconds.value);
  const auto accumulated = std::find_if(explanation.faster.begin(), explanation.faster.end(), [](const Change& each) { return each.flag == "--grad-accum 4"; });
  ASSERT_NE(accumulated, explanation.faster.end());
  EXPECT_TRUE(accumulated->larger_batch);
  EXPECT_LT(*accumulated->slowdown, 1);
  set_options(said, {{"data_parallel", "ddp"}, {"micro_batch", "1"}, {"seq_len", "512"}, {"global_batch", "16"}});
  for (const Change& change : explain(model, cluster, said).faster) EXPECT_FALSE(change.larger_batch) << change.flag << ": the batch was said";
}

}  // namespace
}  // namespace plimsoll
