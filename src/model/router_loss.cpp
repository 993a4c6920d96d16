#include "model/router_loss.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "units/json_reader.hpp"

namespace plimsoll::model {
namespace {

bool computes_router_loss(const Model& model) {
  static constexpr std::array<std::string_view, 10> kComputing{"ernie4_5_moe", "flex_olmo", "gpt_oss", "granitemoe", "minimax_m2",
                                                               "mixtral",      "olmoe",     "phimoe",  "qwen2_moe",  "qwen3_moe"};
  return model.task == Model::Task::causal_lm && std::find(kComputing.begin(), kComputing.end(), model.model_type) != kComputing.end();
}

}  // namespace

bool has_router_loss(const Model& model) {
  if (!computes_router_loss(model)) return false;
  if (!model.config) return true;
  const JsonDocument config = JsonDocument::parse(model.config->text, model.config->where);
  const auto weight = config.root().find("router_aux_loss_coef");
  return !weight || weight->is_null() || weight->number(0, 1e9) != 0;
}

void ask_for_router_logits(Model& model) {
  if (!computes_router_loss(model)) return;
  for (Block& block : model.blocks)
    for (Operator& op : block.operators)
      if (op.kind == OperatorKind::router) op.function = "auxiliary_loss";
}

}  // namespace plimsoll::model
