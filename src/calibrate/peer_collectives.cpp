#include "calibrate/peer_collectives.hpp"

namespace plimsoll::calibrate {
namespace {

/// The first rank of this rank's group: what all of its members agree on.
std::int64_t first_of(const RankGroup& group, std::int64_t rank) { return rank - rank / group.stride % group.size * group.stride; }

}  // namespace

PeerCollectives::PeerCollectives(Backend& backend, Processes& processes)
    : backend_(backend), processes_(processes), backend_name_(backend.facts().backend) {
  groups_[static_cast<std::size_t>(Group::world)] = members_of(processes.everybody());
}

PeerCollectives::PeerCollectives(Backend& backend, Processes& processes, const std::array<RankGroup, kGroups>& groups)
    : PeerCollectives(backend, processes) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (static_cast<Group>(i) != Group::world && groups[i].size > 1)
      groups_[i] = members_of(processes.split(first_of(groups[i], processes.place().rank)));
}

PeerCollectives::Members PeerCollectives::members_of(const plimsoll_mpi_group& group) const {
  if (backend_name_ == "cpu") return {group, nullptr};
  return {group, open_device_collectives(backend_name_, processes_, group)};
}

std::string PeerCollectives::library() const {
  const Members& world = of(Group::world);
  return world.device ? world.device->name() : "mpi";
}

std::int64_t PeerCollectives::whole_floats(const Collective& collective) const {
  return round_up(collective.bytes, 4 * std::int64_t{of(collective.group).group.ranks});
}

void PeerCollectives::run(Group group, CollectiveKind kind, void* send, void* receive, std::int64_t bytes, StreamId stream) {
  const Members& members = of(group);
  if (members.group.ranks == 1) return;
  if (members.device)
    members.device->run(kind, send, receive, bytes, backend_.native_stream(stream));
  else
    processes_.collective(members.group, kind, send, receive, bytes);
}

}  // namespace plimsoll::calibrate
