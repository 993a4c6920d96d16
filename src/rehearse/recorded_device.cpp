#include "plimsoll/recorded_device.hpp"

#include <fmt/core.h>

#include "plimsoll/error.hpp"
#include "rehearse/record_file.hpp"

namespace plimsoll {

RecordedDevice recorded_device(const std::string& path) {
  const rehearse::RecordFile file(path);
  RecordedDevice device;
  for (const rehearse::EventView& event : file.events()) {
    if (event.kind() == rehearse::record::Kind::device && device.name.empty()) {
      const auto told = event.as<rehearse::record::Device>();
      device.name = file.name(told.name);
      device.memory = Bytes(static_cast<std::int64_t>(told.memory_bytes));
      device.processors = told.processors;
      device.major = told.major, device.minor = told.minor;
    }
    if (event.kind() != rehearse::record::Kind::mark) continue;
    const auto mark = event.as<rehearse::record::Mark>();
    if (mark.kind == rehearse::record::MarkKind::text && file.name(mark.text) == rehearse::record::kAskedForMemory) device.asked_for_memory = true;
  }
  if (device.name.empty()) fail("the recorded program never used its device", path);
  return device;
}

std::vector<std::string> may_differ(const RecordedDevice& recorded, const Cluster& cluster, const std::string& path) {
  const Accelerator& device = cluster.accelerator;
  const std::string capability = fmt::format("sm_{}{}", recorded.major, recorded.minor);
  if (device.is_amd() || device.target.compare(0, capability.size(), capability) != 0)
    refuse(fmt::format("a record made on {} ({}), priced on {} ({}), where other kernels run", recorded.name, capability, device.title,
                       device.target),
           path, "rehearse the program again --on that");
  std::vector<std::string> notes;
  if (recorded.processors != device.compute_units)
    notes.push_back(fmt::format(
        "recorded on {} processors, and {} has {}: kernels whose blocks are as many as those (persistent ones) are priced as recorded",
        recorded.processors, device.title, device.compute_units));
  if (recorded.asked_for_memory && recorded.memory != device.memory_usable.value)
    notes.push_back(fmt::format("the program asked how much memory is free on its {}, and may do otherwise with {}: rehearse it again to know",
                                to_string(recorded.memory), to_string(device.memory_usable.value)));
  return notes;
}

}  // namespace plimsoll
