// The passes of one part of a pipeline rank's program: how to find them, and in what situation each of them is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/pipeline_passes.hpp"

namespace plimsoll::program {

inline bool computes(PassKind kind) {
  return kind == PassKind::forward || kind == PassKind::backward || kind == PassKind::input_gradient || kind == PassKind::weight_gradient;
}
inline bool is_of_a_micro_batch(PassKind kind) { return kind != PassKind::gather && kind != PassKind::reshard && kind != PassKind::reduce; }

/// Passes of a part and how to find them. A pass's `row` is its kind on its chunk.
class Passes {
 public:
  explicit Passes(std::vector<PipelinePass> passes) : passes_(std::move(passes)) {
    for (std::size_t i = 0; i < passes_.size(); ++i) {
      const std::size_t row = row_of(passes_[i].kind, passes_[i].chunk);
      if (row >= rows_.size()) rows_.resize(row + 1);
      rank_in_row_.push_back(rows_[row].size());
      rows_[row].push_back(i);
      if (is_of_a_micro_batch(passes_[i].kind)) by_micro_batch_[key(row, passes_[i].micro_batch)] = i;
      micro_batches_ = std::max(micro_batches_, passes_[i].micro_batch + 1);
    }
  }

  const std::vector<PipelinePass>& passes() const { return passes_; }
  std::size_t size() const { return passes_.size(); }
  std::int64_t micro_batches() const { return micro_batches_; }

  std::int64_t rank_in_row(std::size_t pass) const { return static_cast<std::int64_t>(rank_in_row_[pass]); }
  bool is_last_of_row(std::size_t pass) const { return row(passes_[pass].kind, passes_[pass].chunk).back() == pass; }
  /// How many passes of the same row ran after pass `pass` and before or as `now` (`now` = size(): all of them).
  std::int64_t lag(std::size_t pass, std::size_t now) const {
    return ran(row(passes_[pass].kind, passes_[pass].chunk), now) - rank_in_row(pass) - 1;
  }
  std::optional<std::size_t> with_lag(PassKind kind, int chunk, std::int64_t lag, std::size_t now) const {
    return with_rank(kind, chunk, ran(row(kind, chunk), now) - 1 - lag);
  }
  std::optional<std::size_t> with_rank(PassKind kind, int chunk, std::int64_t rank) const {
    const auto& of = row(kind, chunk);
    if (rank < 0 || rank >= static_cast<std::int64_t>(of.size())) return {};
    return of[static_cast<std::size_t>(rank)];
  }
  /// The micro-batch of the chunk's last backward pass up to and with `now`; nothing before the first.
  std::optional<std::int64_t> last_back(int chunk, std::size_t now) const {
    const auto pass = with_lag(PassKind::backward, chunk, 0, now);
    if (!pass) return {};
    return passes_[*pass].micro_batch;
  }
  std::optional<std::size_t> of_micro_batch(PassKind kind, int chunk, std::int64_t micro_batch) const {
    const auto found = by_micro_batch_.find(key(row_of(kind, chunk), micro_batch));
    if (found == by_micro_batch_.end()) return {};
    return found->second;
  }

 private:
  using Row = std::vector<std::size_t>;
  static std::size_t row_of(PassKind kind, int chunk) {
    return static_cast<std::size_t>(chunk) * kPassKinds + static_cast<std::size_t>(kind);
  }
  static std::uint64_t key(std::size_t row, std::int64_t micro_batch) {
    return (static_cast<std::uint64_t>(row) << 40U) + static_cast<std::uint64_t>(micro_batch);
  }
  const Row& row(PassKind kind, int chunk) const {
    const std::size_t at = row_of(kind, chunk);
    return at < rows_.size() ? rows_[at] : none_;
  }
  /// Passes of a row up to and with pass `now`.
  static std::int64_t ran(const Row& row, std::size_t now) { return std::upper_bound(row.begin(), row.end(), now) - row.begin(); }

  std::vector<PipelinePass> passes_;
  std::vector<Row> rows_;
  std::vector<std::size_t> rank_in_row_;
  std::unordered_map<std::uint64_t, std::size_t> by_micro_batch_;
  std::int64_t micro_batches_ = 0;
  Row none_;
};

/// What the first passes of a row made for all that follow (gathered weights, gradients that are added to) is named from the start.
constexpr std::int64_t kFirst = 2, kRecent = 3;

/// What a pass may depend on: its row, whether it is the first, the second or the last of it, and what its chunk computed before and next.
class Situation {
 public:
  void push_back(int what) { all_[size_++] = static_cast<std::int16_t>(what); }
  friend bool operator==(const Situation& a, const Situation& b) { return a.all_ == b.all_; }
  struct Hash {
    std::size_t operator()(const Situation& situation) const {
      std::uint64_t hash = 14695981039346656037U;  // FNV-1a
      for (const std::int16_t what : situation.all_) hash = (hash ^ static_cast<std::uint16_t>(what)) * 1099511628211U;
      return hash;
    }
  };

 private:
  static constexpr std::size_t kMost = 20;  ///< the row and what stands about the pass, and 7 passes of its chunk
  std::array<std::int16_t, kMost> all_{};   ///< the first says how long a past it is of
  std::size_t size_ = 0;
};

/// What of a pass's past is looked back upon: computing passes of the chunk; beside which passes of any chunk it stands, and whether its
/// micro-batch is the chunk's latest.
struct Memory {
  std::size_t passes = 0;
  bool neighbours = false;
};

/// From the longest to the shortest. The longest tells the first turns of a steady state from later ones, its neighbours the turns of one
/// chunk while others fill or drain the pipeline; a shorter one serves where the recorded passes show that it makes no difference.
inline constexpr Memory kMemories[] = {{7, true}, {5, true}, {3, true}, {1, true}, {7}, {5}, {3}, {1}, {0}};

/// The situations of all passes of an order.
class Situations {
 public:
  explicit Situations(const Passes& order) : order_(order), position_(order.size()) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const PipelinePass& pass = order.passes()[i];
      if (static_cast<std::size_t>(pass.chunk) >= histories_.size()) histories_.resize(static_cast<std::size_t>(pass.chunk) + 1);
      auto& history = histories_[static_cast<std::size_t>(pass.chunk)];
      position_[i] = history.size();
      if (computes(pass.kind) || pass.kind == PassKind::release_output) history.push_back(static_cast<int>(pass.kind));
      neighbours_.push_back(static_cast<int>(pass.kind));
    }
  }

  Situation of(std::size_t pass, const Memory& memory) const {
    const PipelinePass& p = order_.passes()[pass];
    const auto& history = histories_[static_cast<std::size_t>(p.chunk)];
    const std::size_t at = position_[pass];
    const bool remembered = computes(p.kind) || p.kind == PassKind::release_output;
    Situation situation;
    situation.push_back(static_cast<int>(memory.passes));
    situation.push_back(memory.neighbours ? 1 : 0);
    situation.push_back(static_cast<int>(p.kind));
    situation.push_back(p.chunk);
    situation.push_back(static_cast<int>(std::min(order_.rank_in_row(pass), kFirst)));
    situation.push_back(order_.is_last_of_row(pass) ? 1 : 0);
    if (memory.passes == 0) return situation;
    if (memory.neighbours) {
      situation.push_back(is_latest_forward(pass) ? 1 : 0);
      for (std::size_t before = 1; before <= 4; ++before) situation.push_back(neighbour(pass - before));
      const int next = neighbour(pass + 1);
      situation.push_back(next);
    }
    const std::size_t next = at + (remembered ? 1 : 0);
    situation.push_back(next < history.size() ? history[next] : -1);
    for (std::size_t back = 1; back <= memory.passes; ++back) situation.push_back(back <= at ? history[at - back] : -1);
    return situation;
  }

 private:
  /// −1 before the first (whose predecessors' numbers wrap round) and behind the last.
  int neighbour(std::size_t at) const { return at < neighbours_.size() ? neighbours_[at] : -1; }

  /// Whether the pass's chunk has not gone forward since the pass's micro-batch did: it still holds what it was given.
  bool is_latest_forward(std::size_t pass) const {
    const PipelinePass& p = order_.passes()[pass];
    const auto latest = order_.with_lag(PassKind::forward, p.chunk, 0, pass);
    return latest && order_.passes()[*latest].micro_batch == p.micro_batch;
  }

  const Passes& order_;
  std::vector<std::vector<int>> histories_;     ///< by chunk: the kinds of its computing passes in order
  std::vector<std::size_t> position_;           ///< per pass: how many of them came before
  std::vector<int> neighbours_;                 ///< the kinds of all passes in order
};

}  // namespace plimsoll::program
