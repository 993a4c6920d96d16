#include "cudnn_work.hpp"

#include <algorithm>

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

}  // namespace

Work work_of(const Contents& graph, const Contents& pack) {
  if (const auto attention = attention_of(graph, pack)) return *attention;
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
      default:
        break;
    }
  }
  if (work.name.empty()) work.name = "cudnn.graph";
  return work;
}

std::int64_t workspace_of(const Contents& graph) {
  if (const auto bytes = attention_workspace(graph)) return *bytes;
  for (const Shared& op : graph.children(kGraphOperations)) {
    if (op == nullptr) continue;
    if (op->kind == kConvolutionForward) return convolution_workspace(*op, kConvForwardX, kConvForwardW, kConvForwardY, false);
    if (op->kind == kConvolutionData) return convolution_workspace(*op, kConvDataX, kConvDataW, kConvDataY, false);
    if (op->kind == kConvolutionFilter) return convolution_workspace(*op, kConvFilterX, kConvFilterW, kConvFilterY, true);
  }
  return 0;
}

}  // namespace plimsoll::device::cuda
