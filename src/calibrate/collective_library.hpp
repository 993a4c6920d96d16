// NCCL and RCCL by dlopen: one interface, one process per device.
#pragma once

#include <memory>
#include <string>

#include "calibrate/backend.hpp"
#include "calibrate/processes.hpp"

namespace plimsoll::calibrate {

class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;
  virtual std::string name() const = 0;
  /// Issues one collective of floats on a stream of the device; both buffers hold `bytes`.
  virtual void run(CollectiveKind kind, void* send, void* receive, std::int64_t bytes, void* stream) = 0;
};

/// The device library that goes with a backend, with a communicator over the processes of a group. Throws Error where it is missing or
/// fails.
std::unique_ptr<DeviceCollectives> open_device_collectives(const std::string& backend, Processes& processes, const plimsoll_mpi_group& group);

}  // namespace plimsoll::calibrate
