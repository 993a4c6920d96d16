#include "program/wrappers/megatron/optimizer.hpp"

#include <algorithm>

#include "framework/megatron.hpp"
#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// use_precision_aware_optimizer_no_fp8_or_ds_fp8 (optimizer_config.py): beside recipes of few bits other than delayed scaling the masters
/// are whole.
bool keeps_remainders(const Strategy& strategy) {
  const bool delayed = strategy.low_precision == LowPrecision::fp8 && strategy.fp8_scaling == Fp8Scaling::delayed;
  return strategy.megatron.precision_aware_optimizer &&
         (strategy.low_precision == LowPrecision::none || delayed || strategy.offload.optimizer);
}

/// multi_tensor_l2norm of a list: the norm, in one launch.
void take_norm_of_list(Tape& tape, const std::vector<Tensor>& gradients) {
  if (!gradients.empty()) launch_foreach(tape, gradients, 1, 0, {.function = MultiTensor::Function::norm});
}

/// local_multi_tensor_l2_norm: torch.tensor of the norms asks the host for each in turn (Tensor.__float__), and their own norm, taken
/// there, goes back.
void take_norms_on_host(Tape& tape, const std::vector<Tensor>& gradients) {
  std::vector<Tensor> norms;
  tape.host(HostWork::operation, static_cast<std::int64_t>(gradients.size()));
  for (const Tensor& gradient : gradients)
    norms.push_back(reduce(gradient, std::vector<bool>(static_cast<std::size_t>(gradient.rank()), true), false, DType::fp32));
  for (std::size_t read = 0; read < norms.size(); ++read) tape.read_back();
  const Tensor total = tape.empty({1}, DType::fp32);
  tape.copy({Copy::Direction::host_to_device, total.bytes()}, tape.stream);
}

}  // namespace

bool takes_lists(const Strategy& strategy) {
  const MegatronOptions& megatron = strategy.megatron;
  const bool apex =
      !framework::megatron_release(strategy).core() || *megatron.gradient_accumulation_fusion || *megatron.masked_softmax_fusion;
  return apex || megatron.layer_spec == "te";
}

MegatronOptimizer::MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<MegatronParameterBuffer*>& buffers,
                                     std::int64_t shard_rank)
    : tape_(tape),
      distributed_(strategy.data_parallel == DataParallel::megatron_distopt),
      keeps_remainders_(keeps_remainders(strategy)),
      on_host_(strategy.offload.optimizer),
      scales_losses_(strategy.precision == Precision::mixed_fp16),
      lists_(takes_lists(strategy)),
      apex_(!framework::megatron_release(strategy).core()),
      model_type_(*strategy.param_dtype),
      scales_copies_(!distributed_ && scales_losses_),
      groups_(2) {
  const LabelScope label(tape, tape.intern("optimizer"));
  make_scalars(strategy);
  if (on_host_) copy_to_host(whole(buffers), false);  // before DistributedOptimizer gives it this rank's parts
  const auto parts = owned(buffers, shard_rank);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    for (const auto& [entry, elements] : parts) {
      const bool decays = entry->parameter->sizes.rank() > 1;
      if (decays == (group == 0)) add(groups_[group], *entry, elements);
    }
    if (!on_host_) make_torch_optimizer(groups_[group], strategy);
  }
  if (on_host_) {
    std::vector<Tensor> parameters;
    for (const ParameterGroup& group : groups_) {
      for (const MegatronMain& main : group.mains) parameters.push_back(main.parameter);
    }
    copy_to_host(parameters, true);
    std::int64_t elements = 0;
    for (const Tensor& parameter : parameters) elements += parameter.elements();
    host_ = make_host_optimizer(strategy.optimizer, OptimizerImpl::fused, tape_, elements);  // get_megatron_optimizer asks for fused=True
  }
}

MegatronOptimizer::MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<MegatronMain>& mains)
    : tape_(tape), distributed_(true), attaches_gradients_(false), lists_(takes_lists(strategy)), scales_copies_(false), groups_(2) {
  const LabelScope label(tape, tape.intern("optimizer"));
  make_scalars(strategy);
  for (const MegatronMain& main : mains) groups_[main.decays ? 0 : 1].mains.push_back(main);
  for (ParameterGroup& group : groups_) make_torch_optimizer(group, strategy);
}

MegatronOptimizer::MegatronOptimizer(Tape& tape, const Strategy& strategy, const std::vector<Tensor>& shards)
    : tape_(tape),
      distributed_(false),
      lists_(takes_lists(strategy)),
      model_type_(*strategy.param_dtype),
      scales_copies_(false),
      groups_(2) {
  const LabelScope label(tape, tape.intern("optimizer"));
  make_scalars(strategy);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    for (const Tensor& shard : shards) {
      const bool decays = shard.rank() > 1;
      if (decays == (group == 0)) groups_[group].mains.push_back({copied_to_fp32(shard), {}, decays, shard});
    }
    make_torch_optimizer(groups_[group], strategy);
  }
}

/// param.detach().clone().float().
Tensor MegatronOptimizer::copied_to_fp32(const Tensor& parameter) {
  const Tensor copy = clone(parameter);
  Tensor main = to(copy, DType::fp32);
  Tape::categorize(main, Category::optimizer_state);
  return main;
}

/// DynamicGradScaler's factors, found_inf and _dummy_overflow_buf of MixedPrecisionOptimizer, which a distributed optimizer in fp32 is too.
void MegatronOptimizer::make_scalars(const Strategy& strategy) {
  const bool half = strategy.precision == Precision::mixed_fp16;
  const auto scalar = [&](DType type) { return tape_.empty({1}, type, Category::optimizer_state); };
  scale_ = scalar(DType::fp32);
  for (int i = 0; half && i < 4; ++i) scalars_.push_back(scalar(DType::fp32));
  if (half || (distributed_ && strategy.precision == Precision::fp32)) scalars_.push_back(scalar(DType::int32));
}

/// HybridDeviceOptimizer._init_sub_optimizers: every parameter is cloned, goes to the host and becomes fp32 there. `kept`: it stays, with
/// two moments in pageable memory and a pinned gradient.
void MegatronOptimizer::copy_to_host(const std::vector<Tensor>& parameters, bool kept) {
  constexpr std::int64_t kParameterAndMoments = 12, kGradient = 4;  // bytes per element
  for (const Tensor& parameter : parameters) {
    const Tensor copy = clone(parameter);
    tape_.copy({Copy::Direction::device_to_host, copy.bytes()}, tape_.stream);
    if (!kept) continue;
    tape_.program().host_pageable += Bytes(parameter.elements() * kParameterAndMoments);
    tape_.program().host_pinned += Bytes(parameter.elements() * kGradient);
  }
}

/// HybridDeviceOptimizer.step. A copy between host and device converts on the device: through a tensor in the type of the host's side.
void MegatronOptimizer::step_on_host() {
  const auto moved = [this](const Tensor& tensor, Copy::Direction direction) {
    const std::int64_t bytes = tensor.elements() * size_of(DType::fp32);
    const Tensor converted = tensor.dtype() != DType::fp32 ? elementwise(tape_, {&tensor}, DType::fp32) : tensor;
    tape_.copy({direction, bytes}, tape_.stream);
  };
  tape_.operator_name = "hybrid_device_optimizer";
  for (const ParameterGroup& group : groups_) {
    for (const MegatronMain& main : group.mains) moved(main.parameter.grad(), Copy::Direction::device_to_host);
  }
  host_->step();
  for (const ParameterGroup& group : groups_) {
    for (const MegatronMain& main : group.mains) moved(main.parameter, Copy::Direction::host_to_device);
  }
}

void MegatronOptimizer::make_torch_optimizer(ParameterGroup& group, const Strategy& strategy) {
  std::vector<Tensor> tensors;
  for (const MegatronMain& main : group.mains) tensors.push_back(main.parameter);
  const DType states = strategy.megatron.precision_aware_optimizer ? strategy.state_dtype.value_or(DType::fp32) : DType::fp32;
  group.optimizer = make_optimizer(strategy.optimizer, strategy.optimizer_impl, tape_, std::move(tensors), states);
}

/// The parameters of all buffers, matrices first.
std::vector<Tensor> MegatronOptimizer::whole(const std::vector<MegatronParameterBuffer*>& buffers) {
  std::vector<Tensor> parameters;
  for (const bool decays : {true, false}) {
    for (const MegatronParameterBuffer* buffer : buffers) {
      for (auto entry = buffer->parameters.rbegin(); entry != buffer->parameters.rend(); ++entry) {
        if ((entry->parameter->sizes.rank() > 1) == decays) parameters.push_back(entry->parameter->tensor);
      }
    }
  }
  return parameters;
}

/// The parameters of which this rank keeps the states, with the elements that it keeps: in the order of the buffers where states are
/// sharded by them, else in registration order.
std::vector<std::pair<const BufferedParameter*, std::int64_t>> MegatronOptimizer::owned(
    const std::vector<MegatronParameterBuffer*>& buffers, std::int64_t shard_rank) const {
  std::vector<std::pair<const BufferedParameter*, std::int64_t>> parts;
  for (const MegatronParameterBuffer* buffer : buffers) {
    const std::size_t first = parts.size();
    for (const BufferedParameter& entry : buffer->parameters) {
      const MegatronParameterBuffer::Bucket& bucket = buffer->buckets[entry.bucket];
      const std::int64_t share = (bucket.end - bucket.begin) / buffer->ranks, begin = bucket.begin + shard_rank * share;
      const std::int64_t elements =
          distributed_ ? std::min(entry.end, begin + share) - std::max(entry.begin, begin) : entry.end - entry.begin;
      if (elements > 0) parts.emplace_back(&entry, elements);
    }
    if (!distributed_) std::reverse(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end());
  }
  return parts;
}

void MegatronOptimizer::add(ParameterGroup& group, const BufferedParameter& entry, std::int64_t elements) {
  const Dims sizes = distributed_ ? Dims{elements} : entry.parameter->sizes;
  const auto part = [&](const Tensor& whole) {
    Tensor same = whole.detach();
    same.impl()->sizes = sizes;
    same.impl()->strides = contiguous_strides(sizes);
    return same;
  };
  Tensor main = part(entry.parameter->tensor);
  if (entry.parameter->type != DType::fp32 && !keeps_remainders_) {
    main = copied_to_fp32(main);
  }
  group.mains.push_back({main, part(entry.main_grad), entry.parameter->sizes.rank() > 1});
}

void MegatronOptimizer::prepare_grads() {
  if (!attaches_gradients_) return;
  tape_.operator_name = "copy_model_grads_to_main_grads";
  for (ParameterGroup& group : groups_) {
    for (MegatronMain& main : group.mains) {
      const Tensor& source = main.shard ? main.shard.grad() : main.source;
      main.parameter.grad() = keeps_remainders_ ? source : to(source, DType::fp32);
      if (main.shard) main.shard.grad().reset();
    }
  }
}

/// FusedAdam.initialize_state: "master_param" beside the moments.
void MegatronOptimizer::make_remainders() {
  if (!keeps_remainders_ || on_host_ || !remainders_.empty()) return;
  for (const ParameterGroup& group : groups_) {
    for (const MegatronMain& main : group.mains) {
      if (main.parameter.dtype() != DType::fp32)
        remainders_.push_back(tape_.empty(main.parameter.sizes(), main.parameter.dtype(), Category::optimizer_state));
    }
  }
}

void MegatronOptimizer::unscale_grads() {
  if (!scales_losses_) return;
  tape_.operator_name = "unscale_and_check_for_nan";
  std::vector<Tensor> all = gradients();
  if (!all.empty()) launch_foreach(tape_, all, 1, 1);
  tape_.read_back();  // found_inf.item()
}

void megatron_grad_norm(Tape& tape, const std::vector<Tensor>& gradients, bool lists) {
  tape.operator_name = "clip_grad_norm";
  const Tensor overflow = tape.empty({1}, DType::int32, Category::workspace);
  lists ? take_norm_of_list(tape, gradients) : take_norms_on_host(tape, gradients);
  tape.scratch(4);   // the norm, then its square
  tape.read_back();  // total_norm.item()
}

std::vector<Tensor> MegatronOptimizer::gradients() const {
  std::vector<Tensor> all;
  for (const ParameterGroup& group : groups_) {
    for (const MegatronMain& main : group.mains) all.push_back(main.parameter.grad());
  }
  return all;
}

void MegatronOptimizer::scale_grads() {
  tape_.operator_name = "clip_grad_norm";
  for (const ParameterGroup& group : groups_) {
    std::vector<Tensor> own;
    for (const MegatronMain& main : group.mains) own.push_back(main.parameter.grad());
    if (!lists_)
      scale_one_by_one(own);
    else if (!own.empty())
      launch_foreach(tape_, own, 2, 1, {.made = 1});  // multi_tensor_scale from the list to itself
  }
}

/// local_multi_tensor_scale.
void MegatronOptimizer::scale_one_by_one(const std::vector<Tensor>& gradients) {
  constexpr std::int64_t kOperators = 2;  // a product, and its copy into the gradient
  tape_.host(HostWork::operation, kOperators * static_cast<std::int64_t>(gradients.size()));
  for (const Tensor& gradient : gradients) copy_into(gradient, elementwise(tape_, {&gradient}, gradient.dtype()));
}

void MegatronOptimizer::step_with_ready_grads() {
  if (on_host_) return step_on_host();
  make_remainders();
  for (ParameterGroup& group : groups_) {
    if (!group.mains.empty()) group.optimizer->step();
  }
  if (keeps_remainders_) return;  // its kernel writes the parameters
  tape_.operator_name = "copy_main_params_to_model_params";
  if (apex_) return copy_by_lists();
  for (const ParameterGroup& group : groups_) {
    tape_.host(HostWork::operation, static_cast<std::int64_t>(group.mains.size()));
    for (const MegatronMain& main : group.mains) {
      const Tensor scaled = scales_copies_ ? elementwise(tape_, {&main.parameter}, DType::fp32) : main.parameter;
      in_place(main.parameter, {&scaled});
    }
  }
}

/// _multi_tensor_copy_this_to_that: amp_C.multi_tensor_scale from the fp32 parameters to the model's.
void MegatronOptimizer::copy_by_lists() {
  for (const ParameterGroup& group : groups_) {
    std::vector<Tensor> mains;
    for (const MegatronMain& main : group.mains) mains.push_back(main.parameter);
    const Foreach copy{.function = MultiTensor::Function::copy, .made = 1, .written_as = model_type_};
    if (!mains.empty()) launch_foreach(tape_, mains, 2, 1, copy);
  }
}

void MegatronOptimizer::zero_grad() {
  if (!attaches_gradients_) return;
  for (ParameterGroup& group : groups_) {
    for (MegatronMain& main : group.mains) main.parameter.grad().reset();
  }
}

}  // namespace plimsoll::program
