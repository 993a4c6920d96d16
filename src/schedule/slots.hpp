// The orders of the catalogue: what rank `r` executes, one function per schedule.
#pragma once

#include <utility>
#include <vector>

#include "plimsoll/schedule.hpp"

namespace plimsoll::schedule {

/// One function per schedule; the shape has been checked.
std::vector<Slot> gpipe(int rank, const PipelineShape& shape);
std::vector<Slot> one_forward_one_backward(int rank, const PipelineShape& shape);
std::vector<Slot> interleaved(int rank, const PipelineShape& shape);
std::vector<Slot> interleaved_zero_bubble(int rank, const PipelineShape& shape);
std::vector<Slot> zb_h1(int rank, const PipelineShape& shape);
std::vector<Slot> zb_h2(int rank, const PipelineShape& shape);
std::vector<Slot> zb_v(int rank, const PipelineShape& shape);
std::vector<Slot> v_half(int rank, const PipelineShape& shape);
std::vector<Slot> v_min(int rank, const PipelineShape& shape);
std::vector<Slot> dualpipe(int rank, const PipelineShape& shape);
std::vector<Slot> dualpipe_v(int rank, const PipelineShape& shape);

/// Appends slots and counts micro-batches per (pass, chunk): every pass of a chunk takes the micro-batches in order. A whole backward
/// and an input gradient are the same pass of the micro-batch, so they share a count.
class SlotList {
 public:
  explicit SlotList(int chunks) : next_(3 * static_cast<std::size_t>(chunks)) {}

  void add(Pass pass, int chunk = 0, bool with_next = false) { slots_.push_back({pass, chunk, next_[index(pass, chunk)]++, with_next}); }
  void add_at(Pass pass, int chunk, int micro_batch) { slots_.push_back({pass, chunk, micro_batch, false}); }
  int done(Pass pass, int chunk = 0) const { return next_[index(pass, chunk)]; }
  std::vector<Slot> take() { return std::move(slots_); }

 private:
  static std::size_t index(Pass pass, int chunk) {
    const std::size_t kind = pass == Pass::forward ? 0 : pass == Pass::weight_gradient ? 2 : 1;
    return 3 * static_cast<std::size_t>(chunk) + kind;
  }
  std::vector<Slot> slots_;
  std::vector<int> next_;
};

}  // namespace plimsoll::schedule
