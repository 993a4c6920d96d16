#include "rehearse/program_builder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "plimsoll/error.hpp"
#include "rehearse/kernel_names.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostRanks = 10'000'000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60U;

DType type_of(record::Type type) {
  switch (type) {
    case record::Type::f64:
      return DType::fp64;
    case record::Type::f16:
      return DType::fp16;
    case record::Type::bf16:
    case record::Type::i16:
    case record::Type::u16:
      return DType::bf16;
    case record::Type::f8_e4m3:
    case record::Type::f8_e5m2:
    case record::Type::f8_e8m0:
    case record::Type::f4_e2m1:
    case record::Type::f6_e2m3:
    case record::Type::f6_e3m2:
      return DType::fp8;
    case record::Type::i64:
    case record::Type::u64:
      return DType::int64;
    case record::Type::i32:
    case record::Type::u32:
      return DType::int32;
    case record::Type::i8:
    case record::Type::i4:
      return DType::int8;
    case record::Type::u8:
      return DType::uint8;
    case record::Type::c64:
    case record::Type::c128:
      return DType::complex64;
    default:
      return DType::fp32;
  }
}

CollectiveKind kind_of(record::Collective op) {
  switch (op) {
    case record::Collective::all_reduce:
      return CollectiveKind::all_reduce;
    case record::Collective::all_gather:
      return CollectiveKind::all_gather;
    case record::Collective::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case record::Collective::all_to_all:
    case record::Collective::all_to_all_v:
    case record::Collective::gather:
    case record::Collective::scatter:
      return CollectiveKind::all_to_all;
    case record::Collective::send:
      return CollectiveKind::send;
    case record::Collective::receive:
      return CollectiveKind::receive;
    default:
      return CollectiveKind::broadcast;  // a reduction to one rank moves what a broadcast moves
  }
}

/// Of the full buffer, as program.hpp counts them.
std::int64_t full_bytes(CollectiveKind kind, std::int64_t argument, std::int64_t ranks) {
  const bool share = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
  const double whole = static_cast<double>(argument) * static_cast<double>(std::max<std::int64_t>(ranks, 1));
  return !share ? argument : whole < 1e18 ? argument * std::max<std::int64_t>(ranks, 1) : kMostBytes;
}

/// Sums of a damaged record stay numbers.
std::int64_t plus(std::int64_t sum, std::int64_t change) {
  return std::clamp(sum + std::clamp(change, -kMostBytes, kMostBytes), -kMostBytes, kMostBytes);
}

std::int64_t signed_bytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 60U));
}

std::vector<std::int64_t> numbers_in(const std::string& text) {
  std::vector<std::int64_t> ranks;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc() || rank < 0 || rank > kMostRanks) return {};
    ranks.push_back(rank);
    at = next;
    while (at < end && *at == ' ') ++at;
  }
  return ranks;
}

/// "m n k batch bytes": a product of experts over all of their tokens, whose groups lie on the device. It is taken to be of 16-bit numbers,
/// or of 8-bit ones where an element has one byte.
std::optional<record::Gemm> grouped_product(const std::string& text) {
  const std::vector<std::int64_t> numbers = numbers_in(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (numbers.size() != 5 || std::any_of(numbers.begin(), numbers.end(), [](std::int64_t each) { return each < 0 || each > kMost; }))
    return {};
  record::Gemm product{};
  product.m = numbers[0];
  product.n = numbers[1];
  product.k = numbers[2];
  product.batch = static_cast<decltype(product.batch)>(std::min<std::int64_t>(numbers[3], 1 << 20));
  product.a = product.b = numbers[4] == 1 ? record::Type::f8_e4m3 : record::Type::bf16;
  product.c = product.d = record::Type::bf16;
  return product;
}

}  // namespace

void ProgramBuilder::build() {
  issued_.assign(1, 0);
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
      return kernel(event.as<record::Kernel>());
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
      return copy(stream(set.stream, set.header.device), Copy::Direction::device_to_device, signed_bytes(set.bytes), captured);
    }
    case Kind::event_record:
      return event_recorded(event.as<record::EventRecord>());
    case Kind::stream_wait:
      return wait(event.as<record::StreamWait>());
    case Kind::synchronize:
      ++part().totals.host_waits;
      return;
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
  if (issued_.size() <= instruction.stream) issued_.resize(instruction.stream + std::size_t{1}, 0);
  ++issued_[instruction.stream];
  if (instruction.kind != InstructionKind::kernel) return;
  for (const std::size_t waiting : unlabelled_) part().instructions[waiting].label = instruction.label;
  unlabelled_.clear();
}

void ProgramBuilder::count(const Kernel& kernel) {
  StepWork& work = part().totals.work;
  ++work.launches;
  if (kernel.kind != KernelKind::gemm) return;
  ++work.gemms;
  work.gemm_flops += kernel.flops;
}

std::uint32_t ProgramBuilder::kernel_id(const Kernel& kernel, std::uint32_t name_label, bool bytes_known) {
  const WorkKey key{static_cast<int>(kernel.kind),
                    static_cast<int>(kernel.type),
                    kernel.m,
                    kernel.n,
                    kernel.k,
                    kernel.batch,
                    kernel.flops,
                    kernel.bytes_read + kernel.bytes_written,
                    name_label};
  const auto [found, is_new] = work_.try_emplace(key, static_cast<std::uint32_t>(recording_.program.kernels.size()));
  if (is_new) {
    recording_.program.kernels.push_back(kernel);
    recording_.kernel_names.push_back(recording_.program.labels[name_label]);
    recording_.bytes_known.push_back(bytes_known);
  }
  return found->second;
}

std::uint32_t ProgramBuilder::label(const std::string& text) {
  const auto [found, is_new] = labels_.try_emplace(text, static_cast<std::uint32_t>(recording_.program.labels.size()));
  if (is_new) recording_.program.labels.push_back(text);
  return found->second;
}

StreamId ProgramBuilder::stream(std::uint32_t recorded, std::uint8_t device) {
  const std::uint64_t key = (std::uint64_t{device} << 32U) | recorded;
  const auto [found, is_new] = streams_.try_emplace(key, static_cast<StreamId>(std::min<std::size_t>(streams_.size(), 255)));
  if (is_new) {
    if (streams_.size() > 255) refuse("a program on more than 255 streams", file_.path());
    recording_.program.streams.resize(streams_.size());
    recording_.program.streams[found->second] = recorded == 0 ? "default" : fmt::format("stream {}", recorded);
  }
  return found->second;
}

void ProgramBuilder::kernel(const record::Kernel& event) {
  const std::string& mangled = file_.name(event.name);
  if (grouped_ && mangled.find("GroupProblemShape") != std::string::npos) {
    record::Gemm product = *std::exchange(grouped_, std::nullopt);
    product.header = event.header;
    product.stream = event.stream;
    return gemm(product);
  }
  auto [known, is_new] = name_labels_.try_emplace(event.name, 0);
  if (is_new) known->second = label(mangled.empty() ? "kernel without a name" : short_name(mangled));
  Launch launch;
  std::copy(event.grid, event.grid + 3, launch.blocks);
  std::copy(event.block, event.block + 3, launch.threads);
  const NamedKernel named = classify_kernel(mangled, launch, per_thread_);
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.label = known->second;
  instruction.id = kernel_id(named.kernel, known->second, named.bytes_known);
  count(named.kernel);
  issue(instruction, (event.header.flags & record::kCaptured) != 0);
}

void ProgramBuilder::gemm(const record::Gemm& event) {
  constexpr double kMostProducts = 1e24, kMostElements = 1e15;
  const double rows = static_cast<double>(event.m), columns = static_cast<double>(event.n), depth = static_cast<double>(event.k);
  if (event.m < 0 || event.n < 0 || event.k < 0 || rows * columns * event.batch > kMostElements || depth > kMostElements ||
      rows * columns * depth * event.batch > kMostProducts)
    fail(fmt::format("the record is damaged: a matrix product of {} x {} x {}, {} times", event.m, event.n, event.k, event.batch),
         file_.path());
  Kernel kernel{KernelKind::gemm};
  kernel.type = type_of(event.a);
  kernel.m = event.m;
  kernel.n = event.n;
  kernel.k = event.k;
  kernel.batch = event.batch;
  kernel.flops = 2 * rows * columns * depth * event.batch;
  const double element = static_cast<double>(size_of(kernel.type)), result = static_cast<double>(size_of(type_of(event.d)));
  kernel.bytes_read = static_cast<std::int64_t>(std::min(1e18, element * (rows + columns) * depth * event.batch));
  kernel.bytes_written = static_cast<std::int64_t>(std::min(1e18, result * rows * columns * event.batch));
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.label = label(fmt::format("gemm {} x {} x {}{} {}", event.m, event.n, event.k,
                                        event.batch == 1 ? std::string() : fmt::format(" x {}", event.batch), name_of(kernel.type)));
  instruction.id = kernel_id(kernel, instruction.label, true);
  count(kernel);
  issue(instruction, (event.header.flags & record::kCaptured) != 0);
}

/// "cudnn.convolution_…": the rank, then the dimensions of image, filter and result. A result's element takes 2·c·r·s FLOPs; the three
/// passes do the same products.
void ProgramBuilder::library_call(const EventView& event) {
  const auto call = event.as<record::LibraryCall>();
  const std::string_view tail = event.tail(sizeof call);
  const auto number = [&](std::size_t i) {
    std::int64_t value = 1;
    if ((i + 1) * sizeof value <= tail.size()) std::memcpy(&value, tail.data() + i * sizeof value, sizeof value);
    return static_cast<double>(std::max<std::int64_t>(value, 1));
  };
  const std::string name = file_.name(call.name).substr(0, file_.name(call.name).find(' '));
  Kernel kernel{KernelKind::convolution, type_of(call.type)};
  const auto rank = static_cast<std::size_t>(number(0));
  const bool known = name.find("convolution") != std::string::npos && rank >= 3 && rank <= 5 && call.count >= 1 + 3 * rank;
  if (known) {
    double image = 1, filter = 1, result = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      image *= number(1 + i);
      filter *= number(1 + rank + i);
      result *= number(1 + 2 * rank + i);
    }
    kernel.flops = 2 * result * filter / number(1 + rank);
    kernel.bytes_read = static_cast<std::int64_t>(std::min(1e18, (image + filter + result) * static_cast<double>(size_of(kernel.type))));
  }
  Instruction instruction{InstructionKind::kernel};
  instruction.stream = stream(call.stream, event.header().device);
  instruction.label = label(name);
  instruction.id = kernel_id(kernel, instruction.label, known);
  count(kernel);
  issue(instruction, (event.header().flags & record::kCaptured) != 0);
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
  communicators_[event.id] = static_cast<std::uint32_t>(same - recording_.groups.begin());
  if (same == recording_.groups.end()) recording_.groups.push_back(std::move(group));
}

void ProgramBuilder::collective(const record::CollectiveCall& event) {
  const auto found = communicators_.find(event.communicator);
  if (found == communicators_.end())
    fail(fmt::format("the record is damaged: a collective of communicator {}, which was never made", event.communicator), file_.path());
  const RecordedGroup& group = recording_.groups[found->second];
  const CollectiveKind kind = kind_of(event.op);
  const std::int64_t argument = signed_bytes(event.bytes);
  Collective collective{kind, Group::world, full_bytes(kind, argument, group.size), type_of(event.type)};
  Instruction instruction{InstructionKind::collective};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = static_cast<std::uint32_t>(recording_.program.collectives.size());
  instruction.label = label(fmt::format("{} over {}", name_of(kind), group.size));
  recording_.program.collectives.push_back(collective);
  collective_groups_.push_back(found->second);
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
                                                                           : "copy or set on the device");
  recording_.program.copies.push_back({direction, bytes});
  ++part().totals.copies;
  issue(instruction, captured);
}

void ProgramBuilder::event_recorded(const record::EventRecord& event) {
  const StreamId id = stream(event.stream, event.header.device);
  if (issued_.size() <= id) issued_.resize(id + std::size_t{1}, 0);
  events_[event.event] = {id, issued_[id], parts_.size()};
}

/// A wait for all that its stream had been issued when the event was recorded; what came behind the event is told by `bytes`.
void ProgramBuilder::wait(const record::StreamWait& event) {
  const auto found = events_.find(event.event);
  if (found == events_.end() || found->second.part != parts_.size()) return;  // an event of an earlier step is over
  Instruction instruction{InstructionKind::wait};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = found->second.stream;
  if (instruction.stream == found->second.stream) return;
  instruction.bytes = static_cast<std::int64_t>(issued_[found->second.stream] - found->second.issued);
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
      return step_ended();
    case record::MarkKind::phase_begin:
      return phase_begins(file_.name(event.text));
    case record::MarkKind::text:
      return text_mark(file_.name(event.text), event.value);
    default:
      return;
  }
}

void ProgramBuilder::text_mark(const std::string& text, std::int64_t) {
  constexpr std::string_view kCommunicator = "communicator ";
  if (text.compare(0, kCommunicator.size(), kCommunicator) == 0) announced_ = numbers_in(text.substr(kCommunicator.size()));
  constexpr std::string_view kGrouped = "grouped product ";
  if (text.compare(0, kGrouped.size(), kGrouped) == 0) grouped_ = grouped_product(text.substr(kGrouped.size()));
}

void ProgramBuilder::phase_begins(const std::string& name) {
  constexpr Phase kPhases[] = {Phase::init, Phase::forward, Phase::loss, Phase::backward, Phase::optimizer, Phase::end};
  const auto found = std::find_if(std::begin(kPhases), std::end(kPhases), [&](Phase phase) { return name_of(phase) == name; });
  if (found == std::end(kPhases)) return;
  if (parts_.size() == 1 && phase_ == Phase::init) {
    parts_.emplace_back().first_tensor = static_cast<std::uint32_t>(tensors_.size());
    part().totals.peak_allocated = Bytes(allocated_);
    part().totals.peak_reserved = Bytes(reserved_);
    std::fill(issued_.begin(), issued_.end(), 0);
    unlabelled_.clear();
  }
  if (phase_ == *found && !part().instructions.empty()) return;
  phase_ = *found;
  Instruction instruction{InstructionKind::phase};
  instruction.id = static_cast<std::uint32_t>(phase_);
  part().instructions.push_back(instruction);
}

void ProgramBuilder::step_ended() {
  if (parts_.size() == 1) return;  // an optimizer stepped before any pass: still preparation
  part().totals.allocated = Bytes(allocated_);
  part().totals.reserved = Bytes(reserved_);
  parts_.emplace_back().first_tensor = static_cast<std::uint32_t>(tensors_.size());
  part().totals.peak_allocated = Bytes(allocated_);
  part().totals.peak_reserved = Bytes(reserved_);
  std::fill(issued_.begin(), issued_.end(), 0);
  unlabelled_.clear();
  phase_ = Phase::end;
}

// ---- memory ------------------------------------------------------------------------------------------------------------

void ProgramBuilder::block(const record::Block& event) {
  if (event.action == record::BlockAction::allocate) allocated(event);
  if (event.action == record::BlockAction::free_requested) freed(event.address);
}

void ProgramBuilder::allocated(const record::Block& event) {
  recording_.has_blocks = true;
  if (blocks_.count(event.address) != 0) freed(event.address);  // its free was not told: a pool that was dropped as a whole
  const auto id = static_cast<TensorId>(tensors_.size());
  const std::int64_t bytes = signed_bytes(event.bytes);
  tensors_.push_back({bytes, static_cast<std::uint32_t>(parts_.size() - 1), static_cast<std::uint32_t>(phase_), 0, 0});
  blocks_[event.address] = {id, bytes};
  Instruction instruction{InstructionKind::alloc};
  instruction.stream = stream(event.stream, event.header.device);
  instruction.id = id;
  instruction.bytes = bytes;
  if (event.stack != 0) {
    instruction.label = label(file_.name(event.stack));
  } else {
    unlabelled_.push_back(part().instructions.size());
  }
  part().instructions.push_back(instruction);
  allocated_ = plus(allocated_, bytes);
  part().totals.peak_allocated = std::max(part().totals.peak_allocated, Bytes(allocated_));
}

void ProgramBuilder::freed(std::uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return;
  Tensor& tensor = tensors_[found->second.id];
  tensor.dead = true;
  tensor.died_part = static_cast<std::uint32_t>(parts_.size() - 1);
  tensor.died_phase = static_cast<std::uint32_t>(phase_);
  Instruction instruction{InstructionKind::free};
  instruction.id = found->second.id;
  part().instructions.push_back(instruction);
  allocated_ = plus(allocated_, -found->second.bytes);
  blocks_.erase(found);
}

void ProgramBuilder::reserve(std::int64_t change) {
  reserved_ = plus(reserved_, change);
  part().totals.peak_reserved = std::max(part().totals.peak_reserved, Bytes(reserved_));
}

void ProgramBuilder::segment(const record::Segment& event) {
  const std::int64_t bytes = signed_bytes(event.bytes);
  switch (event.action) {
    case record::SegmentAction::allocate:
    case record::SegmentAction::pool_allocate:
    case record::SegmentAction::create:
      reserve(bytes);
      recording_.segments_peak = std::max(recording_.segments_peak, Bytes(signed_bytes(event.used_bytes)));
      return;
    case record::SegmentAction::free:
    case record::SegmentAction::pool_free:
    case record::SegmentAction::release:
      return reserve(-bytes);
    case record::SegmentAction::host_allocate:
      pinned_ = std::max(pinned_, signed_bytes(event.used_bytes));
      return;
    default:
      return;
  }
}

// ---- the program -------------------------------------------------------------------------------------------------------

void ProgramBuilder::finish() {
  recording_.init_peak_allocated = parts_.front().totals.peak_allocated;
  recording_.peak_reserved_before = parts_.front().totals.peak_reserved;
  if (parts_.size() > 1) {
    // what was running when the program ended is no whole step, but its peaks were reached
    recording_.peak_reserved_before = std::max(recording_.peak_reserved_before, parts_.back().totals.peak_reserved);
    if (parts_.size() == 2) recording_.init_peak_allocated = std::max(recording_.init_peak_allocated, parts_.back().totals.peak_allocated);
  }
  for (std::size_t i = 1; i + 1 < parts_.size(); ++i) recording_.steps.push_back(parts_[i].totals);
  name_categories();
  merge_parts();
  name_groups();
  point_collectives_at_groups();
  put_compute_first();
}

void ProgramBuilder::merge_parts() {
  StepProgram& program = recording_.program;
  program.init = std::move(parts_.front().instructions);
  if (parts_.size() < 3) return;  // no step was finished
  const std::size_t last = parts_.size() - 2;
  for (std::size_t i = 1; i < last; ++i)
    program.first_step.insert(program.first_step.end(), parts_[i].instructions.begin(), parts_[i].instructions.end());
  program.step = std::move(parts_[last].instructions);
  close_the_step(program.step, last > 1 ? program.first_step : program.init, parts_[last].first_tensor);
}

/// Makes the step leave what it found, so that it can be played again: a tensor that outlives it takes the place of the one of that size
/// which it freed for an earlier step; what only grows or only shrinks moves to the end of what was before.
void ProgramBuilder::close_the_step(std::vector<Instruction>& step, std::vector<Instruction>& before, std::uint32_t first_own) {
  std::map<std::int64_t, std::vector<std::size_t>> freed_by_size;  // frees of earlier tensors, by size, in order
  std::vector<std::size_t> survivors;                              // allocations that are never freed in the step
  std::unordered_map<TensorId, std::size_t> births;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Instruction& instruction = step[i];
    if (instruction.kind == InstructionKind::alloc) births[instruction.id] = i;
    if (instruction.kind != InstructionKind::free) continue;
    if (instruction.id < first_own)
      freed_by_size[tensors_[instruction.id].bytes].push_back(i);
    else
      births.erase(instruction.id);
  }
  for (const auto& [id, at] : births) survivors.push_back(at);
  std::sort(survivors.begin(), survivors.end());
  std::vector<bool> gone(step.size(), false);
  for (const std::size_t birth : survivors) {
    auto& candidates = freed_by_size[step[birth].bytes];
    if (candidates.empty()) {
      before.push_back(step[birth]);
      gone[birth] = true;
      continue;
    }
    const std::size_t death = candidates.front();
    candidates.erase(candidates.begin());
    if (death < birth)
      step[birth].id = step[death].id;
    else
      step[death].id = step[birth].id;
  }
  for (const auto& [bytes, rest] : freed_by_size)
    for (const std::size_t death : rest) {
      before.push_back(step[death]);
      gone[death] = true;
    }
  std::vector<Instruction> kept;
  for (std::size_t i = 0; i < step.size(); ++i)
    if (!gone[i]) kept.push_back(step[i]);
  step = std::move(kept);
}

/// What a tensor is for, told by when it lived.
Category ProgramBuilder::category_of(const Tensor& tensor) const {
  const auto born = static_cast<Phase>(tensor.born_phase), died = static_cast<Phase>(tensor.died_phase);
  const bool same_part = tensor.dead && tensor.born_part == tensor.died_part;
  if (tensor.born_part == 0) return tensor.dead && tensor.died_part == 0 ? Category::temporary : Category::parameter;
  if (born == Phase::optimizer) return same_part && died == Phase::optimizer ? Category::temporary : Category::optimizer_state;
  if (same_part && born == died) return Category::temporary;
  if (born == Phase::forward) return same_part && died == Phase::backward ? Category::activation : Category::temporary;
  if (born == Phase::backward) return Category::gradient;
  return Category::temporary;
}

void ProgramBuilder::name_categories() {
  for (Part& each : parts_)
    for (Instruction& instruction : each.instructions)
      if (instruction.kind == InstructionKind::alloc) instruction.category = category_of(tensors_[instruction.id]);
}

/// Which parallel dimension a communicator is, for the report: the world by its size, pipelines and experts by their collectives, the
/// others by how far their members are apart.
void ProgramBuilder::name_groups() {
  std::vector<bool> sends(recording_.groups.size()), exchanges(recording_.groups.size());
  for (std::size_t i = 0; i < collective_groups_.size(); ++i) {
    const CollectiveKind kind = recording_.program.collectives[i].kind;
    if (kind == CollectiveKind::send || kind == CollectiveKind::receive) sends[collective_groups_[i]] = true;
    if (kind == CollectiveKind::all_to_all) exchanges[collective_groups_[i]] = true;
  }
  std::vector<Group> free_names{Group::tensor, Group::data_shard, Group::data_replicate, Group::context, Group::expert_data};
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < recording_.groups.size(); ++i) {
    RecordedGroup& group = recording_.groups[i];
    if (sends[i])
      group.group = Group::pipeline;
    else if (exchanges[i])
      group.group = Group::expert;
    else if (group.size >= recording_.world)
      group.group = Group::world;
    else
      rest.push_back(i);
  }
  const auto stride = [&](std::size_t i) {
    const auto& ranks = recording_.groups[i].ranks;
    return ranks.size() > 1 ? ranks[1] - ranks[0] : std::int64_t{1};
  };
  std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) { return stride(a) < stride(b); });
  const bool tensor_first = !rest.empty() && stride(rest.front()) == 1 && rest.size() > 1;
  std::size_t next = tensor_first ? 0 : 1;
  for (const std::size_t i : rest) {
    if (recording_.groups[i].size == 1) continue;
    recording_.groups[i].group = free_names[std::min(next, free_names.size() - 1)];
    ++next;
  }
}

void ProgramBuilder::point_collectives_at_groups() {
  for (std::size_t i = 0; i < collective_groups_.size(); ++i)
    recording_.program.collectives[i].group = recording_.groups[collective_groups_[i]].group;
}

/// The stream with most kernels of the step is the compute stream, number 0 of a program.
void ProgramBuilder::put_compute_first() {
  StepProgram& program = recording_.program;
  if (program.streams.size() < 2) return;
  std::vector<std::size_t> launches(program.streams.size());
  for (const Instruction& instruction : program.step)
    if (instruction.kind == InstructionKind::kernel) ++launches[instruction.stream];
  const auto compute = static_cast<StreamId>(std::max_element(launches.begin(), launches.end()) - launches.begin());
  if (compute == kComputeStream) return;
  const auto swapped = [&](StreamId id) { return id == compute ? kComputeStream : id == kComputeStream ? compute : id; };
  for (auto* part : {&program.init, &program.first_step, &program.step})
    for (Instruction& instruction : *part) {
      instruction.stream = swapped(instruction.stream);
      if (instruction.kind == InstructionKind::wait) instruction.id = swapped(static_cast<StreamId>(instruction.id));
    }
  std::swap(program.streams[kComputeStream], program.streams[compute]);
}

}  // namespace plimsoll::rehearse
