#include "calibrate/processes.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "calibrate/thread_pool.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr const char* kName = "libplimsoll_mpi.so";

/// Beside the program, where it is built; in the library folders beside its folder, where it is installed.
std::vector<std::string> candidates() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size() - 1);
  std::string folder(path.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  folder = folder.substr(0, folder.rfind('/'));
  std::vector<std::string> names;
  for (const char* below : {"/", "/../lib/", "/../lib64/", "/../lib/x86_64-linux-gnu/", "/../lib/aarch64-linux-gnu/"})
    names.push_back(folder + below + kName);
  names.emplace_back(kName);
  return names;
}

}  // namespace

template <class... Types, class... Arguments>
void Processes::call(const char* symbol, Arguments... arguments) {
  const auto function = library_.find<int(Types...)>(symbol);
  if (!function) fail(library_.name() + " lacks " + symbol, "MPI");
  if (const int code = function(arguments...); code != 0) fail(std::string(symbol) + " returns " + std::to_string(code), "MPI");
}

Processes::Processes() : library_(candidates(), "PLIMSOLL_MPI_LIBRARY", DynamicLibrary::Symbols::shared) {
  if (!library_.loaded())
    fail("no MPI: " + library_.reason(), "mpirun",
         "install libopenmpi-dev and build plimsoll again; without processes calibrate with --import, search with --shard");
  call<plimsoll_mpi_place*>("plimsoll_mpi_start", &place_);
}

Processes::~Processes() {
  if (const auto stop = library_.find<int()>("plimsoll_mpi_stop")) stop();
}

void Processes::take_processors() const {
  const std::vector<int> usable = usable_processors();
  const auto count = static_cast<int>(usable.size());
  if (count < sysconf(_SC_NPROCESSORS_ONLN)) return;
  const int first = count * place_.local_rank / place_.local_ranks;
  const int end = std::max(first + 1, count * (place_.local_rank + 1) / place_.local_ranks);
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int i = first; i < end; ++i) CPU_SET(usable[static_cast<std::size_t>(i)], &own);
  sched_setaffinity(0, sizeof own, &own);
}

void Processes::barrier() { call<>("plimsoll_mpi_barrier"); }

double Processes::largest(double value) {
  call<double*>("plimsoll_mpi_largest", &value);
  return value;
}

plimsoll_mpi_group Processes::split(std::int64_t colour) {
  plimsoll_mpi_group group{};
  call<int, plimsoll_mpi_group*>("plimsoll_mpi_split", static_cast<int>(colour), &group);
  return group;
}

void Processes::share(const plimsoll_mpi_group& group, void* data, std::size_t bytes) {
  call<int, void*, int>("plimsoll_mpi_share", group.id, data, static_cast<int>(bytes));
}

void Processes::collective(const plimsoll_mpi_group& group, CollectiveKind kind, const void* send, void* receive, std::int64_t bytes) {
  call<int, int, const void*, void*, long long>("plimsoll_mpi_collective", group.id, static_cast<int>(kind), send, receive,
                                                static_cast<long long>(bytes));
}

}  // namespace plimsoll::calibrate
