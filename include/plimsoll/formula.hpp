/// The textbook formulas of distributed training, and the well-known calculators that are built on them.
///
/// They are kept apart from `estimate` on purpose: a formula counts what its paper counts, a framework does something else.
/// Ring collectives are in cost.hpp, pipeline bubbles in play.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

// ---- ZeRO: Rajbhandari et al. 2020, figure 1 ------------------------------------------------------------------------

/// Bytes per parameter of the three model states.
struct StateBytes {
  double parameter = 2, gradient = 2, optimizer = 12;

  static StateBytes mixed_precision() { return {2, 2, 12}; }  ///< 16-bit weights and gradients, fp32 master, m and v
  static StateBytes single_precision() { return {4, 4, 8}; }  ///< fp32 weights and gradients, m and v
};

/// Bytes of model states per GPU at ZeRO stage 0, 1, 2, 3 for `parameters` over `gpus`: stage 1 divides the optimizer states,
/// 2 also the gradients, 3 also the parameters.
std::array<double, 4> zero_model_states(double parameters, std::int64_t gpus, const StateBytes& bytes);

/// What a framework's way of training keeps between forward and step, without buckets, gathered copies and padding.
struct FrameworkStates {
  std::string recipe;  ///< "megatron distributed optimizer"
  double bytes_per_gpu = 0;
};
/// Every recipe that plimsoll knows, for `parameters` over `gpus` data-parallel ranks (docs/modelling.md, model states).
std::vector<FrameworkStates> framework_states(double parameters, std::int64_t gpus);

// ---- calculators that people compare with ------------------------------------------------------------------------------

/// One line of `accelerate estimate-memory`: what it says a model needs at each point of a step.
struct AccelerateRow {
  std::string dtype;
  std::int64_t model = 0, gradients = 0, backward = 0, step = 0;  ///< bytes
};
struct AccelerateView {
  std::int64_t parameters = 0;
  std::int64_t buffer_bytes = 0;    ///< position ids, rotary caches
  std::string derivation;           ///< in words: how the bytes come about
  std::vector<AccelerateRow> rows;  ///< float32, float16
};
/// The model as that tool loads it: the class without a head ("BertModel" of "BertForMaskedLM").
Model load_base_model(const std::string& name_or_path);
/// Hugging Face's memory table, as its `estimate_training_usage` computes it from the fp32 size S of a base model:
/// float32 S / S / 2S / 4S, float16 (mixed precision) S / 1.5 S / 2S / 2S.
AccelerateView accelerate_view(const Model& model);
/// Bytes as that tool prints them: binary units under decimal names, two decimals ("413.18 MB" is 413.18 MiB).
std::string accelerate_bytes(double bytes);

/// One line of DeepSpeed's `estimate_zero3_model_states_mem_needs`.
struct DeepSpeedRow {
  bool offload_param = false, offload_optimizer = false, zero_init = false;
  std::int64_t per_cpu = 0, per_gpu = 0;  ///< bytes
};
struct DeepSpeedView {
  std::int64_t parameters = 0, largest_layer = 0;
  std::int64_t gpus_per_node = 0, nodes = 0;
  std::vector<DeepSpeedRow> rows;  ///< in the order in which the tool prints them
};
/// DeepSpeed's ZeRO-3 estimator: 18 bytes per parameter over all GPUs plus the largest layer in fp32; host memory times 1.5.
DeepSpeedView deepspeed_view(const Model& model, std::int64_t gpus_per_node, std::int64_t nodes);

}  // namespace plimsoll
