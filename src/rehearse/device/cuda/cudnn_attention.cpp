// Attention among cuDNN's graphs, as the library's frontend writes it (cudnn_frontend/node/scaled_dot_product_flash_attention.h): composed of two
// products forward and five backward, or one operation whose masks stand in a graph of its own. What the operations are to each other is told
// by the tensors that connect them: their order differs between releases.
#include <algorithm>
#include <cstring>
#include <map>

#include "cudnn_work.hpp"

namespace plimsoll::device::cuda {
namespace {

using Dimensions = std::vector<std::int64_t>;
constexpr std::size_t kRank = 4;
constexpr std::int64_t kQueryAxis = 2, kKeyAxis = 3;
// cudnnPointwiseMode_t
constexpr int kAdd = 0, kGreater = 302, kGreaterOrEqual = 303, kIndex = 501;

/// What is added to the scores and which of them are left out.
struct Masks {
  bool causal = false, masked = false, dropout = false;
  std::int64_t window = 0;  ///< keys that a query sees at most; 0: all
};

struct Attention {
  Dimensions queries, keys;  ///< [b, h, s, d]
  std::int64_t value_dim = 0;
  record::Type type = record::Type::unknown;
  bool backward = false;
  Masks masks;
};

int mode_of(const Contents& op) {
  const Shared how = op.child(kPointwiseMode);
  const std::vector<int> mode = how == nullptr ? std::vector<int>{} : how->get<int>(kMode);
  return op.kind == kPointwise && !mode.empty() ? mode[0] : -1;
}

/// Operations and who makes which tensor.
class Flow {
 public:
  explicit Flow(const Contents& graph) : operations_(graph.children(kGraphOperations)) {
    constexpr std::pair<int, int> kResults[] = {{kMatmul, kMatmulC},     {kPointwise, kPointwiseY}, {kReduction, kReductionY},
                                                {kReshape, kReshapeY},   {kBandMask, kBandMaskY}};
    operations_.erase(std::remove(operations_.begin(), operations_.end(), nullptr), operations_.end());
    for (const Shared& op : operations_)
      for (const auto& [kind, result] : kResults)
        if (op->kind == kind && op->child(result) != nullptr) makers_[op->child(result).get()] = op.get();
  }
  const std::vector<Shared>& operations() const { return operations_; }
  /// The operation that makes a tensor, or null: it is given to the graph.
  const Contents* maker(const Shared& tensor) const {
    const auto found = makers_.find(tensor.get());
    return found == makers_.end() ? nullptr : found->second;
  }

 private:
  std::vector<Shared> operations_;
  std::map<const Contents*, const Contents*> makers_;
};

// ---- masks -------------------------------------------------------------------------------------------------------------

/// A number that a tensor stands for: a constant, or what the pack's pointer to the host's memory shows. 0 where there is none.
std::int64_t number_of(const Shared& tensor, const Contents& pack) {
  constexpr int kFloat = 0;
  if (tensor == nullptr) return 0;
  const std::vector<int> type = tensor->get<int>(kTensorType);
  const auto read = [&](const void* from) -> std::int64_t {
    float real = 0;
    std::int32_t whole = 0;
    std::memcpy(type.empty() || type[0] != kFloat ? static_cast<void*>(&whole) : &real, from, sizeof real);
    return type.empty() || type[0] != kFloat ? whole : real > -1e9F && real < 1e9F ? static_cast<std::int64_t>(real) : 0;
  };
  if (const auto constant = tensor->get<std::int32_t>(kTensorConstant); !constant.empty()) return read(constant.data());
  const auto by_value = tensor->get<char>(kTensorByValue);
  const auto id = tensor->get<std::int64_t>(kTensorId);
  const auto ids = pack.get<std::int64_t>(kPackIds);
  const auto pointers = pack.get<const void*>(kPackPointers);
  if (by_value.empty() || by_value[0] == 0 || id.empty()) return 0;
  const auto found = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), id[0]) - ids.begin());
  return found < ids.size() && found < pointers.size() && pointers[found] != nullptr ? read(pointers[found]) : 0;
}

/// Where indices are counted along an axis and shifted, what they are shifted by first; `axis` is -1 where the tensor is no such thing.
struct Indices {
  std::int64_t axis = -1;
  Shared shift;
};
Indices indices_of(const Shared& tensor, const Flow& flow) {
  Indices found;
  Shared at = tensor;
  for (const Contents* op = flow.maker(at); op != nullptr; op = flow.maker(at)) {
    if (mode_of(*op) == kIndex) {
      const auto axis = op->child(kPointwiseMode)->get<std::int64_t>(kAxis);
      found.axis = axis.empty() ? -1 : axis[0];
      return found;
    }
    if (mode_of(*op) == kAdd) found.shift = op->child(kPointwiseB);
    at = op->child(kPointwiseX);
  }
  return {};
}

/// "query >= key" leaves the keys behind a query out, "key + window > query" those too far before it (attn_score_modifiers.h,
/// sliding_window_mask). A comparison with lengths is padding.
void add_comparison(const Contents& op, const Flow& flow, const Contents& pack, Masks* masks) {
  const Indices left = indices_of(op.child(kPointwiseX), flow), right = indices_of(op.child(kPointwiseB), flow);
  if (left.axis == kQueryAxis && right.axis == kKeyAxis) masks->causal = true;
  if (left.axis == kKeyAxis && right.axis == kQueryAxis) masks->window = number_of(left.shift, pack);
}

void add_mask(const Contents& op, const Flow& flow, const Contents& pack, Masks* masks) {
  if (op.kind == kRandom) masks->dropout = true;
  if (op.kind == kBandMask) {
    const Shared left = op.child(kBandMaskLeft);
    if (left == nullptr) masks->causal = true;
    if (left != nullptr) masks->window = number_of(left, pack);
  }
  const int mode = mode_of(op);
  if (mode == kGreater || mode == kGreaterOrEqual) add_comparison(op, flow, pack, masks);
  const Shared added = mode == kAdd ? op.child(kPointwiseB) : nullptr;
  const Dimensions scores = dimensions(op.child(kPointwiseY));
  if (added != nullptr && flow.maker(added) == nullptr && scores.size() == kRank && scores[kKeyAxis] > 1 &&
      dimensions(added).size() == kRank && dimensions(added)[kKeyAxis] == scores[kKeyAxis])
    masks->masked = true;
}

Masks masks_of(const Flow& flow, const Contents& pack) {
  Masks masks;
  for (const Shared& op : flow.operations()) add_mask(*op, flow, pack, &masks);
  masks.window = std::max<std::int64_t>(masks.window, 0);
  return masks;
}

// ---- attention out of products -------------------------------------------------------------------------------------------

/// The products of matrices that are both given: Q Kᵀ, and backward dO Vᵀ. All others have scores or their gradients on the left.
std::vector<Shared> products_of_given(const Flow& flow) {
  std::vector<Shared> found;
  for (const Shared& op : flow.operations())
    if (op->kind == kMatmul && flow.maker(op->child(kMatmulA)) == nullptr) found.push_back(op);
  return found;
}

std::optional<Attention> composed(const Contents& graph, const Contents& pack) {
  const Flow flow(graph);
  std::vector<Shared> products;
  for (const Shared& op : flow.operations())
    if (op->kind == kMatmul) products.push_back(op);
  const std::vector<Shared> given = products_of_given(flow);
  const bool forward = products.size() == 2 && given.size() == 1, backward = products.size() == 5 && given.size() == 2;
  if ((!forward && !backward) || products[0] != given[0]) return {};
  Attention attention;
  attention.backward = backward;
  attention.queries = dimensions(given[0]->child(kMatmulA));
  attention.keys = dimensions(given[0]->child(kMatmulB));
  const Dimensions values = dimensions(backward ? given[1]->child(kMatmulA) : products[1]->child(kMatmulC));
  if (attention.queries.size() != kRank || attention.keys.size() != kRank || values.size() != kRank) return {};
  std::swap(attention.keys[2], attention.keys[3]);
  attention.value_dim = values[3];
  attention.type = type_of(given[0]->child(kMatmulA));
  attention.masks = masks_of(flow, pack);
  return attention;
}

// ---- attention as one operation ------------------------------------------------------------------------------------------

std::optional<Attention> unified(const Contents& graph, const Contents& pack) {
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr || (op->kind != kAttentionForward && op->kind != kAttentionBackward)) continue;
    Attention attention;
    attention.backward = op->kind == kAttentionBackward;
    const Shared queries = op->child(attention.backward ? kAttentionBackwardQ : kAttentionForwardQ);
    attention.queries = dimensions(queries);
    attention.keys = dimensions(op->child(attention.backward ? kAttentionBackwardK : kAttentionForwardK));
    const Dimensions values = dimensions(op->child(attention.backward ? kAttentionBackwardV : kAttentionForwardV));
    if (attention.queries.size() != kRank || attention.keys.size() != kRank || values.size() != kRank) return {};
    attention.value_dim = values[3];
    attention.type = type_of(queries);
    const Shared masks = op->child(attention.backward ? kAttentionBackwardSubgraph : kAttentionForwardSubgraph);
    if (masks != nullptr) attention.masks = masks_of(Flow(*masks), pack);
    const std::vector<float> dropout = op->get<float>(kAttentionForwardDropout);
    attention.masks.dropout |= !attention.backward && !dropout.empty() && dropout[0] > 0;
    return attention;
  }
  return {};
}

/// A sum over heads alone: dK or dV where query heads share a key head.
bool sums_heads(const Contents& reduction) {
  const Dimensions from = dimensions(reduction.child(kReductionX)), to = dimensions(reduction.child(kReductionY));
  return from.size() == kRank && to.size() == kRank && from[0] == to[0] && from[1] > to[1] && from[2] == to[2] && from[3] == to[3];
}

}  // namespace

std::optional<Work> attention_of(const Contents& graph, const Contents& pack) {
  auto attention = unified(graph, pack);
  if (!attention) attention = composed(graph, pack);
  if (!attention) return {};
  Work work;
  work.name = std::string(attention->backward ? "cudnn.attention_backward" : "cudnn.attention_forward") +
              " query dimensions, key dimensions, value's last, 1 + causal + 2 masked + 4 dropout, 1 + window";
  work.type = attention->type;
  for (const Dimensions* part : {&attention->queries, &attention->keys})
    work.numbers.insert(work.numbers.end(), part->begin(), part->end());
  const Masks& masks = attention->masks;
  for (const std::int64_t number : {attention->value_dim, std::int64_t{1} + masks.causal + 2 * masks.masked + 4 * masks.dropout, 1 + masks.window})
    work.numbers.push_back(number);
  return work;
}

std::optional<std::int64_t> attention_workspace(const Contents& graph) {
  constexpr std::int64_t kTileCounter = 4, kHalfPrecision = 2;
  const Contents nothing;
  if (!composed(graph, nothing)) return {};
  std::int64_t bytes = kTileCounter;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr || op->kind != kReduction || !sums_heads(*op)) continue;
    std::int64_t elements = 1;
    for (const std::int64_t each : dimensions(op->child(kReductionX))) elements *= each;
    bytes += elements * kHalfPrecision;
  }
  return bytes;
}

}  // namespace plimsoll::device::cuda
