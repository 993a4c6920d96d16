#include "../control.h"

#include <string>

#include "communicators.hpp"
#include "handles.hpp"
#include "machine.hpp"
#include "memory.hpp"
#include "work.hpp"

using namespace plimsoll::device;

PLIMSOLL_DEVICE_API void plimsoll_rehearse_mark(int kind, const char* text, int64_t value) {
  const auto held = lock();
  Machine& m = machine();
  if (m.devices.empty()) return;
  record::Mark event{};
  event.kind = static_cast<record::MarkKind>(kind);
  event.text = text == nullptr ? 0 : m.recorder.intern(text);
  event.value = value;
  event.host_ns = m.recorder.host_ns();
  m.write(record::Kind::mark, thread_state().device, event);
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_block(int action, uint64_t address, uint64_t bytes, void* stream, const char* stack) {
  const Place place = place_of(reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address)));
  const auto held = lock();
  Machine& m = machine();
  if (m.devices.empty()) return;
  if (static_cast<record::BlockAction>(action) == record::BlockAction::allocate) forget_owner(static_cast<std::uintptr_t>(address), bytes);
  const auto* handle = static_cast<const Stream*>(stream);
  record::Block event{};
  event.action = static_cast<record::BlockAction>(action);
  event.stack = stack == nullptr ? 0 : m.recorder.intern(stack);
  event.stream = handle == nullptr || handle->magic != Stream::kMagic ? 0 : handle->id;
  event.address = address;
  event.bytes = bytes;
  // where it lies, not where its thread works: an allocator gives and takes blocks of any device
  m.write(record::Kind::block, place.where == Where::device ? place.device : thread_state().device, event);
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_expect_split(int color, int size, int rank) { expect_split(color, size, rank); }

PLIMSOLL_DEVICE_API int plimsoll_rehearse_library_call(const char* name, void* stream, int type, const int64_t* numbers, uint32_t count) {
  Stream* const on = stream_of(stream);
  if (on == nullptr) return 0;
  library_call(name, *on, numbers, count, static_cast<record::Type>(type), 0);
  return 1;
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_set_memory(uint64_t bytes) {
  const auto held = lock();
  machine().memory_bytes = bytes;
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_set_lag(uint32_t launches) {
  const auto held = lock();
  machine().lag = launches;
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_record(int on) {
  const auto held = lock();
  machine().recorder.pause(on == 0);
}

PLIMSOLL_DEVICE_API int plimsoll_rehearse_begin_again(void) { return begin_again() ? 1 : 0; }

PLIMSOLL_DEVICE_API void plimsoll_rehearse_finish(void) {
  const auto held = lock();
  machine().recorder.finish();
}

PLIMSOLL_DEVICE_API int plimsoll_rehearse_read(const void* device_address, void* host, size_t bytes) {
  const Place place = place_of(device_address);
  const auto at = reinterpret_cast<std::uintptr_t>(device_address);
  if (place.where != Where::device || at + bytes > place.start + place.bytes) return 0;
  std::memcpy(host, device_address, bytes);
  return 1;
}

PLIMSOLL_DEVICE_API int plimsoll_rehearse_write(void* device_address, const void* host, size_t bytes) {
  const Place place = place_of(device_address);
  const auto at = reinterpret_cast<std::uintptr_t>(device_address);
  if (place.where != Where::device || at + bytes > place.start + place.bytes) return 0;
  std::memcpy(device_address, host, bytes);
  note_values(device_address, bytes);
  return 1;
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_note_values(const void* device_address, size_t bytes, int knowledge) {
  note_values(device_address, bytes, static_cast<Knowledge>(knowledge));
}

PLIMSOLL_DEVICE_API int plimsoll_rehearse_known(const void* device_address, size_t bytes) {
  return static_cast<int>(known_values(device_address, bytes));
}

PLIMSOLL_DEVICE_API void plimsoll_rehearse_get_totals(plimsoll_rehearse_totals* totals) {
  const auto held = lock();
  const Machine& m = machine();
  *totals = {};
  totals->kernels = m.totals.kernels;
  totals->gemms = m.totals.gemms;
  totals->collectives = m.totals.collectives;
  totals->copies = m.totals.copies;
  totals->events = m.recorder.events();
  totals->values_read = m.totals.values_read;
  totals->pinned_bytes = m.totals.pinned;
  totals->peak_pinned_bytes = m.totals.peak_pinned;
  totals->failed_bytes = m.totals.failed;
  totals->unmodelled = m.totals.unmodelled;
  if (m.devices.empty()) return;
  const Device& current = m.devices[static_cast<std::size_t>(thread_state().device)];
  totals->used_bytes = current.used;
  totals->peak_bytes = current.peak;
}

PLIMSOLL_DEVICE_API const char* plimsoll_rehearse_record_path(void) {
  const auto held = lock();
  return machine().recorder.path().c_str();
}
