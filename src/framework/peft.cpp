#include "framework/peft.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll::framework {
namespace {

/// A row of TRANSFORMERS_MODELS_TO_{IA3_TARGET_MODULES, IA3_FEEDFORWARD_MODULES, LNTUNING_TARGET_MODULES}_MAPPING (PEFT 0.21).
struct Modules {
  const char* model_type;
  std::vector<std::string> scaled, feedforward, norms;
};

const std::vector<Modules>& tables() {
  static const std::vector<Modules> rows = {
      {"llama", {"k_proj", "v_proj", "down_proj"}, {"down_proj"}, {"input_layernorm", "post_attention_layernorm", "norm"}},
      {"mistral", {"k_proj", "v_proj", "down_proj"}, {"down_proj"}, {"input_layernorm", "post_attention_layernorm", "norm"}},
      {"gemma", {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, {"input_layernorm", "post_attention_layernorm", "norm"}},
      {"gemma2",
       {"q_proj", "v_proj", "down_proj"},
       {"down_proj"},
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "norm"}},
      {"gemma3_text",
       {"q_proj", "v_proj", "down_proj"},
       {"down_proj"},
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "norm"}},
      {"qwen2", {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, {"post_attention_layernorm"}},
      {"qwen3", {"q_proj", "v_proj", "down_proj"}, {"down_proj"}, {"post_attention_layernorm"}},
      {"phi", {"q_proj", "v_proj", "fc2"}, {"fc2"}, {"input_layernorm", "final_layernorm"}},
      {"opt", {"q_proj", "k_proj", "fc2"}, {"fc2"}, {}},
      {"gpt2", {"c_attn", "mlp.c_proj"}, {"mlp.c_proj"}, {"ln_1", "ln_2", "ln_f"}},
      {"gpt_bigcode", {"c_attn", "mlp.c_proj"}, {"mlp.c_proj"}, {}},
      {"gptj", {"q_proj", "v_proj", "fc_out"}, {"fc_out"}, {"ln_1", "ln_f"}},
      {"gpt_neox", {"query_key_value", "dense_4h_to_h"}, {"dense_4h_to_h"}, {}},
      {"gpt_neo", {"q_proj", "v_proj", "c_proj"}, {"c_proj"}, {}},
      {"bloom", {"query_key_value", "mlp.dense_4h_to_h"}, {"mlp.dense_4h_to_h"}, {"input_layernorm", "post_attention_layernorm", "ln_f"}},
      {"falcon", {"query_key_value", "dense_4h_to_h"}, {"dense_4h_to_h"}, {"input_layernorm", "post_attention_layernorm", "ln_f"}},
  };
  return rows;
}

const Modules& table_of(const Model& model) {
  for (const Modules& row : tables())
    if (model.model_type == row.model_type) return row;
  fail("PEFT has no usual modules for model type '" + model.model_type + "'", "peft.target_modules", "list them");
}

void complete_targets(Strategy& s, const Model& model) {
  Peft& peft = *s.peft;
  const bool scales = peft.method == PeftMethod::ia3;
  const auto take = [&](std::vector<std::string>& field, const std::vector<std::string>& usual, const char* key) {
    if (!field.empty()) return;
    if (usual.empty()) fail("PEFT has no usual modules for model type '" + model.model_type + "'", key, "list them");
    field = usual;
    std::string text;
    for (const std::string& name : usual) text += (text.empty() ? "" : ", ") + name;
    s.assumed.push_back(std::string(key) + ": " + text + " (PEFT's for " + model.model_type + ")");
  };
  if (!peft.targets.empty() && (!scales || !peft.feedforward.empty())) return;
  const Modules& row = table_of(model);
  take(peft.targets, scales ? row.scaled : row.norms, "peft.target_modules");
  if (scales) take(peft.feedforward, row.feedforward, "peft.feedforward_modules");
}

/// PromptEncoder's three linears with their biases; none for the other methods.
std::int64_t encoder_parameters(const Peft& peft, std::int64_t hidden) {
  if (peft.method != PeftMethod::p_tuning) return 0;
  const std::int64_t inner = peft.encoder_hidden_size;
  return (hidden + 1) * inner + (inner + 1) * inner + (inner + 1) * hidden;
}

void complete_virtual_tokens(Strategy& s, const Model& model) {
  Peft& peft = *s.peft;
  if (peft.method == PeftMethod::p_tuning && peft.encoder_hidden_size == 0) {
    peft.encoder_hidden_size = model.hidden_size;
    s.assumed.push_back("peft.encoder_hidden_size: the model's");
  }
  if (peft.virtual_tokens) return;
  const std::int64_t learnt = s.trainable_params - encoder_parameters(peft, model.hidden_size);
  if (learnt <= 0) fail("the number of virtual tokens is missing", "peft.num_virtual_tokens", "give it, or trainable_params");
  if (learnt % model.hidden_size != 0)
    fail("no number of virtual tokens has " + std::to_string(s.trainable_params) + " parameters", "trainable_params",
         "give peft.num_virtual_tokens");
  peft.virtual_tokens = learnt / model.hidden_size;
  s.assumed.push_back("peft.num_virtual_tokens: " + std::to_string(peft.virtual_tokens) + " (from trainable_params)");
}

}  // namespace

namespace {

/// TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING of PEFT 0.21; empty: PEFT wants them said.
std::vector<std::string> usual_lora_targets(const std::string& model_type) {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"t5", {"q", "v"}},
      {"mt5", {"q", "v"}},
      {"bart", {"q_proj", "v_proj"}},
      {"gpt2", {"c_attn"}},
      {"bloom", {"query_key_value"}},
      {"opt", {"q_proj", "v_proj"}},
      {"gptj", {"q_proj", "v_proj"}},
      {"gpt_neox", {"query_key_value"}},
      {"gpt_neo", {"q_proj", "v_proj"}},
      {"bert", {"query", "value"}},
      {"roberta", {"query", "value"}},
      {"xlm-roberta", {"query", "value"}},
      {"electra", {"query", "value"}},
      {"deberta-v2", {"query_proj", "value_proj"}},
      {"deberta", {"in_proj"}},
      {"llama", {"q_proj", "v_proj"}},
      {"gpt_bigcode", {"c_attn"}},
      {"mpt", {"Wqkv"}},
      {"falcon", {"query_key_value"}},
      {"codegen", {"qkv_proj"}},
      {"mistral", {"q_proj", "v_proj"}},
      {"mixtral", {"q_proj", "v_proj"}},
      {"stablelm", {"q_proj", "v_proj"}},
      {"phi", {"q_proj", "v_proj", "fc1", "fc2"}},
      {"gemma", {"q_proj", "v_proj"}},
      {"gemma2", {"q_proj", "v_proj"}},
      {"gemma3_text", {"q_proj", "v_proj"}},
      {"qwen2", {"q_proj", "v_proj"}},
      {"qwen3", {"q_proj", "v_proj"}},
      {"blip-2", {"q", "v", "q_proj", "v_proj"}},
      {"layoutlm", {"query", "value"}},
      {"llama4", {"q_proj", "v_proj"}},
      {"nemotron_h", {"q_proj", "k_proj", "v_proj", "o_proj"}},
      {"rwkv", {"key", "value", "receptance", "output"}},
  };
  const auto found = table.find(model_type);
  return found == table.end() ? std::vector<std::string>{} : found->second;
}

void complete_lora(Strategy& s, const Model& model) {
  if (!s.lora->targets.empty()) return;
  // convert_peft_config_for_transformers: names of a mixture's linears are mapped to what transformers 5 made of them, and none is none.
  if (model.model_type == "mixtral" && s.releases.of(Package::transformers).since(5, 0) && s.releases.of(Package::peft).since(0, 21)) return;
  s.lora->targets = usual_lora_targets(model.model_type);
  std::string text;
  for (const std::string& name : s.lora->targets) text += (text.empty() ? "" : ", ") + name;
  if (!text.empty()) s.assumed.push_back("lora.target_modules: " + text + " (PEFT's for " + model.model_type + ")");
}

}  // namespace

DType adapter_type(const Release& peft, DType weights) { return peft.since(0, 7) && !peft.since(0, 12) ? weights : DType::fp32; }

void complete_peft(Strategy& s, const Model& model) {
  if (s.lora) complete_lora(s, model);
  if (!s.peft) return;
  if (s.lora) fail("a run has either low-rank adapters or another of PEFT's methods", "task", "leave one out");
  if (s.peft->method == PeftMethod::prefix_tuning) refuse("prefix tuning is not modelled", "task", "prompt_tuning and p_tuning are");
  if (s.data_parallel != DataParallel::none && s.data_parallel != DataParallel::ddp)
    refuse("PEFT's methods beside LoRA are not modelled for sharded parameters", "data_parallel", "none or ddp");
  if (model.task != Model::Task::causal_lm) refuse("PEFT's methods beside LoRA are modelled for causal language models only", "task");
  const bool modules = s.peft->method == PeftMethod::ia3 || s.peft->method == PeftMethod::ln_tuning;
  if (modules)
    complete_targets(s, model);
  else
    complete_virtual_tokens(s, model);
}

std::vector<std::string> linear_names(const Model& model) {
  std::vector<std::string> names;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators) {
      const std::string name = op.name.substr(op.name.rfind('.') + 1);
      const bool layer = block.role == Block::Role::decoder || block.role == Block::Role::encoder || block.numbered;
      const bool of_layers = (layer || model.source) && op.kind == OperatorKind::linear;
      if (of_layers && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  return names;
}

namespace {

/// _MOE_TARGET_MODULE_MAPPING of PEFT 0.21.
struct MixtureNames {
  const char *router, *gate, *up, *down;
};
constexpr MixtureNames kMixtral{"gate", "w1", "w3", "w2"}, kQwen2Moe{"gate", "gate_proj", "up_proj", "down_proj"};

/// Of transformers' _MODEL_TO_CONVERSION_PATTERN, what PEFT maps; qwen2_moe itself is not in it. Null: names stay names of linears.
const MixtureNames* names_of(const std::string& model_type) {
  for (const char* type : {"mixtral", "minimax", "minimax_m2"})
    if (model_type == type) return &kMixtral;
  for (const char* type : {"afmoe", "beam", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "dots1", "ernie4_5_moe",
                           "exaone_moe", "flex_olmo", "glm4_moe", "glm4_moe_lite", "glm4v_moe", "glm_moe_dsa", "hunyuan_v1_moe",
                           "longcat_flash", "mellum", "olmoe", "qwen3_moe", "qwen3_next", "qwen3_omni_moe", "qwen3_omni_moe_text",
                           "qwen3_omni_moe_thinker", "solar_open"})
    if (model_type == type) return &kQwen2Moe;
  return nullptr;
}

/// Whose sparse block has a router of one weight and no experts beside the stacked ones.
bool is_plain_mixture(const std::string& model_type) {
  return model_type == "mixtral" || model_type == "qwen3_moe" || model_type == "olmoe" || model_type == "flex_olmo";
}

bool names(const std::string& target, const char* linear) {
  const std::string dotted = std::string(".") + linear;
  return target == linear || (target.size() > dotted.size() && target.compare(target.size() - dotted.size(), dotted.size(), dotted) == 0);
}

}  // namespace

MixtureTargets mixture_targets(const Model& model, const std::vector<std::string>& targets) {
  const MixtureNames* mapped = names_of(model.model_type);
  if (!mapped) return {targets};
  MixtureTargets found;
  const bool all = targets == std::vector<std::string>{kAllLinear};
  bool gate = all, up = all;
  found.router = found.down = all;
  for (const std::string& target : targets) {
    const auto is = [&](const char* linear, bool& named) {
      const bool same = names(target, linear);
      named = named || same;
      return same;
    };
    const bool a_parameter =
        is(mapped->router, found.router) || is(mapped->gate, gate) || is(mapped->up, up) || is(mapped->down, found.down);
    if (!a_parameter && !all) found.linears.push_back(target);
  }
  if (gate != up)
    fail("PEFT stops: experts keep " + std::string(mapped->gate) + " and " + mapped->up + " as one parameter, and one of them is targeted",
         "lora.target_modules", "both or neither");
  found.gate_up = gate;
  if (all) {
    // Leaf names: those of a dense layer's MLP are taken for the experts', and its linears get no adapter.
    for (const std::string& leaf : linear_names(model)) {
      const bool taken = leaf == mapped->router || leaf == mapped->gate || leaf == mapped->up || leaf == mapped->down;
      if (!taken) found.linears.push_back(leaf);
    }
  }
  if (found.any() && !model.source && !is_plain_mixture(model.model_type))
    refuse("adapters of the router and the stacked experts of " + model.model_type + " are not modelled", "lora.target_modules",
           "list attention's linears");
  return found;
}

std::int64_t mixture_adapter_elements(const Model& model, const MixtureTargets& targets, std::int64_t rank) {
  std::int64_t elements = 0;
  for (const Block& block : model.blocks) {
    if (!block.moe) continue;
    const MoeSpec& moe = *block.moe;
    const std::int64_t inner = moe.expert_intermediate;
    std::int64_t widths = 0;
    if (targets.router) widths += moe.hidden + moe.experts;
    if (targets.gate_up) widths += 2 * moe.experts * (moe.hidden + 2 * inner);  // of twice the rank
    if (targets.down) widths += moe.experts * (inner + moe.hidden);
    elements += block.repeat * rank * widths;
  }
  return elements;
}

}  // namespace plimsoll::framework
