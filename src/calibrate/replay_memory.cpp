#include "calibrate/replay_memory.hpp"

#include <algorithm>

#include "calibrate/program_kernels.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using memory::kNoBlock;

constexpr const char* kWhere = "replay";

}  // namespace

void randomise(Backend& backend, void* memory, std::int64_t bytes, const std::vector<std::byte>& numbers) {
  auto* first = static_cast<std::byte*>(memory);
  std::int64_t there = std::min(bytes, static_cast<std::int64_t>(numbers.size()));
  backend.copy(first, numbers.data(), static_cast<std::size_t>(there), CopyDirection::host_to_device, kComputeStream);
  for (; there < bytes; there = std::min(2 * there, bytes))  // what is there already is copied behind itself
    backend.copy(first + there, first, static_cast<std::size_t>(std::min(there, bytes - there)), CopyDirection::device_to_device,
                 kComputeStream);
  backend.synchronize();
}

ReplayMemory::ReplayMemory(Backend& backend, const PlayMemoryOptions& options)
    : backend_(backend),
      at_waits_(options.delayed_free == DelayedFree::next_wait),
      allocator_({options.allocator, options.capacity.count, options.total.value_or(options.capacity).count, options.delayed_free,
                  options.segments}),
      numbers_(operand_numbers(backend.shape(), 7)) {
  if (options.launches_behind > 0) refuse("a host that runs ahead of its device is not replayed", kWhere);
  allocator_.log_segments(&events_);
}

ReplayMemory::~ReplayMemory() {
  give_back([&] {
    backend_.synchronize();
    for (const auto& [address, range] : ranges_) range.expandable ? backend_.release_range(range.memory) : backend_.release(range.memory);
  });
}

void ReplayMemory::allocate(const Instruction& instruction) {
  Tensor& made = tensor(instruction.id);
  made = {};
  if (instruction.bytes == 0) return;
  made.block = allocator_.allocate(instruction.bytes, instruction.stream);
  if (!events_.empty()) follow_driver();
  if (made.block == kNoBlock)
    fail("the device is full: " + to_string(Bytes(instruction.bytes)) + " more do not fit", kWhere,
         "plimsoll explain says what takes the memory");
  made.memory = pointer(allocator_.address(made.block));
  peak_allocated_ = std::max(peak_allocated_, allocator_.allocated());
  peak_reserved_ = std::max(peak_reserved_, allocator_.reserved());
}

void ReplayMemory::free(const Instruction& instruction) {
  Tensor& gone = tensor(instruction.id);
  if (gone.block == kNoBlock) return;
  allocator_.free(gone.block);
  gone.block = kNoBlock;
}

void ReplayMemory::record_stream(const Instruction& instruction) {
  if (const Tensor& used = tensor(instruction.id); used.block != kNoBlock) allocator_.record_stream(used.block, instruction.stream);
}

void ReplayMemory::waited(StreamId stream) {
  if (at_waits_) allocator_.complete(stream);
}

void ReplayMemory::empty_cache() {
  backend_.synchronize();
  allocator_.empty_cache();
  follow_driver();
}

ReplayMemory::Tensor& ReplayMemory::tensor(TensorId id) {
  if (id >= tensors_.size()) tensors_.resize(id + std::size_t{1});
  return tensors_[id];
}

void ReplayMemory::follow_driver() {
  for (const Event& event : events_) {
    switch (event.kind) {
      case AllocatorEvent::Kind::segment_alloc:
        got_segment(event);
        break;
      case AllocatorEvent::Kind::segment_free:
        gave_segment(event);
        break;
      case AllocatorEvent::Kind::segment_map:
        got_pages(event);
        break;
      case AllocatorEvent::Kind::segment_unmap:
        gave_pages(event);
        break;
      default:
        break;
    }
    driver_peak_ = std::max(driver_peak_, driver_bytes_);
  }
  events_.clear();
}

void ReplayMemory::got_segment(const Event& event) {
  auto* memory = static_cast<std::byte*>(backend_.allocate(static_cast<std::size_t>(event.size)));
  ranges_[event.address] = {memory, event.size, false};
  randomise(backend_, memory, event.size, numbers_);
  driver_bytes_ += event.size;
}

void ReplayMemory::gave_segment(const Event& event) {
  backend_.synchronize();
  backend_.release(ranges_.at(event.address).memory);
  ranges_.erase(event.address);
  driver_bytes_ -= event.size;
}

/// PyTorch maps memory page by page, so that any run of pages can be given back.
void ReplayMemory::got_pages(const Event& event) {
  const auto segment = allocator_.expandable_segment(event.address);
  if (ranges_.count(segment.address) == 0)
    ranges_[segment.address] = {static_cast<std::byte*>(backend_.reserve(static_cast<std::size_t>(segment.size))), segment.size, true};
  std::byte* memory = pointer(event.address);
  backend_.map(memory, static_cast<std::size_t>(event.size), static_cast<std::size_t>(segment.page));
  randomise(backend_, memory, event.size, numbers_);
  driver_bytes_ += event.size;
}

void ReplayMemory::gave_pages(const Event& event) {
  backend_.synchronize();
  backend_.unmap(pointer(event.address), static_cast<std::size_t>(event.size));
  driver_bytes_ -= event.size;
}

std::byte* ReplayMemory::pointer(std::uint64_t address) const {
  const auto& [start, range] = *std::prev(ranges_.upper_bound(address));
  return range.memory + (address - start);
}

}  // namespace plimsoll::calibrate
