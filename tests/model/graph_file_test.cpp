// Graph files: the shipped CNN by hand, and what a wrong file is told.
#include <gtest/gtest.h>

#include <string>

#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/layer_graph.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

Model read(const std::string& input, const std::string& blocks) {
  return parse_model(R"({"plimsoll-graph":1,"input":)" + input + R"(,"blocks":)" + blocks + "}", "graph.json", "test");
}

// The message of the error, with its hint.
std::string error_of(const std::string& input, const std::string& blocks) {
  try {
    read(input, blocks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string one_block(const std::string& operators) { return R"([{"name":"b","operators":[)" + operators + "]}]"; }
const std::string kVectors = R"({"vectors":8})";

// 3·9·32 + 32, 32·9·64 + 64, 64·8·8·128 + 128, 128·10 + 10; FLOPs 2·32²·32·27, 2·16²·64·288, 2·4096·128, 2·128·10.
TEST(GraphFile, SmallCnnByHand) {
  const Model cnn = load_model("small-cnn");
  EXPECT_EQ(cnn.parameters(), (3 * 9 * 32 + 32) + (32 * 9 * 64 + 64) + (64 * 8 * 8 * 128 + 128) + (128 * 10 + 10));
  EXPECT_EQ(flops::forward(cnn, {1, 0}), 2.0 * 32 * 32 * 32 * 27 + 2.0 * 16 * 16 * 64 * 288 + 2.0 * 4096 * 128 + 2.0 * 128 * 10);
  EXPECT_EQ(cnn.name, "small-cnn");
  EXPECT_TRUE(cnn.unread_keys.empty());
  const LayerGraph graph(cnn);
  EXPECT_EQ(graph.vertices().size(), 10u);
  EXPECT_EQ(graph.vertices()[5].shape, (std::vector<std::int64_t>{64, 8, 8}));
  EXPECT_EQ(graph.vertices()[1].saves, "output");
  EXPECT_EQ(graph.critical_path(forward_flops_per_vertex(graph, cnn, 1)).vertices.size(), 10u);
}

// A pre-norm transformer layer of width 8, three times: norms 2·16, q, k, v, o 4·72, MLP 8·32 + 32 + 32·8 + 8; words 100·8, head 808.
TEST(GraphFile, ATransformerInAnyOrder) {
  const Model model = read(R"({"tokens":true})", R"([
    {"name":"words","operators":[{"name":"table","kind":"embedding","rows":100,"width":8}]},
    {"name":"layers","repeat":3,"operators":[
      {"name":"out","kind":"add","inputs":["mid","down"]},
      {"name":"norm","kind":"layer_norm","inputs":["input"]},
      {"name":"q","kind":"linear","out":8,"inputs":["norm"]},
      {"name":"k","kind":"linear","out":8,"inputs":["norm"]},
      {"name":"v","kind":"linear","out":8,"inputs":["norm"]},
      {"name":"attn","kind":"attention","heads":2,"inputs":["q","k","v"]},
      {"name":"o","kind":"linear","out":8},
      {"name":"mid","kind":"add","inputs":["input","o"]},
      {"name":"norm2","kind":"layer_norm"},
      {"name":"up","kind":"linear","out":32},
      {"name":"act","kind":"activation","function":"gelu"},
      {"name":"down","kind":"linear","out":8}]},
    {"name":"head","operators":[{"name":"logits","kind":"linear","out":100,"bias":true}]}])");
  EXPECT_EQ(model.parameters(), 100 * 8 + 3 * (2 * 16 + 4 * 72 + (8 * 32 + 32) + (32 * 8 + 8)) + (8 * 100 + 100));
  EXPECT_EQ(model.layers, 3);
  EXPECT_EQ(model.blocks[1].operators.back().name, "out");
  EXPECT_EQ(full_name(model.blocks[1], 2, model.blocks[1].operators[1].parameters.front()).find("layers.2."), 0u);
}

TEST(GraphFile, WrongFilesAreToldPrecisely) {
  const auto expect = [](const std::string& error, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(error.find(part), std::string::npos) << "'" << part << "' not in: " << error;
  };
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linaer","out":4})")),
         {"'a'", "linaer", "did you mean 'linear'", "graph.json#/blocks/0/operators/0/kind"});
  expect(
      error_of(kVectors, one_block(R"({"name":"first","kind":"linear","out":4},{"name":"b","kind":"linear","out":4,"inputs":["fist"]})")),
      {"'b' reads 'fist'", "did you mean 'first'"});
  expect(
      error_of(kVectors, one_block(R"({"name":"a","kind":"add","inputs":["c","input"]},{"name":"b","kind":"linear","out":8,"inputs":["a"]},
                                        {"name":"c","kind":"linear","out":8,"inputs":["b"]})")),
      {"cycle", "a -> b", "b -> c", "c -> a"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linear","out":4},{"name":"b","kind":"add","inputs":["input","a"]})")),
         {"'b' expects inputs of one shape", "[8] and [4]"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"convolution","channels":4,"kernel":3})")), {"'a'", "feature map", "[8]"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linear"})")), {"out"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linear","out":0})")), {"out"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linear","out":4},{"name":"b","kind":"linear","out":4,"inputs":["input"]})")),
         {"nothing reads 'a', 'b'"});
  expect(error_of(kVectors, one_block(R"({"name":"a","kind":"linear","out":4},{"name":"a","kind":"linear","out":4})")), {"'a'", "taken"});
  expect(error_of(kVectors, R"([{"name":"b","repeat":2,"operators":[{"name":"a","kind":"linear","out":4}]}])"), {"repeats", "[4]", "[8]"});
  expect(error_of(R"({"image":[3,8,8]})", one_block(R"({"name":"a","kind":"pool","kernel":9})")), {"'a'", "window of 9"});
  expect(error_of(R"({"image":[3,8,8]})", one_block(R"({"name":"a","kind":"convolution","channels":4,"kernel":3,"groups":2})")),
         {"groups"});
  expect(error_of(R"({})", one_block(R"({"name":"a","kind":"linear","out":4})")), {"image", "tokens"});
  expect(error_of(kVectors, "[]"), {"a block"});
  expect(error_of(kVectors, one_block("")), {"needs an operator"});
}

}  // namespace
}  // namespace plimsoll
