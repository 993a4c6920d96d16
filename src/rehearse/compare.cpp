// The lowered program and the recorded one, side by side.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plimsoll/rehearse.hpp"

namespace plimsoll {
namespace {

/// What a program asks for, as multisets: shapes of matrix products, launches by kind, collectives, tensors by size.
struct Census {
  std::map<std::string, double> gemms;        // calls by shape
  std::map<std::string, double> gemm_flops;   // FLOPs by shape
  std::map<std::string, double> kernels;       // other launches, by everything that is known of them
  std::map<std::string, double> kernel_traffic;  // bytes of one such launch
  std::map<std::string, double> kinds;         // launches by kind
  std::map<std::string, double> collectives;  // calls by kind and bytes
  std::map<std::int64_t, double> tensors;     // allocations by size
  double launches = 0, flops = 0, collective_bytes = 0, allocated_bytes = 0, allocations = 0, kernel_bytes = 0;
};

std::string shape_of(const Product& product) {
  const auto [small, large] = std::minmax(product.m, product.n);  // row-major callers see m and n swapped
  return fmt::format("gemm {} x {} x {}{} {}", small, large, product.k,
                     product.batch == 1 ? std::string() : fmt::format(" x {}", product.batch), name_of(product.a));
}

/// Blocks of the recorded allocator are rounded to 512 bytes: both programs' sizes are compared so.
std::int64_t rounded(std::int64_t bytes) { return (std::max<std::int64_t>(bytes, 1) + 511) / 512 * 512; }

void add_kernel(const Kernel& kernel, double runs, Census& census) {
  census.launches += runs;
  census.kernel_bytes += runs * static_cast<double>(kernel.bytes());
  const Product* product = kernel.product();
  if (!product) {
    const std::string what = describe(kernel);
    census.kernels[what] += runs;
    census.kernel_traffic[what] = static_cast<double>(kernel.bytes());
    census.kinds[fmt::format("{} kernels", name_of(kernel.kind()))] += runs;
    return;
  }
  const std::string shape = shape_of(*product);
  census.gemms[shape] += runs;
  census.gemm_flops[shape] += runs * kernel.flops();
  census.flops += runs * kernel.flops();
}

Census census_of(const StepProgram& program) {
  Census census;
  for (std::size_t i = 0; i < program.step.size(); ++i) {
    const Instruction& instruction = program.step[i];
    const auto runs = static_cast<double>(program.repeated.runs_of(i));
    if (instruction.kind == InstructionKind::kernel) add_kernel(program.kernels[instruction.id], runs, census);
    if (instruction.kind == InstructionKind::collective) {
      const Collective& collective = program.collectives[instruction.id];
      census.collectives[fmt::format("{} of {} B", name_of(collective.kind), collective.bytes)] += runs;
      census.collective_bytes += runs * static_cast<double>(collective.bytes);
    }
    if (instruction.kind == InstructionKind::alloc) {
      census.tensors[rounded(instruction.bytes)] += runs;
      census.allocations += runs;
      census.allocated_bytes += runs * static_cast<double>(rounded(instruction.bytes));
    }
  }
  return census;
}

/// A large block that was found free is given whole when what would be left of it is at most 1 MiB (kSmallSize of CUDACachingAllocator): a
/// recorded block may be that much larger than its tensor. Such blocks take the size of the lowered tensor that they could hold.
constexpr std::int64_t kUnsplit = 1 << 20;

void shrink_unsplit(const std::map<std::int64_t, double>& lowered, std::map<std::int64_t, double>& recorded) {
  std::map<std::int64_t, double> missing;
  for (const auto& [bytes, count] : lowered) {
    const auto found = recorded.find(bytes);
    const double more = count - (found == recorded.end() ? 0 : found->second);
    if (more > 0) missing[bytes] = more;
  }
  for (const auto& [bytes, count] : std::map<std::int64_t, double>(recorded)) {
    const auto wanted = lowered.find(bytes);
    double spare = count - (wanted == lowered.end() ? 0 : wanted->second);
    for (auto at = missing.lower_bound(bytes - kUnsplit); spare > 0 && at != missing.end() && at->first < bytes; ++at) {
      const double moved = std::min(spare, at->second);
      recorded[bytes] -= moved;
      recorded[at->first] += moved;
      at->second -= moved;
      spare -= moved;
    }
  }
}

std::map<std::string, double> named(const std::map<std::int64_t, double>& tensors) {
  std::map<std::string, double> names;
  for (const auto& [bytes, count] : tensors)
    if (count > 0) names[fmt::format("tensors of {} B", bytes)] = count;
  return names;
}

double of(const std::map<std::string, double>& table, const std::string& key) {
  const auto found = table.find(key);
  return found == table.end() ? 0 : found->second;
}

/// Entries that the two do not have equally often; `weight` says how much one of them counts.
template <class Weight>
void add_differences(const std::map<std::string, double>& lowered, const std::map<std::string, double>& recorded, Weight weight,
                     std::vector<ProgramDifference>& differences) {
  std::map<std::string, double> all = lowered;
  all.insert(recorded.begin(), recorded.end());
  for (const auto& [name, count] : all) {
    const double a = of(lowered, name), b = of(recorded, name);
    if (a != b) differences.push_back({name, a, b, std::fabs(a - b) * weight(name)});
  }
}

/// Bytes that stand at the end of a tensor's or collective's name: "… of 4096 B".
double bytes_named(const std::string& name) {
  const std::size_t at = name.rfind(" of ");
  return at == std::string::npos ? 0 : std::strtod(name.c_str() + at + 4, nullptr);
}

struct LabelledShape {
  std::string shape, label;
};

std::vector<LabelledShape> products_of(const StepProgram& program) {
  std::vector<LabelledShape> products;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind != InstructionKind::kernel) continue;
    if (const Product* product = program.kernels[instruction.id].product()) products.push_back({shape_of(*product), program.labels[instruction.label]});
  }
  return products;
}

std::string said(const std::vector<LabelledShape>& products, std::size_t at) {
  return at < products.size() ? products[at].shape + (products[at].label == products[at].shape ? "" : ", " + products[at].label)
                              : "nothing more";
}

void find_first(const StepProgram& lowered, const StepProgram& recorded, ProgramComparison& comparison) {
  const std::vector<LabelledShape> a = products_of(lowered), b = products_of(recorded);
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i < a.size() && i < b.size() && a[i].shape == b[i].shape) continue;
    comparison.first_difference = static_cast<std::int64_t>(i);
    comparison.first_lowered = said(a, i);
    comparison.first_recorded = said(b, i);
    return;
  }
}

}  // namespace

ProgramComparison compare_programs(const StepProgram& lowered, const Recording& recorded) {
  const Census a = census_of(lowered);
  Census b = census_of(recorded.program);
  shrink_unsplit(a.tensors, b.tensors);
  ProgramComparison comparison;
  const auto gemms = [](const Census& census) {
    double sum = 0;
    for (const auto& [shape, calls] : census.gemms) sum += calls;
    return sum;
  };
  comparison.totals = {{"launches", {a.launches, b.launches}},
                       {"matrix products", {gemms(a), gemms(b)}},
                       {"matrix product FLOPs", {a.flops, b.flops}},
                       {"collective bytes", {a.collective_bytes, b.collective_bytes}},
                       {"allocations", {a.allocations, b.allocations}},
                       {"allocated bytes", {a.allocated_bytes, b.allocated_bytes}},
                       {"kernel traffic bytes", {a.kernel_bytes, b.kernel_bytes}}};
  for (int i = 0; i < static_cast<int>(kKernelKinds); ++i) {
    const std::string kind = fmt::format("{} kernels", name_of(static_cast<KernelKind>(i)));
    if (of(a.kinds, kind) + of(b.kinds, kind) > 0) comparison.totals.push_back({kind, {of(a.kinds, kind), of(b.kinds, kind)}});
  }
  const double flops = std::max({a.flops, b.flops, 1.0}), bytes = std::max({a.allocated_bytes, b.allocated_bytes, 1.0});
  const double moved = std::max({a.collective_bytes, b.collective_bytes, 1.0});
  const double traffic = std::max({a.kernel_bytes, b.kernel_bytes, 1.0});
  std::map<std::string, double> launch_bytes = b.kernel_traffic;
  launch_bytes.insert(a.kernel_traffic.begin(), a.kernel_traffic.end());
  std::map<std::string, double> each = b.gemm_flops;
  each.insert(a.gemm_flops.begin(), a.gemm_flops.end());
  add_differences(
      a.gemms, b.gemms,
      [&](const std::string& name) {
        return of(each, name) / std::max({of(a.gemms, name), of(b.gemms, name), 1.0}) / flops;
      },
      comparison.differences);
  add_differences(
      a.collectives, b.collectives, [&](const std::string& name) { return bytes_named(name) / moved; }, comparison.differences);
  add_differences(
      named(a.tensors), named(b.tensors), [&](const std::string& name) { return bytes_named(name) / bytes; }, comparison.differences);
  add_differences(
      a.kernels, b.kernels, [&](const std::string& name) { return of(launch_bytes, name) / traffic; }, comparison.differences);
  std::stable_sort(comparison.differences.begin(), comparison.differences.end(),
                   [](const ProgramDifference& x, const ProgramDifference& y) { return x.weight > y.weight; });
  find_first(lowered, recorded.program, comparison);
  return comparison;
}

}  // namespace plimsoll
