#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
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

TEST(CFunction, PlansAnEngine) {
  const Json answer = call(R"({"command":"engine","model":"qwen2.5-7b","on":"1xh100-sxm",
    "options":{"engine":"vllm@0.11","max_model_len":8192,"gpu_memory_utilization":0.5,"enable_sleep_mode":true}})");
  EXPECT_EQ(answer.at("schema"), "plimsoll/engine/1");
  EXPECT_EQ(answer.at("cache_bytes").get<std::int64_t>(),
            answer.at("budget_bytes").get<std::int64_t>() - answer.at("weights_bytes").get<std::int64_t>() -
                answer.at("activation_peak_bytes").get<std::int64_t>() - answer.at("outside_bytes").at("expected").get<std::int64_t>());
  EXPECT_EQ(answer.at("sleep").size(), 2u);
  EXPECT_NE(error_of(call(R"({"command":"engine","model":"qwen2.5-7b","on":"1xh100-sxm","options":{"tpp":2}})")).find("tpp"),
            std::string::npos);
}

TEST(CFunction, ReadsAModuleOfOnesOwn) {
  Json request = {{"command", "estimate"}, {"on", "1xh100-sxm"}, {"options", {{"micro_batch", "2"}, {"seq", "64"}}}};
  request["model"] = {{"class", "Net"}, {"args", {{"width", 32}, {"bias", false}}}, {"inputs", {"x:float32[B,S,32]"}}};
  request["model"]["code"] =
      "import torch.nn as nn\n"
      "class Net(nn.Module):\n"
      "  def __init__(self, width, bias=True):\n"
      "    super().__init__()\n"
      "    self.first = nn.Linear(width, 2 * width, bias=bias)\n"
      "  def forward(self, x):\n"
      "    return self.first(x).pow(2).mean()\n";
  const Json answer = call(request.dump());
  EXPECT_EQ(answer.at("schema"), "plimsoll/estimate/1") << answer.dump();
  EXPECT_EQ(answer.at("model").at("parameters"), 32 * 64);
  request["model"]["args"]["width"] = "wide";
  EXPECT_EQ(call(request.dump()).at("error").at("where"), "code:5:18") << call(request.dump()).dump();
  request["model"].erase("class");
  EXPECT_EQ(call(request.dump()).at("error").at("where"), "request#/model/class");
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
  const Json resolved = call(R"({"command":"read","on":"1xh100-sxm","releases":["transformers=4.46.3"],"from":[")" + file + R"("]})");
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

TEST(CFunction, TakesOptionsAsTheCommandLineDoes) {
  const std::string run = R"("command":"estimate","model":"gpt2","on":"1xh100-sxm",)";
  Json typed = call("{" + run + R"("strategy":{"micro_batch":2,"seq_len":512,"allocator":{"expandable_segments":true}}})");
  EXPECT_EQ(typed.at("schema"), "plimsoll/estimate/1");
  Json optioned = call("{" + run + R"("options":{"micro_batch":"2","seq":512,"allocator.expandable_segments":"true"}})");
  for (Json* answer : {&typed, &optioned}) answer->erase("strategy");  // each key says where it stood
  EXPECT_EQ(optioned, typed);
  EXPECT_NE(error_of(call("{" + run + R"("options":{"mikro_batch":"2"}})")).find("mikro_batch"), std::string::npos);
  EXPECT_NE(error_of(call("{" + run + R"("options":{},"strategy":{}})")).find("both"), std::string::npos);
}

// A script starts a program with a file that was handed over: what both say is a request that asks the same without them.
TEST(CFunction, ReadsFilesThatAreOnNoDisk) {
  const Json files = Json::array(
      {{{"name", "train.sh"},
        {"text",
         "torchrun --nproc-per-node 8 train.py --deepspeed configs/ds.json --model_name_or_path meta-llama/Llama-3.2-1B "
         "--per_device_train_batch_size 2 --bf16 true --max_seq_length 1024 --do_train true --output_dir out\n"}},
       {{"name", "ds.json"}, {"text", R"({"zero_optimization":{"stage":2},"bf16":{"enabled":true},"train_micro_batch_size_per_gpu":2})"}}});
  const Json run = call(Json{{"command", "read"}, {"files", files}, {"on", "h100-sxm"}}.dump());
  ASSERT_EQ(run.at("schema"), "plimsoll/run/1") << run;
  EXPECT_EQ(run.at("cluster"), (Json{{"device", "h100-sxm"}, {"nodes", 1}, {"gpus_per_node", 8}}));
  EXPECT_EQ(run.at("options").at("zero_stage"), "2");
  EXPECT_EQ(run.at("options").at("micro_batch"), "2");
  const Json again =
      call(Json{{"command", "estimate"}, {"model", run.at("model")}, {"on", "8xh100-sxm"}, {"options", run.at("options")}}.dump());
  const Json direct = call(Json{{"command", "estimate"}, {"files", files}, {"from", {"train.sh", "ds.json"}}, {"on", "h100-sxm"}}.dump());
  ASSERT_EQ(direct.at("schema"), "plimsoll/estimate/1") << direct;
  EXPECT_EQ(again.at("memory"), direct.at("memory"));
  const Json handed_over = call(Json{{"command", "estimate"}, {"files", files}, {"on", "h100-sxm"}}.dump());
  EXPECT_EQ(handed_over.at("memory"), direct.at("memory")) << "all of them are read where \"from\" is not there";
  EXPECT_EQ(call(R"({"command":"read","on":"8xh100-sxm"})").at("error").at("where"), "request#/files");
}

// 16 B · 8.03e9 = 128 GB of states: nothing of 80 GB holds a copy of them.
TEST(CFunction, SaysWhatWouldMakeARunFit) {
  const std::string run = R"("model":"llama-3.1-8b","on":"8xh100-sxm")";
  const Json change =
      call(R"({"command":"rescue",)" + run + R"(,"options":{"data_parallel":"ddp","micro_batch":1,"seq":1024}})").at("change");
  EXPECT_NE(change.at("verdict"), "does not fit");
  EXPECT_EQ(change.at("flag").get<std::string>().substr(0, 15), "--data-parallel");
}

TEST(CFunction, MenusKnowWhatIsTakenWhereNothingIsSaid) {
  const Json choices = call(R"({"command":"choices","model":"llama-3.1-8b","on":"8xh100-sxm","options":{"data_parallel":"fsdp","seq":2048},
    "keys":{"tp":[1,2,16],"seq":[128],"optimizer":["adamw"],"data_parallel":["ddp"]}})");
  EXPECT_EQ(choices.at("taken"), (Json{{"tp", "1"}, {"seq", "2048"}, {"optimizer", "adamw"}, {"data_parallel", "fsdp2"}}));
  EXPECT_TRUE(choices.at("refused").at("tp").at(1).is_null());
  EXPECT_TRUE(choices.at("refused").at("tp").at(2).is_string());
}

/// A config that is handed over has no name; the shipped model that it describes has one, by which every program loads it.
TEST(CFunction, ExportsAConfigInEveryFormat) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/models/llama-3.2-1b/config.json");
  const Json config = Json::parse(file);
  const auto framework = [](const std::string& format) {
    return format == "torchtitan" || format == "torchtune" || format == "deepspeed" ? format
           : format == "megatron"                                                   ? "megatron-core"
                                                                                    : "accelerate";
  };
  const Json formats = call(R"({"command":"export"})").at("formats");
  ASSERT_GE(formats.size(), 8U);
  for (const std::string format : formats) {
    Json request = {{"command", "export"}, {"on", "8xh100-sxm"}, {"to", format}, {"model", config}};
    request["strategy"] = {{"framework", framework(format)}, {"micro_batch", 1}, {"seq_len", 2048}};
    if (format == "axolotl") request["strategy"]["attention"] = "flash";  // with others it keeps embeddings in fp32, which is refused
    const Json answer = call(request.dump());
    ASSERT_EQ(answer.at("schema"), "plimsoll/export/1") << format << ": " << answer.dump();
    request["model"] = "llama-3.2-1b";
    EXPECT_EQ(answer, call(request.dump())) << format;
  }
}

TEST(CFunction, StandardInputIsNotReadByIt) {
  EXPECT_NE(error_of(call(R"({"command":"estimate","model":"-","on":"1xh100-sxm"})")).find("standard input"), std::string::npos);
  EXPECT_NE(error_of(call(R"({"command":"estimate","model":"gpt2","on":"-"})")).find("standard input"), std::string::npos);
  EXPECT_NE(error_of(call(R"({"command":"estimate","from":["-"],"on":"1xh100-sxm"})")).find("standard input"), std::string::npos);
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
