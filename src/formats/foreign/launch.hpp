// What launchers and a script's environment tell of a run's devices.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "formats/foreign/reading.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll::formats {

/// A variable of a run's environment that decides something: the allocator's settings, which devices are seen.
void read_environment(Reading& reading, const std::string& name, const std::string& value, const std::string& where);

/// Said of a script that an interpreter starts without a launcher: one process, in which transformers' Trainer runs DataParallel.
constexpr const char* kLoneProcess = "env.processes";

/// How many nodes a launcher starts, and processes on each; 0: nobody says.
struct Ranks {
  std::int64_t nodes = 0, per_node = 0;
  std::string told;  ///< by what
};
/// What deepspeed's own words count: a hostfile, --include and --exclude within it, --num_nodes and --num_gpus, devices that are seen.
Ranks deepspeed_ranks(Reading& reading, const std::vector<Node>& words, const LaunchLine& line);
/// "host slots=8" lines of DeepSpeed's hostfile, or of mpirun's.
Ranks hostfile_ranks(const Reading& reading, const Node& file);
/// Devices that the environment lets a process see; 0: all.
std::int64_t visible_devices(const Reading& reading);

/// Accelerate's file, by path or none, with flags over it by the names that the file has (as_in_accelerate_file).
void read_accelerate_options(Reading& reading, const std::string& file, const Node& flags, const Node& from);
/// A flag of `accelerate launch` by the name that its file has, and its value there.
std::pair<std::string, std::string> as_in_accelerate_file(const std::string& name, const std::string& value);
/// Whether `accelerate launch` has such a flag.
bool is_launch_option(const std::string& name);

void say_ranks(Reading& reading, const Ranks& ranks, const std::string& where);
/// A job whose launcher leaves the count to the machine has a rank per device that is seen, or that Slurm gives it.
void derive_ranks(Reading& reading);

}  // namespace plimsoll::formats
