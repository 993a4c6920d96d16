#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "plimsoll/plimsoll.h"

namespace {

using Json = nlohmann::json;

Json call(const std::string& request) {
  char* answer = plimsoll_call(request.c_str());
  const std::string text = answer ? answer : "null";
  plimsoll_free(answer);
  return Json::parse(text);
}

std::string error_of(const Json& answer) { return answer.at("error").at("message").get<std::string>(); }

TEST(CFunction, EstimatesAWholeConfigGivenInTheRequest) {
  const Json answer = call(R"({"command":"estimate","on":"1xh100-sxm","strategy":{"micro_batch":1,"seq_len":128},
    "model":{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":256,"num_hidden_layers":2,"num_attention_heads":4,
             "num_key_value_heads":4,"intermediate_size":512,"vocab_size":1000,"max_position_embeddings":512,"rms_norm_eps":1e-5,
             "tie_word_embeddings":false}})");
  EXPECT_EQ(answer.at("schema"), "plimsoll/estimate/1");
  // 2·1000·256 + 2·(4·256² + 3·256·512 + 2·256) + 256
  EXPECT_EQ(answer.at("model").at("parameters"), 2 * 1000 * 256 + 2 * (4 * 256 * 256 + 3 * 256 * 512 + 2 * 256) + 256);
}

TEST(CFunction, ErrorsAreObjects) {
  EXPECT_EQ(call("").at("schema"), "plimsoll/error/1");
  EXPECT_EQ(call("[]").at("error").at("code"), "bad_input");
  EXPECT_NE(error_of(call(R"({"command":"estimate","on":"8xmi300x"})")).find("model"), std::string::npos);
  EXPECT_NE(error_of(call(R"({"command":"estimate","model":3,"on":"8xmi300x"})")).find("must be"), std::string::npos);
  EXPECT_EQ(call(R"({"command":"modles"})").at("error").at("hint"), "did you mean 'models'?");
  EXPECT_EQ(call(std::string(100000, '[')).at("schema"), "plimsoll/error/1");
  EXPECT_EQ(call("{\"command\":\"\xff\"}").at("schema"), "plimsoll/error/1");
}

TEST(CFunction, KnowsItsModelsAndItsVersion) {
  EXPECT_GE(call(R"({"command":"models"})").at("models").size(), 60u);
  EXPECT_EQ(call(R"({"command":"models","model":"llama-3.1-8b"})").at("parameters"), 8030261248);
  EXPECT_EQ(call(R"({"command":"graph","model":"gpt2"})").at("schema"), "plimsoll/graph/1");
  EXPECT_FALSE(call(R"({"command":"version"})").at("version").get<std::string>().empty());
}

// Whatever takes a run takes it as other programs' files too, with the defaults of the release that is stated.
TEST(CFunction, ReadsFilesOfOtherPrograms) {
  const std::string file = std::string(PLIMSOLL_SOURCE_DIR) + "/tests/formats/samples/transformers/trl_cli.yaml";
  const auto ask = [&](const std::string& command) {
    return call(R"({"command":")" + command + R"(","on":"1xh100-sxm","from":[")" + file + R"("]})");
  };
  EXPECT_EQ(ask("estimate").at("schema"), "plimsoll/estimate/1");
  EXPECT_EQ(ask("explain").at("schema"), "plimsoll/explain/1");
  EXPECT_EQ(ask("view").at("schema"), "plimsoll/view/1");
  const Json resolved = call(R"({"command":"resolved","on":"1xh100-sxm","releases":["transformers=4.46.3"],"from":[")" + file + R"("]})");
  const auto optimizer = std::find_if(resolved.at("keys").begin(), resolved.at("keys").end(),
                                      [](const Json& key) { return key.at("key") == "optimizer_impl"; });
  ASSERT_NE(optimizer, resolved.at("keys").end());
  EXPECT_EQ(optimizer->at("value"), "foreach");
  EXPECT_EQ(optimizer->at("kind"), "default");
  EXPECT_EQ(optimizer->at("where"), "transformers 4.46.3");
  EXPECT_NE(error_of(call(R"({"command":"view","from":[],"strategy":{}})")).find("both say how to train"), std::string::npos);
}

TEST(CFunction, WritesAPlanAsFilesOfAnotherProgram) {
  const Json formats = call(R"({"command":"export"})").at("formats");
  EXPECT_NE(std::find(formats.begin(), formats.end(), "deepspeed"), formats.end());
  const Json plan = call(R"({"command":"export","to":"accelerate","model":"llama-3.2-1b","on":"8xh100-sxm",
    "strategy":{"data_parallel":"fsdp2","micro_batch":1,"seq_len":2048}})");
  EXPECT_EQ(plan.at("schema"), "plimsoll/export/1");
  EXPECT_EQ(plan.at("command"), "bash run.sh");
  std::string texts;
  for (const Json& file : plan.at("files")) texts += file.at("text").get<std::string>();
  EXPECT_NE(texts.find("fsdp_version: 2"), std::string::npos);
  EXPECT_EQ(call(R"({"command":"export","to":"acelerate","model":"gpt2","on":"1xh100-sxm"})").at("schema"), "plimsoll/error/1");
}

TEST(CFunction, MayBeCalledFromSeveralThreads) {
  const std::string request = R"({"command":"estimate","model":"gpt2","on":"1xh100-sxm","strategy":{"micro_batch":1,"seq_len":128}})";
  const Json expected = call(request);
  std::vector<Json> answers(4);
  std::vector<std::thread> threads;
  for (Json& answer : answers) threads.emplace_back([&] { answer = call(request); });
  for (std::thread& thread : threads) thread.join();
  for (const Json& answer : answers) EXPECT_EQ(answer, expected);
}

TEST(CFunction, NothingMayBeFreed) { plimsoll_free(nullptr); }

}  // namespace
