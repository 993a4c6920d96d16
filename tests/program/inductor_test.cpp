// torch.compile by the compiler's rules (torch/_functorch/partitioners.py, torch/_inductor/{graph,scheduler}.py of PyTorch 2.15).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "devices.hpp"
#include "program/checkpoint.hpp"
#include "program/inductor/frame.hpp"
#include "program/inductor/fuse.hpp"
#include "program/inductor/graph.hpp"
#include "program/inductor/lower.hpp"
#include "program/inductor/pad_products.hpp"
#include "program/inductor/partition.hpp"
#include "program/inductor/trace.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program::inductor {
namespace {

/// A graph told node by node, row-major.
class Graphs : public ::testing::Test {
 protected:
  int add(Aten op, std::vector<int> args, const Dims& sizes, DType type = DType::fp32) {
    FxNode node{.op = op, .args = std::move(args), .sizes = sizes, .strides = contiguous_strides(sizes), .type = type};
    node.name = (op == Aten::placeholder ? "primals_" : "node_") + std::to_string(graph.size());
    graph.nodes.push_back(std::move(node));
    return graph.size() - 1;
  }
  int input(const Dims& sizes) { return add(Aten::placeholder, {}, sizes); }
  int permuted(int x) {
    const FxNode& of = graph.at(x);
    FxNode node{.op = Aten::permute,
                .args = {x},
                .sizes = {of.sizes[1], of.sizes[0]},
                .strides = {of.strides[1], of.strides[0]},
                .type = of.type,
                .dims = {1, 0},
                .name = "node_" + std::to_string(graph.size())};
    graph.nodes.push_back(std::move(node));
    return graph.size() - 1;
  }
  int summed(int x, int dimension) {
    Dims sizes;
    for (int i = 0; i < graph.at(x).sizes.rank(); ++i)
      if (i != dimension) sizes.push_back(graph.at(x).sizes[i]);
    const int sum = add(Aten::sum, {x}, sizes);
    graph.at(sum).dims = {dimension};
    return sum;
  }
  std::vector<int> saved(std::vector<int> inputs, int tangent, std::vector<int> outputs) {
    graph.outputs = std::move(outputs);
    return saved_values({graph, std::move(inputs), {tangent}});
  }
  LoweredGraph lowered(std::vector<int> outputs) {
    graph.outputs = std::move(outputs);
    return lower(graph, tape);
  }
  static std::size_t count(const LoweredGraph& lowered, LoweredOperation::Kind kind) {
    return static_cast<std::size_t>(
        std::count_if(lowered.operations.begin(), lowered.operations.end(), [&](const LoweredOperation& o) { return o.kind == kind; }));
  }

  Tape tape{h100()};
  FxGraph graph;
  const Dims square{64, 64};
};

// ---- trace --------------------------------------------------------------------------------------------------------------

/// Operators that run on a tape, as a graph of both directions.
class Traces : public ::testing::Test {
 protected:
  Tensor input(const Dims& sizes) { return tape.parameter(sizes, DType::bf16, true); }
  /// What of the joint graph's nodes, in their order, is one of `wanted`.
  static std::vector<Aten> only(const JointGraph& joint, std::initializer_list<Aten> wanted) {
    std::vector<Aten> found;
    for (const FxNode& node : joint.graph.nodes)
      if (std::find(wanted.begin(), wanted.end(), node.op) != wanted.end()) found.push_back(node.op);
    return found;
  }
  JointGraph joint(const std::function<Tensor()>& forward) {
    Trace trace(tape, {});
    return trace.joint({forward()});
  }

  Tape tape{h100()};
};

// torch/_refs, stack: in a dimension that the parts have it is a view of their concatenation, behind the last one of unsqueezed parts. Its
// gradient is unbound, an element for each part.
TEST_F(Traces, AStackIsAConcatenation) {
  const Tensor a = input({4, 8}), b = input({4, 8});
  const auto ops = {Aten::cat, Aten::view, Aten::unsqueeze, Aten::select};
  EXPECT_EQ(only(joint([&] { return stack({a, b}, 1); }), ops), (std::vector<Aten>{Aten::cat, Aten::view, Aten::select, Aten::select}));
  EXPECT_EQ(only(joint([&] { return stack({a, b}, 2); }), ops),
            (std::vector<Aten>{Aten::unsqueeze, Aten::unsqueeze, Aten::cat, Aten::select, Aten::select}));
}

// select_backward: the gradient is put among zeros, where the element was.
TEST_F(Traces, AnElementsGradientLiesAmongZeros) {
  const Tensor x = input({4, 3, 8});
  const JointGraph both = joint([&] { return select(x, 1, 2); });
  const auto placed =
      std::find_if(both.graph.nodes.begin(), both.graph.nodes.end(), [](const FxNode& n) { return n.op == Aten::select_scatter; });
  ASSERT_NE(placed, both.graph.nodes.end());
  EXPECT_EQ(placed->dimension, 1);
  EXPECT_EQ(placed->number, 2);
  EXPECT_EQ(placed->sizes, (Dims{4, 3, 8}));
}

// x · rsqrt(mean(x²) + epsilon), twice: what the mean divides by is its row of 8, and the number that is added is one of both.
TEST_F(Traces, NormsOfAModuleHaveOneEpsilon) {
  const Tensor x = input({4, 8});
  const auto norm = [](const Tensor& in) { return multiply(in, rsqrt(add_scalar(mean(power(in), -1, true)))); };
  std::vector<double> divisors, epsilons;
  for (const FxNode& node : joint([&] { return norm(norm(x)); }).graph.nodes) {
    if (node.op == Aten::mean) divisors.push_back(node.constant.value());
    if (node.op == Aten::add_number) epsilons.push_back(node.constant.value());
  }
  EXPECT_EQ(divisors, (std::vector<double>{8, 8}));
  ASSERT_EQ(epsilons.size(), 2U);
  EXPECT_EQ(epsilons[0], epsilons[1]);
}

// A checkpoint is part of the graph: what runs in it is computed again, what runs behind it is not said.
TEST_F(Traces, ACheckpointMarksWhatRunsInIt) {
  const Tensor x = input({8, 8});
  const JointGraph both = joint([&] { return sigmoid(checkpoint(tape, [](const std::vector<Tensor>& in) { return tanh(in[0]); }, {x})); });
  for (const FxNode& node : both.graph.nodes) {
    if (node.op == Aten::tanh && !node.backward) EXPECT_EQ(node.recompute, Recompute::prefer_recompute);
    if (node.op == Aten::sigmoid && !node.backward) EXPECT_EQ(node.recompute, Recompute::unsaid);
  }
}

// cleanup_recompute_tags: what the first of two checkpoints gives to the second is kept, what the second gives to nobody's is not.
TEST_F(Traces, WhatACheckpointGivesToTheNextIsKept) {
  const Tensor x = input({8, 8});
  TracedFrame frame(tape, {}, {});
  const auto region = [](const std::vector<Tensor>& in) { return tanh(in[0]); };
  const std::vector<FrameGraph> graphs = frame.graphs({sigmoid(checkpoint(tape, region, {checkpoint(tape, region, {x})}))});
  std::vector<Recompute> said;
  for (const FxNode& node : graphs.front().joint.graph.nodes)
    if (node.op == Aten::tanh && !node.backward) said.push_back(node.recompute);
  EXPECT_EQ(said, (std::vector<Recompute>{Recompute::must_save, Recompute::prefer_recompute}));
}

// Where the code breaks, what the next graph reads is a result of this one, and what its variables hold besides.
TEST_F(Traces, AGraphThatBreaksGivesWhatIsReadAndHeld) {
  const Tensor x = input({8, 8});
  TracedFrame frame(tape, {}, {});
  const Tensor held = tanh(x), read = silu(held);
  tape.trace->breaks({held});
  const Tensor result = sigmoid(read);
  const std::vector<FrameGraph> graphs = frame.graphs({result});
  ASSERT_EQ(graphs.size(), 2U);
  ASSERT_EQ(graphs[0].results.size(), 2U);
  EXPECT_EQ(graphs[0].results[0].impl(), read.impl());
  EXPECT_EQ(graphs[0].results[1].impl(), held.impl());
  ASSERT_EQ(graphs[1].inputs.size(), 1U);
  EXPECT_EQ(graphs[1].inputs[0].impl(), read.impl());
}

// A checkpoint's policy is asked in the graph behind a break as in the one before.
TEST_F(Traces, AGraphBehindABreakKeepsWhatItsPolicySays) {
  struct Products final : SelectivePolicy {
    bool keeps(const char*) override { return true; }
  };
  const Tensor x = input({8, 8}), first = input({8, 8}), second = input({8, 8});
  TracedFrame frame(tape, {first, second}, {.on = true, .policy = std::make_shared<Products>()});
  const Tensor between = linear(x, first, {});
  tape.trace->breaks({});
  const std::vector<FrameGraph> graphs = frame.graphs({linear(between, second, {})});
  ASSERT_EQ(graphs.size(), 2U);
  for (const FrameGraph& each : graphs) {
    const std::vector<FxNode>& nodes = each.joint.graph.nodes;
    const auto product = std::find_if(nodes.begin(), nodes.end(), [](const FxNode& node) { return node.op == Aten::product; });
    ASSERT_NE(product, nodes.end());
    EXPECT_EQ(product->recompute, Recompute::must_save);
  }
}

// DDPOptimizer cuts between operators, autocast's casts of an operator's arguments being part of it: the second of two products begins a
// graph, and is given what the first made as it was before the cast.
TEST_F(Traces, AFrameIsCutInFrontOfAnOperatorAndItsCasts) {
  const Tensor x = tape.parameter({8, 8}, DType::fp32, false), first = tape.parameter({8, 8}, DType::fp32, true),
               second = tape.parameter({8, 8}, DType::fp32, true);
  const std::vector<Tensor> weights{first, second};
  const auto forward = [&] { return linear(to(linear(x, first, {}), DType::fp32), second, {}); };
  std::vector<std::vector<Tensor>> uses;
  {
    const AutocastScope autocast(tape, true, DType::bf16);
    ParameterUses counted(tape, weights);
    (void)forward();
    uses = counted.uses();
  }
  ASSERT_EQ(uses.size(), 3U);  // product, cast of the code's own, product
  EXPECT_TRUE(uses[1].empty());
  const AutocastScope autocast(tape, true, DType::bf16);
  TracedFrame frame(tape, weights, {}, {2});
  const std::vector<FrameGraph> graphs = frame.graphs({forward()});
  ASSERT_EQ(graphs.size(), 2U);
  ASSERT_EQ(graphs[0].results.size(), 1U);
  EXPECT_EQ(graphs[0].results[0].dtype(), DType::fp32);
  EXPECT_EQ(graphs[1].inputs.size(), 2U);
}

// ---- partition ----------------------------------------------------------------------------------------------------------

// y = sigmoid(x) + 1; the gradient reads sigmoid(x). Both are 16 KiB: the input, two steps from the gradient, weighs 1.1², the sigmoid, one
// step from it and fused into what reads it, 2 · 1.1. The input is saved and the sigmoid computed again.
TEST_F(Graphs, ComputeAgainWhatFuses) {
  const int x = input(square), y = add(Aten::sigmoid, {x}, square), result = add(Aten::add_number, {y}, square), tangent = input(square);
  const int gradient = add(Aten::multiply, {tangent, y}, square);
  EXPECT_EQ(saved({x}, tangent, {result, gradient}), std::vector<int>{x});
}

// The same where the sigmoid is the result itself: returning it fuses with nothing, so that it is written anyway, weighs 1.1 once and is
// not computed again.
TEST_F(Graphs, SaveWhatIsReturned) {
  const int x = input(square), y = add(Aten::sigmoid, {x}, square), tangent = input(square);
  const int gradient = add(Aten::multiply, {tangent, y}, square);
  EXPECT_EQ(saved({x}, tangent, {y, gradient}), std::vector<int>{y});
}

// y = exp(x) · w; the gradient of w is exp(x)ᵀ · tangent: a product reads it backward, so that it would be written there again. What is
// saved of it is the view that the product reads, the nearest to the gradient.
TEST_F(Graphs, SaveWhatProductsReadBackward) {
  const int x = input(square), w = input(square), e = add(Aten::exp, {x}, square), y = add(Aten::product, {e, w}, square);
  const int tangent = input(square), turned = permuted(e), gradient = add(Aten::product, {turned, tangent}, square);
  EXPECT_EQ(saved({x, w}, tangent, {y, -1, gradient}), std::vector<int>{turned});
}

// A sum over 64 columns is 64 times smaller than what it sums: it is saved although the gradient reads its input too.
TEST_F(Graphs, SaveSumsThatShrinkTheirInput) {
  const int x = input(square), s = add(Aten::sum, {x}, {64, 1});
  graph.at(s).dims = {1};
  const int y = add(Aten::multiply, {x, s}, square), tangent = input(square);
  const int gradient = add(Aten::multiply, {add(Aten::multiply, {tangent, x}, square), s}, square);
  EXPECT_EQ(saved({x}, tangent, {y, gradient}), (std::vector<int>{x, s}));
}

// In a checkpointed region everything comes again from the inputs, but for what its policy keeps.
TEST_F(Graphs, FollowCheckpoints) {
  const int x = input(square), w = input(square), a = add(Aten::product, {x, w}, square), e = add(Aten::exp, {a}, square);
  const int tangent = input(square), gradient = add(Aten::multiply, {tangent, e}, square);
  for (const int node : {a, e}) graph.at(node).recompute = Recompute::prefer_recompute;
  EXPECT_EQ(saved({x, w}, tangent, {e, gradient, -1}), (std::vector<int>{x, w}));
  graph.at(a).recompute = Recompute::must_save;
  EXPECT_EQ(saved({x, w}, tangent, {e, gradient, -1}), std::vector<int>{a});
}

// What the ranks have exchanged is never exchanged again without a checkpoint that says so.
TEST_F(Graphs, SaveWhatWasExchanged) {
  const int x = input(square), gathered = add(Aten::all_gather, {x}, {128, 64}), here = add(Aten::wait, {gathered}, {128, 64});
  const int y = add(Aten::exp, {here}, {128, 64}), result = add(Aten::add_number, {y}, {128, 64}), tangent = input({128, 64});
  const int gradient = add(Aten::multiply, {tangent, y}, {128, 64});
  EXPECT_EQ(saved({x}, tangent, {result, gradient}), std::vector<int>{here});
}

// The backward begins with what reads the tangent; what is computed again stands just before its first reader.
TEST_F(Graphs, PutRecomputationsBeforeTheirReaders) {
  const int x = input(square), w = input(square), a = add(Aten::exp, {x}, square), b = add(Aten::exp, {a}, square), tangent = input(square);
  const int first = add(Aten::product, {tangent, w}, square), second = add(Aten::multiply, {first, b}, square);
  for (const int node : {a, b}) graph.at(node).recompute = Recompute::prefer_recompute;
  graph.outputs = {b, second, -1};
  const FxGraph backward = partition({graph, {x, w}, {tangent}}).backward;
  std::vector<Aten> order;
  for (const FxNode& node : backward.nodes) order.push_back(node.op);
  EXPECT_EQ(order, (std::vector<Aten>{Aten::placeholder, Aten::placeholder, Aten::placeholder, Aten::product, Aten::exp, Aten::exp,
                                      Aten::multiply}));
}

// ---- realize ------------------------------------------------------------------------------------------------------------

// post_grad.py: a product that only a sum reads is one kernel with it, of the other summand as its bias.
TEST_F(Graphs, ASumIsPartOfItsProduct) {
  const int a = input(square), b = input(square), c = input(square);
  const int sum = add(Aten::add, {c, add(Aten::product, {a, b}, square)}, square), tangent = input(square);
  graph.outputs = {sum, -1, -1, add(Aten::negate, {tangent}, square)};
  const FxGraph forward = partition({graph, {a, b, c}, {tangent}}).forward;
  EXPECT_EQ(forward.nodes.back().op, Aten::addmm);
  EXPECT_EQ(forward.nodes.back().args, (std::vector<int>{2, 0, 1}));
}

// post_grad.py, unfuse_bias_add_to_pointwise: a bias that is a row is added by an element-wise operator that reads the product, but of 16 bits
// (keep_addmm_fused_for_half_dtypes) and where the product is a result or another product reads it.
TEST_F(Graphs, ABiasIsAddedByWhoReadsItsProduct) {
  const auto last = [this](DType type, Aten reader) {
    graph = {};
    const auto of = [&](Aten op, std::vector<int> args, const Dims& sizes) { return add(op, std::move(args), sizes, type); };
    const int a = of(Aten::placeholder, {}, square), b = of(Aten::placeholder, {}, square), bias = of(Aten::placeholder, {}, {64});
    const int product = of(Aten::addmm, {bias, a, b}, square), view = of(Aten::view, {product}, {64, 64});
    const int result = reader == Aten::product ? of(reader, {view, a}, square) : of(reader, {view}, square);
    const int tangent = of(Aten::placeholder, {}, square);
    graph.outputs = {result, -1, -1, -1, of(Aten::negate, {tangent}, square)};
    const FxGraph forward = partition({graph, {a, b, bias}, {tangent}}).forward;
    std::vector<Aten> ops;
    for (const FxNode& node : forward.nodes)
      if (node.op == Aten::addmm || node.op == Aten::product || node.op == Aten::add) ops.push_back(node.op);
    return ops;
  };
  EXPECT_EQ(last(DType::fp32, Aten::tanh), (std::vector<Aten>{Aten::product, Aten::add}));
  EXPECT_EQ(last(DType::bf16, Aten::tanh), std::vector<Aten>{Aten::addmm});
  EXPECT_EQ(last(DType::fp32, Aten::product), (std::vector<Aten>{Aten::addmm, Aten::product}));
}

// prims.prepare_softmax_online: a kernel that finds rows' maxima sums their exponentials on its way, so that the sum reads the rows alone.
TEST_F(Graphs, ASumOfExponentialsReadsNoMaximum) {
  const int x = input({64, 64}), most = add(Aten::amax, {x}, {64, 1});
  graph.at(most).dims = {1};
  const int sum = add(Aten::sum, {add(Aten::exp, {add(Aten::subtract, {x, most}, square)}, square)}, {64, 1});
  graph.at(sum).dims = {1};
  const LoweredGraph made = lowered({sum, most});
  ASSERT_EQ(made.operations.size(), 2U);
  ASSERT_EQ(made.operations[1].loads.size(), 1U);
  EXPECT_EQ(made.operations[1].loads[0].buffer, 0);
}

// index_put of rows into zeros: a kernel of the zeros, and one over the 4 · 64 added elements that writes into their buffer.
TEST_F(Graphs, RowsAreAddedIntoTheirZeros) {
  const int ids = add(Aten::placeholder, {}, {4}, DType::int64), values = input({4, 64});
  const int mask = add(Aten::unsqueeze, {add(Aten::greater_equal_number, {ids}, {4}, DType::boolean)}, {4, 1}, DType::boolean);
  const int none = add(Aten::full, {}, {100, 64}), sum = add(Aten::index_put, {none, mask, ids, values}, {100, 64});
  const LoweredGraph made = lowered({sum});
  ASSERT_EQ(made.operations.size(), 2U);
  EXPECT_EQ(made.operations[1].changes, made.operations[0].outputs.front());
  EXPECT_EQ(made.operations[1].kept, (std::vector<std::int64_t>{4, 64}));
  EXPECT_EQ(fuse(made).size(), 0U);
}

// A value with two readers is computed by each of them while it has up to four loads, and is a buffer with five.
TEST_F(Graphs, RealizeWhatIsReusedFromFiveLoadsOn) {
  for (const int loads : {4, 5}) {
    graph = {};
    int sum = input(square);
    for (int i = 1; i < loads; ++i) sum = add(Aten::add, {sum, input(square)}, square);
    const int a = add(Aten::exp, {sum}, square), b = add(Aten::negate, {sum}, square);
    EXPECT_EQ(count(lowered({a, b}), LoweredOperation::Kind::pointwise), loads == 4 ? 2U : 3U);
  }
}

// With nine loads a value is a buffer for one reader too.
TEST_F(Graphs, RealizeNineLoads) {
  for (const int loads : {8, 9}) {
    graph = {};
    int sum = input(square);
    for (int i = 1; i < loads; ++i) sum = add(Aten::add, {sum, input(square)}, square);
    EXPECT_EQ(count(lowered({add(Aten::exp, {sum}, square)}), LoweredOperation::Kind::pointwise), loads == 8 ? 1U : 2U);
  }
}

// What a product reads is a buffer; a transposed one is the same buffer seen otherwise.
TEST_F(Graphs, RealizeWhatProductsRead) {
  const int e = add(Aten::exp, {input(square)}, square), turned = permuted(e);
  const int y = add(Aten::product, {e, input(square)}, square), z = add(Aten::product, {turned, input(square)}, square);
  const LoweredGraph graph_of_three = lowered({y, z});
  // A view of an expression is copied for its product; the other product reads the expression's own buffer, made before.
  EXPECT_EQ(count(graph_of_three, LoweredOperation::Kind::pointwise), 1U);
  EXPECT_EQ(graph_of_three.operations.back().turned, Turned::left);
}

// A sum over rows is taken in two steps on H100 (132 processors of 2,048 threads): 4,096 rows of 4,096 columns are more than 32 elements a
// thread of the device and less than 512, so that its 132 · 2,048 / 256 = 1,056 blocks are dealt to 4,096 / 128 = 32 blocks of columns,
// 33 to each; ceil(4,096 / (4 · 33)) = 32 rows a thread, and ceil(4,096 / (4 · 32)) = 32 parts (choices.py). They lie column by column.
TEST_F(Graphs, SumRowsInParts) {
  const LoweredGraph sums = lowered({summed(input({4096, 4096}), 0)});
  ASSERT_EQ(sums.operations.size(), 2U);
  EXPECT_EQ(sums.operations[0].kept, (std::vector<std::int64_t>{32, 4096}));
  EXPECT_EQ(sums.operations[0].places, (std::vector<std::int64_t>{4096, 1}));
  EXPECT_EQ(sums.operations[0].summed, std::vector<std::int64_t>{128});
  EXPECT_EQ(sums.operations[1].summed, std::vector<std::int64_t>{32});
}

// Thirty-one operations, two loads among them, are too many to be computed again: what is made so far becomes a buffer.
TEST_F(Graphs, RealizeThirtyOneOperations) {
  for (const int exponentials : {27, 28}) {
    graph = {};
    int value = add(Aten::add, {input(square), input(square)}, square);
    for (int i = 0; i < exponentials; ++i) value = add(Aten::exp, {value}, square);
    EXPECT_EQ(count(lowered({add(Aten::negate, {value}, square)}), LoweredOperation::Kind::pointwise), exponentials == 27 ? 1U : 2U);
  }
}

// What a product and others read is a buffer of its own strides where it stands (need_fixed_layout): the transposed exponential, of steps
// {1, 64}, before the product's other factor. What the product alone reads is made by it, its left factor first.
TEST_F(Graphs, RealizeWhatProductsAndOthersReadWhereItStands) {
  for (const bool shared : {true, false}) {
    graph = {};
    const int w = input(square), x = input(square), turned = permuted(add(Aten::exp, {w}, square)), a = add(Aten::exp, {x}, square);
    const int y = add(Aten::product, {a, turned}, square);
    const LoweredGraph made = lowered(shared ? std::vector<int>{y, add(Aten::negate, {turned}, square)} : std::vector<int>{y});
    EXPECT_EQ(made.operations[0].loads[0].buffer, shared ? 0 : 1);
    const LoweredBuffer& first = made.buffers[static_cast<std::size_t>(made.operations[0].outputs.front())];
    EXPECT_EQ(first.strides, shared ? (std::vector<std::int64_t>{1, 64}) : (std::vector<std::int64_t>{64, 1}));
  }
}

// Two loads, their sum and 26 products with one number are 2 + 1 + 26 + 1 = 30 operations; with 26 numbers they are 55.
TEST_F(Graphs, CountAConstantOnce) {
  for (const bool same : {true, false}) {
    graph = {};
    int value = add(Aten::add, {input(square), input(square)}, square);
    for (int i = 0; i < 26; ++i) {
      value = add(Aten::multiply_number, {value}, square);
      graph.at(value).constant = same ? 0.5 : 0.5 + i;
    }
    const std::size_t kernels = count(lowered({add(Aten::negate, {value}, square)}), LoweredOperation::Kind::pointwise);
    EXPECT_EQ(kernels == 1U, same);
  }
}

// A 16-bit number that is taken to fp32 for two operations is so once: two loads, a conversion, a product, a sum and 25 exponentials are 30
// operations, with one more they are a kernel apart.
TEST_F(Graphs, CountAConversionOnce) {
  for (const int exponentials : {25, 26}) {
    graph = {};
    const int x = add(Aten::placeholder, {}, square, DType::bf16), wide = add(Aten::convert, {x}, square);
    int value = add(Aten::add, {input(square), add(Aten::multiply, {x, wide}, square)}, square);
    for (int i = 0; i < exponentials; ++i) value = add(Aten::exp, {value}, square);
    EXPECT_EQ(count(lowered({add(Aten::negate, {value}, square)}), LoweredOperation::Kind::pointwise), exponentials == 25 ? 1U : 2U);
  }
}

// A sum of seven elements is written out in its reader's loops, one of eight is a kernel that sums (config.unroll_reductions_threshold).
TEST_F(Graphs, WriteOutShortSums) {
  for (const std::int64_t elements : {7, 8}) {
    graph = {};
    const LoweredGraph sums = lowered({add(Aten::exp, {summed(input({64, elements, 64}), 1)}, square)});
    EXPECT_EQ(count(sums, LoweredOperation::Kind::reduction), elements == 7 ? 0U : 1U);
    EXPECT_EQ(sums.operations.front().loads.size(), elements == 7 ? 7U : 1U);
  }
}

// A concatenation is computed element by element for an element-wise reader. For a product its parts, where they are made of sums, are
// written into their places.
TEST_F(Graphs, WritePartsOfConcatenationsIntoTheirPlaces) {
  for (const bool read_by_product : {false, true}) {
    graph = {};
    const int x = input(square), s = add(Aten::sum, {x}, {64, 1});
    graph.at(s).dims = {1};
    const int a = add(Aten::multiply, {x, s}, square), b = add(Aten::negate, {input(square)}, square),
              whole = add(Aten::cat, {a, b}, {64, 128});
    graph.at(whole).dimension = 1;
    const int y = read_by_product ? add(Aten::product, {whole, input({128, 64})}, square) : add(Aten::exp, {whole}, {64, 128});
    const LoweredGraph concatenated = lowered({y});
    EXPECT_EQ(count(concatenated, LoweredOperation::Kind::concatenation), read_by_product ? 1U : 0U);
    EXPECT_EQ(count(concatenated, LoweredOperation::Kind::pointwise), read_by_product ? 2U : 1U);
    if (!read_by_product) continue;
    const LoweredOperation& part = concatenated.operations[1];
    EXPECT_EQ(part.places, (std::vector<std::int64_t>{128, 1}));
    EXPECT_EQ(concatenated.buffers[static_cast<std::size_t>(part.outputs.front())].whole, concatenated.operations[3].outputs.front());
  }
}

// ---- fuse ---------------------------------------------------------------------------------------------------------------

// A sum over columns, what is made of it for every row, and what that is multiplied with are one kernel.
TEST_F(Graphs, FuseASumWithWhatReadsItsRows) {
  const int x = input(square), s = add(Aten::sum, {x}, {64, 1});
  graph.at(s).dims = {1};
  const int scale = add(Aten::rsqrt, {s}, {64, 1}), y = add(Aten::multiply, {x, scale}, square);
  const std::vector<FusedKernel> kernels = fuse(lowered({y, scale}));
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].operations.size(), 3U);
}

// Two that read the same tensor are one kernel where they read the same places, and two where a product stands between them.
TEST_F(Graphs, FuseReadersOfTheSamePlaces) {
  const int x = input(square), a = add(Aten::exp, {x}, square), b = add(Aten::negate, {x}, square);
  EXPECT_EQ(fuse(lowered({a, b})).size(), 1U);
  const int behind = add(Aten::add, {x, add(Aten::product, {a, a}, square)}, square);
  const std::vector<FusedKernel> kernels = fuse(lowered({a, behind}));
  EXPECT_TRUE(kernels.empty());
}

// What is made for every row is one kernel with those who read it for each element of the row, however many dimensions the row has: 64
// sums, which 64 x 8 x 8 elements read, share 256 bytes.
TEST_F(Graphs, FuseReadersOfARowOfSeveralDimensions) {
  const int s = add(Aten::sum, {input(square)}, {64, 1});
  graph.at(s).dims = {1};
  const int y = add(Aten::multiply, {input({64, 8, 8}), add(Aten::view, {s}, {64, 1, 1})}, {64, 8, 8});
  EXPECT_EQ(fuse(lowered({y})).size(), 1U);
}

// A copy of all elements in another order goes through them as their maker does, and is one kernel with it
// (shared_data_after_inverting_indexing); of a part of them it is not.
TEST_F(Graphs, FuseCopiesInAnotherOrder) {
  for (const bool whole : {true, false}) {
    graph = {};
    const int made = add(Aten::exp, {input({4, 8, 16, 32})}, {4, 8, 16, 32});
    const int turned = add(Aten::permute, {made}, {4, 16, 8, 32});
    graph.at(turned).dims = {0, 2, 1, 3};
    graph.at(turned).strides = {4096, 32, 512, 1};
    const int copy = add(Aten::clone, {turned}, {4, 16, 8, 32}), rows = add(Aten::view, {copy}, {64, 256});
    const int part = add(Aten::slice, {rows}, {64, 128});
    graph.at(part).dimension = 1;
    const int result = whole ? add(Aten::negate, {rows}, {64, 256}) : add(Aten::negate, {part}, {64, 128});
    EXPECT_EQ(fuse(lowered({made, result})).size(), whole ? 1U : 0U);
  }
}

// Element-wise loops over 4 x 16 x 8 rows of 32, whose rows lie in another order than those that a sum adds up, go as the sum does where both
// read the row's 32 weights (128 bytes), and are one kernel with it (_try_reindex_pointwise_for_reduction); those through columns are not.
TEST_F(Graphs, FuseLoopsThatGoAsASumDoes) {
  for (const bool rows : {true, false}) {
    graph = {};
    const int weights = input({1, 1, 1, 32});
    const int sum = summed(add(Aten::multiply, {input({4, 8, 16, 32}), weights}, {4, 8, 16, 32}), 3);
    const int turned = add(Aten::permute, {input(rows ? Dims{4, 8, 16, 32} : Dims{4, 16, 32, 8})}, {4, 16, 8, 32});
    graph.at(turned).dims = rows ? Dims{0, 2, 1, 3} : Dims{0, 1, 3, 2};
    graph.at(turned).strides = rows ? Dims{4096, 32, 512, 1} : Dims{4096, 256, 1, 8};
    const int other = add(Aten::multiply, {turned, weights}, {4, 16, 8, 32});
    EXPECT_EQ(fuse(lowered({sum, other})).size(), rows ? 1U : 0U);
  }
}

// Sums over rows and over columns of one tensor are one kernel from 5 · 2²⁰ elements and 4,096 rows on.
TEST_F(Graphs, FuseSumsOfBothOrdersOfLargeTensors) {
  for (const std::int64_t rows : {4096, 2048}) {
    graph = {};
    const int x = input({rows, 4096});
    const std::vector<FusedKernel> kernels = fuse(lowered({summed(x, 1), summed(x, 0)}));
    EXPECT_EQ(kernels.size(), rows == 4096 ? 1U : 0U);
    if (rows == 4096) EXPECT_EQ(kernels[0].over_rows.size(), 1U);
  }
}

// A product whose result lies in rows of 50,257 16-bit numbers, which are no whole 16 bytes, is one of 50,264 columns, whose first ones
// are its result; what it reads has as many. 8,192 · 1,024 · 50,257 / (8,192 · 1,024 + 1,024 · 50,257 + 8,192 · 50,257) = 895 operations a
// byte are more than 148. A product whose rows alone are odd lies in whole ones.
TEST_F(Graphs, PadProductsWhoseRowsAreNoWholeBytes) {
  const auto of = [&](std::int64_t rows, std::int64_t columns) {
    graph = {};
    const int x = add(Aten::placeholder, {}, {rows, 1024}, DType::bf16), w = add(Aten::placeholder, {}, {1024, columns}, DType::bf16);
    graph.outputs = {add(Aten::product, {x, w}, {rows, columns}, DType::bf16)};
    std::vector<int> kept;
    return with_padded_products(graph, false, kept);
  };
  const FxGraph padded = of(8192, 50257);
  const FxNode& cut = padded.at(padded.outputs.front());
  EXPECT_EQ(cut.op, Aten::slice);
  EXPECT_EQ(cut.sizes, (Dims{8192, 50257}));
  EXPECT_EQ(cut.strides, (Dims{50264, 1}));
  EXPECT_EQ(padded.at(cut.args.front()).sizes, (Dims{8192, 50264}));
  EXPECT_EQ(of(8191, 50264).size(), 3);
}

// Buffers that nobody has fixed have rows of whole 128 bytes, if they are longer than 1,024 elements: 1,030 bf16 numbers take 1,088.
TEST_F(Graphs, PadLongRows) {
  const int x = add(Aten::placeholder, {}, {4, 1030}, DType::bf16), e = add(Aten::exp, {x}, {4, 1030}, DType::bf16);
  const int sum = add(Aten::sum, {e}, {4}, DType::fp32);
  graph.at(sum).dims = {1};
  std::vector<int> readers;
  for (int i = 0; i < 9; ++i) readers.push_back(add(Aten::add, {e, add(Aten::placeholder, {}, {4, 1030}, DType::bf16)}, {4, 1030}, DType::bf16));
  int total = e;
  for (const int reader : readers) total = add(Aten::add, {total, reader}, {4, 1030}, DType::bf16);  // ten loads: a buffer
  const int last = add(Aten::sum, {total}, {4}, DType::fp32);
  graph.at(last).dims = {1};
  const LoweredGraph all = lowered({sum, last});
  EXPECT_TRUE(std::any_of(all.buffers.begin(), all.buffers.end(),
                          [](const LoweredBuffer& buffer) { return buffer.strides == std::vector<std::int64_t>{1088, 1}; }));
}

// ---- reuse --------------------------------------------------------------------------------------------------------------

/// Bytes of the temporaries that a graph of buffers of 64 x 64 fp32 numbers allocates.
class Reuse : public Graphs {
 protected:
  std::int64_t allocated(Graph& run) {
    tape.record_into(Tape::Part::step);
    std::shared_ptr<const Graph::Schedule> schedule;
    run.run(schedule);
    std::int64_t bytes = 0;
    for (const Instruction& instruction : tape.program().step)
      if (instruction.kind == InstructionKind::alloc && instruction.bytes == kBytes) bytes += instruction.bytes;
    return bytes;
  }
  Value product(Graph& run, Value a, Value b) { return run.product(DType::fp32, 64, 64, 64, {a, b}, Turned::neither); }
  Tensor tensor() { return tape.empty(square, DType::fp32); }
  static constexpr std::int64_t kBytes = 64 * 64 * 4;
};

// A kernel's result takes the place of what it reads last; what the caller gave is never written.
TEST_F(Reuse, AKernelOverwritesWhatItReadsLast) {
  Graph run(tape);
  const Value x = run.primal(tensor(), "primals_1"), a = product(run, x, x), y = run.pointwise(square, DType::fp32, {a, x}, {a, x});
  run.result(y);
  EXPECT_EQ(allocated(run), kBytes);
}

// Random numbers that a kernel draws for itself have a place of their own, which the result takes before that of what it reads besides: the
// product's buffer and the kernel's.
TEST_F(Reuse, AKernelOverwritesWhatItDrewFirst) {
  const Tensor given = tensor();
  for (const bool drawn : {true, false}) {
    Graph run(tape);
    const Value x = run.primal(given, "primals_1"), a = product(run, x, x), random = run.pointwise(square, DType::fp32, {});
    const std::vector<Value> places = drawn ? std::vector<Value>{random, a} : std::vector<Value>{a};
    const Value y = run.pointwise(square, DType::fp32, {random, a}, places);
    run.fuse({random, y});
    run.result(y);
    const std::int64_t before = drawn ? 0 : 2 * kBytes;  // of the run before
    EXPECT_EQ(allocated(run) - before, drawn ? 2 * kBytes : kBytes);
  }
}

// reorder_for_peak_memory: of two products that nobody holds back, the first is the one whose 16 KiB input goes with it, if its name says
// that inputs of that kind go: the estimate is 2 · 16 KiB with it in front, 3 · 16 KiB behind. primals_ and tangents_ are taken to stay.
TEST_F(Reuse, InputsGoByTheirNames) {
  for (const char* name : {"addmm", "primals_2"}) {
    Graph run(tape);
    const Value kept = run.primal(tensor(), "primals_1"), given = run.primal(tensor(), name);
    const Value first = run.pointwise(square, DType::fp32, {kept}), second = run.reduction({64}, DType::fp32, {given});
    run.result(first), run.result(second);
    std::shared_ptr<const Graph::Schedule> schedule;
    tape.record_into(Tape::Part::step);
    const std::size_t before = tape.program().step.size();
    run.run(schedule);
    std::vector<std::int64_t> made;
    for (std::size_t i = before; i < tape.program().step.size(); ++i)
      if (tape.program().step[i].kind == InstructionKind::alloc) made.push_back(tape.program().step[i].bytes);
    EXPECT_EQ(made, name[0] == 'a' ? (std::vector<std::int64_t>{256, kBytes}) : (std::vector<std::int64_t>{kBytes, 256})) << name;
  }
}

// The third product finds the buffer of the first, which nobody reads any more; the second is read beside it.
TEST_F(Reuse, AProductTakesABufferThatWasLetGo) {
  Graph run(tape);
  const Value x = run.primal(tensor(), "primals_1"), a = product(run, x, x), b = product(run, a, x), y = product(run, b, x);
  run.result(y);
  EXPECT_EQ(allocated(run), 2 * kBytes);
}

// Both parts lie in the one buffer of the whole, of twice their size.
TEST_F(Reuse, PartsOfAConcatenationHaveNoBufferOfTheirOwn) {
  Graph run(tape);
  const Value x = run.primal(tensor(), "primals_1"), a = run.pointwise(square, DType::fp32, {x}), b = run.pointwise(square, DType::fp32, {x});
  run.result(run.concatenation({64, 128}, DType::fp32, {a, b}));
  EXPECT_EQ(allocated(run), 0);
}

}  // namespace
}  // namespace plimsoll::program::inductor
