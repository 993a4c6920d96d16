// TRL's trainers: what a run takes by itself, and what does not go together.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

Strategy resolved(Options options) {
  options.insert(options.end(), {{"seq_len", "1024"}, {"precision", "amp-bf16"}});
  Strategy strategy;
  set_options(strategy, options);
  return resolve(strategy, load_model("llama-3.2-1b"), parse_cluster("1xh100-sxm"));
}

std::string message_of(const Options& options) {
  try {
    resolved(options);
  } catch (const Error& error) {
    return error.message() + " | " + error.hint();
  }
  return "";
}

bool assumes(const Strategy& strategy, const std::string& start) {
  return std::any_of(strategy.assumed.begin(), strategy.assumed.end(), [&](const std::string& line) { return line.rfind(start, 0) == 0; });
}

TEST(PostTraining, DpoTakesTheReferenceThatGoesWithItsAdapters) {
  const Strategy whole = resolved({{"task", "dpo"}});
  EXPECT_EQ(whole.framework, "accelerate");
  EXPECT_EQ(whole.post_training->reference, PostTraining::Reference::model);
  EXPECT_EQ(whole.sequences_per_sample(), 2);
  EXPECT_TRUE(assumes(whole, "trl: 1.16"));
  EXPECT_TRUE(assumes(whole, "prompt_len: 1 of 1024"));
  const Strategy adapted = resolved({{"task", "dpo"}, {"lora.r", "8"}});
  EXPECT_EQ(adapted.post_training->reference, PostTraining::Reference::adapter_off);
}

// disable_dropout of TRL 1.16's configurations: True of DPO, KTO, ORPO, CPO and rewards, False of GRPO and RLOO; SFTConfig has none.
TEST(PostTraining, TrainersOfPreferencesSwitchDropoutOff) {
  for (const char* task : {"dpo", "kto", "orpo", "cpo", "reward"})
    EXPECT_TRUE(resolved({{"task", task}, {"micro_batch", "2"}}).post_training->disable_dropout.value()) << task;
  for (const char* task : {"grpo", "rloo", "trl-sft"})
    EXPECT_FALSE(resolved({{"task", task}}).post_training->disable_dropout.value()) << task;
  EXPECT_FALSE(resolved({{"task", "dpo"}, {"disable_dropout", "false"}}).post_training->disable_dropout.value());
  EXPECT_NE(message_of({{"task", "trl-sft"}, {"disable_dropout", "true"}}).find("SFTTrainer switches no dropout off"), std::string::npos);
}

// router_aux_loss_coef since TRL 1.8, by itself the config's, or where that has none the class's, which is not 0; a dense model has none.
TEST(PostTraining, TrainersOfMixturesLearnTheirRoutersBalance) {
  const auto learns = [](const Model& model, const std::string& task, const std::string& trl) {
    Strategy strategy;
    set_options(strategy, {{"task", task}, {"releases.trl", trl}, {"seq_len", "512"}, {"precision", "amp-bf16"}});
    return resolve(strategy, model, parse_cluster("1xh100-sxm")).post_training->router_loss.value_or(false);
  };
  const auto mixture = [](const std::string& weight) {
    return parse_model(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
                           "num_hidden_layers": 2, "num_attention_heads": 4, "num_local_experts": 4, "vocab_size": 320)" +
                           weight + "}",
                       "config.json", "small");
  };
  EXPECT_TRUE(learns(mixture(""), "trl-sft", "1.16"));
  EXPECT_TRUE(learns(mixture(R"(, "router_aux_loss_coef": 0.02)"), "dpo", "1.16"));
  EXPECT_FALSE(learns(mixture(R"(, "router_aux_loss_coef": 0.0)"), "trl-sft", "1.16"));
  EXPECT_FALSE(learns(mixture(""), "dpo", "1.6"));
  EXPECT_FALSE(learns(load_model("llama-3.2-1b"), "trl-sft", "1.16"));
  EXPECT_NE(message_of({{"task", "trl-sft"}, {"router_loss", "true"}}).find("TRL's trainers of mixtures"), std::string::npos);
}

// liger-kernel 0.8.5 sets model.forward to a causal model's; own loops patch the class LlamaForCausalLM.
TEST(PostTraining, LigersForwardHasNoHeadOfRewards) {
  EXPECT_NE(message_of({{"task", "reward"}, {"liger_kernel", "true"}}).find("lm_head"), std::string::npos);
  EXPECT_EQ(message_of({{"task", "dpo"}, {"liger_kernel", "true"}}), "");
}

// By the __init__ of the trainers of TRL 0.25.1, 0.26.2, 0.27.0, 0.29.1, 1.9.0 and 1.16.0: param.data.to(torch.bfloat16) of what is trained
// over 4 or 8 bits; autocast_adapter_dtype False under ZeRO-3, whose base has the engine's 16 bits.
TEST(PostTraining, TrlDecidesTheTypeOfAdapters) {
  const Options adapters{{"lora.r", "8"}, {"base_weights", "nf4"}};
  const auto type = [&](const std::string& task, const std::string& trl, Options more) {
    more.insert(more.end(), {{"task", task}, {"releases.trl", trl}, {"micro_batch", "2"}, {"lora.target_modules", "q_proj,v_proj"}});
    return resolved(more).lora->adapter_dtype;
  };
  EXPECT_EQ(type("trl-sft", "1.16", adapters), DType::bf16);
  EXPECT_EQ(type("trl-sft", "0.25.1", adapters), DType::fp32);
  EXPECT_EQ(type("dpo", "0.27", adapters), DType::fp32);
  EXPECT_EQ(type("dpo", "0.29.1", adapters), DType::bf16);
  EXPECT_EQ(type("kto", "0.29.1", adapters), DType::fp32);
  EXPECT_EQ(type("kto", "1.9", adapters), DType::bf16);
  EXPECT_EQ(type("orpo", "1.16", adapters), DType::fp32);
  EXPECT_EQ(type("dpo", "1.16", {{"lora.r", "8"}, {"base_weights", "nf4"}, {"lora.adapter_dtype", "fp32"}}), DType::fp32);
  EXPECT_EQ(type("dpo", "1.16", {{"lora.r", "8"}}), DType::fp32);
  Strategy sharded;
  set_options(sharded, {{"task", "dpo"}, {"lora.r", "8"}, {"framework", "deepspeed"}, {"data_parallel", "zero3"}, {"seq_len", "1024"}, {"precision", "bf16"}});
  EXPECT_EQ(resolve(sharded, load_model("llama-3.2-1b"), parse_cluster("8xh100-sxm")).lora->adapter_dtype, DType::bf16);
}

// RewardTrainer, ORPO and CPO compare with nothing; KTO and RLOO (beta 0.05) as DPO does.
TEST(PostTraining, EachTrainerTakesItsOwnReference) {
  for (const char* task : {"reward", "orpo", "cpo"}) {
    EXPECT_EQ(resolved({{"task", task}}).post_training->reference, PostTraining::Reference::none) << task;
    EXPECT_NE(message_of({{"task", task}, {"reference", "model"}}).find("compares with nothing"), std::string::npos) << task;
  }
  for (const char* task : {"kto", "rloo"}) {
    EXPECT_EQ(resolved({{"task", task}, {"micro_batch", "2"}}).post_training->reference, PostTraining::Reference::model) << task;
    EXPECT_EQ(resolved({{"task", task}, {"micro_batch", "2"}, {"lora.r", "8"}}).post_training->reference, PostTraining::Reference::adapter_off) << task;
  }
  EXPECT_EQ(resolved({{"task", "rloo"}, {"micro_batch", "2"}}).post_training->old_log_probs, true);
}

// KTOTrainer.__init__ refuses a batch of one beside the KL term; PEFT trains a classifier's head whole; a reward model has no prompt.
TEST(PostTraining, TermsAndHeadsOfTheOthers) {
  EXPECT_NE(message_of({{"task", "kto"}, {"micro_batch", "1"}}).find("refuses a batch of one"), std::string::npos);
  EXPECT_EQ(message_of({{"task", "kto"}, {"micro_batch", "1"}, {"kl_batch", "false"}}), "");
  EXPECT_EQ(resolved({{"task", "cpo"}}).post_training->supervised_term, true);
  EXPECT_NE(message_of({{"task", "dpo"}, {"supervised_term", "true"}}).find("a choice of CPO's"), std::string::npos);
  EXPECT_NE(message_of({{"task", "orpo"}, {"kl_batch", "true"}}).find("are KTO's"), std::string::npos);
  EXPECT_NE(message_of({{"task", "reward"}, {"prompt_len", "100"}}).find("whole texts"), std::string::npos);
  const Strategy adapted = resolved({{"task", "reward"}, {"lora.r", "8"}});
  EXPECT_EQ(adapted.lora->modules_to_save, std::vector<std::string>{"score"});
}

// The newest TRL is not what LLaMA-Factory 0.9.5 (trl<=0.24) and ms-swift 4.6 (trl<1.0) run.
TEST(PostTraining, SubclassesRunTheTrlThatTheyTake) {
  EXPECT_TRUE(assumes(resolved({{"task", "dpo"}, {"trainer", "llama-factory"}}), "trl: 0.24"));
  EXPECT_TRUE(assumes(resolved({{"task", "dpo"}, {"trainer", "ms-swift"}}), "trl: 0.29"));
  EXPECT_EQ(message_of({{"task", "kto"}, {"trainer", "ms-swift"}, {"micro_batch", "1"}}), "");
}

// The one that was out on the day of the transformers that was said: 4.51 of April 2025, before 0.17.
TEST(PostTraining, TrlIsOfTheTimeOfTransformers) {
  const Strategy strategy = resolved({{"task", "dpo"}, {"releases.transformers", "4.51.0"}});
  EXPECT_TRUE(assumes(strategy, "trl: 0.16")) << strategy.releases.text();
}

// GRPOConfig.beta is 0.04 until 0.17; vllm_mode is "server" before 1.0.
TEST(PostTraining, GrpoTakesItsReleasesDefaults) {
  const Strategy now = resolved({{"task", "grpo"}});
  EXPECT_EQ(now.post_training->reference, PostTraining::Reference::none);
  EXPECT_EQ(now.post_training->rollout, PostTraining::Rollout::colocated);
  EXPECT_DOUBLE_EQ(now.post_training->engine_share, 0.3);
  EXPECT_EQ(now.sequences_per_sample(), 1);
  const Strategy before = resolved({{"task", "grpo"}, {"releases.trl", "0.16"}});
  EXPECT_EQ(before.post_training->reference, PostTraining::Reference::model);
  EXPECT_EQ(before.post_training->rollout, PostTraining::Rollout::elsewhere);
}

TEST(PostTraining, WhatDoesNotGoTogetherIsNamed) {
  EXPECT_NE(message_of({{"task", "dpo"}, {"reference", "adapter-off"}}).find("only a model with adapters"), std::string::npos);
  EXPECT_NE(message_of({{"task", "dpo"}, {"reference", "model"}, {"lora.r", "8"}}).find("beside adapters"), std::string::npos);
  EXPECT_NE(message_of({{"task", "dpo"}, {"reference", "none"}}).find("compares with a reference"), std::string::npos);
  EXPECT_NE(message_of({{"task", "grpo"}, {"reference", "precomputed"}}).find("written in training"), std::string::npos);
  EXPECT_NE(message_of({{"task", "dpo"}, {"prompt_len", "1024"}}).find("leaves no answer"), std::string::npos);
  EXPECT_NE(message_of({{"task", "dpo"}, {"engine_share", "0.3"}}).find("no answers are written"), std::string::npos);
  EXPECT_NE(message_of({{"task", "grpo"}, {"rollout", "elsewhere"}, {"engine_share", "0.3"}}).find("devices of its own"), std::string::npos);
  EXPECT_NE(message_of({{"task", "dpo"}, {"framework", "torchtitan"}}).find("torchtitan does not run"), std::string::npos);
  EXPECT_NE(message_of({{"prompt_len", "64"}}).find("no such task is said"), std::string::npos);
  EXPECT_NE(message_of({{"task", "grpo"}, {"engine_share", "1.5"}}), "");
}

TEST(PostTraining, AMixturesRoutersLossIsRefusedByName) {
  Strategy strategy;
  set_options(strategy, {{"task", "grpo"}, {"seq_len", "1024"}, {"prompt_len", "256"}});
  const Model mixture = load_model("mixtral-8x7b");
  try {
    resolve(strategy, mixture, parse_cluster("8xh100-sxm"));
    FAIL() << "answered";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("auxiliary loss"), std::string::npos) << error.message();
  }
  set_option(strategy, "releases.trl", "1.6");
  EXPECT_NO_THROW(resolve(strategy, mixture, parse_cluster("8xh100-sxm")));
}

Strategy by_verl(const Options& options) {
  Strategy strategy;
  set_options(strategy, {{"task", "grpo"}, {"trainer", "verl"}});
  set_options(strategy, options);
  return resolve(strategy, load_model("llama-3.2-1b"), parse_cluster("1xh100-sxm"));
}

// An update of 40 answers of 2,048 tokens in rows of at most 24,000: 81,920 tokens need 4 rows, in which 10 answers are 20,480 tokens; shorter
// ones fill 24,000. Of 8 answers of 12,288 in rows of 16,384, 6 rows are needed, and the largest has two: 24,576.
TEST(PostTraining, VerlFillsRowsOfTokens) {
  const Strategy many = by_verl({{"seq_len", "2048"}, {"answers", "40"}, {"row_tokens", "24000"}});
  EXPECT_EQ(many.post_training->workers.row_tokens, 24000);
  EXPECT_EQ(many.micro_batch, 12);
  EXPECT_EQ(many.grad_accum, 3);
  const Strategy few = by_verl({{"seq_len", "12288"}, {"answers", "8"}, {"row_tokens", "16384"}});
  EXPECT_EQ(few.post_training->workers.row_tokens, 24576);
  EXPECT_EQ(few.grad_accum, 4);
}

// What verl's FSDPEngine takes by itself: fp32 weights that are gathered in bf16 and reduced in fp32, flash attention, checkpoints, flat parameters.
TEST(PostTraining, VerlTakesItsOwnDefaults) {
  const Strategy s = by_verl({{"lora.r", "8"}});
  EXPECT_EQ(s.framework, "transformers");
  EXPECT_EQ(s.data_parallel, DataParallel::fsdp1);
  EXPECT_EQ(s.param_dtype, DType::fp32);
  EXPECT_EQ(s.reduce_dtype, DType::fp32);
  EXPECT_EQ(s.lora->adapter_dtype, DType::fp32);
  EXPECT_EQ(s.attention, AttentionKernel::flash);
  EXPECT_EQ(s.recompute.kind, Recompute::Kind::full);
  EXPECT_EQ(s.fsdp.use_orig_params, false);
  EXPECT_DOUBLE_EQ(s.post_training->engine_share, 0.5);
  EXPECT_EQ(s.post_training->workers.score_tokens, s.micro_batch * s.seq_len);
  EXPECT_TRUE(assumes(s, "verl: 0.9.1"));
}

TEST(PostTraining, WhatVerlHasNotIsNamed) {
  const auto said = [](const Options& options) {
    try {
      by_verl(options);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  EXPECT_NE(said({{"task", "rloo"}}).find("without a critic"), std::string::npos);
  EXPECT_NE(said({{"framework", "deepspeed"}}).find("run transformers' modules"), std::string::npos);
  EXPECT_NE(said({{"data_parallel", "ddp"}}).find("under FSDP"), std::string::npos);
  EXPECT_NE(said({{"releases.verl", "0.5"}}).find("verl 0.5 is not modelled"), std::string::npos);
  EXPECT_NE(said({{"row_tokens", "16384"}}).find("how many an update has"), std::string::npos);
  EXPECT_NE(said({{"precision", "fp32"}}).find("computes in bf16"), std::string::npos);
  EXPECT_NE(said({{"seq_len", "4096"}, {"answers", "8"}, {"row_tokens", "2048"}}).find("does not hold a sequence"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
