// Work: launches, products, collectives, copies, and the marks that part them.
#include "rehearse/program_builder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "rehearse/kernel_names.hpp"
#include "rehearse/recorded_values.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::size_t kMostStreams = 4096;
const char* const kSetUp = "set-up";                     // until the first pass
constexpr std::uint32_t kOfTheHost = ~std::uint32_t{0};  // a stream that does no work, on which the host waits for events

}  // namespace

void ProgramBuilder::build() {
  activity_begins(kSetUp);
  for (const EventView& event : file_.events()) read(event);
  recording_.events = static_cast<std::int64_t>(file_.events().size());
  recording_.bytes = static_cast<std::int64_t>(file_.bytes());
  recording_.ended = file_.ended();
  recording_.program.host_pinned = Bytes(std::max(recording_.program.host_pinned.count, pinned_));
  finish();
}

void ProgramBuilder::read(const EventView& event) {
  using record::Kind;
  const bool captured = (event.header().flags & record::kCaptured) != 0;
  switch (event.kind()) {
    case Kind::kernel:
      return kernel(event);
    case Kind::gemm:
      return gemm(event.as<record::Gemm>());
    case Kind::library_call:
      return library_call(event);
    case Kind::collective:
      return collective(event.as<record::CollectiveCall>());
    case Kind::communicator:
      return communicator(event.as<record::Communicator>());
    case Kind::copy: {
      const auto copied = event.as<record::Copy>();
      const Copy::Direction direction = copied.kind == record::CopyKind::host_to_device   ? Copy::Direction::host_to_device
                                        : copied.kind == record::CopyKind::device_to_host ? Copy::Direction::device_to_host
                                                                                          : Copy::Direction::device_to_device;
      if (copied.kind != record::CopyKind::host_to_host)
        copy(stream(copied.stream, copied.header.device), direction, signed_bytes(copied.bytes), captured);
      return;
    }
    case Kind::memset: {
      const auto set = event.as<record::Memset>();
      return copy(stream(set.stream, set.header.device), Copy::Direction::set, signed_bytes(set.bytes), captured);
    }
    case Kind::event_record:
      return event_recorded(event.as<record::EventRecord>());
    case Kind::stream_wait:
      return wait(event.as<record::StreamWait>());
    case Kind::synchronize:
      return host_waits(event.as<record::Synchronize>());
    case Kind::graph_begin:
      capturing_ = event.as<record::GraphBegin>().graph;
      graphs_[capturing_].clear();
      return;
    case Kind::graph_end:
      capturing_ = 0;
      return;
    case Kind::graph_launch:
      return graph_launch(event.as<record::GraphLaunch>());
    case Kind::unmodelled:
      recording_.unmodelled.push_back(
          {file_.name(event.as<record::Unmodelled>().library) + ": " + file_.name(event.as<record::Unmodelled>().name), 1});
      return;
    default:
      return read_memory(event);
  }
}

void ProgramBuilder::read_memory(const EventView& event) {
  switch (event.kind()) {
    case record::Kind::device: {
      const auto device = event.as<record::Device>();
      recording_.device_memory = Bytes(signed_bytes(device.memory_bytes));
      recording_.context = Bytes(signed_bytes(device.context_bytes));
      return;
    }
    case record::Kind::mark:
      return mark(event.as<record::Mark>());
    case record::Kind::block:
      return block(event.as<record::Block>());
    case record::Kind::segment:
      return segment(event.as<record::Segment>());
    default:
      return;
  }
}

// ---- work --------------------------------------------------------------------------------------------------------------

void ProgramBuilder::issue(Instruction instruction, bool captured) {
  if (captured && capturing_ != 0) {
    graphs_[capturing_].push_back(instruction);
    return;
  }
  part().instructions.push_back(instruction);
  if (instruction.kind != InstructionKind::kernel) return;
  if (phase_ == Phase::optimizer && !part().stepped) part().optimized = part().instructions.size();
  for (const std::size_t waiting : unlabelled_) part().instructions[waiting].label = instruction.label;
  unlabelled_.clear();
}

void ProgramBuilder::count(const Kernel& kernel) {
  if (capturing_ != 0) return;  // into a graph: counted when that is launched
  StepWork& work = part().totals.work;
  ++work.launches;
  if (!kernel.product()) return;
  ++work.gemms;
  work.gemm_flops += kernel.flops();
}

std::uint32_t ProgramBuilder::kernel_id(const Kernel& kernel, std::uint32_t name_label, bool bytes_known) {
  const std::string& name = recording_.program.labels[name_label];
  const std::size_t key = hash_of(kernel) ^ name_label;
  const auto [first, last] = work_.equal_range(key);
  for (auto at = first; at != last; ++at)
    if (recording_.program.kernels[at->second] == kernel && recording_.kernel_names[at->second] == name) return at->second;
  const auto id = static_cast<std::uint32_t>(recording_.program.kernels.size());
  recording_.program.kernels.push_back(kernel);
  recording_.kernel_names.push_back(name);
  recording_.bytes_known.push_back(bytes_known);
  work_.emplace(key, id);
  return id;
}

std::uint32_t ProgramBuilder::label(const std::string& text) {
  const auto [found, is_new] = labels_.try_emplace(text, static_cast<std::uint32_t>(recording_.program.labels.size()));
  if (is_new) recording_.program.labels.push_back(text);
  return found->second;
}

StreamId ProgramBuilder::stream(std::uint32_t recorded, std::uint8_t device) {
  const std::uint64_t key = (std::uint64_t{device} << 32U) | recorded;
  const auto [found, is_new] = streams_.try_emplace(key, static_cast<StreamId>(std::min(streams_.size(), kMostStreams)));
  if (is_new) {
    if (streams_.size() > kMostStreams) refuse(fmt::format("a program on more than {} streams", kMostStreams), file_.path());
    recording_.program.streams.resize(streams_.size());
    const std::string name = recorded == 0            ? "default"
                             : recorded == kOfTheHost ? "what the host waits for"
                                                      : fmt::format("stream {}", recorded);
    recording_.program.streams[found->second] =
        recording_.device && *recording_.device != device ? fmt::format("device {}: {}", device, name) : name;
  }
  return found->second;
}

/// What lies from its pointers to the ends of their blocks, where name and arguments tell no shape. A kernel of Inductor's has its sizes
/// behind its pointers, and touches no element of a tensor more often than their product; others have strides among them.
void ProgramBuilder::read_pointers(const std::string& name, const Launch& launch, NamedKernel& named) const {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 40, kWidest = 8;
  std::int64_t elements = 1;
  for (const std::int64_t size : launch.arguments.words())
    elements = std::min(kMostElements, elements * std::clamp(size, std::int64_t{1}, kMostElements / elements));
  const bool inductor = name.rfind("triton_", 0) == 0 && !launch.arguments.words().empty();
  std::int64_t bytes = 0;
  for (const std::int64_t pointer : launch.arguments.longs()) {
    const auto value = static_cast<std::uint64_t>(pointer);
    const auto above = blocks_.upper_bound(value);
    if (above == blocks_.begin()) continue;
    const auto& [address, block] = *std::prev(above);
    const std::uint64_t within = value - address;
    if (within >= static_cast<std::uint64_t>(block.bytes)) continue;  // a number
    const std::int64_t rest = block.bytes - static_cast<std::int64_t>(within);
    bytes = plus(bytes, inductor ? std::min(rest, elements * kWidest) : rest);
  }
  if (bytes == 0) return;
  const Unspecified& unknown = std::get<Unspecified>(named.kernel.work);
  named = {{Unspecified{unknown.kind, unknown.type, inductor ? static_cast<double>(elements) : 0, bytes, 0}}, true};
}

void ProgramBuilder::kernel(const EventView& view) {
  const auto event = view.as<record::Kernel>();
  const std::string& mangled = file_.name(event.name);
  if (grouped_ && mangled.find("GroupProblemShape") != std::string::npos) {
    record::Gemm product = *std::exchange(grouped_, std::nullopt);
    product.header = event.header;
    product.stream = event.stream;
    return gemm(product, true);
  }
  auto [known, is_new] = name_labels_.try_emplace(event.name, 0);
  if (is_new) known->second = label(mangled.empty() ? "kernel without a name" : short_name(mangled));
  Launch launch;
  std::copy(event.grid, event.grid + 3, launch.blocks);
  std::copy(event.block, event.block + 3, launch.threads);
  launch.arguments = Arguments(view.tail(sizeof event));
  NamedKernel named = classify_kernel(mangled, launch, per_thread_);
  if (flex_ && mangled.rfind("triton_", 0) == 0)
    named = {{*std::exchange(flex_, std::nullopt)}, true};
  else if (!named.bytes_known)
    read_pointers(mangled, launch, named);
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.label = known->second;
  instruction.id = kernel_id(named.kernel, known->second, named.bytes_known);
  count(named.kernel);
  issue(instruction, (event.header.flags & record::kCaptured) != 0);
}

void ProgramBuilder::gemm(const record::Gemm& event, bool grouped) {
  constexpr double kMostProducts = 1e24, kMostElements = 1e15;
  const double rows = static_cast<double>(event.m), columns = static_cast<double>(event.n), depth = static_cast<double>(event.k);
  if (event.m < 0 || event.n < 0 || event.k < 0 || rows * columns * event.batch > kMostElements || depth > kMostElements ||
      rows * columns * depth * event.batch > kMostProducts)
    fail(fmt::format("the record is damaged: a matrix product of {} x {} x {}, {} times", event.m, event.n, event.k, event.batch),
         file_.path());
  Product product = product_of(event);
  product.grouped = grouped;
  const Kernel kernel{product};
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.label = label(fmt::format("gemm {} x {} x {}{} {}", event.m, event.n, event.k,
                                        event.batch == 1 ? std::string() : fmt::format(" x {}", event.batch), name_of(product.a)));
  instruction.id = kernel_id(kernel, instruction.label, true);
  count(kernel);
  issue(instruction, (event.header.flags & record::kCaptured) != 0);
}

void ProgramBuilder::library_call(const EventView& event) {
  const auto call = event.as<record::LibraryCall>();
  const std::string& said = file_.name(call.name);
  const std::string name = said.substr(0, said.find(' '));
  const bool captured = (event.header().flags & record::kCaptured) != 0;
  LibraryWork work = library_work(name, type_of(call.type), event.tail(sizeof call), call.count);
  const bool known = !work.kernels.empty();
  if (!known) work.kernels.push_back({Unspecified{KernelKind::convolution, type_of(call.type), 0, 0, 0}});
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(call.stream, event.header().device);
  instruction.label = label(name);
  if (work.cleared > 0) copy(instruction.stream, Copy::Direction::set, work.cleared, captured);
  for (const Kernel& kernel : work.kernels) {
    instruction.id = kernel_id(kernel, instruction.label, known);
    count(kernel);
    issue(instruction, captured);
  }
}

void ProgramBuilder::communicator(const record::Communicator& event) {
  if (event.action != record::CommunicatorAction::init && event.action != record::CommunicatorAction::split &&
      event.action != record::CommunicatorAction::shrink)
    return;
  RecordedGroup group;
  group.size = std::max(event.size, 1);
  group.rank = std::max(event.rank, 0);
  if (static_cast<std::int64_t>(announced_.size()) == group.size) group.ranks = announced_;
  const auto same = std::find_if(recording_.groups.begin(), recording_.groups.end(), [&](const RecordedGroup& known) {
    return known.size == group.size && known.rank == group.rank && known.ranks == group.ranks;
  });
  communicators_[event.id] = {static_cast<std::uint32_t>(same - recording_.groups.begin()),
                              {key_of(event, group.ranks), group.size, group.rank, -1}};
  if (same == recording_.groups.end()) recording_.groups.push_back(std::move(group));
}

void ProgramBuilder::collective(const record::CollectiveCall& event) {
  const auto found = communicators_.find(event.communicator);
  if (found == communicators_.end())
    fail(fmt::format("the record is damaged: a collective of communicator {}, which was never made", event.communicator), file_.path());
  const RecordedGroup& group = recording_.groups[found->second.group];
  const CollectiveKind kind = kind_of(event.op);
  const std::int64_t argument = signed_bytes(event.bytes);
  Collective collective{kind, Group::world, full_bytes(kind, argument, group.size), type_of(event.type)};
  Instruction instruction{InstructionKind::collective};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = static_cast<std::uint32_t>(recording_.program.collectives.size());
  instruction.label = label(fmt::format("{} over {}", name_of(kind), group.size));
  recording_.program.collectives.push_back(collective);
  collective_groups_.push_back(found->second.group);
  recording_.meetings.push_back(found->second.meeting);
  recording_.meetings.back().peer = event.peer;
  auto& counts = part().totals.collectives;
  auto same = std::find_if(counts.begin(), counts.end(), [&](const RecordedCollectives& each) { return each.kind == kind; });
  if (same == counts.end()) same = counts.insert(counts.end(), {kind, 0, 0});
  ++same->calls;
  same->bytes_argument = plus(same->bytes_argument, argument);
  issue(instruction, (event.header.flags & record::kCaptured) != 0);
}

void ProgramBuilder::copy(StreamId on, Copy::Direction direction, std::int64_t bytes, bool captured) {
  Instruction instruction{InstructionKind::copy};
  instruction.stream = on;
  instruction.id = static_cast<std::uint32_t>(recording_.program.copies.size());
  instruction.label = label(direction == Copy::Direction::host_to_device   ? "copy to the device"
                            : direction == Copy::Direction::device_to_host ? "copy to the host"
                            : direction == Copy::Direction::set            ? "memory set"
                                                                           : "copy on the device");
  recording_.program.copies.push_back({direction, bytes});
  ++part().totals.copies;
  issue(instruction, captured);
}

void ProgramBuilder::event_recorded(const record::EventRecord& event) {
  const auto id = static_cast<EventId>(events_.size());
  RecordedEvent& known = events_.try_emplace(event.event, RecordedEvent{id, 0}).first->second;
  known.part = parts_.size();
  Instruction instruction{InstructionKind::record_event};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = known.id;
  issue(instruction, false);
}

void ProgramBuilder::wait(const record::StreamWait& event) {
  const auto found = events_.find(event.event);
  if (found == events_.end() || found->second.part != parts_.size()) return;  // an event of an earlier step is over
  Instruction instruction{InstructionKind::wait_event};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = found->second.id;
  issue(instruction, false);
}

/// For a stream, for the device, or for an event: a stream that does no work waits for that, and the host for this stream.
void ProgramBuilder::host_waits(const record::Synchronize& event) {
  ++part().totals.host_waits;
  Instruction instruction{InstructionKind::synchronize};
  if (event.waits == record::Waits::for_event) {
    const auto found = events_.find(event.target);
    if (found == events_.end() || found->second.part != parts_.size()) return;  // an event of an earlier step is over
    record::StreamWait behind{};
    behind.header.device = event.header.device;
    behind.stream = kOfTheHost;
    behind.event = event.target;
    wait(behind);
  }
  if (event.waits != record::Waits::for_device) {
    instruction.stream = stream(event.waits == record::Waits::for_event ? kOfTheHost : event.target, event.header.device);
    instruction.id = 1;
  }
  issue(instruction, false);
}

void ProgramBuilder::graph_launch(const record::GraphLaunch& event) {
  const auto found = graphs_.find(event.graph);
  if (found == graphs_.end()) fail(fmt::format("the record is damaged: graph {} was never captured", event.graph), file_.path());
  const StreamId on = stream(event.stream, event.header.device);
  for (Instruction instruction : found->second) {
    instruction.stream = on;
    if (instruction.kind == InstructionKind::kernel) count(recording_.program.kernels[instruction.id]);
    issue(instruction, false);
  }
}

// ---- marks -------------------------------------------------------------------------------------------------------------

void ProgramBuilder::mark(const record::Mark& event) {
  switch (event.kind) {
    case record::MarkKind::step_end:
      return step_ended(event.value);
    case record::MarkKind::phase_begin:
      return phase_begins(file_.name(event.text));
    case record::MarkKind::text:
      return text_mark(file_.name(event.text), event.value);
    default:
      return;
  }
}

void ProgramBuilder::text_mark(const std::string& text, std::int64_t value) {
  constexpr std::string_view kCommunicator = "communicator ";
  if (text.compare(0, kCommunicator.size(), kCommunicator) == 0) announced_ = numbers_in(text.substr(kCommunicator.size()));
  constexpr std::string_view kActivity = "activity ";
  if (text.compare(0, kActivity.size(), kActivity) == 0) activity_begins(text.substr(kActivity.size()));
  constexpr std::string_view kGrouped = "grouped product ";
  if (text.compare(0, kGrouped.size(), kGrouped) == 0) grouped_ = grouped_product(text.substr(kGrouped.size()));
  if (text == "optimizer stepped") {
    part().stepped = true;
    part().optimized = part().instructions.size();
  }
  if (text == "host count") host_count_begins();
  constexpr std::string_view kHostWork = "host work ";
  if (text.compare(0, kHostWork.size(), kHostWork) == 0) host_work_told(text.substr(kHostWork.size()), value);
  constexpr std::string_view kHostStep = "host step ";
  if (text.compare(0, kHostStep.size(), kHostStep) == 0) host_step(text.substr(kHostStep.size()), value);
  if (text == "host traffic") host_moves(value);
  constexpr std::string_view kFlex = "flex attention ";
  if (text.compare(0, kFlex.size(), kFlex) == 0) flex_ = flex_attention(text.substr(kFlex.size()));
}

void ProgramBuilder::phase_begins(const std::string& name) {
  constexpr Phase kTold[] = {Phase::init, Phase::forward, Phase::loss, Phase::backward, Phase::optimizer, Phase::end};
  const auto found = std::find_if(std::begin(kTold), std::end(kTold), [&](Phase phase) { return name_of(phase) == name; });
  if (found == std::end(kTold)) return;
  if (parts_.size() == 1 && phase_ == Phase::init) {
    if (activity_ && recording_.activities[*activity_].name == kSetUp) activity_begins({});
    parts_.emplace_back().first_tensor = static_cast<std::uint32_t>(tensors_.size());
    part().totals.peak_allocated = Bytes(allocated_);
    part().totals.peak_reserved = Bytes(reserved_);
    unlabelled_.clear();
  }
  if (phase_ == *found && !part().instructions.empty()) return;
  phase_ = *found;
  Instruction instruction{InstructionKind::phase};
  instruction.id = static_cast<std::uint32_t>(phase_);
  part().instructions.push_back(instruction);
  if (phase_ == Phase::optimizer) part().optimized = part().instructions.size();
}

/// `boundary` is its number: not every one ends a step where a program has several optimizers.
void ProgramBuilder::step_ended(std::int64_t boundary) {
  if (parts_.size() == 1) return;  // an optimizer stepped before any pass: still preparation
  const auto& ends = recording_.step_ends;
  if (ends && std::find(ends->begin(), ends->end(), boundary) == ends->end()) return;
  part().totals.allocated = Bytes(allocated_);
  part().totals.reserved = Bytes(reserved_);
  const std::vector<Instruction> taken = take_transfers();
  parts_.emplace_back().first_tensor = static_cast<std::uint32_t>(tensors_.size());
  part().totals.peak_allocated = Bytes(allocated_);
  part().totals.peak_reserved = Bytes(reserved_);
  unlabelled_.clear();
  phase_ = Phase::end;
  put_first(taken);
}

}  // namespace plimsoll::rehearse
