// Published totals of the shipped encoders, sequence-to-sequence, vision, diffusion and convolutional models, and the seed models by hand.
#include <gtest/gtest.h>

#include <numeric>

#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/layer_graph.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll {
namespace {

// bert: (V + 512 + 2)·h + LN + layers + the predictions' dense layer, LN and a bias per word. t5: Raffel et al. 2020 and the v1.1 release, heads of untied checkpoints included. vit:
// torchvision. flux: the transformer of black-forest-labs' release. dit: Peebles and Xie 2023, frozen position table included.
// dit-xl-2-256, sd3, vae: diffusers 0.42 on the meta device, parameters counted (tables of positions are buffers there). clip, t5 encoder:
// transformers 5.23 likewise. resnet: torchvision.
TEST(ShippedModels, PublishedTotals) {
  const std::pair<const char*, std::int64_t> rows[] = {
      {"bert-base-cased", 108'340'804},
      {"bert-base-uncased", 109'514'298},
      {"bert-large-uncased", 335'174'458},
      {"t5-small", 60'506'624},
      {"t5-base", 222'903'552},
      {"t5-large", 737'668'096},
      {"t5-3b", 2'851'598'336},
      {"t5-11b", 11'307'321'344},
      {"flan-t5-base", 247'577'856},
      {"t5-v1.1-xxl", 11'135'332'352},
      {"vit-b16", 86'567'656},
      {"vit-b32", 88'224'232},
      {"vit-l16", 304'326'632},
      {"vit-h14", 632'045'800},
      {"flux.1-dev", 11'901'408'320},
      {"flux.1-schnell", 11'891'178'560},
      {"dit-xl-2", 675'129'632},
      {"dit-xl-2-256", 749'826'464},
      {"pixart-alpha-xl-2-512", 610'856'096},
      {"pixart-sigma-xl-2-1024", 610'856'096},
      {"sd3-medium", 2'028'328'000},
      {"sd3.5-medium", 2'243'171'520},
      {"sd3.5-large", 8'056'627'520},
      {"clip-vit-l-text", 123'060'480},
      {"clip-vit-l-text-projected", 123'650'304},
      {"clip-vit-bigg-text-projected", 694'659'840},
      {"t5-v1.1-xxl-encoder", 4'762'310'656},
      {"vae-16-channels", 83'819'683},
      {"vae-4-channels", 83'653'863},
      {"resnet-18", 11'689'512},
      {"resnet-50", 25'557'032},
      {"resnet-101", 44'549'160},
      {"resnet-152", 60'192'808},
  };
  for (const auto& [name, parameters] : rows) {
    const Model model = load_model(name);
    EXPECT_EQ(model.parameters(), parameters) << name;
    EXPECT_TRUE(model.unread_keys.empty()) << name << ": " << model.unread_keys.front();
    EXPECT_EQ(LayerGraph(model).topological_order().size(), LayerGraph(model).vertices().size()) << name;
  }
}

std::int64_t parameters_of_stack(const Model& model, const std::string& name) {
  for (const Block& block : model.blocks)
    if (block.name == name) return block.parameters();
  return -1;
}

TEST(ShippedModels, FluxBlocks) {
  const Model flux = load_model("flux.1-dev");
  EXPECT_EQ(parameters_of_stack(flux, "transformer_blocks"), 339'831'296);
  EXPECT_EQ(parameters_of_stack(flux, "single_transformer_blocks"), 141'591'808);
}

constexpr std::int64_t linear(std::int64_t in, std::int64_t out) { return in * out + out; }
constexpr std::int64_t encoder_layer(std::int64_t h, std::int64_t f) { return 4 * linear(h, h) + linear(h, f) + linear(f, h) + 2 * 2 * h; }

// Words 10000·256, positions 512·256, segments 2·256, their norm; 4 layers with FFN 1024; pooler 256 -> 256; classifier 256 -> 5.
TEST(SeedModels, EncoderClassifier) {
  const std::int64_t h = 256;
  EXPECT_EQ(load_model("seed-encoder-classifier").parameters(),
            (10000 + 512 + 2) * h + 2 * h + 4 * encoder_layer(h, 4 * h) + linear(h, h) + linear(h, 5));
}

// Words 32000·768 (the head shares them), positions 1024·768; 12 layers of 12h² + 13h; final norm.
TEST(SeedModels, Gpt) {
  const std::int64_t h = 768;
  EXPECT_EQ(load_model("seed-gpt-12").parameters(), (32000 + 1024) * h + 12 * (12 * h * h + 13 * h) + 2 * h);
}

// (32/4)² = 64 patches of 3·4·4 values, class token, 65 positions; 6 layers with FFN 1024; final norm; classifier 256 -> 10.
TEST(SeedModels, Vit) {
  const std::int64_t h = 256;
  EXPECT_EQ(load_model("seed-vit").parameters(), linear(3 * 4 * 4, h) + h + 65 * h + 6 * encoder_layer(h, 4 * h) + 2 * h + linear(h, 10));
}

// bert's embeddings at width 1024, 24 layers with FFN 4096, pooler: bert-large without a head.
TEST(SeedModels, Encoder24) {
  const std::int64_t h = 1024;
  EXPECT_EQ(load_model("seed-encoder-24x1024").parameters(), (30522 + 512 + 2) * h + 2 * h + 24 * encoder_layer(h, 4 * h) + linear(h, h));
}

// ViT-B/16 per image: patches 196·2·768·768; 12 layers of 197·2·(4·768² + 2·768·3072) + 4·197²·768; head 2·768·1000.
TEST(ForwardFlops, VitB16) {
  const double layer = 197.0 * 2 * (4 * 768.0 * 768 + 2 * 768.0 * 3072) + 4 * 197.0 * 197 * 768;
  const double by_hand = 196.0 * 2 * 768 * 768 + 12 * layer + 2 * 768.0 * 1000;
  EXPECT_EQ(flops::forward(load_model("vit-b16"), {1, 0}), by_hand);
  EXPECT_NEAR(by_hand, 35.127656e9, 1e3);
}

// What diffusers 0.42 builds without any key, on the meta device.
TEST(DiffusersClasses, DefaultsOfTheirConstructors) {
  const auto built = [](const std::string& name) { return parse_model("{\"_class_name\": \"" + name + "\"}", name, name).parameters(); };
  EXPECT_EQ(built("DiTTransformer2DModel"), 749'808'016);
  EXPECT_EQ(built("FluxTransformer2DModel"), 11'891'178'560);
  EXPECT_EQ(built("SD3Transformer2DModel"), 856'159'552);
}

// 4,089,184,256 multiply-adds on an image of 224 x 224, stride on the 3x3 convolutions.
TEST(ForwardFlops, Resnet50) { EXPECT_EQ(flops::forward(load_model("resnet-50"), {1, 0}), 2.0 * 4'089'184'256); }

// T5-small on 512 and 128 tokens: encoder layers 512·2·(4·512² + 2·512·2048) + 4·512²·512; decoder layers with self attention over
// s(s+1)/2 pairs, cross attention whose keys and values run over the encoder's 512 tokens; head 128·2·512·32128.
TEST(ForwardFlops, T5CrossAttentionRunsOverBothLengths) {
  const double s = 512, t = 128, h = 512, square = 2 * h * h, ffn = 2 * 2 * h * 2048;
  const double encoder = s * (4 * square + ffn) + 4 * s * s * h;
  const double self = t * 4 * square + 4 * (t * (t + 1) / 2) * h, cross = (2 * t + 2 * s) * square + 4 * s * t * h;
  EXPECT_EQ(flops::forward(load_model("t5-small"), {512, 128}), 6 * (encoder + self + cross + t * ffn) + t * 2 * h * 32128);
}

// FLUX.1 on 4096 image and 512 text tokens: a double block runs every linear of its stream over its own tokens and attends over 4608.
TEST(ForwardFlops, FluxDoubleBlock) {
  const Model flux = load_model("flux.1-dev");
  const double h = 3072, tokens = 4096 + 512;
  const double by_hand = tokens * (4 * 2 * h * h + 2 * 2 * h * 4 * h) + 4 * tokens * tokens * h + 2 * (2 * h * 6 * h);
  EXPECT_EQ(flops::block_forward(flux.blocks[4], {4096, 512}, flops::Mask::causal_exact), by_hand);
}

// Sixteen residual layers in four stages of different cost: the balanced cut is never worse than four layers each.
TEST(StageCuts, OfAConvolutionalNetwork) {
  const Model resnet = load_model("resnet-50");
  const auto chain = layer_chain(resnet, 1);
  const StageCut cut = balanced_stage_cut(chain, 4);
  std::vector<double> costs;
  for (const LayerRun& run : chain) costs.insert(costs.end(), static_cast<std::size_t>(run.count), run.cost);
  ASSERT_EQ(costs.size(), 16u);
  double even = 0;
  for (std::size_t stage = 0; stage < 4; ++stage)
    even = std::max(even, std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(4 * stage),
                                          costs.begin() + static_cast<std::ptrdiff_t>(4 * stage + 4), 0.0));
  EXPECT_LE(cut.largest, even);
}

}  // namespace
}  // namespace plimsoll
