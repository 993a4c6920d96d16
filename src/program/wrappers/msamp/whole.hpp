/// MS-AMP's optimizer of DeepSpeed without ZeRO. Source: msamp/deepspeed/runtime/{engine,fp8/fused_optimizer}.py of MS-AMP 0.4, over
/// DeepSpeed 0.13.1.
#pragma once

#include <memory>
#include <vector>

#include "program/wrappers/deepspeed/deepspeed.hpp"
#include "program/wrappers/msamp/model.hpp"
#include "program/wrappers/msamp/optimizer.hpp"

namespace plimsoll::program::msamp {

/// FP8Optimizer: weights of FP8Linears in 8 bits, all others as views of one flat tensor, with masters of all on every rank. Gradients are
/// reduced when the last micro-batch is through, those of 8 bits in a flat tensor that they stay in.
class ScaledWhole final : public DeepSpeedOptimizer {
 public:
  ScaledWhole(Tape& tape, Model& model, const DeepSpeedSettings& settings, States states);

  bool scales_loss() const override { return true; }
  void after_backward() override;
  void step() override;

 private:
  struct Weight {
    ScaledLinear* linear = nullptr;
    std::unique_ptr<ScaledLinear> master = {};
  };

  void flatten_parameters();
  void reduce_ordinary(const std::vector<Tensor>& gradients);
  void reduce_scaled(const std::vector<ScaledLinear*>& linears);
  void check_overflow();
  void assign_gradients();
  void read_norm(const Tensor& gradient, const Scaling* scaling);
  void clip();
  void norm();
  void write_weights();

  Model& model_;
  DType type_;  ///< of all but the linears' weights
  std::vector<std::shared_ptr<Parameter>> ordinary_;
  std::vector<Weight> weights_;
  Tensor flat_, master_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace plimsoll::program::msamp
