#include "model/router_loss.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace plimsoll::model {

void ask_for_router_logits(Model& model) {
  static constexpr std::array<std::string_view, 10> kComputing{"ernie4_5_moe", "flex_olmo", "gpt_oss", "granitemoe", "minimax_m2",
                                                               "mixtral",      "olmoe",     "phimoe",  "qwen2_moe",  "qwen3_moe"};
  if (model.task != Model::Task::causal_lm || std::find(kComputing.begin(), kComputing.end(), model.model_type) == kComputing.end()) return;
  for (Block& block : model.blocks)
    for (Operator& op : block.operators)
      if (op.kind == OperatorKind::router) op.function = "auxiliary_loss";
}

}  // namespace plimsoll::model
