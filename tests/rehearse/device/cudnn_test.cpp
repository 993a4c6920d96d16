// cuDNN's graph API: a program builds a graph, asks for its engine, makes a plan and runs it.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "libraries.hpp"

namespace plimsoll::rehearse::test {
namespace {

using Handle = void*;
constexpr int kOk = 0;
// cudnnBackendAttributeType_t
constexpr int kDataType = 1, kBoolean = 2, kInt64 = 3, kFloat = 4, kPointer = 6, kMode = 14, kDescriptor = 15;
// cudnnBackendDescriptorType_t
constexpr int kPointwise = 0, kEngineConfiguration = 3, kHeuristic = 4, kPlan = 5, kConvolutionForward = 10, kPointwiseOperation = 13,
              kGraph = 15, kVariantPack = 16, kTensor = 17, kMatmul = 19, kReductionOperation = 22, kReshape = 31, kAttentionForward = 41,
              kBandMask = 44;
constexpr int kBf16 = 9;
// cudnnPointwiseMode_t
constexpr int kAdd = 0, kGreater = 302, kGreaterOrEqual = 303, kIndex = 501, kSelect = 601;

class Dnn : public testing::Test {
 protected:
  const Library& dnn = library("libcudnn.so.9");
  Handle handle = nullptr;
  static constexpr std::int64_t kHostNumber = 77;  ///< the id of the tensor by value that a plan is run with
  float host_number = 0;
  void SetUp() override { ASSERT_EQ(dnn.get<int(Handle*)>("cudnnCreate")(&handle), kOk); }
  Handle make(int kind) {
    Handle d = nullptr;
    EXPECT_EQ(dnn.get<int(int, Handle*)>("cudnnBackendCreateDescriptor")(kind, &d), kOk);
    return d;
  }
  void destroy(Handle d) { EXPECT_EQ(dnn.get<int(Handle)>("cudnnBackendDestroyDescriptor")(d), kOk); }
  void set(Handle d, int name, int type, std::int64_t count, const void* values) {
    EXPECT_EQ(dnn.get<int(Handle, int, int, std::int64_t, const void*)>("cudnnBackendSetAttribute")(d, name, type, count, values), kOk);
  }
  std::int64_t get(Handle d, int name, int type, std::int64_t wanted, void* to) {
    std::int64_t count = -1;
    EXPECT_EQ(
        dnn.get<int(Handle, int, int, std::int64_t, std::int64_t*, void*)>("cudnnBackendGetAttribute")(d, name, type, wanted, &count, to),
        kOk);
    return count;
  }
  Handle finish(Handle d) {
    EXPECT_EQ(dnn.get<int(Handle)>("cudnnBackendFinalize")(d), kOk);
    return d;
  }
  Handle tensor(const std::vector<std::int64_t>& dimensions) {
    const Handle d = make(kTensor);
    set(d, 901, kDataType, 1, &kBf16);
    set(d, 902, kInt64, static_cast<std::int64_t>(dimensions.size()), dimensions.data());
    return finish(d);
  }
  Handle connected(int kind, const std::vector<std::pair<int, Handle>>& tensors) {
    const Handle op = make(kind);
    for (const auto& [name, tensor] : tensors) set(op, name, kDescriptor, 1, &tensor);
    return finish(op);
  }
  /// y = mode(x, b); an index counts along `axis`.
  Handle pointwise(int mode, Handle x, Handle b, Handle y, std::int64_t axis = -1) {
    const Handle how = make(kPointwise), op = make(kPointwiseOperation);
    set(how, 0, kMode, 1, &mode);
    set(how, 9, kInt64, 1, &axis);
    finish(how);
    set(op, 750, kDescriptor, 1, &how);
    for (const auto& [name, tensor] : {std::pair{751, x}, std::pair{752, b}, std::pair{753, y}})
      if (tensor != nullptr) set(op, name, kDescriptor, 1, &tensor);
    destroy(how);
    return finish(op);
  }
  Handle product(Handle a, Handle b, Handle c) { return connected(kMatmul, {{1520, a}, {1521, b}, {1522, c}}); }
  Handle graph_of(const std::vector<Handle>& operations) {
    const Handle graph = make(kGraph);
    set(graph, 801, kDescriptor, static_cast<std::int64_t>(operations.size()), operations.data());
    return finish(graph);
  }
  /// The numbers of the one call that was recorded, whose name begins so.
  std::vector<std::int64_t> numbers_of_call(const Recorded& recorded, const std::string& name) {
    const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
    if (calls.size() != 1 || recorded.name(calls[0].first.name).find(name + " ") != 0) return {};
    return calls[0].second;
  }
  /// Runs the graph of these operations, whose descriptors are gone by then. Its plan wants `workspace_bytes`.
  void run(std::vector<Handle> operations, std::int64_t workspace_bytes = 0) {
    const Handle graph = graph_of(operations), heuristic = make(kHeuristic), plan = make(kPlan), pack = make(kVariantPack);
    Handle configuration = make(kEngineConfiguration);
    const void* pointer = &host_number;
    set(pack, 1000, kInt64, 1, &kHostNumber);
    set(pack, 1001, kPointer, 1, &pointer);
    set(heuristic, 201, kDescriptor, 1, &graph);
    finish(heuristic);
    EXPECT_EQ(get(heuristic, 202, kDescriptor, 0, nullptr), 1);
    EXPECT_EQ(get(heuristic, 202, kDescriptor, 1, &configuration), 1);
    set(plan, 401, kDescriptor, 1, &configuration);
    finish(plan);
    for (Handle gone : {graph, heuristic, configuration}) destroy(gone);
    for (Handle gone : operations) destroy(gone);
    std::int64_t workspace = -1;
    EXPECT_EQ(get(plan, 402, kInt64, 1, &workspace), 1);
    EXPECT_EQ(workspace, workspace_bytes);
    EXPECT_EQ(dnn.get<int(Handle, Handle, Handle)>("cudnnBackendExecute")(handle, plan, pack), kOk);
    destroy(plan);
    destroy(pack);
  }
};

// A graph of products that is no attention: three of them.
TEST_F(Dnn, RecordsProducts) {
  const Handle a = tensor({2, 8, 512, 64}), b = tensor({2, 8, 64, 512}), c = tensor({2, 8, 512, 512});
  std::vector<Handle> products;
  for (int i = 0; i < 3; ++i) products.push_back(connected(kMatmul, {{1520, a}, {1521, b}, {1522, c}}));
  for (Handle gone : {a, b, c}) destroy(gone);
  const Recorded recorded;
  run(products);
  const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].first.name), "cudnn.matmuls batch m n k ...");
  EXPECT_EQ(calls[0].first.type, record::Type::bf16);
  EXPECT_EQ(calls[0].second, (std::vector<std::int64_t>{16, 512, 512, 64, 16, 512, 512, 64, 16, 512, 512, 64}));
}

// Scores [2, 8, 512, 512] = Q [2, 8, 512, 64] Kᵀ [2, 2, 64, 512], masked where not "query >= key" and where not "key + window > query", and the
// result from them and V: flags 1 + 1 (causal), and 1 + the window of 100. The kernel wants a counter of 4 bytes.
TEST_F(Dnn, RecordsAttentionAsItIsComposed) {
  const Handle q = tensor({2, 8, 512, 64}), k = tensor({2, 2, 64, 512}), v = tensor({2, 2, 512, 32}), o = tensor({2, 8, 512, 32});
  std::vector<Handle> s;
  for (int i = 0; i < 8; ++i) s.push_back(tensor({2, 8, 512, 512}));
  const Handle window = make(kTensor);
  constexpr int kFp32 = 0;
  constexpr char kYes = 1;
  set(window, 901, kDataType, 1, &kFp32);
  set(window, 906, kInt64, 1, &kHostNumber);
  set(window, 908, kBoolean, 1, &kYes);
  finish(window);
  host_number = 100;
  const std::vector<Handle> operations{
      product(q, k, s[0]),
      pointwise(kIndex, s[0], nullptr, s[1], 2), pointwise(kIndex, s[0], nullptr, s[2], 3), pointwise(kGreaterOrEqual, s[1], s[2], s[3]),
      pointwise(kSelect, s[0], nullptr, s[4]), pointwise(kAdd, s[2], window, s[5]), pointwise(kGreater, s[5], s[1], s[6]),
      pointwise(kSelect, s[4], nullptr, s[7]), product(s[7], v, o)};
  const Recorded recorded;
  run(operations, 4);
  EXPECT_EQ(numbers_of_call(recorded, "cudnn.attention_forward"), (std::vector<std::int64_t>{2, 8, 512, 64, 2, 2, 512, 64, 32, 2, 101}));
}

// Indices that are compared with the lengths of sequences are padding, and no causal mask.
TEST_F(Dnn, PaddingIsNoCausalMask) {
  const Handle q = tensor({2, 8, 512, 64}), k = tensor({2, 8, 64, 512}), v = tensor({2, 8, 512, 64}), o = tensor({2, 8, 512, 64}),
               lengths = tensor({2, 1, 1, 1});
  std::vector<Handle> s;
  for (int i = 0; i < 4; ++i) s.push_back(tensor({2, 8, 512, 512}));
  const Recorded recorded;
  run({product(q, k, s[0]), pointwise(kIndex, s[0], nullptr, s[1], 3), pointwise(kGreater, s[1], lengths, s[2]),
       pointwise(kSelect, s[0], nullptr, s[3]), product(s[3], v, o)},
      4);
  EXPECT_EQ(numbers_of_call(recorded, "cudnn.attention_forward"), (std::vector<std::int64_t>{2, 8, 512, 64, 2, 8, 512, 64, 64, 1, 1}));
}

// The order of PyTorch 2.15's frontend: Pᵀ dO stands before dO Vᵀ, P is reshaped to be transposed, and the mask is an operation of its own at
// the end. Values have 32 numbers, keys 64. Two results [2, 8, 512, …] are summed over the four query heads of a key head; the engine keeps
// both in 16 bits beside its counter. What is added to the scores and was given is a mask: flags 1 + 1 + 2.
TEST_F(Dnn, BackwardAttentionIsToldByWhatIsConnected) {
  const Handle q = tensor({2, 8, 512, 64}), kt = tensor({2, 2, 64, 512}), k = tensor({2, 2, 512, 64}), vt = tensor({2, 2, 32, 512}),
               d_o = tensor({2, 8, 512, 32}), bias = tensor({1, 8, 512, 512}), dv_heads = tensor({2, 8, 512, 32}),
               dk_heads = tensor({2, 8, 512, 64}), dk = tensor({2, 2, 512, 64}), dv = tensor({2, 2, 512, 32}), dq = tensor({2, 8, 512, 64});
  std::vector<Handle> s;
  for (int i = 0; i < 7; ++i) s.push_back(tensor({2, 8, 512, 512}));
  const auto transposed = [&](Handle x, Handle y) { return connected(kReshape, {{2200, x}, {2201, y}}); };
  const auto sum = [&](Handle x, Handle y) { return connected(kReductionOperation, {{1610, x}, {1611, y}}); };
  const Recorded recorded;
  run({product(q, kt, s[0]), pointwise(kAdd, s[0], bias, s[1]), transposed(s[2], s[3]), product(s[3], d_o, dv_heads), sum(dv_heads, dv),
       product(d_o, vt, s[4]), pointwise(1, s[4], s[2], s[5]), transposed(s[5], s[6]), product(s[6], q, dk_heads), sum(dk_heads, dk),
       product(s[5], k, dq), connected(kBandMask, {{3000, s[1]}, {3006, s[2]}})},
      4 + 2 * 8 * 512 * (64 + 32) * 2);
  EXPECT_EQ(numbers_of_call(recorded, "cudnn.attention_backward"), (std::vector<std::int64_t>{2, 8, 512, 64, 2, 2, 512, 64, 32, 4, 1}));
}

// One operation, whose masks are a graph of their own: a band without a left bound is causal, dropout has a probability.
TEST_F(Dnn, RecordsUnifiedAttentionWithItsMasks) {
  const Handle q = tensor({2, 8, 512, 64}), k = tensor({2, 2, 512, 64}), v = tensor({2, 2, 512, 32}), s = tensor({2, 8, 512, 512}),
               masked = tensor({2, 8, 512, 512}), masks = graph_of({connected(kBandMask, {{3000, s}, {3006, masked}})}),
               attention = make(kAttentionForward);
  const float dropout = 0.1F;
  for (const auto& [name, tensor] : {std::pair{2800, q}, std::pair{2801, k}, std::pair{2802, v}, std::pair{2811, masks}})
    set(attention, name, kDescriptor, 1, &tensor);
  set(attention, 2818, kFloat, 1, &dropout);
  const Recorded recorded;
  run({finish(attention)});
  EXPECT_EQ(numbers_of_call(recorded, "cudnn.attention_forward"), (std::vector<std::int64_t>{2, 8, 512, 64, 2, 2, 512, 64, 32, 6, 1}));
}

// Copies with channels last, filled up to 8 of 16 bits: 8 images of 224 x 224 and 8 channels, 64 filters of 7 x 7 and 8, 8 results of
// 112 x 112 and 64.
TEST_F(Dnn, RecordsConvolutions) {
  const Handle x = tensor({8, 3, 224, 224}), w = tensor({64, 3, 7, 7}), y = tensor({8, 64, 112, 112}), op = make(kConvolutionForward);
  set(op, 704, kDescriptor, 1, &x);
  set(op, 703, kDescriptor, 1, &w);
  set(op, 705, kDescriptor, 1, &y);
  finish(op);
  const Recorded recorded;
  run({op}, 2 * (8 * 224 * 224 * 8 + 64 * 7 * 7 * 8 + 8 * 112 * 112 * 64));
  const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].first.name), "cudnn.convolution_forward rank, image, filter, result dimensions");
  EXPECT_EQ(calls[0].second, (std::vector<std::int64_t>{4, 8, 3, 224, 224, 64, 3, 7, 7, 8, 64, 112, 112}));
}

TEST_F(Dnn, SaysThatRecurrentNetworksAreNotSupported) {
  Handle rnn = nullptr;
  EXPECT_EQ(dnn.get<int(Handle*)>("cudnnCreateRNNDescriptor")(&rnn), 3000);
}

}  // namespace
}  // namespace plimsoll::rehearse::test
