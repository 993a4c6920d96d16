// A language model's body under the head of a reward model.
#include <string_view>

#include "model/block_builder.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {

Model reward_model(Model model) {
  constexpr std::string_view kCausal = "ForCausalLM", kSequences = "ForSequenceClassification";
  model.activations_modelled = true;
  if (model.task == Model::Task::classification && model.architecture.ends_with(kSequences)) return model;
  const bool bare = model.source || !model.architecture.ends_with(kCausal) || model.blocks.empty() || model.blocks.back().role != Block::Role::head;
  if (bare)
    refuse("a reward model of " + model.architecture + " is not modelled", "task", "a model whose class ends in ForCausalLM or ForSequenceClassification");
  model.blocks.pop_back();
  model::BlockBuilder score(Block::Role::head, "score");
  score.linear("", kBlockInput, {.in = model.hidden_size, .out = 1});
  model.blocks.push_back(score.build());
  model.architecture.replace(model.architecture.size() - kCausal.size(), kCausal.size(), kSequences);
  model.task = Model::Task::classification;
  model.labels = 1;
  model.tied_embeddings = false;
  model.logit_softcap = 0;
  return model;
}

}  // namespace plimsoll
