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
constexpr int kDataType = 1, kInt64 = 3, kMode = 14, kDescriptor = 15;
// cudnnBackendDescriptorType_t
constexpr int kPointwise = 0, kEngineConfiguration = 3, kHeuristic = 4, kPlan = 5, kConvolutionForward = 10, kPointwiseOperation = 13,
              kGraph = 15, kVariantPack = 16, kTensor = 17, kMatmul = 19, kReductionOperation = 22;
constexpr int kBf16 = 9;

class Dnn : public testing::Test {
 protected:
  const Library& dnn = library("libcudnn.so.9");
  Handle handle = nullptr;
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
  Handle pointwise(int mode, Handle y) {
    const Handle how = make(kPointwise), op = make(kPointwiseOperation);
    set(how, 0, kMode, 1, &mode);
    finish(how);
    set(op, 750, kDescriptor, 1, &how);
    set(op, 753, kDescriptor, 1, &y);
    destroy(how);
    return finish(op);
  }
  /// Runs the graph of these operations, whose descriptors are gone by then. Its plan wants `workspace_bytes`.
  void run(std::vector<Handle> operations, std::int64_t workspace_bytes = 0) {
    const Handle graph = make(kGraph), heuristic = make(kHeuristic), plan = make(kPlan), pack = make(kVariantPack);
    Handle configuration = make(kEngineConfiguration);
    set(graph, 801, kDescriptor, static_cast<std::int64_t>(operations.size()), operations.data());
    finish(graph);
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

// Scores [2, 8, 512, 512] = Q [2, 8, 512, 64] Kᵀ [2, 2, 64, 512], a causal mask made of indices (mode 501), and the result from them and V:
// flags 1 + 1 (causal). The kernel wants a counter of 4 bytes.
TEST_F(Dnn, RecordsAttentionAsItIsComposed) {
  const Handle q = tensor({2, 8, 512, 64}), k = tensor({2, 2, 64, 512}), s = tensor({2, 8, 512, 512}), v = tensor({2, 2, 512, 32}),
               o = tensor({2, 8, 512, 32});
  const std::vector<Handle> operations{connected(kMatmul, {{1520, q}, {1521, k}, {1522, s}}), pointwise(501, s),
                                       connected(kMatmul, {{1520, s}, {1521, v}, {1522, o}})};
  for (Handle gone : {q, k, s, v, o}) destroy(gone);
  const Recorded recorded;
  run(operations, 4);
  const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].first.name).find("cudnn.attention_forward "), 0u);
  EXPECT_EQ(calls[0].first.workspace_bytes, 4u);
  EXPECT_EQ(calls[0].second, (std::vector<std::int64_t>{2, 8, 512, 64, 2, 2, 512, 64, 32, 2}));
}

// Backward five products, of which two results [2, 8, 512, 64] are summed over the four query heads of a key head. The engine keeps both in
// 16 bits, 2 · 2·8·512·64 · 2 bytes, beside its counter. An addition to the scores is a mask: flags 1 + 2.
TEST_F(Dnn, BackwardAttentionKeepsTheGradientsOfSharedHeads) {
  const Handle q = tensor({2, 8, 512, 64}), kt = tensor({2, 2, 64, 512}), s = tensor({2, 8, 512, 512}), k = tensor({2, 2, 512, 64});
  const auto product = [&](Handle a, Handle b, Handle c) { return connected(kMatmul, {{1520, a}, {1521, b}, {1522, c}}); };
  const auto sum = [&] { return connected(kReductionOperation, {{1610, q}, {1611, k}}); };
  const std::vector<Handle> operations{product(q, kt, s), pointwise(0, s), product(q, kt, s), product(s, q, q), sum(),
                                       product(s, q, q),  sum(),           product(s, k, q)};
  for (Handle gone : {q, kt, s, k}) destroy(gone);
  const Recorded recorded;
  run(operations, 4 + 2 * 2 * 8 * 512 * 64 * 2);
  const auto calls = recorded.of_tail<record::LibraryCall, std::int64_t>(record::Kind::library_call);
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(recorded.name(calls[0].first.name).find("cudnn.attention_backward "), 0u);
  EXPECT_EQ(calls[0].second, (std::vector<std::int64_t>{2, 8, 512, 64, 2, 2, 512, 64, 64, 3}));
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
