// The tables of other calculators, derived by hand from their published rules.
#include <gtest/gtest.h>

#include "plimsoll/formula.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

TEST(Accelerate, BertBaseCasedToTheDigit) {
  // Hugging Face's "Model memory estimator" page for bert-base-cased, trained with Adam. BertModel with its pooler has 108,310,272
  // parameters; position_ids and token_type_ids are int64 [1, 512] each: 8,192 B.
  const AccelerateView view = accelerate_view(load_base_model("bert-base-cased"));
  EXPECT_EQ(view.parameters, 108'310'272);
  EXPECT_EQ(view.buffer_bytes, 2 * 512 * 8);
  ASSERT_EQ(view.rows.size(), 2u);
  const auto printed = [](const AccelerateRow& row) {
    return accelerate_bytes(static_cast<double>(row.model)) + " / " + accelerate_bytes(static_cast<double>(row.gradients)) + " / " +
           accelerate_bytes(static_cast<double>(row.backward)) + " / " + accelerate_bytes(static_cast<double>(row.step));
  };
  EXPECT_EQ(printed(view.rows[0]), "413.18 MB / 413.18 MB / 826.36 MB / 1.61 GB");
  EXPECT_EQ(printed(view.rows[1]), "413.18 MB / 619.77 MB / 826.36 MB / 826.36 MB");
}

TEST(Accelerate, Llama3WithTheRotaryCachesOfItsTime) {
  // 8,030,261,248 − head 128256·4096 = 7,504,924,672 parameters; every layer held cos and sin tables of 8192 × 128 in fp32:
  // 32·2·8192·128·4 B = 268,435,456 B. Published: 28.21 / 28.21 / 56.43 / 112.84 and 28.21 / 42.32 / 56.43 / 56.43 GB.
  const AccelerateView view = accelerate_view(load_base_model("llama-3-8b"));
  EXPECT_EQ(view.parameters, 7'504'924'672);
  EXPECT_EQ(view.buffer_bytes, 268'435'456);
  const auto gib = [](std::int64_t bytes) { return Bytes(bytes).gib(); };
  const double published[2][4] = {{28.21, 28.21, 56.43, 112.84}, {28.21, 42.32, 56.43, 56.43}};
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(gib(view.rows[i].model), published[i][0], 0.02);
    EXPECT_NEAR(gib(view.rows[i].gradients), published[i][1], 0.02);
    EXPECT_NEAR(gib(view.rows[i].backward), published[i][2], 0.02);
    EXPECT_NEAR(gib(view.rows[i].step), published[i][3], 0.02);
  }
}

TEST(DeepSpeedEstimator, T5ThreeBillionOnEightGpus) {
  // DeepSpeed's documentation prints this table for t5-3b, 8 GPUs on 1 node; largest layer: the embedding 32128 × 1024.
  const DeepSpeedView view = deepspeed_view(load_model("t5-3b"), 8, 1);
  EXPECT_EQ(view.largest_layer, 32'899'072);
  const double per_gpu[] = {0.12, 0.12, 0.79, 0.79, 6.10, 6.10};
  const double per_cpu[] = {71.71, 127.48, 63.74, 127.48, 1.47, 127.48};
  ASSERT_EQ(view.rows.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(Bytes(view.rows[i].per_gpu).gib(), per_gpu[i], 0.005) << i;
    EXPECT_NEAR(Bytes(view.rows[i].per_cpu).gib(), per_cpu[i], 0.005) << i;
    EXPECT_EQ(view.rows[i].zero_init, i % 2 == 0);
  }
}

TEST(DeepSpeedEstimator, HalfTheNodesHoldTwiceTheHostMemoryEach) {
  // With the optimizer offloaded and zero_init, a node's share of 18 B per parameter is 18·P/nodes·1.5.
  const Model model = load_model("t5-3b");
  const auto one = deepspeed_view(model, 8, 1), two = deepspeed_view(model, 8, 2);
  EXPECT_NEAR(static_cast<double>(one.rows[0].per_cpu), 2.0 * static_cast<double>(two.rows[0].per_cpu), 2);
}

}  // namespace
}  // namespace plimsoll
