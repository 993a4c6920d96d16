// What a config may say, leave out, and get wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

Model llama(const std::string& keys) { return parse_model(R"({"model_type": "llama")" + keys + "}", "config.json", "test"); }

/// The error of reading a text as a config, as one line.
std::string error_of(const std::string& text, ErrorCode code = ErrorCode::bad_input) {
  try {
    (void)parse_model(text, "config.json", "test");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error for " << text;
  return {};
}

bool mentions(const std::string& line, const std::string& part) { return line.find(part) != std::string::npos; }

TEST(Config, MissingKeysTakeTheClassDefaults) {
  const Model model = llama("");  // LlamaConfig(): 32 layers of 4,096 and 11,008, 32,000 tokens
  EXPECT_EQ(model.parameters(), 6738415616);
  EXPECT_EQ(model.kv_heads, 32);
  EXPECT_EQ(model.head_dim, 128);
  ASSERT_EQ(model.assumed.size(), 1U);
  EXPECT_TRUE(mentions(model.assumed.front(), "LlamaForCausalLM"));
}

TEST(Config, RoutersSayWhereTheirAuxiliaryLossIsComputed) {
  const auto noted = [](const std::string& type, const std::string& rest) {
    const Model model = parse_model(R"({"model_type": ")" + type + R"(")" + rest + "}", "config.json", "test");
    return std::ranges::any_of(model.blocks, [](const Block& block) {
      return std::ranges::any_of(block.operators, [](const Operator& op) { return op.function == "auxiliary_loss"; });
    });
  };
  for (const char* type : {"mixtral", "phimoe", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "gpt_oss"}) {
    EXPECT_TRUE(noted(type, R"(, "output_router_logits": true)")) << type;
    EXPECT_FALSE(noted(type, R"(, "output_router_logits": false)")) << type;
    EXPECT_FALSE(noted(type, "")) << type;
  }
  EXPECT_FALSE(noted("mixtral", R"(, "output_router_logits": true, "architectures": ["MixtralForSequenceClassification"])"));
  EXPECT_FALSE(noted("deepseek_v3", R"(, "output_router_logits": true)"));  // its config has the key, its model computes no such loss
}

TEST(Config, NullIsGivenAndEmpty) {
  // gemma's default head_dim is 256; llama derives it from null.
  EXPECT_EQ(llama(R"(, "head_dim": null, "num_key_value_heads": null)").head_dim, 128);
}

TEST(Config, KeysGoByTheirCanonicalNamesToo) {
  const Model model =
      parse_model(R"({"model_type": "gpt2", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16})", "c", "c");
  EXPECT_EQ(model.parameters(), 354823168);  // gpt2-medium, whose own keys are n_embd, n_layer, n_head
}

TEST(Config, OfTwoNamesTheCanonicalOneHasTheLastWord) {
  // PretrainedConfig sets a class's own fields first, then what else it was given: num_hidden_layers is encoder_layers of BART and Whisper.
  const auto encoder_layers = [](const std::string& type, const std::string& keys) {
    return parse_model(R"({"model_type": ")" + type + R"(")" + keys + "}", "config.json", "test").layers;
  };
  for (const char* type : {"bart", "mbart", "pegasus", "whisper"}) {
    EXPECT_EQ(encoder_layers(type, R"(, "encoder_layers": 2, "num_hidden_layers": 5)"), 5) << type;
    EXPECT_EQ(encoder_layers(type, R"(, "num_hidden_layers": 5, "encoder_layers": 2)"), 5) << type;
    EXPECT_EQ(encoder_layers(type, R"(, "encoder_layers": 2)"), 2) << type;
  }
  // MambaConfig derives the inner width, then takes the one it was given, which is no field of it.
  const auto inner = [](const std::string& keys) {
    return parse_model(R"({"model_type": "mamba", "hidden_size": 64, "expand": 2)" + keys + "}", "config.json", "test").intermediate_size;
  };
  EXPECT_EQ(inner(""), 128);
  EXPECT_EQ(inner(R"(, "intermediate_size": 96)"), 96);
}

TEST(Config, TheArchitectureChoosesTheHead) {
  const auto total = [](const char* architecture) {
    return parse_model(R"({"model_type": "llama"})", "c", "c", architecture).parameters();
  };
  const std::int64_t body = 6738415616 - 32000 * 4096;
  EXPECT_EQ(total("LlamaForCausalLM"), body + 32000 * 4096);
  EXPECT_EQ(total("LlamaModel"), body);
  EXPECT_EQ(total("LlamaForSequenceClassification"), body + 2 * 4096);
  EXPECT_EQ(total("LlamaForTokenClassification"), body + 2 * 4096 + 2);  // with a bias
  EXPECT_EQ(total("LlamaForQuestionAnswering"), body + 2 * 4096 + 2);    // a start and an end
  EXPECT_TRUE(
      mentions(error_of(R"({"model_type": "llama", "architectures": ["LlamaForTokenTalk"]})", ErrorCode::refused), "LlamaForTokenTalk"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "architectures": ["MistralForCausalLM"]})", ErrorCode::refused), "no class of"));
}

TEST(Config, ReportsKeysThatNothingRead) {
  EXPECT_EQ(llama(R"(, "a_new_idea": 3, "bos_token_id": 1)").unread_keys, (std::vector<std::string>{"a_new_idea"}));
}

TEST(Config, AMisspeltKeyIsAnErrorThatNamesTheRightOne) {
  const std::string error = error_of(R"({"model_type": "llama", "hiden_size": 2048})");
  EXPECT_EQ(error, "config.json: unknown key \"hiden_size\" (did you mean \"hidden_size\"?)");
  EXPECT_TRUE(mentions(error_of(R"({"model_typ": "llama"})"), "is \"model_typ\" meant to be model_type?"));
}

// What Python writes and JSON has not: a key that nobody reads may hold it, a size may not.
TEST(Config, NumbersAsPythonWritesThem) {
  EXPECT_EQ(llama(R"(, "time_step_limit": [0.0, Infinity], "x": -Infinity, "y": NaN)").parameters(), llama("").parameters());
  EXPECT_EQ(llama(R"(, "hidden_size": 4096.0)").parameters(), llama("").parameters());
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": Infinity})"), "hidden_size"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": 4096.5})"), "hidden_size"));
}

// A repository's own class is the family's with that head; a class of another family is none.
TEST(Config, ClassesOfOnesOwn) {
  const Model own = parse_model(R"({"model_type": "llama", "architectures": ["MyLlamaForCausalLM"]})", "c", "c");
  EXPECT_EQ(own.architecture, "LlamaForCausalLM");
  ASSERT_FALSE(own.assumed.empty());
  EXPECT_EQ(own.assumed.back(), "the class LlamaForCausalLM for 'MyLlamaForCausalLM'");
  EXPECT_EQ(parse_model(R"({"model_type": "t5", "architectures": ["T5WithLMHeadModel"]})", "c", "c").architecture, "T5ForConditionalGeneration");
}

// transformers writes _num_labels beside num_labels' names; another type's key is no misspelling of this one's.
TEST(Config, KeysThatOnlyLookMisspelt) {
  EXPECT_EQ(parse_model(R"({"model_type": "bart", "_num_labels": 3})", "c", "c").model_type, "bart");
  EXPECT_EQ(parse_model(R"({"model_type": "bert", "num_layers": 12})", "c", "c").model_type, "bert");
}

TEST(Config, AbsurdSizesAreRefusedWithTheirPlace) {
  EXPECT_EQ(error_of(R"({"model_type": "llama", "num_hidden_layers": 1000000000000})"),
            "config.json#/num_hidden_layers: expected an integer from 1 to 4096, found 1000000000000");
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": -4096})"), "config.json#/hidden_size"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": 0})"), "config.json#/hidden_size"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": "4096"})"), "found \"4096\""));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": 4096.5})"), "expected an integer"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "hidden_size": 1073741824, "num_attention_heads": 1073741824,
      "head_dim": 1073741824, "num_key_value_heads": 1073741824})"),
                       "2^63"));
  EXPECT_TRUE(mentions(
      error_of(R"({"model_type": "llama", "hidden_size": 1073741824, "num_attention_heads": 1, "vocab_size": 1073741824})"), "2^56"));
}

TEST(Config, DimensionsThatDoNotDivideAreNamed) {
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "llama", "num_attention_heads": 33})"),
                       "hidden_size = 4096 is not divisible by num_attention_heads = 33"));
  EXPECT_TRUE(
      mentions(error_of(R"({"model_type": "llama", "num_key_value_heads": 5})"), "32 query heads cannot share 5 key-value heads evenly"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "mixtral", "num_experts_per_tok": 9})"), "config.json#/num_experts_per_tok"));
}

TEST(Config, UnknownAndUnmodelledTypesAreRefusedByName) {
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "lama"})", ErrorCode::refused), "did you mean 'llama'?"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "bamba"})", ErrorCode::refused), "selective scan"));
  EXPECT_TRUE(mentions(error_of(R"({"model_type": "mllama"})", ErrorCode::refused), "vision tower"));
  EXPECT_TRUE(mentions(error_of(R"({"architectures": ["Phi4MultimodalForCausalLM"]})", ErrorCode::refused), "unknown"));
}

TEST(Config, WrongShapesOfTheTextAreErrors) {
  error_of("[]");
  error_of("3");
  error_of("{}");
  error_of(R"({"model_type": 3})");
  error_of(R"({"model_type": "llama", "architectures": "LlamaForCausalLM"})");
  error_of(R"({"model_type": "gemma3_text", "layer_types": ["full_attention"]})");
  error_of(R"({"model_type": "gemma2", "layer_types": 5})");
  error_of(R"({"model_type": "gpt_neo", "attention_types": [[["global"], 4096], [["local"], 4096]]})");
}

TEST(LoadModel, ByNamePathAndFolder) {
  const std::string folder = PLIMSOLL_SOURCE_DIR "/models/qwen3-8b";
  const std::int64_t expected = load_model("qwen3-8b").parameters();
  EXPECT_EQ(load_model(folder).parameters(), expected);
  EXPECT_EQ(load_model(folder + "/config.json").parameters(), expected);
  EXPECT_EQ(load_model(folder + "/config.json").name, "qwen3-8b");
}

TEST(LoadModel, AnUnknownNameGetsTheNearest) {
  try {
    (void)load_model("lama-3.1-8b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.hint(), "did you mean 'llama-3.1-8b'?");
  }
  EXPECT_THROW(load_model("/no/such/config.json"), Error);
}

TEST(LoadModel, ShipsAtLeastSixtyModels) { EXPECT_GE(shipped_models().size(), 60U); }

}  // namespace
}  // namespace plimsoll
