// The writers over a report made by hand: what goes in comes out, in the right place.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plimsoll/hardware.hpp"
#include "plimsoll/report.hpp"

namespace plimsoll {
namespace {

Report small_report() {
  Report report;
  report.verdict = Verdict::tight;
  report.model_name = "toy";
  report.cluster_name = "8xtest";
  report.strategy = "fsdp2 x 8";
  report.parameters = 8'030'261'248;
  report.active_parameters = 8'030'261'248;
  RankReport rank;
  rank.count = 8;
  rank.memory.allocated = Bytes(60LL << 30);
  rank.memory.reserved = Bytes(70LL << 30);
  rank.memory.device = {71.0 * (1LL << 30), 72.0 * (1LL << 30), 73.0 * (1LL << 30)};
  rank.memory.capacity = Bytes(80LL << 30);
  rank.memory.parts = {{"activations", Bytes(60LL << 30), Basis::played},
                       {"allocator_cache", Bytes(10LL << 30), Basis::played},
                       {"context", Bytes(2LL << 30), Basis::profile}};
  report.ranks = {rank};
  report.time.basis = Basis::played;
  report.time.step_seconds = Band::exactly(2.5);
  report.time.tokens_per_second_per_gpu = 6553.6;
  report.time.breakdown = {{"compute", Seconds(2.0)}, {"optimizer", Seconds(0.5)}};
  report.flops.conventions = {{"megatron", 5.147e10, 0.3}, {"torchtitan", 5.79e10, 0.35}, {"palm", 6.1e10, 0.37}};
  report.flops.hfu = 0.4;
  report.provenance = {{"memory.device_bytes", Provenance::assumed, "context"}};
  report.assumptions = {"seq from the model"};
  report.unread_keys = {"foo"};
  return report;
}

TEST(EstimateJson, HasExactlyTheDocumentedKeys) {
  const auto json = nlohmann::json::parse(to_json(small_report()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  const std::vector<std::string> wanted{"assumptions", "flops",  "memory",   "model", "notes",       "provenance", "ranks",
                                        "releases",    "schema", "strategy", "time",  "unread_keys", "verdict"};
  EXPECT_EQ(keys, wanted);  // nlohmann's plain object sorts its keys
  EXPECT_EQ(json["schema"], "plimsoll/estimate/1");
  EXPECT_EQ(json["verdict"], "tight");
  EXPECT_EQ(json["ranks"][0]["count"], 8);
}

TEST(EstimateJson, ABandIsAnObjectAndACertainNumberIsANumber) {
  const auto json = nlohmann::json::parse(to_json(small_report()));
  EXPECT_EQ(json["memory"]["device_bytes"]["high"], 73LL << 30);
  EXPECT_EQ(json["time"]["step_seconds"], 2.5);
}

TEST(EstimateJson, CategoriesAddUpToTheDevice) {
  const auto json = nlohmann::json::parse(to_json(small_report()));
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["memory"]["categories"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, json["memory"]["device_bytes"]["expected"]);
}

TEST(EstimateJson, OddBytesInANameAreReplacedNotThrown) {
  Report report = small_report();
  report.model_name = "a\xff\xfe";
  EXPECT_NE(to_json(report).find("a\xEF\xBF\xBD"), std::string::npos);
}

TEST(EstimateText, TheVerdictComesFirst) {
  Report report = small_report();
  report.time.basis = Basis::played;
  const std::string text = to_text(report);
  EXPECT_EQ(text.rfind("tight: toy on 8xtest, 72.0 of 80.0 GiB per GPU, 8.0 GiB left; 2.50 s a step,\n"
                       "6,554 tokens/s per GPU, MFU 30.0 %; largest part: activations, 60.0 GiB\n",
                       0),
            0u)
      << text;
}

TEST(EstimateText, TheAnswerTellsThatItsTimeIsAClosedForm) {
  Report report = small_report();
  report.time.basis = Basis::closed_form;
  EXPECT_EQ(to_text(report).rfind("closed form: tight: toy on 8xtest", 0), 0u) << to_text(report);
}

TEST(EstimateText, ImagesAreCountedAsImages) {
  Report report = small_report();
  report.time.images_per_second_per_gpu = 412;
  std::string text = to_text(report);
  std::replace(text.begin(), text.end(), '\n', ' ');  // lines break anywhere
  EXPECT_NE(text.find("412 images/s per GPU"), std::string::npos);
  EXPECT_EQ(text.find("tokens/s"), std::string::npos);
}

// Names and labels come from files: none of them moves the cursor or begins a line.
TEST(EstimateText, NamesCannotWriteOnTheTerminal) {
  Report report = small_report();
  report.model_name = "a\x1b[2Jb\nfits: forged\u009b0m";
  report.ranks[0].memory.peak_label = "layer\x1b[31m\nfits";
  report.assumptions = {"x\x07y"};
  const std::string text = to_text(report);
  for (const char bad : {'\x1b', '\x07'}) EXPECT_EQ(text.find(bad), std::string::npos);
  EXPECT_EQ(text.find("\u009b"), std::string::npos);
  EXPECT_EQ(text.find("\nfits"), std::string::npos);
}

TEST(EstimateText, WhatDoesNotFitSaysByHowMuch) {
  Report report = small_report();
  report.verdict = Verdict::does_not_fit;
  report.ranks[0].memory.device = Band::exactly(90.0 * (1LL << 30));
  EXPECT_NE(to_text(report).find("10.0 GiB too much"), std::string::npos);
}

TEST(ErrorJson, CarriesPlaceAndHint) {
  const auto json = nlohmann::json::parse(to_json(Error(ErrorCode::bad_input, "wrong", "file#/key", "try this")));
  EXPECT_EQ(json["error"]["code"], "bad_input");
  EXPECT_EQ(json["error"]["where"], "file#/key");
  EXPECT_EQ(json["error"]["hint"], "try this");
}

}  // namespace
}  // namespace plimsoll
