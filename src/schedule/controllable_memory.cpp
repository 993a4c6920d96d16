// V-Half and V-Min (Qi et al. 2024, Pipeline Parallelism with Controllable Memory, section 3): two chunks in a V, whose passes repeat
// every six slots of equal length in a pattern that keeps half, or a third, of what 1F1B keeps; free slots take weight gradients. Then
// passes move forward into free slots: first without more memory than the pattern has, then those of the cool-down.
// Read from AMD-AGI/Primus fd1eeabb, primus/core/pipeline_parallel/scheduler/algorithms/zbv_greedy.py.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <queue>

#include "schedule/slots.hpp"

namespace plimsoll::schedule {
namespace {

constexpr int kInterval = 6;  // slots from one micro-batch to the next: two chunks, three passes each

/// The slots at which a rank's passes of micro-batch 0 begin: forward of both chunks, input gradients of the second and the first.
struct Pattern {
  int first_forward, second_forward, second_gradient, first_gradient;
};

Pattern half(int rank, int stages) {
  const int wait = stages % 2 == 0 ? 3 : 0;
  return {2 * rank, 3 * stages - rank - 2, 3 * stages + wait + 2 * rank - 1, 6 * stages + wait - rank - 2};
}

Pattern least(int rank, int stages) {
  const int wait = stages % 3 == 0 ? 2 : 0;
  return {rank, 2 * stages - rank - 1, 2 * stages + wait + rank, 4 * stages + wait - rank - 1};
}

enum class Phase : std::uint8_t { warm_up, steady, cool_down };

struct Node {
  Slot slot;
  Phase phase = Phase::warm_up;
};

int kind_of(Pass pass) { return pass == Pass::forward ? 0 : pass == Pass::weight_gradient ? 2 : 1; }

class ControllableMemory {
 public:
  ControllableMemory(Pattern (*pattern)(int, int), const PipelineShape& shape)
      : stages_(shape.stages), micro_batches_(shape.micro_batches), ranks_(static_cast<std::size_t>(shape.stages)) {
    for (int rank = 0; rank < stages_; ++rank) {
      Rank& own = ranks_[static_cast<std::size_t>(rank)];
      own.begun.assign(static_cast<std::size_t>(3 * 2 * micro_batches_), 0);
      lay_out(own, pattern(rank, stages_));
      fill_with_weight_gradients(own);
    }
    squeeze(false);
    squeeze(true);
  }

  std::vector<Slot> of(int rank) const {
    std::vector<Slot> slots;
    for (const auto& [time, node] : ranks_[static_cast<std::size_t>(rank)].nodes) slots.push_back(node.slot);
    return slots;
  }

 private:
  struct Rank {
    std::map<int, Node> nodes;  ///< by slot
    std::vector<int> begun;     ///< the slot of every pass of every chunk and micro-batch
    std::vector<int> held;      ///< passes forward whose weight gradients are still due, by slot
  };

  int& begun(Rank& rank, Pass pass, int chunk, int micro_batch) const {
    return rank.begun[static_cast<std::size_t>((kind_of(pass) * 2 + chunk) * micro_batches_ + micro_batch)];
  }
  int& begun(Rank& rank, const Slot& slot) const { return begun(rank, slot.pass, slot.chunk, slot.micro_batch); }

  void lay_out(Rank& rank, const Pattern& pattern) const {
    const std::array<std::pair<Slot, int>, 4> passes{{{{Pass::forward, 0, 0, false}, pattern.first_forward},
                                                      {{Pass::forward, 1, 0, false}, pattern.second_forward},
                                                      {{Pass::input_gradient, 1, 0, false}, pattern.second_gradient},
                                                      {{Pass::input_gradient, 0, 0, false}, pattern.first_gradient}}};
    for (int i = 0; i < micro_batches_; ++i)
      for (auto [slot, start] : passes) {
        slot.micro_batch = i;
        begun(rank, slot) = start + kInterval * i;
        rank.nodes[start + kInterval * i] = {slot, Phase::warm_up};
      }
  }

  static int change(Pass pass) { return pass == Pass::forward ? 1 : pass == Pass::weight_gradient ? -1 : 0; }

  /// Free slots take the oldest weight gradient that is due; of all slots, what is held then.
  void fill_with_weight_gradients(Rank& rank) const {
    std::queue<Slot> due;
    Phase phase = Phase::warm_up;
    for (int time = 0, held = 0; rank.nodes.rbegin()->first >= time || !due.empty(); ++time) {
      const auto at = rank.nodes.find(time);
      if (at != rank.nodes.end()) {
        at->second.phase = phase;
        const Slot& slot = at->second.slot;
        if (slot.pass == Pass::input_gradient) due.push({Pass::weight_gradient, slot.chunk, slot.micro_batch, false});
        if (slot.pass == Pass::input_gradient && slot.chunk == 0 && slot.micro_batch == 0) phase = Phase::steady;
        if (slot.pass == Pass::forward && slot.chunk == 1 && slot.micro_batch == micro_batches_ - 1) phase = Phase::cool_down;
        held += change(slot.pass);
      } else if (!due.empty()) {
        begun(rank, due.front()) = time;
        rank.nodes[time] = {due.front(), phase};
        due.pop();
        --held;
      }
      rank.held.push_back(held);
    }
  }

  /// Where the micro-batch is before that pass: a rank and a chunk; nowhere at the V's end, from where it comes back.
  std::optional<std::pair<int, int>> before(int rank, const Slot& slot) const {
    const bool starts_here = slot.pass == Pass::forward ? slot.chunk == 0 : slot.chunk == 1;  // at rank 0, then away from it
    if (starts_here) return rank == 0 ? std::nullopt : std::optional(std::pair(rank - 1, slot.chunk));
    return rank == stages_ - 1 ? std::pair(rank, 1 - slot.chunk) : std::pair(rank + 1, slot.chunk);
  }

  int earliest(int rank, const Slot& slot) {
    Rank& own = ranks_[static_cast<std::size_t>(rank)];
    int time = slot.micro_batch > 0 ? begun(own, slot.pass, slot.chunk, slot.micro_batch - 1) : 0;
    if (slot.pass == Pass::weight_gradient) return std::max(time, begun(own, Pass::input_gradient, slot.chunk, slot.micro_batch));
    if (const auto from = before(rank, slot)) {
      time = std::max(time, begun(ranks_[static_cast<std::size_t>(from->first)], slot.pass, from->second, slot.micro_batch));
    } else if (slot.pass == Pass::input_gradient) {
      time = std::max(time, begun(own, Pass::forward, slot.chunk, slot.micro_batch));
    }
    return time + 1;
  }

  /// The first free slot from `from` on, `now` at the latest, at which the pass keeps nobody's memory above `most`.
  static int free_slot(Rank& rank, const Slot& slot, int from, int now, std::optional<int> most) {
    for (int time = from; time < now; ++time) {
      if (rank.nodes.count(time) > 0) continue;
      if (!most) return time;
      const auto begin = rank.held.begin() + time, end = rank.held.begin() + now;
      if (change(slot.pass) > 0 && std::any_of(begin, end, [&](int held) { return held + 1 > *most; })) continue;
      std::for_each(begin, end, [&](int& held) { held += change(slot.pass); });
      return time;
    }
    return now;
  }

  void move(Rank& rank, int from, int to) {
    const Node node = rank.nodes.at(from);
    begun(rank, node.slot) = to;
    if (from == to) return;
    rank.nodes.erase(from);
    rank.nodes[to] = node;
  }

  void squeeze(bool cool_down) {
    int last = 0, most = 0;
    for (const Rank& rank : ranks_) {
      last = std::max(last, rank.nodes.rbegin()->first);
      most = std::max(most, *std::max_element(rank.held.begin(), rank.held.end()));
    }
    std::vector<std::vector<Node>> waiting(ranks_.size());
    for (int time = 0; time <= last; ++time)
      for (int r = 0; r < stages_; ++r) {
        Rank& rank = ranks_[static_cast<std::size_t>(r)];
        const auto at = rank.nodes.find(time);
        if (at == rank.nodes.end() || (cool_down && at->second.phase != Phase::cool_down)) continue;
        const Slot slot = at->second.slot;
        if (cool_down && slot.pass == Pass::weight_gradient) {
          waiting[static_cast<std::size_t>(r)].push_back(at->second);
          rank.nodes.erase(at);
          continue;
        }
        move(rank, time, free_slot(rank, slot, earliest(r, slot), time, cool_down ? std::nullopt : std::optional(most)));
      }
    for (int r = 0; r < stages_; ++r)
      for (const Node& node : waiting[static_cast<std::size_t>(r)]) {
        Rank& rank = ranks_[static_cast<std::size_t>(r)];
        int time = earliest(r, node.slot);
        while (rank.nodes.count(time) > 0) ++time;
        begun(rank, node.slot) = time;
        rank.nodes[time] = node;
      }
  }

  int stages_, micro_batches_;
  std::vector<Rank> ranks_;
};

}  // namespace

std::vector<Slot> v_half(int rank, const PipelineShape& shape) { return ControllableMemory(half, shape).of(rank); }
std::vector<Slot> v_min(int rank, const PipelineShape& shape) { return ControllableMemory(least, shape).of(rank); }

}  // namespace plimsoll::schedule
