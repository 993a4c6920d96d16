// How layers follow one another, by the public configs of the models.
#include "search/layer_stack.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using searching::layer_stack;
using searching::with_layers;

/// first_k_dense_replace of DeepSeek and GLM, layer_types of gpt-oss (a window, none), sliding_window_pattern 6 of Gemma 3.
TEST(LayerStack, IsWhatTheConfigsSay) {
  struct Row {
    const char* model;
    std::int64_t prefix, period;
  };
  for (const Row& row : {Row{"llama-3.1-8b", 0, 1}, Row{"deepseek-v3", 3, 1}, Row{"glm-4.5-air", 1, 1}, Row{"gpt-oss-20b", 0, 2},
                         Row{"gemma-2-9b", 0, 2}, Row{"gemma-3-27b-text", 0, 6}, Row{"gpt-neo-1.3b", 0, 2}}) {
    const auto stack = layer_stack(load_model(row.model));
    ASSERT_TRUE(stack) << row.model;
    EXPECT_EQ(stack->prefix, row.prefix) << row.model;
    EXPECT_EQ(stack->period, row.period) << row.model;
  }
  EXPECT_FALSE(layer_stack(load_model("t5-small")));   // two stacks
  EXPECT_FALSE(layer_stack(load_model("resnet-50")));  // no layers of one name
}

/// The layers of a stack, put together again, are the model; two patterns more have the parameters of two patterns more.
TEST(LayerStack, PutTogetherAgainIsTheModel) {
  int patterned = 0;
  for (const std::string& name : shipped_models()) {
    const Model model = load_model(name);
    const auto stack = layer_stack(model);
    if (!stack) continue;
    ++patterned;
    const Model again = with_layers(model, *stack, model.layers);
    EXPECT_EQ(again.parameters(), model.parameters()) << name;
    EXPECT_EQ(again.blocks.size(), model.blocks.size()) << name;
    const std::int64_t whole = stack->prefix + stack->period;  // as many as the first of two equal patterns ends at
    const auto parameters = [&](std::int64_t patterns) {
      return with_layers(model, *stack, whole + patterns * stack->period).parameters();
    };
    EXPECT_EQ(parameters(2) - parameters(1), parameters(1) - parameters(0)) << name;
  }
  EXPECT_GT(patterned, 100);
}

/// Memory and time know nothing of how the blocks came together.
TEST(LayerStack, TheSameStepComesOut) {
  for (const char* name : {"gpt-oss-20b", "gemma-3-1b", "deepseek-v2-lite"}) {
    const Model model = load_model(name);
    const Cluster cluster = parse_cluster("8xh100-sxm");
    Strategy strategy;
    set_options(strategy, std::vector<std::pair<std::string, std::string>>{{"fsdp", "full"}, {"micro_batch", "1"}, {"seq", "1024"}});
    const Report whole = estimate(model, cluster, strategy),
                 again = estimate(with_layers(model, *layer_stack(model), model.layers), cluster, strategy);
    EXPECT_EQ(again.worst_rank().memory.reserved, whole.worst_rank().memory.reserved) << name;
    EXPECT_EQ(again.time.step_seconds.expected, whole.time.step_seconds.expected) << name;
  }
}

}  // namespace
}  // namespace plimsoll
