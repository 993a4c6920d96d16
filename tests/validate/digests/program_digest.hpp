// A program in a few hashes: what it says can be compared with what it said before, without keeping it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plimsoll/program.hpp"

namespace plimsoll::digests {

/// The parts of a program, in the order in which they run.
inline constexpr std::size_t kParts = 4;
inline constexpr std::array<const char*, kParts> kPartNames = {"init", "first step", "second step", "step"};

/// What a part does: as a whole, in its order, and module by module, in the order in which modules first do something. Numbers of layers
/// are folded, so that "layers.#.mlp" stands for all of them.
struct PartDigest {
  std::uint32_t whole = 0;
  std::vector<std::uint16_t> labels;
  std::vector<std::string> names;  ///< of the labels; empty where the digest was read from a file

  bool empty() const { return whole == 0; }
};
using Parts = std::array<PartDigest, kParts>;

/// Mixes words and texts into 64 bits, alike on every machine (the finaliser of splitmix64).
class Hash {
 public:
  Hash& operator<<(std::uint64_t word) {
    state_ ^= word + 0x9e3779b97f4a7c15ULL + (state_ << 6U) + (state_ >> 2U);
    state_ = (state_ ^ (state_ >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    return *this;
  }
  Hash& operator<<(const std::string& text) {
    for (const char c : text) *this << static_cast<std::uint64_t>(static_cast<unsigned char>(c));
    return *this << text.size();
  }
  std::uint64_t value() const { return state_ ^ (state_ >> 31U); }

 private:
  std::uint64_t state_ = 0;
};

/// Gathers the programs of a run's ranks. Tensors, events and works count by what they are, never by their numbers, which shift.
class ProgramDigest {
 public:
  /// The program of one more rank.
  void read(const StepProgram& program);
  std::function<void(const StepProgram&)> reader() {
    return [this](const StepProgram& program) { read(program); };
  }
  Parts parts() const;
  /// Tensors that the steps take and do not give back: a step is played over and over, so none.
  std::int64_t left() const { return left_; }

 private:
  class Reading;
  struct Part {
    bool any = false;
    Hash whole;
    std::vector<Hash> labels;
    std::vector<std::string> names;
    std::unordered_map<std::string, std::size_t> index;
  };
  std::array<Part, kParts> parts_;
  std::int64_t left_ = 0;
};

/// "layers.7.mlp.down_proj: linear" as "layers.#.mlp.down_proj: linear".
std::string folded(const std::string& label);

/// The program as text, an instruction a line, in the words of the digest: two dumps differ where their digests do.
std::string dump(const StepProgram& program);

}  // namespace plimsoll::digests
