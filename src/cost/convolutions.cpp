// Time of convolutions: implicit products.
#include <algorithm>

#include "cost/memory_time.hpp"
#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

const Sourced<double>& share_of(Convolution::Pass pass, const ConvolutionShares& shares) {
  switch (pass) {
    case Convolution::Pass::forward:
      return shares.forward;
    case Convolution::Pass::input_gradient:
      return shares.input_gradient;
    case Convolution::Pass::weight_gradient:
      return shares.weight_gradient;
  }
  return shares.forward;
}

constexpr std::int64_t kVector = 16;  ///< bytes of neighbouring channels that are read at once
/// Channels that a step of the product takes, in bytes: the threadblock's k (32 of 16 bits). Where the filter's places are walked one by
/// one, the last step of each is taken whole (CUTLASS, conv/threadblock/conv2d_fprop_activation_tile_access_iterator_optimized.h).
constexpr std::int64_t kStep = 64;

std::int64_t padded(std::int64_t channels, DType type, std::int64_t bytes) {
  return round_up(channels, bytes / size_of(type));
}

/// Each channel by itself: there is no product of matrices in it. Lanes multiply and add the window of every place, with the loads, bounds and
/// conversions of each (ATen/native/cuda/DepthwiseConv2d.cu; cuDNN's …_c1_k1_nhwc kernels do no less).
Seconds depthwise_time(const Convolution& convolution, const Accelerator& device) {
  const cost::KernelLaw& law = cost::kernel_constants().depthwise;
  const double batch = static_cast<double>(convolution.batch), image = batch * static_cast<double>(convolution.in * convolution.image);
  const double results = batch * static_cast<double>(convolution.out * convolution.result);
  const double bytes = (image + results) * static_cast<double>(size_of(convolution.type));
  const Seconds issue = cost::issue_time(device, law.instructions * results * static_cast<double>(convolution.window));
  return law.start + cost::overlapped(issue, cost::traffic_time(device, bytes, KernelKind::convolution));
}

}  // namespace

Product as_product(const Convolution& convolution) {
  Product product;
  const std::int64_t out = convolution.out / convolution.groups, places = convolution.batch * convolution.result;
  const std::int64_t in = convolution.in / convolution.groups, vectors_in = padded(in, convolution.type, kVector);
  product.a = product.b = product.result = convolution.type;
  product.batch = convolution.groups;
  switch (convolution.pass) {
    case Convolution::Pass::forward:
      product.m = out, product.n = places, product.k = padded(in, convolution.type, kStep) * convolution.window;
      product.transpose_a = true;
      break;
    case Convolution::Pass::input_gradient:  // a place of the image is under window · result / image places of the filter
      product.m = vectors_in, product.n = convolution.batch * convolution.image;
      product.k = std::max<std::int64_t>(1, padded(out, convolution.type, kStep) * convolution.window * convolution.result / convolution.image);
      break;
    case Convolution::Pass::weight_gradient:
      product.m = vectors_in * convolution.window, product.n = out, product.k = places;
      product.transpose_b = true;
      break;
  }
  return product;
}

Seconds price(const Convolution& convolution, const Accelerator& device, const Surroundings& around) {
  if (convolution.groups > 1 && convolution.in == convolution.groups) return depthwise_time(convolution, device);
  Product product = as_product(convolution);
  const bool has_tf32 = std::any_of(device.rates.begin(), device.rates.end(), [](const auto& rate) { return rate.type == MathType::tf32; });
  if (convolution.type == DType::fp32 && has_tf32) product.arithmetic = Arithmetic::tf32;  // PyTorch's default for convolutions
  ProductPlan plan = plan_product(product, device, around);
  plan.compute = plan.compute / share_of(convolution.pass, device.gemm.convolution).value;
  return plan.time();
}

}  // namespace plimsoll
