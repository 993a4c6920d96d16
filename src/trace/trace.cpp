// From events to a Trace: one device's work in order, each piece with what it is, cut into steps.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "plimsoll/error.hpp"
#include "rehearse/kernel_names.hpp"
#include "trace/byte_source.hpp"
#include "trace/operator_kernels.hpp"
#include "trace/recorded_events.hpp"
#include "units/text.hpp"

namespace plimsoll {
namespace trace {
namespace {

/// NCCL's and RCCL's kernels, and those of PyTorch's symmetric memory.
std::optional<CollectiveKind> collective_in(std::string_view name) {
  if (!contains(name, "ccl") && !contains(name, "multimem_") && !contains(name, "shot_all_reduce")) return {};
  constexpr std::pair<std::string_view, CollectiveKind> kNames[] = {
      {"AllReduce", CollectiveKind::all_reduce},   {"all_reduce", CollectiveKind::all_reduce},
      {"ReduceScatter", CollectiveKind::reduce_scatter}, {"reduce_scatter", CollectiveKind::reduce_scatter},
      {"AllGather", CollectiveKind::all_gather},   {"all_gather", CollectiveKind::all_gather},
      {"AllToAll", CollectiveKind::all_to_all},    {"SendRecv", CollectiveKind::send},
      {"Broadcast", CollectiveKind::broadcast},    {"Reduce", CollectiveKind::broadcast}};
  for (const auto& [text, kind] : kNames)
    if (contains(name, text)) return kind;
  return contains(name, "nccl") || contains(name, "rccl") ? std::optional(CollectiveKind::all_reduce) : std::nullopt;
}

std::int64_t bytes_of_type(const std::string& type, DType& as) {
  constexpr std::pair<std::string_view, DType> kTypes[] = {{"BFloat16", DType::bf16}, {"Half", DType::fp16}, {"Float", DType::fp32},
                                                           {"Double", DType::fp64}, {"Long", DType::int64}, {"Int", DType::int32},
                                                           {"Byte", DType::uint8}, {"Char", DType::int8}, {"Bool", DType::boolean},
                                                           {"Float8_e4m3fn", DType::fp8}, {"Float8_e5m2", DType::fp8}};
  for (const auto& [text, each] : kTypes)
    if (type == text) {
      as = each;
      return size_of(each);
    }
  return 0;
}

/// The kind that a call names ("_allgather_base", "all_to_allv", "send"); what its kernel says where the call is not known.
CollectiveKind kind_of(const CollectiveCall& call, CollectiveKind by_kernel) {
  constexpr std::pair<std::string_view, CollectiveKind> kCalls[] = {
      {"reduce_scatter", CollectiveKind::reduce_scatter}, {"allgather", CollectiveKind::all_gather},  {"all_gather", CollectiveKind::all_gather},
      {"allreduce", CollectiveKind::all_reduce},          {"all_reduce", CollectiveKind::all_reduce}, {"all_to_all", CollectiveKind::all_to_all},
      {"alltoall", CollectiveKind::all_to_all},           {"broadcast", CollectiveKind::broadcast},   {"recv", CollectiveKind::receive},
      {"send", CollectiveKind::send}};
  for (const auto& [text, kind] : kCalls)
    if (contains(call.name, text)) return kind;
  return by_kernel;
}

/// Ranks are numbered node by node, eight to a node.
std::int64_t nodes_of(const std::vector<std::int64_t>& members) {
  constexpr std::int64_t kPerNode = 8;
  std::vector<std::int64_t> nodes;
  for (const std::int64_t rank : members) nodes.push_back(rank / kPerNode);
  std::sort(nodes.begin(), nodes.end());
  return std::unique(nodes.begin(), nodes.end()) - nodes.begin();
}

Copy::Direction direction_of(std::string_view name) {
  if (contains(name, "HtoD") || contains(name, "HostToDevice")) return Copy::Direction::host_to_device;
  if (contains(name, "DtoH") || contains(name, "DeviceToHost")) return Copy::Direction::device_to_host;
  return Copy::Direction::device_to_device;
}

/// Equal entries of a list are one.
template <class Entry>
std::uint32_t index_of(std::vector<Entry>& list, const Entry& entry) {
  const auto index = static_cast<std::uint32_t>(std::find(list.begin(), list.end(), entry) - list.begin());
  if (index == list.size()) list.push_back(entry);
  return index;
}

class Builder {
 public:
  Builder(const std::string& path, RecordedEvents events) : events_(std::move(events)) {
    trace_.path = path;
    trace_.device = events_.accelerator;
    trace_.rank = events_.rank;
    trace_.world = events_.world;
  }

  Trace build() {
    keep_one_device();
    const double origin = begin_of_time();
    trace_.names.insert(trace_.names.end(), events_.names.begin(), events_.names.end());
    for (const Operator& op : events_.operators) {
      trace_.operations.push_back(op.name);
      trace_.shapes = trace_.shapes || op.shaped;
    }
    for (const DeviceEvent& event : events_.device) add(event, origin);
    cut_steps(origin);
    note_what_lacks();
    return std::move(trace_);
  }

 private:
  /// Work of the device that has most of it.
  void keep_one_device() {
    std::map<std::uint64_t, std::size_t> counts;
    for (const DeviceEvent& event : events_.device) ++counts[event.device];
    const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<DeviceEvent>& list = events_.device;
    list.erase(std::remove_if(list.begin(), list.end(), [&](const DeviceEvent& event) { return event.device != most->first; }), list.end());
    if (counts.size() > 1)
      trace_.notes.push_back(fmt::format("work of {} devices: that of one is read, {} of {} pieces", counts.size(), list.size(), events_.device_events));
    std::stable_sort(list.begin(), list.end(), [](const DeviceEvent& a, const DeviceEvent& b) { return a.start < b.start; });
  }

  double begin_of_time() const {
    const double device = events_.device.front().start;
    return events_.host_end > 0 ? std::min(device, events_.host_start) : device;
  }

  void add(const DeviceEvent& event, double origin) {
    TracedWork work;
    work.name = event.name + 1;
    work.stream = event.stream;
    work.start = event.start - origin;
    work.seconds = event.seconds;
    const Operator* op = events_.operator_of(event);
    if (op != nullptr) work.operation = static_cast<std::uint32_t>(op - events_.operators.data()) + 1;
    if (event.kind != DeviceEvent::Kind::kernel)
      copy(event, work);
    else if (const auto kind = collective_in(events_.names[event.name]))
      collective(event, *kind, work);
    else
      kernel(event, op, work);
    trace_.work.push_back(work);
  }

  void copy(const DeviceEvent& event, TracedWork& work) {
    Copy copy{event.kind == DeviceEvent::Kind::set ? Copy::Direction::set : direction_of(events_.names[event.name]), event.bytes};
    work.kind = TracedWork::Kind::copy;
    work.id = index_of(trace_.copies, copy);
    work.shaped = event.bytes > 0;
  }

  void collective(const DeviceEvent& event, CollectiveKind by_kernel, TracedWork& work) {
    TracedCollective traced{{by_kernel, Group::world}};
    work.kind = TracedWork::Kind::collective;
    if (event.collective > 0) {
      const CollectiveCall& call = events_.collectives[event.collective - 1];
      traced.what.kind = kind_of(call, by_kernel);
      traced.what.bytes = std::max(call.in, call.out) * bytes_of_type(call.type, traced.what.type);
      traced.ranks = call.ranks;
      traced.nodes = nodes_of(call.members);
      work.shaped = traced.what.bytes > 0;
    }
    work.id = index_of(trace_.collectives, traced);
  }

  void kernel(const DeviceEvent& event, const Operator* op, TracedWork& work) {
    const KernelKey key{event.name, op, {event.grid[0], event.grid[1], event.grid[2]}, {event.block[0], event.block[1], event.block[2]}};
    auto known = read_.find(key);
    if (known == read_.end()) {
      rehearse::Launch launch;
      std::copy(event.grid, event.grid + 3, launch.blocks);
      std::copy(event.block, event.block + 3, launch.threads);
      ReadKernel kernel = read_kernel(events_.names[event.name], launch, op);
      known = read_.emplace(key, std::pair{interned(kernel.kernel), kernel.shaped}).first;
    }
    work.id = known->second.first;
    work.shaped = known->second.second;
  }

  std::uint32_t interned(const Kernel& kernel) {
    const auto [first, last] = kernels_.equal_range(hash_of(kernel));
    for (auto at = first; at != last; ++at)
      if (trace_.kernels[at->second] == kernel) return at->second;
    const auto id = static_cast<std::uint32_t>(trace_.kernels.size());
    trace_.kernels.push_back(kernel);
    kernels_.emplace(hash_of(kernel), id);
    return id;
  }

  /// By the program's own marks, else behind every optimizer step, else all as one. A piece of work belongs to the step in which it starts.
  void cut_steps(double origin) {
    std::vector<HostMark> marks = events_.steps;
    if (marks.empty()) {
      std::sort(events_.optimizers.begin(), events_.optimizers.end(), [](const HostMark& a, const HostMark& b) { return a.end < b.end; });
      double from = events_.host_start;
      for (const HostMark& optimizer : events_.optimizers) marks.push_back({fmt::format("step {}", marks.size() + 1), from, optimizer.end}), from = optimizer.end;
    }
    std::sort(marks.begin(), marks.end(), [](const HostMark& a, const HostMark& b) { return a.start < b.start; });
    for (std::size_t i = 0; i < marks.size(); ++i) {
      const double from = marks[i].start - origin, to = (i + 1 < marks.size() ? marks[i + 1].start : HUGE_VAL) - origin;
      TracedStep step{marks[i].name, from, marks[i].end - origin, at_time(from), at_time(to)};
      if (step.end > step.begin) trace_.steps.push_back(step);
    }
    if (trace_.steps.empty()) trace_.steps.push_back({"the whole trace", 0, 0, 0, trace_.work.size()});
  }

  std::size_t at_time(double time) const {
    const auto found = std::lower_bound(trace_.work.begin(), trace_.work.end(), time, [](const TracedWork& work, double at) { return work.start < at; });
    return static_cast<std::size_t>(found - trace_.work.begin());
  }

  void note_what_lacks() {
    if (events_.device_events > kMostKernels)
      trace_.notes.push_back(fmt::format("only the first {} of {} kernels and copies are read", kMostKernels, events_.device_events));
    if (events_.operator_events > kMostOperators)
      trace_.notes.push_back(fmt::format("only the first {} of {} operators are read: later kernels have no shapes", kMostOperators, events_.operator_events));
    if (!trace_.shapes) trace_.notes.push_back("operators have no shapes: what kernels do is told by their names and grids alone (record_shapes=True of torch.profiler tells more)");
    if (trace_.device.name.empty()) trace_.notes.push_back("the trace does not say which device it is of");
  }

  struct KernelKey {
    std::uint32_t name;
    const Operator* op;
    std::array<std::uint32_t, 3> grid, block;
    auto operator<=>(const KernelKey&) const = default;
  };

  RecordedEvents events_;
  Trace trace_;
  std::map<KernelKey, std::pair<std::uint32_t, bool>> read_;
  std::unordered_multimap<std::size_t, std::uint32_t> kernels_;
};

}  // namespace
}  // namespace trace

namespace {

trace::RecordedEvents events_in(const std::string& path) {
  const std::string begin(trace::ByteSource(path).next().substr(0, 4096));
  for (const char* ending : {".nsys-rep", ".qdrep"})
    if (path.size() > std::string_view(ending).size() && path.substr(path.size() - std::string_view(ending).size()) == ending)
      fail("is Nsight Systems' own format", path, "nsys export --type sqlite " + path);
  if (begin.rfind("SQLite format 3", 0) == 0) return trace::read_nsys(path);
  const std::string header = begin.substr(0, begin.find('\n'));
  if (header.find("Kernel_Name") != std::string::npos || header.find("KernelName") != std::string::npos) return trace::read_rocprof(path);
  return trace::read_kineto(path);
}

}  // namespace

Trace read_trace(const std::string& path) { return trace::Builder(path, events_in(path)).build(); }

}  // namespace plimsoll
