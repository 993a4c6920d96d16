// The other processes that mpirun started, through libplimsoll_mpi.so.
#pragma once

#include <memory>
#include <string>

#include "calibrate/dynamic_library.hpp"
#include "calibrate/mpi/plugin.h"
#include "plimsoll/program.hpp"

namespace plimsoll::calibrate {

class Processes {
 public:
  /// Throws Error where the library cannot be found or MPI does not start.
  Processes();
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  const plimsoll_mpi_place& place() const { return place_; }
  /// Every process of a node stands for a device of its own: it takes its part of the processors, where mpirun has not given it one.
  /// Before a backend is opened.
  void take_processors() const;
  void barrier();
  double largest(double value);

  /// All processes, as a group.
  plimsoll_mpi_group everybody() const { return {0, place_.rank, place_.ranks}; }
  /// The processes that say the same colour; every process calls it.
  plimsoll_mpi_group split(std::int64_t colour);
  /// Bytes of the group's first process, on each of its processes.
  void share(const plimsoll_mpi_group& group, void* data, std::size_t bytes);
  void collective(const plimsoll_mpi_group& group, CollectiveKind kind, const void* send, void* receive, std::int64_t bytes);

 private:
  template <class... Types, class... Arguments>
  void call(const char* symbol, Arguments... arguments);

  DynamicLibrary library_;
  plimsoll_mpi_place place_{};
};

}  // namespace plimsoll::calibrate
