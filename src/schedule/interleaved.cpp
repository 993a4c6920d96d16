// Interleaved 1F1B (Narayanan 2021, Megatron-LM) and its zero-bubble form (torch.distributed.pipelining ScheduleInterleavedZeroBubble).
// A rank holds v chunks; chunk c of rank r is model stage c·p + r. Micro-batches go round in groups of p.
#include <algorithm>

#include "schedule/slots.hpp"

namespace plimsoll::schedule {
namespace {

/// Walks the virtual micro-batches k = 0 … m·v−1: groups of `group` micro-batches pass through every chunk before the next group starts.
class Order {
 public:
  Order(const PipelineShape& shape, int group) : chunks_(shape.chunks), group_(group) {}

  Slot forward(int k) const { return {Pass::forward, chunk(k), micro_batch(k), false}; }
  Slot backward(int k, Pass pass) const { return {pass, chunks_ - 1 - chunk(k), micro_batch(k), false}; }

 private:
  int chunk(int k) const { return k % (chunks_ * group_) / group_; }
  int micro_batch(int k) const { return k / (chunks_ * group_) * group_ + k % group_; }
  int chunks_, group_;
};

/// torch's groups: m over as many rounds as p fits into it. Megatron's are p, which is the same when p divides m.
int group_size(const PipelineShape& shape) { return shape.micro_batches / std::max(1, shape.micro_batches / shape.stages); }

int warm_up_of(int rank, const PipelineShape& shape, int per_rank, int group) {
  return std::min(shape.micro_batches * shape.chunks, per_rank * (shape.stages - rank - 1) + (shape.chunks - 1) * group);
}

}  // namespace

std::vector<Slot> interleaved(int rank, const PipelineShape& shape) {
  const int group = group_size(shape);
  const Order order(shape, group);
  const int total = shape.micro_batches * shape.chunks;
  const int warm_up = warm_up_of(rank, shape, 2, group);
  std::vector<Slot> slots;
  for (int k = 0; k < warm_up; ++k) slots.push_back(order.forward(k));
  for (int k = warm_up; k < total; ++k) {
    slots.push_back(order.forward(k));
    slots.push_back(order.backward(k - warm_up, Pass::backward));
  }
  for (int k = total - warm_up; k < total; ++k) slots.push_back(order.backward(k, Pass::backward));
  return slots;
}

/// Half the warm-up; from the (r+1)-th input gradient on, one weight gradient follows each.
std::vector<Slot> interleaved_zero_bubble(int rank, const PipelineShape& shape) {
  const int group = group_size(shape);
  const Order order(shape, group);
  const int total = shape.micro_batches * shape.chunks;
  const int warm_up = warm_up_of(rank, shape, 1, group);
  std::vector<Slot> slots;
  int weights = 0;
  const auto weight = [&] { slots.push_back(order.backward(weights++, Pass::weight_gradient)); };
  for (int k = 0; k < warm_up; ++k) slots.push_back(order.forward(k));
  for (int k = 0; k < total; ++k) {
    const bool steady = k + warm_up < total;
    if (steady) slots.push_back(order.forward(k + warm_up));
    slots.push_back(order.backward(k, Pass::input_gradient));
    if (!steady || k >= rank) weight();
  }
  while (weights < total) weight();
  return slots;
}

}  // namespace plimsoll::schedule
