// Rows of collectives by peer access.
#include "calibrate/kernels/table_parts.hpp"

namespace plimsoll::calibrate {
namespace {

const std::vector<Scalar> kCollective{{"count", ScalarType::u64, scalar<0>},
                                      {"ranks", ScalarType::i32, scalar<1>},
                                      {"rank", ScalarType::i32, nullptr},
                                      {"epoch", ScalarType::i32, nullptr}};

Launch collective_grid(const Sizes&, const DeviceShape& device) { return grid(std::clamp(device.compute_units, 1, kCollectiveBlocks)); }

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

template <int vector>
std::string cannot_collect(const Sizes& s) {
  if (s[1] < 2 || s[1] > kCollectiveRanks) return fmt::format("ranks ({}) must be 2 … {}", s[1], kCollectiveRanks);
  return s[0] % (s[1] * vector) == 0 ? std::string{} : fmt::format("count ({}) must be a multiple of {} x ranks", s[0], vector);
}

template <DType type>
Check all_reduce_check(const Answer& answer) {
  return check_all_reduce(answer, type);
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

}  // namespace

void add_collective_rows(std::vector<Kernel>& table) {
  constexpr std::string_view kSum = "every rank sums its slice over all, then collects the others' slices",
                             kGather = "every rank collects the others' slices";
  table.push_back(
      collective<DType::fp32>("all_reduce_fp32", KernelKind::all_reduce, all_reduce_work<4>, all_reduce_check<DType::fp32>, kSum));
  table.push_back(
      collective<DType::bf16>("all_reduce_bf16", KernelKind::all_reduce, all_reduce_work<2>, all_reduce_check<DType::bf16>, kSum));
  table.push_back(collective<DType::fp32>("all_gather_fp32", KernelKind::all_gather, all_gather_work, check_all_gather, kGather));
  table.push_back(collective<DType::fp32>("reduce_scatter_fp32", KernelKind::reduce_scatter, reduce_scatter_work, check_reduce_scatter,
                                          "every rank sums its slice over all"));
}

}  // namespace plimsoll::calibrate
