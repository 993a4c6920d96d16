#include "program/modules/liger.hpp"

#include <algorithm>
#include <iterator>

#include "plimsoll/error.hpp"
#include "program/ops/liger.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Family {
  const char* model_type;
  LigerPatches patches;
  bool fused_loss = true;
  bool loss = true;  ///< cross_entropy=True reaches the model's loss
};

constexpr Family kFamilies[] = {
    {"llama", {}},
    {"qwen2", {}},
    {"qwen3", {.head_norms = true}},
    {"mistral", {}, true, false},
    {"mixtral", {}},
    {"qwen3_moe", {.head_norms = true}},
    {"phi3", {}},
    {"smollm3", {}},
    {"gemma", {}},
    {"gemma2", {.gradient_in_place = false, .final_gradient_in_place = false}},
    {"gemma3_text", {.gradient_in_place = false, .final_gradient_in_place = false, .head_norms = true}},
    {"granite", {}, false},
    {"olmo2", {.gradient_in_place = false}},
    {"glm4", {.gradient_in_place = false, .final_gradient_in_place = false, .modules = {.rope = false}}},
    {"exaone4", {.gradient_in_place = false, .final_gradient_in_place = false, .head_norms = true}},
};

Tensor shifted_labels(const Tensor& padded) { return contiguous(slice(padded, -1, 1, padded.size(-1))); }

}  // namespace

std::optional<LigerPatches> liger_patches(const std::string& model_type, const RunOptions& options) {
  const bool has_loss = options.loss == RunOptions::Loss::liger || options.loss == RunOptions::Loss::liger_fused_linear;
  if (!options.liger && !has_loss) return std::nullopt;
  const auto family = std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Family& f) { return model_type == f.model_type; });
  if (family == std::end(kFamilies)) refuse("Liger's kernels are not modelled for model type '" + model_type + "'", "liger_kernel");
  if (options.loss == RunOptions::Loss::liger_fused_linear && !family->fused_loss)
    refuse("Liger's fused linear cross entropy is not available for " + model_type, "loss", "liger");
  if (options.loss == RunOptions::Loss::liger && !family->loss)
    refuse("Liger's cross entropy does not reach the loss of " + model_type + ": it replaces a name that transformers 5 does not use",
           "loss", "liger-fused-linear or ce");
  if (options.compiled_blocks) refuse("compiled blocks with Liger's kernels are not modelled", "compile");
  if (!options.liger) return std::nullopt;
  LigerPatches patches = family->patches;
  const bool has_rope = patches.modules.rope;
  patches.modules = options.liger_modules;
  patches.modules.rope = patches.modules.rope && has_rope;
  return patches;
}

Tensor PatchedNorm::operator()(const Tensor& input) const {
  if (!in_place_) return norm_(input);
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  return call.done(liger_rms_norm(x, module_->tensor("weight"), *in_place_));
}

Tensor liger_causal_lm_loss(const Tensor& logits_in, const Tensor& labels_in) {
  Tensor logits = to(logits_in, DType::fp32);
  const Tensor labels = pad_last(labels_in, 0, 1);
  const Tensor shifted = view(shifted_labels(labels), {-1});
  logits = view(logits, {-1, logits.size(-1)});
  return liger_cross_entropy(logits, shifted);
}

Tensor liger_fused_causal_lm_loss(const Tensor& hidden, Module& head, const Tensor& labels_in) {
  const bool hooked = !head.pre_forward.empty() || !head.post_forward.empty();
  if (head.read_from_outside)
    for (const auto& parameter : head.parameters) head.read_from_outside(*parameter);
  else if (hooked)
    fail("Liger reads the head's weight without calling the module, whose unit is not gathered then", "fsdp.units",
         "leave lm_head in the root");
  if (head.find_child("base_layer") || head.find_child("modules_to_save"))
    refuse("Liger's fused linear cross entropy of an adapted head is not modelled", "lora.target_modules");
  const Tensor labels = pad_last(labels_in, 0, 1);
  const Tensor shifted = view(shifted_labels(labels), {-1});
  const Tensor flat = view(hidden, {-1, hidden.size(-1)});
  return liger_fused_linear_cross_entropy(flat, head.tensor("weight"), shifted);
}

}  // namespace plimsoll::program
