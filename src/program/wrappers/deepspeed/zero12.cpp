#include "program/wrappers/deepspeed/zero12.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/wrappers/deepspeed/norm.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kAlignment = 2;  ///< nccl_start_alignment_factor: elements per rank

}  // namespace

// ---- setting up ----------------------------------------------------------------------------------------------------------

ZeroStage12::ZeroStage12(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings)
    : ZeroStage12(tape, groups, settings, WithoutOptimizer{}) {
  make_optimizers();
}

ZeroStage12::ZeroStage12(Tape& tape, const ParameterGroups& groups, const DeepSpeedSettings& settings, WithoutOptimizer)
    : DeepSpeedOptimizer(tape, settings), reduction_stream_(tape.add_stream("reduction")) {
  for (const auto& parameters : groups) place_members(parameters);
  if (members_.empty()) fail("DeepSpeed needs a parameter that is trained", "lora");
  type_ = members_.front().slot->type;
  const bool wider = settings.accumulate_fp32 && type_ != DType::fp32;
  compact_ = wider && settings.release.accumulates_in_one_buffer();
  accumulate_apart_ = compact_ && settings.stage == 1;
  if (wider && !compact_ && (settings.stage == 1 || settings.offload_optimizer))
    refuse("fp32 gradient accumulation of ZeRO 1 and of offloaded ZeRO 2 is not modelled before DeepSpeed 0.19.8", "releases.deepspeed", "0.19.8");
  if (wider && settings.release.preflattens_wide_gradients())
    refuse("fp32 gradient accumulation of ZeRO 2 under DeepSpeed 0.19.2 to 0.19.7 is not modelled", "releases.deepspeed", "0.19.8");
  // Before, ZeRO 2 adds up the gradients as they came: grad_accum_dtype is the type of what pads them alone (get_flat_partition).
  padding_type_ = wider ? DType::fp32 : type_;
  if (settings.release.leaks_buckets() && overlaps() && !contiguous())
    refuse(
        "with overlap_comm and without contiguous_gradients DeepSpeed since 0.17.2 keeps another bucket of reduce_bucket_size in every backward "
        "pass "
        "until memory runs out (setup_buckets adds, nothing clears)",
        "deepspeed.zero_optimization", "contiguous_gradients true");
  for (OptimizerGroup& group : groups_) {
    const std::int64_t padding = deal_out(group);
    flatten_parameters(group, padding);
    make_master(group);
  }
  for (std::size_t i = 0; i < members_.size(); ++i)
    members_[i].slot->tensor.register_post_accumulate_grad_hook([this, i](const Tensor&) { gradient_ready(i); });
}

/// The trainable parameters of a group, if it has any, and their places in its flat buffer, which with round_robin_gradients deals them out
/// to the ranks in turn.
void ZeroStage12::place_members(const std::vector<std::shared_ptr<Parameter>>& parameters) {
  const std::size_t before = members_.size();
  for (const auto& slot : parameters)
    if (slot->trainable) members_.push_back({.slot = slot, .group = groups_.size(), .elements = slot->sizes.product()});
  if (members_.size() == before) return;  // DeepSpeedEngine._configure_optimizer leaves a group without parameters out
  OptimizerGroup group;
  for (std::size_t i = before; i < members_.size(); ++i) group.members.push_back(i);
  const std::size_t turns = settings_.json.round_robin_gradients ? static_cast<std::size_t>(settings_.ranks) : 1;
  std::int64_t start = 0;
  for (std::size_t first = 0; first < turns; ++first) {
    for (std::size_t i = first; i < group.members.size(); i += turns) {
      Member& member = members_[group.members[i]];
      member.start = start;
      start += member.elements;
    }
  }
  groups_.push_back(std::move(group));
}

/// How large a rank's piece is, and whose parameters touch this rank's. Returns the elements that fill the last one up.
std::int64_t ZeroStage12::deal_out(OptimizerGroup& group) {
  std::int64_t total = 0;
  for (std::size_t i : group.members) total += members_[i].elements;
  group.piece = ceil_div(total, kAlignment * settings_.ranks) * kAlignment;
  for (std::size_t i : group.members)
    if (touches_own_piece(members_[i])) group.own.push_back(i);
  std::sort(group.own.begin(), group.own.end(), [this](std::size_t a, std::size_t b) { return members_[a].start < members_[b].start; });
  return group.piece * settings_.ranks - total;
}

/// The weights are copied side by side on the device (before 0.18.7 on the host) and every parameter becomes a view.
void ZeroStage12::flatten_parameters(OptimizerGroup& group, std::int64_t padding) {
  tape_.operator_name = "flatten parameters";
  if (!settings_.release.flattens_on_device()) {
    for (std::size_t i : group.members) {
      const Member& member = members_[i];
      tape_.copy({Copy::Direction::device_to_host, member.slot->tensor.bytes()}, tape_.stream);
      const Tensor placeholder = tape_.empty({1}, DType::fp32);
      member.slot->tensor = parameter_on(tape_, placeholder, *member.slot);
    }
    tape_.empty_cache();
    group.flat = tape_.empty({group.piece * settings_.ranks}, type_, Category::parameter);
    tape_.copy({Copy::Direction::host_to_device, group.flat.bytes()}, tape_.stream);
  } else {
    tape_.empty_cache();
    Tensor pad;
    if (padding > 0) pad = zeros(tape_, {padding}, type_);
    group.flat = tape_.empty({group.piece * settings_.ranks}, type_, Category::parameter);
    pointwise(tape_, Pointwise::Form::concatenate, {operand(group.flat)}, {operand(group.flat)});
  }
  for (std::size_t i : group.members) members_[i].slot->tensor = parameter_on(tape_, group.flat, *members_[i].slot);
}

/// The rank's fp32 master piece.
void ZeroStage12::make_master(OptimizerGroup& group) {
  tape_.operator_name = "master weights";
  const bool cloned_on_host = settings_.offload_optimizer && !settings_.release.clones_on_device();
  if (!cloned_on_host) {
    const Tensor piece = tape_.empty({group.piece}, type_, Category::optimizer_state);  // clone()
    pointwise(piece, {&piece});
    if (!settings_.offload_optimizer) group.master = converted(piece, DType::fp32);
  }
  if (settings_.offload_optimizer) {
    tape_.copy({Copy::Direction::device_to_host, group.piece * size_of(type_)}, tape_.stream);
  } else {
    Tape::categorize(group.master, Category::optimizer_state);
  }
}

/// The optimizers of the masters. Gradients of their sizes are made once and dropped, so that the memory is known to be there.
void ZeroStage12::make_optimizers() {
  if (settings_.offload_optimizer) {
    reserve_host_memory();
    std::int64_t largest = 0;
    for (const Member& member : members_) largest = std::max(largest, member.elements);
    offload_buffer_ = tape_.empty({largest}, type_, Category::communication_buffer);
    for (OptimizerGroup& group : groups_)
      group.optimizer = make_deepspeed_host_optimizer(settings_, tape_, group.piece, !scales_gradients());
    return;
  }
  std::vector<Tensor> gradients;
  for (const OptimizerGroup& group : groups_) gradients.push_back(zeros(tape_, {group.piece}, DType::fp32));
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    OptimizerGroup& group = groups_[i];
    group.optimizer = make_deepspeed_optimizer(settings_, tape_, {group.master});
    if (!settings_.release.makes_states_at_construction()) continue;
    group.master.grad() = std::move(gradients[i]);
    group.optimizer->step();
    group.master.grad().reset();
  }
}

/// ZeRO-Offload: master, its 16-bit copy and its gradient, two buffers of the largest parameter's size (one of them on the host), sums of
/// the micro-batches' gradients; the moments of CPUAdam are never pinned.
void ZeroStage12::reserve_host_memory() {
  std::int64_t largest = 0, own = 0, pieces = 0;
  for (const Member& member : members_) largest = std::max(largest, member.elements);
  for (const OptimizerGroup& group : groups_) {
    pieces += group.piece;
    for (std::size_t i : group.own) own += members_[i].elements;
  }
  std::int64_t bytes = pieces * (4 + 4 + size_of(type_)) + largest * size_of(type_);
  if (settings_.micro_batches > 1 && !compact_) bytes += own * size_of(type_);
  (settings_.pinned ? tape_.program().host_pinned : tape_.program().host_pageable) += Bytes(bytes);
  tape_.program().host_pageable += Bytes(pieces * 8);
}

bool ZeroStage12::touches_own_piece(const Member& member) const {
  const OptimizerGroup& group = group_of(member);
  return member.start < own_start(group) + group.piece && member.end() > own_start(group);
}

std::int64_t ZeroStage12::own_elements(const Member& member) const {
  const OptimizerGroup& group = group_of(member);
  return std::min(member.end(), own_start(group) + group.piece) - std::max(member.start, own_start(group));
}

// ---- gradients -----------------------------------------------------------------------------------------------------------

Tensor& ZeroStage12::gradient_of(std::size_t member) {
  return accumulate_apart_ ? members_[member].accumulated : members_[member].slot->tensor.grad();
}

void ZeroStage12::before_backward(bool boundary) {
  DeepSpeedOptimizer::before_backward(boundary);
  if (!settings_.release.makes_buckets_at_first_gradient()) set_up_buckets();
}

/// setup_buckets: before the first gradient (before 0.17.2 ahead of backward) the buckets are made.
void ZeroStage12::set_up_buckets() {
  if (ready_) return;
  ready_ = true;
  ++micro_step_;
  if (!contiguous()) return;
  const DType type = accumulate_apart_ ? DType::fp32 : type_;
  for (int i = 0; i < (overlaps() ? 2 : 1); ++i)
    buckets_.push_back(tape_.empty({settings_.json.reduce_bucket_size}, type, Category::communication_buffer));
  bucket_ = 0;
}

/// process_gradients, the hook on every parameter.
void ZeroStage12::gradient_ready(std::size_t member) {
  const bool hooked = settings_.stage == 2 || overlaps() || accumulate_apart_ || contiguous();
  if (!hooked) return;
  tape_.operator_name = "reduce gradients";
  set_up_buckets();
  if (accumulate_apart_) {
    Tensor& gradient = members_[member].slot->tensor.grad();
    Tensor& sum = members_[member].accumulated;
    Tensor wide = converted(gradient, DType::fp32);
    if (sum) {
      in_place(sum, {&sum, &wide});
    } else {
      Tape::categorize(wide, Category::gradient);
      sum = std::move(wide);
    }
    gradient.reset();
  }
  if (settings_.stage == 2 || (overlaps() && boundary_)) into_bucket(member);
}

/// reduce_independent_p_g_buckets_and_remove_grads: the gradient moves into the bucket, which is reduced before it would overflow.
void ZeroStage12::into_bucket(std::size_t member) {
  const std::int64_t elements = members_[member].elements;
  if (elements == 0) return;
  if (bucketed_elements_ + elements > settings_.json.reduce_bucket_size) {
    reduce_bucket();
    if (contiguous() && overlaps()) bucket_ = 1 - bucket_;
  }
  if (contiguous()) {
    Tensor& gradient = gradient_of(member);
    oversized_ = elements > settings_.json.reduce_bucket_size;
    if (!oversized_) {
      copy_elements(tape_, elements, gradient.dtype(), gradient.dtype());
      gradient = tape_.view(buckets_[bucket_], gradient.sizes(), contiguous_strides(gradient.sizes()));
    } else if (settings_.offload_optimizer && settings_.release.guards_offload()) {
      gradient = clone(gradient);
    }
  }
  bucketed_elements_ += elements;
  bucketed_.push_back(member);
}

/// reduce_ipg_grads.
void ZeroStage12::reduce_bucket() {
  if (!bucketed_.empty()) {
    if (!contiguous()) {
      std::vector<Slice> slices;
      for (std::size_t member : bucketed_)
        slices.push_back({settings_.rank, members_[member].elements,
                          compact_ && touches_own_piece(members_[member]) ? &group_of(members_[member]) : nullptr});
      if (overlaps()) {
        for (std::size_t member : previously_reduced_) gradient_of(member).reset();
        previously_reduced_.clear();
      }
      const StreamScope scope(tape_, reducing_stream());
      all_reduce(slices, gradient_of(bucketed_.front()));
    } else {
      average(oversized_ ? gradient_of(bucketed_.front()) : buckets_[bucket_]);
    }
  }
  const StreamScope scope(tape_, reducing_stream());
  for (std::size_t member : bucketed_) keep_or_clear(member);
  bucketed_.clear();
  bucketed_elements_ = 0;
  oversized_ = false;
}

/// average_tensor: the mean over the ranks of what the bucket holds.
void ZeroStage12::average(const Tensor& tensor) {
  if (overlaps()) {
    tape_.wait(reduction_stream_, tape_.stream);
    tape_.wait(tape_.stream, reduction_stream_);
  }
  const StreamScope scope(tape_, reducing_stream());
  if (settings_.offload_optimizer && settings_.release.guards_offload() && overlaps()) tape_.record_stream(tensor, reduction_stream_);
  const Operand bucket = packed(bucketed_elements_, tensor.dtype());
  pointwise(tape_, Pointwise::Form::map, {bucket}, {bucket});
  if (!settings_.json.reduce_scatter) {
    reduce_whole(tensor);
    return;
  }
  // allreduce_and_scatter: several ranks' parts together, up to the size of a bucket.
  std::vector<Slice> together;
  std::int64_t elements = 0;
  for (const Slice& slice : slices_of_bucket()) {
    together.push_back(slice);
    elements += slice.elements;
    if (elements <= settings_.json.reduce_bucket_size) continue;
    all_reduce(together, tensor);
    together.clear();
    elements = 0;
  }
  if (!together.empty()) all_reduce(together, tensor);
}

/// gradient_reduction_w_predivide of the whole bucket, and _add_full_reduction_to_compact_grad_partition.
void ZeroStage12::reduce_whole(const Tensor& tensor) {
  Tensor narrow;
  if (tensor.dtype() != sent_type()) {
    narrow = tape_.empty({bucketed_elements_}, sent_type(), Category::communication_buffer);
    pointwise(tape_, Pointwise::Form::map, {packed(bucketed_elements_, tensor.dtype())}, {operand(narrow)});
  }
  send(bucketed_elements_);
  if (narrow) pointwise(tape_, Pointwise::Form::map, {operand(narrow)}, {packed(bucketed_elements_, tensor.dtype())});
  for (std::size_t i : bucketed_)
    if (compact_ && touches_own_piece(members_[i])) add_to_compact(group_of(members_[i]), own_elements(members_[i]));
}

/// Neighbours of one rank are one part, except where each gradient has its own place in the compact buffer.
std::vector<ZeroStage12::Slice> ZeroStage12::slices_of_bucket() {
  std::vector<Slice> slices;
  for (std::size_t i : bucketed_) {
    const Member& member = members_[i];
    OptimizerGroup& group = group_of(member);
    const std::int64_t piece = group.piece;
    for (std::int64_t rank = member.start / piece; rank <= (member.end() - 1) / piece; ++rank) {
      const std::int64_t elements = std::min(member.end(), (rank + 1) * piece) - std::max(member.start, rank * piece);
      OptimizerGroup* const to_compact = compact_ && rank == settings_.rank ? &group : nullptr;
      if (!slices.empty() && slices.back().rank == rank && !to_compact) {
        slices.back().elements += elements;
      } else {
        slices.push_back({rank, elements, to_compact});
      }
    }
  }
  return slices;
}

/// allreduce_and_copy_with_multiple_ranks: parts of several ranks are flattened into a copy, reduced, and the own ones copied back.
void ZeroStage12::all_reduce(const std::vector<Slice>& slices, const Tensor& tensor) {
  std::int64_t elements = 0;
  for (const Slice& slice : slices) elements += slice.elements;
  for (const Slice& slice : slices)
    if (slice.to_compact) make_compact_buffer(*slice.to_compact);
  Tensor reduced;  // what is sent: a copy, or the tensor itself
  if (slices.size() > 1) {
    reduced = tape_.empty({elements}, tensor.dtype(), Category::communication_buffer);
    pointwise(tape_, Pointwise::Form::concatenate, {operand(reduced)}, {operand(reduced)});
  }
  if (tensor.dtype() != sent_type()) {
    const Tensor flat = std::move(reduced);
    reduced = tape_.empty({elements}, sent_type(), Category::communication_buffer);
    pointwise(tape_, Pointwise::Form::map, {packed(elements, tensor.dtype())}, {operand(reduced)});
    send(elements);
    pointwise(tape_, Pointwise::Form::map, {operand(reduced)}, {packed(elements, tensor.dtype())});
  } else {
    send(elements);
  }
  const bool marks = overlaps() && settings_.release.records_reduced();
  if (marks && !reduced) tape_.record_stream(tensor, reduction_stream_);
  for (const Slice& slice : slices) {
    if (slice.rank != settings_.rank) continue;
    if (slice.to_compact) add_to_compact(*slice.to_compact, slice.elements);
    copy_elements(tape_, slice.elements, sent_type(), tensor.dtype());
    if (marks) tape_.record_stream(tensor, reduction_stream_);
  }
}

void ZeroStage12::send(std::int64_t elements) {
  tape_.collective(
      {.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = elements * size_of(sent_type()), .type = sent_type()},
      tape_.stream);
}

/// _build_compact_grad_partition_buffer.
void ZeroStage12::make_compact_buffer(OptimizerGroup& group) {
  if (group.compact_buffer) return;
  group.compact_buffer = tape_.empty({group.piece}, DType::fp32, Category::gradient);
  pointwise(group.compact_buffer, {});
}

/// _add_to_grad_partition_buffer: output.add_(source.to(fp32)).
void ZeroStage12::add_to_compact(OptimizerGroup& group, std::int64_t elements) {
  make_compact_buffer(group);
  Tensor wide;
  if (sent_type() != DType::fp32) {
    wide = tape_.empty({elements}, DType::fp32);
    pointwise(tape_, Pointwise::Form::map, {packed(elements, sent_type())}, {operand(wide)});
  }
  const Operand sum = packed(elements, DType::fp32);
  pointwise(tape_, Pointwise::Form::map, {sum, sum}, {sum});
}

/// What becomes of a reduced gradient: stage 2 drops those of other ranks, and the bucket will be written again.
void ZeroStage12::keep_or_clear(std::size_t member) {
  const bool own = touches_own_piece(members_[member]);
  if (own) {
    if (contiguous()) keep_in_partition(member);
  } else if (settings_.stage == 2) {
    if (overlaps() && !contiguous()) {
      previously_reduced_.push_back(member);
    } else {
      gradient_of(member).reset();
    }
  }
}

/// copy_grads_in_partition: whole gradients, although the rank may own a part only.
void ZeroStage12::keep_in_partition(std::size_t member) {
  if (settings_.offload_optimizer) {
    to_host(member);
    return;
  }
  Tensor& gradient = gradient_of(member);
  if (compact_) {
    if (accumulate_apart_) gradient.reset();
    return;
  }
  if (!kept_) {
    std::int64_t total = 0;
    for (const OptimizerGroup& group : groups_)
      for (std::size_t i : group.own) total += members_[i].elements;
    kept_ = tape_.empty({total}, type_, Category::gradient);
  }
  copy_elements(tape_, gradient.elements(), gradient.dtype(), gradient.dtype());
  gradient = tape_.view(kept_, gradient.sizes(), contiguous_strides(gradient.sizes()));
}

/// The offloading part of copy_grads_in_partition: sums of micro-batches on the host, then norm and fp32 copy of the own part.
void ZeroStage12::to_host(std::size_t member) {
  Tensor& gradient = gradient_of(member);
  const std::int64_t bytes = gradient.bytes();
  if (!compact_ && (micro_step_ > 0 || !boundary_)) {
    if (micro_step_ > 0) {
      tape_.copy({Copy::Direction::host_to_device, bytes}, tape_.stream);
      in_place(gradient, {&gradient, &offload_buffer_});
    }
    tape_.copy({Copy::Direction::device_to_host, bytes}, tape_.stream);
  }
  if (!boundary_) return;
  const std::int64_t own = own_elements(members_[member]);
  {
    const Tensor part = tape_.view(compact_ ? group_of(members_[member]).compact_buffer : gradient, {own}, {1});
    offload_norms_.push_back(norm_in(part, DType::fp64));
    check_finite(compact_ ? part : gradient, settings_);
    const Tensor wide = converted(part, DType::fp32);
    tape_.copy({Copy::Direction::device_to_host, wide.bytes()}, tape_.stream);
  }
  gradient.reset();
}

void ZeroStage12::after_backward() {
  tape_.operator_name = "reduce gradients";
  if (settings_.stage == 2) {
    epilogue();
  } else if (boundary_) {
    reduce_gradients();
    epilogue();
  }
}

void ZeroStage12::reduce_gradients() {
  if (overlaps()) return;
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (gradient_of(i)) into_bucket(i);
}

void ZeroStage12::epilogue() {
  reduce_bucket();
  await_reductions();
  const std::vector<Tensor> fresh = collect_gradients();
  release_buckets();
  clear_gradients();
}

void ZeroStage12::await_reductions() {
  if (!overlaps()) return;
  tape_.wait(kComputeStream, reduction_stream_);
  for (std::size_t member : previously_reduced_) gradient_of(member).reset();
  previously_reduced_.clear();
}

void ZeroStage12::clear_gradients() {
  for (const Member& member : members_) member.slot->tensor.grad().reset();
}

std::vector<Tensor> ZeroStage12::own_gradients(const OptimizerGroup& group, DType missing) {
  std::vector<Tensor> gradients;
  for (std::size_t i : group.own) {
    Tensor gradient = gradient_of(i);
    if (!gradient) gradient = zeros(tape_, members_[i].slot->sizes, missing);
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

/// OptimizerGroup by group the own gradients are summed over the micro-batches; at the last one they become the rank's piece. Returns the
/// last group's of this micro-batch, which a variable holds.
std::vector<Tensor> ZeroStage12::collect_gradients() {
  std::vector<Tensor> fresh;
  if (settings_.offload_optimizer || compact_) return fresh;
  for (OptimizerGroup& group : groups_) {
    std::vector<Tensor> gradients = own_gradients(group, padding_type_);
    if (group.micro_gradients.empty()) {
      group.micro_gradients = std::move(gradients);
    } else {
      fresh = std::move(gradients);
      for (std::size_t i = 0; i < fresh.size(); ++i) in_place(group.micro_gradients[i], {&group.micro_gradients[i], &fresh[i]});
    }
    if (!boundary_) continue;
    group.averaged = partition_pieces(group, group.micro_gradients, padding_type_);
    group.micro_gradients.clear();
  }
  return fresh;
}

std::vector<Tensor> ZeroStage12::partition_pieces(const OptimizerGroup& group, const std::vector<Tensor>& gradients, DType padding) {
  std::vector<Tensor> pieces;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::int64_t elements = own_elements(members_[group.own[i]]);
    pieces.push_back(tape_.view(gradients[i], {elements}, {1}));
    filled += elements;
  }
  if (filled < group.piece) pieces.push_back(zeros(tape_, {group.piece - filled}, padding));
  return pieces;
}

void ZeroStage12::release_buckets() {
  buckets_.clear();
  kept_.reset();
  ready_ = false;
}

// ---- the step ------------------------------------------------------------------------------------------------------------

void ZeroStage12::step() {
  micro_step_ = -1;
  tape_.operator_name = "ZeRO step";
  if (!settings_.offload_optimizer) norm();
  for (OptimizerGroup& group : groups_) {
    if (settings_.offload_optimizer) {
      update_on_host(group);
    } else {
      update_on_device(group);
    }
  }
  offload_norms_.clear();
  gather_parameters();
  for (Member& member : members_) member.accumulated.reset();  // zero_grad()
}

/// The rank's gradients of a group, by parameters.
std::vector<Tensor> ZeroStage12::gradient_pieces(const OptimizerGroup& group) {
  if (!compact_) return group.averaged;
  std::vector<Tensor> pieces;
  for (std::size_t i : group.own) pieces.push_back(tape_.view(group.compact_buffer, {own_elements(members_[i])}, {1}));
  return pieces;
}

/// check_overflow of all groups, and get_grad_norm_direct of each: piece by piece, in fp64.
void ZeroStage12::norm() {
  const bool checked = type_ == DType::fp16 || (type_ == DType::bf16 && settings_.release.checks_bf16());  // check_grad_overflow
  if (checked && !settings_.unmanaged_type) {
    std::vector<Tensor> all;
    for (const OptimizerGroup& group : groups_)
      for (Tensor& piece : gradient_pieces(group)) all.push_back(std::move(piece));
    check_overflow(tape_, all, settings_);
  }
  std::vector<Tensor> of_groups;
  for (const OptimizerGroup& group : groups_) {
    const std::vector<Tensor> pieces = gradient_pieces(group);
    std::vector<Tensor> norms;
    for (std::size_t i = 0; i < std::min(pieces.size(), group.own.size()); ++i) norms.push_back(norm_in(pieces[i], DType::fp64));
    of_groups.push_back(norm_over_ranks(tape_, norms, DType::fp32));
  }
  global_norm_ = combined_norm(of_groups, settings_.release);
}

/// Whether there is a limit or a loss scale, or the release multiplies by one.
bool ZeroStage12::scales_gradients() const {
  return settings_.clips || type_ == DType::fp16 || !settings_.release.skips_idle_unscaling();
}

/// unscale_and_clip_grads.
void ZeroStage12::unscale(const OptimizerGroup& group) {
  const Tensor& gradient = group.master.grad();
  if (settings_.clips) {
    unscale_and_clip(global_norm_, gradient);
  } else if (scales_gradients()) {
    in_place(gradient, {&gradient});
  }
}

void ZeroStage12::update_on_device(OptimizerGroup& group) {
  for (std::size_t i : group.members)
    if (!touches_own_piece(members_[i])) members_[i].accumulated.reset();  // free_grad_in_param_list
  if (compact_) {
    group.master.grad() = std::move(group.compact_buffer);
    group.compact_buffer.reset();
  } else {
    const Tensor flat = flatten(tape_, group.averaged);
    Tensor gradient = converted(flat, DType::fp32);
    Tape::categorize(gradient, Category::gradient);
    group.master.grad() = std::move(gradient);
  }
  group.averaged.clear();
  unscale(group);
  group.optimizer->step();
  group.master.grad().reset();
  write_weights(group);
}

void ZeroStage12::write_weights(const OptimizerGroup& group) {
  pointwise(tape_, Pointwise::Form::map, {packed(group.piece, DType::fp32)}, {packed(group.piece, type_)});
}

void ZeroStage12::update_on_host(OptimizerGroup& group) {
  group.optimizer->step();
  if (settings_.release.sends_offloaded_in_16_bits()) {
    cast_on_host(tape_, group.piece, type_);
    tape_.copy({Copy::Direction::host_to_device, group.piece * size_of(type_)}, tape_.stream);
  } else {
    const Tensor wide = tape_.empty({group.piece}, DType::fp32);
    tape_.copy({Copy::Direction::host_to_device, wide.bytes()}, tape_.stream);
    write_weights(group);
  }
  group.averaged.clear();
  group.compact_buffer.reset();
}

/// all_gather_dp_groups: in place, each group at once.
void ZeroStage12::gather_parameters() {
  if (settings_.ranks == 1) return;
  for (const OptimizerGroup& group : groups_)
    tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = group.flat.bytes(), .type = type_},
                     tape_.stream);
}

}  // namespace plimsoll::program
