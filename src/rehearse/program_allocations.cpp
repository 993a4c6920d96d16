// Memory: the blocks and segments of the framework's allocator.
#include <algorithm>
#include <string_view>

#include "rehearse/program_builder.hpp"
#include "rehearse/recorded_values.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::string_view kWithoutGradients = "passes without gradients";  // as the program's helpers call it

}  // namespace

/// Whether the memory that an event is about is of a device that is told of.
bool ProgramBuilder::is_told(const record::EventHeader& event) const { return !recording_.device || *recording_.device == event.device; }

void ProgramBuilder::block(const record::Block& event) {
  const int device = event.header.device;
  if (event.action == record::BlockAction::allocate &&
      std::find(recording_.devices.begin(), recording_.devices.end(), device) == recording_.devices.end())
    recording_.devices.push_back(device);
  if (!is_told(event.header)) return;
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
  raise_activity();
}

/// An empty name: training goes on, or setting up.
void ProgramBuilder::activity_begins(const std::string& name) {
  activity_.reset();
  if (name.empty()) return;
  part().validates = part().validates || name == kWithoutGradients;
  auto& all = recording_.activities;
  const auto found = std::find_if(all.begin(), all.end(), [&](const RecordedActivity& each) { return each.name == name; });
  activity_ = static_cast<std::size_t>(found - all.begin());
  if (found == all.end()) all.push_back({name, {}, {}});
  raise_activity();
}

void ProgramBuilder::raise_activity() {
  if (!activity_) return;
  RecordedActivity& activity = recording_.activities[*activity_];
  activity.peak_allocated = std::max(activity.peak_allocated, Bytes(allocated_));
  activity.peak_reserved = std::max(activity.peak_reserved, Bytes(reserved_));
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
  raise_activity();
}

void ProgramBuilder::segment(const record::Segment& event) {
  const std::int64_t bytes = signed_bytes(event.bytes);
  const bool of_host = event.action >= record::SegmentAction::host_allocate && event.action <= record::SegmentAction::host_unregister;
  if (!of_host && !is_told(event.header)) return;
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

}  // namespace plimsoll::rehearse
