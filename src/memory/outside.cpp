#include "memory/outside.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::memory {
namespace {

struct Range {
  std::int64_t low, high;
};

struct VendorOverheads {
  Bytes context_low, context_high, connection;
  Range channels{}, connections{}, peer_channels{};
};

Range read_range(const JsonValue& object) {
  constexpr std::int64_t kMost = 1024;
  hardware::read_provenance(object["provenance"]);
  const std::int64_t low = object["low"].integer(0, kMost);
  return {low, object["high"].integer(low, kMost)};
}

Bytes read_bytes(const JsonValue& object) { return hardware::read_sourced(object, hardware::bytes_value).value; }

VendorOverheads read_vendor(const JsonValue& root, const JsonValue& vendor) {
  VendorOverheads overheads;
  overheads.context_low = read_bytes(vendor["context"]["low"]);
  overheads.context_high = read_bytes(vendor["context"]["high"]);
  const JsonValue connection = vendor["connection"];
  overheads.connection = read_bytes(connection["ll"]) + read_bytes(connection["ll128"]) + read_bytes(connection["simple"]);
  overheads.channels = read_range(vendor["channels"]);
  overheads.connections = read_range(root["connections_per_channel"]);
  overheads.peer_channels = read_range(root["peer_channels"]);
  return overheads;
}

std::map<std::string, Bytes> read_frameworks() {
  const JsonDocument document = hardware::shipped_document("hardware/overheads.json");
  const JsonValue object = document.root()["communicators_of_frameworks"];
  std::map<std::string, Bytes> frameworks;
  for (const std::string& framework : object.keys()) frameworks.emplace(framework, read_bytes(object[framework]));
  return frameworks;
}

std::map<std::string, VendorOverheads> read_vendors() {
  const JsonDocument document = hardware::shipped_document("hardware/overheads.json");
  const JsonValue root = document.root();
  std::map<std::string, VendorOverheads> vendors;
  for (const std::string& vendor : root["vendors"].keys()) vendors.emplace(vendor, read_vendor(root, root["vendors"][vendor]));
  return vendors;
}

/// Read once: every rank of every estimate asks.
const VendorOverheads& overheads_of(const std::string& vendor) {
  static const std::map<std::string, VendorOverheads> vendors = read_vendors();
  const auto found = vendors.find(vendor);
  if (found == vendors.end()) refuse("memory outside the allocator is not known for devices of \"" + vendor + "\"");
  return found->second;
}

/// The bounds, widened where the device's own value lies outside them.
BytesBand around(Bytes expected, Bytes low, Bytes high) { return {std::min(low, expected), expected, std::max(high, expected)}; }

BytesBand communicator(const VendorOverheads& overheads, const ProcessGroup& group, Bytes expected) {
  const std::int64_t low = overheads.channels.low * overheads.connections.low + group.peers * overheads.peer_channels.low;
  const std::int64_t high = overheads.channels.high * overheads.connections.high + group.peers * overheads.peer_channels.high;
  return around(expected, low * overheads.connection, high * overheads.connection);
}

}  // namespace

BytesBand OutsideAllocator::total() const {
  BytesBand sum = context;
  for (const BytesBand& band : communicators) sum = sum + band;
  return sum;
}

Bytes communicators_of_framework(const std::string& framework) {
  static const std::map<std::string, Bytes> frameworks = read_frameworks();
  const auto found = frameworks.find(framework);
  return found == frameworks.end() ? Bytes(0) : found->second;
}

Bytes connection_buffers(const std::string& vendor) { return overheads_of(vendor).connection; }

OutsideAllocator outside_allocator(const Accelerator& device, const std::vector<ProcessGroup>& groups) {
  const VendorOverheads& overheads = overheads_of(device.vendor);
  const Sourced<Bytes>& context = device.overheads.context;
  OutsideAllocator outside;
  outside.context = context.provenance == Provenance::measured ? BytesBand{context.value, context.value, context.value}
                                                               : around(context.value, overheads.context_low, overheads.context_high);
  bool first = true;
  for (const ProcessGroup& group : groups) {
    outside.communicators.emplace_back();
    const Bytes expected = first ? device.overheads.first_communicator.value : device.overheads.further_communicator.value;
    if (group.ranks < 2 || expected == Bytes(0)) continue;  // 0: the device is known to keep none
    outside.communicators.back() = communicator(overheads, group, expected);
    first = false;
  }
  return outside;
}

}  // namespace plimsoll::memory
