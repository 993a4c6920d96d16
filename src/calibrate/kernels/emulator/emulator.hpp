// Runs device kernels on the CPU: one fiber per lane, blocks one after another. Lanes of a wave exchange registers, waves meet at
// barriers, shared memory is poisoned at each block's start; the order in which lanes and waves run is a choice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace plimsoll::calibrate::emulator {

/// Lockstep orders take every lane from barrier to barrier in turn. Greedy runs one wave as far as it can before any other, the waves in
/// random order: what a missing barrier needs to be seen.
enum class Order : std::uint8_t { forward, reverse, shuffled, greedy };

/// A barrier in the source.
struct Site {
  const char* file;
  int line;
  friend bool operator<(const Site& a, const Site& b) {
    const int order = std::string(a.file).compare(b.file);
    return order != 0 ? order < 0 : a.line < b.line;
  }
};

struct Options {
  Order order = Order::forward;
  std::uint32_t seed = 1;
  /// A mutant: lanes pass this barrier without waiting.
  const Site* removed = nullptr;
  /// Block barriers (not a wave's own) that were reached are added here.
  std::set<Site>* reached = nullptr;
};

/// One launch: body() runs once for every lane of `blocks` blocks of `threads`.
struct Job {
  int blocks, threads, wave;
  std::function<void()> body;
  std::size_t shared_bytes = 0;  ///< that the launch gives, beside what the kernel declares
};

/// Runs a launch. Throws std::runtime_error on barrier divergence, and what the body throws.
void run(const Job& job, const Options& options);

/// Runs one launch per rank of a collective, at the same time; throws also when the ranks wait for each other for ever.
void run_together(const std::vector<Job>& jobs, const Options& options);

// ---- what kernels call, inside run() ----------------------------------------------------------------------------------------------------

int thread_index();
int block_index();
int block_count();
void barrier(Site site);
/// LDS of one compute unit of gfx90a and gfx942; static shared memory of an NVIDIA block is limited to 48 KiB.
constexpr std::size_t kSharedLimit = 64 * 1024;

/// Shared memory of the running block for the declaration at `site`: the same for all its lanes.
void* shared_memory(Site site, std::size_t bytes);
/// The same of what the launch gives, which must be `bytes`; it begins at a multiple of 1024 bytes.
void* given_shared_memory(Site site, std::size_t bytes);
/// Lets other lanes run, and other devices: for loops that wait for a peer.
void spin();

constexpr std::size_t kSlot = 64;               ///< bytes that one lane can give to the others at once
constexpr std::size_t kPrepared = 32 * 32 * 4;  ///< bytes that are computed once for all lanes of a wave

/// What the lanes of a wave have shown each other (lane l's bytes lie at kSlot · l) and what was computed of it. Valid until the next
/// exchange but one.
struct Exchanged {
  const std::byte* shown;
  const std::byte* prepared;
};
using Prepare = void (*)(const std::byte* shown, std::byte* prepared);

/// All lanes of the wave meet and show each other `bytes` bytes; `prepare`, where given, runs once.
Exchanged exchange(const void* own, std::size_t bytes, Prepare prepare = nullptr);

}  // namespace plimsoll::calibrate::emulator
