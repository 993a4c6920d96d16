#include <algorithm>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::hardware {
namespace {

constexpr std::int64_t kMostDimension = std::int64_t{1} << 40;

void read_memory(const JsonValue& memory, Accelerator& device) {
  device.memory_type = memory["type"].text();
  device.memory_nominal = read_sourced(memory["nominal"], bytes_value);
  device.memory_usable = read_sourced(memory["usable"], bytes_value);
  device.memory_bandwidth = read_sourced(memory["bandwidth"], bandwidth_value);
  device.memory_efficiency = read_sourced(memory["efficiency"], positive_share_value);
  device.last_level_cache = read_sourced(memory["last_level_cache"], bytes_value);
}

void read_compute(const JsonValue& compute, Accelerator& device) {
  device.compute_units = static_cast<int>(compute["units"].integer(1, 65536));
  device.dies = static_cast<int>(compute["dies"].integer(1, device.compute_units));
  device.threads_per_unit = read_optional(compute, "threads_per_unit", threads_value);
  device.shared_memory = read_optional(compute, "shared_memory", bytes_value);
  device.clock = read_sourced(compute["clock"], hertz_value);
  const JsonValue rates = compute["rates"];
  for (const auto& key : rates.keys()) {
    const JsonValue rate = rates[key];
    device.rates.push_back(
        {math_type(rate, key), read_sourced(rate["peak"], flops_value), read_sourced(rate["sustained"], positive_share_value)});
  }
}

void read_kernels(const JsonValue& root, Accelerator& device) {
  device.gemm = read_products(root["gemm"]);
  const JsonValue attention = root["attention"];
  device.attention.forward = read_sourced(attention["forward"], positive_share_value);
  device.attention.backward = read_sourced(attention["backward"], positive_share_value);
  device.attention.power = read_optional(attention, "power", board_powers_value);
  if (const auto width = attention.find("matrix_width")) device.attention.matrix_width = read_sourced(*width, positive_share_value);
}

void read_paces(const JsonValue& object, KernelPaces& paces) {
  const auto read = [&](std::string_view key, Sourced<double>& pace) {
    if (const auto found = object.find(key)) pace = read_sourced(*found, pace_value);
  };
  read("issue", paces.issue);
  read("attention_forward", paces.attention_forward);
  read("attention_backward", paces.attention_backward);
}

void read_overheads(const JsonValue& object, DeviceOverheads& overheads) {
  overheads.context = read_sourced(object["context"], bytes_value);
  overheads.blas_workspace = read_sourced(object["blas_workspace"], bytes_value);
  overheads.first_communicator = read_sourced(object["first_communicator"], bytes_value);
  overheads.further_communicator = read_sourced(object["further_communicator"], bytes_value);
}

GemmCurve read_gemm_curve(const JsonValue& object) {
  GemmCurve curve;
  curve.type = math_type(object["type"], object["type"].text());
  curve.provenance = read_provenance(object["provenance"]);
  curve.software = object["software"].text();
  curve.source = object["source"].text();
  optional_text(object, "note");
  optional_text(object, "kind");
  object["points_unit"].mark_read();
  for (const auto& point : object["points"].elements())
    curve.points.push_back({point.at(0).integer(1, kMostDimension), point.at(1).integer(1, kMostDimension),
                            point.at(2).integer(1, kMostDimension), FlopsPerSecond(point.at(3).number(1e-6, 1e9) * 1e12)});
  return curve;
}

StreamingCurve read_streaming_curve(const JsonValue& object) {
  const std::vector<std::string> known{"elementwise", "reduction", "gather", "multi_tensor", "convolution"};
  StreamingCurve curve{object["kernels"].text(), read_provenance(object["provenance"]), object["source"].text(), {}};
  if (std::find(known.begin(), known.end(), curve.kernels) == known.end())
    fail("'" + curve.kernels + "' is no kind of memory-bound kernel", object["kernels"].where(), suggest(curve.kernels, known));
  object["points_unit"].mark_read();
  for (const auto& point : object["points"].elements()) {
    curve.points.push_back({Bytes(point.at(0).integer(0, std::int64_t{1} << 50)), Seconds(point.at(1).number(0, 1e12) * 1e-6)});
    const std::size_t n = curve.points.size();
    if (n == 1) continue;
    if (curve.points[n - 1].bytes <= curve.points[n - 2].bytes) point.expected("a larger size than the point before");
    if (curve.points[n - 1].time < curve.points[n - 2].time) point.expected("no less time than the point before");
  }
  if (curve.points.size() < 2) object["points"].expected("at least two points");
  return curve;
}

std::string layout_of(const JsonValue& value) {
  const std::string& layout = value.text();
  if (layout.size() != 2 || layout.find_first_not_of("NT") != std::string::npos) value.expected("a layout: two letters, each N or T");
  return layout;
}

GemmTimes read_gemm_times(const JsonValue& object) {
  GemmTimes times{math_type(object["type"], object["type"].text()), read_provenance(object["provenance"]), object["source"].text(), {}};
  object["points_unit"].mark_read();
  for (const auto& point : object["points"].elements()) {
    const auto dimension = [&](std::size_t i) { return point.at(i).integer(1, kMostDimension); };
    times.points.push_back({dimension(0), dimension(1), dimension(2), dimension(3), Seconds(point.at(4).number(1e-6, 1e12) * 1e-6),
                            point.size() > 5 ? layout_of(point.at(5)) : std::string()});
  }
  return times;
}

Measurement read_measurement(const JsonValue& object) {
  Measurement measurement{
      object["what"].text(), optional_text(object, "note"), object["source"].text(), read_provenance(object["provenance"]), {}};
  optional_text(object, "kind");
  if (const auto gpus = object.find("gpus")) gpus->integer(1, 1 << 20);
  const JsonValue values = object["values"];
  for (const auto& key : values.keys()) measurement.values.emplace_back(key, values[key].text());
  return measurement;
}

}  // namespace

Accelerator read_accelerator(const JsonValue& root) {
  root.check_printable();
  require_all(root,
              {"name", "title", "vendor", "family", "target", "launch_year", "node", "memory.type", "memory.nominal", "memory.usable", "memory.bandwidth",
               "memory.efficiency", "memory.last_level_cache", "compute.units", "compute.dies", "compute.clock", "compute.rates", "gemm.start", "gemm.reduction",
               "gemm.power_elsewhere", "gemm.kernels", "attention.forward", "attention.backward", "overheads.context", "overheads.blas_workspace",
               "overheads.first_communicator", "overheads.further_communicator", "sources"},
              "gpu");
  Accelerator device;
  device.name = root["name"].text();
  device.title = root["title"].text();
  device.vendor = root["vendor"].text();
  device.family = root["family"].text();
  device.target = root["target"].text();
  device.launch_year = static_cast<int>(root["launch_year"].integer(1990, 2100));
  device.node = root["node"].text();
  device.server = optional_text(root, "server");
  device.note = optional_text(root, "note");
  optional_text(root, "form_factor");
  read_memory(root["memory"], device);
  read_compute(root["compute"], device);
  read_kernels(root, device);
  if (const auto paces = root.find("paces")) read_paces(*paces, device.paces);
  read_overheads(root["overheads"], device.overheads);
  device.power = read_optional(root, "power", watts_value);
  if (const auto curves = root.find("gemm_curves"))
    for (const auto& curve : curves->elements()) device.gemm_curves.push_back(read_gemm_curve(curve));
  if (const auto measurements = root.find("measurements"))
    for (const auto& object : measurements->elements()) device.measurements.push_back(read_measurement(object));
  if (const auto curves = root.find("streaming"))
    for (const auto& curve : curves->elements()) device.streaming.push_back(read_streaming_curve(curve));
  if (const auto tables = root.find("gemm_times"))
    for (const auto& table : tables->elements()) device.gemm_times.push_back(read_gemm_times(table));
  device.sources = read_sources(root);
  check_complete(root);
  return device;
}

}  // namespace plimsoll::hardware
