#include "calibrate/mpi/plugin.h"

#include <mpi.h>

#include <vector>

namespace {

std::vector<MPI_Comm>& groups() {
  static std::vector<MPI_Comm> all{MPI_COMM_WORLD};
  return all;
}

bool known(int group) { return group >= 0 && static_cast<std::size_t>(group) < groups().size(); }
MPI_Comm communicator(int group) { return groups()[static_cast<std::size_t>(group)]; }

/// Nodes are numbered in the order of their first ranks.
int find_place(plimsoll_mpi_place* place) {
  MPI_Comm node = MPI_COMM_NULL, leaders = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &place->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &place->ranks);
  if (const int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, place->rank, MPI_INFO_NULL, &node); code != MPI_SUCCESS)
    return code;
  MPI_Comm_rank(node, &place->local_rank);
  MPI_Comm_size(node, &place->local_ranks);
  const int leads = place->local_rank == 0;
  if (const int code = MPI_Comm_split(MPI_COMM_WORLD, leads ? 0 : MPI_UNDEFINED, place->rank, &leaders); code != MPI_SUCCESS) return code;
  int of_leader[2] = {0, 0};
  if (leads) {
    MPI_Comm_rank(leaders, &of_leader[0]);
    MPI_Comm_size(leaders, &of_leader[1]);
    MPI_Comm_free(&leaders);
  }
  MPI_Bcast(of_leader, 2, MPI_INT, 0, node);
  place->node = of_leader[0];
  place->nodes = of_leader[1];
  return MPI_Comm_free(&node);
}

}  // namespace

extern "C" int plimsoll_mpi_start(plimsoll_mpi_place* place) {
  int started = 0;
  MPI_Initialized(&started);
  if (!started)
    if (const int code = MPI_Init(nullptr, nullptr); code != MPI_SUCCESS) return code;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  return find_place(place);
}

extern "C" int plimsoll_mpi_stop() { return MPI_Finalize(); }
extern "C" int plimsoll_mpi_barrier() { return MPI_Barrier(MPI_COMM_WORLD); }
extern "C" int plimsoll_mpi_largest(double* value) {
  double largest = 0;
  const int code = MPI_Allreduce(value, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  *value = largest;
  return code;
}
extern "C" int plimsoll_mpi_split(int colour, plimsoll_mpi_group* group) {
  int world_rank = 0;
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
  if (const int code = MPI_Comm_split(MPI_COMM_WORLD, colour, world_rank, &made); code != MPI_SUCCESS) return code;
  group->id = static_cast<int>(groups().size());
  groups().push_back(made);
  MPI_Comm_rank(made, &group->rank);
  return MPI_Comm_size(made, &group->ranks);
}
extern "C" int plimsoll_mpi_share(int group, void* data, int bytes) {
  return known(group) ? MPI_Bcast(data, bytes, MPI_BYTE, 0, communicator(group)) : MPI_ERR_COMM;
}

extern "C" int plimsoll_mpi_collective(int group, int kind, const void* send, void* receive, long long bytes) {
  if (!known(group)) return MPI_ERR_COMM;
  const MPI_Comm among = communicator(group);
  int ranks = 1;
  MPI_Comm_size(among, &ranks);
  const int all = static_cast<int>(bytes / 4), part = all / ranks;
  switch (kind) {
    case plimsoll_mpi_all_reduce:
      return MPI_Allreduce(send, receive, all, MPI_FLOAT, MPI_SUM, among);
    case plimsoll_mpi_all_gather:
      return MPI_Allgather(send, part, MPI_FLOAT, receive, part, MPI_FLOAT, among);
    case plimsoll_mpi_reduce_scatter:
      return MPI_Reduce_scatter_block(send, receive, part, MPI_FLOAT, MPI_SUM, among);
    case plimsoll_mpi_all_to_all:
      return MPI_Alltoall(send, part, MPI_FLOAT, receive, part, MPI_FLOAT, among);
    case plimsoll_mpi_broadcast:
      return MPI_Bcast(receive, all, MPI_FLOAT, 0, among);
    default:
      return MPI_ERR_ARG;
  }
}
