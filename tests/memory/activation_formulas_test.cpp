#include "memory/activation_formulas.hpp"

#include <gtest/gtest.h>

namespace plimsoll::memory {
namespace {

const LayerShape kLlama3_8b{4096, 14336, 32, 8, 128};
const LayerShape kLlama2_7b{4096, 11008, 32, 32, 128};
const LayerShape kGpt3{12288, 49152, 96, 96, 128};

// Korthikanti et al. 2022: s b h (34 + 5 a s / h) without parallelism; 10 + 24 / t with tensor parallelism; all / t with sequence
// parallelism; selective recompute drops 5 a s / h; full keeps 2 s b h.
TEST(ActivationFormulas, Gpt3Layer) {
  const auto bytes = [](GptRecompute recompute, std::int64_t t, bool sequence) {
    return gpt_layer_bytes(kGpt3, 2048, 1, recompute, {t, sequence});
  };
  EXPECT_EQ(bytes(GptRecompute::none, 1, false), 2868903936);
  EXPECT_EQ(bytes(GptRecompute::none, 8, false), 578813952);
  EXPECT_EQ(bytes(GptRecompute::none, 8, true), 358612992);
  EXPECT_EQ(bytes(GptRecompute::selective, 8, true), 106954752);
  EXPECT_EQ(bytes(GptRecompute::selective, 8, false), 327155712);
  EXPECT_EQ(bytes(GptRecompute::full, 1, false), 50331648);
}

// GPT-2, b = 8, s = 1024: 34 s b h + 5 a s² b.
TEST(ActivationFormulas, Gpt2Layer) { EXPECT_EQ(gpt_layer_bytes({768, 3072, 12, 12, 64}, 1024, 8, GptRecompute::none, {}), 717225984); }

// Bytes per token and layer of Llama-3-8B, and of 8,192 tokens.
TEST(ActivationFormulas, Llama3Layer) {
  const std::pair<LlamaKernels, std::int64_t> rows[] = {
      {LlamaKernels::hf_eager_norm, 200840}, {LlamaKernels::fused_norm, 168072},         {LlamaKernels::autocast, 241800},
      {LlamaKernels::liger, 139400},         {LlamaKernels::transformer_engine, 139400}, {LlamaKernels::transformer_engine_fp8, 120968}};
  for (const auto& [kernels, expected] : rows) EXPECT_EQ(llama_saved_per_token(kernels, kLlama3_8b, 8192), expected);
  EXPECT_EQ(llama_saved_per_token(LlamaRecompute::operators_eager, kLlama3_8b), 63616);
  EXPECT_EQ(llama_saved_per_token(LlamaRecompute::operators_compiled, kLlama3_8b), 63616 - 2 * 4096);
  EXPECT_EQ(llama_saved_per_token(LlamaRecompute::full, kLlama3_8b), 8192);

  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::hf_eager_norm, kLlama3_8b, 8192), 1645281280);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::fused_norm, kLlama3_8b, 8192), 1376845824);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::autocast, kLlama3_8b, 8192), 1980825600);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::liger, kLlama3_8b, 8192), 1141964800);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::transformer_engine_fp8, kLlama3_8b, 8192), 990969856);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaRecompute::operators_eager, kLlama3_8b), 521142272);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaRecompute::full, kLlama3_8b), 67108864);
}

// Eager attention keeps 6 a s per token; expanding keys and values adds 4 d (a - g).
TEST(ActivationFormulas, AttentionVariants) {
  EXPECT_EQ(llama_saved_per_token(LlamaKernels::eager_attention, kLlama3_8b, 8192), 1785864);
  EXPECT_EQ(8192 * llama_saved_per_token(LlamaKernels::eager_attention, kLlama3_8b, 8192), 14629797888);
  EXPECT_EQ(llama_saved_per_token(LlamaKernels::repeated_kv, kLlama3_8b, 8192) -
                llama_saved_per_token(LlamaKernels::hf_eager_norm, kLlama3_8b, 8192),
            12288);
}

TEST(ActivationFormulas, Llama2Model) {
  EXPECT_EQ(llama_saved_per_token(LlamaKernels::hf_eager_norm, kLlama2_7b, 4096) * 4096 * 32, 24445452288);
}

// A census of the tensors that autograd saved in a real block: bf16, b = 2, s = 64, h = 32, f = 96, a = 8, g = 2, d = 4.
TEST(ActivationFormulas, SavedTensorCensus) {
  const LayerShape micro{32, 96, 8, 2, 4};
  const std::pair<LlamaKernels, std::int64_t> rows[] = {{LlamaKernels::hf_eager_norm, 189440},
                                                        {LlamaKernels::fused_norm, 156672},
                                                        {LlamaKernels::repeated_kv, 201728},
                                                        {LlamaKernels::eager_attention, 590848}};
  for (const auto& [kernels, expected] : rows) EXPECT_EQ(2 * 64 * llama_saved_per_token(kernels, micro, 64), expected);
}

// Llama-3-8B, 8,192 tokens: 10, 14 and 12 bytes per logit of 8192 · 128256. Megatron over t = 8 keeps 4 B of an eighth.
TEST(ActivationFormulas, CrossEntropy) {
  const double logits = 8192. * 128256;
  EXPECT_EQ(logits * loss_bytes_per_logit(LossHead::transformers).forward_peak, 10506731520);
  EXPECT_EQ(logits * loss_bytes_per_logit(LossHead::transformers).backward_peak, 14709424128);
  EXPECT_EQ(logits * loss_bytes_per_logit(LossHead::torchtitan_eager).backward_peak, 12608077824);
  EXPECT_EQ(logits / 8 * loss_bytes_per_logit(LossHead::megatron).saved, 525336576);
}

TEST(ActivationFormulas, LigerFusedLinearCrossEntropy) {
  const LigerFusedLinear liger = liger_fused_linear(8192, 4096, 128256);
  EXPECT_EQ(liger.factor, 32);
  EXPECT_EQ(liger.chunk_rows, 256);
  EXPECT_EQ(liger.chunks, 32);
  EXPECT_EQ(liger.chunk_logits, Bytes(65667072));
  EXPECT_EQ(liger.grad_weight, Bytes(1050673152));
  EXPECT_EQ(liger.grad_input, Bytes(67108864));
}

TEST(ActivationFormulas, ResNet50) {
  const ConvolutionActivations bytes = bottleneck_resnet_activations({3, 4, 6, 3}, 224, 1000, DType::fp32);
  EXPECT_EQ(bytes.per_image, 85913512);
  EXPECT_EQ(bytes.fixed, 212484);
}

// DeepSeek-V3: 4 · 7168 + 4 · 1536 + 2 · 576 + 2 · 512 + 4 · 128 · 192 + 4 · 128 · 128 + 4 · 128; without q, k and v 131,072 less.
TEST(ActivationFormulas, LatentAttention) {
  const MlaShape v3{7168, 128, 1536, 512, 128, 64, 128};
  EXPECT_EQ(mla_saved_per_token(v3, false), 201344);
  EXPECT_EQ(mla_saved_per_token(v3, true), 201344 - 131072);
}

// Mixtral-8x7B, eager gate: 8 · 8 + 12 · 2 for the router, 2 · (2h + 8f + 2h) for the experts; twice the latter on a rank with twice the
// load.
TEST(ActivationFormulas, MixtureOfExperts) {
  const MoeShape mixtral{4096, 8, 2, 14336};
  EXPECT_EQ(moe_saved_per_token(mixtral, true, false, 1), 88 + 2 * (4 * 4096 + 8 * 14336));
  EXPECT_EQ(moe_saved_per_token(mixtral, false, true, 2), 88 + 4 * (2 * 4096 + 6 * 14336));
}

// Llama-3-8B, b = 1, s = 8192.
TEST(ActivationFormulas, FlashBackward) {
  const FlashBackwardWorkspace two = flash_backward_workspace(FlashVersion::two, kLlama3_8b, 8192, 1);
  EXPECT_EQ(two.dq_accumulator, Bytes(134217728));
  EXPECT_EQ(two.softmax_statistics, Bytes(1048576));
  EXPECT_EQ(two.expanded_kv, Bytes(134217728));
  EXPECT_EQ(flash_backward_workspace(FlashVersion::three, kLlama3_8b, 8192, 1).expanded_kv, Bytes(67108864));
  EXPECT_EQ(flash_backward_workspace(FlashVersion::two, kLlama2_7b, 8192, 1).expanded_kv, Bytes(0));
}

// Interleaved, p = 4, v = 2, m = 8: 2 (p - r - 1) + (v - 1) p + 1 chunks.
TEST(ActivationFormulas, InFlight) {
  for (const auto& [rank, chunks] : {std::pair{0, 11}, {1, 9}, {2, 7}, {3, 5}})
    EXPECT_EQ(micro_batches_in_flight(PipelineKind::interleaved, 4, rank, 8, 2), chunks);
  EXPECT_EQ(micro_batches_in_flight(PipelineKind::one_forward_one_backward, 4, 0, 8), 4);
  EXPECT_EQ(micro_batches_in_flight(PipelineKind::one_forward_one_backward, 4, 3, 8), 1);
  EXPECT_EQ(micro_batches_in_flight(PipelineKind::gpipe, 4, 3, 8), 8);
  EXPECT_EQ(micro_batches_in_flight(PipelineKind::zb_h2, 4, 0, 8), 7);
}

}  // namespace
}  // namespace plimsoll::memory
