// Which keys a strategy has, and who decided each.
#include "plimsoll/settled_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "formats/export/values.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

const SettledKey* find(const std::vector<SettledKey>& keys, const std::string& key) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const SettledKey& one) { return one.key == key; });
  return found == keys.end() ? nullptr : &*found;
}

// "seq" is short for seq_len and "zero" says how states are shared; what a command line says comes after a file.
TEST(SettledKeys, ShortNamesStandUnderWhatTheyMean) {
  Strategy s = parse_strategy(R"({"tp": 8, "seq": 4096, "zero": 2})", "s.json");
  set_options(s, {{"tp", "4"}});
  const auto keys = settled_keys(s, said_keys(s, "s.json"));
  ASSERT_NE(find(keys, "tp"), nullptr);
  EXPECT_EQ(find(keys, "tp")->value, "4");
  EXPECT_EQ(find(keys, "tp")->where, "--tp");
  EXPECT_EQ(find(keys, "seq_len")->where, "s.json#/seq");
  EXPECT_EQ(find(keys, "zero_stage")->value, "2");
  EXPECT_EQ(find(keys, "data_parallel")->by, SettledBy::file);
  EXPECT_EQ(find(keys, "seq"), nullptr);
}

// Of what nobody said: an assumption begins with the key's name, ranks are counted, all else is the framework's.
TEST(SettledKeys, WhatNobodySaidIsAssumedDerivedOrADefault) {
  Strategy s;
  s.framework = "torchtitan";
  s.dp = 8;
  s.loss_chunks = 8;
  s.loss = LossKernel::chunked;
  s.optimizer = OptimizerKind::adamw;
  s.assumed = {"loss_chunks: 8"};
  const auto keys = settled_keys(s, {});
  EXPECT_EQ(find(keys, "loss_chunks")->by, SettledBy::assumed);
  EXPECT_EQ(find(keys, "dp")->by, SettledBy::derived);
  EXPECT_EQ(find(keys, "dp")->where, "gpus / (tp · pp · cp)");
  EXPECT_EQ(find(keys, "optimizer")->by, SettledBy::by_default);
  EXPECT_EQ(find(keys, "optimizer")->where, "torchtitan");
}

// Every key of the table has a value that reports can tell, stands for one that has, or is among these: remarks, sections that are refused,
// what changes neither memory nor time, and releases, which reports list by themselves.
TEST(SettledKeys, EveryKeyIsTold) {
  const std::set<std::string> untold = {"lora.bias", "lora.note", "ddp.comm_hook", "releases.*", "framework_version"};
  for (const StrategyOption& option : strategy_options()) {
    if (untold.count(option.key) != 0 || option.key.rfind("deepspeed.", 0) == 0) continue;
    EXPECT_FALSE(formats::told_as(option.key).empty()) << option.key;
  }
}

// A value that is told is one that the key takes again.
TEST(SettledKeys, ValuesAreReadAgain) {
  Strategy s = parse_strategy(R"({"tp": 2, "recompute": "selective:core_attn", "stage_layers": [[0, 3]], "torch": "2.8",
                                  "allocator": {"max_split_size_mb": 256}})",
                              "s.json");
  for (const char* key : {"tp", "stage_layers", "torch", "allocator.max_split_size_mb"}) {
    const auto value = settled_value(s, key);
    ASSERT_TRUE(value) << key;
    Strategy again;
    set_option(again, key, *value);
    EXPECT_EQ(settled_value(again, key), value) << key;
  }
}

}  // namespace
}  // namespace plimsoll
