#include "cudnn_work.hpp"

#include <algorithm>
#include <optional>

#include "program/convolution_workspace.hpp"
#include "rehearse/device/core/settings.hpp"

namespace plimsoll::device::cuda {
namespace {

using Dimensions = std::vector<std::int64_t>;

void append(std::vector<std::int64_t>* to, const std::vector<std::int64_t>& values) { to->insert(to->end(), values.begin(), values.end()); }

std::int64_t product_of(const Dimensions& dimensions) {
  std::int64_t product = 1;
  for (const std::int64_t each : dimensions) product *= each;
  return product;
}

/// C[…, m, n] = A[…, m, k] B[…, k, n]: the product of the leading dimensions, m, n, k.
void add_matmul(const Contents& op, Work* work) {
  const auto a = dimensions(op.child(kMatmulA)), c = dimensions(op.child(kMatmulC));
  if (a.size() < 2 || c.size() < 2) return;
  std::int64_t batch = 1;
  for (std::size_t i = 0; i + 2 < c.size(); ++i) batch *= c[i];
  append(&work->numbers, {batch, c[c.size() - 2], c[c.size() - 1], a[a.size() - 1]});
  if (work->name.empty()) work->name = "cudnn.matmuls batch m n k ...";
  if (work->type == record::Type::unknown) work->type = type_of(op.child(kMatmulA));
}

/// Dimensions of the image, the filter and the result.
void add_convolution(const Contents& op, int x, int w, int y, const char* name, Work* work) {
  const auto image = dimensions(op.child(x));
  work->name = std::string(name) + " rank, image, filter, result dimensions";
  work->type = type_of(op.child(x));
  append(&work->numbers, {static_cast<std::int64_t>(image.size())});
  for (int part : {x, w, y}) append(&work->numbers, dimensions(op.child(part)));
}

/// What a convolution of contiguous images keeps; of images with channels last no more is known than that nothing has to be copied.
std::int64_t convolution_workspace(const Contents& op, int x, int w, int y, bool weight_gradient) {
  constexpr std::size_t kImages = 4;
  const Shared tensor = op.child(x);
  const Dimensions image = dimensions(tensor), filter = dimensions(op.child(w)), result = dimensions(op.child(y));
  if (image.size() != kImages || filter.size() != kImages || result.size() != kImages || product_of(filter) <= 0) return 0;
  const std::vector<std::int64_t> strides = tensor->get<std::int64_t>(kTensorStrides);
  const bool channels_last = strides.size() == kImages && image[1] > 1 && strides[1] == 1;
  const std::int64_t element_bytes = type_of(tensor) == record::Type::f32 ? 4 : 2;
  if (channels_last) return 0;
  const program::ConvolutionSizes sizes{image[0],  image[1],  image[2] * image[3],   filter[1],    filter[2] * filter[3],
                                        filter[0], result[2] * result[3], std::max<std::int64_t>(image[1] / filter[1], 1), element_bytes};
  return program::convolution_copies(sizes, weight_gradient, settings().processors).bytes();
}

/// Queries [b, h, s, d] and keys.
void add_attention(const Contents& op, int q, int k, const char* name, Work* work) {
  work->name = std::string(name) + " query dimensions, key dimensions";
  work->type = type_of(op.child(q));
  append(&work->numbers, dimensions(op.child(q)));
  append(&work->numbers, dimensions(op.child(k)));
}

// ---- attention out of products ---------------------------------------------------------------------------------------------

/// Attention as cuDNN's frontend composes it: scores = Q Kᵀ first, all that follows from them, and two products in all (forward) or five.
struct Composed {
  Dimensions queries, keys;  ///< [b, h, s, d]
  std::int64_t value_dim = 0;
  record::Type type = record::Type::unknown;
  bool backward = false, causal = false, masked = false, dropout = false;
  std::int64_t shared_gradients = 0;  ///< elements of gradients of query heads that are summed over those of a key head
};

/// A sum over heads alone: dK or dV where query heads share a key head.
bool sums_heads(const Contents& reduction) {
  const Dimensions from = dimensions(reduction.child(kReductionX)), to = dimensions(reduction.child(kReductionY));
  return from.size() == 4 && to.size() == 4 && from[0] == to[0] && from[1] > to[1] && from[2] == to[2] && from[3] == to[3];
}

void add_pointwise(const Contents& op, const Dimensions& scores, Composed* attention) {
  constexpr int kAdd = 0, kIndex = 501;  // cudnnPointwiseMode_t
  const Shared how = op.child(kPointwiseMode);
  const std::vector<int> mode = how == nullptr ? std::vector<int>{} : how->get<int>(kMode);
  if (mode.empty() || dimensions(op.child(kPointwiseY)) != scores) return;
  attention->causal |= mode[0] == kIndex;
  attention->masked |= mode[0] == kAdd;
}

std::optional<Composed> composed_attention(const Contents& graph) {
  Composed attention;
  Dimensions scores;
  std::vector<Shared> products;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr) continue;
    if (op->kind == kMatmul) products.push_back(op);
    if (products.empty()) continue;
    scores = dimensions(products[0]->child(kMatmulC));
    if (op->kind == kPointwise) add_pointwise(*op, scores, &attention);
    if (op->kind == kRandom) attention.dropout = true;
    if (op->kind == kReduction && sums_heads(*op)) attention.shared_gradients += product_of(dimensions(op->child(kReductionX)));
  }
  if (products.size() != 2 && products.size() != 5) return {};
  attention.backward = products.size() == 5;
  attention.queries = dimensions(products[0]->child(kMatmulA));
  attention.keys = dimensions(products[0]->child(kMatmulB));
  const Dimensions values = dimensions(products[1]->child(attention.backward ? kMatmulA : kMatmulC));
  if (attention.queries.size() != 4 || attention.keys.size() != 4 || values.size() != 4) return {};
  std::swap(attention.keys[2], attention.keys[3]);
  attention.value_dim = values[3];
  attention.type = type_of(products[0]->child(kMatmulA));
  return attention;
}

Work work_of(const Composed& attention) {
  Work work;
  work.name = std::string(attention.backward ? "cudnn.attention_backward" : "cudnn.attention_forward") +
              " query dimensions, key dimensions, value's last, 1 + causal + 2 masked + 4 dropout";
  work.type = attention.type;
  append(&work.numbers, attention.queries);
  append(&work.numbers, attention.keys);
  append(&work.numbers, {attention.value_dim, 1 + attention.causal + 2 * attention.masked + 4 * attention.dropout});
  return work;
}

}  // namespace

Work work_of(const Contents& graph) {
  if (const auto attention = composed_attention(graph)) return work_of(*attention);
  Work work;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr) continue;
    switch (op->kind) {
      case kMatmul:
        add_matmul(*op, &work);
        break;
      case kConvolutionForward:
        add_convolution(*op, kConvForwardX, kConvForwardW, kConvForwardY, "cudnn.convolution_forward", &work);
        break;
      case kConvolutionData:
        add_convolution(*op, kConvDataX, kConvDataW, kConvDataY, "cudnn.convolution_data", &work);
        break;
      case kConvolutionFilter:
        add_convolution(*op, kConvFilterX, kConvFilterW, kConvFilterY, "cudnn.convolution_filter", &work);
        break;
      case kAttentionForward:
        add_attention(*op, kAttentionForwardQ, kAttentionForwardK, "cudnn.attention_forward", &work);
        break;
      case kAttentionBackward:
        add_attention(*op, kAttentionBackwardQ, kAttentionBackwardK, "cudnn.attention_backward", &work);
        break;
      default:
        break;
    }
  }
  if (work.name.empty()) work.name = "cudnn.graph";
  return work;
}

std::int64_t workspace_of(const Contents& graph) {
  constexpr std::int64_t kTileCounter = 4, kHalfPrecision = 2;
  if (const auto attention = composed_attention(graph)) return kTileCounter + attention->shared_gradients * kHalfPrecision;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr) continue;
    if (op->kind == kConvolutionForward) return convolution_workspace(*op, kConvForwardX, kConvForwardW, kConvForwardY, false);
    if (op->kind == kConvolutionData) return convolution_workspace(*op, kConvDataX, kConvDataW, kConvDataY, false);
    if (op->kind == kConvolutionFilter) return convolution_workspace(*op, kConvFilterX, kConvFilterW, kConvFilterY, true);
  }
  return 0;
}

}  // namespace plimsoll::device::cuda
