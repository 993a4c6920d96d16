#include "calibrate/kernels/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "calibrate/kernels/references.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using TargetList = std::vector<Target>;
const TargetList kAmd{Target::gfx90a, Target::gfx942, Target::gfx950};
const TargetList kAmdFp8{Target::gfx942, Target::gfx950};
const TargetList kNvidia{Target::sm_80, Target::sm_90, Target::sm_90a};

TargetList operator+(TargetList a, const TargetList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
const TargetList kHopper{Target::sm_90a};
const TargetList kCpu{Target::cpu};
const TargetList kDevices = kAmd + kNvidia;
const TargetList kEverywhere = kDevices + kCpu;
const TargetList kFp8 = kAmdFp8 + TargetList{Target::sm_90, Target::sm_90a};

// ---- counts and scalars ---------------------------------------------------------------------------------------------------------------

template <int i>
std::int64_t size(const Sizes& s) {
  return s[i];
}
template <int i, int j>
std::int64_t product(const Sizes& s) {
  return s[i] * s[j];
}
template <std::int64_t count>
std::int64_t fixed(const Sizes&) {
  return count;
}
template <int i>
double scalar(const Sizes& s) {
  return static_cast<double>(s[i]);
}

double adam_correction1(const Sizes&) { return 1 / (1 - std::pow(AdamConstants::beta1, AdamConstants::step)); }
double adam_correction2(const Sizes&) { return 1 / (1 - std::pow(AdamConstants::beta2, AdamConstants::step)); }

const std::vector<Scalar> kCount{{"count", ScalarType::u64, scalar<0>}};
const std::vector<Scalar> kIterations{{"iterations", ScalarType::i32, scalar<1>}};
const std::vector<Scalar> kMatrix{{"m", ScalarType::i32, scalar<0>}, {"n", ScalarType::i32, scalar<1>}, {"k", ScalarType::i32, scalar<2>}};
const std::vector<Scalar> kHeads{{"heads", ScalarType::i32, scalar<0>},
                                 {"kv_heads", ScalarType::i32, scalar<1>},
                                 {"sequence", ScalarType::i32, scalar<2>},
                                 {"causal", ScalarType::i32, scalar<3>}};
const std::vector<Scalar> kAdam{{"count", ScalarType::u64, scalar<0>},
                                {"rate", ScalarType::f32, [](const Sizes&) { return AdamConstants::rate; }},
                                {"beta1", ScalarType::f32, [](const Sizes&) { return AdamConstants::beta1; }},
                                {"beta2", ScalarType::f32, [](const Sizes&) { return AdamConstants::beta2; }},
                                {"epsilon", ScalarType::f32, [](const Sizes&) { return AdamConstants::epsilon; }},
                                {"decay", ScalarType::f32, [](const Sizes&) { return AdamConstants::decay; }},
                                {"correction1", ScalarType::f32, adam_correction1},
                                {"correction2", ScalarType::f32, adam_correction2}};
const std::vector<Scalar> kCollective{{"count", ScalarType::u64, scalar<0>},
                                      {"ranks", ScalarType::i32, scalar<1>},
                                      {"rank", ScalarType::i32, nullptr},
                                      {"epoch", ScalarType::i32, nullptr}};

// ---- launches ---------------------------------------------------------------------------------------------------------------------------

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
Launch grid(std::int64_t blocks) { return {static_cast<std::uint32_t>(blocks), kBlockThreads}; }

Launch one_block(const Sizes&, const DeviceShape&) { return grid(1); }
// One 16-byte access of the widest buffer per thread (of 4 or 8 elements).
template <int elements>
Launch by_element(const Sizes& s, const DeviceShape&) {
  return grid(std::min<std::int64_t>(std::max<std::int64_t>(ceil_div(s[0], elements * kBlockThreads), 1), 1 << 30));
}
template <int i>
Launch by_size(const Sizes& s, const DeviceShape&) {
  return grid(s[i]);
}
Launch gemm_grid(const Sizes& s, const DeviceShape&) { return grid(ceil_div(s[0], 128) * ceil_div(s[1], 128)); }
Launch attention_grid(const Sizes& s, const DeviceShape&) { return grid(s[0] * (s[2] / 128)); }
Launch transpose_grid(const Sizes& s, const DeviceShape&) { return grid(ceil_div(s[0], 64) * ceil_div(s[1], 64)); }
Launch collective_grid(const Sizes&, const DeviceShape& device) { return grid(std::clamp(device.compute_units, 1, kCollectiveBlocks)); }

// ---- work -------------------------------------------------------------------------------------------------------------------------------

template <int read, int written, int flops>
Work per_element(const Sizes& s, const DeviceShape&) {
  const double n = static_cast<double>(s[0]);
  return {read * n, written * n, flops * n};
}
// rows x columns, and `read_row`, `written_row` bytes per row, `shared` bytes per column.
template <int read, int written, int flops, int read_row = 0, int written_row = 0, int shared = 0>
Work per_matrix_element(const Sizes& s, const DeviceShape&) {
  const double rows = static_cast<double>(s[0]), columns = static_cast<double>(s[1]), n = rows * columns;
  return {read * n + read_row * rows + shared * columns, written * n + written_row * rows, flops * n};
}
Work no_work(const Sizes&, const DeviceShape&) { return {0, 0, 0}; }
Work cache_read_work(const Sizes& s, const DeviceShape&) {
  const double threads = static_cast<double>(s[2]) * kBlockThreads, vectors = threads * static_cast<double>(s[1]);
  return {16 * vectors, 4 * threads, 4 * vectors};
}
Work chase_work(const Sizes& s, const DeviceShape&) { return {4 * static_cast<double>(s[1]), 4, 0}; }
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
// Two products of queries and keys; causal ones of the pairs that are not masked.
template <int width>
Work attention_work(const Sizes& s, const DeviceShape&) {
  const double heads = static_cast<double>(s[0]), kv_heads = static_cast<double>(s[1]), n = static_cast<double>(s[2]);
  const double pairs = s[3] ? n * (n + 1) / 2 : n * n;
  return {2.0 * width * n * (heads + 2 * kv_heads), (2.0 * width + 4) * n * heads, 4 * heads * pairs * width};
}
// Of one rank. What it reads from peers and itself, what it writes, and the additions.
template <int element>
Work all_reduce_work(const Sizes& s, const DeviceShape&) {
  const double n = static_cast<double>(s[0]), ranks = static_cast<double>(s[1]);
  return {element * (n + n * (ranks - 1) / ranks), element * n, n * (ranks - 1) / ranks};
}
Work all_gather_work(const Sizes& s, const DeviceShape&) {
  const double moved = 4 * static_cast<double>(s[0]) * (static_cast<double>(s[1]) - 1) / static_cast<double>(s[1]);
  return {moved, moved, 0};
}
Work reduce_scatter_work(const Sizes& s, const DeviceShape&) {
  const double n = static_cast<double>(s[0]), ranks = static_cast<double>(s[1]);
  return {4 * n, 4 * n / ranks, n * (ranks - 1) / ranks};
}

// ---- what sizes a kernel can run -------------------------------------------------------------------------------------------------------

constexpr std::int64_t kMostInt = 2147483647;

std::string any_sizes(const Sizes&) { return {}; }
template <int i, std::int64_t factor>
std::string multiple(const Sizes& s) {
  if (s[i] % factor == 0) return {};
  return fmt::format("size {} ({}) must be a multiple of {}", i + 1, s[i], factor);
}
std::string cannot_cache_read(const Sizes& s) {
  const std::int64_t chunks = s[0] / (4 * kBlockThreads);
  if (s[0] % (4 * kBlockThreads) != 0 || (chunks & (chunks - 1)) != 0) {
    return fmt::format("count ({}) must be {} times a power of two", s[0], 4 * kBlockThreads);
  }
  return multiple<1, 4>(s);
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
template <int factor>
std::string cannot_rows(const Sizes& s) {
  return s[1] % factor == 0 && s[1] <= kMostInt ? std::string{} : fmt::format("columns ({}) must be a multiple of {}", s[1], factor);
}
std::string cannot_transpose(const Sizes& s) {
  return s[0] % 8 == 0 && s[1] % 8 == 0 ? std::string{} : fmt::format("rows ({}) and columns ({}) must be multiples of 8", s[0], s[1]);
}
template <int vector>
std::string cannot_collect(const Sizes& s) {
  if (s[1] < 2 || s[1] > kCollectiveRanks) return fmt::format("ranks ({}) must be 2 … {}", s[1], kCollectiveRanks);
  return s[0] % (s[1] * vector) == 0 ? std::string{} : fmt::format("count ({}) must be a multiple of {} x ranks", s[0], vector);
}

// ---- checks with parameters ------------------------------------------------------------------------------------------------------------

template <int width>
Check attention_check(const Answer& answer) {
  return check_attention(answer, width);
}
template <DType type>
Check all_reduce_check(const Answer& answer) {
  return check_all_reduce(answer, type);
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

// ---- rows -------------------------------------------------------------------------------------------------------------------------------

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

template <DType operand, DType result, int k_step>
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
          gemm_grid,
          gemm_work<static_cast<int>(size_of(operand)), static_cast<int>(size_of(result))>,
          cannot_gemm<k_step>,
          check,
          doc};
}

template <int width>
Kernel attention(std::string_view name) {
  constexpr auto queries = [](const Sizes& s) { return s[0] * s[2] * width; };
  constexpr auto keys = [](const Sizes& s) { return s[1] * s[2] * width; };
  return {name,
          KernelKind::attention,
          DType::bf16,
          {"heads", "kv_heads", "sequence", "causal"},
          {{"q", DType::bf16, Role::in, Fill::uniform, queries},
           {"k", DType::bf16, Role::in, Fill::uniform, keys},
           {"v", DType::bf16, Role::in, Fill::uniform, keys},
           {"out", DType::bf16, Role::out, Fill::zeros, queries},
           {"log_sum", DType::fp32, Role::out, Fill::zeros, product<0, 2>}},
          kHeads,
          kEverywhere,
          attention_grid,
          attention_work<width>,
          cannot_attention,
          attention_check<width>,
          "attention forward without a matrix of scores; heads counts those of all sequences"};
}

template <DType type>
Kernel adam(std::string_view name, Check (*check)(const Answer&)) {
  Kernel row{name,
             KernelKind::adam,
             type,
             {"count"},
             {{"gradient", type, Role::in, Fill::small, size<0>},
              {"p", DType::fp32, Role::in_out, Fill::uniform, size<0>},
              {"m", DType::fp32, Role::in_out, Fill::small, size<0>},
              {"v", DType::fp32, Role::in_out, Fill::positive, size<0>}},
             kAdam,
             kEverywhere,
             by_element<4>,
             type == DType::fp32 ? per_element<16, 12, 17> : per_element<14, 14, 17>,
             multiple<0, 4>,
             check,
             "fused AdamW step: 28 bytes per parameter"};
  if (type != DType::fp32) row.buffers.push_back({"copy", type, Role::out, Fill::zeros, size<0>});
  return row;
}

template <DType type>
Kernel collective(std::string_view name, KernelKind kind, Work (*work)(const Sizes&, const DeviceShape&), Check (*check)(const Answer&),
                  std::string_view doc) {
  return {name,
          kind,
          type,
          {"count", "ranks"},
          {{"data", type, Role::in_out, Fill::uniform, size<0>, true},
           {"flags", DType::int32, Role::in_out, Fill::zeros, fixed<kCollectiveBlocks * kCollectiveRanks>, true}},
          kCollective,
          kDevices,
          collective_grid,
          work,
          cannot_collect<16 / static_cast<int>(size_of(type))>,
          check,
          doc};
}

void add_streaming(std::vector<Kernel>& table) {
  const auto fp32 = DType::fp32;
  table.push_back(
      {"empty", KernelKind::empty, fp32, {}, {}, {}, kEverywhere, one_block, no_work, any_sizes, check_nothing, "launch latency"});
  table.push_back({"copy",
                   KernelKind::copy,
                   fp32,
                   {"count"},
                   {{"source", fp32, Role::in, Fill::uniform, size<0>}, {"destination", fp32, Role::out, Fill::zeros, size<0>}},
                   kCount,
                   kEverywhere,
                   by_element<4>,
                   per_element<4, 4, 0>,
                   multiple<0, 4>,
                   check_copy,
                   "memory bandwidth, one read and one write"});
  table.push_back({"triad",
                   KernelKind::triad,
                   fp32,
                   {"count"},
                   {{"b", fp32, Role::in, Fill::uniform, size<0>},
                    {"c", fp32, Role::in, Fill::uniform, size<0>},
                    {"a", fp32, Role::out, Fill::zeros, size<0>}},
                   {{"count", ScalarType::u64, scalar<0>}, {"scale", ScalarType::f32, [](const Sizes&) { return 0.4; }}},
                   kEverywhere,
                   by_element<4>,
                   per_element<8, 4, 2>,
                   multiple<0, 4>,
                   check_triad,
                   "memory bandwidth, two reads and one write"});
}

void add_caches(std::vector<Kernel>& table) {
  const auto fp32 = DType::fp32;
  table.push_back({"cache_read",
                   KernelKind::cache_read,
                   fp32,
                   {"count", "passes", "blocks"},
                   {{"source", fp32, Role::in, Fill::uniform, size<0>},
                    {"sums", fp32, Role::out, Fill::zeros, [](const Sizes& s) { return s[2] * kBlockThreads; }}},
                   {{"count", ScalarType::u64, scalar<0>}, {"passes", ScalarType::i32, scalar<1>}},
                   kEverywhere,
                   by_size<2>,
                   cache_read_work,
                   cannot_cache_read,
                   check_cache_read,
                   "read bandwidth of the smallest cache that holds count elements; every block reads passes x 4 KiB"});
  table.push_back({"pointer_chase",
                   KernelKind::pointer_chase,
                   DType::int32,
                   {"count", "steps"},
                   {{"next", DType::int32, Role::in, Fill::chain, size<0>}, {"last", DType::int32, Role::out, Fill::zeros, fixed<1>}},
                   {{"steps", ScalarType::i32, scalar<1>}},
                   kEverywhere,
                   one_block,
                   chase_work,
                   any_sizes,
                   check_pointer_chase,
                   "latency of a dependent load from count elements"});
}

void add_pointwise(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16;
  table.push_back({"add_bf16",
                   KernelKind::add,
                   bf16,
                   {"count"},
                   {{"a", bf16, Role::in, Fill::uniform, size<0>},
                    {"b", bf16, Role::in, Fill::uniform, size<0>},
                    {"y", bf16, Role::out, Fill::zeros, size<0>}},
                   kCount,
                   kEverywhere,
                   by_element<8>,
                   per_element<4, 2, 1>,
                   multiple<0, 8>,
                   check_add,
                   "residual addition"});
  table.push_back({"swiglu_bf16",
                   KernelKind::swiglu,
                   bf16,
                   {"count"},
                   {{"gate", bf16, Role::in, Fill::uniform, size<0>},
                    {"up", bf16, Role::in, Fill::uniform, size<0>},
                    {"y", bf16, Role::out, Fill::zeros, size<0>}},
                   kCount,
                   kEverywhere,
                   by_element<8>,
                   per_element<4, 2, 5>,
                   multiple<0, 8>,
                   check_swiglu,
                   "silu(gate) · up"});
}

void add_casts(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16, fp32 = DType::fp32;
  table.push_back({"cast_fp32_bf16",
                   KernelKind::cast,
                   fp32,
                   {"count"},
                   {{"x", fp32, Role::in, Fill::uniform, size<0>}, {"y", bf16, Role::out, Fill::zeros, size<0>}},
                   kCount,
                   kEverywhere,
                   by_element<4>,
                   per_element<4, 2, 0>,
                   multiple<0, 4>,
                   check_cast_fp32_bf16,
                   "weights to working precision"});
  table.push_back({"cast_bf16_fp32",
                   KernelKind::cast,
                   bf16,
                   {"count"},
                   {{"x", bf16, Role::in, Fill::uniform, size<0>}, {"y", fp32, Role::out, Fill::zeros, size<0>}},
                   kCount,
                   kEverywhere,
                   by_element<4>,
                   per_element<2, 4, 0>,
                   multiple<0, 4>,
                   check_cast_bf16_fp32,
                   "gradients to fp32"});
  table.push_back({"transpose_bf16",
                   KernelKind::transpose,
                   bf16,
                   {"rows", "columns"},
                   {{"x", bf16, Role::in, Fill::uniform, product<0, 1>}, {"y", bf16, Role::out, Fill::zeros, product<0, 1>}},
                   {{"rows", ScalarType::i32, scalar<0>}, {"columns", ScalarType::i32, scalar<1>}},
                   kEverywhere,
                   transpose_grid,
                   per_matrix_element<2, 2, 0>,
                   cannot_transpose,
                   check_transpose,
                   "transpose through shared memory"});
}

void add_rows(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16, fp32 = DType::fp32;
  table.push_back({"rmsnorm_bf16",
                   KernelKind::rmsnorm,
                   bf16,
                   {"rows", "columns"},
                   {{"x", bf16, Role::in, Fill::uniform, product<0, 1>},
                    {"weight", bf16, Role::in, Fill::uniform, size<1>},
                    {"y", bf16, Role::out, Fill::zeros, product<0, 1>}},
                   {{"columns", ScalarType::i32, scalar<1>}, {"epsilon", ScalarType::f32, [](const Sizes&) { return kNormEpsilon; }}},
                   kEverywhere,
                   by_size<0>,
                   per_matrix_element<2, 2, 4, 0, 0, 2>,
                   cannot_rows<8>,
                   check_rmsnorm,
                   "RMSNorm with weight"});
  table.push_back({"softmax_fp32",
                   KernelKind::softmax,
                   fp32,
                   {"rows", "columns"},
                   {{"x", fp32, Role::in, Fill::uniform, product<0, 1>}, {"y", fp32, Role::out, Fill::zeros, product<0, 1>}},
                   {{"columns", ScalarType::i32, scalar<1>}},
                   kEverywhere,
                   by_size<0>,
                   per_matrix_element<4, 4, 5>,
                   cannot_rows<4>,
                   check_softmax,
                   "softmax over rows"});
  table.push_back({"cross_entropy_bf16",
                   KernelKind::cross_entropy,
                   bf16,
                   {"rows", "columns"},
                   {{"logits", bf16, Role::in, Fill::uniform, product<0, 1>},
                    {"target", DType::int32, Role::in, Fill::target_class, size<0>},
                    {"loss", fp32, Role::out, Fill::zeros, size<0>},
                    {"gradient", bf16, Role::out, Fill::zeros, product<0, 1>}},
                   {{"columns", ScalarType::i32, scalar<1>},
                    {"scale", ScalarType::f32, [](const Sizes& s) { return 1.0 / static_cast<double>(s[0]); }}},
                   kEverywhere,
                   by_size<0>,
                   per_matrix_element<2, 2, 6, 6, 4>,
                   cannot_rows<8>,
                   check_cross_entropy,
                   "loss and gradient of logits in one kernel"});
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
  constexpr std::string_view kDoc = "C = A·Bᵀ, both operands contiguous along k";
  table.push_back(gemm<bf16, bf16, 32>("gemm_bf16", kEverywhere, gemm_check<bf16, bf16>, kDoc));
  table.push_back(gemm<fp16, fp16, 32>("gemm_fp16", kDevices, gemm_check<fp16, fp16>, kDoc));
  table.push_back(gemm<fp8, bf16, 128>("gemm_fp8", kFp8, gemm_check<fp8, bf16>, kDoc));
  table.push_back(gemm<fp32, fp32, 16>("gemm_fp32", kAmd + kCpu, gemm_check<fp32, fp32>, kDoc));
  table.push_back(gemm<fp32, fp32, 16>("gemm_tf32", kNvidia, gemm_tf32_check, kDoc));
  table.push_back(gemm<fp64, fp64, 8>("gemm_fp64", kEverywhere, gemm_check<fp64, fp64>, kDoc));
}

std::vector<Kernel> make_table() {
  std::vector<Kernel> table;
  add_streaming(table);
  add_caches(table);
  add_pointwise(table);
  add_casts(table);
  add_rates(table);
  add_gemms(table);
  table.push_back(attention<64>("attention_bf16_d64"));
  table.push_back(attention<128>("attention_bf16_d128"));
  add_rows(table);
  table.push_back(adam<DType::fp32>("adam_fp32", check_adam_fp32));
  table.push_back(adam<DType::bf16>("adam_mixed", check_adam_mixed));
  constexpr std::string_view kSum = "every rank sums its slice over all, then collects the others' slices",
                             kGather = "every rank collects the others' slices";
  table.push_back(
      collective<DType::fp32>("all_reduce_fp32", KernelKind::all_reduce, all_reduce_work<4>, all_reduce_check<DType::fp32>, kSum));
  table.push_back(
      collective<DType::bf16>("all_reduce_bf16", KernelKind::all_reduce, all_reduce_work<2>, all_reduce_check<DType::bf16>, kSum));
  table.push_back(collective<DType::fp32>("all_gather_fp32", KernelKind::all_gather, all_gather_work, check_all_gather, kGather));
  table.push_back(collective<DType::fp32>("reduce_scatter_fp32", KernelKind::reduce_scatter, reduce_scatter_work, check_reduce_scatter,
                                          "every rank sums its slice over all"));
  return table;
}

}  // namespace

std::string_view name_of(Target target) {
  switch (target) {
    case Target::gfx90a:
      return "gfx90a";
    case Target::gfx942:
      return "gfx942";
    case Target::gfx950:
      return "gfx950";
    case Target::sm_80:
      return "sm_80";
    case Target::sm_90:
      return "sm_90";
    case Target::sm_90a:
      return "sm_90a";
    case Target::cpu:
      return "cpu";
  }
  fail("no such target", {}, {});
}

Target target_named(std::string_view name, bool& found) {
  const std::string_view processor = name.substr(0, name.find(':'));
  found = true;
  for (const Target target : all_targets) {
    if (processor == name_of(target)) return target;
  }
  found = false;
  return Target::cpu;
}

Fp8Format fp8_format(Target target) { return target == Target::gfx942 ? Fp8Format::e4m3_fnuz : Fp8Format::e4m3_ocp; }

std::int32_t DeviceShape::wave() const {
  switch (target) {
    case Target::gfx90a:
    case Target::gfx942:
    case Target::gfx950:
      return 64;
    case Target::cpu:
      return 1;
    default:
      return 32;
  }
}

std::string_view name_of(KernelKind kind) {
  constexpr std::string_view names[] = {"empty", "copy",      "triad",   "cache_read", "pointer_chase", "vector_rate",   "matrix_rate",
                                        "gemm",  "attention", "rmsnorm", "softmax",    "cross_entropy", "swiglu",        "add",
                                        "adam",  "transpose", "cast",    "all_reduce", "all_gather",    "reduce_scatter"};
  return names[static_cast<std::size_t>(kind)];
}

bool Kernel::runs_on(Target target) const { return std::find(targets.begin(), targets.end(), target) != targets.end(); }

bool Kernel::collective() const {
  return kind == KernelKind::all_reduce || kind == KernelKind::all_gather || kind == KernelKind::reduce_scatter;
}

const std::vector<Kernel>& kernel_table() {
  static const std::vector<Kernel> table = make_table();
  return table;
}

const Kernel& kernel_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.name == name) return kernel;
    names.emplace_back(kernel.name);
  }
  fail(fmt::format("no calibration kernel is called '{}'", name), {}, suggest(name, names));
}

const Kernel* find_kernel(KernelKind kind, DType type, Target target) {
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.kind == kind && kernel.type == type && kernel.runs_on(target)) return &kernel;
  }
  return nullptr;
}

PackedArguments::PackedArguments(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers,
                                 const std::vector<double>& at_launch) {
  if (buffers.size() != kernel.buffers.size())
    fail(fmt::format("{} takes {} buffers, not {}", kernel.name, kernel.buffers.size(), buffers.size()));
  for (void* buffer : buffers) values_.push_back(reinterpret_cast<std::uintptr_t>(buffer));
  std::size_t given = 0;
  for (const Scalar& scalar_row : kernel.scalars) {
    if (!scalar_row.value && given == at_launch.size()) fail(fmt::format("{} is launched without its {}", kernel.name, scalar_row.name));
    const double value = scalar_row.value ? scalar_row.value(sizes) : at_launch[given++];
    std::uint64_t bits = 0;
    if (scalar_row.type == ScalarType::f32) {
      const float narrow = static_cast<float>(value);
      std::memcpy(&bits, &narrow, sizeof narrow);
    } else {
      bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(value));  // little-endian: the low half is the i32
    }
    values_.push_back(bits);
  }
  for (std::uint64_t& value : values_) pointers_.push_back(&value);
}

Check check_answer(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, const std::vector<HostBuffers>& before,
                   const std::vector<HostBuffers>& after) {
  return kernel.check({sizes, device, before, after});
}

}  // namespace plimsoll::calibrate
