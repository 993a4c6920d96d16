// Schedules with two chunks per rank that meet in a V or run in both directions: ZB-V (Qi 2024, "Pipeline Parallelism with Controllable
// Memory"), DualPipe (DeepSeek-V3) and DualPipeV (its form cut in half).
#include <algorithm>

#include "schedule/slots.hpp"

namespace plimsoll::schedule {

/// Chunk 0 goes down the V, chunk 1 comes back up. Built for at least 2p−1 micro-batches; slots beyond m are left out.
std::vector<Slot> zb_v(int rank, const PipelineShape& shape) {
  const int p = shape.stages;
  const int m = std::max(shape.micro_batches, 2 * p - 1);
  SlotList list(2);
  const auto whole = [&](int chunk) {
    list.add(Pass::input_gradient, chunk);
    list.add(Pass::weight_gradient, chunk);
  };
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.add(Pass::forward, 0);
  for (int i = 0; i < rank; ++i) {
    list.add(Pass::forward, 1);
    list.add(Pass::forward, 0);
  }
  for (int i = 0; i < p - rank; ++i) {
    list.add(Pass::forward, 1);
    whole(1);
  }
  while (list.done(Pass::forward, 1) < list.done(Pass::forward, 0) || list.done(Pass::forward, 0) < m) {
    if (list.done(Pass::forward, 0) < m) list.add(Pass::forward, 0);
    whole(0);
    list.add(Pass::forward, 1);
    whole(1);
  }
  for (int i = 0; i < rank; ++i) {
    list.add(Pass::input_gradient, 0);
    list.add(Pass::input_gradient, 1);
  }
  for (int i = 0; i < p - rank; ++i) whole(0);
  for (int chunk : {1, 0})
    while (list.done(Pass::weight_gradient, chunk) < list.done(Pass::input_gradient, chunk)) list.add(Pass::weight_gradient, chunk);
  std::vector<Slot> slots = list.take();
  const auto beyond = [&](const Slot& slot) { return slot.micro_batch >= shape.micro_batches; };
  slots.erase(std::remove_if(slots.begin(), slots.end(), beyond), slots.end());
  return slots;
}

namespace {

/// The eight phases of DualPipe for a rank `h` steps from the outer end of `H` ranks, m micro-batches per direction.
class DualPipeOrder {
 public:
  DualPipeOrder(int half_rank, int half_ranks, int micro_batches, bool swapped)
      : h_(half_rank), H_(half_ranks), m_(micro_batches), swapped_(swapped), list_(2) {}

  std::vector<Slot> build() {
    warm_up();
    steady();
    cool_down();
    return list_.take();
  }

 private:
  int chunk(int direction) const { return swapped_ ? 1 - direction : direction; }
  void forward(int direction) { list_.add(Pass::forward, chunk(direction)); }
  void backward(int direction, bool split) {
    list_.add(split ? Pass::input_gradient : Pass::backward, chunk(direction));
    if (!split) return;
    waiting_.push_back({chunk(direction), list_.done(Pass::input_gradient, chunk(direction)) - 1});
  }
  /// The oldest weight gradient that is waiting (the framework keeps them in one queue).
  void weight() { list_.add_at(Pass::weight_gradient, waiting_[taken_].first, waiting_[taken_].second), ++taken_; }
  void pair(int forward_direction, int backward_direction, bool overlapped = true) {
    list_.add(Pass::forward, chunk(forward_direction), overlapped);
    list_.add(Pass::backward, chunk(backward_direction));
  }

  void warm_up() {
    for (int i = 0; i < 2 * (H_ - h_ - 1); ++i) forward(0);
    for (int i = 0; i < h_ + 1; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < H_ - h_ - 1; ++i) {
      backward(1, true);
      weight();
      forward(1);
    }
  }
  /// The ranks in the middle do not overlap their first pair: its two halves depend on one another's neighbours.
  void steady() {
    const bool middle = h_ == H_ - 1;
    for (int i = 0; i < m_ - 2 * H_ + h_ + 1; ++i) {
      pair(0, 1, !(middle && i == 0));
      pair(1, 0);
    }
  }
  void cool_down() {
    for (int i = 0; i < H_ - h_ - 1; ++i) {
      backward(1, false);
      pair(1, 0);
    }
    bool split = false;
    for (int i = 0; i < h_ + 1; ++i) {
      const bool half_way = i == (h_ + 1) / 2;
      split = split || (half_way && h_ % 2 == 1);
      backward(1, split);
      split = split || half_way;
      backward(0, split);
    }
    for (int i = 0; i < H_ - h_ - 1; ++i) {
      weight();
      backward(0, true);
    }
    while (taken_ < waiting_.size()) weight();
  }

  int h_, H_, m_;
  bool swapped_;
  SlotList list_;
  std::vector<std::pair<int, int>> waiting_;  // (chunk, micro-batch) of input gradients whose weight gradient is due
  std::size_t taken_ = 0;
};

}  // namespace

/// m counts both directions. Chunk 0 is the copy whose first stage is rank 0, chunk 1 the other.
std::vector<Slot> dualpipe(int rank, const PipelineShape& shape) {
  const int p = shape.stages;
  return DualPipeOrder(std::min(rank, p - 1 - rank), p / 2, shape.micro_batches / 2, rank >= p / 2).build();
}

std::vector<Slot> dualpipe_v(int rank, const PipelineShape& shape) {
  return DualPipeOrder(rank, shape.stages, shape.micro_batches, false).build();
}

}  // namespace plimsoll::schedule
