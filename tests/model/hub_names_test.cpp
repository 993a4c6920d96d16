// Names and types of the hub: models/hub.json, where each type says whose copy of a config.json told it.
#include "model/hub_names.hpp"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "data/shipped_files.hpp"
#include "model/registry.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::model {
namespace {

TEST(HubNames, AreThoseOfShippedModels) {
  EXPECT_EQ(shipped_name_of("meta-llama/Llama-3.1-8B-Instruct"), "llama-3.1-8b");
  EXPECT_EQ(shipped_name_of("lmsys/vicuna-7b-v1.5"), "llama-2-7b");
  EXPECT_EQ(shipped_name_of("somebody/Qwen3-8B"), "qwen3-8b");
  EXPECT_EQ(shipped_name_of("somebody/unheard-of"), std::nullopt);
  EXPECT_EQ(hub_name_of("gpt2"), "openai-community/gpt2");
  EXPECT_EQ(hub_name_of("no-such-model"), "no-such-model");
}

// Qwen of 2023 has code of its own, Qwen2 transformers'; no name of both kinds is there.
TEST(HubNames, RepositoriesWithCodeOfTheirOwnAreToldByTheirType) {
  EXPECT_EQ(own_code_type_of("qwen/Qwen-7B"), "qwen");
  EXPECT_EQ(own_code_type_of("Qwen/Qwen2-7B"), std::nullopt);
  const JsonDocument document = JsonDocument::parse(data::find_shipped_file("models/hub.json")->text, "models/hub.json");
  for (const JsonValue& group : document.root()["own_code"].elements())
    for (const std::string& type : group["types"].keys())
      for (const JsonValue& hub : group["types"][type].elements()) EXPECT_EQ(shipped_name_of(hub.text()), std::nullopt) << hub.text();
}

// huggyllama's checkpoints are fp16, Llama 3's bf16; of OLMoE's two sources disagree, so that nothing is said.
TEST(HubNames, TypesOfCheckpointsSayWhoTellsThem) {
  EXPECT_EQ(checkpoint_dtype_of("llama-30b").value().type, "fp16");
  EXPECT_EQ(checkpoint_dtype_of("llama-3.1-8b").value().type, "bf16");
  EXPECT_NE(checkpoint_dtype_of("llama-3.1-8b").value().told_by.find("config.json"), std::string::npos);
  EXPECT_EQ(checkpoint_dtype_of("gpt2").value().type, "fp32");
  EXPECT_FALSE(checkpoint_dtype_of("olmoe-1b-7b").has_value());
}

// The last group of two would win without a word.
TEST(HubNames, EveryModelHasOneTypeAndIsShipped) {
  const JsonDocument document = JsonDocument::parse(data::find_shipped_file("models/hub.json")->text, "models/hub.json");
  std::set<std::string> seen;
  for (const JsonValue& group : document.root()["dtypes"].elements())
    for (const JsonValue& model : group["models"].elements()) {
      EXPECT_TRUE(seen.insert(model.text()).second) << model.text();
      const auto config = shipped_config(model.text());
      ASSERT_TRUE(config.has_value()) << model.text();
      if (config->where.rfind("models/code/", 0) != 0) EXPECT_NO_THROW(load_model(model.text())) << model.text();
    }
}

// Of a checkpoint whose type has no family the config is shipped, and what plays it is said; models/code holds no type that has a family.
TEST(HubNames, OfTypesThatOnlyCodePlaysTheConfigIsShipped) {
  const auto config = shipped_config("Qwen/Qwen3-VL-4B-Instruct");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->name, "qwen3-vl-4b");
  EXPECT_EQ(shipped_config("meta-llama/Llama-3.1-8B-Instruct").value().where, "models/llama-3.1-8b/config.json");
  EXPECT_EQ(shipped_config("somebody/unheard-of"), std::nullopt);
  try {
    (void)load_model("Qwen/Qwen3-VL-4B-Instruct");
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::refused);
    EXPECT_NE(error.message().find("model type qwen3_vl, which transformers' own code plays"), std::string::npos) << error.what();
    EXPECT_NE(error.hint().find("--code"), std::string::npos) << error.hint();
  }
  int coded = 0;
  for (const auto* file : data::shipped_files_under("models/code/")) {
    const JsonDocument document = JsonDocument::parse(std::string(file->text), std::string(file->path));
    EXPECT_EQ(find_family(document.root()["model_type"].text()), nullptr) << file->path;
    ++coded;
  }
  EXPECT_GE(coded, 29);
}

// modelscope's copies, and those of others, have the shape of what they are copies of.
TEST(HubNames, OfAnotherOwnersCopyIsTheModels) {
  EXPECT_EQ(shipped_name_of("AI-ModelScope/Nemotron-Mini-4B-Instruct"), "minitron-4b");
  EXPECT_EQ(shipped_name_of("nv-community/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16"), "nemotron-3.5-lightning-30b-a3b");
}

TEST(HubNames, AreAskedByManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int j = 0; j < 200; ++j) {
        EXPECT_EQ(shipped_name_of("Qwen/Qwen2.5-7B-Instruct"), "qwen2.5-7b");
        EXPECT_EQ(checkpoint_dtype_of("qwen2.5-7b").value().type, "bf16");
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace plimsoll::model
