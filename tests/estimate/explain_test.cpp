#include "plimsoll/explain.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace plimsoll
