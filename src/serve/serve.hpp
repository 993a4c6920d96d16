// The C function over HTTP: JSON over POST, the page at "/".
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace plimsoll::serve {

struct Options {
  std::string host = "127.0.0.1";
  int port = 7465;           ///< 0: any that is free
  std::size_t workers = 1;   ///< requests answered at once
  std::size_t waiting = 64;  ///< requests that may wait for a worker; more are turned away
  double seconds = 10;       ///< that a request may take
  std::size_t request_bytes = 8U << 20;
  std::size_t cache_bytes = 16U << 20;  ///< of answers that are kept for equal requests; 0: none
  std::vector<std::string> names;       ///< by which others may ask for it, beside its addresses
  std::string page;                     ///< folder of the built page; empty: there is none
  std::vector<std::string> worker;      ///< the command that runs one: a program of its own, so that a request can be ended
  std::function<void(int port)> ready;  ///< called once, when connections are taken
  std::function<bool()> stop;           ///< asked ten times a second
};

/// Serves until `stop` says so; what was begun is answered first. Throws Error: the address cannot be had, a worker cannot be run.
void run(const Options& options);

/// What a worker is: reads requests from standard input and writes their answers to standard output, each behind its length in four bytes.
/// Sees no file, and takes at most `memory` bytes; where these do not do for a request, it ends.
int run_worker(std::size_t memory);

}  // namespace plimsoll::serve
