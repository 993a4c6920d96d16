// The flash engines of cuDNN take attention composed of small operations, in the one form that they recognise: that which cudnn_frontend
// composes (include/cudnn_frontend/node/scaled_dot_product_flash_attention.h, CompositeSDPANode and CompositeSDPABackwardNode) and PyTorch
// asks for (aten/src/ATen/native/cudnn/MHA.cpp): sums in fp32, P and dS in the operands' type before they are multiplied.
#include "calibrate/cudnn_attention.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "calibrate/gpu_backend.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace cudnn {
namespace {

Type type_of(DType type) { return type == DType::fp16 ? Type::fp16 : Type::bf16; }

/// [batch, heads, sequence, width], in either order of memory.
Dimensions strides_of(const Dimensions& d, HeadOrder order) {
  return order == HeadOrder::heads_first ? packed(d) : Dimensions{d[1] * d[2] * d[3], d[3], d[1] * d[3], 1};
}
/// The same memory read as [batch, heads, width, sequence].
Dimensions exchanged(const Dimensions& d) { return {d[0], d[1], d[3], d[2]}; }

/// A pass's tensors as they lie in memory.
class Shapes {
 public:
  Shapes(const Attention& a, HeadOrder order) : a_(a), order_(order) {}
  Dimensions queries() const { return {a_.batch, a_.heads, a_.queries, a_.head_dim}; }
  Dimensions keys() const { return {a_.batch, a_.kv_heads, a_.keys, a_.head_dim}; }
  Dimensions values() const { return {a_.batch, a_.kv_heads, a_.keys, a_.value_dim}; }
  Dimensions results() const { return {a_.batch, a_.heads, a_.queries, a_.value_dim}; }
  Dimensions rows() const { return {a_.batch, a_.heads, a_.queries, 1}; }
  Dimensions key_gradients(std::int64_t width) const { return {a_.batch, a_.heads, a_.keys, width}; }  ///< of every query head

  Tensor memory(Graph& graph, const Dimensions& d) const { return graph.memory(type_of(a_.type), d, strides_of(d, order_)); }
  Tensor transposed_memory(Graph& graph, const Dimensions& d) const {
    return graph.memory(type_of(a_.type), exchanged(d), exchanged(strides_of(d, order_)));
  }
  Tensor row_memory(Graph& graph) const { return graph.memory(Type::fp32, rows(), packed(rows())); }

 private:
  const Attention& a_;
  HeadOrder order_;
};

/// Scores of keys behind the query are −∞; cuDNN before 9.10 wants the lowest number.
Tensor causal(const Library& library, Graph& graph, const Tensor& scores) {
  constexpr std::int64_t kTakesInfinity = 91000, kQueries = 2, kKeys = 3;
  const Tensor seen = graph.at_least(graph.index(scores, kQueries), graph.index(scores, kKeys));
  const float none = library.version() < kTakesInfinity ? std::numeric_limits<float>::lowest() : -std::numeric_limits<float>::infinity();
  return graph.select(scores, graph.number(none), seen);
}

}  // namespace

std::string cannot(const Library& library, const Attention& a) {
  constexpr std::int64_t kStep = 8, kWidest = 256, kTile = 128;
  constexpr std::int64_t kFirstBroken = 91000, kLastBroken = 91001, kTakesAnyLength = 91501;  // cudnn_frontend refuses or pads
  const bool is_backward = a.part == Attention::Part::backward;
  if (a.type != DType::bf16 && a.type != DType::fp16) return fmt::format("attention of {}", name_of(a.type));
  if (a.masked || a.dropout || a.window > 0) return "masks, dropout and windows";
  if (a.causal && a.queries != a.keys) return "causal attention of unequal lengths";
  if (a.head_dim % kStep != 0 || a.value_dim % kStep != 0 || std::max(a.head_dim, a.value_dim) > kWidest)
    return fmt::format("heads of {}", a.head_dim);
  if (is_backward && library.version() >= kFirstBroken && library.version() <= kLastBroken)
    return "a backward pass in " + library.version_text() + ", whose answers are known to be wrong";
  if (is_backward && a.keys % kTile != 0 && library.version() < kTakesAnyLength)
    return fmt::format("a backward pass of {} keys before cuDNN 9.15.1", a.keys);
  return {};
}

Graph AttentionPlan::forward(const Library& library, const Attention& attention, HeadOrder order) {
  const Shapes shapes(attention, order);
  Graph graph(library);
  Operands& o = operands_;
  o.q = shapes.memory(graph, shapes.queries());
  o.k = shapes.transposed_memory(graph, shapes.keys());
  o.v = shapes.memory(graph, shapes.values());
  o.output = shapes.memory(graph, shapes.results());
  o.log_sum = shapes.row_memory(graph);

  const Tensor scale = graph.number(static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim))));
  Tensor scores = graph.map(Map::multiply, graph.matmul(o.q, o.k), scale);
  if (attention.causal) scores = causal(library, graph, scores);
  const Tensor highest = graph.reduce(Reduce::maximum, scores, shapes.rows());
  const Tensor weights = graph.map(Map::exp, graph.map(Map::subtract, scores, highest));
  const Tensor sum = graph.reduce(Reduce::sum, weights, shapes.rows());
  graph.map_into(Map::add, highest, graph.map(Map::log, sum), o.log_sum);
  graph.matmul_into(graph.map(Map::divide, weights, sum, type_of(attention.type)), o.v, o.output);
  return graph;
}

Graph AttentionPlan::backward(const Library& library, const Attention& attention, HeadOrder order) {
  const Shapes shapes(attention, order);
  const Type type = type_of(attention.type);
  Graph graph(library);
  Operands& o = operands_;
  o.q = shapes.memory(graph, shapes.queries());
  o.k = shapes.transposed_memory(graph, shapes.keys());
  o.v = shapes.transposed_memory(graph, shapes.values());
  o.output = shapes.memory(graph, shapes.results());
  o.gradient = shapes.memory(graph, shapes.results());
  o.log_sum = shapes.row_memory(graph);
  o.dq = shapes.memory(graph, shapes.queries());
  o.dk = shapes.memory(graph, shapes.keys());
  o.dv = shapes.memory(graph, shapes.values());
  o.delta = shapes.row_memory(graph);
  o.sums = graph.memory(Type::fp32, shapes.queries(), packed(shapes.queries()));
  const Tensor scale = graph.number(static_cast<float>(1 / std::sqrt(static_cast<double>(attention.head_dim))));

  // δ; where there is dropout it is scaled, else by one.
  const Tensor sums = graph.reduce(Reduce::sum, graph.map(Map::multiply, o.gradient, o.output), shapes.rows());
  graph.map_into(Map::multiply, sums, graph.number(1), o.delta);

  // P = exp(S − log Σ exp), and dV = Pᵀ·dO, of all query heads before those of a group are summed.
  const auto key_gradient = [&](const Tensor& pairs, const Tensor& rows, const Tensor& result) {
    const Tensor turned = graph.transposed(pairs, type);
    if (attention.heads == attention.kv_heads) return graph.matmul_into(turned, rows, result);
    graph.reduce_into(Reduce::sum, graph.matmul(turned, rows, type), result);
  };
  Tensor scores = graph.map(Map::multiply, graph.matmul(o.q, o.k), scale);
  scores = graph.map(Map::subtract, scores, o.log_sum);
  if (attention.causal) scores = causal(library, graph, scores);
  const Tensor weights = graph.map(Map::exp, scores);
  key_gradient(weights, o.gradient, o.dv);

  // dS = (dO·Vᵀ − δ)·P, dK = dSᵀ·Q, and dQ = dS·K, added up in fp32.
  const Tensor differences = graph.map(Map::subtract, graph.matmul(o.gradient, o.v), o.delta);
  const Tensor score_gradients = graph.map(Map::multiply, graph.map(Map::multiply, differences, weights), scale);
  key_gradient(score_gradients, o.q, o.dk);
  graph.matmul_into(score_gradients, graph.transposed(o.k, type), o.sums);
  graph.map_into(Map::identity, o.sums, o.dq);
  return graph;
}

AttentionPlan::AttentionPlan(const Library& library, const Attention& attention, HeadOrder order)
    : is_backward_(attention.part == Attention::Part::backward) {
  constexpr std::int64_t kZeroesItself = 90600;
  plan_.emplace(library, is_backward_ ? backward(library, attention, order) : forward(library, attention, order));
  if (!is_backward_) return;
  const std::int64_t rows = attention.batch * attention.heads * attention.queries;
  sums_bytes_ = rows * attention.head_dim * size_of(DType::fp32);
  delta_bytes_ = rows * size_of(DType::fp32);
  zeroed_bytes_ = library.version() < kZeroesItself ? sums_bytes_ : 0;
}

void AttentionPlan::run(const AttentionCall& call, void* workspace) {
  const Operands& o = operands_;
  auto* sums = static_cast<std::byte*>(workspace);
  std::byte *delta = sums + sums_bytes_, *own = delta + delta_bytes_;
  if (!is_backward_) {
    plan_->run({{o.q, call.q}, {o.k, call.k}, {o.v, call.v}, {o.output, call.output}, {o.log_sum, call.log_sum}}, own);
    return;
  }
  plan_->run({{o.q, call.q},
              {o.k, call.k},
              {o.v, call.v},
              {o.output, call.output},
              {o.log_sum, call.log_sum},
              {o.gradient, call.gradient},
              {o.dq, call.dq},
              {o.dk, call.dk},
              {o.dv, call.dv},
              {o.sums, sums},
              {o.delta, delta}},
             own);
}

}  // namespace cudnn

namespace {

class CudnnAttention : public FusedAttention {
 public:
  CudnnAttention(std::unique_ptr<cudnn::Library> library, GpuDriver& driver) : library_(std::move(library)), driver_(driver) {}
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;
  ~CudnnAttention() override {
    if (workspace_) driver_.release(workspace_);
  }

  std::string name() const override { return "cudnn"; }
  std::string version() const override { return library_->version_text(); }
  std::string why_not(const Attention& attention, HeadOrder order) override { return entry(attention, order).why_not; }

  void run(const AttentionCall& call, void* stream) override {
    Entry& found = entry(call.attention, call.order);
    if (!found.plan) throw Error(ErrorCode::internal, "cuDNN has no plan: " + found.why_not);
    reserve(found.plan->workspace_bytes());
    if (const std::int64_t bytes = found.plan->zeroed_bytes(); bytes > 0)
      check(driver_, driver_.fill(workspace_, 0, static_cast<std::size_t>(bytes), stream), "MemsetAsync");
    try {
      library_->set_stream(stream);
      found.plan->run(call, workspace_);
    } catch (const cudnn::Refused& refused) {
      fail(refused.what(), "cudnn", "what was measured until now is kept in the samples");
    }
  }

 private:
  struct Entry {
    std::unique_ptr<cudnn::AttentionPlan> plan;
    std::string why_not;
  };
  using Key = std::tuple<bool, DType, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, HeadOrder>;

  Entry& entry(const Attention& a, HeadOrder order) {
    const Key key{a.part == Attention::Part::backward,
                  a.type,
                  a.causal,
                  a.batch,
                  a.heads,
                  a.kv_heads,
                  a.queries,
                  a.keys,
                  a.head_dim,
                  a.value_dim,
                  order};
    if (std::string why_not = cudnn::cannot(*library_, a); !why_not.empty()) return refused_ = {nullptr, "cuDNN does not take " + why_not};
    const auto [place, is_new] = plans_.try_emplace(key);
    if (!is_new) return place->second;
    try {
      place->second.plan = std::make_unique<cudnn::AttentionPlan>(*library_, a, order);
    } catch (const cudnn::Refused& refused) {
      place->second.why_not = refused.what();
    }
    return place->second;
  }

  void reserve(std::int64_t bytes) {
    if (bytes <= reserved_) return;
    if (workspace_) {
      check(driver_, driver_.synchronize(), "DeviceSynchronize");
      check(driver_, driver_.release(workspace_), "Free");
      workspace_ = nullptr;
    }
    check(driver_, driver_.allocate(&workspace_, static_cast<std::size_t>(bytes)), "Malloc of a workspace");
    reserved_ = bytes;
  }

  std::unique_ptr<cudnn::Library> library_;
  GpuDriver& driver_;
  std::map<Key, Entry> plans_;
  Entry refused_;
  void* workspace_ = nullptr;
  std::int64_t reserved_ = 0;
};

}  // namespace

std::unique_ptr<FusedAttention> open_cudnn(GpuDriver& driver, std::string& why_not) {
  auto library = cudnn::Library::open(why_not);
  return library ? std::make_unique<CudnnAttention>(std::move(library), driver) : nullptr;
}

}  // namespace plimsoll::calibrate
