#include "model/registry.hpp"

#include <algorithm>

#include "model/families/families.hpp"

namespace plimsoll::model {

const std::vector<Family>& families() {
  static const std::vector<Family> table = {
      // Text decoders.
      {"llama", "Llama", "LlamaForCausalLM", build_llama},
      {"mistral", "Mistral", "MistralForCausalLM", build_llama},
      // Encoders, sequence to sequence.
      // Vision, diffusion, convolution.
  };
  return table;
}

const std::vector<RefusedType>& refused_types() {
  static const std::vector<RefusedType> table = {
      {"mamba", "a state-space layer (selective scan)"},
      {"mamba2", "a state-space layer (selective scan)"},
      {"falcon_mamba", "a state-space layer (selective scan)"},
      {"jamba", "a state-space layer (selective scan)"},
      {"bamba", "a state-space layer (selective scan)"},
      {"zamba2", "a state-space layer (selective scan)"},
      {"recurrent_gemma", "a gated linear recurrence"},
      {"rwkv", "a linear recurrence"},
      {"whisper", "a speech encoder"},
      {"wav2vec2", "a speech encoder"},
      {"hubert", "a speech encoder"},
      {"llava", "a vision tower beside the language model"},
      {"qwen2_vl", "a vision tower beside the language model"},
      {"qwen2_5_vl", "a vision tower beside the language model"},
      {"gemma3", "a vision tower beside the language model"},
      {"mllama", "a vision tower beside the language model"},
      {"llama4", "a vision tower beside the language model"},
      {"clip", "a pair of towers joined by a contrastive loss"},
      {"siglip", "a pair of towers joined by a contrastive loss"},
      {"swin", "shifted windows"},
  };
  return table;
}

const Family* find_family(std::string_view model_type) {
  const auto& table = families();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Family& family) { return family.model_type == model_type; });
  return found == table.end() ? nullptr : &*found;
}

const Family* find_family_of_class(std::string_view architecture) {
  const Family* best = nullptr;
  for (const auto& family : families()) {
    const bool matches = architecture.substr(0, family.class_prefix.size()) == family.class_prefix;
    if (matches && (best == nullptr || family.class_prefix.size() > best->class_prefix.size())) best = &family;
  }
  return best;
}

}  // namespace plimsoll::model
