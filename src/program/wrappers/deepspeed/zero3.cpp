#include "program/wrappers/deepspeed/zero3.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/reduction.hpp"
#include "program/wrappers/deepspeed/norm.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kNormPiece = 250'000'000;  // _constant_buffered_norm2: elements

// swap_tensor/utils.py and constants.py, by default: what is smaller than that stays in memory; files are written in units of the other.
constexpr std::int64_t kLeastSwapped = 1 << 20, kSwapAlignment = 1024;  // bytes

std::int64_t swap_aligned(std::int64_t elements, DType type) { return round_up(elements, kSwapAlignment / size_of(type)); }

}  // namespace

// ---- setting up ----------------------------------------------------------------------------------------------------------

ZeroStage3::ZeroStage3(Tape& tape, Module& root, const ParameterGroups& groups, const DeepSpeedSettings& settings)
    : DeepSpeedOptimizer(tape, settings),
      coordinator_(tape, root, settings),
      reduce_stream_(overlaps() ? tape.add_stream("reduce-scatter") : kComputeStream) {
  coordinator_.partition();
  if (!settings_.offload_optimizer) overflow_ = tape_.empty({1}, DType::boolean);
  barrier_ = tape_.empty({1}, DType::fp32);
  make_sub_groups(groups);
  make_masters();
  tape_.operator_name = "gradient buffers";
  if (settings_.json.contiguous_gradients)
    bucket_ = tape_.empty({settings_.json.reduce_bucket_size}, bucket_type(), Category::communication_buffer);
  if (settings_.offload_parameters) reserve_host_memory_of_parameters();
  if (settings_.offload_optimizer) {
    reserve_host_memory_of_states();
  } else {
    gradients_ = zeros(tape_, {coordinator_.trained_elements()}, accumulation_type());
    Tape::categorize(gradients_, Category::gradient);
  }
  coordinator_.touch_all();
  coordinator_.install_hooks();
  install_gradient_hooks();
}

/// _create_fp16_sub_groups, of each group of the optimizer: one closes when its shards reach sub_group_size; of size 0 every parameter is
/// one.
void ZeroStage3::make_sub_groups(const ParameterGroups& groups) {
  std::unordered_map<const Parameter*, ZeroParameter*> sharded;
  for (const auto& parameter : coordinator_.parameters) sharded.emplace(parameter->slot.get(), parameter.get());
  for (const auto& group : groups) {
    bool open = false;
    for (const auto& slot : group) {
      if (!slot->trainable) continue;
      if (!open || groups_.back().elements >= settings_.json.sub_group_size) groups_.emplace_back();
      open = true;
      ZeroParameter* const parameter = sharded.at(slot.get());
      groups_.back().parameters.push_back(parameter);
      groups_.back().elements += parameter->shard;
    }
  }
}

/// _create_fp32_partitions and initialize_optimizer_states.
void ZeroStage3::make_masters() {
  tape_.operator_name = "master weights";
  std::int64_t largest = 0;
  Tensor converted_first;  // a Python variable: it lives until the next group's exists
  for (SubGroup& group : groups_) {
    largest = std::max(largest, group.elements);
    if (settings_.offload_optimizer) {
      group.optimizer = make_deepspeed_host_optimizer(settings_, tape_, group.elements);
      continue;
    }
    if (coordinator_.trained_type() != DType::fp32) {  // else the clone alone is made
      converted_first = tape_.empty({group.elements}, settings_.release.converts_masters_first() ? DType::fp32 : coordinator_.trained_type());
      pointwise(converted_first, {&converted_first});
    }
    group.master = tape_.empty({group.elements}, DType::fp32, Category::optimizer_state);
    pointwise(group.master, {&group.master});
    if (!settings_.release.converts_masters_first()) converted_first.reset();
    group.optimizer = make_deepspeed_optimizer(settings_, tape_, {group.master});
  }
  converted_first.reset();
  if (!settings_.offload_optimizer) zeros(tape_, {largest}, DType::fp32);
}

/// Gradients as they arrive and in fp32: pinned where asked for. Masters and the moments of CPUAdam never are. Of sub-groups whose states
/// are in files there are only the swapper's buffers, locked, and the new moments of one sub-group in the first step.
void ZeroStage3::reserve_host_memory_of_states() {
  const DeepSpeedOptions::Offload& offload = settings_.json.offload_optimizer;
  const std::int64_t all = coordinator_.trained_elements();
  std::int64_t in_memory = 0, largest = 0;
  for (const SubGroup& group : groups_) {
    largest = std::max(largest, group.elements);
    if (!is_on_nvme(group)) in_memory += group.elements;
  }
  StepProgram& program = tape_.program();
  (settings_.pinned ? program.host_pinned : program.host_pageable) += Bytes(all * size_of(accumulation_type()) + in_memory * 4);
  program.host_pageable += Bytes(in_memory * 12);
  if (in_memory == all) return;
  program.host_pinned += Bytes(offload.buffer_count * swap_aligned(largest, DType::fp32) * 4);
  program.host_pageable += Bytes(largest * 8);
}

/// Offloaded parameters are there twice, frozen ones once: one by one, then side by side (PyTorch's host allocator keeps what was freed).
/// Those of NVMe that fit into max_in_cpu stay on the host, too; the swapper's buffers stand beside them.
void ZeroStage3::reserve_host_memory_of_parameters() {
  const DeepSpeedOptions::Offload& offload = settings_.json.offload_param;
  const DType type = coordinator_.type();
  const std::int64_t all = coordinator_.shard_elements();
  StepProgram& program = tape_.program();
  program.host_pinned += Bytes(coordinator_.trained_elements() * size_of(coordinator_.trained_type()));
  if (!offload.nvme) {
    (offload.pin_memory.value_or(true) ? program.host_pinned : program.host_pageable) += Bytes(all * size_of(type));
    return;
  }
  if (all > offload.max_in_cpu)
    refuse("the rank's " + std::to_string(all) +
               " elements of parameters are more than max_in_cpu: how they come and go by way of NVMe is not "
               "modelled",
           "deepspeed.zero_optimization.offload_param", "a larger max_in_cpu, more ranks or device cpu");
  for (const auto& parameter : coordinator_.parameters) {
    if (parameter->shard > offload.buffer_size)
      fail("DeepSpeed stops: the shard of " + parameter->slot->name + " has " + std::to_string(parameter->shard) +
               " elements, a swap buffer " + std::to_string(offload.buffer_size),
           "deepspeed.zero_optimization.offload_param.buffer_size", "a larger one");
  }
  program.host_pinned += Bytes(offload.buffer_count * swap_aligned(offload.buffer_size, type) * size_of(type));
}

// ---- gradients -----------------------------------------------------------------------------------------------------------

/// create_reduce_and_remove_grad_hooks: one on every parameter, and one for all of a leaf module.
void ZeroStage3::install_gradient_hooks() {
  std::unordered_map<const Parameter*, Module*> leaf_of;
  for (Module* leaf : settings_.leaf_modules)
    for (const auto& slot : leaf->all_parameters()) leaf_of.emplace(slot.get(), leaf);
  std::unordered_map<Module*, std::vector<ZeroParameter*>> of_leaf;
  for (auto& parameter : coordinator_.parameters) {
    if (!parameter->slot->trainable) continue;
    const auto leaf = leaf_of.find(parameter->slot.get());
    if (leaf != leaf_of.end()) {
      of_leaf[leaf->second].push_back(parameter.get());
    } else {
      parameter->leaf.register_post_accumulate_grad_hook([this, raw = parameter.get()](const Tensor&) { gradient_ready(*raw); });
    }
  }
  for (auto& [leaf, parameters] : of_leaf) reduce_leaf_at_its_end(*leaf, std::move(parameters));
}

/// register_full_backward_hook: runs once the gradients of the module's inputs are there; a parameter without a gradient gets zeros.
void ZeroStage3::reduce_leaf_at_its_end(Module& leaf, std::vector<ZeroParameter*> parameters) {
  leaf.pre_forward.push_back([this, parameters = std::move(parameters)](Module&, std::vector<Tensor*>& inputs) {
    for (Tensor* input : inputs) {
      if (!input->defined() || !input->requires_grad()) continue;
      Tensor alias = tape_.view(*input, input->sizes(), input->strides());
      alias.impl()->base.reset();
      Op op("BackwardHook", {input});
      op.finish({&alias}, [this, parameters](BackwardCall& call) {
        for (ZeroParameter* parameter : parameters) {
          if (!parameter->leaf.grad()) parameter->leaf.grad() = zeros(tape_, parameter->slot->sizes, coordinator_.type());
          gradient_ready(*parameter);
        }
        call.give(0, call.grad());
      });
      *input = std::move(alias);
    }
  });
}

/// reduce_independent_p_g_buckets_and_remove_grads.
void ZeroStage3::gradient_ready(ZeroParameter& parameter) {
  tape_.operator_name = "reduce gradients";
  const std::int64_t size = settings_.json.reduce_bucket_size;
  if (bucketed_elements_ + parameter.elements > size && bucketed_elements_ > 0) reduce_bucket();
  if (overlaps()) tape_.wait(reduce_stream_, tape_.stream);
  if (bucket_ && bucketed_elements_ + parameter.elements <= size) {
    const StreamScope scope(tape_, reduce_stream_);
    Tensor& gradient = parameter.leaf.grad();
    copy_elements(tape_, parameter.elements, gradient.dtype(), bucket_type());
    if (overlaps()) tape_.record_stream(gradient, reduce_stream_);
    gradient = tape_.view(bucket_, gradient.sizes(), contiguous_strides(gradient.sizes()));
  }
  bucketed_.push_back(&parameter);
  bucketed_elements_ += parameter.elements;
}

/// __reduce_and_partition_ipg_grads.
void ZeroStage3::reduce_bucket() {
  if (bucketed_.empty()) return;
  const StreamScope scope(tape_, reduce_stream_);
  std::sort(bucketed_.begin(), bucketed_.end(), [](const ZeroParameter* a, const ZeroParameter* b) { return a->id < b->id; });
  const bool whole = !settings_.json.reduce_scatter && bucket_ && bucketed_elements_ <= settings_.json.reduce_bucket_size;
  std::vector<Tensor> reduced = whole ? all_reduce_bucket() : reduce_scatter();
  keep_shards();
  drop_list(reduced);
  bucketed_.clear();
  bucketed_elements_ = 0;
}

/// __avg_scatter_grads and reduce_scatter_coalesced: the gradients' pieces rank by rank in a new tensor, unless a single one divides. What
/// comes back keeps the rank's shards alive: that tensor, or copies of the shards in the type of the accumulation.
std::vector<Tensor> ZeroStage3::reduce_scatter() {
  const DType type = sent_type();
  std::vector<Tensor> whole;  // gradients that did not go through the bucket, in the type that is sent
  std::int64_t elements = 0;
  for (const ZeroParameter* parameter : bucketed_) {
    whole.push_back(type == coordinator_.trained_type() ? Tensor() : converted(parameter->leaf.grad(), type));
    elements += parameter->shard * settings_.ranks;
  }
  const bool alone = bucketed_.size() == 1 && bucketed_.front()->elements == elements;
  Tensor flat;
  if (!alone) {
    flat = tape_.empty({elements}, type, Category::communication_buffer);
    pointwise(tape_, Pointwise::Form::concatenate, {operand(flat)}, {operand(flat)});
  }
  pointwise(tape_, Pointwise::Form::map, {packed(elements, type)}, {packed(elements, type)});
  tape_.collective({.kind = CollectiveKind::reduce_scatter, .group = Group::data_shard, .bytes = elements * size_of(type), .type = type},
                   tape_.stream);
  std::vector<Tensor> shards;
  if (reduced_type() == type) {
    shards.push_back(flat ? std::move(flat) : whole.front());
    drop_list(whole);
    return shards;
  }
  for (const ZeroParameter* parameter : bucketed_) shards.push_back(shard_in(reduced_type(), *parameter, type));
  flat.reset();  // the list of its pieces is named anew
  drop_list(whole);
  return shards;
}

Tensor ZeroStage3::shard_in(DType to, const ZeroParameter& parameter, DType from) {
  Tensor shard = tape_.empty({own_elements(parameter)}, to);
  pointwise(tape_, Pointwise::Form::map, {packed(shard.elements(), from)}, {operand(shard)});
  return shard;
}

/// __avg_scatter_contiguous_grads: the bucket in place, times the predivide factor (1) in a new tensor unless gradients are scaled before,
/// and in the type that shards have then; the rank's shards are views of it, or copies where padding fills them up.
std::vector<Tensor> ZeroStage3::all_reduce_bucket() {
  const DType type = sent_type();
  const std::int64_t bytes = bucketed_elements_ * size_of(type);
  const Operand bucket = packed(bucketed_elements_, type);
  pointwise(tape_, Pointwise::Form::map, {bucket}, {bucket});
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = bytes, .type = type}, tape_.stream);
  std::vector<Tensor> kept;
  Tensor reduced;
  if (type != bucket_type()) reduced = tape_.empty({bucketed_elements_}, type);
  if (settings_.ranks > 1 && !settings_.json.prescale_gradients) {
    Tensor scaled = tape_.empty({bucketed_elements_}, type);
    pointwise(tape_, Pointwise::Form::map, {bucket}, {bucket});
    reduced = std::move(scaled);
  }
  if (reduced_type() != type) {
    Tensor wide = tape_.empty({bucketed_elements_}, reduced_type());
    pointwise(tape_, Pointwise::Form::map, {bucket}, {operand(wide)});
    reduced = std::move(wide);
  }
  kept.push_back(std::move(reduced));
  for (const ZeroParameter* parameter : bucketed_) {
    if (own_elements(*parameter) == parameter->shard) continue;
    kept.push_back(zeros(tape_, {parameter->shard}, reduced_type()));
    if (own_elements(*parameter) > 0) copy_elements(tape_, own_elements(*parameter), reduced_type(), reduced_type());
  }
  return kept;
}

/// partition_grads: the rank's shards are copied or added into the flat buffer, the whole gradients dropped.
void ZeroStage3::keep_shards() {
  std::vector<std::pair<SubGroup*, Tensor>> to_files;
  for (ZeroParameter* parameter : bucketed_) {
    Tensor& gradient = parameter->leaf.grad();
    if (own_elements(*parameter) > 0) {
      const Operand sum = packed(parameter->shard, accumulation_type());
      if (micro_step_ > 0) {
        Tensor added;
        if (reduced_type() != accumulation_type()) added = shard_in(accumulation_type(), *parameter, reduced_type());
        pointwise(tape_, Pointwise::Form::map, {sum, sum}, {sum});
      } else {
        copy_elements(tape_, parameter->shard, reduced_type(), accumulation_type());
      }
      if (settings_.offload_optimizer) {
        Tensor wide = to_host(*parameter);
        if (wide) to_files.emplace_back(&group_of(*parameter), std::move(wide));
      }
      if (overlaps() && gradient && gradient.impl()->storage->stream != reduce_stream_) tape_.record_stream(gradient, reduce_stream_);
    }
    gradient.reset();
  }
  // _swap_out_gradients: what is too small for a file, or its rest behind the last whole unit, is kept on the device until the step.
  for (auto& [group, gradient] : to_files) {
    tape_.copy({Copy::Direction::device_to_host, gradient.bytes()}, tape_.stream);
    if (gradient.bytes() < kLeastSwapped || gradient.bytes() % kSwapAlignment != 0) group->unswapped.push_back(gradient);
  }
}

ZeroStage3::SubGroup& ZeroStage3::group_of(const ZeroParameter& parameter) {
  const auto holds = [&](const SubGroup& group) {
    return std::find(group.parameters.begin(), group.parameters.end(), &parameter) != group.parameters.end();
  };
  return *std::find_if(groups_.begin(), groups_.end(), holds);
}

bool ZeroStage3::is_on_nvme(const SubGroup& group) const {
  return settings_.json.offload_optimizer.nvme && group.elements * 4 >= kLeastSwapped;
}

/// The shard goes to the host and back; at the boundary its norm is taken and an fp32 copy sent. That copy is what comes back where the
/// sub-group's states are in files: it is written when all shards of the bucket are there.
Tensor ZeroStage3::to_host(const ZeroParameter& parameter) {
  const std::int64_t elements = own_elements(parameter);
  const Tensor shard = tape_.empty({elements}, accumulation_type(), Category::gradient);
  tape_.copy({Copy::Direction::host_to_device, shard.bytes()}, tape_.stream);
  tape_.copy({Copy::Direction::device_to_host, shard.bytes()}, tape_.stream);
  if (!boundary_) return {};
  Tensor squares;  // _constant_buffered_norm2
  for (std::int64_t start = 0; start < elements; start += kNormPiece) {
    const Tensor norm = norm_in(tape_.view(shard, {std::min(kNormPiece, elements - start)}, {1}), DType::fp64);
    const Tensor square = elementwise(tape_, {&norm}, DType::fp64);
    if (!squares) {
      squares = square;
    } else {
      in_place(squares, {&squares, &square});
    }
  }
  offload_norms_.push_back(elementwise(tape_, {&squares}, DType::fp64));
  Tensor wide = converted(shard, DType::fp32);
  if (is_on_nvme(group_of(parameter))) return wide;
  tape_.copy({Copy::Direction::device_to_host, wide.bytes()}, tape_.stream);
  return {};
}

void ZeroStage3::after_backward() {
  tape_.operator_name = "reduce gradients";
  reduce_bucket();
  if (overlaps()) tape_.wait(kComputeStream, reduce_stream_);
  ++micro_step_;
  if (settings_.release.releases_recomputed()) coordinator_.release_backward_leftovers();
}

// ---- the step ------------------------------------------------------------------------------------------------------------

void ZeroStage3::step() {
  micro_step_ = 0;
  tape_.operator_name = "ZeRO step";
  coordinator_.release_all();
  if (coordinator_.trained_type() == DType::fp16 && !settings_.offload_optimizer) check_overflow();
  norm();
  for (SubGroup& group : groups_) update(group);
  offload_norms_.clear();
  coordinator_.gather_persistent();
}

/// isinf(x).any() and isnan(x).any() of the flat buffer.
void ZeroStage3::check_overflow() {
  const StreamScope scope(tape_, reduce_stream_);
  {
    Tensor infinite;
    {
      const Tensor magnitude = elementwise(tape_, {&gradients_}, gradients_.dtype());
      infinite = elementwise(tape_, {&magnitude}, DType::boolean);
    }
    const Tensor any = reduce(infinite, {true}, false, DType::boolean, 1);
  }
  const Tensor nan = elementwise(tape_, {&gradients_}, DType::boolean);
  const Tensor any = reduce(nan, {true}, false, DType::boolean, 1);
}

/// complete_grad_norm_calculation_for_cpu_offload: the squares of the parameters' norms are added up and read by the host, and their sum is
/// reduced from there.
void ZeroStage3::norm_of_offloaded() {
  if (offload_norms_.empty()) return;
  Tensor sum;
  for (const Tensor& norm : offload_norms_) {
    Tensor next = with_square(sum, norm);
    sum = std::move(next);
  }
  tape_.copy({Copy::Direction::device_to_host, sum.bytes()}, tape_.stream);
  const Tensor sent = tape_.empty({1}, DType::fp32);
  tape_.copy({Copy::Direction::host_to_device, sent.bytes()}, tape_.stream);
  const Tensor norm = root_over_ranks(sent);
  tape_.copy({Copy::Direction::device_to_host, norm.bytes()}, tape_.stream);
  tape_.read_back();
}

/// _get_norm_groups: sub-group by sub-group.
void ZeroStage3::norm() {
  if (settings_.offload_optimizer) return norm_of_offloaded();
  std::vector<Tensor> of_groups;
  for (const SubGroup& group : groups_) {
    std::vector<Tensor> norms;
    for (const ZeroParameter* parameter : group.parameters)
      norms.push_back(norm_in(tape_.view(gradients_, {parameter->shard}, {1}), DType::fp64));
    of_groups.push_back(norm_over_ranks(tape_, norms, DType::fp64));
  }
  if (!of_groups.empty()) global_norm_ = combined_norm(of_groups, settings_.release);
}

/// One sub-group: its gradients flattened and in fp32, the optimizer, the weights.
void ZeroStage3::update(SubGroup& group) {
  const DType type = coordinator_.trained_type();
  if (settings_.offload_optimizer) {
    group.optimizer->step();
    cast_on_host(tape_, group.elements, type);
    group.unswapped.clear();
    if (!settings_.offload_parameters) tape_.copy({Copy::Direction::host_to_device, group.elements * size_of(type)}, tape_.stream);
    return;
  }
  {
    std::vector<Tensor> shards;
    for (const ZeroParameter* parameter : group.parameters) shards.push_back(tape_.view(gradients_, {parameter->shard}, {1}));
    const Tensor flat = flatten(tape_, shards);
    Tensor gradient = converted(flat, DType::fp32);
    Tape::categorize(gradient, Category::gradient);
    group.master.grad() = std::move(gradient);
  }
  if (settings_.clips && global_norm_) {
    unscale_and_clip(global_norm_, group.master.grad());
  } else {
    in_place(group.master.grad(), {&group.master.grad()});
  }
  group.optimizer->step();
  group.master.grad().reset();
  pointwise(tape_, Pointwise::Form::map, {packed(group.elements, DType::fp32)}, {packed(group.elements, type)});
}

}  // namespace plimsoll::program
