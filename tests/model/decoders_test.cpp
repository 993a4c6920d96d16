// Text decoders against the classes that they describe: totals, layers, names, shapes, order, buffers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "units/files.hpp"

namespace plimsoll {
namespace {

using nlohmann::json;

json golden(const std::string& file) { return json::parse(read_text_file(PLIMSOLL_SOURCE_DIR "/tests/model/data/" + file, 1 << 20)); }

std::string shape_of(const std::vector<std::int64_t>& shape) { return fmt::format("{}", fmt::join(shape, "x")); }

/// "model.layers.0.self_attn.q_proj.weight 64x64" for every parameter, in registration order, tied ones left out.
std::vector<std::string> listed_parameters(const Model& model) {
  std::vector<std::string> list;
  for (const Block* block : model.registered_blocks())
    for (std::int64_t i = 0; i < block->repeat; ++i)
      for (const ParameterTensor* tensor : block->parameter_list())
        if (tensor->tied_to.empty()) list.push_back(full_name(*block, i, *tensor) + " " + shape_of(tensor->shape));
  return list;
}

std::vector<std::string> listed_buffers(const Model& model) {
  const std::map<DType, std::string> names = {{DType::fp32, "float32"}, {DType::boolean, "bool"}};
  std::vector<std::string> list;
  for (const Block& block : model.blocks)
    for (std::int64_t i = 0; i < block.repeat; ++i)
      for (const Operator& op : block.operators)
        for (const BufferTensor& buffer : op.buffers) {
          ParameterTensor named;
          named.name = buffer.name;
          list.push_back(fmt::format("{} {} {}", full_name(block, i, named), shape_of(buffer.shape), names.at(buffer.type)));
        }
  std::sort(list.begin(), list.end());
  return list;
}

// Golden: named_parameters() and named_buffers() of transformers 5.23.0 (data/registration.json), two layers of every family and its
// variants.
TEST(Decoders, RegisterTheParametersAndBuffersOfTheirClasses) {
  const json data = golden("registration.json");
  EXPECT_GE(data["models"].size(), 50U);
  for (const auto& row : data["models"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const Model model = parse_model(row["config"].dump(), "golden", "golden");
    EXPECT_EQ(listed_parameters(model), row["parameters"].get<std::vector<std::string>>());
    EXPECT_EQ(listed_buffers(model), row["buffers"].get<std::vector<std::string>>());
  }
}

// Golden: data/parameters.json, whole configs of published checkpoints and variations of them, counted by transformers 5.23.0.
TEST(Decoders, TotalsAndLayersAreExact) {
  const json data = golden("parameters.json");
  EXPECT_GE(data["rows"].size(), 112U);
  for (const auto& row : data["rows"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const Model model = parse_model(row["config"].dump(), row["id"], row["id"]);
    EXPECT_EQ(model.parameters(), row["parameters"].get<std::int64_t>());

    std::map<std::pair<std::string, std::int64_t>, std::int64_t> expected, found;  // (stack, parameters of a layer): layers
    for (const auto& layer : row["layers"]) expected[{layer[0], layer[2]}] += layer[1].get<std::int64_t>();
    for (const auto& block : model.blocks)
      if (block.role == Block::Role::decoder) found[{block.name, block.parameters()}] += block.repeat;
    EXPECT_EQ(found, expected);

    EXPECT_EQ(model.blocks.front().operators.front().parameters.front().elements(), row["token_embedding"].get<std::int64_t>());
    EXPECT_EQ(model.tied_embeddings, row["tied_head"].get<bool>());
  }
}

struct Published {
  const char* name;
  std::int64_t parameters;
  std::int64_t active = 0;  // where it differs
};

// Published totals; the active ones are the same arithmetic with top_k of the experts (docs/modelling.md, table T1).
TEST(Decoders, ShippedModelsHaveTheirPublishedTotals) {
  const std::vector<Published> table = {
      {"gpt2", 124439808},
      {"gpt2-medium", 354823168},
      {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},
      {"gpt-3-175b", 174604259328},
      {"llama-2-7b", 6738415616},
      {"llama-2-13b", 13015864320},
      {"llama-2-70b", 68976648192},
      {"llama-3-8b", 8030261248},
      {"llama-3.1-8b", 8030261248},
      {"llama-3-70b", 70553706496},
      {"llama-3.1-405b", 405853388800},
      {"llama-3.2-1b", 1235814400},
      {"llama-3.2-3b", 3212749824},
      {"mistral-7b-v0.1", 7241732096},
      {"mistral-7b-v0.3", 7248023552},
      {"mistral-nemo-12b", 12247782400},
      {"mixtral-8x7b", 46702792704, 12879925248},
      {"mixtral-8x22b", 140630071296},
      {"qwen2-0.5b", 494032768},
      {"qwen2-1.5b", 1543714304},
      {"qwen2.5-3b", 3085938688},
      {"qwen2-7b", 7615616512},
      {"qwen2.5-14b", 14770033664},
      {"qwen2.5-32b", 32763876352},
      {"qwen2-72b", 72706203648},
      {"qwen3-0.6b", 596049920},
      {"qwen3-1.7b", 1720574976},
      {"qwen3-4b", 4022468096},
      {"qwen3-8b", 8190735360},
      {"qwen3-14b", 14768307200},
      {"qwen3-32b", 32762123264},
      {"qwen3-30b-a3b", 30532122624, 3353032704},
      {"qwen3-235b-a22b", 235093634560, 22190763520},
      {"qwen1.5-moe-a2.7b", 14315784192},
      {"gemma-2b", 2506172416},
      {"gemma-7b", 8537680896},
      {"gemma-2-2b", 2614341888},
      {"gemma-2-9b", 9241705984},
      {"gemma-2-27b", 27227128320},
      {"gemma-3-1b", 999885952},
      {"gemma-3-4b-text", 3880263168},
      {"gemma-3-12b-text", 11766034176},   // 12,187,325,040 with the vision tower (416,866,032) and the projector (1152 x 3840 + 1152)
      {"gemma-3-27b-text", 27009346304},   // 27,432,406,640 with them (1152 x 5376 + 1152)
      {"mistral-small-24b", 23572403200},
      {"seed-oss-36b", 36151104512},
      {"jamba-v0.1", 51570323328},
      {"jamba-1.5-large", 398555145696},
      {"command-r7b", 8028033024},
      {"glm-4-32b-0414", 32566081536},
      {"afm-4.5b", 4619184640},
      {"olmo-3-7b", 7298011136},
      {"olmo-3-32b", 32233522176},
      {"minimax-m2", 228689748992},
      {"apertus-70b", 70599864480},
      {"apertus-8b", 8053338176},
      {"nanochat-d32", 1879048192},
      {"llama-4-maverick-text", 400711848960},
      {"llama-4-scout-text", 107769861120},
      {"ernie-4.5-21b-a3b", 21825437888},
      {"helium-1-preview-2b", 2172643840},
      {"glm-4.7-flash", 29943390976},
      {"solar-open-100b", 102651793408},
      {"dots.llm1", 142774373888},
      {"cwm", 32581097472},
      {"deepseek-v2-lite", 15706484224, 2661150208},
      {"deepseek-v2", 235741434880, 21375800320},
      {"deepseek-v3", 671026404352, 37552282624},
      {"phi-3-mini", 3821079552},
      {"phi-3-medium", 13960238080},
      {"phi-2", 2779683840},
      {"falcon-7b", 6921720704},
      {"falcon-40b", 41303293952},
      {"opt-125m", 125239296},
      {"opt-1.3b", 1315758080},
      {"opt-6.7b", 6658473984},
      {"gpt-neox-20b", 20554567680},
      {"pythia-160m", 162322944},
      {"yi-34b", 34388917248},
      {"tinyllama-1.1b", 1100048384},
      {"bloom-176b", 176247271424},
  };
  for (const auto& row : table) {
    const Model model = load_model(row.name);
    EXPECT_EQ(model.parameters(), row.parameters) << row.name;
    if (row.active > 0) {
      EXPECT_EQ(model.active_parameters(), row.active) << row.name;
    }
  }
}

// With another vocabulary or tying: GPT-3 at Megatron's 51,200 rows; Mixtral 8x22B at 32,000; Falcon-180B tied.
TEST(Decoders, TotalsFollowAKey) {
  const auto with = [](const std::string& name, const std::string& key, const json& value) {
    json config = json::parse(read_text_file(PLIMSOLL_SOURCE_DIR "/models/" + name + "/config.json", 1 << 20));
    config[key] = value;
    return parse_model(config.dump(), name, name).parameters();
  };
  EXPECT_EQ(with("gpt-3-175b", "vocab_size", 51200), 174615846912);
  EXPECT_EQ(with("mixtral-8x22b", "vocab_size", 32000), 140620634112);
  EXPECT_EQ(with("falcon-180b", "tie_word_embeddings", true), 178557088768);
}

// DeepSeek-V3's pieces: attention of one layer 187,107,328 with its two low-rank norms; the experts' part 11,320,164,608 counts 256
// correction biases, which are buffers: 11,320,164,352 parameters. A layer has two norms of 7,168 beside.
TEST(Decoders, DeepSeekV3LayerIsTheSumOfItsPieces) {
  const Model model = load_model("deepseek-v3");
  const auto moe = std::find_if(model.blocks.begin(), model.blocks.end(), [](const Block& block) { return block.moe.has_value(); });
  ASSERT_NE(moe, model.blocks.end());
  EXPECT_EQ(moe->repeat, 58);
  EXPECT_EQ(moe->parameters(), 187107328 + 11320164608 - 256 + 2 * 7168);
}

TEST(Decoders, EveryShippedConfigIsReadWhole) {
  for (const auto& name : shipped_models()) EXPECT_EQ(load_model(name).unread_keys, std::vector<std::string>{}) << name;
}

// What holds for every block: edges join operators in the order of execution, every parameter is registered once, and the matrix FLOPs are
// two per weight of the linears (a routed expert's weights count top_k of experts).
TEST(Decoders, BlocksAreConsistent) {
  for (const auto& name : shipped_models()) {
    const Model model = load_model(name);
    for (const auto& block : model.blocks) {
      SCOPED_TRACE(name + " " + block.name);
      for (const auto& edge : block.edges) {
        EXPECT_LT(edge.from, edge.to);
        EXPECT_LT(edge.to, static_cast<int>(block.operators.size()));
      }
      std::size_t parameters = 0;
      for (const auto& op : block.operators) parameters += op.parameters.size();
      auto list = block.parameter_list();
      EXPECT_EQ(list.size(), parameters);
      std::sort(list.begin(), list.end());
      EXPECT_EQ(std::unique(list.begin(), list.end()), list.end());
    }
  }
}

TEST(Decoders, MatrixFlopsAreTwoPerWeight) {
  const Model model = load_model("mixtral-8x7b");
  double flops = 0;
  for (const auto& block : model.blocks)
    for (const auto& op : block.operators) flops += op.flops_per_token * static_cast<double>(block.repeat);
  // All active parameters but the embedding (a lookup) and the 65 norms of 4,096 are matrices.
  EXPECT_EQ(flops, 2.0 * (12879925248.0 - 32000.0 * 4096.0 - 65.0 * 4096.0));
}

// AutoModelForSequenceClassification with num_labels: no bias, and a head of hidden_size numbers a label in the place of lm_head, which of
// Llama-3.2-1B is the embedding's own weight.
TEST(Decoders, ASequenceClassifierHasAHeadOfItsLabels) {
  const Model tied = load_model("llama-3.2-1b"), own = load_model("llama-3.1-8b");
  EXPECT_EQ(with_auto_head(tied, AutoHead::sequences, 1).parameters(), tied.parameters() + 2048);
  EXPECT_EQ(with_auto_head(own, AutoHead::sequences, 1).parameters(), own.parameters() - 128256LL * 4096 + 4096);
  EXPECT_EQ(with_auto_head(own, AutoHead::sequences, 3).parameters(), own.parameters() - 128256LL * 4096 + 3 * 4096);
  const Model made = with_auto_head(own, AutoHead::sequences, 0);  // num_labels of PretrainedConfig: 2
  EXPECT_EQ(made.architecture, "LlamaForSequenceClassification");
  EXPECT_EQ(made.labels, 2);
  const Model five = parse_model(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_labels": 5})", "a config", "five");
  EXPECT_EQ(with_auto_head(five, AutoHead::sequences, 0).labels, 5) << "what the config says";
  const Model again = with_auto_head(load_model("meta-llama/Llama-3.1-8B"), AutoHead::sequences, 0);
  EXPECT_EQ(std::set<std::string>(again.assumed.begin(), again.assumed.end()).size(), again.assumed.size()) << "nothing is told twice";
  EXPECT_EQ(listed_parameters(made), listed_parameters(load_model("llama-3.1-8b", "LlamaForSequenceClassification")));
}

// GenericForTokenClassification and GenericForQuestionAnswering: a linear with a bias behind the last norm, of num_labels and of 2 numbers a token.
TEST(Decoders, HeadsOfTokensAndOfAnswersHaveBiases) {
  const Model own = load_model("llama-3.1-8b");
  const std::int64_t body = own.parameters() - 128256LL * 4096;
  const Model tokens = with_auto_head(own, AutoHead::tokens, 9), answers = with_auto_head(own, AutoHead::answers);
  EXPECT_EQ(tokens.architecture, "LlamaForTokenClassification");
  EXPECT_EQ(tokens.parameters(), body + 9 * 4096 + 9);
  EXPECT_EQ(answers.architecture, "LlamaForQuestionAnswering");
  EXPECT_EQ(answers.parameters(), body + 2 * 4096 + 2);
  EXPECT_EQ(with_auto_head(load_model("gpt2"), AutoHead::tokens, 3).architecture, "GPT2ForTokenClassification");
  EXPECT_THROW(with_auto_head(load_model("phi-3-mini-4k"), AutoHead::answers), Error) << "transformers has no such class of phi3";
}

// AutoModelForImageClassification and AutoModelForMaskedLM take a body's config as well.
TEST(Decoders, HeadsOfImagesAndOfWordsAreReadFromABody) {
  const Model images = with_auto_head(load_model("vit-b16", "ViTModel"), AutoHead::images, 3);
  EXPECT_EQ(images.architecture, "ViTForImageClassification");
  EXPECT_EQ(images.labels, 3);
  EXPECT_EQ(with_auto_head(load_model("bert-base-uncased", "BertModel"), AutoHead::words).parameters(),
            load_model("bert-base-uncased", "BertForMaskedLM").parameters());
}

// Encoders are read again as their class: BertForMaskedLM's head (a dense layer, a norm, a bias of the vocabulary) makes room for a pooler
// (768 · 768 + 768) and a classifier (768 · 4 + 4). transformers has no such class of Granite.
TEST(Decoders, AnEncoderIsReadAgainAsAClassifier) {
  const Model masked = load_model("bert-base-uncased", "BertForMaskedLM"), made = with_auto_head(masked, AutoHead::sequences, 4);
  EXPECT_EQ(made.architecture, "BertForSequenceClassification");
  EXPECT_EQ(made.parameters(), load_model("bert-base-uncased", "BertModel").parameters() + 768 * 4 + 4);
  EXPECT_EQ(with_auto_head(made, AutoHead::sequences, 4).parameters(), made.parameters());
  EXPECT_THROW(with_auto_head(load_model("granite-3.0-2b"), AutoHead::sequences, 2), Error);
}

}  // namespace
}  // namespace plimsoll
