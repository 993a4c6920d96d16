// Reading what the user chose, from JSON (the keys of the measured rows) and from the command line.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "plimsoll/error.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

std::string error_of(const std::string& json) {
  try {
    parse_strategy(json, "s.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReadStrategy, ReadsEveryKindOfValue) {
  const Strategy s = parse_strategy(R"({"framework": "torchtitan", "tp": 8, "precision": "fp8", "fp8_recipe": "rowwise (torchao), eager",
      "attention": "flash (torch SDPA) ", "recompute": "selective-ac-op", "clip_grad_norm": 1.0, "master_dtype": "fp32",
      "optimizer_impl": "fused, bf16 states", "wrap": ["tok_embeddings", "layers.*"], "stage_layers": [[0, 3], [17, 20]], "compile": true,
      "autocast": null, "allocator": {"expandable_segments": true}, "lora": {
  "r" : 16, "alpha" : 32, "target_modules" : ["q_proj"]}})",
                                    "s.json");
  EXPECT_EQ(s.framework, "torchtitan");
  EXPECT_EQ(s.tp, 8);
  EXPECT_EQ(s.pp, 0) << "not said";
  EXPECT_EQ(s.precision, Precision::bf16) << "fp8 is a product over 16-bit training";
  EXPECT_EQ(s.low_precision, LowPrecision::fp8);
  EXPECT_EQ(s.fp8_scaling, Fp8Scaling::rowwise);
  EXPECT_EQ(s.attention, AttentionKernel::flash);
  EXPECT_EQ(s.recompute.kind, Recompute::Kind::operators);
  EXPECT_EQ(s.clip_grad_norm, true);
  EXPECT_EQ(s.master_weights, true);
  EXPECT_EQ(s.optimizer_impl, OptimizerImpl::fused);
  EXPECT_EQ(s.state_dtype, DType::bf16);
  EXPECT_EQ(s.fsdp.units, (std::vector<std::string>{"tok_embeddings", "layers.*"}));
  EXPECT_EQ(s.stage_layers, (std::vector<std::pair<int, int>>{{0, 3}, {17, 20}}));
  EXPECT_EQ(s.compile, Strategy::Compile::own);
  EXPECT_TRUE(s.allocator.expandable_segments);
  ASSERT_TRUE(s.lora);
  EXPECT_EQ(s.lora->r, 16);
  EXPECT_TRUE(s.unread_keys.empty());
}

TEST(ReadStrategy, ReadsTheFormsOfRecompute) {
  auto read = [](const std::string& text) { return parse_strategy("{\"recompute\": \"" + text + "\"}", "s").recompute; };
  const Recompute block = read("full-block-21-of-80-layers");
  EXPECT_EQ(block.kind, Recompute::Kind::full);
  EXPECT_EQ(block.method, Recompute::Method::block);
  EXPECT_EQ(block.layers, 21);
  EXPECT_EQ(block.of_layers, 80);
  const Recompute modules = read("selective:layernorm,moe_act");
  EXPECT_EQ(modules.kind, Recompute::Kind::selective);
  EXPECT_EQ(modules.modules, (std::vector<std::string>{"layernorm", "moe_act"}));
  EXPECT_EQ(read("selective-layer").every, 2) << "torchtitan's selective_ac_option 2";
  EXPECT_EQ(read("every-4-layers").every, 4);
  EXPECT_NE(error_of(R"({"recompute": "sometimes"})").find("s.json#/recompute"), std::string::npos);
}

// What people type who know the programs' own names: transformers' optim and a switch for checkpointing.
TEST(ReadStrategy, TakesTheProgramsOwnNames) {
  const auto said = [](const char* key, const char* value) {
    Strategy strategy;
    set_option(strategy, key, value);
    return strategy;
  };
  EXPECT_EQ(said("optimizer", "adamw_torch_fused").optimizer, OptimizerKind::adamw);
  EXPECT_EQ(said("optimizer", "adamw_torch_fused").optimizer_impl, OptimizerImpl::fused);
  EXPECT_EQ(said("optimizer", "adamw_bnb_8bit").optimizer, OptimizerKind::adamw_8bit);
  EXPECT_EQ(said("recompute", "true").recompute.kind, Recompute::Kind::full);
  EXPECT_EQ(said("recompute", "false").recompute.kind, Recompute::Kind::none);
}

TEST(ReadStrategy, ReadsDeepSpeedsOwnJson) {
  const Strategy s = parse_strategy(R"({"deepspeed": {"bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 2, "zero_optimization":
      {"stage": 3, "reduce_bucket_size": 5e7, "stage3_prefetch_bucket_size": "auto", "offload_optimizer": {"device": "cpu", "pin_memory": true}},
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}})",
                                    "s");
  EXPECT_EQ(s.data_parallel, DataParallel::zero3);
  EXPECT_EQ(s.precision, Precision::bf16);
  EXPECT_EQ(s.micro_batch, 2);
  EXPECT_EQ(s.deepspeed.reduce_bucket_size, 50'000'000);
  EXPECT_EQ(s.deepspeed.stage3_prefetch_bucket_size, 50'000'000) << "DeepSpeed's own value behind auto";
  EXPECT_TRUE(s.offload.optimizer);
  EXPECT_FALSE(s.offload.params);
  EXPECT_EQ(s.optimizer, OptimizerKind::adamw);
  EXPECT_TRUE(s.unread_keys.empty());
}

// MS-AMP's engine: bf16 and fp16, before or behind its section, are the type of what it leaves alone; a section that is off changes
// nothing.
TEST(ReadStrategy, ReadsTheSectionOfMsAmp) {
  const auto read = [](const char* sections) { return parse_strategy(std::string(R"({"deepspeed": {)") + sections + "}}", "s"); };
  for (const char* sections : {R"("bf16": {"enabled": true}, "msamp": {"enabled": true, "opt_level": "O3"})",
                               R"("msamp": {"enabled": true, "opt_level": "O3", "use_te": false}, "bf16": {"enabled": true})"}) {
    EXPECT_EQ(read(sections).precision, Precision::msamp_o3) << sections;
    EXPECT_EQ(read(sections).param_dtype, DType::bf16) << sections;
  }
  EXPECT_EQ(read(R"("msamp": {"enabled": true})").precision, Precision::msamp_o1);
  EXPECT_EQ(read(R"("fp16": {"enabled": true}, "msamp": {"enabled": false})").precision, Precision::fp16);
  for (const char* wrong : {R"("msamp": {"enabled": true, "opt_level": "O4"})", R"("msamp": {"enabled": true, "use_te": true})",
                            R"("msamp": {"enabled": true, "level": "O3"})"})
    EXPECT_THROW(read(wrong), Error) << wrong;
}

TEST(ReadStrategy, NamesUnknownKeysAndRefusesNearMisses) {
  EXPECT_EQ(parse_strategy(R"({"tp": 2, "moon_phase": "full"})", "s").unread_keys, (std::vector<std::string>{"moon_phase"}));
  EXPECT_NE(error_of(R"({"micro_bach": 2})").find("did you mean 'micro_batch'"), std::string::npos);
  EXPECT_NE(error_of(R"({"fsdp": {"unit": []}})").find("did you mean 'units'"), std::string::npos);
}

TEST(ReadStrategy, RefusesWrongValuesWithTheirPlace) {
  for (const char* json : {R"({"tp": 0})", R"({"tp": -1})", R"({"tp": 1.5})", R"({"tp": "8"})", R"({"tp": 1e40})", R"({"tp": true})",
                           R"({"micro_batch": 9e18})"})
    EXPECT_NE(error_of(json).find("s.json#/"), std::string::npos) << json << ": " << error_of(json);
  EXPECT_NE(error_of(R"({"attention": "quick"})").find("flash"), std::string::npos) << "the valid values are listed";
  EXPECT_NE(error_of("[1]").find("object"), std::string::npos);
}

TEST(ReadStrategy, KeysOfOneTextMustAgree) {
  EXPECT_NE(error_of(R"({"micro_batch": 2, "deepspeed": {"train_micro_batch_size_per_gpu": 4}})").find("disagrees"), std::string::npos);
  EXPECT_NE(error_of(R"({"precision": "pure-bf16", "autocast": "bf16"})").find("disagrees"), std::string::npos);
  EXPECT_EQ(error_of(R"({"precision": "amp-bf16", "autocast": "bf16"})"), "no error");
  // DeepSpeed's Adam is AdamW unless adam_w_mode is turned off; its SGD is neither.
  EXPECT_EQ(error_of(R"({"optimizer": "adamw", "deepspeed": {"optimizer": {"type": "Adam"}}})"), "no error");
  EXPECT_NE(error_of(R"({"optimizer": "adamw", "deepspeed": {"optimizer": {"type": "SGD"}}})").find("disagrees"), std::string::npos);
}

std::string error_of_options(const std::vector<std::pair<std::string, std::string>>& options) {
  try {
    Strategy s;
    set_options(s, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Two keys of one command line that say the same thing differently contradict each other, whichever comes first; the same thing twice does
// not.
TEST(SetOptions, KeysOfOneCommandLineMustAgree) {
  using Options = std::vector<std::pair<std::string, std::string>>;
  const Options contradictions[] = {
      {{"zero", "1"}, {"zero_stage", "3"}},
      {{"data_parallel", "ddp"}, {"fsdp", "full"}},
      {{"data_parallel", "ddp"}, {"zero", "3"}},
      {{"seq", "128"}, {"seq_len", "256"}},
      {{"precision", "fp16"}, {"autocast", "bf16"}},
      {{"precision", "fp32"}, {"deepspeed.bf16.enabled", "true"}},
      {{"schedule", "gpipe"}, {"pp_schedule", "1f1b"}},
      {{"reshard_after_forward", "never"}, {"fsdp.reshard_after_forward", "always"}},
      {{"loss", "te"}, {"cross_entropy_fusion", "native"}},
      {{"offload", "none"}, {"activation_offload", "trl"}},
      {{"clip_grad_norm", "false"}, {"deepspeed.gradient_clipping", "1"}},
  };
  for (Options options : contradictions)
    for (int order = 0; order < 2; ++order) {
      const std::string message = error_of_options(options);
      for (std::string key : {options[0].first, options[1].first}) {
        std::replace(key.begin(), key.end(), '_', '-');
        EXPECT_NE(message.find("--" + key), std::string::npos) << options[0].first << ", " << options[1].first << ": " << message;
      }
      std::swap(options[0], options[1]);
    }
  const Options agreements[] = {
      {{"zero", "2"}, {"zero_stage", "2"}},
      {{"data_parallel", "fsdp2"}, {"fsdp", "full"}},
      {{"data_parallel", "hsdp"}, {"fsdp", "hybrid"}},
      {{"precision", "bf16"}, {"autocast", "bf16"}},
      {{"precision", "mixed-bf16"}, {"deepspeed.bf16.enabled", "true"}},
      {{"seq", "128"}, {"seq", "256"}},
  };
  for (Options options : agreements)
    for (int order = 0; order < 2; ++order) {
      EXPECT_EQ(error_of_options(options), "no error");
      std::swap(options[0], options[1]);
    }
}

// A command line comes on top of a file.
TEST(SetOptions, ReplaceWhatAFileSaid) {
  Strategy s = parse_strategy(R"({"zero_stage": 1, "seq_len": 128})", "strategy");
  set_options(s, {{"data_parallel", "zero3"}, {"seq", "256"}});
  EXPECT_EQ(s.data_parallel, DataParallel::zero3);
  EXPECT_EQ(s.seq_len, 256);
  EXPECT_EQ(s.options.size(), 2u);
}

TEST(SetOption, TakesTheCommandLinesForms) {
  Strategy s;
  set_option(s, "micro-batch", "2");
  set_option(s, "micro-batch", "4");
  EXPECT_EQ(s.micro_batch, 4) << "the later one wins";
  set_option(s, "zero", "2");
  EXPECT_EQ(s.data_parallel, DataParallel::zero2);
  set_option(s, "fsdp", "hybrid");
  EXPECT_EQ(s.data_parallel, DataParallel::hsdp);
  set_option(s, "fsdp.units", "LlamaDecoderLayer,Embedding");
  EXPECT_EQ(s.fsdp.units.size(), 2u);
  set_option(s, "torch", "2.15");
  EXPECT_EQ(s.releases.of(Package::torch).text(), "2.15");
  EXPECT_THROW(set_option(s, "tq", "2"), Error);
  EXPECT_THROW(set_option(s, "tp", "two"), Error);
}

// Accelerate's configuration file and its launcher: MS-AMP takes the place of 8-bit products over 16-bit training, at O2 unless said.
TEST(ReadStrategy, AcceleratesBackendsOfEightBits) {
  const auto read = [](const char* keys) { return parse_strategy(std::string("{") + keys + "}", "strategy"); };
  EXPECT_EQ(read(R"("mixed_precision": "fp8", "fp8_config": {"backend": "MSAMP"})").precision, Precision::msamp_o2);
  EXPECT_EQ(read(R"("fp8_backend": "msamp", "mixed_precision": "fp8")").precision, Precision::msamp_o2);
  for (const char* keys : {R"("mixed_precision": "fp8", "fp8_config": {"backend": "MSAMP", "optimization_level": "O1"})",
                           R"("fp8_opt_level": "O1", "fp8_backend": "msamp", "precision": "fp8")"}) {
    EXPECT_EQ(read(keys).precision, Precision::msamp_o1) << keys;
    EXPECT_EQ(read(keys).low_precision, LowPrecision::none) << keys;
  }
  const Strategy te = read(R"("mixed_precision": "fp8", "fp8_backend": "te")"),
                 ao = read(R"("mixed_precision": "fp8", "fp8_backend": "ao")");
  EXPECT_EQ(te.low_precision, LowPrecision::fp8);
  EXPECT_EQ(te.fp8_scaling, Fp8Scaling::delayed);
  EXPECT_EQ(ao.low_precision, LowPrecision::fp8);
  EXPECT_EQ(ao.fp8_scaling, Fp8Scaling::automatic);
  EXPECT_EQ(read(R"("fp8_backend": "ao", "fp8_recipe": "rowwise")").fp8_scaling, Fp8Scaling::rowwise);
  EXPECT_EQ(read(R"("mixed_precision": "no")").precision, Precision::fp32);
  EXPECT_THROW(read(R"("mixed_precision": "fp4")"), Error);
  EXPECT_THROW(read(R"("mixed_precision": "bf16", "fp8_opt_level": "O1")"), Error);
}

// Keys that nothing knows are listed in the report; but where all that a file says lies below such a key, it would say nothing.
TEST(ParseStrategy, AFileWrappedInAnotherKey) {
  EXPECT_EQ(parse_strategy(R"({"tp": 2, "notes": {"author": "x"}})", "s").unread_keys, std::vector<std::string>{"notes"});
  EXPECT_THROW(parse_strategy(R"({"training": {"tp": 2}})", "s"), Error);
}

TEST(SetOption, EveryOptionIsDocumented) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/docs/rows.md");
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const auto& option : strategy_options()) {
    if (option.key.rfind("deepspeed.", 0) == 0) continue;  // DeepSpeed's own documentation
    EXPECT_NE(page.find("| `" + option.key + "` |"), std::string::npos) << option.key;
  }
}

TEST(SetOption, EveryOptionIsListedWithHelp) {
  for (const auto& option : strategy_options()) EXPECT_FALSE(option.key.empty());
  EXPECT_GT(strategy_options().size(), 100u);
}

}  // namespace
}  // namespace plimsoll
