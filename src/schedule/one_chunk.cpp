// Schedules with one model chunk per rank: GPipe, 1F1B (Narayanan 2019), ZB-H1 and ZB-H2 (Qi 2023, "Zero Bubble Pipeline Parallelism").
#include <algorithm>

#include "schedule/slots.hpp"

namespace plimsoll::schedule {

std::vector<Slot> gpipe(int, const PipelineShape& shape) {
  SlotList list(1);
  for (int k = 0; k < shape.micro_batches; ++k) list.add(Pass::forward);
  for (int k = 0; k < shape.micro_batches; ++k) list.add(Pass::backward);
  return list.take();
}

/// min(m, p−r−1) forwards, then pairs (F, B), then the remaining backwards.
std::vector<Slot> one_forward_one_backward(int rank, const PipelineShape& shape) {
  const int warm_up = std::min(shape.micro_batches, shape.stages - rank - 1);
  SlotList list(1);
  for (int k = 0; k < warm_up; ++k) list.add(Pass::forward);
  for (int k = warm_up; k < shape.micro_batches; ++k) {
    list.add(Pass::forward);
    list.add(Pass::backward);
  }
  for (int k = 0; k < warm_up; ++k) list.add(Pass::backward);
  return list.take();
}

/// 1F1B in which the weight gradient lags the input gradient by r micro-batches: memory of 1F1B, a third of its bubble.
std::vector<Slot> zb_h1(int rank, const PipelineShape& shape) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(m, shape.stages - rank - 1);
  SlotList list(1);
  for (int k = 0; k < warm_up; ++k) list.add(Pass::forward);
  for (int k = warm_up; k < m; ++k) {
    list.add(Pass::forward);
    list.add(Pass::input_gradient);
    if (list.done(Pass::input_gradient) > rank) list.add(Pass::weight_gradient);
  }
  while (list.done(Pass::input_gradient) < m) {
    list.add(Pass::input_gradient);
    if (list.done(Pass::weight_gradient) < m) list.add(Pass::weight_gradient);
  }
  while (list.done(Pass::weight_gradient) < m) list.add(Pass::weight_gradient);
  return list.take();
}

/// Up to 2p−1 micro-batches in flight; no bubble when F = I = W.
std::vector<Slot> zb_h2(int rank, const PipelineShape& shape) {
  const int m = shape.micro_batches;
  const int warm_up = std::min(m, 2 * (shape.stages - rank) - 1);
  SlotList list(1);
  for (int k = 0; k < warm_up; ++k) list.add(Pass::forward);
  while (list.done(Pass::input_gradient) < m) {
    list.add(Pass::input_gradient);
    if (list.done(Pass::input_gradient) > 2 * rank) list.add(Pass::weight_gradient);
    if (list.done(Pass::forward) < m) list.add(Pass::forward);
  }
  while (list.done(Pass::weight_gradient) < m) list.add(Pass::weight_gradient);
  return list.take();
}

}  // namespace plimsoll::schedule
