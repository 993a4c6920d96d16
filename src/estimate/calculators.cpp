// What two well-known calculators say, computed the way they compute it.
#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/formula.hpp"

namespace plimsoll {
namespace {

/// Cosine and sine tables, fp32, that transformers before 4.38 kept in every decoder layer.
std::int64_t rotary_cache_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const Block& block : model.blocks)
    if (block.attention && block.attention->positions == Positions::rope)
      bytes += block.repeat * 2 * model.max_positions * block.attention->rotary_dim * size_of(DType::fp32);
  return bytes;
}

std::int64_t index_buffer_bytes(const Model& model) {
  std::int64_t bytes = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      for (const BufferTensor& buffer : op.buffers) {
        if (buffer.type != DType::int64) continue;
        std::int64_t elements = 1;
        for (const std::int64_t extent : buffer.shape) elements *= extent;
        bytes += block.repeat * elements * size_of(buffer.type);
      }
  return bytes;
}

/// "BertForMaskedLM" and "GPT2LMHeadModel" are heads on "BertModel" and "GPT2Model".
std::string base_class(const std::string& architecture) {
  for (const char* head : {"For", "LMHeadModel"})
    if (const auto at = architecture.rfind(head); at != std::string::npos && at > 0) return architecture.substr(0, at) + "Model";
  return architecture;
}

/// The most parameters that one module holds itself, without its children.
std::int64_t largest_layer(const Model& model) {
  std::int64_t largest = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      std::int64_t elements = 0;
      for (const ParameterTensor& tensor : op.parameters) elements += tensor.elements();
      largest = std::max(largest, elements);
    }
  return largest;
}

}  // namespace

Model load_base_model(const std::string& name_or_path) {
  return load_model(name_or_path, base_class(load_model(name_or_path).architecture));
}

AccelerateView accelerate_view(const Model& model) {
  AccelerateView view;
  const std::int64_t rotary = rotary_cache_bytes(model), indices = index_buffer_bytes(model);
  view.parameters = model.parameters();
  view.buffer_bytes = rotary + indices;
  view.derivation = fmt::format("{} parameters of {} x 4 B", with_thousands(view.parameters), model.architecture);
  if (indices > 0) view.derivation += fmt::format(" + {} B of int64 index buffers", with_thousands(indices));
  if (rotary > 0)
    view.derivation += fmt::format(" + {} B of per-layer fp32 rotary caches (transformers before 4.38)", with_thousands(rotary));
  const std::int64_t size = 4 * view.parameters + view.buffer_bytes;
  view.rows = {{"float32", size, size, 2 * size, 4 * size}, {"float16", size, size + size / 2, 2 * size, 2 * size}};
  return view;
}

std::string accelerate_bytes(double bytes) {
  for (const char* unit : {"bytes", "KB", "MB", "GB", "TB"}) {
    if (bytes < 1024) return fmt::format("{:.2f} {}", bytes, unit);
    bytes /= 1024;
  }
  return fmt::format("{:.2f} PB", bytes);
}

DeepSpeedView deepspeed_view(const Model& model, std::int64_t gpus_per_node, std::int64_t nodes) {
  DeepSpeedView view{model.parameters(), largest_layer(model), gpus_per_node, nodes, {}};
  constexpr double kHostFactor = 1.5;  // the tool's additional_buffer_factor
  const double total = static_cast<double>(view.parameters), per_node = static_cast<double>(gpus_per_node);
  const double gpus = per_node * static_cast<double>(nodes), layer = 4 * static_cast<double>(view.largest_layer);
  for (const auto& [offload_param, offload_optimizer] : {std::pair{true, true}, {false, true}, {false, false}})
    for (const bool zero_init : {true, false}) {
      const double host_bytes = offload_param ? 18 : 16;
      const double unsharded = total * 4 * per_node;  // every process builds the whole model in fp32
      double cpu = zero_init ? layer * per_node : unsharded;
      if (offload_optimizer) cpu = std::max(total * host_bytes / static_cast<double>(nodes), zero_init ? 0 : unsharded);
      const double device_bytes = offload_param ? 0 : offload_optimizer ? 2 : 18;
      const double gpu = layer + device_bytes * total / gpus;
      view.rows.push_back(
          {offload_param, offload_optimizer, zero_init, static_cast<std::int64_t>(cpu * kHostFactor), static_cast<std::int64_t>(gpu)});
    }
  return view;
}

}  // namespace plimsoll
