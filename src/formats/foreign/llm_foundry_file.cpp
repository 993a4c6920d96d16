// llm-foundry's YAML (scripts/train/yamls): MPT or Hugging Face's models under Composer's FSDP1.
#include <fmt/format.h>

#include <map>

#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "llm-foundry 0.22";

const Rows& rows() {
  static const Rows table = {
      {"max_seq_len", "seq_len"},
      {"model.name", kCode, "", nullptr, "mpt_causal_lm, hf_causal_lm"},
      {"model.pretrained_model_name_or_path", kCode, "", nullptr, "model"},
      {"model.attn_config.attn_impl", "attention", "flash=flash,torch=eager,triton=!"},
      {"model.*", kCode, "", nullptr, "MPT's own config"},
      {"global_train_batch_size", "global_batch"},
      {"device_train_microbatch_size", "micro_batch", "auto=!a micro-batch that the run looks for itself,*"},
      {"precision", "precision", "amp_bf16=bf16,amp_fp16=fp16,fp32=fp32,amp_fp8=!"},
      {"optimizer.name", "optimizer", "decoupled_adamw=adamw,decoupled_lionw=lion,adalr_lion=!,clip_lion=!"},
      {"optimizer.*", kNothing},
      {"algorithms.gradient_clipping.clipping_threshold", "clip_grad_norm"},
      {"algorithms.gradient_clipping.*", kNothing},
      {"algorithms.*", kRefused, "", nullptr, "an algorithm of Composer"},
      {"fsdp_config.sharding_strategy", "fsdp.strategy"},
      {"fsdp_config.mixed_precision", "composer_mixed_precision", "PURE=PURE,DEFAULT=DEFAULT,FULL=FULL"},
      {"fsdp_config.activation_checkpointing", "recompute", "true=full,false=none"},
      {"fsdp_config.activation_checkpointing_reentrant", "recompute_reentrant"},
      {"fsdp_config.activation_cpu_offload", "offload", "true=activations,false=-"},
      {"fsdp_config.limit_all_gathers", "fsdp.limit_all_gathers"},
      {"fsdp_config.use_orig_params", "fsdp.use_orig_params"},
      {"fsdp_config.forward_prefetch", "fsdp.forward_prefetch"},
      {"fsdp_config.backward_prefetch", kRefused, "BACKWARD_PRE", nullptr, "this prefetch of FSDP1"},
      {"fsdp_config.*", kNothing},
      {"tp_config.*", kRefused, "", nullptr, "tensor parallelism of llm-foundry"},
      {"train_loader.*", kNothing},
      {"eval_loader.*", kNothing},
      {"tokenizer.*", kNothing},
      {"scheduler.*", kNothing},
      {"callbacks.*", kNothing},
      {"variables.*", kNothing},
      {"parameters.*", kNothing},
      {"loggers.*", kNothing},
  };
  return table;
}

int recognises(const Node& tree) {
  return 4 * count_of(tree, {"global_train_batch_size", "device_train_microbatch_size"}) +
         count_of(tree, {"max_seq_len", "model.name", "train_loader", "algorithms"});
}

using Dimensions = std::map<std::string, std::string>;  // by MPT's names

std::string alibi_config(const Dimensions& said) {
  std::string json = "{\"model_type\":\"mpt\",\"architectures\":[\"MPTForCausalLM\"]";
  for (const auto& [key, value] : said) json += ",\"" + key + "\":" + value;
  return json + ",\"no_bias\":true,\"attn_config\":{\"alibi\":true}}";
}

/// With learned positions and biases MPT has GPT-2's tensors.
std::string learned_config(const Dimensions& said, const std::string& where) {
  constexpr std::int64_t kMostWidth = std::int64_t{1} << 24;
  const auto number = [&](const char* key) {
    const std::int64_t value = std::atoll(said.at(key).c_str());
    if (value < 1 || value > kMostWidth) fail("'" + said.at(key).substr(0, 40) + "' is no size of a model (" + key + ")", where);
    return value;
  };
  return fmt::format(
      "{{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":{},\"n_head\":{},\"n_layer\":{},\"n_positions\":{},"
      "\"n_inner\":{},\"vocab_size\":{},\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0,\"tie_word_embeddings\":true}}",
      number("d_model"), number("n_heads"), number("n_layers"), number("max_seq_len"), number("d_model") * number("expansion_ratio"),
      number("vocab_size"));
}

/// MPT's defaults are those of its config class (llmfoundry/models/mpt/configuration_mpt.py).
void read_mpt(Reading& reading, const Node& model) {
  static const char* const kDimensions[] = {"d_model", "n_heads", "n_layers", "expansion_ratio", "max_seq_len", "vocab_size"};
  static const std::pair<const char*, const char*> kUsual[] = {{"d_model", "2048"},      {"n_heads", "16"},       {"n_layers", "24"},
                                                               {"expansion_ratio", "4"}, {"max_seq_len", "2048"}, {"vocab_size", "50368"}};
  std::map<std::string, std::string> said;
  for (const char* key : kDimensions) {
    const Node* value = model.find(key);
    std::string text;
    for (const auto& [name, usual] : kUsual)
      if (std::string_view(name) == key) text = usual;
    if (value && !value->is_null()) text = value->word();
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos)
      fail("expected a whole number for model." + std::string(key), model.where);
    said[key] = text;
  }
  const Node *alibi = model.find("attn_config.alibi"), *ln = model.find("attn_config.qk_ln"), *bias = model.find("no_bias");
  if (is_on(ln)) refuse("MPT with qk_ln is not modelled", ln->where);
  if (model.find("ffn_config")) refuse("MPT with another feed-forward (ffn_config) is not modelled", model.find("ffn_config")->where);
  const bool biased = !bias || bias->text != "true";
  if (is_on(alibi)) {
    if (biased) refuse("MPT with ALiBi and biases is not modelled", alibi->where, "no_bias: true");
    return reading.set_model_config(alibi_config(said), model.where);
  }
  if (!biased) refuse("MPT with learned positions and without biases is not modelled", bias->where, "no_bias: false");
  reading.set_model_config(learned_config(said, model.where), model.where);
}

/// Overrides of a published model's config: what changes its shape is another model.
void check_overrides(Reading& said, const Node& overrides) {
  if (overrides.is_null()) return;
  said.when_model_is_known([overrides](Reading&, const Model& model) {
    for (const auto& [name, value] : overrides.members) {
      const bool positions = name == "n_positions" || name == "max_position_embeddings";
      if (name == "use_cache" || name == "attn_config" || name == "max_seq_len" ||  // the last two are MPT's, others do not know them
          (positions && value.word() == std::to_string(model.max_positions)))
        continue;
      refuse("not modelled: another " + name.substr(0, 60) + " than the published model's (model.config_overrides)", value.where,
             "give MODEL: a config.json that has it, and leave the override out");
    }
  });
}

void read(Reading& reading, const Node& said) {
  Node tree = said;
  resolve_references(tree);
  read_rows(reading, rows(), tree);
  const Node *model = tree.find("model"), *name = tree.find("model.name");
  if (!model || !model->is_table()) fail("there is no model", tree.where, "model: {name: mpt_causal_lm, …}");
  if (name && name->word() == "mpt_causal_lm") {
    reading.assume("framework", "llm-foundry", "mpt_causal_lm", kRelease);
    read_mpt(reading, *model);
  } else if (const Node* path = tree.find("model.pretrained_model_name_or_path"); path && name && name->word() == "hf_causal_lm") {
    reading.assume("framework", "transformers", "hf_causal_lm", kRelease);
    reading.derive("data_parallel", "fsdp1", "Composer's FSDP");
    say_model(reading, *path, "model.pretrained_model_name_or_path");
    if (const Node* overrides = model->find("config_overrides")) check_overrides(reading, *overrides);
  } else {
    refuse("the model " + (name ? name->word().substr(0, 40) : std::string("without a name")) + " of llm-foundry is not modelled",
           model->where, "mpt_causal_lm or hf_causal_lm");
  }
  if (!reading.has("clip_grad_norm")) reading.assume("clip_grad_norm", "false", "no algorithms.gradient_clipping", kRelease);
  if (!reading.has("recompute")) reading.assume("recompute", "none", "fsdp_config.activation_checkpointing: false", kRelease);
}

}  // namespace

Format llm_foundry_format() { return {"llm-foundry", "llm-foundry's YAML", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
