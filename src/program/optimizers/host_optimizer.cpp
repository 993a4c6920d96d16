#include "program/optimizers/host_optimizer.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kRead = 4, kWritten = 4, kUpdated = kRead + kWritten;  // bytes of an element

/// States that an optimizer reads and writes beside the parameter.
std::int64_t states_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
    case OptimizerKind::nadam:
    case OptimizerKind::radam:
    case OptimizerKind::adamax:
    case OptimizerKind::adadelta:
      return 2;
    default:
      return 1;
  }
}

/// torch/optim/*.py, _single_tensor_*: operators that write into what they read, and those that make a new tensor or read others.
std::int64_t operator_by_operator(OptimizerKind kind) {
  constexpr std::int64_t kAdded = kUpdated + kRead;              // p.add_(g), m.lerp_(g), v.addcmul_(g, g)
  constexpr std::int64_t kDivided = kUpdated + 2 * kRead;        // p.addcdiv_(m, denominator)
  constexpr std::int64_t kMade = kRead + kWritten;               // v.sqrt(), … / correction
  switch (kind) {
    case OptimizerKind::sgd:
      return kAdded;
    case OptimizerKind::sgdm:
      return kUpdated + 2 * kAdded;
    case OptimizerKind::adagrad:
      return kAdded + kMade + kUpdated + kDivided;
    case OptimizerKind::rmsprop:
      return kUpdated + kAdded + kMade + kUpdated + kDivided;
    default:  // Adam's: decay, first moment, second in two steps, the denominator in three, the parameter
      return kUpdated + kAdded + kUpdated + kAdded + 2 * kMade + kUpdated + kDivided;
  }
}

/// Copies to the host do not hold it up; what reads them waits: FSDP at the end of backward (grad_offload_event.synchronize,
/// _post_backward_final_callback), DeepSpeed where it reads the gradients' norms, Megatron behind its copies (_d2h_stream).
void await_gradients(Tape& tape) { tape.read_back(); }

class HostOptimizer final : public Optimizer {
 public:
  HostOptimizer(Tape& tape, std::int64_t bytes) : Optimizer(tape, {}), bytes_(bytes) {}

 private:
  void do_step() override {
    await_gradients(tape_);
    tape_.host(HostWork::memory_traffic, bytes_);
  }

  std::int64_t bytes_;
};

std::int64_t bytes_of(const std::vector<Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.elements() * size_of(tensor.dtype());
  return bytes;
}

}  // namespace

std::int64_t host_step_traffic(OptimizerKind kind, OptimizerImpl implementation) {
  if (implementation == OptimizerImpl::cpu || implementation == OptimizerImpl::fused) return kRead + kUpdated * (1 + states_of(kind));
  return operator_by_operator(kind);
}

std::unique_ptr<Optimizer> make_host_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape, std::int64_t elements,
                                               std::int64_t width, HostGradients gradients) {
  const std::int64_t scaling = gradients == HostGradients::scaled_in_place ? kUpdated : 0;
  return std::make_unique<HostOptimizer>(tape, elements * width / 4 * (host_step_traffic(kind, implementation) + scaling));
}

std::unique_ptr<Optimizer> make_host_optimizer(const Strategy& strategy, Tape& tape, const std::vector<Tensor>& parameters) {
  if (strategy.optimizer == OptimizerKind::adamw_torch_8bit) refuse("torchao's optimizers on the host are not modelled", "optimizer", "adamw");
  if (is_bitsandbytes(strategy.optimizer)) refuse("bitsandbytes' optimizers over parameters on the host are not modelled", "optimizer", "adamw");
  return make_host_optimizer(strategy.optimizer, strategy.optimizer_impl, tape, bytes_of(parameters) / 4);
}

void clip_grad_norm_on_host(Tape& tape, const std::vector<Tensor>& parameters) {
  await_gradients(tape);
  tape.host(HostWork::memory_traffic, bytes_of(parameters) / 4 * (kRead + kUpdated));
}

void cast_on_host(Tape& tape, std::int64_t elements, DType type) {
  if (type != DType::fp32) tape.host(HostWork::memory_traffic, elements * (kRead + size_of(type)));
}

}  // namespace plimsoll::program
