// torchao/optim/adam.py of 0.18: one parameter after the other, each by what torch.compile makes of single_param_adam.
#include "program/optimizers/optimizer_torchao.hpp"

#include <utility>

#include "program/inductor/kernels.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBlock = 256, kValues = 256;  // numbers that share a scale; that a byte can stand for

class TorchaoAdam final : public Optimizer {
 public:
  TorchaoAdam(Tape& tape, std::vector<Tensor> parameters) : Optimizer(tape, std::move(parameters)), moments_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "single_param_adam";
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad()) continue;
      Moments& moments = moments_[i];
      if (!moments.mean.codes) moments = {state(parameter), state(parameter)};
      if (!is_quantized(parameter))
        inductor::fused(tape_, {&parameter, &parameter.grad(), &moments.mean.codes, &moments.square.codes},
                        {&parameter, &moments.mean.codes, &moments.square.codes});
      else if (parameter.size(-1) % kBlock == 0)
        step_at_once(parameter, moments);
      else
        step_over_rows(parameter, moments);
    }
  }

 private:
  struct State {
    Tensor codes, scales, table;  ///< codes alone where the state is not quantized
  };
  struct Moments {
    State mean, square;
  };

  /// _new_buffer.
  bool is_quantized(const Tensor& parameter) const {
    constexpr std::int64_t kLeast = 4096;
    return parameter.elements() >= kLeast && parameter.elements() % kBlock == 0;
  }

  State state(const Tensor& parameter) {
    const std::int64_t elements = parameter.elements();
    if (!is_quantized(parameter)) return {state_of(tape_, {elements}, parameter.dtype()), {}, {}};
    State made{state_of(tape_, {elements}, DType::uint8), state_of(tape_, {elements / kBlock}, DType::fp32), {}};
    made.table = tape_.empty({kValues}, DType::fp32, Category::optimizer_state);
    return made;
  }

  /// Blocks lie in rows: a program of the kernel updates a block, and what it finds of it is the block's new scale.
  void step_at_once(const Tensor& parameter, const Moments& m) {
    inductor::fused(tape_, {&parameter, &parameter.grad(), &m.mean.codes, &m.mean.scales, &m.square.codes, &m.square.scales},
                    {&parameter, &m.mean.codes, &m.mean.scales, &m.square.codes, &m.square.scales});
  }

  /// Blocks go over the ends of rows: the new moments are written out by blocks and read by places.
  void step_over_rows(const Tensor& parameter, const Moments& m) {
    const std::int64_t elements = parameter.elements(), blocks = elements / kBlock;
    const Tensor mean_scales = tape_.empty({blocks}, DType::fp32), square_scales = tape_.empty({blocks}, DType::fp32);
    {
      const Tensor mean = tape_.empty({elements}, DType::fp32), square = tape_.empty({elements}, DType::fp32);
      inductor::fused(tape_, {&parameter.grad(), &m.mean.codes, &m.mean.scales, &m.square.codes, &m.square.scales},
                      {&mean_scales, &square_scales, &mean, &square});
      inductor::fused(tape_, {&parameter, &parameter.grad(), &m.mean.codes, &m.mean.scales, &m.square.codes, &m.square.scales, &mean, &square},
                      {&parameter, &m.mean.codes, &m.square.codes});
    }
    inductor::fused(tape_, {&mean_scales}, {&m.mean.scales});
    inductor::fused(tape_, {&square_scales}, {&m.square.scales});
  }

  std::vector<Moments> moments_;
};

}  // namespace

std::unique_ptr<Optimizer> make_torchao_adam(Tape& tape, std::vector<Tensor> parameters) {
  return std::make_unique<TorchaoAdam>(tape, std::move(parameters));
}

}  // namespace plimsoll::program
