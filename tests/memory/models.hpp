// Models that the tables of memory are computed for.
#pragma once

#include "plimsoll/model.hpp"

namespace plimsoll::test {

inline Model llama(std::int64_t hidden, std::int64_t intermediate, std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t vocabulary) {
  const auto key = [](const char* name, std::int64_t value) { return std::string(",\"") + name + "\":" + std::to_string(value); };
  return parse_model(R"({"model_type":"llama","architectures":["LlamaForCausalLM"])" + key("hidden_size", hidden) +
                         key("intermediate_size", intermediate) + key("num_hidden_layers", layers) + key("num_attention_heads", heads) +
                         key("num_key_value_heads", kv_heads) + key("vocab_size", vocabulary) + "}",
                     "test", "llama");
}
inline Model llama_3_8b() { return llama(4096, 14336, 32, 32, 8, 128256); }
inline Model llama_3_70b() { return llama(8192, 28672, 80, 64, 8, 128256); }
inline Model llama_2_7b() { return llama(4096, 11008, 32, 32, 32, 32000); }
inline Model gpt2() { return parse_model(R"({"model_type":"gpt2","architectures":["GPT2LMHeadModel"]})", "test", "gpt2"); }

/// All parameter tensors in registration order, those of repeated blocks as often as they are there; tied ones once.
inline std::vector<ParameterTensor> tensors(const Model& model) {
  std::vector<ParameterTensor> list;
  for (const Block& block : model.blocks)
    for (std::int64_t repeat = 0; repeat < block.repeat; ++repeat)
      for (const ParameterTensor* tensor : block.parameter_list())
        if (tensor->tied_to.empty()) list.push_back(*tensor);
  return list;
}

inline std::vector<std::int64_t> elements(const std::vector<ParameterTensor>& tensors) {
  std::vector<std::int64_t> counts;
  for (const ParameterTensor& tensor : tensors) counts.push_back(tensor.elements());
  return counts;
}

/// Shapes of the linears of the decoder blocks.
inline std::vector<std::vector<std::int64_t>> block_linears(const Model& model, const std::vector<std::string>& names = {}) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::decoder) continue;
    for (std::int64_t repeat = 0; repeat < block.repeat; ++repeat)
      for (const ParameterTensor* tensor : block.parameter_list()) {
        bool wanted = tensor->shape.size() == 2 && names.empty();
        for (const std::string& name : names) wanted = wanted || tensor->name.find(name) != std::string::npos;
        if (wanted) shapes.push_back(tensor->shape);
      }
  }
  return shapes;
}

}  // namespace plimsoll::test
