// What stands in front of a launcher, and how one is known.
#pragma once

#include <utility>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// A line from its launcher, or its program, on.
struct Unwrapped {
  std::vector<Node> words;
  std::vector<std::pair<std::string, Node>> environment;  ///< NAME=VALUE in front: env's
  bool slurm = false;                                     ///< srun starts it, once per task
};

/// Takes away what only starts something else: srun (what it says of tasks and nodes is said), env, nohup, timeout, conda run, nsys
/// profile, containers, an interpreter's own options.
Unwrapped unwrapped(Reading& reading, std::vector<Node> words);

/// Whether a launcher, or a program that trains, begins the words.
bool is_launcher(const std::vector<Node>& words);
/// "python -m torch.distributed.run", whatever it is called.
bool is_torchrun_module(const std::vector<Node>& words);
/// Throws Error where a module or file is of a program that trains and is not read, naming it.
void refuse_unread(const Node& program);
/// The same of the program that a line starts, and where that is nothing that is known.
void require_known_program(const std::vector<Node>& words);

/// "torchrun" of "/opt/bin/torchrun".
std::string base_name_of(const std::string& path);
std::string base_name_of(const Node& word);
bool is_python(const Node& word);

}  // namespace plimsoll::formats
