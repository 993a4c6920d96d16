// What stands frozen beside a diffusion model, by diffusers' scripts.
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
using Place = NeighbourPlaces::Place;

const Options kAdapters = {{"lora.r", "16"}, {"lora.target_modules", "to_q,to_k"}};

Strategy resolved(const std::string& model, const Options& options) {
  Strategy strategy;
  set_options(strategy, options);
  return resolve(strategy, load_model(model), parse_cluster("8xa100-80gb"));
}

std::string message_of(const std::string& model, const Options& options) {
  try {
    resolved(model, options);
  } catch (const Error& error) {
    return error.message() + " | " + error.hint();
  }
  return "";
}

Options with(Options options, const Options& more) {
  options.insert(options.end(), more.begin(), more.end());
  return options;
}

bool assumes(const Strategy& strategy, const std::string& start) {
  return std::any_of(strategy.assumed.begin(), strategy.assumed.end(), [&](const std::string& line) { return line.rfind(start, 0) == 0; });
}

// train_dreambooth_lora_flux.py: `del text_encoder_one, text_encoder_two` leaves the list `text_encoders` since 71f34fc5a (0.33.0), which
// compute_text_embeddings is handed in every step.
TEST(Neighbours, FluxKeepsItsEncodersBesideAdaptersSince033) {
  const Strategy now = resolved("flux.1-dev", kAdapters);
  EXPECT_EQ(now.neighbours.text_encoders, Place::device);
  EXPECT_EQ(now.neighbours.vae, Place::device);
  EXPECT_TRUE(assumes(now, "text_encoders: device"));
  EXPECT_TRUE(assumes(now, "vae: device"));
  EXPECT_EQ(resolved("flux.1-dev", with(kAdapters, {{"releases.diffusers", "0.32.0"}})).neighbours.text_encoders, Place::cached);
  EXPECT_EQ(resolved("flux.1-dev", {}).neighbours.text_encoders, Place::cached);
}

TEST(Neighbours, StableDiffusion3LetsItsEncodersGo) {
  const Strategy adapted = resolved("sd3-medium", kAdapters);
  EXPECT_EQ(adapted.neighbours.text_encoders, Place::cached);
  EXPECT_EQ(adapted.neighbours.vae, Place::device);
  EXPECT_EQ(adapted.text_tokens, 154);  // 77 of CLIP's table and 77 of T5
}

// diffusers has no script for these two: nothing stands beside them, and that is said.
TEST(Neighbours, WithoutAScriptNothingIsAssumedInSilence) {
  for (const char* model : {"pixart-alpha-xl-2-512", "dit-xl-2-256"}) {
    const Strategy strategy = resolved(model, {});
    EXPECT_FALSE(strategy.neighbours.any()) << model;
    EXPECT_TRUE(assumes(strategy, "vae: absent")) << model;
  }
}

// Injected into modules of 16 bits without PEFT's model around them, which alone casts (cast_adapter_dtype); fp16 is cast by the script.
TEST(Neighbours, AdaptersHaveTheTypeOfTheirWeights) {
  EXPECT_EQ(resolved("flux.1-dev", with(kAdapters, {{"precision", "bf16"}})).lora->adapter_dtype, DType::bf16);
  EXPECT_EQ(resolved("flux.1-dev", with(kAdapters, {{"precision", "fp16"}})).lora->adapter_dtype, DType::fp32);
}

TEST(Neighbours, WhatDoesNotGoTogetherIsSaid) {
  EXPECT_NE(message_of("llama-3.2-1b", {{"vae", "device"}}).find("only a diffusion model"), std::string::npos);
  EXPECT_NE(message_of("dit-xl-2-256", {{"text_encoders", "device"}}).find("no such part"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
