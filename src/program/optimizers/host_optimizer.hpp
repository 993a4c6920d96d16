/// Optimizers whose parameters, gradients and states lie in host memory: no kernel runs, the host reads and writes them
/// (HostWork::memory_traffic).
#pragma once

#include <cstdint>
#include <memory>

#include "plimsoll/strategy.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Bytes that one step moves for an element of four bytes. One pass over everything (DeepSpeedCPUAdam, torch.optim's fused
/// implementations), or the operators of torch.optim one after the other: on the CPU foreach is a loop over tensors, too.
std::int64_t host_step_traffic(OptimizerKind kind, OptimizerImpl implementation);

/// What happens to gradients of the host before the optimizer reads them.
enum class HostGradients { as_they_are, scaled_in_place };

/// An optimizer of `elements` parameters of that many bytes each.
std::unique_ptr<Optimizer> make_host_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape, std::int64_t elements,
                                               std::int64_t width = 4, HostGradients gradients = HostGradients::as_they_are);

/// The one of `parameters`, whose storages are on the host (FSDP's CPUOffload and CPUOffloadPolicy).
std::unique_ptr<Optimizer> make_host_optimizer(const Strategy& strategy, Tape& tape, const std::vector<Tensor>& parameters);

/// torch.nn.utils.clip_grad_norm_ of the gradients of such parameters: read for the norm, then scaled in place.
void clip_grad_norm_on_host(Tape& tape, const std::vector<Tensor>& parameters);

/// A 16-bit copy is made of fp32 weights before they leave (Copy.cu: a copy from the host converts on the host).
void cast_on_host(Tape& tape, std::int64_t elements, DType type);

}  // namespace plimsoll::program
