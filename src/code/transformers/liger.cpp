#include "code/transformers/liger.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "program/ops/liger.hpp"

namespace plimsoll::code {

using program::RunOptions;
using program::Tensor;

namespace {

constexpr const char* kPatches = "liger_kernel.transformers.monkey_patch";

/// Model types whose patched steps were held against Liger's own: the classes' rows, and what was rehearsed (docs/code.md). Of others a
/// patch may do what no row has told: of Qwen3-Next's the reserved memory is another.
constexpr const char* kHeld[] = {"llama",  "qwen2",       "qwen3",   "mistral", "mixtral", "qwen3_moe", "phi3",    "smollm3",  "gemma",
                                 "gemma2", "gemma3_text", "granite", "olmo2",   "olmo3",   "glm4",      "exaone4", "falcon_h1"};

void require(Interpreter& i, bool known, const char* what) {
  if (!known) i.unknown(std::string(what) + " of Liger's kernels");
}

bool is_number(const Value& value, double number) { return !value.is_bound() || (value.is_number() && value.as_real() == number); }
bool is_off(Interpreter& i, const Value& value) { return !value.is_bound() || value.is_none() || !i.truth(value); }

/// LigerRMSNormFunction.apply: offset and casting mode are numbers of the kernel.
Value rms_norm(Interpreter& i, Bound& a) {
  require(i, a.has(1), "a norm without a weight");
  return i.torch().wrap(
      program::liger_rms_norm(i.torch().tensor_of(a[0], "X"), i.torch().tensor_of(a[1], "W"), !a[5].is_bound() || i.truth(a[5])));
}

template <const char* kActivation>
Value gated(Interpreter& i, Bound& a) {
  return i.torch().wrap(program::liger_gated(kActivation, i.torch().tensor_of(a[0], "a"), i.torch().tensor_of(a[1], "b")));
}

constexpr char kSilu[] = "silu", kGelu[] = "gelu";

Value rotated(Interpreter& i, Bound& a) {
  const Tensor query = i.torch().tensor_of(a[0], "q"), key = i.torch().tensor_of(a[1], "k");
  if (query.rank() != 4 || key.rank() != 4) i.torch().wrong_shape("LigerRopeFunction asks for [batch, heads, length, dim]");
  const Tensor cosine = i.torch().tensor_of(a[2], "cos"), sine = i.torch().tensor_of(a[3], "sin");
  require(i, cosine.rank() == 3 && sine.rank() == 3, "rotation by tables of other than three dimensions");
  auto [q, k] = program::liger_rope(query, key, cosine, sine);
  return i.tuple({i.torch().wrap(std::move(q)), i.torch().wrap(std::move(k))});
}

/// The loss, and of what was not asked for nothing.
Value with_nothing_else(Interpreter& i, Tensor loss) {
  return i.tuple({i.torch().wrap(std::move(loss)), Value::none(), Value::none(), Value::none()});
}

/// apply(input, target, weight, ignore_index, lse_square_scale, label_smoothing, reduction, softcap, return_z_loss, …).
Value cross_entropy(Interpreter& i, Bound& a) {
  require(i, !a.has(2), "cross entropy with weights of classes");
  require(i, !a[6].is_bound() || i.words(a[6], "reductions") == "mean", "cross entropy with another reduction than the mean");
  require(i, is_number(a[4], 0) && is_number(a[5], 0), "cross entropy with smoothed labels");
  for (const std::size_t flag : {8, 9, 10}) require(i, is_off(i, a[flag]), "what cross entropy returns beside the loss");
  return with_nothing_else(i, program::liger_cross_entropy(i.torch().tensor_of(a[0], "input"), i.torch().tensor_of(a[1], "target")));
}

/// apply(input, weight, target, bias, ce_weight, ignore_index, lse_square_scale, label_smoothing, reduction, softcap, return_z_loss,
/// accum_dtype, use_token_scaling, return_token_accuracy, return_predicted_tokens, …).
Value fused_cross_entropy(Interpreter& i, Bound& a) {
  const Tensor hidden = i.torch().tensor_of(a[0], "input"), weight = i.torch().tensor_of(a[1], "weight"),
               target = i.torch().tensor_of(a[2], "target");
  require(i, !a.has(3) && !a.has(4), "a fused loss with a bias or weights of classes");
  require(i, is_number(a[6], 0) && is_number(a[7], 0), "a fused loss with smoothed labels");
  require(i, !a[8].is_bound() || i.words(a[8], "reductions") == "mean", "a fused loss with another reduction than the mean");
  require(i, !a.has(11), "a fused loss that adds up in a type of its own");
  for (const std::size_t flag : {10, 12, 13, 14}) require(i, is_off(i, a[flag]), "what a fused loss returns or scales");
  if (!i.torch().is_on_device(weight))
    fail("Liger reads the head's weight without calling the module, whose unit is not gathered then", "fsdp.units",
         "leave lm_head in the root");
  return with_nothing_else(i, program::liger_fused_linear_cross_entropy(hidden, weight, target));
}

Value fused_experts(Interpreter& i, Bound& a) {
  const auto tensor = [&](std::size_t at) { return i.torch().tensor_of(a[at], "an argument of LigerFusedMoEFunction"); };
  return i.torch().wrap(program::liger_fused_moe(tensor(0), tensor(1), tensor(2), tensor(3), tensor(4)));
}

constexpr LibraryRow kFunctions[] = {
    {"LigerRMSNormFunction", "X, W, eps, offset=, casting_mode=, in_place=, row_mode=", rms_norm},
    {"LigerSiLUMulFunction", "a, b, gate_multiplier=, down_multiplier=", gated<kSilu>},
    {"LigerGELUMulFunction", "a, b", gated<kGelu>},
    {"LigerRopeFunction", "q, k, cos, sin, position_ids=, unsqueeze_dim=, rotary_dim=", rotated},
    {"LigerCrossEntropyFunction",
     "input, target, weight=, ignore_index=, lse_square_scale=, label_smoothing=, reduction=, softcap=, return_z_loss=, "
     "return_token_accuracy=, "
     "return_predicted_tokens=, *backend",
     cross_entropy},
    {"LigerFusedLinearCrossEntropyFunction",
     "input, weight, target, bias=, ce_weight=, ignore_index=, lse_square_scale=, label_smoothing=, reduction=, softcap=, return_z_loss=, "
     "accum_dtype=, "
     "use_token_scaling=, return_token_accuracy=, return_predicted_tokens=, *backend",
     fused_cross_entropy},
    {"LigerFusedMoEFunction", "x, gate_up_proj, down_proj, top_k_index, top_k_weights", fused_experts},
};

}  // namespace

void define_liger(Interpreter& i) {
  NamespaceObject& library = i.library("liger_kernel.ops");
  for (const LibraryRow& row : kFunctions) {
    const Held<ClassObject> type = i.native_class(std::string("liger_kernel.ops.") + row.name, {i.builtin_class("object")});
    type->attributes.set(i.symbol("apply"), i.native(std::string(row.name) + ".apply", row.signature, row.run));
    library.attributes[i.symbol(row.name)] = Value(type);
  }
}

void apply_liger(Interpreter& i, const Value& model, const RunOptions& options) {
  const bool fused = options.loss == RunOptions::Loss::liger_fused_linear, plain = options.loss == RunOptions::Loss::liger;
  if (!options.liger && !fused && !plain) return;
  if (i.text_module("liger_kernel.transformers.functional") == nullptr)
    fail("Liger's patches are read from its own code, which is not beside transformers", "--code",
         "TRANSFORMERS,LIGER_KERNEL: folders or wheels (pip download --no-deps liger-kernel)");
  const Value type = i.attribute(i.attribute(model, i.symbol("config")), i.symbol("model_type"));
  if (!i.contains(i.imported_or_fail(kPatches, "MODEL_TYPE_TO_APPLY_LIGER_FN"), type))
    refuse("Liger has no patches for model type '" + i.words(type, "model types") + "'", "liger_kernel", "leave it out");
  if (std::find(std::begin(kHeld), std::end(kHeld), i.words(type, "model types")) == std::end(kHeld))
    refuse("Liger's patches of model type '" + i.words(type, "model types") + "' were not held against a step of theirs", "liger_kernel",
           "leave it out");
  CallArguments arguments;
  const auto say = [&](const char* name, bool yes) { arguments.keywords.emplace_back(i.symbol(name), Value::boolean(yes)); };
  arguments.keywords.emplace_back(i.symbol("model"), model);
  say("cross_entropy", plain);
  say("fused_linear_cross_entropy", fused);
  const auto without = [&](bool kept, std::initializer_list<const char*> parts) {
    if (!options.liger || !kept)
      for (const char* part : parts) say(part, false);
  };
  without(options.liger_modules.rope, {"rope"});
  without(options.liger_modules.rms_norm, {"rms_norm"});
  without(options.liger_modules.glu, {"swiglu", "geglu"});
  if (!options.liger) say("layer_norm", false);
  (void)i.call_from_outside(i.imported_or_fail(kPatches, "_apply_liger_kernel_to_instance"), std::move(arguments));
}

}  // namespace plimsoll::code
