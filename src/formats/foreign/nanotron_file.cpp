// nanotron's YAML (nanotron/config/config.py and what lies below it): its Llama under 3D parallelism.
#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "nanotron main of 2026-04";

const Rows& rows() {
  static const Rows table = {
      {"parallelism.dp", "dp"},
      {"parallelism.pp", "pp"},
      {"parallelism.tp", "tp"},
      {"parallelism.pp_engine", kCode, "", nullptr, "pp_schedule: 1f1b, or afab as gpipe, which it is unless said"},
      {"parallelism.tp_mode", kCode, "", nullptr, "sequence_parallel: REDUCE_SCATTER true, ALL_REDUCE false, which it is unless said"},
      {"parallelism.tp_linear_async_communication", kCode, "", nullptr, "counted as true"},
      {"parallelism.recompute_layer", "recompute", "true=full,false=none", "false"},
      {"parallelism.tp_recompute_allgather", kRefused, "true", nullptr, "inputs that stay gathered until the backward pass"},
      {"parallelism.expert_parallel_size", kRefused, "1", nullptr, "nanotron's expert parallelism"},
      {"parallelism.context_parallel_size", kRefused, "1", nullptr, "nanotron's context parallelism"},
      {"tokens.sequence_length", "seq_len"},
      {"tokens.micro_batch_size", "micro_batch"},
      {"tokens.batch_accumulation_per_replica", "grad_accum"},
      {"optimizer.zero_stage", kCode, "", nullptr, "data_parallel: 0 ddp, 1 zero1"},
      {"optimizer.accumulate_grad_in_fp32", kRefused, "true", nullptr, "gradients that are not accumulated in fp32"},
      {"optimizer.clip_grad", "clip_grad_norm"},
      {"optimizer.optimizer_factory.name", "optimizer", "adamW=adamw,sgd=!"},
      {"optimizer.optimizer_factory.torch_adam_is_fused", kRefused, "true", nullptr, "an AdamW that is not fused"},
      {"model.dtype", "precision", "bfloat16=bf16,*=!"},
      {"model.make_vocab_size_divisible_by", kRefused, "1", nullptr, "a padded vocabulary"},
      {"model.ddp_bucket_cap_mb", kRefused, "25", nullptr, "DDP's buckets of another size"},
      {"model.model_config", kCode, "", nullptr, "a Llama of these sizes"},
      {"model.model_config.is_llama_config", kCode, "", nullptr, "true, or the model is nanotron's Qwen2: refused"},
      {"model.model_config.hidden_size", kCode},
      {"model.model_config.intermediate_size", kCode},
      {"model.model_config.num_attention_heads", kCode},
      {"model.model_config.num_hidden_layers", kCode},
      {"model.model_config.num_key_value_heads", kCode},
      {"model.model_config.max_position_embeddings", kCode},
      {"model.model_config.vocab_size", kCode},
      {"model.model_config.tie_word_embeddings", kCode},
      {"model.model_config.hidden_act", kRefused, "silu", nullptr, "another activation"},
      {"model.model_config.attention_bias", kRefused, "false", nullptr, "attention with biases"},
      {"model.model_config._attn_implementation", kRefused, "flash_attention_2", nullptr, "attention by these kernels"},
  };
  return table;
}

int recognises(const Node& tree) {
  return tree.find("parallelism.dp") || tree.find("tokens.micro_batch_size")
             ? 8 + count_of(tree, {"parallelism.tp", "model.model_config", "data_stages"})
             : 0;
}

/// LlamaConfig as a config.json of transformers, whose Llama has the same sizes.
std::string llama_config(const Node& config) {
  static constexpr std::pair<const char*, const char*> kSizes[] = {
      {"hidden_size", "4096"}, {"intermediate_size", "11008"},      {"num_attention_heads", "32"}, {"num_hidden_layers", "32"},
      {"vocab_size", "32000"}, {"max_position_embeddings", "2048"}, {"num_key_value_heads", ""}};
  std::string text = R"({"model_type":"llama","architectures":["LlamaForCausalLM"])";
  for (const auto& [key, usual] : kSizes) {
    const Node* value = config.find(key);
    const std::string size = value && !value->is_null() ? value->word() : usual;
    if (size.empty()) continue;  // as many as heads, which is transformers' default too
    constexpr std::size_t kDigits = 12;
    if (size.size() > kDigits || size.find_first_not_of("0123456789") != std::string::npos)
      fail("'" + size.substr(0, 40) + "' is no size of a model (model.model_config." + key + ")", value->where);
    text += std::string(",\"") + key + "\":" + size;
  }
  return text + ",\"tie_word_embeddings\":" + (is_on(config.find("tie_word_embeddings")) ? "true" : "false") + "}";
}

void read_model(Reading& reading, const Node& tree) {
  const Node* config = tree.find("model.model_config");
  if (!config || !config->is_table()) fail("there is no model.model_config", tree.where, "a table of LlamaConfig's keys");
  for (const char* other : {"is_qwen2_config", "is_starcoder2_config", "is_mamba_config"})
    if (const Node* flag = config->find(other); is_on(flag))
      refuse(std::string("not modelled: nanotron's other models (") + other + ")", flag->where, "its Llama");
  if (!is_on(config->find("is_llama_config")))
    refuse("not modelled: nanotron's Qwen2, which a model_config without is_llama_config is", config->where, "is_llama_config: true");
  reading.set_model_config(llama_config(*config), config->where);
}

void read_parallelism(Reading& reading, const Node& tree) {
  const auto word = [&](const char* key, const std::string& otherwise) {
    const Node* value = tree.find(key);
    return value && !value->is_null() ? value->word() : otherwise;
  };
  const auto place = [&](const char* key) {
    const Node* value = tree.find(key);
    return value ? value->where : std::string(kRelease);
  };
  static const Row engines = {"parallelism.pp_engine", "pp_schedule", "1f1b=1f1b,afab=gpipe"};
  static const Row modes = {"parallelism.tp_mode", "sequence_parallel", "REDUCE_SCATTER=true,ALL_REDUCE=false"};
  const std::int64_t tp = reading.count("tp"), pp = reading.count("pp"), dp = reading.count("dp");
  const std::string engine = to_ours(engines, word("parallelism.pp_engine", "afab"), place("parallelism.pp_engine")),
                    scatters = to_ours(modes, word("parallelism.tp_mode", "ALL_REDUCE"), place("parallelism.tp_mode"));
  if (pp > 1) reading.say("pp_schedule", engine, "parallelism.pp_engine", place("parallelism.pp_engine"));
  if (tp > 1) reading.say("sequence_parallel", scatters, "parallelism.tp_mode", place("parallelism.tp_mode"));
  if (tp > 1 && !is_on(tree.find("parallelism.tp_linear_async_communication")))
    reading.leave_unknown(
        "tp_linear_async_communication: false (transfers of tensor parallelism beside the products: counted as if they were)",
        place("parallelism.tp_linear_async_communication"));
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;
  if (tp > kMostRanks || pp > kMostRanks || dp > kMostRanks) fail("a degree of more than 2^24 ranks", tree.where);
  if (tp * pp <= kMostRanks && tp > 0 && pp > 0 && dp > 0) reading.derive("gpus", std::to_string(tp * pp * dp), "dp · tp · pp");
  const std::string stage = word("optimizer.zero_stage", "0");
  if (stage != "0" && stage != "1") fail("nanotron's zero_stage is 0 or 1", place("optimizer.zero_stage"));
  reading.say("data_parallel", dp <= 1 ? "none" : stage == "1" ? "zero1" : "ddp", "optimizer.zero_stage", place("optimizer.zero_stage"));
}

/// Data stages may have lengths of their own.
void check_stages(const Reading& reading, const Node& tree) {
  const Node* stages = tree.find("data_stages");
  if (!stages || !stages->is_list()) return;
  for (const auto& [unused, stage] : stages->members)
    if (const Node* length = stage.find("sequence_length"); length && !length->is_null() && length->word() != reading.value("seq_len"))
      refuse("not modelled: a data stage with sequences of its own length", length->where, "tokens.sequence_length in every stage");
}

void read(Reading& reading, const Node& tree) {
  reading.derive("framework", "nanotron", "nanotron's YAML");
  read_model(reading, tree);  // a Qwen2 is refused before its keys are looked at
  read_rows(reading, rows(), *Schema::of("nanotron"), tree, Unknown::refused);
  for (const char* needed : {"dp", "tp", "pp", "seq_len", "micro_batch"})
    if (!reading.has(needed))
      fail(std::string("the file does not say ") + needed, tree.where, "parallelism and tokens of nanotron's Config");
  read_parallelism(reading, tree);
  check_stages(reading, tree);
  take_defaults(reading, rows(), kRelease);
  reading.assume("precision", "bf16", "model.dtype: bfloat16", kRelease);
  reading.assume("clip_grad_norm", "false", "optimizer.clip_grad: null", kRelease);
}

}  // namespace

Format nanotron_format() { return {"nanotron", "nanotron's YAML", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
