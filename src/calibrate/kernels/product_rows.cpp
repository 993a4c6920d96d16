// Rows of kernels that arithmetic bounds: rates on registers, matrix products, attention.
#include "calibrate/kernels/table_parts.hpp"

namespace plimsoll::calibrate {
namespace {

const std::vector<Scalar> kIterations{{"iterations", ScalarType::i32, scalar<1>}};
const std::vector<Scalar> kMatrix{{"m", ScalarType::i32, scalar<0>}, {"n", ScalarType::i32, scalar<1>}, {"k", ScalarType::i32, scalar<2>}};
const std::vector<Scalar> kHeads{{"heads", ScalarType::i32, scalar<0>},
                                 {"kv_heads", ScalarType::i32, scalar<1>},
                                 {"sequence", ScalarType::i32, scalar<2>},
                                 {"causal", ScalarType::i32, scalar<3>}};

template <int rows, int columns>
Launch gemm_grid(const Sizes& s, const DeviceShape&) {
  return grid(ceil_div(s[0], rows) * ceil_div(s[1], columns));
}
Launch attention_grid(const Sizes& s, const DeviceShape&) { return grid(s[0] * (s[2] / 128)); }
Launch attention_backward_grid(const Sizes& s, const DeviceShape&) { return grid(s[1] * (s[2] / 64)); }
// Blocks of 128 queries or keys with all that they share. Of the forward pass keys and values twice: 64 of them, or 128 and the queries.
// Of the backward pass their keys and values; twice 128 queries, or 64, with their gradients and two numbers each; and gradients of scores,
// of 64 queries twice.
template <int width>
Launch attention_group_grid(const Sizes& s, const DeviceShape&) {
  return {static_cast<std::uint32_t>(s[0] * (s[2] / 128)), kBlockThreads, (width == 64 ? 4 * 64 : 5 * 128) * width * 2};
}
template <int width>
Launch attention_backward_group_grid(const Sizes& s, const DeviceShape&) {
  constexpr int kQueries = width == 64 ? 128 : 64;
  return {static_cast<std::uint32_t>(s[1] * (s[2] / 128)), kBlockThreads,
          2 * 128 * width * 2 + 2 * (2 * kQueries * width * 2 + 2 * kQueries * 4) + 128 * 128 * 2};
}
template <int width>
Launch attention_delta_grid(const Sizes& s, const DeviceShape&) {
  return grid(std::clamp<std::int64_t>(ceil_div(s[0] * width, 8 * kBlockThreads), 1, 1 << 20));
}

template <int element>
Work vector_rate_work(const Sizes& s, const DeviceShape&) {
  const double threads = static_cast<double>(s[0]) * kBlockThreads;
  return {0, element * threads, 2.0 * kVectorRateChains * static_cast<double>(s[1]) * threads};
}
// The accumulators of a wave: four of 16 x 16, two of 32 x 32; of Hopper's groups of four waves: one of 64 x 256.
constexpr RateTiles kNarrowTiles{16, 16, 4}, kWideTiles{32, 32, 2}, kGroupTiles{64, 256, 1};
constexpr int kGroupLanes = 128;

template <int element, int result, const RateTiles& shape>
Work matrix_rate_work(const Sizes& s, const DeviceShape& device) {
  const int lanes = shape.rows == kGroupTiles.rows ? kGroupLanes : device.wave();
  const double holders = static_cast<double>(s[0]) * kBlockThreads / lanes, values = shape.rows * shape.columns * shape.tiles;
  const double operands = (shape.rows + shape.columns * shape.tiles) * kMatrixRateBytes;
  return {operands, result * values, holders * static_cast<double>(s[1]) * 2 * values * kMatrixRateBytes / element};
}
template <int element, int result>
Work gemm_work(const Sizes& s, const DeviceShape&) {
  const double m = static_cast<double>(s[0]), n = static_cast<double>(s[1]), k = static_cast<double>(s[2]);
  return {element * (m + n) * k, result * m * n, 2 * m * n * k};
}
// Pairs of a query and a key that it sees.
double attention_pairs(const Sizes& s) {
  const double n = static_cast<double>(s[2]);
  return s[3] ? n * (n + 1) / 2 : n * n;
}
// Two products of queries and keys.
template <int width>
Work attention_work(const Sizes& s, const DeviceShape&) {
  const double heads = static_cast<double>(s[0]), kv_heads = static_cast<double>(s[1]), n = static_cast<double>(s[2]);
  return {2.0 * width * n * (heads + 2 * kv_heads), (2.0 * width + 4) * n * heads, 4 * heads * attention_pairs(s) * width};
}
// Five: scores again, dO·Vᵀ, and one for each gradient. Q, dO and two numbers per query are read and dQ, in fp32, is added to; K and V
// are read and their gradients written.
template <int width>
Work attention_backward_work(const Sizes& s, const DeviceShape&) {
  const double n = static_cast<double>(s[2]), queries = static_cast<double>(s[0]) * n, keys = static_cast<double>(s[1]) * n;
  return {(4.0 * width + 8) * queries + 4.0 * width * (queries + keys), 4.0 * width * (queries + keys),
          10 * static_cast<double>(s[0]) * attention_pairs(s) * width};
}
template <int width>
Work attention_delta_work(const Sizes& s, const DeviceShape&) {
  const double rows = static_cast<double>(s[0]);
  return {4.0 * width * rows, 4 * rows, 2.0 * width * rows};
}

template <int k_step>
std::string cannot_gemm(const Sizes& s) {
  if (s[2] % k_step != 0) return fmt::format("k ({}) must be a multiple of {}", s[2], k_step);
  for (const std::int64_t value : s) {
    if (value > kMostInt) return fmt::format("{} is beyond 32 bits", value);
  }
  return {};
}
std::string cannot_attention(const Sizes& s) {
  if (s[0] % s[1] != 0) return fmt::format("heads ({}) must be a multiple of kv_heads ({})", s[0], s[1]);
  return s[2] % 128 == 0 ? std::string{} : fmt::format("sequence ({}) must be a multiple of 128", s[2]);
}

template <int width, DType type = DType::bf16>
Check attention_check(const Answer& answer) {
  return check_attention(answer, type, width);
}
template <int width, DType type>
Check attention_pass_backward_check(const Answer& answer) {
  return check_attention_pass_backward(answer, type, width);
}
template <int width>
Check attention_delta_check(const Answer& answer) {
  return check_attention_delta(answer, width);
}
template <int width>
Check attention_backward_check(const Answer& answer) {
  return check_attention_backward(answer, width);
}
constexpr double kTf32Error = 1.0 / 512;  // both factors cut to 10 bits of mantissa
template <DType operand, DType result>
Check gemm_check(const Answer& answer) {
  return check_gemm(answer, {operand, result});
}
Check gemm_tf32_check(const Answer& answer) { return check_gemm(answer, {DType::fp32, DType::fp32, kTf32Error}); }
template <DType operand, DType result, const RateTiles& shape>
Check matrix_rate_check(const Answer& answer) {
  return check_matrix_rate(answer, {operand, result}, shape);
}
template <const RateTiles& shape>
Check matrix_rate_tf32_check(const Answer& answer) {
  return check_matrix_rate(answer, {DType::fp32, DType::fp32, kTf32Error}, shape);
}

template <DType operand, DType result, const RateTiles& shape>
Kernel matrix_rate(std::string_view name, TargetList targets, Check (*check)(const Answer&), std::string_view doc) {
  constexpr int element = static_cast<int>(size_of(operand));
  return {name,
          KernelKind::matrix_rate,
          operand,
          {"blocks", "iterations"},
          {{"a", operand, Role::in, Fill::uniform, fixed<shape.rows * kMatrixRateBytes / element>},
           {"b", operand, Role::in, Fill::uniform, fixed<shape.columns * shape.tiles * kMatrixRateBytes / element>},
           {"out", result, Role::out, Fill::zeros, fixed<shape.rows * shape.columns * shape.tiles>}},
          kIterations,
          std::move(targets),
          by_size<0>,
          matrix_rate_work<element, static_cast<int>(size_of(result)), shape>,
          any_sizes,
          check,
          doc};
}
template <DType operand, DType result, const RateTiles& shape>
Kernel matrix_rate(std::string_view name, TargetList targets, std::string_view doc) {
  return matrix_rate<operand, result, shape>(name, std::move(targets), matrix_rate_check<operand, result, shape>, doc);
}

template <DType operand, DType result, int k_step, int columns = 128>
Kernel gemm(std::string_view name, TargetList targets, Check (*check)(const Answer&), std::string_view doc) {
  return {name,
          KernelKind::gemm,
          operand,
          {"m", "n", "k"},
          {{"a", operand, Role::in, Fill::uniform, product<0, 2>},
           {"b", operand, Role::in, Fill::uniform, product<1, 2>},
           {"c", result, Role::out, Fill::zeros, product<0, 1>}},
          kMatrix,
          std::move(targets),
          gemm_grid<128, columns>,
          gemm_work<static_cast<int>(size_of(operand)), static_cast<int>(size_of(result))>,
          cannot_gemm<k_step>,
          check,
          doc};
}

using LaunchFunction = decltype(Kernel::launch);

template <int width, DType type = DType::bf16>
Kernel attention(std::string_view name, TargetList targets = kEverywhere, LaunchFunction launch = attention_grid) {
  constexpr auto queries = [](const Sizes& s) { return s[0] * s[2] * width; };
  constexpr auto keys = [](const Sizes& s) { return s[1] * s[2] * width; };
  return {name,
          KernelKind::attention,
          type,
          {"heads", "kv_heads", "sequence", "causal"},
          {{"q", type, Role::in, Fill::uniform, queries},
           {"k", type, Role::in, Fill::uniform, keys},
           {"v", type, Role::in, Fill::uniform, keys},
           {"out", type, Role::out, Fill::zeros, queries},
           {"log_sum", DType::fp32, Role::out, Fill::zeros, product<0, 2>}},
          kHeads,
          std::move(targets),
          launch,
          attention_work<width>,
          cannot_attention,
          attention_check<width, type>,
          "attention forward without a matrix of scores; heads counts those of all sequences"};
}

template <int width>
Kernel attention_delta(std::string_view name) {
  constexpr auto elements = [](const Sizes& s) { return s[0] * width; };
  return {name,
          KernelKind::attention_delta,
          DType::bf16,
          {"rows"},
          {{"gradient", DType::bf16, Role::in, Fill::uniform, elements},
           {"output", DType::bf16, Role::in, Fill::uniform, elements},
           {"delta", DType::fp32, Role::out, Fill::zeros, size<0>}},
          {{"rows", ScalarType::u64, scalar<0>}},
          kEverywhere,
          attention_delta_grid<width>,
          attention_delta_work<width>,
          any_sizes,
          attention_delta_check<width>,
          "what attention backward begins with"};
}

template <int width>
Kernel attention_backward(std::string_view name, TargetList targets = kEverywhere, LaunchFunction launch = attention_backward_grid) {
  constexpr auto queries = [](const Sizes& s) { return s[0] * s[2] * width; };
  constexpr auto keys = [](const Sizes& s) { return s[1] * s[2] * width; };
  return {name,
          KernelKind::attention_backward,
          DType::bf16,
          {"heads", "kv_heads", "sequence", "causal"},
          {{"q", DType::bf16, Role::in, Fill::uniform, queries},
           {"k", DType::bf16, Role::in, Fill::uniform, keys},
           {"v", DType::bf16, Role::in, Fill::uniform, keys},
           {"gradient", DType::bf16, Role::in, Fill::uniform, queries},
           {"log_sum", DType::fp32, Role::in, Fill::positive, product<0, 2>},
           {"delta", DType::fp32, Role::in, Fill::uniform, product<0, 2>},
           {"dq", DType::fp32, Role::in_out, Fill::small, queries},
           {"dk", DType::bf16, Role::out, Fill::zeros, keys},
           {"dv", DType::bf16, Role::out, Fill::zeros, keys}},
          kHeads,
          std::move(targets),
          launch,
          attention_backward_work<width>,
          cannot_attention,
          attention_backward_check<width>,
          "attention backward: five products, dQ summed in memory"};
}

/// A whole backward pass as a library runs it: δ, five products, dQ as it is in the end.
template <int width, DType type>
Kernel attention_pass_backward() {
  constexpr auto queries = [](const Sizes& s) { return s[0] * s[2] * width; };
  constexpr auto keys = [](const Sizes& s) { return s[1] * s[2] * width; };
  return {"attention_backward",
          KernelKind::attention_backward,
          type,
          {"heads", "kv_heads", "sequence", "causal"},
          {{"q", type, Role::in, Fill::uniform, queries},
           {"k", type, Role::in, Fill::uniform, keys},
           {"v", type, Role::in, Fill::uniform, keys},
           {"out", type, Role::in, Fill::uniform, queries},
           {"log_sum", DType::fp32, Role::in, Fill::positive, product<0, 2>},
           {"gradient", type, Role::in, Fill::uniform, queries},
           {"dq", type, Role::out, Fill::zeros, queries},
           {"dk", type, Role::out, Fill::zeros, keys},
           {"dv", type, Role::out, Fill::zeros, keys}},
          kHeads,
          {},
          attention_backward_grid,
          attention_backward_work<width>,
          cannot_attention,
          attention_pass_backward_check<width, type>,
          "attention backward by a library"};
}

template <int width, DType type>
void add_passes(std::map<AttentionPass, Kernel>& passes) {
  passes.emplace(AttentionPass{type, width, false}, attention<width, type>("attention", {}));
  passes.emplace(AttentionPass{type, width, true}, attention_pass_backward<width, type>());
}

void add_rates(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16, fp16 = DType::fp16, fp8 = DType::fp8, fp32 = DType::fp32, fp64 = DType::fp64;
  const auto threads = [](const Sizes& s) { return s[0] * kBlockThreads; };
  table.push_back({"vector_rate_fp32",
                   KernelKind::vector_rate,
                   fp32,
                   {"blocks", "iterations"},
                   {{"out", fp32, Role::out, Fill::zeros, threads}},
                   kIterations,
                   kEverywhere,
                   by_size<0>,
                   vector_rate_work<4>,
                   any_sizes,
                   check_vector_rate_fp32,
                   "multiply-adds on vector registers"});
  table.push_back({"vector_rate_fp64",
                   KernelKind::vector_rate,
                   fp64,
                   {"blocks", "iterations"},
                   {{"out", fp64, Role::out, Fill::zeros, threads}},
                   kIterations,
                   kEverywhere,
                   by_size<0>,
                   vector_rate_work<8>,
                   any_sizes,
                   check_vector_rate_fp64,
                   "multiply-adds on vector registers"});
  constexpr std::string_view kDoc = "matrix instructions on registers alone (NVIDIA: mma.sync)", kWide = "the 32 x 32 forms of the same";
  table.push_back(matrix_rate<bf16, fp32, kNarrowTiles>("matrix_rate_bf16", kDevices, kDoc));
  table.push_back(matrix_rate<fp16, fp32, kNarrowTiles>("matrix_rate_fp16", kDevices, kDoc));
  table.push_back(matrix_rate<fp8, fp32, kNarrowTiles>("matrix_rate_fp8", kFp8, kDoc));
  table.push_back(matrix_rate<fp32, fp32, kNarrowTiles>("matrix_rate_fp32", kAmd, kDoc));
  table.push_back(matrix_rate<fp32, fp32, kNarrowTiles>("matrix_rate_tf32", kNvidia, matrix_rate_tf32_check<kNarrowTiles>, kDoc));
  table.push_back(matrix_rate<fp64, fp64, kNarrowTiles>("matrix_rate_fp64", kDevices, kDoc));
  table.push_back(matrix_rate<bf16, fp32, kWideTiles>("matrix_rate_bf16_32x32", kAmd, kWide));
  table.push_back(matrix_rate<fp16, fp32, kWideTiles>("matrix_rate_fp16_32x32", kAmd, kWide));
  table.push_back(matrix_rate<fp8, fp32, kWideTiles>("matrix_rate_fp8_32x32", kAmdFp8, kWide));
  table.push_back(matrix_rate<fp32, fp32, kWideTiles>("matrix_rate_fp32_32x32", kAmd, kWide));
  constexpr std::string_view kGroup = "Hopper's warp-group instructions, operands in shared memory";
  table.push_back(matrix_rate<bf16, fp32, kGroupTiles>("matrix_rate_bf16_wgmma", kHopper, kGroup));
  table.push_back(matrix_rate<fp16, fp32, kGroupTiles>("matrix_rate_fp16_wgmma", kHopper, kGroup));
  table.push_back(matrix_rate<fp8, fp32, kGroupTiles>("matrix_rate_fp8_wgmma", kHopper, kGroup));
  table.push_back(matrix_rate<fp32, fp32, kGroupTiles>("matrix_rate_tf32_wgmma", kHopper, matrix_rate_tf32_check<kGroupTiles>, kGroup));
}

void add_gemms(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16, fp16 = DType::fp16, fp8 = DType::fp8, fp32 = DType::fp32, fp64 = DType::fp64;
  constexpr std::string_view kDoc = "C = A·Bᵀ, both operands contiguous along k", kGroup = "the same with Hopper's warp-group instructions";
  // Before the others: a target that has them takes them.
  table.push_back(gemm<bf16, bf16, 32, 256>("gemm_bf16_wgmma", kHopper, gemm_check<bf16, bf16>, kGroup));
  table.push_back(gemm<fp16, fp16, 32, 256>("gemm_fp16_wgmma", kHopper, gemm_check<fp16, fp16>, kGroup));
  table.push_back(gemm<fp8, bf16, 64, 256>("gemm_fp8_wgmma", kHopper, gemm_check<fp8, bf16>, kGroup));
  table.push_back(gemm<fp32, fp32, 16, 256>("gemm_tf32_wgmma", kHopper, gemm_tf32_check, kGroup));
  table.push_back(gemm<bf16, bf16, 32>("gemm_bf16", kEverywhere, gemm_check<bf16, bf16>, kDoc));
  table.push_back(gemm<fp16, fp16, 32>("gemm_fp16", kDevices, gemm_check<fp16, fp16>, kDoc));
  table.push_back(gemm<fp8, bf16, 128>("gemm_fp8", kFp8, gemm_check<fp8, bf16>, kDoc));
  table.push_back(gemm<fp32, fp32, 16>("gemm_fp32", kAmd + kCpu, gemm_check<fp32, fp32>, kDoc));
  table.push_back(gemm<fp32, fp32, 16>("gemm_tf32", kNvidia, gemm_tf32_check, kDoc));
  table.push_back(gemm<fp64, fp64, 8>("gemm_fp64", kEverywhere, gemm_check<fp64, fp64>, kDoc));
}

}  // namespace

const std::map<AttentionPass, Kernel>& attention_passes() {
  static const std::map<AttentionPass, Kernel> passes = [] {
    std::map<AttentionPass, Kernel> made;
    add_passes<64, DType::bf16>(made);
    add_passes<128, DType::bf16>(made);
    add_passes<256, DType::bf16>(made);
    add_passes<64, DType::fp16>(made);
    add_passes<128, DType::fp16>(made);
    add_passes<256, DType::fp16>(made);
    return made;
  }();
  return passes;
}

void add_product_rows(std::vector<Kernel>& table) {
  add_rates(table);
  add_gemms(table);
  table.push_back(attention<64>("attention_bf16_d64_wgmma", kHopper, attention_group_grid<64>));
  table.push_back(attention<128>("attention_bf16_d128_wgmma", kHopper, attention_group_grid<128>));
  table.push_back(attention<64>("attention_bf16_d64"));
  table.push_back(attention<128>("attention_bf16_d128"));
  table.push_back(attention_delta<64>("attention_delta_bf16_d64"));
  table.push_back(attention_delta<128>("attention_delta_bf16_d128"));
  table.push_back(attention_backward<64>("attention_backward_bf16_d64_wgmma", kHopper, attention_backward_group_grid<64>));
  table.push_back(attention_backward<128>("attention_backward_bf16_d128_wgmma", kHopper, attention_backward_group_grid<128>));
  table.push_back(attention_backward<64>("attention_backward_bf16_d64"));
  table.push_back(attention_backward<128>("attention_backward_bf16_d128"));
}

}  // namespace plimsoll::calibrate
