// Encoders, sequence-to-sequence models, vision transformers, towers and state spaces against the classes of transformers 5.23, tensor by tensor.
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/layer_graph.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

nlohmann::json golden() {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/model/data/parameters_encoders.json");
  return nlohmann::json::parse(file);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// "name [shape]" of every parameter tensor in registration order, tied ones once.
std::vector<std::string> tensor_lines(const Model& model) {
  std::vector<std::string> lines;
  for (const Block* block : model.registered_blocks())
    for (std::int64_t index = 0; index < block->repeat; ++index)
      for (const ParameterTensor* tensor : block->parameter_list())
        if (tensor->tied_to.empty()) lines.push_back(full_name(*block, index, *tensor) + " " + shape_text(tensor->shape));
  return lines;
}

std::string fnv1a(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const auto& line : lines)
    for (const char c : line + "\n") hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::int64_t buffer_elements(const Model& model) {
  std::int64_t total = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      for (const BufferTensor& buffer : op.buffers) {
        std::int64_t elements = block.repeat;
        for (const std::int64_t size : buffer.shape) elements *= size;
        total += elements;
      }
  return total;
}

Model model_of(const nlohmann::json& row) {
  return parse_model(row["config"].dump(), "config.json", row["id"].get<std::string>(), row["class"].get<std::string>());
}

TEST(Encoders, EveryTensorAsTransformersRegistersIt) {
  const auto data = golden();
  ASSERT_GT(data["rows"].size(), 100u);
  for (const auto& row : data["rows"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const Model model = model_of(row);
    EXPECT_EQ(model.parameters(), row["parameters"].get<std::int64_t>());
    const auto lines = tensor_lines(model);
    EXPECT_EQ(lines.size(), row["tensors"].get<std::size_t>());
    EXPECT_EQ(fnv1a(lines), row["names_fnv1a"].get<std::string>());
    EXPECT_EQ(buffer_elements(model), row["buffer_elements"].get<std::int64_t>());
  }
}

// Every vertex of every model's graph is reached, and the graph's parameters are the model's.
TEST(Encoders, LayerGraphsHoldAllParameters) {
  const auto file = golden();
  for (const auto& row : file["rows"]) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const Model model = model_of(row);
    const LayerGraph graph(model);
    std::int64_t parameters = 0;
    for (const auto& vertex : graph.vertices()) parameters += vertex.repeat * vertex.parameters;
    EXPECT_EQ(parameters, model.parameters());
    EXPECT_EQ(graph.topological_order().size(), graph.vertices().size());
  }
}

// Without tied embeddings `shared` is a table that nothing reads beside those of encoder, decoder and head: transformers 5.23 counts
// 4 · 100 · 16 elements of words in these models, 3 · 100 · 16 without a head.
TEST(Encoders, UntiedSequenceModelsHaveATableForEachPlace) {
  const auto parameters = [](const std::string& type, const std::string& architecture) {
    return parse_model(R"({"model_type": ")" + type + R"(", "architectures": [")" + architecture + R"("], "vocab_size": 100, "d_model": 16,
      "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_attention_heads": 2,
      "decoder_attention_heads": 2, "tie_word_embeddings": false})",
                       "config.json", "x")
        .parameters();
  };
  EXPECT_EQ(parameters("bart", "BartForConditionalGeneration"), 43280);
  EXPECT_EQ(parameters("mbart", "MBartForConditionalGeneration"), 43344);
  EXPECT_EQ(parameters("pegasus", "PegasusForConditionalGeneration"), 43216);
  EXPECT_EQ(parameters("bart", "BartModel"), 41680);
}

TEST(Encoders, ALanguageModelsHeadIsNoBaseModel) {
  EXPECT_THROW(parse_model(R"({"model_type":"bert","architectures":["BertLMHeadModel"]})", "config.json", "x"), Error);
}

TEST(Encoders, UnknownHeadsAreRefusedByName) {
  try {
    parse_model(R"({"model_type":"bert","architectures":["BertForFortuneTelling"]})", "config.json", "x");
    FAIL() << "an unknown head was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(error.message().find("BertForFortuneTelling"), std::string::npos);
  }
  EXPECT_THROW(parse_model(R"({"model_type":"bert","is_decoder":true})", "config.json", "x"), Error);
  EXPECT_THROW(parse_model(R"({"model_type":"vit","image_size":15,"patch_size":16})", "config.json", "x"), Error);
  EXPECT_THROW(parse_model(R"({"model_type":"bert","position_embedding_type":"relative_key"})", "config.json", "x"), Error);
}

}  // namespace
}  // namespace plimsoll
