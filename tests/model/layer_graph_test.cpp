// The layer graph: order, cycles, critical path, export; and the stage cuts.
#include "plimsoll/layer_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

Operator vertex(const char* name, double flops = 0) {
  Operator op;
  op.kind = OperatorKind::linear;
  op.name = name;
  op.flops_per_token = flops;
  op.output_per_token = {8};
  return op;
}

// a -> {left, right} -> join, three times, behind an embedding; a decoder reads the embedding and, from the side, the stack.
Model diamond() {
  Model model;
  model.name = "diamond";
  Block embedding;
  embedding.role = Block::Role::embedding;
  embedding.name = "embed";
  embedding.operators = {vertex("table")};
  embedding.edges = {{kBlockInput, 0}};
  Block stack;
  stack.role = Block::Role::encoder;
  stack.name = "layers";
  stack.numbered = true;
  stack.repeat = 3;
  stack.operators = {vertex("a"), vertex("left"), vertex("right"), vertex("join")};
  stack.edges = {{kBlockInput, 0}, {0, 1}, {0, 2}, {1, 3}, {2, 3}};
  Block cross;
  cross.role = Block::Role::decoder;
  cross.name = "decoder";
  cross.input = 0;
  cross.side_inputs = {1};
  cross.repeat = 2;
  cross.operators = {vertex("self"), vertex("cross")};
  cross.edges = {{kBlockInput, 0}, {0, 1}, {kSideInput, 1}};
  model.blocks = {embedding, stack, cross};
  return model;
}

std::vector<std::string> names(const LayerGraph& graph, const std::vector<int>& vertices) {
  std::vector<std::string> out;
  for (const int v : vertices) out.push_back(graph.vertices()[static_cast<std::size_t>(v)].name);
  return out;
}

TEST(LayerGraph, TopologicalOrderPutsEveryVertexBehindWhatItReads) {
  const LayerGraph graph(diamond());
  ASSERT_EQ(graph.topological_order().size(), 7u);
  std::vector<int> place(7);
  for (int i = 0; i < 7; ++i) place[static_cast<std::size_t>(graph.topological_order()[static_cast<std::size_t>(i)])] = i;
  int inner = 0;
  for (const auto& tensor : graph.tensors()) {
    if (tensor.from < 0) continue;
    ++inner;
    EXPECT_LT(place[static_cast<std::size_t>(tensor.from)], place[static_cast<std::size_t>(tensor.to)]);
  }
  EXPECT_EQ(inner, 8);  // table->a, 4 of the diamond, table->self, self->cross, join->cross
  EXPECT_EQ(graph.vertices()[1].name, "layers.0-2.a");
  EXPECT_EQ(graph.tensors()[1].shape, std::vector<std::int64_t>{8});
}

// Costs: table 1; a 1, left 5, right 2, join 1; self 10, cross 3. Encoder: 3 repeats of a + left + join = 21, so it ends at 22.
// Decoder: the first repeat starts with self at 1, ends at 11; cross waits for the encoder: max(11, 22) + 3 = 25; the second repeat adds
// self + cross = 13: 38 in all.
TEST(LayerGraph, CriticalPathRunsThroughRepeatsAndEntersFromTheSideOnce) {
  const LayerGraph graph(diamond());
  const auto path = graph.critical_path({1, 1, 5, 2, 1, 10, 3});
  EXPECT_DOUBLE_EQ(path.cost, 38);
  EXPECT_EQ(names(graph, path.vertices), (std::vector<std::string>{"embed.table", "decoder.self", "layers.0-2.a", "layers.0-2.left",
                                                                   "layers.0-2.join", "decoder.cross"}));
  EXPECT_THROW(graph.critical_path({1, 2}), Error);
  EXPECT_THROW(graph.critical_path({1, 1, 5, 2, 1, -10, 3}), Error);
}

// The same graph with repeats written out, paths found by exhaustive search over the expanded graph.
TEST(LayerGraph, CriticalPathEqualsThatOfTheExpandedGraph) {
  std::mt19937 random(7);
  const LayerGraph graph(diamond());
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> cost;
    for (int i = 0; i < 7; ++i) cost.push_back(static_cast<double>(random() % 20));
    double encoder = cost[0];
    for (int repeat = 0; repeat < 3; ++repeat) encoder += cost[1] + std::max(cost[2], cost[3]) + cost[4];
    double decoder = cost[0];
    for (int repeat = 0; repeat < 2; ++repeat) decoder = std::max(decoder + cost[5], encoder) + cost[6];
    EXPECT_DOUBLE_EQ(graph.critical_path(cost).cost, decoder);
  }
}

TEST(LayerGraph, ACycleIsNamed) {
  Model model = diamond();
  model.blocks[1].edges.push_back({3, 2});  // join -> right -> join
  try {
    const LayerGraph graph(model);
    FAIL() << "a cycle was taken";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("layers.0-2.right -> layers.0-2.join"), std::string::npos) << error.message();
  }
}

TEST(LayerGraph, EdgesThatJoinNothingAreRefused) {
  for (const Edge edge : {Edge{0, 9}, Edge{9, 0}, Edge{kSideInput, 0}, Edge{0, -1}}) {
    Model model = diamond();
    model.blocks[1].edges.push_back(edge);
    EXPECT_THROW(LayerGraph{model}, Error);
  }
  Model model = diamond();
  model.blocks[1].side_inputs = {2};  // a block behind it
  EXPECT_THROW(LayerGraph{model}, Error);
}

TEST(LayerGraph, RepeatsStayRepeats) {
  Model model = diamond();
  model.blocks[1].repeat = 1'000'000'000;
  const LayerGraph graph(model);
  EXPECT_EQ(graph.vertices().size(), 7u);
  EXPECT_DOUBLE_EQ(graph.critical_path({0, 1, 0, 0, 0, 0, 0}).cost, 1e9);
}

TEST(LayerGraph, ExportsDotAndJson) {
  Model model = diamond();
  model.blocks[1].name = "quo\"ted";
  const LayerGraph graph(model);
  const std::string dot = graph.to_dot();
  EXPECT_NE(dot.find("digraph \"diamond\""), std::string::npos);
  EXPECT_NE(dot.find("quo\\\"ted x 3"), std::string::npos);
  EXPECT_NE(dot.find("input -> v0"), std::string::npos);
  EXPECT_EQ(static_cast<std::size_t>(std::count(dot.begin(), dot.end(), '{')),
            static_cast<std::size_t>(std::count(dot.begin(), dot.end(), '}')));
  const auto json = nlohmann::json::parse(graph.to_json());
  EXPECT_EQ(json["schema"], "plimsoll/graph/1");
  EXPECT_EQ(json["blocks"][1]["repeat"], 3);
  EXPECT_EQ(json["tensors"].size(), graph.tensors().size());
}

// ---- even cuts -----------------------------------------------------------------------------------------------------

TEST(EvenStageCut, MegatronDividesOrRefuses) {
  EXPECT_EQ(even_stage_cut(32, 4), (std::vector<std::int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(even_stage_cut(7, 1), (std::vector<std::int64_t>{7}));
  // 126 layers + embedding + loss = 128 over 8 stages: 16 each, one less on the first and the last (Llama-3.1-405B).
  EXPECT_EQ(even_stage_cut(126, 8, {.first_stage_less = 1, .last_stage_less = 1}),
            (std::vector<std::int64_t>{15, 16, 16, 16, 16, 16, 16, 15}));
  EXPECT_THROW(even_stage_cut(126, 8), Error);
  EXPECT_THROW(even_stage_cut(3, 4), Error);
  EXPECT_THROW(even_stage_cut(3, 0), Error);
}

// torchtitan, 32 layers with first and last less 1: 34 effective layers over 4 stages are 8, remainder 2 to the first two: 9, 9, 8, 8; less
// one at both ends.
TEST(EvenStageCut, TorchtitanGivesTheRemainderToTheFirst) {
  EXPECT_EQ(even_stage_cut(32, 4, {.first_stage_less = 1, .last_stage_less = 1, .remainder_first = true}),
            (std::vector<std::int64_t>{8, 9, 8, 7}));
}

// ---- balanced cuts -------------------------------------------------------------------------------------------------

// The definition: the best of all contiguous cuts, by dynamic programming over single layers.
double best_by_dynamic_programming(const std::vector<double>& costs, std::size_t stages, double first, double last) {
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(costs.size() + 1, never));
  best[0][0] = 0;
  for (std::size_t stage = 1; stage <= stages; ++stage)
    for (std::size_t end = stage; end <= costs.size(); ++end)
      for (std::size_t begin = stage - 1; begin < end; ++begin) {
        double cost =
            std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(begin), costs.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
        if (stage == 1) cost += first;
        if (stage == stages) cost += last;
        best[stage][end] = std::min(best[stage][end], std::max(best[stage - 1][begin], cost));
      }
  return best[stages][costs.size()];
}

TEST(BalancedStageCut, EqualsDynamicProgramming) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<LayerRun> chain;
    std::vector<double> costs;
    for (std::size_t run = 0; run < 1 + random() % 4; ++run) {
      const LayerRun next{static_cast<std::int64_t>(1 + random() % 6), static_cast<double>(random() % 1000) / 7};
      chain.push_back(next);
      costs.insert(costs.end(), static_cast<std::size_t>(next.count), next.cost);
    }
    const auto stages = 1 + static_cast<std::int64_t>(random() % costs.size());
    const double first = static_cast<double>(random() % 300), last = static_cast<double>(random() % 300);
    const StageCut cut = balanced_stage_cut(chain, stages, first, last);
    ASSERT_EQ(static_cast<std::int64_t>(cut.layers.size()), stages);
    EXPECT_EQ(std::accumulate(cut.layers.begin(), cut.layers.end(), std::int64_t{0}), static_cast<std::int64_t>(costs.size()));
    EXPECT_GE(*std::min_element(cut.layers.begin(), cut.layers.end()), 1);
    const double best = best_by_dynamic_programming(costs, static_cast<std::size_t>(stages), first, last);
    EXPECT_NEAR(cut.largest, best, 1e-9 * (1 + best));
  }
}

// 32 equal layers of cost 1 with a head worth 5 on the last of 4 stages: 37 / 4 = 9.25, so 10 is the least possible, and the cut reaches it
// (9 + 9 + 9 = 27 layers would leave 5 + 5 = 10 on the last).
TEST(BalancedStageCut, AHeavyHeadTakesLayersFromItsStage) {
  const StageCut cut = balanced_stage_cut({{32, 1.0}}, 4, 0, 5);
  EXPECT_DOUBLE_EQ(cut.largest, 10);
  EXPECT_LE(cut.layers.back(), 5);
}

TEST(BalancedStageCut, HugeRunsCostNoTime) {
  const StageCut cut = balanced_stage_cut({{1'000'000'000'000, 1.0}}, 1000);
  EXPECT_DOUBLE_EQ(cut.largest, 1e9);
}

TEST(BalancedStageCut, RefusesNonsense) {
  EXPECT_THROW(balanced_stage_cut({{3, 1.0}}, 4), Error);
  EXPECT_THROW(balanced_stage_cut({{3, -1.0}}, 2), Error);
  EXPECT_THROW(balanced_stage_cut({{3, std::numeric_limits<double>::quiet_NaN()}}, 2), Error);
  EXPECT_THROW(balanced_stage_cut({{3, 1.0}}, 2, -1), Error);
  EXPECT_EQ(balanced_stage_cut({{4, 0.0}}, 2).largest, 0);
}

}  // namespace
}  // namespace plimsoll
