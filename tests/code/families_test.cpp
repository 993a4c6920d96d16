// Families that our texts tell: what their classes register is what the Model counts, and what they do not have is refused by name. That
// their programs are those of transformers' own classes is held in transformers_test.cpp, and against measured rows in tests/validate/held.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "code/families/family.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::code {
namespace {

using Names = std::vector<std::string>;

std::string named(const ParameterTensor& tensor, const std::string& name) {
  std::string text = name + " [";
  for (const std::int64_t size : tensor.shape) text += std::to_string(size) + " ";
  return text + "]";
}

/// Names and shapes in the order of torch's named_parameters: those of tied ones by their first names.
Names of_model(const Model& model) {
  Names names;
  for (const Block* block : model.registered_blocks())
    for (std::int64_t index = 0; index < block->repeat; ++index)
      for (const ParameterTensor* tensor : block->parameter_list())
        if (tensor->tied_to.empty()) names.push_back(named(*tensor, full_name(*block, index, *tensor)));
  return names;
}

Names of_text(const Model& model) {
  program::RunOptions options;
  options.attention = program::RunOptions::Attention::eager;
  Names names;
  for (const plimsoll::Operator& op : built_family(model, options).built->block().operators)
    for (const ParameterTensor& tensor : op.parameters)
      if (tensor.tied_to.empty()) names.push_back(named(tensor, tensor.name));
  return names;
}

std::string config(const std::string& type, const std::string& architecture, const std::string& more) {
  return R"({"architectures": [")" + architecture + R"("], "model_type": ")" + type + R"(", "vocab_size": 1000)" +
         (more.empty() ? "" : ", " + more) + "}";
}

constexpr const char* kGpt = R"("n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128)";
constexpr const char* kNeo =
    R"("hidden_size": 64, "num_heads": 4, "num_layers": 2, "max_position_embeddings": 128, "attention_types": [[["global", "local"], 1]])";
constexpr const char* kMpt = R"("d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128)";
constexpr const char* kEncoder =
    R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128)";
constexpr const char* kBloom = R"("hidden_size": 64, "n_head": 4, "n_layer": 2)";
constexpr const char* kFalcon = R"("hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2)";
constexpr const char* kDistil = R"("dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 128)";

constexpr const char* kStacks =
    R"("d_model": 64, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 128, "decoder_ffn_dim": 96, "encoder_attention_heads": 4,
       "decoder_attention_heads": 2, "max_position_embeddings": 128)";

constexpr const char* kOpt = R"("hidden_size": 64, "ffn_dim": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 128)";

constexpr const char* kImages =
    R"("hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64, "patch_size": 16)";

constexpr const char* kT5 = R"("d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4)";

struct Case {
  const char *type, *architecture;
  std::string more;
};

const std::string kV3 = std::string(kEncoder) +
                        R"(, "relative_attention": true, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": true,
                           "pos_att_type": "p2c|c2p", "position_biased_input": false, "type_vocab_size": 0, "pooler_hidden_size": 64)";
const std::string kV2 =
    std::string(kEncoder) + R"(, "relative_attention": true, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2, "embedding_size": 32)";

const std::vector<Case> kCases = {
    {"mpt", "MptForCausalLM", kMpt},
    {"mpt", "MptForSequenceClassification", kMpt},
    {"gptj", "GPTJForCausalLM", std::string(kGpt) + R"(, "rotary_dim": 8)"},
    {"codegen", "CodeGenForCausalLM", std::string(kGpt) + R"(, "rotary_dim": 8)"},
    {"gpt_neo", "GPTNeoForCausalLM", kNeo},
    {"gpt_neo", "GPTNeoForSequenceClassification", kNeo},
    {"distilbert", "DistilBertForMaskedLM", kDistil},
    {"distilbert", "DistilBertForSequenceClassification", kDistil},
    {"distilbert", "DistilBertForTokenClassification", kDistil},
    {"distilbert", "DistilBertForQuestionAnswering", kDistil},
    {"modernbert", "ModernBertForMaskedLM", kEncoder},
    {"modernbert", "ModernBertForSequenceClassification", kEncoder},
    {"modernbert", "ModernBertForTokenClassification", kEncoder},
    {"modernbert", "ModernBertForQuestionAnswering", kEncoder},
    {"deberta-v2", "DebertaV2ForMaskedLM", kV3},
    {"deberta-v2", "DebertaV2ForMaskedLM", kV2},
    {"deberta-v2", "DebertaV2ForSequenceClassification", kV3},
    {"deberta-v2", "DebertaV2ForTokenClassification", kV3},
    {"deberta-v2", "DebertaV2ForQuestionAnswering", kV3},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", std::string(kGpt) + R"(, "multi_query": true)"},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", std::string(kGpt) + R"(, "multi_query": false)"},
    {"falcon", "FalconForCausalLM", std::string(kFalcon) + R"(, "multi_query": true)"},
    {"falcon", "FalconForCausalLM", std::string(kFalcon) + R"(, "new_decoder_architecture": true, "num_kv_heads": 2, "bias": true)"},
    {"falcon", "FalconForSequenceClassification",
     std::string(kFalcon) + R"(, "alibi": true, "multi_query": false, "parallel_attn": false)"},
    {"bloom", "BloomForCausalLM", kBloom},
    {"bloom", "BloomForTokenClassification", kBloom},
    {"bloom", "BloomForQuestionAnswering", kBloom},
    {"mpt", "MptForTokenClassification", kMpt},
    {"mpt", "MptForQuestionAnswering", kMpt},
    {"falcon", "FalconForTokenClassification", kFalcon},
    {"falcon", "FalconForQuestionAnswering", kFalcon},
    {"gpt_neo", "GPTNeoForTokenClassification", kNeo},
    {"gpt_neo", "GPTNeoForQuestionAnswering", kNeo},
    {"gpt_bigcode", "GPTBigCodeForTokenClassification", kGpt},
    {"gptj", "GPTJForQuestionAnswering", std::string(kGpt) + R"(, "rotary_dim": 8)"},
    {"t5", "T5ForConditionalGeneration", kT5},
    {"t5", "T5ForConditionalGeneration", std::string(kT5) + R"(, "feed_forward_proj": "gated-gelu")"},
    {"t5", "T5EncoderModel", kT5},
    {"mt5", "MT5ForConditionalGeneration", kT5},
    {"bart", "BartForConditionalGeneration", kStacks},
    {"bart", "BartForConditionalGeneration", std::string(kStacks) + R"(, "tie_word_embeddings": false)"},
    {"mbart", "MBartForConditionalGeneration", kStacks},
    {"pegasus", "PegasusForConditionalGeneration", kStacks},
    {"gpt_neox", "GPTNeoXForCausalLM", kEncoder},
    {"gpt_neox", "GPTNeoXForSequenceClassification", std::string(kEncoder) + R"(, "attention_bias": false, "use_parallel_residual": false)"},
    {"gpt_neox", "GPTNeoXForTokenClassification", kEncoder},
    {"gpt_neox", "GPTNeoXForQuestionAnswering", kEncoder},
    {"opt", "OPTForCausalLM", kOpt},
    {"opt", "OPTForCausalLM", std::string(kOpt) + R"(, "word_embed_proj_dim": 32, "do_layer_norm_before": false, "enable_bias": false)"},
    {"opt", "OPTForCausalLM", std::string(kOpt) + R"(, "layer_norm_elementwise_affine": false)"},
    {"opt", "OPTForSequenceClassification", std::string(kOpt) + R"(, "word_embed_proj_dim": 32)"},
    {"opt", "OPTForQuestionAnswering", kOpt},
    {"gpt2", "GPT2LMHeadModel", kGpt},
    {"gpt2", "GPT2ForSequenceClassification", kGpt},
    {"gpt2", "GPT2ForTokenClassification", kGpt},
    {"gpt2", "GPT2ForQuestionAnswering", kGpt},
    {"vit", "ViTForImageClassification", kImages},
    {"vit", "ViTForImageClassification", std::string(kImages) + R"(, "qkv_bias": false)"},
    {"deit", "DeiTForImageClassification", kImages},
    {"dinov2", "Dinov2ForImageClassification", kImages},
    {"dinov2", "Dinov2ForImageClassification", std::string(kImages) + R"(, "use_swiglu_ffn": true, "use_mask_token": false)"},
};

// A text's __init__ and a family's builder are written apart, and the program runs the text's modules on the builder's tree: both must
// register the same parameters in the same order, whose sums DDP's buckets and FSDP's units are made of.
TEST(Families, TextsRegisterWhatTheirModelsCount) {
  for (const Case& each : kCases) {
    const Model model = parse_model(config(each.type, each.architecture, each.more), "config.json", "config.json");
    EXPECT_EQ(of_text(model), of_model(model)) << each.architecture << " " << each.more;
  }
}

std::string refusal(const Case& each, const program::RunOptions& options) {
  const Model model = parse_model(config(each.type, each.architecture, each.more), "config.json", "config.json");
  try {
    (void)built_family(model, options);
    return "built";
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(Families, WhatATextDoesNotHaveIsRefusedByName) {
  program::RunOptions options;
  options.attention = program::RunOptions::Attention::sdpa;
  EXPECT_EQ(refusal({"mpt", "MptForCausalLM", kMpt}, options), "sdpa attention does not exist for mpt");
  EXPECT_EQ(refusal({"distilbert", "DistilBertForMultipleChoice", kDistil}, options),
            "a training step of DistilBertForMultipleChoice is not modelled");
}

}  // namespace
}  // namespace plimsoll::code
