/// What msamp.initialize makes of a model: its linears as FP8Linear. Sources: msamp/__init__.py, msamp/nn/{linear,functional,state}.py,
/// msamp/operators/gemm/gemm.py of MS-AMP 0.4, over TransformerEngine's extension for kernels.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/wrappers/msamp/scaling.hpp"

namespace plimsoll::program::msamp {

/// FP8Linear: a weight of fp16 (of 8 bits where ZeRO keeps fp16 masters of it) with its scale, a bias of the linear's type, and the
/// scalings of what its products read.
struct ScaledLinear {
  std::shared_ptr<Parameter> weight;  ///< its gradient has 8 bits, or 16 while it waits for its bucket's reduction
  Scaling scaling, input, weight_gradient, output_gradient;
};

/// A parameter as the optimizer has it; `linear` is null for one that MS-AMP left alone.
struct Trained {
  std::shared_ptr<Parameter> parameter;
  ScaledLinear* linear = nullptr;
};

class Model {
 public:
  /// msamp.initialize of modules on the device: every nn.Linear becomes an FP8Linear, the optimizer lets the old weights go. With more than
  /// one rank, fp16 weights are broadcast in flat pieces, which they then lie in. Throws Error (refused): experts, whose weights no linear
  /// has.
  Model(Tape& tape, Module& root, const plimsoll::Model& model, std::int64_t ranks);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::vector<std::unique_ptr<ScaledLinear>>& linears() const { return linears_; }
  /// The optimizer's parameters. A head whose weight was tied to the embedding has one of its own afterwards, and no optimizer steps it.
  const std::vector<Trained>& trained() const { return trained_; }
  /// Whether a parameter is left that no module uses: the bias that a replaced head was tied to.
  bool leaves_unused() const { return leaves_unused_; }
  /// What all parameters have for a gradient, the untrained head's too.
  std::vector<Trained> all();

  /// Whether gradients stay in 16 bits until they are reduced (model_state.use_fp8_ddp); else they are put into 8 as they come.
  bool keeps_wide_gradients = false;
  /// Called when an FP8Linear's gradient stands (ScalingTensor.register_backward_post_hook).
  std::function<void(ScaledLinear&)> on_gradient;

  /// Scales of inputs and output gradients from their windows (LBOptimizer._update_scaling_factors).
  void update_scales();

 private:
  void replace(Module& linear, std::vector<Tensor>& replaced);
  void broadcast();
  void register_scalings();
  void find_trained(const std::vector<std::shared_ptr<Parameter>>& originals);
  Tensor forward(ScaledLinear& linear, const Parameter* bias, const Tensor& x);
  Tensor product(const Tensor& a, const Tensor& b, DType type, const Tensor& into = {});
  Tensor weight_product(ScaledLinear& linear, const Tensor& input, const Tensor& gradient, DType type);
  struct Saved;
  void backward(ScaledLinear& linear, const Saved& saved, BackwardCall& call);

  Tape& tape_;
  Module& root_;
  std::int64_t ranks_;
  std::vector<std::unique_ptr<ScaledLinear>> linears_;
  std::vector<Trained> trained_;
  bool leaves_unused_ = false;
  std::unordered_map<const Parameter*, Trained> copies_;  ///< of the linears' old parameters
  Tensor workspace_;                                      ///< cuBLASLt's, from the first product on
};

}  // namespace plimsoll::program::msamp
