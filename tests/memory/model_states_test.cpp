#include "memory/model_states.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "framework/parameter_layout.hpp"
#include "memory/models.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::memory {
namespace {

using framework::MegatronBuffer;

// Llama-3-8B has 8,030,261,248 parameters.
TEST(ModelStates, BytesPerParameterTimesParameters) {
  const std::int64_t parameters = test::llama_3_8b().parameters();
  ASSERT_EQ(parameters, 8030261248);
  // bf16 weights and gradients, bf16 m and v: 8 B.
  EXPECT_EQ(model_state_bytes(state_recipe("pure 16-bit"), parameters, 1), Bytes(64242089984));
  // Megatron: 2 + 4 + 4 + 8 = 18 B; with the distributed optimizer over 8 ranks 6 + 12 / 8 = 7.5 B, before padding.
  EXPECT_EQ(model_state_bytes(state_recipe("megatron, fp32 gradients"), parameters, 1), Bytes(144544702464));
  EXPECT_EQ(model_state_bytes(state_recipe("megatron distributed optimizer"), parameters, 8), Bytes(60226959360));
  // FSDP over fp32 shards: 16 / N.
  EXPECT_EQ(model_state_bytes(state_recipe("fsdp, fp32 shards"), parameters, 8), Bytes(16060522496));
}

TEST(ModelStates, EveryRecipeAddsUp) {
  const std::pair<const char*, double> totals[] = {{"fp32", 16},
                                                   {"autocast", 16},
                                                   {"pure 16-bit", 8},
                                                   {"megatron, fp32 gradients", 18},
                                                   {"megatron, 16-bit gradients", 16},
                                                   {"megatron distributed optimizer", 6 + 12. / 4},
                                                   {"zero-0", 16},
                                                   {"fsdp, fp32 shards", 16. / 4},
                                                   {"transformer engine fp8, fp32 gradients", 20},
                                                   {"fp8 primary weights, distributed optimizer", 6 + 12. / 4},
                                                   {"ms-amp o1", 11},
                                                   {"ms-amp o2", 6},
                                                   {"ms-amp o3", 2 + 5. / 4}};
  for (const auto& [name, total] : totals) EXPECT_DOUBLE_EQ(bytes_per_parameter(state_recipe(name), 4), total) << name;
  EXPECT_THROW(state_recipe("zero-4"), Error);
}

// Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 GPUs.
TEST(ModelStates, ZeroPaper) {
  const double gigabytes[] = {120, 31.40625, 16.640625, 1.875};
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_EQ(model_state_bytes(state_recipe("zero-" + std::to_string(stage)), 7500000000, 64).gb(), gigabytes[stage]);
}

// Every rank stores ceil(rows / N) rows of every tensor. Waste: 0.444 % at N = 48, 0.601 % at N = 96.
TEST(Layout, Fsdp2PadsEveryTensor) {
  const auto tensors = test::tensors(test::llama_3_8b());
  const std::pair<std::int64_t, std::int64_t> rows[] = {{8, 1003782656}, {48, 168039894}, {64, 125472832}, {96, 84151019}};
  for (const auto& [ranks, expected] : rows) {
    std::int64_t sum = 0;
    for (const ParameterTensor& tensor : tensors) sum += framework::fsdp2_shard_elements(tensor, ranks);
    EXPECT_EQ(sum, expected) << ranks;
  }
}

// [50257, 768] over 8: 6,283 rows each (4,825,344 elements), the last rank owns 50,257 - 7 · 6,283 = 6,276 of them.
TEST(Layout, Fsdp2LastRankOwnsLess) {
  EXPECT_EQ(framework::fsdp2_padded_rows(50257, 8), 6283);
  ParameterTensor embedding;
  embedding.shape = {50257, 768};
  EXPECT_EQ(framework::fsdp2_shard_elements(embedding, 8), 4825344);
  EXPECT_EQ(framework::fsdp2_owned_rows(50257, 8, 7), 6276);
  EXPECT_EQ(framework::fsdp2_owned_rows(3, 8, 5), 0);
}

// A Llama-3-8B layer has 218,112,000 parameters: forward 4 B each, backward 10 with fp32 reduction and 8 with bf16.
TEST(ModelStates, Fsdp2Transients) {
  const Model model = test::llama_3_8b();
  const auto layer = std::find_if(model.blocks.begin(), model.blocks.end(), [](const Block& b) { return b.role == Block::Role::decoder; });
  const std::int64_t unit = layer->parameters();
  ASSERT_EQ(unit, 218112000);
  EXPECT_EQ(fsdp2_forward_transient(unit), Bytes(872448000));
  EXPECT_EQ(fsdp2_backward_transient(unit, DType::fp32), Bytes(2181120000));
  EXPECT_EQ(fsdp2_backward_transient(unit, DType::bf16), Bytes(1744896000));
}

// 12 layers of 12 · 768² weights and 9 · 768 biases, and the tied head of 50,257 · 768, all cast to 2 bytes.
TEST(ModelStates, AutocastCacheOfGpt2) {
  EXPECT_EQ(autocast_parameters(test::gpt2()), 123614976);
  EXPECT_EQ(autocast_cache_bytes(test::gpt2()), Bytes(247229952));
}

// GPT-2's 497,759,232 bytes of fp32 gradients in reverse order. The first bucket (1 MiB) closes after ln_f and h.11.mlp.c_proj.
TEST(Layout, DdpBuckets) {
  std::vector<std::int64_t> bytes = test::elements(test::tensors(test::gpt2()));
  for (std::int64_t& size : bytes) size *= 4;
  const auto fp32 = framework::ddp_buckets(bytes);
  ASSERT_EQ(fp32.size(), 13u);
  EXPECT_EQ(fp32[0], 9446400);
  EXPECT_EQ(fp32[1], 28351488);
  EXPECT_EQ(fp32.back(), 176446464);
  EXPECT_EQ(std::accumulate(fp32.begin(), fp32.end(), std::int64_t{0}), 497759232);
  for (std::int64_t& size : bytes) size /= 2;
  const auto bf16 = framework::ddp_buckets(bytes);
  ASSERT_EQ(bf16.size(), 7u);
  EXPECT_EQ(bf16[0], 4723200);
  EXPECT_EQ(bf16.back(), 102398976);
}

// 3000, 500 and 1000 in this order, starts at multiples of 64 (0, 3008, 3520), the end at one of lcm(6, 128) = 384: 4608.
TEST(Layout, MegatronBuffer) {
  framework::MegatronBufferOptions options;
  options.distributed_optimizer = true;
  options.ranks = 6;
  const std::vector<std::int64_t> elements = {1000, 500, 3000};
  const MegatronBuffer one = framework::megatron_buffer(elements, options);
  EXPECT_EQ(one.elements(), 4608);
  ASSERT_EQ(one.buckets.size(), 1u);
  EXPECT_EQ(one.parameters[0].begin, 3520);

  options.bucket_size = 3000;  // the first parameter fills it: [0, 3072), [3072, 4608)
  const MegatronBuffer two = framework::megatron_buffer(elements, options);
  ASSERT_EQ(two.buckets.size(), 2u);
  EXPECT_EQ(two.buckets[0].end, 3072);
  EXPECT_EQ(two.buckets[1].end, 4608);

  EXPECT_EQ(framework::megatron_buffer(elements, {}).elements(), 4500);
  EXPECT_EQ(framework::megatron_bucket_size(8), 40000000);
  EXPECT_EQ(framework::megatron_bucket_size(64), 64000000);
  const MegatronBuffer shared = framework::megatron_buffer(elements, {}, {true, false, false});
  ASSERT_EQ(shared.buckets.size(), 2u);
  EXPECT_EQ(shared.buckets[1].begin, 3500);
}

// The 224 linears of Llama-2-7B hold 6,476,005,376 parameters: 4.127 bits each with double quantisation.
TEST(ModelStates, Nf4OfLlama2) {
  Nf4Bytes doubly, simply;
  std::int64_t elements = 0;
  const auto linears = test::block_linears(test::llama_2_7b());
  ASSERT_EQ(linears.size(), 224u);
  for (const auto& shape : linears) {
    const Nf4Bytes d = nf4_bytes(shape[0] * shape[1], true), s = nf4_bytes(shape[0] * shape[1], false);
    doubly = {doubly.data + d.data, doubly.absmax + d.absmax, doubly.constants + d.constants};
    simply = {simply.data + s.data, simply.absmax + s.absmax, simply.constants + s.constants};
    elements += shape[0] * shape[1];
  }
  ASSERT_EQ(elements, 6476005376);
  EXPECT_EQ(doubly.data, Bytes(3238002688));
  EXPECT_EQ(doubly.absmax, Bytes(101187584 + 4 * 395264));
  EXPECT_EQ(doubly.data + doubly.absmax, Bytes(3340771328));
  EXPECT_EQ(doubly.total(), Bytes(3341015936));
  EXPECT_EQ(simply.data + simply.absmax, Bytes(3642753024));
}

TEST(ModelStates, LoraParameters) {
  EXPECT_EQ(lora_parameters(test::block_linears(test::llama_3_8b()), 16), 41943040);
  EXPECT_EQ(lora_parameters(test::block_linears(test::llama_3_8b(), {"q_proj", "v_proj"}), 8), 3407872);
}

// Adam8bit: 2 · (1 + 4 / 256) B. Adafactor: 4 (n + m) of a matrix, 4n of a vector.
TEST(ModelStates, OptimizersWithTheirOwnStates) {
  std::int64_t adam8bit = 0, adafactor = 0;
  for (const auto& tensor : test::tensors(test::llama_3_8b()))
    adam8bit += optimizer_state_bytes(OptimizerKind::adam_8bit, tensor.shape, DType::bf16).count;
  for (const auto& tensor : test::tensors(test::llama_2_7b()))
    adafactor += optimizer_state_bytes(OptimizerKind::adafactor, tensor.shape, DType::fp32).count;
  EXPECT_EQ(adam8bit, 16311468160);
  EXPECT_EQ(adafactor, 11347968);
  EXPECT_EQ(optimizer_state_bytes(OptimizerKind::adamw_8bit, {100}, DType::bf16), Bytes(800));  // small tensors keep fp32
  EXPECT_EQ(optimizer_state_bytes(OptimizerKind::muon, {64, 32}, DType::fp32), Bytes(4 * 64 * 32));
  EXPECT_EQ(optimizer_state_bytes(OptimizerKind::muon, {64}, DType::fp32), Bytes(8 * 64));
  EXPECT_THROW(optimizer_state_bytes(OptimizerKind::shampoo, {64, 64}, DType::fp32), Error);
}

// Llama-3-70B over t = 8 and p = 4: the first stage has 20 layers and the embedding, its vocabulary padded to 129,024 rows.
TEST(ModelStates, MegatronStageOfLlama3_70b) {
  std::int64_t rank = 0;
  const Model model = test::llama_3_70b();
  for (const Block& block : model.blocks) {
    const std::int64_t repeats = block.role == Block::Role::decoder ? 20 : block.role == Block::Role::embedding ? 1 : 0;
    for (const ParameterTensor* tensor : block.parameter_list()) rank += repeats * framework::tensor_parallel_elements(*tensor, 8);
  }
  EXPECT_EQ(rank, 2271543296);
  EXPECT_EQ(model_state_bytes(state_recipe("megatron distributed optimizer"), rank, 8), Bytes(17036574720));
}

TEST(ModelStates, DeepSpeedBuckets) {
  EXPECT_EQ(deepspeed_reduce_buckets(500000000, DType::bf16, false), Bytes(1000000000));
  EXPECT_EQ(deepspeed_reduce_buckets(500000000, DType::bf16, true), Bytes(2000000000));
}

// Stage 2 keeps whole parameters: on rank 0 of 64 the embedding of Llama-3-8B, 1,050,673,152 B, where 2P/N would be 250,945,664.
TEST(Layout, Zero2KeepsWholeParameters) {
  const auto elements = test::elements(test::tensors(test::llama_3_8b()));
  EXPECT_EQ(2 * framework::zero2_kept_gradients(elements, 64, 0), 1050673152);
  EXPECT_EQ(framework::zero2_kept_gradients(elements, 1, 0), 8030261248);
}

// torch's foreach Adam keeps sqrt(v) of its whole shard: 4 · 8,030,261,248 / 8.
TEST(ModelStates, ForeachAdamTemporary) { EXPECT_EQ(foreach_adam_temporary(8030261248 / 8, DType::fp32), Bytes(4015130624)); }

}  // namespace
}  // namespace plimsoll::memory
