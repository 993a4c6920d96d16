// Collectives of all processes that mpirun started: MPI on the host's memory, NCCL or RCCL on a device's.
#pragma once

#include <memory>
#include <string>

#include "calibrate/collective_library.hpp"

namespace plimsoll::calibrate {

class PeerCollectives {
 public:
  /// Throws Error where a device's library is missing or fails.
  PeerCollectives(Backend& backend, Processes& processes);

  /// "mpi", "nccl", "rccl".
  std::string library() const { return device_ ? device_->name() : "mpi"; }
  /// Issues one collective of floats; `bytes` is the full buffer, whole floats for every rank, and both buffers hold that many. Through
  /// MPI it is done when the call returns.
  void run(CollectiveKind kind, void* send, void* receive, std::int64_t bytes, StreamId stream);

 private:
  Backend& backend_;
  Processes& processes_;
  std::unique_ptr<DeviceCollectives> device_;
};

}  // namespace plimsoll::calibrate
