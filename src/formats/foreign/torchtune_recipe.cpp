// torchtune's recipes (recipes/configs): OmegaConf's YAML with `_component_` for what is built.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "torchtune 0.6";

const Rows& rows() {
  static const Rows table = {
      {"model._component_", kCode, "", nullptr, "model; lora_ and qlora_: adapters"},
      {"model.lora_rank", "lora.r"},
      {"model.lora_alpha", "lora.alpha"},
      {"model.lora_dropout", "lora.dropout"},
      {"model.lora_attn_modules", kCode, "", nullptr, "lora.target_modules"},
      {"model.apply_lora_to_mlp", kCode, "", nullptr, "lora.target_modules: w1, w2, w3"},
      {"model.apply_lora_to_output", kCode, "", nullptr, "lora.target_modules: output"},
      {"model.quantize_base", "base_weights", "true=nf4,false=-"},
      {"model.use_dora", "lora.use_dora"},
      {"model.*", kRefused, "", nullptr, "this argument of the model's builder"},
      {"tokenizer.max_seq_len", "seq_len", "", nullptr, "asked for where it is null"},
      {"tokenizer.*", kNothing},
      {"dataset.packed", "packed"},
      {"dataset.*", kNothing},
      {"dataset_val.*", kNothing},
      {"checkpointer.*", kNothing},
      {"batch_size", "micro_batch"},
      {"gradient_accumulation_steps", "grad_accum", "", "1"},
      {"optimizer._component_", kCode, "", nullptr, "optimizer"},
      {"optimizer.fused", "optimizer_impl", "true=fused,false=foreach"},
      {"optimizer.*", kNothing},
      {"optimizer_in_bwd", "optimizer_in_bwd", "", "false"},
      {"loss._component_", kCode, "", nullptr, "loss; torchtune.rlhf.loss.DPOLoss beside adapters: task dpo"},
      {"loss.beta", kNothing},
      {"loss.label_smoothing", kNothing},
      {"loss.num_output_chunks", "loss_chunks"},
      {"clip_grad_norm", "clip_grad_norm"},
      {"compile", kCode, "", nullptr, "compile"},
      {"compile.*", kCode},
      {"dtype", "precision", "bf16=pure-bf16,fp32=fp32,fp16=!"},
      {"device", kRefused, "cuda", nullptr, "this device"},
      {"enable_activation_checkpointing", "recompute", "true=full,false=none", "false"},
      {"enable_activation_offloading", kCode, "", nullptr, "offload: activations"},
      {"activation_offloading_use_streams", kNothing},
      {"ac_mode", kRefused, "full", nullptr, "selective checkpointing of torchtune"},
      {"custom_sharded_layers", "fsdp.units"},
      {"fsdp_cpu_offload", "offload", "true=params+grads+optimizer,false=-"},
      {"fsdp_reshard_after_forward", "fsdp.reshard_after_forward", "true=always,false=never"},
      {"tensor_parallel_dim", "tp"},
      {"tensor_parallel_plan.*", kNothing},
      {"data_parallel_replicate_dim", "dp_replicate"},
      {"data_parallel_shard_dim", "dp_shard", "-1=-,*"},
      {"context_parallel_dim", "cp"},
      {"enable_fp8_training", kRefused, "false", nullptr, "torchtune's fp8"},
      {"quantizer._component_", kCode, "", nullptr, "Int8DynActInt4WeightQATQuantizer is read, another quantization is refused"},
      {"quantizer.groupsize", "qat.group_size", "", nullptr, "256 unless said"},
      {"fake_quant_after_n_steps", kNothing, "", nullptr, "the steps that have fake quantizers are played"},
      {"metric_logger.*", kNothing},
      {"profiler.*", kNothing},
      {"lr_scheduler.*", kNothing},
  };
  return table;
}

int recognises(const Node& tree) {
  const Node* component = tree.find("model._component_");
  const bool tune = component && component->is_scalar() && component->text.rfind("torchtune.", 0) == 0;
  return (tune ? 6 : 0) + count_of(tree, {"checkpointer._component_", "enable_activation_checkpointing", "metric_logger._component_"});
}

bool cut_front(std::string& name, std::string_view front) {
  if (name.rfind(front, 0) != 0) return false;
  name.erase(0, front.size());
  return true;
}

bool cut_end(std::string& name, std::string_view end) {
  if (name.size() < end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0) return false;
  name.resize(name.size() - end.size());
  return true;
}

/// "llama3_1_8b" → "llama-3.1-8b": the builders of torchtune.models are called as the models are.
std::string shipped_name(std::string builder) {
  static const std::pair<const char*, const char*> kFamilies[] = {
      {"llama3_1_", "llama-3.1-"}, {"llama3_2_", "llama-3.2-"},      {"llama3_3_", "llama-3.3-"}, {"llama3_", "llama-3-"},
      {"llama2_", "llama-2-"},     {"code_llama2_", "codellama-"},   {"qwen2_5_", "qwen2.5-"},    {"qwen2_", "qwen2-"},
      {"qwen3_", "qwen3-"},        {"gemma2_", "gemma-2-"},          {"gemma_", "gemma-"},        {"phi3_", "phi-3-"},
      {"phi4_14b", "phi-4"},       {"mistral_7b", "mistral-7b-v0.1"}};
  for (const char* end : {"_base", "_instruct"}) cut_end(builder, end);
  for (const auto& [front, name] : kFamilies) {
    if (!cut_front(builder, front)) continue;
    std::replace(builder.begin(), builder.end(), '_', '.');  // 0_5b
    return name + builder;
  }
  return {};
}

void read_model(Reading& reading, const Node& tree) {
  const Node* component = tree.find("model._component_");
  if (!component) return;
  std::string builder = component->word().substr(component->word().rfind('.') + 1);
  const bool quantized = cut_front(builder, "qlora_");
  const bool adapted = quantized || cut_front(builder, "lora_");
  const std::string name = shipped_name(builder);
  reading.say("model", name.empty() ? component->word() : name,  // where MODEL is given, that one is taken
              "model._component_", component->where);
  if (adapted) reading.say("task", quantized ? "qlora" : "lora", "model._component_", component->where);
  if (!adapted) return;
  std::string targets;
  if (const Node* modules = tree.find("model.lora_attn_modules")) targets = modules->word();
  if (const Node* mlp = tree.find("model.apply_lora_to_mlp"); is_on(mlp))
    targets += (targets.empty() ? "" : ",") + std::string("w1,w2,w3");
  if (const Node* head = tree.find("model.apply_lora_to_output"); is_on(head)) targets += (targets.empty() ? "" : ",") + std::string("output");
  if (!targets.empty()) reading.say("lora.target_modules", targets, "model.lora_attn_modules", component->where);
}

/// qat_distributed.py, qat_single_device.py and qat_lora_finetune_distributed.py: the quantizer that they prepare a model with.
void read_quantizer(Reading& reading, const Node& tree) {
  const Node* quantizer = tree.find("quantizer._component_");
  if (!quantizer || quantizer->is_null()) return;
  if (quantizer->word() != "torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer")
    refuse("not modelled: training that is aware of a quantization by " + quantizer->word().substr(0, 80), quantizer->where,
           "torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer");
  if (!tree.find("quantizer.groupsize")) reading.assume("qat.group_size", "256", "groupsize: 256", kRelease);
}

/// lora_dpo_distributed.py and lora_dpo_single_device.py: the task takes the place of the one that the builder's adapters told.
void read_pairs(Reading& reading, const Node& loss) {
  const bool quantized = reading.is("task", "qlora") && !reading.has("base_weights");
  reading.forget("task");
  reading.say("task", "dpo", "loss._component_", loss.where);
  if (quantized) reading.derive("base_weights", "nf4", "a qlora_ builder");
}

void read_components(Reading& reading, const Node& tree) {
  static const Row optimizers = {
      "optimizer._component_", "optimizer",
      "torch.optim.AdamW=adamw,torch.optim.Adam=adam,torch.optim.SGD=sgd,bitsandbytes.optim.AdamW8bit=adamw-8bit,"
      "bitsandbytes.optim.PagedAdamW8bit=paged-adamw-8bit,bitsandbytes.optim.PagedAdamW=paged-adamw,*=!"};
  static const Row losses = {
      "loss._component_", "loss",
      "torchtune.modules.loss.LinearCrossEntropyLoss=chunked-ce,torchtune.modules.loss.CEWithChunkedOutputLoss=chunked-ce,"
      "torch.nn.CrossEntropyLoss=ce,*=!"};
  if (const Node* one = tree.find("optimizer._component_"))
    reading.say("optimizer", to_ours(optimizers, one->word(), one->where), "optimizer._component_", one->where);
  const Node* loss = tree.find("loss._component_");
  const bool pairs = loss && loss->word() == "torchtune.rlhf.loss.DPOLoss";
  if (pairs) read_pairs(reading, *loss);
  if (loss && !pairs && loss->word().rfind("torchtune.rlhf.", 0) == 0)
    refuse("not modelled: training by preferences or rewards, found loss._component_: " + loss->word().substr(0, 60), loss->where,
           "a recipe that learns the next token, or torchtune.rlhf.loss.DPOLoss");
  if (loss && !pairs) reading.say("loss", to_ours(losses, loss->word(), loss->where), "loss._component_", loss->where);
  read_quantizer(reading, tree);
  const Node* compile = tree.find("compile");
  if (compile && compile->is_scalar()) reading.say("compile", compile->text == "true" ? "blocks" : "false", "compile", compile->where);
  if (compile && compile->is_table()) {
    const Node* model = compile->find("model");
    reading.say("compile", is_on(model) ? "blocks" : "false", "compile.model", compile->where);
  }
  const Node* offloading = tree.find("enable_activation_offloading");
  if (is_on(offloading)) reading.say("offload", "activations", "enable_activation_offloading", offloading->where);
}

/// The recipes of one device are others than those that shard (full_finetune_single_device.py …), and no key of a file says which one takes it.
/// torchtune calls the file, and the folder that it writes to, after them; and bitsandbytes' optimizers take no DTensors.
void derive_single_device(Reading& reading, const Node& tree) {
  if (reading.has("cluster.gpus_per_node")) return;
  const Node *folder = tree.find("output_dir"), *optimizer = tree.find("optimizer._component_");
  const auto alone = [](const std::string& name) { return name.find("single_device") != std::string::npos; };
  const std::string file = tree.where.substr(tree.where.rfind('/') == std::string::npos ? 0 : tree.where.rfind('/') + 1);
  const auto derive = [&](const char* why) {
    for (const char* count : {"cluster.nodes", "cluster.gpus_per_node"}) reading.derive(count, "1", why);
  };
  if (alone(file)) return derive("a recipe of a single device, as the file's name says");
  if (folder && alone(folder->word())) return derive("a recipe of a single device, as its output_dir says");
  if (optimizer && optimizer->word().rfind("bitsandbytes.", 0) == 0)
    derive("a recipe of a single device: bitsandbytes' optimizers do not take FSDP2's DTensors");
}

/// Recipes that evaluate (eleuther_eval.py) and generate have files of the same components.
void require_training(const Node& tree) {
  for (const char* other : {"tasks", "prompt"})
    if (const Node* value = stated(tree, other))
      fail(std::string("a recipe with ") + other + " evaluates or generates, and does not train", value->where, "give a recipe that trains");
}

/// Tokenizers cut no sample where max_seq_len is null: a batch is then as long as its longest, which is a matter of the data.
void require_length(const Reading& reading, const Node& tree) {
  if (reading.is_answered("seq_len")) return;
  const Node* length = tree.find("tokenizer.max_seq_len");
  fail("how long samples are is not said: without tokenizer.max_seq_len none is cut, and a batch is as long as its longest",
       length ? length->where : tree.where, "say tokenizer.max_seq_len, or give --seq, the tokens of the longest");
}

void read(Reading& reading, const Node& said) {
  Node tree = said;
  require_training(tree);
  resolve_references(tree);
  derive_single_device(reading, tree);
  reading.derive("framework", "torchtune", "torchtune's recipe");
  read_rows(reading, rows(), *Schema::of("torchtune"), tree, Unknown::dropped);  // a recipe takes what it knows of its file
  read_model(reading, tree);
  read_components(reading, tree);
  take_defaults(reading, rows(), kRelease);
  reading.assume("clip_grad_norm", "false", "clip_grad_norm: null", kRelease);
  require_length(reading, tree);
}

}  // namespace

Format torchtune_format() { return {"torchtune", "torchtune's YAML recipes", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
