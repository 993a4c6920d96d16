// Model FLOPs: exact sums and the conventions of published MFU figures.
#include "plimsoll/flops.hpp"

#include <gtest/gtest.h>

#include <string>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

// Configs of the golden rows, so that the figures do not hang on the shipped files.
Model llama(int layers, int hidden, int inner, int heads, int kv_heads, int vocab) {
  return parse_model(R"({"model_type":"llama","hidden_size":)" + std::to_string(hidden) + R"(,"intermediate_size":)" +
                         std::to_string(inner) + R"(,"num_hidden_layers":)" + std::to_string(layers) + R"(,"num_attention_heads":)" +
                         std::to_string(heads) + R"(,"num_key_value_heads":)" + std::to_string(kv_heads) + R"(,"vocab_size":)" +
                         std::to_string(vocab) + R"(,"tie_word_embeddings":false})",
                     "test.json", "test");
}
Model llama_8b() { return llama(32, 4096, 14336, 32, 8, 128256); }
Model llama_70b() { return llama(80, 8192, 28672, 64, 8, 128256); }
Model mixtral() {
  return parse_model(
      R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,"num_attention_heads":32,
      "num_key_value_heads":8,"vocab_size":32000,"num_local_experts":8,"num_experts_per_tok":2,"tie_word_embeddings":false})",
      "test.json", "test");
}

double per_token(const char* convention, const Model& model, std::int64_t sequence) {
  return flops::convention(convention).per_token(model, {.sequence = sequence});
}

// The conventions as coded in their repositories, evaluated for three models: seven significant digits.
struct Golden {
  const char* model;
  std::int64_t sequence;
  double megatron, megatron_2025, torchtitan, palm, llm_foundry, nanotron, llama_factory;
};
constexpr Golden kGolden[] = {
    {"llama-8b", 4096, 4.824918e10, 5.147040e10, 5.147200e10, 5.462402e10, 5.462402e10, 5.147040e10, 5.147040e10},
    {"llama-8b", 8192, 5.147040e10, 5.791285e10, 5.791445e10, 6.106647e10, 6.106647e10, 5.791285e10, 5.791285e10},
    {"llama-70b", 4096, 4.331164e11, 4.492225e11, 4.492305e11, 4.555345e11, 4.555345e11, 4.492225e11, 4.492225e11},
    {"llama-70b", 8192, 4.492225e11, 4.814348e11, 4.814427e11, 4.877467e11, 4.877467e11, 4.814348e11, 4.814348e11},
    {"mixtral", 8192, 8.292768e10, 8.937013e10, 8.937802e10, 9.016445e10, 9.016445e10, 8.937013e10, 5.554727e10},
};

TEST(FlopsConventions, GoldenTable) {
  for (const Golden& row : kGolden) {
    SCOPED_TRACE(std::string(row.model) + " at " + std::to_string(row.sequence));
    const Model model = std::string(row.model) == "llama-8b" ? llama_8b() : std::string(row.model) == "llama-70b" ? llama_70b() : mixtral();
    const auto expect = [&](const char* convention, double want) {
      EXPECT_NEAR(per_token(convention, model, row.sequence) / want, 1, 1.5e-7) << convention;
    };
    expect("megatron", row.megatron);
    expect("megatron-2025", row.megatron_2025);
    expect("torchtitan", row.torchtitan);
    expect("palm", row.palm);
    expect("llm-foundry", row.llm_foundry);
    expect("nanotron", row.nanotron);
    expect("llama-factory", row.llama_factory);
  }
}

// Llama-3-8B has 8,030,261,248 parameters, 525,336,576 of them in the untied embedding; its attention term at 8192 tokens is
// 12 · 32 layers · 32 heads · 128 · 8192.
TEST(FlopsConventions, Llama8bExactly) {
  const Model model = llama_8b();
  EXPECT_EQ(per_token("6n", model, 8192), 48'181'567'488.0);
  EXPECT_EQ(per_token("torchtitan", model, 8192), 45'029'548'032.0 + 12'884'901'888.0);
  EXPECT_EQ(per_token("torchtitan", model, 8192), 57'914'449'920.0);
  EXPECT_EQ(per_token("palm", model, 8192), 61'066'469'376.0);
  EXPECT_EQ(per_token("llm-foundry", model, 8192), 61'066'469'376.0);
  // 6·(32·(4096·6144 + 4096·8192 + 4096² + 3·4096·14336) + 4096·128256)
  EXPECT_EQ(per_token("megatron", model, 8192), 51'470'401'536.0);
  EXPECT_EQ(6.0 * (32.0 * (4096.0 * 6144 + 4096.0 * 8192 + 4096.0 * 4096 + 3.0 * 4096 * 14336) + 4096.0 * 128256), 51'470'401'536.0);
}

// 96·L·h²(1 + s/(6h) + V/(16Lh)) and 72·L·h²(1 + s/(6h) + V/(12Lh)) for 96 layers of 12288, 2048 tokens, vocabulary 51200.
TEST(FlopsConventions, Megatron2021Gpt3) {
  Model model;
  model.hidden_size = 12288;
  model.layers = 96;
  const auto count = [&](bool recompute) {
    return flops::megatron_2021(model, {.sequence = 2048, .padded_vocab = 51200, .recompute = recompute});
  };
  EXPECT_NEAR(count(true), 1.433998983168e12, 1);
  EXPECT_NEAR(count(false), 1.0764429557760e12, 1);
}

// DeepSeek-V3's layer by the MLA formula, by hand: query 1536·(7168 + 128·192 + 1), keys and values 512·(7168 + 128·256 + 1), rotary keys
// 7168·64, output 128·128·7168, products s/2·128·(192 + 128); 58 layers of 8 experts and a shared one, 3 dense ones.
TEST(FlopsConventions, MegatronMlaMoeAndMtp) {
  Model model;
  model.hidden_size = 7168;
  model.vocab_size = 129280;
  model.layers = 61;
  Block dense;
  dense.role = Block::Role::decoder;
  dense.repeat = 3;
  dense.attention.emplace();
  dense.attention->hidden = 7168, dense.attention->heads = dense.attention->kv_heads = 128, dense.attention->head_dim = 192;
  dense.attention->mla = MlaSpec{1536, 512, 128, 64, 128};
  dense.mlp.emplace();
  dense.mlp->hidden = 7168, dense.mlp->intermediate = 18432, dense.mlp->gated = true;
  Block sparse = dense;
  sparse.repeat = 58;
  sparse.mlp.reset();
  sparse.moe = MoeSpec{};
  sparse.moe->hidden = 7168, sparse.moe->experts = 256, sparse.moe->top_k = 8, sparse.moe->expert_intermediate = 2048;
  sparse.moe->shared_intermediate = 2048;
  model.blocks = {dense, sparse};
  const double s = 4096, h = 7168;
  const double attention = 1536 * (h + 128 * 192 + 1) + 512 * (h + 128 * 256 + 1) + h * 64 + 128 * 128 * h + s / 2 * 128 * (192 + 128);
  const double moe = 3 * h * 2048 * 9, head = h * 129280;
  EXPECT_EQ(flops::megatron(model, {.sequence = 4096}), 6 * (61 * attention + 3 * 3 * h * 18432 + 58 * moe + head));
  // One multi-token-prediction module: a layer more, a projection 2h², norms 3h, and the head again.
  EXPECT_EQ(flops::megatron(model, {.sequence = 4096, .mtp_layers = 1}) - flops::megatron(model, {.sequence = 4096}),
            6 * (attention + moe + 3 * h + 2 * h * h + head));
}

// A window of 4096 within 8192 tokens: a query sees 4096 − 4096·4095/16384 = 3072.25 keys on average instead of 4096.
TEST(FlopsConventions, MegatronWindow) {
  Model model = llama_8b();
  const double full = flops::megatron(model, {.sequence = 8192});
  for (Block& block : model.blocks)
    if (block.attention) block.attention->sliding_window = 4096;
  EXPECT_NEAR(full - flops::megatron(model, {.sequence = 8192}), 6.0 * 32 * 2 * 4096 * (4096 - 3072.25), 1);
}

// EleutherAI's own structure for a dense model without grouped queries: 3·L·(2·3h² + 4hs + 2h² + 2·2·f·h) + 4h + 2hV.
TEST(FlopsConventions, EleutherAi) {
  const Model model = llama(2, 64, 256, 4, 4, 1000);
  const double h = 64, per_layer = 2 * 3 * h * h + 4 * h * 128 + 2 * h * h + 2 * 3 * 256 * h;
  EXPECT_EQ(per_token("eleutherai", model, 128), 3 * 2 * per_layer + 4 * h + 2 * h * 1000);
  EXPECT_EQ(flops::eleutherai(model, {.sequence = 128, .recompute = true}), 4 * 2 * per_layer + 4 * h + 2 * h * 1000);
}

TEST(FlopsConventions, UnknownNameIsRefusedWithTheNearest) {
  try {
    flops::convention("torchtitn");
    FAIL() << "an unknown convention was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    EXPECT_NE(error.hint().find("torchtitan"), std::string::npos) << error.hint();
  }
}

// torchtitan's published 6,667 tokens/s per H100 (989e12): 6667 · 57,914,449,920 / 989e12 = 0.3904.
TEST(Mfu, Torchtitan8b) {
  EXPECT_NEAR(flops::mfu(6667, per_token("torchtitan", llama_8b(), 8192), 989e12), 0.3904, 5e-5);
  EXPECT_THROW(flops::mfu(1, 1, 0), Error);
}

// 4·s²·a·d/2 for one sequence of 8192, 32 heads of 128; exact pairs s(s+1)/2; backward 2.5 times.
TEST(AttentionFlops, CausalHalfExactAndFlashBackward) {
  const auto forward = [](flops::Mask mask) { return flops::attention_forward(1, flops::attention_pairs(8192, 8192, mask), 32, 128, 128); };
  EXPECT_EQ(forward(flops::Mask::causal_half), 549'755'813'888.0);
  EXPECT_EQ(forward(flops::Mask::causal_exact), 549'822'922'752.0);
  EXPECT_EQ(flops::attention_backward(forward(flops::Mask::causal_half), true), 1'374'389'534'720.0);
  EXPECT_EQ(flops::attention_backward(100, false), 200);
}

// Four tokens, window 2: queries see 1, 2, 2, 2 keys; without a causal mask |i − j| < 2 gives 2 + 3 + 3 + 2.
TEST(AttentionFlops, Windows) {
  EXPECT_EQ(flops::attention_pairs(4, 4, flops::Mask::causal_exact, 2), 7);
  EXPECT_EQ(flops::attention_pairs(4, 4, flops::Mask::full, 2), 10);
  EXPECT_EQ(flops::attention_pairs(4, 4, flops::Mask::causal_exact, 9), 10);
  EXPECT_EQ(flops::attention_pairs(3, 5, flops::Mask::full), 15);
  EXPECT_THROW(flops::attention_pairs(3, 5, flops::Mask::causal_exact), Error);
}

// Per-operator selective recomputation of Llama-3-8B runs wk, wo and w3 again: 2·32·(4096·1024 + 4096² + 4096·14336).
TEST(HardwareFlops, TorchtitanSelective) { EXPECT_EQ(flops::torchtitan_selective_recompute_per_token(llama_8b()), 5'100'273'664.0); }

// One layer by hand: F linear products and A attention forward give 3F + 3.5A with flash, 3F + 3A without; full recomputation adds the
// layers' F + A, but not the head's.
TEST(HardwareFlops, FlashAndRecompute) {
  const Model model = llama(1, 64, 128, 4, 2, 1000);
  const double s = 16, layer = s * 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128), head = s * 2 * 64 * 1000;
  const double attention = 4 * (s * (s + 1) / 2) * 4 * 16;
  using Recompute = flops::Execution::Recompute;
  EXPECT_EQ(flops::forward(model, {16, 0}), layer + head + attention);
  EXPECT_EQ(flops::hardware(model, {16, 0}), 3 * (layer + head) + 3.5 * attention);
  EXPECT_EQ(flops::hardware(model, {16, 0}, {.flash = false}), 3 * (layer + head) + 3 * attention);
  EXPECT_EQ(flops::hardware(model, {16, 0}, {.recompute = Recompute::full}), 4 * layer + 3 * head + 4.5 * attention);
  EXPECT_EQ(flops::hardware(model, {16, 0}, {.recompute = Recompute::selective_core}), 3 * (layer + head) + 4.5 * attention);
}

}  // namespace
}  // namespace plimsoll
