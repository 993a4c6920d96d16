/* What libplimsoll_mpi.so offers the planner, which loads it only where processes are to talk: the planner itself needs no MPI.
   Every function returns 0, or MPI's own error code. */
#ifndef PLIMSOLL_MPI_PLUGIN_H
#define PLIMSOLL_MPI_PLUGIN_H

#ifdef __cplusplus
extern "C" {
#endif

/* Where this process stands among those that mpirun started. */
struct plimsoll_mpi_place {
  int rank, ranks;
  int node, nodes;      /* nodes: how many share memory among themselves */
  int local_rank, local_ranks; /* within the node */
};

/* The order of plimsoll::CollectiveKind. */
enum plimsoll_mpi_kind { plimsoll_mpi_all_reduce, plimsoll_mpi_all_gather, plimsoll_mpi_reduce_scatter, plimsoll_mpi_all_to_all, plimsoll_mpi_broadcast };

int plimsoll_mpi_start(struct plimsoll_mpi_place* place);
int plimsoll_mpi_stop(void);
int plimsoll_mpi_barrier(void);
/* The largest value of any rank, on every rank. */
int plimsoll_mpi_largest(double* value);

/* Some of the processes; 0 names all of them. */
struct plimsoll_mpi_group {
  int id, rank, ranks;
};
/* Puts the processes that say the same colour together, in the order of their ranks. All processes call it. */
int plimsoll_mpi_split(int colour, struct plimsoll_mpi_group* group);
/* Bytes of a group's rank 0, on each of its ranks. */
int plimsoll_mpi_share(int group, void* data, int bytes);
/* One collective of floats in a group; `bytes` is the full buffer, a multiple of 4 · ranks. Both buffers hold that many. */
int plimsoll_mpi_collective(int group, int kind, const void* send, void* receive, long long bytes);

#ifdef __cplusplus
}
#endif

#endif
