// NeMo 1's configurations: Megatron's arguments below `model`, some by names of its own.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/megatron_arguments.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kNemo = "NeMo 1";

const Rows& nemo_rows() {
  static const Rows table = {
      {"trainer.devices", "cluster.gpus_per_node"},
      {"trainer.num_nodes", "cluster.nodes"},
      {"trainer.precision", "precision", "bf16=bf16,bf16-mixed=bf16,16=fp16,16-mixed=fp16,32=fp32,32-true=fp32"},
      {"trainer.gradient_clip_val", "clip_grad_norm"},
      {"trainer.*", kNothing},
      {"exp_manager.*", kNothing},
      {"model.optim.name", "optimizer", "distributed_fused_adam=adamw,fused_adam=adamw,mcore_distributed_optim=adamw,adamw=adamw"},
      {"model.*", kCode, "", nullptr, "Megatron's arguments"},
  };
  return table;
}

int recognises_nemo(const Node& tree) {
  return 4 * count_of(tree, {"trainer.num_nodes", "model.tensor_model_parallel_size", "model.megatron_amp_O2", "model.mcore_gpt"});
}

/// NeMo's own names of Megatron's arguments, and what it has beside them.
Node megatron_names(const Node& model) {
  static const std::pair<const char*, const char*> kNames[] = {{"encoder_seq_length", "seq_length"},
                                                               {"activations_checkpoint_granularity", "recompute_granularity"},
                                                               {"activations_checkpoint_method", "recompute_method"},
                                                               {"activations_checkpoint_num_layers", "recompute_num_layers"},
                                                               {"ub_tp_comm_overlap", "tp_comm_overlap"},
                                                               {"fp8_params", "fp8_param_gather"}};
  Node arguments = Node::table(model.where);
  for (const auto& [name, value] : model.members) {
    std::string key = name;
    for (const auto& [theirs, megatron] : kNames)
      if (key == theirs) key = megatron;
    if (key == "fp8" && value.text == "false") continue;
    if (value.is_table()) continue;
    arguments.members.emplace_back(key, value);
  }
  for (const auto& [theirs, megatron] : {std::pair{"tokenizer.type", "tokenizer_type"}, {"tokenizer.model", "tokenizer_model"}})
    if (const Node* value = model.find(theirs); value && !value->is_null()) arguments.set(megatron, *value);
  const auto words = [&](const char* key, const char* word, const char* flag) {
    const Node* value = model.find(key);
    if (value && value->text == word) arguments.set(flag, Node::scalar("true", value->where));
  };
  words("activation", "fast-swiglu", "swiglu");
  words("activation", "swiglu", "swiglu");
  words("activation", "squared-relu", "squared_relu");
  words("bias", "false", "disable_bias_linear");
  words("share_embeddings_and_output_weights", "false", "untie_embeddings_and_output_weights");
  const Node* norm = model.find("normalization");
  if (norm && norm->text == "rmsnorm") arguments.set("normalization", Node::scalar("RMSNorm", norm->where));
  if (norm && (norm->text == "layernorm" || norm->text == "layernorm1p"))
    arguments.set("normalization", Node::scalar("LayerNorm", norm->where));
  if (norm && norm->text == "layernorm1p") arguments.set("apply_layernorm_1p", Node::scalar("true", norm->where));
  if (const Node* groups = model.find("num_query_groups"); groups && !groups->is_null())
    arguments.set("group_query_attention", Node::scalar("true", groups->where));
  if (model.find("fp8") && model.find("fp8")->text == "true") arguments.set("fp8_format", Node::scalar("hybrid", model.find("fp8")->where));
  return arguments;
}

void read_nemo(Reading& reading, const Node& said) {
  Node tree = said;
  resolve_references(tree);
  reading.say("framework", "nemo", "trainer", tree.where);
  read_rows(reading, nemo_rows(), tree);
  const Node* model = tree.find("model");
  if (!model || !model->is_table()) fail("there is no model", tree.where);
  if (tree.find("inference") && !model->find("optim"))
    fail("does not train: it generates", tree.where, "give a configuration that has model.optim");
  Node arguments = megatron_names(*model);
  std::erase_if(arguments.members, [](const auto& member) {
    return member.first == "activation" || member.first == "bias" || member.first == "share_embeddings_and_output_weights" ||
           member.first == "fp8";
  });
  read_megatron(reading, arguments, kNemo, Unknown::unread);  // among NeMo's own keys
}

}  // namespace

Format nemo_format() { return {"nemo", "NeMo 1's YAML", kNemo, nemo_rows, recognises_nemo, read_nemo}; }

}  // namespace plimsoll::formats
