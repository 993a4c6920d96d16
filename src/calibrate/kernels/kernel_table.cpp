#include "calibrate/kernels/kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "calibrate/kernels/table_parts.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {

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
  constexpr std::string_view names[] = {"empty",
                                        "copy",
                                        "triad",
                                        "cache_read",
                                        "pointer_chase",
                                        "vector_rate",
                                        "matrix_rate",
                                        "gemm",
                                        "attention",
                                        "attention_delta",
                                        "attention_backward",
                                        "sums",
                                        "rmsnorm",
                                        "softmax",
                                        "cross_entropy",
                                        "swiglu",
                                        "add",
                                        "adam",
                                        "transpose",
                                        "cast",
                                        "all_reduce",
                                        "all_gather",
                                        "reduce_scatter"};
  return names[static_cast<std::size_t>(kind)];
}

bool Kernel::runs_on(Target target) const { return std::find(targets.begin(), targets.end(), target) != targets.end(); }

bool Kernel::collective() const {
  return kind == KernelKind::all_reduce || kind == KernelKind::all_gather || kind == KernelKind::reduce_scatter;
}

const std::vector<Kernel>& kernel_table() {
  static const std::vector<Kernel> table = [] {
    std::vector<Kernel> rows;
    add_memory_rows(rows);
    add_product_rows(rows);
    add_collective_rows(rows);
    return rows;
  }();
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

const Kernel& kernel_for(std::string_view name, Target target) {
  const std::string group = fmt::format("{}_wgmma", name);
  for (const Kernel& kernel : kernel_table()) {
    if (kernel.name == group && kernel.runs_on(target)) return kernel;
  }
  return kernel_named(name);
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
