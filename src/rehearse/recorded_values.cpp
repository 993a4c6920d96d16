#include "rehearse/recorded_values.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

#include "program/attention_pass.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostRanks = 10'000'000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60U;

/// The numbers of a call, each at least 1 and small enough that three of them multiply.
std::vector<std::int64_t> sizes_in(std::string_view bytes, std::uint32_t count) {
  constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
  std::vector<std::int64_t> sizes(std::min<std::size_t>(count, bytes.size() / sizeof(std::int64_t)));
  std::memcpy(sizes.data(), bytes.data(), sizes.size() * sizeof(std::int64_t));
  for (std::int64_t& size : sizes) size = std::clamp<std::int64_t>(size, 1, kMostSize);
  return sizes;
}

/// The rank, then the dimensions of image [n, c, …], filter [k, c / groups, …] and result [n, k, …].
std::optional<Kernel> convolution(const std::string& name, DType type, const std::vector<std::int64_t>& sizes) {
  const std::size_t rank = sizes.empty() ? 0 : static_cast<std::size_t>(sizes[0]);
  if (rank < 3 || rank > 5 || sizes.size() < 1 + 3 * rank) return {};
  const auto places = [&](std::size_t part) {
    double product = 1;
    for (std::size_t i = 2; i < rank; ++i) product *= static_cast<double>(sizes[1 + part * rank + i]);
    return static_cast<std::int64_t>(std::min(product, 1e15));
  };
  Convolution c;
  c.pass = name == "cudnn.convolution_data"     ? Convolution::Pass::input_gradient
           : name == "cudnn.convolution_filter" ? Convolution::Pass::weight_gradient
                                                : Convolution::Pass::forward;
  c.type = type;
  c.batch = sizes[1];
  c.in = sizes[2];
  c.out = sizes[1 + rank];
  c.groups = std::max<std::int64_t>(c.in / sizes[2 + rank], 1);
  c.image = places(0);
  c.window = places(1);
  c.result = places(2);
  return Kernel{c};
}

/// Batch normalization of [n, c, …]: a channel's numbers are read for their statistics and once more to be normalized, backward beside their
/// gradients (bn_fw_tr_1C11 and bn_bw_1C11 take a block of threads a channel); with given statistics once.
std::optional<Kernel> batch_normalization(const std::string& name, DType type, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() < 2) return {};
  double all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<double>(size);
  const auto elements = static_cast<std::int64_t>(std::min(all, 1e15));
  const Operand image{elements, type};
  if (name == "cudnn.batch_normalization_inference")
    return Kernel{Pointwise{Pointwise::Form::fused, elements, Operands({image}, {image})}};
  const bool backward = name == "cudnn.batch_normalization_backward";
  Operands operands({image, image}, {image});
  if (backward) operands = Operands({image, image, image, image}, {image});
  return Kernel{RowWise{backward ? RowWise::Function::group_norm_backward : RowWise::Function::group_norm, sizes[1],
                        std::max<std::int64_t>(1, elements / sizes[1]), operands}};
}

/// Queries [b, h, s, d], then keys; of a graph whose masks are known the values' last dimension, 1 + causal + 2 masked + 4 dropout, and
/// 1 + the window.
Attention attention_of(AttentionLibrary library, bool backward, DType type, const std::vector<std::int64_t>& sizes) {
  Attention a;
  a.library = library;
  a.part = backward ? Attention::Part::backward : Attention::Part::forward;
  a.type = type;
  a.batch = sizes[0], a.heads = sizes[1], a.queries = sizes[2], a.head_dim = a.value_dim = sizes[3];
  a.kv_heads = sizes[5], a.keys = sizes[6];
  if (sizes.size() < 10) return a;
  const std::int64_t flags = sizes[9] - 1;
  a.value_dim = sizes[8];
  a.causal = (flags & 1) != 0, a.masked = (flags & 2) != 0, a.dropout = (flags & 4) != 0;
  if (sizes.size() > 10) a.window = sizes[10] - 1;
  return a;
}

/// The kernels of cuDNN's attention on sm_90, as a trace shows them: forward one; backward the row sums, the gradients, dQ in the inputs'
/// type and, where query heads share a key head, the sums over them. Their tiles share a counter, which is set before.
LibraryWork attention(bool backward, DType type, const std::vector<std::int64_t>& sizes) {
  constexpr std::int64_t kTileCounter = 4;
  if (sizes.size() != 8 && sizes.size() != 10 && sizes.size() != 11) return {};
  const Attention a = attention_of(AttentionLibrary::cudnn, backward, type, sizes);
  if (sizes.size() == 8) {  // whether a mask is causal is not recorded: all pairs are counted, and no more than that is said
    const Kernel whole{a};
    return {0, {Kernel{Unspecified{whole.kind(), type, whole.flops(), whole.bytes_read(), whole.bytes_written()}}}};
  }
  LibraryWork work{kTileCounter, {}};
  for (const Attention& kernel : kernels_of_pass(a)) work.kernels.push_back({kernel});
  return work;
}

/// flash-attn's, whose sums over query heads that share a key head are PyTorch's.
LibraryWork flash_attention(bool backward, DType type, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() != 11) return {};
  LibraryWork work;
  for (const Attention& kernel : kernels_of_pass(attention_of(AttentionLibrary::flash2, backward, type, sizes)))
    if (kernel.part != Attention::Part::sum_heads) work.kernels.push_back({kernel});
  return work;
}

}  // namespace

DType type_of(record::Type type) {
  switch (type) {
    case record::Type::f64:
      return DType::fp64;
    case record::Type::f16:
      return DType::fp16;
    case record::Type::bf16:
    case record::Type::i16:
    case record::Type::u16:
      return DType::bf16;
    case record::Type::f8_e4m3:
    case record::Type::f8_e5m2:
    case record::Type::f8_e8m0:
    case record::Type::f4_e2m1:
    case record::Type::f6_e2m3:
    case record::Type::f6_e3m2:
      return DType::fp8;
    case record::Type::i64:
    case record::Type::u64:
      return DType::int64;
    case record::Type::i32:
    case record::Type::u32:
      return DType::int32;
    case record::Type::i8:
    case record::Type::i4:
      return DType::int8;
    case record::Type::u8:
      return DType::uint8;
    case record::Type::c64:
    case record::Type::c128:
      return DType::complex64;
    default:
      return DType::fp32;
  }
}

Epilogue epilogue_of(std::uint16_t code) {
  switch (code) {
    case 4:
      return Epilogue::bias;
    case 32:
    case 160:  // and the argument of gelu is kept
      return Epilogue::gelu;
    case 36:
    case 164:
      return Epilogue::bias_gelu;
    case 192:
    case 208:  // and the bias' gradient
      return Epilogue::gelu_gradient;
    case 256:
    case 512:
      return Epilogue::bias_gradient;
    default:
      return Epilogue::none;
  }
}

Product product_of(record::Gemm call) {
  if (call.row_major != 0) {  // the same memory in columns: everything transposed
    std::swap(call.m, call.n);
    std::swap(call.a, call.b);
    std::swap(call.transpose_a, call.transpose_b);
  }
  Product product;
  product.m = call.m;
  product.n = call.n;
  product.k = call.k;
  product.batch = std::max<std::int64_t>(call.batch, 1);
  product.transpose_a = call.transpose_a != 0;
  product.transpose_b = call.transpose_b != 0;
  product.a = type_of(call.a);
  product.b = type_of(call.b);
  product.result = type_of(call.d);
  if (call.compute == record::Compute::tf32) product.arithmetic = Arithmetic::tf32;
  if (product.a == DType::fp8) product.scaling = Scaling::tensor;
  product.epilogue = epilogue_of(call.epilogue);
  const std::int64_t distances = 16 | (product.transpose_a ? call.k : call.m) * size_of(product.a) |
                                 (product.transpose_b ? call.n : call.k) * size_of(product.b) | call.m * size_of(product.result);
  product.alignment = static_cast<std::int16_t>(distances & -distances);
  return product;
}

LibraryWork library_work(const std::string& name, DType type, std::string_view numbers, std::uint32_t count) {
  const std::vector<std::int64_t> sizes = sizes_in(numbers, count);
  if (name.find("cudnn.convolution") == 0) {
    const auto kernel = convolution(name, type, sizes);
    return kernel ? LibraryWork{0, {*kernel}} : LibraryWork{};
  }
  if (name.find("cudnn.batch_normalization") == 0) {
    const auto kernel = batch_normalization(name, type, sizes);
    return kernel ? LibraryWork{0, {*kernel}} : LibraryWork{};
  }
  if (name.find("cudnn.attention") == 0) return attention(name == "cudnn.attention_backward", type, sizes);
  if (name.find("flash_attn.attention") == 0) return flash_attention(name == "flash_attn.attention_backward", type, sizes);
  return {};
}

CollectiveKind kind_of(record::Collective op) {
  switch (op) {
    case record::Collective::all_reduce:
      return CollectiveKind::all_reduce;
    case record::Collective::all_gather:
      return CollectiveKind::all_gather;
    case record::Collective::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case record::Collective::all_to_all:
    case record::Collective::all_to_all_v:
    case record::Collective::gather:
    case record::Collective::scatter:
      return CollectiveKind::all_to_all;
    case record::Collective::send:
      return CollectiveKind::send;
    case record::Collective::receive:
      return CollectiveKind::receive;
    default:
      return CollectiveKind::broadcast;  // a reduction to one rank moves what a broadcast moves
  }
}

std::int64_t full_bytes(CollectiveKind kind, std::int64_t argument, std::int64_t ranks) {
  const bool share = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
  const double whole = static_cast<double>(argument) * static_cast<double>(std::max<std::int64_t>(ranks, 1));
  return !share ? argument : whole < 1e18 ? argument * std::max<std::int64_t>(ranks, 1) : kMostBytes;
}

std::int64_t plus(std::int64_t sum, std::int64_t change) {
  return std::clamp(sum + std::clamp(change, -kMostBytes, kMostBytes), -kMostBytes, kMostBytes);
}

std::int64_t signed_bytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 60U));
}

namespace {

/// Those in a text, with blanks between; none where any is larger.
std::vector<std::int64_t> whole_numbers(const std::string& text, std::int64_t most) {
  std::vector<std::int64_t> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || number > most) return {};
    numbers.push_back(number);
    at = next;
    while (at < end && *at == ' ') ++at;
  }
  return numbers;
}

}  // namespace

std::vector<std::int64_t> numbers_in(const std::string& text) { return whole_numbers(text, kMostRanks); }

std::optional<record::Gemm> grouped_product(const std::string& text) {
  const std::vector<std::int64_t> numbers = numbers_in(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (numbers.size() != 7 || std::any_of(numbers.begin(), numbers.end(), [](std::int64_t each) { return each < 0 || each > kMost; }))
    return {};
  record::Gemm product{};
  product.m = numbers[0];
  product.n = numbers[1];
  product.k = numbers[2];
  product.batch = static_cast<decltype(product.batch)>(std::min<std::int64_t>(numbers[3], 1 << 20));
  product.transpose_a = numbers[5] != 0;
  product.transpose_b = numbers[6] != 0;
  product.a = product.b = numbers[4] == 1 ? record::Type::f8_e4m3 : record::Type::bf16;
  product.c = product.d = record::Type::bf16;
  return product;
}

std::optional<Attention> flex_attention(const std::string& text) {
  constexpr std::int64_t kMostHeads = 1 << 20, kMostLength = 1 << 26, kMostDim = 1 << 12;
  const std::vector<std::int64_t> numbers = whole_numbers(text, kMostBytes);
  if (numbers.size() != 10) return {};
  const auto within = [&](std::size_t i, std::int64_t most) { return numbers[i] >= 1 && numbers[i] <= most; };
  for (const std::size_t i : {1, 2, 3})
    if (!within(i, kMostHeads)) return {};
  if (!within(4, kMostLength) || !within(5, kMostLength) || !within(6, kMostDim) || !within(7, kMostDim)) return {};
  Attention a;
  a.library = AttentionLibrary::flex;
  a.part = numbers[0] != 0 ? Attention::Part::backward : Attention::Part::forward;
  a.type = numbers[8] == 4 ? DType::fp32 : DType::bf16;
  a.batch = numbers[1], a.heads = numbers[2], a.kv_heads = std::min(numbers[3], numbers[2]);
  a.queries = numbers[4], a.keys = numbers[5], a.head_dim = numbers[6], a.value_dim = numbers[7];
  const std::int64_t pairs = std::clamp<std::int64_t>(numbers[9], 1, a.queries * a.keys);
  a.causal = a.queries == a.keys && 2 * pairs == a.queries * a.keys;
  if (!a.causal && pairs < a.queries * a.keys) a.window = std::max<std::int64_t>(1, pairs / a.queries);
  return a;
}

}  // namespace plimsoll::rehearse
