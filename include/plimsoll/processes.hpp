/// The processes that mpirun started together: work split among them, answers brought to the first.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace plimsoll {

/// Whether mpirun (Open MPI, MPICH and their kin, or srun with their plug-ins) started this program together with others.
bool among_processes();

/// Runs `work(rank, ranks)` in every process. The first gets all texts, by rank; the others nothing. MPI is found at run time, as
/// measure_collectives finds it. Throws Error: no MPI; on the first process also what the work of another threw.
std::vector<std::string> gather_texts(const std::function<std::string(int rank, int ranks)>& work);

}  // namespace plimsoll
