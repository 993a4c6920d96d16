// Convolutions, norms of channels, pools and interpolation of torch.nn.functional.
#include "program/ops/images.hpp"
#include "program/ops/placing.hpp"

#include <cmath>

#include "code/torch/arguments.hpp"
#include "program/ops/convolution.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

/// A number for each of `count` dimensions, or one for all.
Dims each_of(Interpreter& i, const Value& value, int count, std::int64_t otherwise, const char* what) {
  Dims made;
  const bool given = value.is_bound() && !value.is_none();
  const std::vector<Value> items = given && !value.is_integer() ? i.all_of(value) : std::vector<Value>{};
  if (!items.empty() && items.size() != 1 && static_cast<int>(items.size()) != count)
    torch_of(i).wrong_shape(std::string("expected ") + what + " to be a single integer value or a list of " + std::to_string(count) +
                            " values");
  for (int at = 0; at < count; ++at) {
    const std::int64_t number = !given              ? otherwise
                                : items.empty()     ? i.whole(value, what)
                                : items.size() == 1 ? i.whole(items[0], what)
                                                    : i.whole(items[static_cast<std::size_t>(at)], what);
    constexpr std::int64_t kMost = 1 << 24;
    if (number < 0 || number > kMost) torch_of(i).wrong_shape(std::string("negative or far too large ") + what + " is not supported");
    made.push_back(number);
  }
  return made;
}

void check_places(Interpreter& i, const Tensor& x, int dimensions, const char* what) {
  if (x.rank() != dimensions + 2)
    i.unknown(std::string(what) + " of " + std::to_string(x.rank()) + " dimensions", std::to_string(dimensions + 2) + ", a batch");
}

template <int kDimensions>
Value convolution(Interpreter& i, Bound& a) {
  Tensor x = input_of(i, a);
  const Tensor weight = torch_of(i).tensor_of(a[1], "weight"), bias = torch_of(i).tensor_or_none(a[2], "bias");
  torch_of(i).check_devices({&x, &weight, &bias});
  const bool unbatched = x.rank() == kDimensions + 1;  // batchify: one image is a batch of one
  if (unbatched) x = program::unsqueeze(x, 0);
  check_places(i, x, kDimensions, "a convolution");
  program::ConvolutionGeometry geometry;
  geometry.stride = each_of(i, a[3], kDimensions, 1, "stride");
  geometry.dilation = each_of(i, a[5], kDimensions, 1, "dilation");
  geometry.groups = a.has(6) ? i.whole(a[6], "groups") : 1;
  if (const auto* words = a[4].as<TextObject>()) {
    if (words->text != "valid" && words->text != "same") torch_of(i).wrong_shape("padding must be 'valid' or 'same'");
    Dims nothing = x.sizes(), behind = x.sizes();  // what an even window needs on one side more (_convolution_same)
    for (int at = 0; at < x.rank(); ++at) nothing[at] = behind[at] = 0;
    for (int at = 0; at < kDimensions; ++at) {
      const std::int64_t total = words->text == "same" ? geometry.dilation[at] * (weight.size(at + 2) - 1) : 0;
      geometry.padding.push_back(total / 2);
      behind[at + 2] = total % 2;
    }
    if (behind != nothing) x = program::padded(x, nothing, behind);
  } else {
    geometry.padding = each_of(i, a[4], kDimensions, 0, "padding");
  }
  if (weight.rank() != kDimensions + 2 || geometry.groups < 1 || x.size(1) != weight.size(1) * geometry.groups ||
      weight.size(0) % geometry.groups != 0)
    torch_of(i).wrong_shape("Given groups=" + std::to_string(geometry.groups) + ", expected input to have " +
                            std::to_string(weight.rank() > 1 ? weight.size(1) * geometry.groups : 0) + " channels, but got " +
                            std::to_string(x.size(1)) + " channels instead");
  for (int at = 0; at < kDimensions; ++at)
    if (geometry.stride[at] < 1 || geometry.dilation[at] < 1 ||
        x.size(at + 2) + 2 * geometry.padding[at] < geometry.dilation[at] * (weight.size(at + 2) - 1) + 1)
      torch_of(i).wrong_shape("Kernel size can't be greater than actual input size");
  const Tensor made = program::convolution(x, weight, bias, geometry);
  return torch_of(i).wrap(unbatched ? program::squeeze(made, 0) : made);
}

Value group_norm(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), weight = torch_of(i).tensor_or_none(a[2], "weight"), bias = torch_of(i).tensor_or_none(a[3], "bias");
  torch_of(i).check_devices({&x, &weight, &bias});
  const std::int64_t groups = i.whole(a[1], "num_groups");
  if (x.rank() < 2 || groups < 1 || x.size(1) % groups != 0)
    torch_of(i).wrong_shape("Expected number of channels in input to be divisible by num_groups");
  return torch_of(i).wrap(program::group_norm(x, weight, bias, groups));
}

Value batch_norm(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), mean = torch_of(i).tensor_or_none(a[1], "running_mean"),
               variance = torch_of(i).tensor_or_none(a[2], "running_var"), weight = torch_of(i).tensor_or_none(a[3], "weight"),
               bias = torch_of(i).tensor_or_none(a[4], "bias");
  torch_of(i).check_devices({&x, &mean, &variance, &weight, &bias});
  const bool by_batch = flag(i, a, 5);
  if ((bias && !weight) || (!by_batch && (!weight || !bias))) i.unknown("batch_norm with a bias alone, or by running statistics without both");
  if (x.rank() < 2 || (weight && x.size(1) != weight.size(0))) torch_of(i).wrong_shape("running_mean should contain as many elements as channels");
  if (by_batch) {
    Tensor y = program::batch_norm(x, weight, bias, mean.defined());
    if (mean && variance && !x.tape().cudnn) program::in_place(mean, {&mean, &variance});  // ATen's kernel that moves both averages on
    return torch_of(i).wrap(std::move(y));
  }
  return torch_of(i).wrap(program::batch_norm_by(x, weight, bias, mean, variance));
}

std::int64_t pooled_extent(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding, bool up) {
  const std::int64_t span = size + 2 * padding - kernel + (up ? stride - 1 : 0);
  std::int64_t places = (span >= 0 ? span / stride : -((stride - 1 - span) / stride)) + 1;  // pooling_output_shape_pad_lr, div_rtn
  if (up && (places - 1) * stride >= size + padding) --places;
  return places;
}

/// max_pool(input, kernel_size, stride, padding, dilation, ceil_mode), avg_pool(input, kernel_size, stride, padding, ceil_mode).
template <int kDimensions, program::Pooling kKind>
Value pool(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  check_places(i, x, kDimensions, "a pool");
  const bool largest = kKind == program::Pooling::maximum;
  const Dims kernel = each_of(i, a[1], kDimensions, 1, "kernel_size"), padding = each_of(i, a[3], kDimensions, 0, "padding");
  const Dims stride = a.has(2) ? each_of(i, a[2], kDimensions, 1, "stride") : kernel;
  if (largest && each_of(i, a[4], kDimensions, 1, "dilation") != each_of(i, {}, kDimensions, 1, "dilation"))
    i.unknown("a pool with dilation");
  Dims places;
  for (int at = 0; at < kDimensions; ++at) {
    const bool up = flag(i, a, largest ? 5 : 4);
    if (kernel[at] < 1 || stride[at] < 1 || (!up && x.size(at + 2) + 2 * padding[at] < kernel[at]))
      torch_of(i).wrong_shape("the pool's window is larger than its input, or empty");
    places.push_back(pooled_extent(x.size(at + 2), kernel[at], stride[at], padding[at], up));
    if (places[-1] < 1) torch_of(i).wrong_shape("Calculated output size is too small");
  }
  return torch_of(i).wrap(program::pooled(x, places, kKind));
}

template <int kDimensions, program::Pooling kKind>
Value adaptive_pool(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  check_places(i, x, kDimensions, "a pool");
  Dims places;
  const std::vector<Value> given = a[1].is_integer() ? std::vector<Value>(kDimensions, a[1]) : i.all_of(a[1]);
  if (given.size() != kDimensions) torch_of(i).wrong_shape("output_size must have as many numbers as dimensions are pooled");
  bool one = true;
  for (int at = 0; at < kDimensions; ++at) {
    const Value& each = given[static_cast<std::size_t>(at)];
    places.push_back(each.is_none() ? x.size(at + 2) : i.whole(each, "output_size"));
    if (places[at] < 1) torch_of(i).wrong_shape("elements of output_size must be greater than or equal to 0");
    one = one && places[at] == 1;
  }
  if (kKind == program::Pooling::adaptive_average && one && kDimensions == 2) return torch_of(i).wrap(program::global_average_pool(x));
  return torch_of(i).wrap(program::pooled(x, places, kKind));
}

Value interpolate(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimensions = x.rank() - 2;
  if (dimensions < 1 || dimensions > 3) i.unknown("interpolate() of " + std::to_string(x.rank()) + " dimensions", "3, 4 or 5");
  const std::string mode = a.has(3) ? i.words(a[3], "modes") : "nearest";
  const bool nearest = mode == "nearest" || mode == "nearest-exact";
  if (!nearest && mode != "linear" && mode != "bilinear" && mode != "bicubic" && mode != "trilinear")
    i.unknown("interpolate() with mode '" + mode + "'");
  Dims places;
  if (a.has(1)) {
    places = each_of(i, a[1], dimensions, 1, "size");
  } else if (a.has(2)) {
    const std::vector<Value> factors = a[2].is_number() ? std::vector<Value>(static_cast<std::size_t>(dimensions), a[2]) : i.all_of(a[2]);
    if (static_cast<int>(factors.size()) != dimensions) torch_of(i).wrong_shape("scale_factor shape must match input shape");
    for (int at = 0; at < dimensions; ++at) {
      const double size = static_cast<double>(x.size(at + 2)) * i.number(factors[static_cast<std::size_t>(at)], "scale_factor");
      if (!(size >= 1 && size < 0x1p40)) torch_of(i).wrong_shape("Input and output sizes should be greater than 0");
      places.push_back(static_cast<std::int64_t>(std::floor(size)));
    }
  } else {
    torch_of(i).wrong_shape("either size or scale_factor should be defined");
  }
  std::vector<std::int64_t> sizes{x.size(0), x.size(1)};
  for (int at = 0; at < dimensions; ++at) {
    if (places[at] < 1) torch_of(i).wrong_shape("Input and output sizes should be greater than 0");
    sizes.push_back(places[at]);
  }
  (void)torch_of(i).checked(std::move(sizes));
  return torch_of(i).wrap(program::resized(x, places, nearest ? "upsample_nearest" : "upsample"));
}

Value grid_sample(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), grid = torch_of(i).tensor_of(a[1], "grid");
  torch_of(i).check_devices({&x, &grid});
  if (x.rank() != 4 || grid.rank() != 4 || grid.size(3) != 2 || grid.size(0) != x.size(0))
    i.unknown("grid_sample of other than images [N, C, H, W] at grids [N, H, W, 2]");
  if (x.dtype() != grid.dtype()) torch_of(i).wrong_shape("grid_sampler(): expected input and grid to have same dtype");
  return torch_of(i).wrap(program::grid_sample(x, grid));
}

/// F.unfold(input, kernel_size, dilation, padding, stride).
Value image_to_columns(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  check_places(i, x, 2, "unfold()");
  const Dims kernel = each_of(i, a[1], 2, 1, "kernel_size"), dilation = each_of(i, a[2], 2, 1, "dilation"),
             padding = each_of(i, a[3], 2, 0, "padding"), stride = each_of(i, a[4], 2, 1, "stride");
  std::int64_t places = 1;
  for (int at = 0; at < 2; ++at) {
    if (kernel[at] < 1 || stride[at] < 1 || dilation[at] < 1 || x.size(at + 2) + 2 * padding[at] < dilation[at] * (kernel[at] - 1) + 1)
      torch_of(i).wrong_shape("the window is larger than its input, or empty");
    places *= program::convolved_extent(x.size(at + 2), kernel[at], stride[at], padding[at], dilation[at]);
  }
  return torch_of(i).wrap(program::image_to_columns(x, kernel.product(), places));
}

/// F.fold(input, output_size, kernel_size, dilation, padding, stride).
Value columns_to_image(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.rank() != 3) i.unknown("fold() of " + std::to_string(x.rank()) + " dimensions", "3, a batch");
  const Dims size = each_of(i, a[1], 2, 1, "output_size"), kernel = each_of(i, a[2], 2, 1, "kernel_size"),
             dilation = each_of(i, a[3], 2, 1, "dilation"), padding = each_of(i, a[4], 2, 0, "padding"),
             stride = each_of(i, a[5], 2, 1, "stride");
  std::int64_t places = 1;
  for (int at = 0; at < 2; ++at) {
    if (kernel[at] < 1 || stride[at] < 1 || dilation[at] < 1 || size[at] + 2 * padding[at] < dilation[at] * (kernel[at] - 1) + 1)
      torch_of(i).wrong_shape("the window is larger than its output, or empty");
    places *= program::convolved_extent(size[at], kernel[at], stride[at], padding[at], dilation[at]);
  }
  if (x.size(1) % kernel.product() != 0 || x.size(2) != places)
    torch_of(i).wrong_shape("Given output_size and kernel_size, expected input of " + std::to_string(places) + " sliding blocks");
  return torch_of(i).wrap(program::columns_to_image(x, torch_of(i).checked({x.size(0), x.size(1) / kernel.product(), size[0], size[1]})));
}

template <bool kBack>
Value shuffle(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  check_places(i, x, 2, "a shuffle of pixels");
  const std::int64_t factor = i.whole(a[1], "factors");
  const bool fits = factor >= 1 && factor < (1 << 15) &&
                    (kBack ? x.size(2) % factor == 0 && x.size(3) % factor == 0 : x.size(1) % (factor * factor) == 0);
  if (!fits) torch_of(i).wrong_shape("the factor of a shuffle of pixels does not divide its input");
  return torch_of(i).wrap(kBack ? program::pixel_unshuffle(x, factor) : program::pixel_shuffle(x, factor));
}

using program::Pooling;

constexpr const char* kConvolution = "input, weight, bias=, stride=, padding=, dilation=, groups=";
constexpr const char* kMaximum = "input, kernel_size, stride=, padding=, dilation=, ceil_mode=";
constexpr const char* kAverage = "input, kernel_size, stride=, padding=, ceil_mode=, count_include_pad=";

constexpr LibraryRow kRows[] = {
    {"conv1d", kConvolution, convolution<1>},
    {"conv2d", kConvolution, convolution<2>},
    {"conv3d", kConvolution, convolution<3>},
    {"group_norm", "input, num_groups, weight=, bias=, eps=", group_norm},
    {"batch_norm", "input, running_mean, running_var, weight=, bias=, training=, momentum=, eps=", batch_norm},
    {"max_pool1d", kMaximum, pool<1, Pooling::maximum>},
    {"max_pool2d", kMaximum, pool<2, Pooling::maximum>},
    {"avg_pool1d", kAverage, pool<1, Pooling::average>},
    {"avg_pool2d", kAverage, pool<2, Pooling::average>},
    {"adaptive_avg_pool1d", "input, output_size", adaptive_pool<1, Pooling::adaptive_average>},
    {"adaptive_avg_pool2d", "input, output_size", adaptive_pool<2, Pooling::adaptive_average>},
    {"adaptive_max_pool2d", "input, output_size", adaptive_pool<2, Pooling::adaptive_maximum>},
    {"interpolate", "input, size=, scale_factor=, mode=, align_corners=, recompute_scale_factor=, antialias=", interpolate},
    {"grid_sample", "input, grid, mode=, padding_mode=, align_corners=", grid_sample},
    {"unfold", "input, kernel_size, dilation=, padding=, stride=", image_to_columns},
    {"fold", "input, output_size, kernel_size, dilation=, padding=, stride=", columns_to_image},
    {"pixel_shuffle", "input, upscale_factor", shuffle<false>},
    {"pixel_unshuffle", "input, downscale_factor", shuffle<true>},
};

}  // namespace

void define_images(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn.functional");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("torch.nn.functional.") + row.name, row.signature, row.run);
}

}  // namespace plimsoll::code
