// From samples to a machine: the shipped device that looks like the measured one, with every constant that the samples determine replaced.
#include "calibrate/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "calibrate/peers.hpp"
#include "calibrate/statistics.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

constexpr const char* kUnknown = "unknown";

// ---- what is not measured --------------------------------------------------------------------------------------------

template <class T>
Sourced<T> working(T value) {
  return {value, Provenance::assumed, kUnknown};
}

/// The shipped device with that target and number of compute units whose memory is nearest; empty: none is like it.
std::string like(const DeviceFacts& facts) {
  std::string best;
  std::int64_t least = INT64_MAX;
  for (const std::string& name : shipped_accelerators()) {
    const Accelerator device = load_accelerator(name);
    if (device.target != facts.target || device.compute_units != facts.compute_units) continue;
    const std::int64_t distance = std::abs(device.memory_usable.value.count - facts.memory_bytes);
    if (distance < least) least = distance, best = name;
  }
  return best;
}

/// What every device of an architecture has, from a shipped one of it.
void take_architecture(Accelerator& device, const std::string& target) {
  for (const std::string& name : shipped_accelerators()) {
    const Accelerator known = load_accelerator(name);
    if (known.target != target) continue;
    device.threads_per_unit = known.threads_per_unit;
    device.shared_memory = known.shared_memory;
    for (const Accelerator::Source& source : known.sources)
      if (source.key == known.threads_per_unit.source) device.sources.push_back(source);
    return;
  }
}

/// A machine of which nothing is known but what was measured: working values, marked as such, for the rest.
Cluster unlike_any(const DeviceFacts& facts) {
  Accelerator device;
  device.vendor = facts.backend == "hip" ? "AMD" : facts.backend == "cuda" ? "NVIDIA" : "CPU";
  device.family = device.vendor;
  device.memory_type = facts.backend == "cpu" ? "DRAM" : "device memory";
  take_architecture(device, facts.target);
  device.memory_bandwidth = working(BytesPerSecond(1e9));
  device.memory_efficiency = working(1.0);
  device.last_level_cache = working(Bytes(std::max<std::int64_t>(facts.cache_bytes, 1)));
  device.clock = working(Hertz(1e9));
  device.gemm.start = device.gemm.reduction = working(Seconds(5e-6));
  device.gemm.power_elsewhere = working(1.0);
  device.gemm.convolution = {working(0.5), working(0.5), working(0.5)};
  device.attention = {working(0.5), working(0.35), {}};
  device.overheads = {working(Bytes(1)), working(Bytes(1)), working(Bytes(1)), working(Bytes(1))};
  Cluster cluster;
  cluster.accelerator = std::move(device);
  Node& node = cluster.node;
  const Link link{working(BytesPerSecond(1e9)), working(BytesPerSecond(1e9)), working(Seconds(1e-6))};
  node.gpu_link = node.host_link = node.socket_link = link;
  node.host_memory_bandwidth = working(BytesPerSecond(1e9));
  node.collectives.name = facts.backend == "hip" ? "rccl" : facts.backend == "cuda" ? "nccl" : "mpi";
  node.collectives.channels = 1;
  node.collectives.ring = working(BytesPerSecond(1e9));
  node.collectives.contention = {working(1.15), working(1.15)};
  cluster.sources.push_back({kUnknown, "nothing is known of it: a working value; calibrate"});
  return cluster;
}

Cluster base_cluster(const SampleSet& set, const std::string& base) {
  int ranks = set.device.devices, per_node = ranks;
  for (const Sample& sample : set.samples) {
    ranks = std::max(ranks, sample.ranks);
    per_node = std::max(per_node, sample.ranks / sample.nodes);
  }
  if (!base.empty()) {
    Cluster cluster = cluster_of(base, std::max(1, per_node));
    if (set.device.devices > 0 && per_node < cluster.node.gpus) {  // the machine that was measured, not the shipped one
      cluster.node.gpus = cluster.gpus_per_node = std::max(1, per_node);
      cluster.node.gpus_per_host = std::min(cluster.node.gpus_per_host, cluster.node.gpus);
      cluster.node.sockets = std::min(cluster.node.sockets, cluster.node.gpus_per_host);
    }
    return cluster;
  }
  Cluster cluster = unlike_any(set.device);
  cluster.node.gpus = cluster.node.gpus_per_host = cluster.gpus_per_node = std::max(1, per_node);
  return cluster;
}

// ---- identity --------------------------------------------------------------------------------------------------------

std::string file_name(std::string name) {
  for (char& c : name)
    c = std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
  name.erase(std::unique(name.begin(), name.end(), [](char a, char b) { return a == '-' && b == '-'; }), name.end());
  return name.empty() ? "device" : name;
}

/// When, on what, with which driver, at which clock and power.
std::string provenance_text(const SampleSet& set) {
  const DeviceFacts& facts = set.device;
  std::string text = "plimsoll calibrate";
  if (!facts.date.empty()) text += ", " + facts.date;
  text += fmt::format(": {} samples on {} ({})", set.samples.size(), facts.name, facts.backend);
  if (!facts.driver.empty()) text += ", driver " + facts.driver;
  if (!facts.library.empty()) text += ", " + facts.library;
  std::vector<double> clocks, watts;
  for (const Sample& sample : set.samples) {
    if (sample.clock_hertz > 0) clocks.push_back(sample.clock_hertz);
    if (sample.watts > 0) watts.push_back(sample.watts);
  }
  if (!clocks.empty()) text += fmt::format(", median clock {:.0f} MHz", median(clocks) / 1e6);
  if (!watts.empty()) text += fmt::format(", median power {:.0f} W", median(watts));
  std::map<std::string, int> tools;
  for (const Sample& sample : set.samples) ++tools[sample.tool.empty() ? "plimsoll" : sample.tool];
  if (tools.size() > 1 || tools.count("plimsoll") == 0)
    for (const auto& [tool, count] : tools) text += fmt::format("; {} from {}", count, tool);
  return text;
}

void identify(const SampleSet& set, const std::string& name, Cluster& cluster) {
  const DeviceFacts& facts = set.device;
  Accelerator& device = cluster.accelerator;
  device.name = !name.empty() ? name : file_name(facts.name);
  device.title = facts.name.empty() ? device.name : facts.name;
  if (!facts.target.empty()) device.target = facts.target;
  if (device.target.empty()) device.target = facts.backend;
  if (facts.compute_units > 0) device.compute_units = facts.compute_units;
  device.compute_units = std::max(device.compute_units, 1);
  if (device.compute_units % std::max(device.dies, 1) != 0) device.dies = 1;
  const auto measured = [](auto value) { return Sourced<decltype(value)>{value, Provenance::measured, kSource}; };
  if (facts.memory_bytes > 0) device.memory_usable = measured(Bytes(facts.memory_bytes));
  if (device.memory_nominal.value < device.memory_usable.value) device.memory_nominal = device.memory_usable;
  if (facts.cache_bytes > 0) device.last_level_cache = measured(Bytes(facts.cache_bytes));
  if (facts.clock_hertz > 0) device.clock = measured(Hertz(facts.clock_hertz));
  if (facts.watts > 0) device.power = measured(Watts(facts.watts));
  if (device.launch_year == 0) device.launch_year = 2020;
  device.node = cluster.name = device.name;
  cluster.title = fmt::format("{} x {}, calibrated", cluster.node.gpus, device.title);
  device.note = "calibrated on this machine";
  for (const std::string& each : facts.left_out) device.note += "; left out, since its answers are wrong: " + each;
  device.sources.push_back({kSource, provenance_text(set)});
  cluster.sources.push_back(device.sources.back());
  for (const auto& source : cluster.sources)
    if (source.key == kUnknown) device.sources.push_back(source);
}

/// The clock at which the samples were taken: the median of what the reference kernels took among them.
void keep_reference(const std::vector<Sample>& samples, Accelerator& device) {
  std::map<std::string, std::vector<double>> times;
  for (const Sample& sample : of_kind(samples, SampleKind::reference)) times[sample.kernel].push_back(sample.seconds);
  Measurement reference{"reference", "a product in the caches, a gibibyte passed through memory", kSource, Provenance::measured, {}};
  for (const auto& [kernel, list] : times) reference.values.emplace_back(kernel, fmt::format("{:.6g} us", median(list) * 1e6));
  if (!reference.values.empty()) device.measurements.push_back(reference);
}

/// What passes of fused attention reached, by the library that ran them.
void keep_attention(const std::vector<Sample>& samples, Accelerator& device) {
  std::map<std::string, std::vector<double>> rates;
  for (const Sample& sample : samples)
    if (const auto pass = library_pass(sample))
      rates[fmt::format("{} {} x {}, {} and {} {} heads of {}{}", sample.kind == SampleKind::attention ? "forward" : "backward",
                        pass->queries, pass->keys, pass->heads, pass->kv_heads, sample.type, pass->head_dim,
                        pass->causal ? ", causal" : "")]
          .push_back(sample.flops / sample.seconds / 1e12);
  Measurement kept{"attention", fmt::format("whole passes by {}", name_of(AttentionLibrary::cudnn)), kSource, Provenance::measured, {}};
  for (const auto& [what, list] : rates) kept.values.emplace_back(what, fmt::format("{:.4g} TFLOP/s", median(list)));
  if (!kept.values.empty()) device.measurements.push_back(kept);
}

/// What is measured but no constant of the cost model: kept for the reader, and the launch gap for the player.
void keep_measurements(const std::vector<Sample>& samples, Calibration& calibration) {
  Accelerator& device = calibration.cluster.accelerator;
  const auto gather = [&](SampleKind kind) {
    std::vector<double> times;
    for (const Sample& sample : of_kind(samples, kind)) times.push_back(sample.seconds);
    return times;
  };
  Measurement launch{"launch", "empty kernels on one stream", kSource, Provenance::measured, {}};
  if (const auto gaps = gather(SampleKind::launch); !gaps.empty())
    launch.values.emplace_back("gap", fmt::format("{:.6g} us", median(gaps) * 1e6));
  if (const auto trips = gather(SampleKind::round_trip); !trips.empty())
    launch.values.emplace_back("round_trip", fmt::format("{:.6g} us", median(trips) * 1e6));
  if (const auto pairs = gather(SampleKind::allocation); !pairs.empty())
    launch.values.emplace_back("allocation", fmt::format("{:.6g} us", median(pairs) * 1e6));
  if (!launch.values.empty()) device.measurements.push_back(launch);
  keep_reference(samples, device);
  Measurement latency{"memory_latency", "one dependent load", kSource, Provenance::measured, {}};
  for (const Sample& sample : of_kind(samples, SampleKind::pointer_chase))
    latency.values.emplace_back(fmt::format("{} B", sample.bytes), fmt::format("{:.4g} ns", sample.seconds * 1e9));
  if (!latency.values.empty()) device.measurements.push_back(latency);
  keep_attention(samples, device);
  const std::vector<Sample> contexts = of_kind(samples, SampleKind::context_memory);
  if (!contexts.empty())
    device.overheads.context = {Bytes(std::max<std::int64_t>(contexts.back().bytes, 1)), Provenance::measured, kSource};
  Measurement residuals{"calibration_residuals", "|model / measured - 1|: median, nine in ten", kSource, Provenance::derived, {}};
  for (const FitResidual& each : calibration.residuals)
    residuals.values.emplace_back(each.what,
                                  fmt::format("{:.1f} %, {:.1f} % of {}", 100 * each.median, 100 * each.ninetieth, each.samples));
  if (!residuals.values.empty()) device.measurements.push_back(residuals);
}

// ---- residuals -------------------------------------------------------------------------------------------------------

/// What the cost model says of a sample; 0: it says nothing.
double predicted(const Sample& sample, const Cluster& cluster) {
  const Accelerator& device = cluster.accelerator;
  if (sample.work) return price(*sample.work, device, {sample.matrix_share}).value;
  switch (sample.kind) {
    case SampleKind::stream:
      return memory_bound_time(device, Bytes(sample.bytes), sample.group).value;
    case SampleKind::gemm:
      return plan_product(product_of(sample), device, {sample.matrix_share}).time().value;
    case SampleKind::attention:
    case SampleKind::attention_backward:
      if (const auto pass = timed_pass(sample)) return priced(*pass, device);
      return attention_time(device, math_named(sample.type), Flops(sample.flops), sample.kind == SampleKind::attention_backward).value;
    case SampleKind::host_to_device:
    case SampleKind::device_to_host:
      return (cluster.node.host_link.latency.value + Bytes(sample.bytes) / cluster.node.host_link.achieved.value).value;
    case SampleKind::peer_copy:
      return (cluster.node.gpu_link.latency.value + Bytes(sample.bytes) / cluster.node.gpu_link.achieved.value).value;
    case SampleKind::collective: {
      if (sample.nodes > 1 || sample.ranks > cluster.gpus_per_node) return 0;
      const GroupShape shape = Topology(cluster).group({0, sample.ranks, 1});
      for (int i = 0; i < 7; ++i)
        if (const auto kind = static_cast<CollectiveKind>(i); name_of(kind) == sample.group)
          return price(Collective{kind, Group::world, sample.bytes, DType::bf16}, shape, cluster).value;
      return 0;
    }
    default:
      return 0;
  }
}

}  // namespace

bool has_rate(const Sample& sample, const Accelerator& device) {
  if (sample.kind != SampleKind::gemm && !is_attention(sample)) return true;
  return std::any_of(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return name_of(rate.type) == sample.type; });
}

std::vector<FitResidual> residuals_of(const std::map<std::string, std::vector<double>>& errors) {
  std::vector<FitResidual> residuals;
  for (const auto& [what, list] : errors) residuals.push_back({what, list.size(), median(list), quantile(list, 0.9), quantile(list, 1)});
  return residuals;
}

/// What is priced at the boost clock: attention here, products as `fitted_products` has them already.
double priced_seconds(const Sample& sample) { return is_attention(sample) ? boost_seconds(sample) : sample.seconds; }

std::vector<FitResidual> fit_residuals(const std::vector<Sample>& samples, const Cluster& cluster) {
  std::map<std::string, std::vector<double>> errors;
  std::set<std::string> of_model;  // groups of streams whose curve is that of a model's step
  for (const Sample& sample : samples)
    if (sample.kind == SampleKind::stream && sample.reuse >= 0) of_model.insert(sample.group);
  std::vector<Sample> held = fitted_products(samples, cluster.accelerator);
  for (const Sample& sample : samples)
    if (sample.kind != SampleKind::gemm) held.push_back(sample);
  const bool by_library = std::any_of(samples.begin(), samples.end(), [](const Sample& sample) { return library_pass(sample).has_value(); });
  for (const Sample& sample : held) {
    if (!has_rate(sample, cluster.accelerator) || (by_library && is_attention(sample) && !library_pass(sample) && !sample.work)) continue;
    if (sample.kind == SampleKind::stream && sample.reuse < 0 && of_model.count(sample.group) > 0) continue;
    const double expected = predicted(sample, cluster);
    const std::string what = std::string(name_of(sample.kind)) + (sample.group.empty() ? "" : " " + sample.group) +
                             (sample.kind == SampleKind::gemm ? " " + sample.type : "") +
                             (sample.tool == kPeerTool && sample.kind == SampleKind::collective ? " by peer kernels" : "");
    if (expected > 0) errors[what].push_back(std::abs(expected / priced_seconds(sample) - 1));
  }
  return residuals_of(errors);
}

namespace {

/// What a part of the fit is held against: the samples of its kinds.
std::vector<Sample> of_kinds(const std::vector<Sample>& samples, const std::vector<SampleKind>& kinds) {
  std::vector<Sample> chosen;
  for (const Sample& sample : samples)
    if (std::find(kinds.begin(), kinds.end(), sample.kind) != kinds.end()) chosen.push_back(sample);
  return chosen;
}

/// Median and nine in ten of all classes that both machines price, each with its samples' weight.
std::pair<double, double> errors_before_and_after(const std::vector<Sample>& samples, const Cluster& before, const Cluster& after) {
  std::map<std::string, FitResidual> was;
  for (const FitResidual& each : fit_residuals(samples, before)) was[each.what] = each;
  double old_error = 0, new_error = 0;
  for (const FitResidual& each : fit_residuals(samples, after)) {
    const auto found = was.find(each.what);
    if (found == was.end()) continue;
    const auto weight = static_cast<double>(each.samples);
    old_error += weight * (found->second.median + found->second.ninetieth);
    new_error += weight * (each.median + each.ninetieth);
  }
  return {old_error, new_error};
}

/// Fits one part of the machine. Where the constants that were there price the part's own samples better, they come back, and a note says so.
void fit_part(const char* what, void (*fit)(const std::vector<Sample>&, Calibration&), const std::vector<SampleKind>& kinds,
              const std::vector<Sample>& samples, Calibration& calibration) {
  const std::vector<Sample> own = of_kinds(samples, kinds);
  if (own.empty()) return;
  const Cluster before = calibration.cluster;
  fit(samples, calibration);
  const auto [was, is] = errors_before_and_after(own, before, calibration.cluster);
  if (is <= was) return;
  calibration.cluster = before;
  calibration.notes.push_back(fmt::format("{}: the constants that were there price the samples better than a fit of them, and stay", what));
}

/// Classes that were measured and are held against nothing, and those that the fit misses so far that it is none.
void note_what_is_no_fit(const std::vector<Sample>& samples, Calibration& calibration) {
  constexpr double kMedian = 0.3, kNinetieth = 1.0;
  constexpr std::size_t kFew = 4;
  for (const FitResidual& each : calibration.residuals)
    if (each.samples >= kFew && (each.median > kMedian || each.ninetieth > kNinetieth))
      calibration.notes.push_back(fmt::format("{}: {:.0f} % off its own samples, nine in ten within {:.0f} %: that is no fit", each.what,
                                              100 * each.median, 100 * each.ninetieth));
  const auto held = [&](const std::string& what) {
    return std::any_of(calibration.residuals.begin(), calibration.residuals.end(),
                       [&](const FitResidual& each) { return each.what.rfind(what, 0) == 0; });
  };
  for (const SampleKind kind : {SampleKind::gemm, SampleKind::attention, SampleKind::attention_backward, SampleKind::stream,
                                SampleKind::host_to_device, SampleKind::device_to_host, SampleKind::peer_copy, SampleKind::collective})
    if (const std::size_t count = of_kind(samples, kind).size(); count > 0 && !held(std::string(name_of(kind))))
      calibration.notes.push_back(fmt::format("{}: none of {} samples stands for the constants in the file", name_of(kind), count));
}

}  // namespace
}  // namespace calibrate

Calibration fit_hardware(const SampleSet& set, const FitOptions& options) {
  if (set.samples.empty()) fail("there is nothing to fit: no samples");
  Calibration calibration;
  calibration.base = !options.base.empty() ? options.base : calibrate::like(set.device);
  calibration.cluster = calibrate::base_cluster(set, calibration.base);
  calibrate::identify(set, options.name, calibration.cluster);
  for (const std::string& each : set.device.left_out) calibration.notes.push_back(each + " gave wrong answers and was left out");
  using Kind = SampleKind;
  const auto part = [&](const char* what, auto fit, const std::vector<Kind>& kinds) {
    calibrate::fit_part(what, fit, kinds, set.samples, calibration);
  };
  part("kernels bound by memory", calibrate::fit_streaming, {Kind::stream});
  part("matrix products", calibrate::fit_gemm, {Kind::gemm});
  part("attention", calibrate::fit_attention, {Kind::attention, Kind::attention_backward});
  part("traced kernels", calibrate::fit_paces, {Kind::stream, Kind::attention, Kind::attention_backward});
  part("copies", calibrate::fit_copies, {Kind::host_to_device, Kind::device_to_host, Kind::peer_copy});
  part("collectives", calibrate::fit_collectives, {Kind::collective});
  calibration.residuals = calibrate::fit_residuals(set.samples, calibration.cluster);
  for (FitResidual& each : calibrate::left_out_products(set.samples, calibration)) calibration.residuals.push_back(std::move(each));
  calibrate::note_what_is_no_fit(set.samples, calibration);
  calibrate::keep_measurements(set.samples, calibration);
  return calibration;
}

std::string to_text(const Calibration& calibration) {
  const Accelerator& device = calibration.cluster.accelerator;
  std::string text = fmt::format("{}: {} compute units, {}\n", device.title, device.compute_units, to_string(device.memory_usable.value));
  text += calibration.base.empty() ? "  like no shipped device: what was not measured is a working value\n"
                                   : "  what was not measured is taken from " + calibration.base + "\n";
  text += fmt::format("  streaming {} ({:.0f} % of {})\n",
                      to_string(BytesPerSecond(device.memory_bandwidth.value.value * device.memory_efficiency.value)),
                      100 * device.memory_efficiency.value, to_string(device.memory_bandwidth.value));
  for (const auto& rate : device.rates)
    if (rate.sustained.source == calibrate::kSource)
      text += fmt::format("  {} products {:.4g} TFLOP/s sustained, {:.0f} % of the peak\n", name_of(rate.type),
                          rate.peak.value.value * rate.sustained.value / 1e12, 100 * rate.sustained.value);
  text += "  the model against its own samples, |predicted / measured - 1|: median, nine in ten, worst\n";
  for (const FitResidual& each : calibration.residuals)
    text += fmt::format("    {:<28}{:>5} samples {:>7.1f} % {:>7.1f} % {:>7.1f} %\n", each.what, each.samples, 100 * each.median,
                        100 * each.ninetieth, 100 * each.worst);
  for (const std::string& note : calibration.notes) text += "  note: " + note + "\n";
  return text;
}

}  // namespace plimsoll
