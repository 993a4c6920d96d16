// ms-swift over Megatron-core: `megatron sft` and `megatron pt` (swift/megatron/arguments/megatron_args.py of 4.6). Megatron-LM's arguments by
// their names, a model by its own, and defaults that differ from both.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/megatron_arguments.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/swift.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// What it has beside Megatron-LM's arguments, and where it means something else by one.
const Rows& own_rows() {
  static const Rows table = {
      {"model", "model"},
      {"mcore_model", kCode, "", nullptr, "a checkpoint of Megatron's: its model is MODEL"},
      {"tuner_type", kRefused, "full", nullptr, "adapters over Megatron's layers"},
      {"train_type", kRefused, "full", nullptr, "adapters over Megatron's layers"},
      {"task_type", kRefused, "causal_lm", nullptr, "training of another head"},
      {"quant_method", kRefused, "null", nullptr, "quantized weights under Megatron"},
      {"torch_dtype", kCode, "", nullptr, "bf16, unless float16 or float32, which train in fp16"},
      {"max_length", kCode, "", nullptr, "seq_len; the model's positions unless said"},
      {"packing", "packed", "", "false"},
      {"packing_length", kCode, "", nullptr, "seq_len, where packing"},
      {"padding_free", kNothing, "", nullptr, "on by itself: every sequence counts as full"},
      {"loss_scale", kRefused,
       "default,all,last_round,ignore_empty_think,ignore_think_prefix,default+ignore_empty_think,last_round+ignore_empty_think,"
       "all+ignore_empty_think",
       nullptr, "a loss weighted token by token"},
      {"freeze_vit", kNothing, "", nullptr, "models of several modes are refused"},
      {"freeze_aligner", kNothing, "", nullptr, "models of several modes are refused"},
      {"vit_gradient_checkpointing", kNothing, "", nullptr, "models of several modes are refused"},
      {"megatron_extra_kwargs", kRefused, "null", nullptr, "settings of Megatron's given as JSON"},
      {"decoder_first_pipeline_num_layers", kRefused, "null", nullptr, "stages of different sizes of a model by name"},
      {"decoder_last_pipeline_num_layers", kRefused, "null", nullptr, "stages of different sizes of a model by name"},
      {"account_for_embedding_in_pipeline_split", kRefused, "false", nullptr, "stages of different sizes of a model by name"},
      {"account_for_loss_in_pipeline_split", kRefused, "false", nullptr, "stages of different sizes of a model by name"},
      {"expert_tensor_parallel_size", kCode, "", nullptr, "etp; 1 unless said"},
      {"moe_token_dispatcher_type", kCode, "", nullptr, "moe_dispatcher; alltoall unless said"},
      {"moe_grouped_gemm", kCode, "", nullptr, "true unless said"},
      {"mtp_num_layers", kRefused, "null,0", nullptr, "predictions of several tokens of a model by name"},
  };
  return table;
}

/// Those rows, then Megatron-LM's of the keys that are left; sizes of models are none of its keys.
const Rows& rows() {
  static const Rows table = [] {
    Rows all = own_rows();
    for (const Row& row : megatron_rows())
      if (Schema::of("megatron-swift")->has(row.foreign) && !find_row(own_rows(), row.foreign)) all.push_back(row);
    return all;
  }();
  return table;
}

int recognises(const Node& tree) {
  const bool model = tree.find("model") || tree.find("mcore_model");
  return model && count_of(tree, {"micro_batch_size", "global_batch_size"}) > 0 &&
                 count_of(tree, {"save_safetensors", "finetune", "recompute_granularity", "tensor_model_parallel_size", "split_dataset_ratio"}) > 1
             ? 12
             : 0;
}

/// Its defaults where they are not Megatron-LM's (MegatronArguments; mcore_bridge/config/model_config.py of 1.6: vocabularies are not padded).
constexpr std::pair<const char*, const char*> kDefaults[] = {{"micro_batch_size", "1"},
                                                             {"global_batch_size", "16"},
                                                             {"recompute_granularity", "selective"},
                                                             {"use_distributed_optimizer", "true"},
                                                             {"cross_entropy_loss_fusion", "true"},
                                                             {"attention_backend", "flash"},
                                                             {"make_vocab_size_divisible_by", "1"},
                                                             {"clip_grad", "1.0"}};

/// What only a model with experts takes, and what none may have.
void complete(Reading& said, const Node& tree) {
  const auto value = [&](const char* key, const std::string& otherwise) {
    const Node* node = stated(tree, key);
    return node ? node->word() : otherwise;
  };
  const std::string tensor = value("expert_tensor_parallel_size", "1"), dispatcher = value("moe_token_dispatcher_type", "alltoall"),
                    grouped = value("moe_grouped_gemm", "true");
  const bool length = stated(tree, "max_length") || stated(tree, "packing_length");
  require_language_model(said, "ms-swift");
  said.when_model_is_known([=](Reading& reading, const Model& model) {
    if (!length && model.max_positions > 0)
      reading.derive("seq_len", std::to_string(model.max_positions), "ms-swift: max_length is the model's positions");
    if (model.active_parameters() == model.parameters()) return;
    static const Row dispatchers = {"moe_token_dispatcher_type", "moe_dispatcher", "allgather=allgather,alltoall=alltoall,flex=deepep"};
    reading.derive("etp", tensor, "ms-swift: expert_tensor_parallel_size");
    reading.derive("moe_dispatcher", to_ours(dispatchers, dispatcher, {}), "ms-swift: moe_token_dispatcher_type");
    reading.derive("moe_grouped_gemm", grouped == "true" ? "true" : "false", "ms-swift: moe_grouped_gemm");
  });
}

/// What Megatron-LM's arguments say of a model where they say nothing: here its own name says it.
void forget_sizes(Reading& reading) {
  std::vector<std::string> sizes;
  for (const ForeignKey& key : reading.keys())
    if (key.key.rfind("model.", 0) == 0) sizes.push_back(key.key);
  for (const std::string& key : sizes) reading.forget(key);
}

void read(Reading& reading, const Node& tree) {
  Node own = Node::table(tree.where), megatron = own;
  for (const auto& [name, value] : tree.members) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    (!find_row(own_rows(), key) && find_row(rows(), key) ? megatron : own).members.emplace_back(key, value);
  }
  read_rows(reading, own_rows(), *Schema::of("megatron-swift"), own);
  for (const auto& [key, value] : kDefaults)
    if (!stated(megatron, key)) megatron.set(key, Node::scalar(value, kSwiftRelease));
  const Node *type = stated(own, "torch_dtype"), *length = stated(own, "max_length"), *packed = stated(own, "packing_length");
  if (!stated(megatron, "bf16") && !stated(megatron, "fp16")) {
    static const Row types = {"torch_dtype", "precision", "bfloat16=bf16,float16=fp16,float32=fp16"};
    megatron.set(type ? to_ours(types, type->word(), type->where) : "bf16", Node::scalar("true", type ? type->where : kSwiftRelease));
  }
  if (is_on(own.find("packing")) && packed) length = packed;
  if (length) reading.say("seq_len", length->word(), length == packed ? "packing_length" : "max_length", length->where);
  reading.assume("framework", "megatron-core", "Megatron-core under ms-swift", kSwiftRelease);
  read_megatron(reading, megatron, kSwiftRelease, Unknown::unread);
  forget_sizes(reading);
  complete(reading, own);
}

}  // namespace

Format swift_megatron_format() { return {"megatron-swift", "ms-swift's arguments over Megatron", kSwiftRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
