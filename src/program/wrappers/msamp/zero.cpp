#include "program/wrappers/msamp/zero.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/msamp/masters.hpp"

namespace plimsoll::program::msamp {

namespace {

constexpr std::int64_t kAlignment = 4;  ///< fp8_nccl_start_alignment_factor: elements per rank

std::int64_t aligned(std::int64_t elements) { return round_up(elements, kAlignment); }

/// Elements of the weights that are dealt out, in the order of the model.
std::vector<std::int64_t> sizes_of(const Model& model) {
  std::vector<std::int64_t> sizes;
  for (const Trained& one : model.trained())
    if (one.linear) sizes.push_back(one.parameter->sizes.product());
  return sizes;
}

/// Which rank each weight goes to, in which order they were dealt out, and what each rank has of them.
struct Deal {
  std::vector<std::int64_t> rank;
  std::vector<std::size_t> order;
  std::vector<std::int64_t> filled;
};

/// The largest weight first, each to the rank that has least so far. Equal ones are taken in the order of their places modulo the ranks.
Deal deal(const std::vector<std::int64_t>& sizes, int ranks) {
  Deal deal{std::vector<std::int64_t>(sizes.size()), std::vector<std::size_t>(sizes.size()),
            std::vector<std::int64_t>(static_cast<std::size_t>(ranks))};
  std::iota(deal.order.begin(), deal.order.end(), std::size_t{0});
  const auto turn = [&](std::size_t i) { return i % static_cast<std::size_t>(ranks); };
  std::stable_sort(deal.order.begin(), deal.order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] != sizes[b] ? sizes[a] > sizes[b] : turn(a) < turn(b); });
  for (std::size_t i : deal.order) {
    const auto least = std::min_element(deal.filled.begin(), deal.filled.end());
    deal.rank[i] = least - deal.filled.begin();
    *least += sizes[i];
  }
  return deal;
}

/// target.meta.copy_(source.meta).
void assign_scaling(const Scaling& target, const Scaling& source) {
  copy_into(target.scale, source.scale);
  copy_into(target.inverse, source.inverse);
  copy_into(target.largest, source.largest);
}

}  // namespace

int fullest_rank(const Model& model, int ranks) {
  const std::vector<std::int64_t> filled = deal(sizes_of(model), ranks).filled;
  return static_cast<int>(std::max_element(filled.begin(), filled.end()) - filled.begin());
}

// ---- setting up ----------------------------------------------------------------------------------------------------------

ScaledZero::ScaledZero(Tape& tape, Model& model, const DeepSpeedSettings& settings, States states)
    : ZeroStage12(tape, {ordinary(model)}, settings, WithoutOptimizer{}), model_(model) {
  const GradMode no_grad(tape, false);
  tape_.operator_name = "fp8 weights";
  deal_out();
  for (Share* share : dealt_) narrow(*share);
  if (!shares_.empty()) flatten_shares();
  only_group().optimizer = make_lb_adam(states);
  if (settings_.stage < 2) return;
  model.on_gradient = [this](ScaledLinear& linear) {
    for (Share& share : shares_)
      if (share.linear == &linear) into_bucket(share);
  };
}

void ScaledZero::deal_out() {
  const std::vector<std::int64_t> sizes = sizes_of(model_);
  const Deal dealt = deal(sizes, settings_.ranks);
  for (const Trained& one : model_.trained())
    if (one.linear) shares_.push_back({one.linear, sizes[shares_.size()], dealt.rank[shares_.size()]});
  for (std::size_t i : dealt.order) dealt_.push_back(&shares_[i]);
  share_size_ = aligned(*std::max_element(dealt.filled.begin(), dealt.filled.end()));
  for (std::int64_t elements : sizes)
    if (elements > settings_.json.reduce_bucket_size)
      fail("MS-AMP fails on a weight of " + std::to_string(elements) + " elements, which fits into no bucket",
           "deepspeed.zero_optimization.reduce_bucket_size", std::to_string(elements) + " or more");
}

/// p.clone() as the master on its rank, p.cast_(kfloat8_e4m3) on all.
void ScaledZero::narrow(Share& share) {
  ScaledLinear& linear = *share.linear;
  Tensor& weight = linear.weight->tensor;
  if (is_own(share)) share.master = cloned_master(linear);
  const EightBits cast = to_eight_bits(weight, linear.scaling);
  weight = cast.value;
  assign_scaling(linear.scaling, cast.scaling);
}

/// _pad_and_flat: by way of the host, one after another.
void ScaledZero::flatten_shares() {
  std::vector<std::int64_t> padding(static_cast<std::size_t>(settings_.ranks), share_size_);
  for (const Share& share : shares_) padding[static_cast<std::size_t>(share.rank)] -= share.elements;
  std::vector<Tensor> pads;
  for (std::int64_t elements : padding)
    if (elements > 0) pads.push_back(tape_.empty({elements}, DType::fp8));
  for (Share* share : dealt_) {
    Tensor& weight = share->linear->weight->tensor;
    tape_.copy({Copy::Direction::device_to_host, weight.bytes()}, tape_.stream);
    weight.reset();
  }
  pads.clear();
  flat_ = tape_.empty({share_size_ * settings_.ranks}, DType::fp8, Category::parameter);
  tape_.copy({Copy::Direction::host_to_device, flat_.bytes()}, tape_.stream);
  for (Share& share : shares_) {
    Parameter& weight = *share.linear->weight;
    weight.type = DType::fp8;
    weight.tensor = tape_.view(flat_, weight.sizes, contiguous_strides(weight.sizes));
    weight.tensor.impl()->base.reset();
  }
}

/// DSAdam of DeepSpeed's master and of the rank's own.
std::unique_ptr<Optimizer> ScaledZero::make_lb_adam(States states) {
  std::vector<Trained> trained = {{master_parameter(only_group().master), nullptr}};
  for (Share* share : dealt_)
    if (share->master) trained.push_back({share->master->weight, share->master.get()});
  return msamp::make_optimizer(tape_, model_, std::move(trained), states, settings_.optimizer == OptimizerKind::adamw);
}

// ---- gradients -----------------------------------------------------------------------------------------------------------

void ScaledZero::before_backward(bool boundary) {
  buckets_.clear();
  for (int i = 0; i < (overlaps() ? 2 : 1); ++i)
    buckets_.push_back(tape_.empty({settings_.json.reduce_bucket_size}, DType::fp8, Category::communication_buffer));
  bucket_ = 0;
  release_buckets();
  ZeroStage12::before_backward(boundary);
}

void ScaledZero::reduce_gradients() {
  ZeroStage12::reduce_gradients();
  for (Share& share : shares_)
    if (share.linear->weight->tensor.grad()) into_bucket(share);
}

/// fp8_reduce_independent_p_g_buckets_and_remove_grads.
void ScaledZero::into_bucket(Share& share) {
  if (bucketed_elements_ + share.elements > settings_.json.reduce_bucket_size) {
    reduce_shares();
    if (overlaps()) bucket_ = 1 - bucket_;
  }
  Tensor& gradient = share.linear->weight->tensor.grad();
  copy_elements(tape_, share.elements, DType::fp8, DType::fp8);
  move_values(gradient, buckets_[bucket_]);
  bucketed_elements_ += share.elements;
  bucketed_.push_back(&share);
}

/// fp8_reduce_ipg_grads: every gradient goes to the rank of its weight, which divides it by its scale.
void ScaledZero::reduce_shares() {
  if (overlaps()) tape_.wait(reduction_stream_, tape_.stream);
  const StreamScope scope(tape_, reducing_stream());
  for (const Share* share : bucketed_)
    if (is_own(*share)) in_place(share->linear->weight_gradient.inverse, {&share->linear->weight_gradient.inverse});
  for (const Share* share : bucketed_)  // a reduction to one rank moves what a broadcast moves
    tape_.collective({.kind = CollectiveKind::broadcast, .group = Group::data_shard, .bytes = share->elements, .type = DType::fp8},
                     tape_.stream);
  std::vector<Tensor> held;  // fp8_grads_in_ipg_bucket: none dies before the bucket is cleared
  for (const Share* share : bucketed_) held.push_back(share->linear->weight->tensor.grad());
  for (const Share* share : bucketed_) keep_or_clear(*share);
  bucketed_.clear();
  bucketed_elements_ = 0;
}

/// fp8_copy_grads_in_partition, or what stage 2 drops: the bucket will be written again.
void ScaledZero::keep_or_clear(const Share& share) {
  Tensor& gradient = share.linear->weight->tensor.grad();
  if (!is_own(share)) {
    if (settings_.stage == 2) gradient.reset();
    return;
  }
  if (!kept_) {
    std::int64_t total = 0;
    for (const Share& other : shares_)
      if (is_own(other)) total += other.elements;
    kept_ = tape_.empty({total}, DType::fp8, Category::gradient);
  }
  copy_elements(tape_, share.elements, DType::fp8, DType::fp8);
  move_values(gradient, kept_);
}

void ScaledZero::epilogue() {
  reduce_bucket();
  reduce_shares();
  await_reductions();
  const std::vector<Tensor> pieces = collect_pieces(), shares = collect_shares();
  release_buckets();
  buckets_.clear();
  kept_.reset();
  clear_gradients();
  for (Share& share : shares_) share.linear->weight->tensor.grad().reset();
}

/// Of DeepSpeed's parameters, as its release 0.13 sums them: piece by piece. Returns this micro-batch's.
std::vector<Tensor> ScaledZero::collect_pieces() {
  const DType accumulated = type_ == DType::bf16 ? DType::fp32 : type_;  // get_acc_dtype
  std::vector<Tensor> pieces = partition_pieces(only_group(), own_gradients(only_group(), accumulated), accumulated);
  if (only_group().averaged.empty()) return std::exchange(only_group().averaged, std::move(pieces));
  for (std::size_t i = 0; i < pieces.size(); ++i) in_place(only_group().averaged[i], {&only_group().averaged[i], &pieces[i]});
  return pieces;
}

/// Of FP8Linears: the sum over micro-batches is cast anew every time. Returns this micro-batch's.
std::vector<Tensor> ScaledZero::collect_shares() {
  std::vector<Tensor> fresh;
  std::vector<ScaledLinear*> linears;
  for (Share* share : dealt_) {
    if (!is_own(*share)) continue;
    linears.push_back(share->linear);
    fresh.push_back(share->linear->weight->tensor.grad());
  }
  if (gradients_.empty()) return std::exchange(gradients_, std::move(fresh));
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    Scaling& scaling = linears[i]->weight_gradient;
    Tensor sum;
    {
      const Tensor before = widened(gradients_[i], &scaling, DType::fp32), now = widened(fresh[i], &scaling, DType::fp32);
      sum = elementwise(tape_, {&before, &now}, DType::fp32);
    }
    const Tensor cast = to_eight_bits(sum, scaling, {});
    Tape::categorize(cast, Category::gradient);
    move_values(gradients_[i], cast);
  }
  return fresh;
}

// ---- the step ------------------------------------------------------------------------------------------------------------

void ScaledZero::step() {
  tape_.operator_name = "ZeRO step";
  check_overflow();
  norm();
  assign_gradients();
  const Tensor last = gradients_.empty() ? Tensor() : gradients_.back();  // the loop's variable lives until step() returns
  gradients_.clear();
  only_group().optimizer->step();
  only_group().master.grad().reset();
  for (Share& share : shares_)
    if (share.master) share.master->weight->tensor.grad().reset();
  write_shares();
  write_weights(only_group());
  gather_parameters();
  gather_shares();
  gather_scales();
}

/// has_overflow, over the ranks.
void ScaledZero::check_overflow() {
  std::vector<const ScaledLinear*> linears;
  for (const Share* share : dealt_)
    if (share->master) linears.push_back(share->linear);
  read_overflow(tape_, only_group().averaged, linears);
  const Tensor overflow = tape_.empty({1}, DType::uint8);
  tape_.copy({Copy::Direction::host_to_device, overflow.bytes()}, tape_.stream);
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = overflow.bytes(), .type = DType::uint8},
                   tape_.stream);
  tape_.copy({Copy::Direction::device_to_host, overflow.bytes()}, tape_.stream);
}

/// get_grad_norm_direct of DeepSpeed's parameters alone: each norm is a number of the host.
void ScaledZero::norm() {
  for (std::size_t i = 0; i < std::min(only_group().averaged.size(), only_group().own.size()); ++i) {
    const Tensor norm = norm_in(only_group().averaged[i], DType::fp64);
    tape_.copy({Copy::Direction::device_to_host, norm.bytes()}, tape_.stream);
  }
  const Tensor total = tape_.empty({1}, DType::fp32);
  tape_.copy({Copy::Direction::host_to_device, total.bytes()}, tape_.stream);
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = total.bytes(), .type = DType::fp32},
                   tape_.stream);
  tape_.copy({Copy::Direction::device_to_host, total.bytes()}, tape_.stream);
}

/// The masters' gradients, and unscale_and_clip_grads: 8-bit ones are multiplied through their scales.
void ScaledZero::assign_gradients() {
  {
    const Tensor flat = flatten(tape_, only_group().averaged);
    Tensor gradient = converted(flat, DType::fp32);
    Tape::categorize(gradient, Category::gradient);
    only_group().master.grad() = std::move(gradient);
  }
  only_group().averaged.clear();
  in_place(only_group().master.grad(), {&only_group().master.grad()});
  std::size_t next = 0;
  for (const Share* share : dealt_) {
    if (!share->master) continue;
    share->master->weight->tensor.grad() = gradients_[next++];
    in_place(share->master->weight_gradient.inverse, {&share->master->weight_gradient.inverse});
  }
}

/// lp.copy_(hp.cast(lp.qtype)) of the rank's own.
void ScaledZero::write_shares() {
  for (const Share& share : shares_) {
    if (!share.master) continue;
    const EightBits cast = to_eight_bits(share.master->weight->tensor, share.master->scaling);
    copy_into(share.linear->weight->tensor, cast.value);
    assign_scaling(share.linear->scaling, cast.scaling);
  }
}

void ScaledZero::gather_shares() {
  if (settings_.ranks == 1 || !flat_) return;
  tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = flat_.bytes(), .type = DType::fp8},
                   tape_.stream);
}

/// all_gather_fp8_metas: the inverse scales of all weights, rank by rank, as many from each.
void ScaledZero::gather_scales() {
  if (shares_.empty()) return;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(settings_.ranks));
  for (const Share& share : shares_) ++counts[static_cast<std::size_t>(share.rank)];
  const std::int64_t longest = aligned(*std::max_element(counts.begin(), counts.end()));
  std::vector<Tensor> padding;
  for (std::int64_t count : counts)
    if (count < longest) padding.push_back(tape_.empty({longest - count}, DType::fp32));
  const Tensor flat = tape_.empty({longest * settings_.ranks}, DType::fp32);
  pointwise(tape_, Pointwise::Form::concatenate, {operand(flat)}, {operand(flat)});
  if (settings_.ranks > 1)
    tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = flat.bytes(), .type = DType::fp32},
                     tape_.stream);
  for (const Share& share : shares_) copy_into(share.linear->scaling.inverse, share.linear->scaling.inverse);
}

}  // namespace plimsoll::program::msamp
