// A training run that was traced, as samples: equal kernels of all its steps are one sample with their median.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "calibrate/statistics.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/trace.hpp"

namespace plimsoll {
namespace calibrate {
namespace {

constexpr const char* kTool = "torch-trace";
/// A product that takes less is its launch's, one with a side that short is its operands': they tell nothing of the rate, and would be all
/// that is known of their type.
constexpr double kShortestProduct = 10e-6;
constexpr std::int64_t kShortestSide = 32;

/// gfx942 is 9.4 to PyTorch, which names no stepping.
std::string target_of(const TracedDevice& device) {
  if (!device.amd) return device.major > 0 ? fmt::format("sm_{}{}", device.major, device.minor) : std::string();
  const int version = device.major * 10 + device.minor;
  return version == 94 ? "gfx942" : version == 95 ? "gfx950" : version == 90 ? "gfx90a" : "";
}

std::string arithmetic_of(const Product& product) {
  return product.arithmetic == Arithmetic::tf32 ? "tf32" : std::string(name_of(product.a));
}

std::optional<Sample> sample_of(const Product& product, const Kernel& kernel) {
  if (product.grouped || product.a != product.b || std::min({product.m, product.n, product.k}) < kShortestSide) return {};
  Sample sample;
  sample.kind = SampleKind::gemm;
  sample.type = arithmetic_of(product);
  sample.m = product.m, sample.n = product.n, sample.k = product.k, sample.batch = product.batch;
  sample.layout = fmt::format("{}{}", product.transpose_a ? 'T' : 'N', product.transpose_b ? 'T' : 'N');
  sample.flops = kernel.flops();
  return sample;
}

std::optional<Sample> sample_of(const Attention& attention, const Kernel& kernel) {
  const bool forward = attention.part == Attention::Part::forward;
  if (!forward && attention.part != Attention::Part::backward) return {};  // helpers go by the device's bandwidth
  Sample sample;
  sample.work = kernel;
  sample.kind = forward ? SampleKind::attention : SampleKind::attention_backward;
  sample.type = std::string(name_of(attention.type));
  sample.m = attention.queries, sample.n = attention.keys, sample.k = attention.head_dim, sample.batch = attention.batch * attention.heads;
  sample.flops = kernel.flops();
  return sample;
}

/// Bound by memory, and told whole: what it reads and writes, and how it walks through it.
bool is_memory_bound(const Kernel& kernel) {
  return std::holds_alternative<Pointwise>(kernel.work) || std::holds_alternative<Reduction>(kernel.work) ||
         std::holds_alternative<RowWise>(kernel.work) || std::holds_alternative<Gather>(kernel.work) ||
         std::holds_alternative<MultiTensor>(kernel.work);
}

std::optional<Sample> sample_of(const Kernel& kernel) {
  if (const Product* product = kernel.product()) return sample_of(*product, kernel);
  if (const Attention* attention = kernel.attention()) return sample_of(*attention, kernel);
  if (!is_memory_bound(kernel) || kernel.bytes() <= 0) return {};
  Sample sample;
  sample.work = kernel;
  sample.kind = SampleKind::stream;
  sample.group = std::string(name_of(kernel.kind()));
  sample.type = std::string(name_of(kernel.type()));
  sample.bytes = kernel.bytes();
  return sample;
}

/// Of a collective the fastest time counts: the others hold waits for ranks that came late.
Sample timed(Sample sample, const std::vector<double>& times, const std::string& kernel) {
  sample.kernel = kernel;
  sample.tool = kTool;
  sample.runs = static_cast<int>(times.size());
  sample.fastest = quantile(times, 0);
  sample.seconds = sample.kind == SampleKind::collective ? sample.fastest : median(times);
  return sample;
}

using Times = std::map<std::uint32_t, std::pair<std::uint32_t, std::vector<double>>>;  ///< by index of the work: its name, and times

void add(Times& times, const TracedWork& work) {
  if (work.seconds <= 0) return;
  auto& [name, list] = times[work.id];
  name = work.name;
  list.push_back(work.seconds);
}

/// Of all kernels' time: what products and attention took.
double matrix_share(const Trace& trace) {
  double matrix = 0, all = 0;
  for (const TracedWork& work : trace.work) {
    if (work.kind != TracedWork::Kind::kernel) continue;
    const KernelKind kind = trace.kernels[work.id].kind();
    all += work.seconds;
    if (kind == KernelKind::gemm || kind == KernelKind::attention || kind == KernelKind::attention_backward) matrix += work.seconds;
  }
  return all > 0 ? matrix / all : 0;
}

}  // namespace
}  // namespace calibrate

SampleSet samples_of(const Trace& trace) {
  using namespace calibrate;
  SampleSet set;
  set.device.name = trace.device.name;
  set.device.backend = trace.device.name.empty() ? "" : trace.device.amd ? "hip" : "cuda";
  set.device.target = target_of(trace.device);
  set.device.compute_units = trace.device.compute_units;
  set.device.memory_bytes = trace.device.memory_bytes;
  constexpr std::int64_t kMostOfANode = 8;
  set.device.devices = static_cast<int>(std::clamp<std::int64_t>(trace.world, 1, kMostOfANode));  // without a group: one
  Times kernels, collectives;
  for (const TracedWork& work : trace.work)
    if (work.shaped && work.kind != TracedWork::Kind::copy) add(work.kind == TracedWork::Kind::kernel ? kernels : collectives, work);
  const double share = matrix_share(trace);
  for (const auto& [id, named] : kernels)
    if (auto found = sample_of(trace.kernels[id])) {
      Sample sample = timed(*std::move(found), named.second, trace.names[named.first].substr(0, 100));
      if (sample.kind == SampleKind::gemm && sample.seconds < kShortestProduct) continue;
      sample.matrix_share = share;
      set.samples.push_back(std::move(sample));
    }
  for (const auto& [id, named] : collectives) {
    const TracedCollective& traced = trace.collectives[id];
    if (traced.ranks < 2 || traced.nodes < 1) continue;
    Sample sample;
    sample.kind = SampleKind::collective;
    sample.group = std::string(name_of(traced.what.kind));
    sample.type = std::string(name_of(traced.what.type));
    sample.bytes = traced.what.bytes;
    sample.ranks = static_cast<int>(traced.ranks);
    sample.nodes = static_cast<int>(traced.nodes);
    set.samples.push_back(timed(sample, named.second, trace.names[named.first].substr(0, 100)));
  }
  if (set.samples.empty())
    fail(fmt::format("none of its {} kernels says what it does", trace.work.size()), trace.path, "record with record_shapes=True");
  return set;
}

}  // namespace plimsoll
