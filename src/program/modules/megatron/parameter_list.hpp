/// The parameters of one model chunk of Megatron-core's GPTModel.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/modules/megatron/config.hpp"

namespace plimsoll::program {

/// What one model chunk holds.
struct ChunkPlan {
  std::int64_t first_layer = 0, layers = 0;
  bool embedding = false, head = false;
};

/// A parameter of a chunk and the module that it hangs on.
struct PlacedParameter {
  std::string path;
  std::shared_ptr<Parameter> parameter;
  enum class Birth : std::uint8_t { device, host_fp32, host } birth = Birth::device;  ///< torch.nn's norms and tables are made in fp32
};

/// The path of a layer of a module of multi-token prediction: GPTModel has one there, HybridModel a stack.
std::string prediction_layer_path(const std::string& module, std::size_t index, std::size_t layers);

/// The parameters of a chunk on one tensor-parallel rank, in registration order.
std::vector<PlacedParameter> megatron_parameters(const MegatronConfig& config, const ChunkPlan& plan, std::int64_t tensor_parallel);

}  // namespace plimsoll::program
