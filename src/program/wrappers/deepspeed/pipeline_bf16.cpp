#include "program/wrappers/deepspeed/pipeline_bf16.hpp"

#include <algorithm>

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kAlignment = 2;  // nccl_start_alignment_factor

/// The rank's part of a flat tensor, as torch.narrow gives it.
Tensor narrow(Tape& tape, const Tensor& flat, std::int64_t elements) { return tape.view(flat, {elements}, {1}); }

}  // namespace

PipelineBf16Optimizer::PipelineBf16Optimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings)
    : tape_(tape), settings_(settings) {
  tape_.operator_name = "BF16_Optimizer";
  std::vector<Tensor> masters;
  for (const auto& slots : groups) {
    groups_.push_back(make_group(slots));
    masters.push_back(groups_.back().master);
  }
  optimizer_ = make_deepspeed_optimizer(settings_, tape_, masters);
  for (const Group& group : groups_) group.master.grad() = narrow(tape_, group.sums, group.piece);
  optimizer_->step();  // initialize_optimizer_states
}

PipelineBf16Optimizer::Group PipelineBf16Optimizer::make_group(const std::vector<std::shared_ptr<Parameter>>& slots) {
  Group group{.slots = slots, .weights = {}, .master = {}, .sums = {}};
  std::int64_t elements = 0;
  for (const auto& slot : slots) elements += slot->sizes.product();
  group.piece = ceil_div(elements, kAlignment * settings_.ranks) * kAlignment;
  const std::int64_t padded = group.piece * settings_.ranks;
  {
    const Tensor padding = padded > elements ? zeros(tape_, {padded - elements}, DType::bf16) : Tensor();
    group.weights = tape_.empty({padded}, DType::bf16, Category::parameter);
    pointwise(tape_, Pointwise::Form::concatenate, {operand(group.weights)}, {operand(group.weights)});
  }
  for (const auto& slot : slots) slot->tensor = parameter_on(tape_, group.weights, *slot);
  {
    const Tensor copy = tape_.empty({group.piece}, DType::bf16);
    group.master = elementwise(tape_, {&copy}, DType::fp32);
  }
  Tape::categorize(group.master, Category::optimizer_state);
  group.sums = zeros(tape_, {padded}, DType::fp32);
  Tape::categorize(group.sums, Category::gradient);
  return group;
}

void PipelineBf16Optimizer::before_backward() {
  for (const Group& group : groups_) {
    for (const auto& slot : group.slots) slot->tensor.grad().reset();
  }
}

void PipelineBf16Optimizer::after_backward() {
  tape_.operator_name = "accumulate gradients";
  for (const Group& group : groups_) {
    for (const auto& slot : group.slots) {
      const Tensor gradient = slot->tensor.grad();
      if (!gradient) continue;
      const Tensor wide = elementwise(tape_, {&gradient}, DType::fp32);
      in_place(wide, {&wide, &wide});
    }
  }
}

void PipelineBf16Optimizer::reduce() {
  if (settings_.ranks == 1) return;
  tape_.operator_name = "all-reduce gradients";
  for (const Group& group : groups_) {
    tape_.collective(
        {.kind = CollectiveKind::all_reduce, .group = plimsoll::Group::data_shard, .bytes = group.sums.bytes(), .type = DType::fp32},
        tape_.stream);
    in_place(group.sums, {&group.sums});  // the mean
  }
}

void PipelineBf16Optimizer::step(StreamId communication) {
  tape_.operator_name = "BF16_Optimizer step";
  for (const Group& group : groups_) {
    for (const auto& slot : group.slots) {
      const Tensor norm = norm_in(narrow(tape_, group.sums, slot->sizes.product()), DType::fp32);
    }
    if (settings_.clips) in_place(group.sums, {&group.sums});
  }
  tape_.wait(kComputeStream, communication);  // the norms are read by the host
  tape_.synchronize();
  optimizer_->step();
  tape_.operator_name = "gather weights";
  for (const Group& group : groups_) {
    pointwise(tape_, Pointwise::Form::map, {packed(group.piece, DType::fp32)}, {packed(group.piece, DType::bf16)});
    gather_weights(tape_, {group.piece, settings_.ranks, DType::bf16}, communication);
  }
  for (const Group& group : groups_) in_place(group.sums, {});
}

}  // namespace plimsoll::program
