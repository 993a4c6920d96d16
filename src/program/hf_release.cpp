#include "program/hf_release.hpp"

#include <algorithm>

namespace plimsoll::program {
namespace {

/// When a class left its own loss for loss_function, and whether its forward made the logits fp32 until then.
struct OwnLoss {
  std::string_view model_type;
  int left_with;  ///< 4.x
  bool upcast;
};

/// Other classes had what Llama had: logits.float() in forward until 4.45.
constexpr OwnLoss kOwnLosses[] = {{"mistral", 48, true},     {"granite", 48, true},  {"granitemoe", 48, true}, {"gpt_neo", 48, true},
                                  {"gptj", 48, true},        {"codegen", 48, true},  {"starcoder2", 47, true}, {"gpt2", 48, false},
                                  {"gpt_bigcode", 48, false}, {"bloom", 48, false},  {"falcon", 48, false},    {"opt", 48, false},
                                  {"mpt", 48, false},        {"stablelm", 48, false}, {"gpt_neox", 49, false}};

OwnLoss own_loss(std::string_view model_type) {
  const auto* found = std::find_if(std::begin(kOwnLosses), std::end(kOwnLosses), [&](const OwnLoss& one) { return one.model_type == model_type; });
  return found == std::end(kOwnLosses) ? OwnLoss{model_type, 46, true} : *found;
}

/// Classes whose forward upcast the logits beside loss_function until 5.0.
bool upcast_twice(std::string_view model_type) {
  constexpr std::string_view kTypes[] = {"gpt_neo", "gptj", "codegen", "granitemoe"};
  return std::find(std::begin(kTypes), std::end(kTypes), model_type) != std::end(kTypes);
}

}  // namespace

HfRelease::CausalLoss HfRelease::causal_loss(std::string_view model_type) const {
  const OwnLoss own = own_loss(model_type);
  if (!release_.since(4, own.left_with)) return {.upcasts_before = own.upcast, .upcasts_within = false, .copies_shifted = true};
  return {.upcasts_before = upcast_twice(model_type) && !release_.since(5, 0),
          .upcasts_within = true,
          .copies_shifted = !release_.since(4, 49),
          .warns = model_type == "gpt2"};
}

bool HfRelease::asks_for_hit_experts(std::string_view model_type) const {
  if (model_type == "mixtral" || model_type == "qwen2_moe") return release_.since(4, 52);
  return model_type == "qwen3_moe" && release_.since(4, 53);
}

}  // namespace plimsoll::program
