// Collectives of the processes that mpirun started: MPI on the host's memory, NCCL or RCCL on a device's.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "calibrate/collective_library.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll::calibrate {

class PeerCollectives {
 public:
  /// Collectives of all processes. Throws Error where a device's library is missing or fails.
  PeerCollectives(Backend& backend, Processes& processes);
  /// Of the groups as well, by Group, as they lie around rank 0: every process finds its own. A group of one communicates in no time.
  PeerCollectives(Backend& backend, Processes& processes, const std::array<RankGroup, kGroups>& groups);

  /// "mpi", "nccl", "rccl".
  std::string library() const;
  /// Bytes of a collective's buffer as floats, as many for every rank of its group: what is exchanged, of whatever type its numbers are.
  std::int64_t whole_floats(const Collective& collective) const;
  /// Issues one collective of floats among the processes of a group; `bytes` is the full buffer, whole floats for every rank, and both
  /// buffers hold that many. Through MPI it is done when the call returns.
  void run(Group group, CollectiveKind kind, void* send, void* receive, std::int64_t bytes, StreamId stream);

 private:
  struct Members {
    plimsoll_mpi_group group{0, 0, 1};
    std::unique_ptr<DeviceCollectives> device;
  };
  Members members_of(const plimsoll_mpi_group& group) const;
  const Members& of(Group group) const { return groups_.at(static_cast<std::size_t>(group)); }

  Backend& backend_;
  Processes& processes_;
  std::string backend_name_;
  std::array<Members, kGroups> groups_;
};

}  // namespace plimsoll::calibrate
