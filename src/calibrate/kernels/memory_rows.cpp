// Rows of kernels that memory bounds: streams, caches, element by element, row by row, casts and Adam.
#include "calibrate/kernels/table_parts.hpp"

namespace plimsoll::calibrate {
namespace {

double adam_correction1(const Sizes&) { return 1 / (1 - std::pow(AdamConstants::beta1, AdamConstants::step)); }
double adam_correction2(const Sizes&) { return 1 / (1 - std::pow(AdamConstants::beta2, AdamConstants::step)); }

const std::vector<Scalar> kAdam{{"count", ScalarType::u64, scalar<0>},
                                {"rate", ScalarType::f32, [](const Sizes&) { return AdamConstants::rate; }},
                                {"beta1", ScalarType::f32, [](const Sizes&) { return AdamConstants::beta1; }},
                                {"beta2", ScalarType::f32, [](const Sizes&) { return AdamConstants::beta2; }},
                                {"epsilon", ScalarType::f32, [](const Sizes&) { return AdamConstants::epsilon; }},
                                {"decay", ScalarType::f32, [](const Sizes&) { return AdamConstants::decay; }},
                                {"correction1", ScalarType::f32, adam_correction1},
                                {"correction2", ScalarType::f32, adam_correction2}};

Launch one_block(const Sizes&, const DeviceShape&) { return grid(1); }
// One 16-byte access of the widest buffer per thread (of 4 or 8 elements).
template <int elements>
Launch by_element(const Sizes& s, const DeviceShape&) {
  return grid(std::min<std::int64_t>(std::max<std::int64_t>(ceil_div(s[0], elements * kBlockThreads), 1), 1 << 30));
}
Launch transpose_grid(const Sizes& s, const DeviceShape&) { return grid(ceil_div(s[0], 64) * ceil_div(s[1], 64)); }

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

std::string cannot_cache_read(const Sizes& s) {
  const std::int64_t chunks = s[0] / (4 * kBlockThreads);
  if (s[0] % (4 * kBlockThreads) != 0 || (chunks & (chunks - 1)) != 0) {
    return fmt::format("count ({}) must be {} times a power of two", s[0], 4 * kBlockThreads);
  }
  return multiple<1, 4>(s);
}
template <int factor>
std::string cannot_rows(const Sizes& s) {
  return s[1] % factor == 0 && s[1] <= kMostInt ? std::string{} : fmt::format("columns ({}) must be a multiple of {}", s[1], factor);
}
std::string cannot_transpose(const Sizes& s) {
  return s[0] % 8 == 0 && s[1] % 8 == 0 ? std::string{} : fmt::format("rows ({}) and columns ({}) must be multiples of 8", s[0], s[1]);
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

constexpr std::int64_t kPiece = 4 * 4 * kBlockThreads;  // floats
Launch piece_grid(const Sizes& s, const DeviceShape&) { return grid(std::max<std::int64_t>(ceil_div(s[0], kPiece), 1)); }
Work piece_work(const Sizes& s, const DeviceShape& device) {
  const double n = static_cast<double>(s[0]);
  return {4 * n, 4.0 * std::min<double>(static_cast<double>(s[1]), piece_grid(s, device).blocks), n};
}

void add_rows(std::vector<Kernel>& table) {
  const auto bf16 = DType::bf16, fp32 = DType::fp32;
  table.push_back({"piece_sums",
                   KernelKind::sums,
                   fp32,
                   {"count", "results"},
                   {{"source", fp32, Role::in, Fill::uniform, size<0>}, {"sums", fp32, Role::out, Fill::zeros, size<1>}},
                   {{"count", ScalarType::u64, scalar<0>}, {"results", ScalarType::u64, scalar<1>}},
                   kDevices,
                   piece_grid,
                   piece_work,
                   multiple<0, 4>,
                   check_piece_sums,
                   "what only reads: sums of pieces of 16 KiB"});
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

}  // namespace

void add_memory_rows(std::vector<Kernel>& table) {
  add_streaming(table);
  add_caches(table);
  add_pointwise(table);
  add_casts(table);
  add_rows(table);
  table.push_back(adam<DType::fp32>("adam_fp32", check_adam_fp32));
  table.push_back(adam<DType::bf16>("adam_mixed", check_adam_mixed));
}

}  // namespace plimsoll::calibrate
