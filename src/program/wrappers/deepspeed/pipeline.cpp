#include "program/wrappers/deepspeed/pipeline.hpp"

#include <algorithm>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/deepspeed/flat.hpp"
#include "program/wrappers/deepspeed/pipeline_bf16.hpp"
#include "program/wrappers/deepspeed/zero12.hpp"

namespace plimsoll::program {

namespace {

/// One group of DeepSpeedZeroOptimizer without partitioned gradients (stage_1_and_2.py of DeepSpeed 0.8.1): 16-bit gradients are whole
/// until the end of the schedule. Its bucket would take the next group's gradients as well, which are those of biases and norms alone.
class ZeroGroup final : public ZeroStage12 {
 public:
  using ZeroStage12::ZeroStage12;

  void reduce() {
    before_backward(true);
    after_backward();
  }

  /// has_overflow_partitioned_grads_serial: float(x.float().sum()) of each.
  void check_overflow() {
    for (const Tensor& gradient : only_group().averaged) {
      const Tensor wide = converted(gradient, DType::fp32);
      const Tensor sum = norm_in(wide, DType::fp32);
      tape_.read_back();
    }
  }

  /// get_grad_norm_direct: g.data.double().norm(2).item() of each.
  void measure() {
    for (std::size_t i = 0; i < std::min(only_group().averaged.size(), only_group().own.size()); ++i) {
      const Tensor norm = norm_in(only_group().averaged[i], DType::fp64);
      tape_.read_back();
    }
  }

  /// From the flat gradient to the piece of the weights.
  void update() {
    const Tensor flat = flatten(tape_, only_group().averaged);
    Tensor gradient = converted(flat, DType::fp32);
    Tape::categorize(gradient, Category::gradient);
    only_group().averaged.clear();
    in_place(gradient, {&gradient});  // unscale_and_clip_grads
    only_group().master.grad() = std::move(gradient);
    only_group().optimizer->step();
    only_group().master.grad().reset();
    write_weights(only_group());
  }

  WeightPiece piece() const { return {only_group().master.elements(), settings_.ranks, type_}; }
};

class PipelineZeroOptimizer final : public PipelineOptimizer {
 public:
  PipelineZeroOptimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings) : tape_(tape) {
    for (const auto& slots : groups) groups_.push_back(std::make_unique<ZeroGroup>(tape, ParameterGroups{slots}, settings));
  }

  bool scales_loss() const override { return true; }

  void reduce() override {
    for (const auto& group : groups_) group->reduce();
  }

  void step(StreamId communication) override {
    tape_.operator_name = "ZeRO step";
    for (const auto& group : groups_) group->check_overflow();
    for (const auto& group : groups_) group->measure();
    tape_.wait(kComputeStream, communication);  // the norms are read by the host
    tape_.synchronize();
    for (const auto& group : groups_) group->update();
    tape_.operator_name = "gather weights";
    for (const auto& group : groups_) gather_weights(tape_, group->piece(), communication);
  }

 private:
  Tape& tape_;
  std::vector<std::unique_ptr<ZeroGroup>> groups_;
};

/// FP16_Optimizer, group by group.
class PipelineWholeStates final : public PipelineOptimizer {
 public:
  PipelineWholeStates(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings) {
    for (const auto& slots : groups) groups_.push_back(std::make_unique<WholeStates>(tape, slots, settings));
  }

  bool scales_loss() const override { return true; }

  void reduce() override {
    for (const auto& group : groups_) group->after_backward();
  }

  void step(StreamId) override {
    for (const auto& group : groups_) group->step();
  }

 private:
  std::vector<std::unique_ptr<WholeStates>> groups_;
};

}  // namespace

std::unique_ptr<PipelineOptimizer> make_pipeline_optimizer(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings) {
  if (groups.front().front()->type == DType::bf16) return std::make_unique<PipelineBf16Optimizer>(tape, groups, settings);
  if (settings.stage == 1) return std::make_unique<PipelineZeroOptimizer>(tape, groups, settings);
  return std::make_unique<PipelineWholeStates>(tape, groups, settings);
}

void gather_weights(Tape& tape, const WeightPiece& piece, StreamId communication) {
  constexpr std::int64_t kGatheredTogether = 500'000'000;  // allgather_bucket_size: elements
  if (piece.ranks == 1) return;
  const std::int64_t shards = std::max<std::int64_t>(1, piece.elements * piece.ranks / kGatheredTogether);
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    const Tensor flat = tape.empty({piece.elements / shards * piece.ranks}, piece.type, Category::communication_buffer);
    tape.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = flat.bytes(), .type = piece.type},
                    tape.stream);
    pointwise(flat, {&flat});
    tape.record_stream(flat, communication);
  }
}

}  // namespace plimsoll::program
