// From what was said to what runs: completion, and contradictions named together.
#include <gtest/gtest.h>

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

/// A dense decoder with Llama-3.1-8B's dimensions; resolve() reads only these.
Model llama_8b() {
  Model model;
  model.layers = 32;
  model.heads = 32;
  model.kv_heads = 8;
  model.hidden_size = 4096;
  model.max_positions = 131072;
  return model;
}

Cluster gpus(std::int64_t nodes, int per_node) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = per_node;
  cluster.accelerator.memory_usable.value = Bytes(80LL << 30);
  return cluster;
}

Strategy resolved(const std::string& json, std::int64_t nodes = 1, int per_node = 8) {
  return resolve(parse_strategy(json, "s"), llama_8b(), gpus(nodes, per_node));
}

std::string error_of(const std::string& json, std::int64_t nodes = 1, int per_node = 8) {
  try {
    resolved(json, nodes, per_node);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Resolve, GpusAndGlobalBatchDecideWhatFollows) {
  // 64 GPUs / (tp 4 · pp 2) = 8 data-parallel ranks; 256 / (2 · 8) = 16 micro-batches.
  const Strategy s =
      resolved(R"({"framework": "megatron-core", "tp": 4, "pp": 2, "global_batch": 256, "micro_batch": 2, "seq_len": 8192})", 8, 8);
  EXPECT_EQ(s.dp, 8);
  EXPECT_EQ(s.gpus, 64);
  EXPECT_EQ(s.micro_batches, 16);
  EXPECT_EQ(s.grad_accum, 1) << "one run of the schedule per step";
  EXPECT_EQ(s.pp_schedule, "1f1b");
  EXPECT_EQ(s.global_batch, 256);
}

// torchtitan's parallel_dims: fully_shard over dp_shard · cp, so that context parallelism over all 8 GPUs shards the states by 8.
// Megatron's distributed optimizer is another choice: without it a context-parallel rank keeps them whole.
TEST(Resolve, ContextParallelRanksShareTheStatesUnderFsdp) {
  const Strategy titan = resolved(R"({"framework": "torchtitan", "cp": 8, "micro_batch": 1, "seq_len": 8192})");
  EXPECT_EQ(titan.data_parallel, DataParallel::fsdp2);
  EXPECT_EQ(titan.dp, 1);
  EXPECT_EQ(titan.fsdp_degree, 8);
  EXPECT_EQ(resolved(R"({"framework": "torchtitan", "tp": 8, "micro_batch": 1, "seq_len": 8192})").data_parallel, DataParallel::none);
}

// 7 B parameters beside LoRA on 24 GB: 13 GiB in 16 bits, as they are loaded; a recipe that is said stands ("bf16" leaves it open, and is
// what is taken where nothing is said), and what is trained is fp32.
TEST(Resolve, FrozenWeightsStayAsCheckpointsHoldThem) {
  const auto param = [](const std::string& more) {
    return *resolved(R"({"micro_batch": 1, "seq_len": 128)" + more + "}", 1, 1).param_dtype;
  };
  const std::string lora = R"(, "lora": {"r": 8, "target_modules": ["q_proj"]})";
  EXPECT_EQ(param(""), DType::fp32);
  EXPECT_EQ(param(lora), DType::bf16);
  EXPECT_EQ(param(lora + R"(, "precision": "bf16")"), DType::bf16);
  EXPECT_EQ(param(lora + R"(, "precision": "amp-bf16")"), DType::fp32);
  EXPECT_EQ(param(lora + R"(, "param_dtype": "fp32")"), DType::fp32);
}

TEST(Resolve, WhatFollowsFromAContradictionIsNotSaidBesides) {
  const std::string error = error_of(R"({"framework": "megatron-core", "tp": 8, "pp": 2, "micro_batch": 1, "seq_len": 128})");
  EXPECT_TRUE(contains(error, "8 GPUs are no multiple of tp")) << error;
  EXPECT_FALSE(contains(error, "takes 16 GPUs")) << error;
}

TEST(Resolve, MicroBatchesOfTorchtitansPipeline) {
  // local batch 8 in micro-batches of 1, one run per step, 4 replicas: 32 sequences.
  const Strategy s = resolved(R"({"framework": "torchtitan", "data_parallel": "fsdp", "pp": 4, "dp": 4, "micro_batch": 1, "local_batch": 8,
      "grad_accum": 1, "micro_batches_per_step": 8, "global_batch": 32, "seq_len": 4096, "precision": "bf16"})",
                              2, 8);
  EXPECT_EQ(s.micro_batches, 8);
  EXPECT_EQ(s.grad_accum, 1);
  // Megatron counts the same micro-batches under both names and runs its schedule once.
  const Strategy megatron =
      resolved(R"({"framework": "megatron-core", "tp": 1, "pp": 4, "vp": 2, "dp": 2, "micro_batch": 1, "grad_accum": 8,
      "micro_batches_per_step": 8, "global_batch": 16})");
  EXPECT_EQ(megatron.micro_batches, 8);
  EXPECT_EQ(megatron.grad_accum, 1);
  EXPECT_EQ(megatron.pp_schedule, "interleaved-1f1b");
}

TEST(Resolve, LayersAreDealtToStagesAsTheFrameworkDealsThem) {
  auto cut = [](const std::string& json, std::int64_t layers) {
    Model model = llama_8b();
    model.layers = layers;
    model.intermediate_size = 14336;
    model.vocab_size = 128256;
    return resolve(parse_strategy(json, "s"), model, gpus(64, 8)).pp_layers;
  };
  // torchtitan 0.3.0 printed, for 8B in 4 stages: layers 0–7, 8–16, 17–24, 25–31; in 8: 0–3, 4–8, …, 29–31.
  EXPECT_EQ(cut(R"({"framework": "torchtitan", "pp": 4, "micro_batch": 1, "global_batch": 2048})", 32), (std::vector<int>{8, 9, 8, 7}));
  EXPECT_EQ(cut(R"({"framework": "torchtitan", "pp": 8, "micro_batch": 1, "global_batch": 2048})", 32),
            (std::vector<int>{4, 5, 4, 4, 4, 4, 4, 3}));
  // Its 2024 code: 126 layers in 8 stages, 15 and remainder 6: 15, six of 16, 15.
  EXPECT_EQ(cut(R"({"framework": "torchtitan", "framework_version": "2024-12", "pp": 8, "global_batch": 1024, "micro_batch": 1})", 126),
            (std::vector<int>{15, 16, 16, 16, 16, 16, 16, 15}));
  // Megatron's launchers: (126 + 2) / 8 = 16, the ends one less; 32 layers divide by themselves.
  EXPECT_EQ(cut(R"({"framework": "nemo", "pp": 8})", 126), (std::vector<int>{15, 16, 16, 16, 16, 16, 16, 15}));
  EXPECT_EQ(cut(R"({"framework": "nemo", "pp": 4})", 32), (std::vector<int>{8, 8, 8, 8}));
  // The keys are Megatron-core's own: 6 + 2 ends on 4 · 2 chunks leave those of embedding and head without layers.
  EXPECT_EQ(cut(R"({"framework": "megatron-core", "pp": 4, "vp": 2, "micro_batch": 1})", 6), (std::vector<int>{0, 1, 1, 1, 1, 1, 1, 0}));
  // DeepSpeed: 70 layers in 8 stages, 9 · 6 + 8 · 2; before 0.12.5 9 · 7 + 7, as runs on LUMI printed.
  EXPECT_EQ(cut(R"({"framework": "megatron-deepspeed", "framework_version": "DeepSpeed 0.8.1, torch 1.13.1", "pp": 8})", 70),
            (std::vector<int>{9, 9, 9, 9, 9, 9, 9, 7}));
  EXPECT_EQ(cut(R"({"framework": "megatron-deepspeed", "pp": 8})", 70), (std::vector<int>{9, 9, 9, 9, 9, 9, 8, 8}));
  // nanotron: a layer costs 4 · 4096² + 3 · 14336 · 4096 = 243,269,632, the head 128256 · 4096 = 525,336,576 = 2.16 layers: half of 34.16
  // is passed by the 18th layer.
  EXPECT_EQ(cut(R"({"framework": "nanotron", "pp": 2})", 32), (std::vector<int>{18, 14}));
}

// h 2048, MLP 8192, vocabulary 131072: the head costs as much as 131072 / (4 · 2048 + 3 · 8192) = 4 of 16 layers, so that half is ten
// layers exactly. Published runs hold 10 of them on rank 0 since 27 December 2024, 11 before.
TEST(Resolve, NanotronsTiesBetweenStages) {
  Model model = llama_8b();
  model.hidden_size = 2048;
  model.intermediate_size = 8192;
  model.vocab_size = 131072;
  model.layers = 16;
  const auto cut = [&](const char* json) { return resolve(parse_strategy(json, "s"), model, gpus(64, 8)).pp_layers; };
  EXPECT_EQ(cut(R"({"framework": "nanotron", "pp": 2})"), (std::vector<int>{10, 6}));
  EXPECT_EQ(cut(R"({"framework": "nanotron", "pp": 2, "framework_version": "2024-12-18"})"), (std::vector<int>{11, 5}));
  EXPECT_EQ(cut(R"({"framework": "nanotron", "pp": 4})"), (std::vector<int>{5, 5, 5, 1}));
  EXPECT_EQ(cut(R"({"framework": "nanotron", "pp": 4, "framework_version": "2024-12-18"})"), (std::vector<int>{6, 5, 5, 0}));
}

/// NeMo's and Megatron-Bridge's LoRA(): dim 32 on all four linears of a layer. Megatron-core itself has no adapters of its own.
TEST(Resolve, LaunchersAdaptersHaveDefaults) {
  const Strategy s = resolved(R"({"framework": "nemo", "task": "lora", "lora": {}})");
  EXPECT_EQ(s.lora->r, 32);
  EXPECT_EQ(s.lora->targets.size(), 4u);
  EXPECT_EQ(resolved(R"({"framework": "nemo", "task": "lora", "lora": {"r": 8}})").lora->r, 8);
  EXPECT_TRUE(contains(error_of(R"({"framework": "megatron-core", "task": "lora", "lora": {}})"), "lora.r"));
}

// Most of Primus' shipped configs turn off what Megatron does wherever apex has the kernel.
TEST(Resolve, PrimusAccumulatesGradientsApart) {
  const auto fuses = [](const std::string& more) {
    const Strategy s = resolved((R"({"micro_batch": 1, "seq_len": 4096, "framework": )" + more + "}").c_str());
    return *s.megatron.gradient_accumulation_fusion;
  };
  EXPECT_FALSE(fuses(R"("primus")"));
  EXPECT_TRUE(fuses(R"("primus", "gradient_accumulation_fusion": true)"));
  EXPECT_TRUE(fuses(R"("megatron-bridge")"));
}

TEST(Resolve, UnfusedAndEagerAttentionAreOneThing) {
  EXPECT_EQ(resolved(R"({"framework": "transformers", "attention": "unfused"})").attention, AttentionKernel::eager);
  EXPECT_EQ(resolved(R"({"framework": "megatron-core", "attention": "eager"})").attention, AttentionKernel::unfused);
}

// BloomPreTrainedModel has no _supports_sdpa: transformers takes its eager attention, unless another is asked for.
TEST(Resolve, AClassWithoutSdpaTakesEagerAttention) {
  const auto attention = [](const char* model, const std::string& json) {
    return resolve(parse_strategy(json, "s"), load_model(model), gpus(1, 1)).attention;
  };
  EXPECT_EQ(attention("bloom-560m", "{}"), AttentionKernel::eager);
  EXPECT_EQ(attention("gemma-2-2b", "{}"), AttentionKernel::eager);
  EXPECT_EQ(attention("bloom-560m", R"({"attention": "sdpa"})"), AttentionKernel::sdpa);
  EXPECT_EQ(attention("gpt2", "{}"), AttentionKernel::sdpa);
}

TEST(Resolve, SixteenBitsMeanWhatTheFrameworkDoes) {
  // Bytes per parameter of modelling §2.1 follow from these types: Trainer's autocast keeps fp32 weights, Megatron 16-bit ones with a
  // master.
  const Strategy hf = resolved(R"({"framework": "transformers", "precision": "bf16", "data_parallel": "ddp"})");
  EXPECT_EQ(hf.precision, Precision::amp_bf16);
  EXPECT_EQ(hf.param_dtype, DType::fp32);
  EXPECT_EQ(hf.compute_dtype, DType::bf16);
  const Strategy megatron = resolved(R"({"framework": "megatron-core", "precision": "bf16"})");
  EXPECT_EQ(megatron.precision, Precision::mixed_bf16);
  EXPECT_EQ(megatron.param_dtype, DType::bf16);
  EXPECT_EQ(megatron.grad_dtype, DType::fp32) << "main_grad";
  EXPECT_EQ(megatron.master_weights, true);
  const Strategy titan = resolved(R"({"framework": "torchtitan", "precision": "bf16"})");
  EXPECT_EQ(titan.precision, Precision::fsdp_mixed_bf16);
  EXPECT_EQ(titan.param_dtype, DType::fp32);
  EXPECT_EQ(titan.reduce_dtype, DType::fp32);
  const Strategy deepspeed = resolved(R"({"framework": "deepspeed", "precision": "bf16", "zero_stage": 2})");
  EXPECT_EQ(deepspeed.grad_dtype, DType::bf16);
  EXPECT_EQ(deepspeed.state_dtype, DType::fp32);
  const Strategy tune = resolved(R"({"framework": "torchtune", "precision": "bf16", "master_dtype": "none"})", 1, 1);
  EXPECT_EQ(tune.precision, Precision::pure_bf16);
  EXPECT_EQ(tune.master_weights, false);
}

TEST(Resolve, FsdpIsTheFrameworksOwn) {
  EXPECT_EQ(resolved(R"({"data_parallel": "fsdp"})").data_parallel, DataParallel::fsdp2);
  EXPECT_EQ(resolved(R"({"data_parallel": "fsdp", "framework": "llm-foundry"})").data_parallel, DataParallel::fsdp1);
  EXPECT_EQ(resolved(R"({"data_parallel": "fsdp", "framework": "llm-foundry"})").fsdp.backward_prefetch, FsdpOptions::Prefetch::post);
  EXPECT_EQ(resolved(R"({"data_parallel": "fsdp", "framework": "megatron-bridge"})").data_parallel, DataParallel::megatron_fsdp);
  EXPECT_EQ(resolved(R"({"fsdp": "none"})").data_parallel, DataParallel::fsdp1) << "fully_shard has no NO_SHARD";
  const Strategy hybrid = resolved(R"({"fsdp": "hybrid"})", 4, 8);
  EXPECT_EQ(hybrid.dp_shard, 8) << "the GPUs of a node";
  EXPECT_EQ(hybrid.dp_replicate, 4);
  EXPECT_EQ(resolved(R"({"fsdp": "grad-op"})").fsdp.reshard, FsdpOptions::Reshard::never);
}

TEST(Resolve, TheUsualFrameworkIsTakenAndTold) {
  const Strategy s = resolved(R"({"zero": 3})");
  EXPECT_EQ(s.framework, "deepspeed");
  EXPECT_EQ(s.deepspeed.overlap_comm, true) << "stage 3 overlaps by default";
  EXPECT_EQ(s.deepspeed.wrapper, "DeepSpeedZeroOptimizer_Stage3");
  EXPECT_NE(std::find(s.assumed.begin(), s.assumed.end(), "framework: deepspeed"), s.assumed.end());
  EXPECT_EQ(resolved(R"({"tp": 8})").framework, "megatron-core");
  EXPECT_EQ(resolved(R"({"tp": 2, "data_parallel": "fsdp"})").framework, "torchtitan");
}

// get_megatron_optimizer raises at any but Adam, SGD and Muon; TorchTitan's OptimizersContainer knows Adam, AdamW and DistMuon.
TEST(Resolve, AFrameworkHasItsOwnOptimizersAlone) {
  const auto takes = [](const char* framework, const char* optimizer) {
    return resolved(std::string(R"({"framework": ")") + framework + R"(", "optimizer": ")" + optimizer + "\"}").gpus > 0;
  };
  EXPECT_TRUE(takes("megatron-core", "sgd"));
  EXPECT_THROW(takes("megatron-core", "adamw-torch-8bit"), Error);
  EXPECT_THROW(takes("megatron-core", "lion"), Error);
  EXPECT_TRUE(takes("torchtitan", "adamw"));
  EXPECT_THROW(takes("torchtitan", "sgd"), Error);
  EXPECT_TRUE(takes("transformers", "adamw-torch-8bit"));
}

TEST(Resolve, CompileTrueIsWhatTheFrameworksSwitchCompiles) {
  using Compile = Strategy::Compile;
  EXPECT_EQ(resolved(R"({"framework": "transformers", "compile": true})", 1, 1).compile, Compile::model);
  EXPECT_EQ(resolved(R"({"framework": "accelerate", "compile": true})", 1, 1).compile, Compile::model);
  EXPECT_EQ(resolved(R"({"framework": "transformers", "data_parallel": "fsdp2", "compile": true})").compile, Compile::model)
      << "the graphs between hooks are the model's frames";
  EXPECT_EQ(resolved(R"({"framework": "transformers", "data_parallel": "fsdp1", "compile": true})").compile, Compile::blocks)
      << "hooks of sharded blocks cut the graph";
  EXPECT_EQ(resolved(R"({"framework": "transformers", "data_parallel": "ddp", "compile": true})").compile, Compile::model)
      << "DDP wraps the whole model";
  EXPECT_EQ(resolved(R"({"framework": "transformers", "compile": "blocks"})", 1, 1).compile, Compile::blocks);
  EXPECT_EQ(resolved(R"({"framework": "torchtitan", "data_parallel": "fsdp", "compile": true})").compile, Compile::blocks);
}

TEST(Resolve, AllContradictionsAreNamedTogether) {
  const std::string error = error_of(R"({"framework": "megatron-core", "tp": 3, "pp": 5, "global_batch": 10, "micro_batch": 4})");
  EXPECT_TRUE(contains(error, "8 GPUs are no multiple of tp · pp · cp = 3 · 5 · 1 = 15")) << error;
  EXPECT_TRUE(contains(error, "tp 3 does not divide the 32 attention heads")) << error;
  EXPECT_TRUE(contains(error, "tp of 1, 2, 4, 8, 16, 32 does")) << error;
  EXPECT_TRUE(contains(error, "pp · vp = 5 does not divide the 32 layers")) << error;
  EXPECT_TRUE(contains(error, "global_batch 10 is no multiple of micro_batch · dp = 4 · 1 = 4")) << error;
}

TEST(Resolve, TorchtitanHasNoPipelineOfTiedTables) {
  Model model = llama_8b();
  const Strategy said =
      parse_strategy(R"({"framework": "torchtitan", "pp": 2, "micro_batch": 1, "global_batch": 64, "seq_len": 4096})", "s");
  EXPECT_EQ(resolve(said, model, gpus(1, 8)).pp, 2);
  model.tied_embeddings = true;
  EXPECT_THROW(resolve(said, model, gpus(1, 8)), Error);
}

// pytorch/torchtitan: "Adding Qwen3 model to the experiments folder" (#1429) of 18 August 2025.
TEST(Resolve, TorchtitanHasQwen3SinceAugust2025) {
  const auto with = [](const char* release) {
    Strategy said;
    set_options(said, {{"framework", "torchtitan"}, {"micro_batch", "1"}, {"seq_len", "64"}});
    said.releases.put(Package::torchtitan, parse_release("torchtitan", release, "").second);
    return resolve(said, load_model("qwen3-0.6b"), parse_cluster("8xh100-sxm"));
  };
  for (const char* before : {"2025-03", "0.1", "2025-08-17"}) EXPECT_THROW((void)with(before), Error) << before;
  for (const char* since : {"2025-08-18", "0.2", "0.3.0"}) EXPECT_NO_THROW((void)with(since)) << since;
}

TEST(Resolve, RefusesWhatTheFrameworkRefuses) {
  EXPECT_TRUE(contains(error_of(R"({"framework": "transformers", "tp": 2})"), "transformers: tensor parallelism is not modelled"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "torchtitan", "zero": 2})"), "torchtitan has no data_parallel zero2"));
  EXPECT_TRUE(contains(error_of(R"({"precision": "apex-o2"})"), "apex.amp (apex-o2)"));
  EXPECT_TRUE(
      contains(error_of(R"({"framework": "megatron-core", "sequence_parallel": true})"), "sequence_parallel without tensor parallelism"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "megatron-core", "tp": 2, "pp": 4, "vp": 2, "global_batch": 6, "micro_batch": 1})"),
                       "pp_schedule"))
      << "interleaved 1F1B wants micro-batches in multiples of pp";
  EXPECT_TRUE(contains(error_of(R"({"framework": "deepspeed", "zero": 2, "offload": "params"})"), "ZeRO-3 only"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "jax-paxml"})"), "not modelled"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "megatron-core", "data_parallel_sharding_strategy": "optim"})"), "Megatron-FSDP"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "torchtitan", "task": "ia3"})"), "torchtitan has no PEFT"));
  EXPECT_TRUE(contains(error_of(R"({"ep": 4})"), "without experts"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "megatron-core", "pp": 2, "ep": 16, "global_batch": 16, "micro_batch": 1})"),
                       "a multiple of 32 GPUs"));
  EXPECT_TRUE(contains(error_of(R"({"dp": 3})"), "takes 3 GPUs and there are 8"));
  EXPECT_TRUE(contains(error_of(R"({"framework": "torchtian"})"), "did you mean 'torchtitan'"));
}

// MaxText shards with GSPMD, whatever FSDP is called; its remat policy is base.yml's, or that of NVIDIA's recipe of the container.
// "full-block-21-of-80-layers" is said of a model of 80 layers.
TEST(Resolve, RecomputedLayersAreOfTheModelThatHasThem) {
  const auto block = [](const std::string& text) {
    return error_of(R"({"framework": "megatron-core", "recompute": "full-block-)" + text + R"(-layers"})");
  };
  EXPECT_EQ(block("21-of-32"), "no error");
  EXPECT_TRUE(contains(block("21-of-80"), "recompute of 21 layers of 80")) << block("21-of-80");
  EXPECT_TRUE(contains(block("21-of-80"), "has 32")) << block("21-of-80");
}

TEST(Resolve, MaxtextTakesTheRematPolicyOfItsRecipe) {
  const Strategy plain = resolved(R"({"framework": "jax-maxtext"})");
  EXPECT_EQ(plain.data_parallel, DataParallel::fsdp);
  EXPECT_EQ(plain.precision, Precision::amp_bf16);
  EXPECT_EQ(plain.recompute.kind, Recompute::Kind::full);
  EXPECT_EQ(plain.releases.find(Package::torch), nullptr) << "JAX runs without PyTorch";
  const auto recomputed = [](const std::string& container) {
    return resolved(R"({"framework": "maxtext", "framework_version": "NeMo container )" + container + "\"}").recompute.modules;
  };
  EXPECT_EQ(recomputed("24.09 (GPT-3: 24.05)"), (std::vector<std::string>{"context", "mlpwi"}));
  EXPECT_EQ(recomputed("24.12"), (std::vector<std::string>{"context", "mlpwi", "out_proj"}));
}

TEST(Resolve, TorchsReleaseComesFromTheVersionsText) {
  auto release = [](const std::string& version) {
    return resolved(R"({"framework": "torchtitan", "framework_version": ")" + version + "\"}").releases.of(Package::torch).text();
  };
  EXPECT_EQ(release("torchtitan 9dec370 (2024-12-26), torch 1963fc8 (2024-12-23), torchao eab345c"), "2024-12-23");
  EXPECT_EQ(release("2024-12"), "2.6") << "branched then";
  EXPECT_EQ(release("0.3.0"), "2.15");
  const auto torch_of = [](const char* strategy) { return resolved(strategy).releases.of(Package::torch); };
  EXPECT_EQ(torch_of(R"({"framework": "llm-foundry", "framework_version": "torch 2.1.0+cu121, llm-foundry 2023-10"})").text(), "2.1.0");
  EXPECT_EQ(torch_of(R"({"torch": "2.15.0+cu132"})").text(), "2.15.0");
}

TEST(Catalogue, EveryProfileIsWhole) {
  for (const auto& p : frameworks()) {
    EXPECT_FALSE(p.title.empty());
    EXPECT_EQ(&find_framework(p.name), &find_framework(p.name));
    for (const auto& alias : p.aliases) EXPECT_EQ(find_framework(alias).name, p.name);
    if (!p.refused.empty()) continue;
    EXPECT_FALSE(p.source.empty()) << p.name;
    EXPECT_NE(std::find(p.attentions.begin(), p.attentions.end(), p.attention), p.attentions.end())
        << p.name << ": its default must be possible";
    EXPECT_NE(std::find(p.losses.begin(), p.losses.end(), p.loss), p.losses.end()) << p.name;
    EXPECT_NE(std::find(p.kinds.begin(), p.kinds.end(), p.data_parallel), p.kinds.end()) << p.name;
  }
}

TEST(Catalogue, EveryFrameworkResolvesItsOwnDefaults) {
  // Property: a strategy that says nothing but the framework resolves, and no resolved field is left open.
  for (const auto& p : frameworks()) {
    if (!p.refused.empty()) continue;
    const Strategy s = resolved(R"({"framework": ")" + p.name + "\"}");
    EXPECT_NE(s.data_parallel, DataParallel::automatic) << p.name;
    EXPECT_NE(s.precision, Precision::automatic) << p.name;
    EXPECT_NE(s.precision, Precision::bf16) << p.name;
    EXPECT_NE(s.attention, AttentionKernel::automatic) << p.name;
    EXPECT_NE(s.loss, LossKernel::automatic) << p.name;
    EXPECT_NE(s.optimizer_impl, OptimizerImpl::automatic) << p.name;
    EXPECT_NE(s.recompute.kind, Recompute::Kind::automatic) << p.name;
    EXPECT_TRUE(s.param_dtype && s.compute_dtype && s.grad_dtype && s.reduce_dtype && s.state_dtype && s.master_weights) << p.name;
    EXPECT_GT(s.micro_batch * s.seq_len * s.global_batch * s.micro_batches * s.grad_accum, 0) << p.name;
    EXPECT_EQ(s.tp * s.pp * s.cp * s.dp, 8) << p.name;
    EXPECT_FALSE(summary(s).empty());
  }
}

}  // namespace
}  // namespace plimsoll
