// What diffusion transformers in diffusers' keys share.
#pragma once

#include <cstdint>
#include <string>

#include "model/block_builder.hpp"
#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

constexpr std::int64_t kTimestepChannels = 256;  // sinusoidal features of the timestep

// Side inputs of a block of two streams.
constexpr int kTextInput = kSideInput, kConditionInput = kSideInput - 1;

/// A LayerNorm without parameters, whose scale and shift come from the conditioning vector.
NormSpec adaptive_norm(std::int64_t width);
/// silu and linear on the conditioning vector, in `parts` vectors: [name].linear. Answers the linear.
int add_modulation(BlockBuilder& builder, const std::string& name, int condition, std::int64_t width, std::int64_t parts);
/// A model of the config's heads, without blocks.
Model diffusion_model(const Config& config);
/// Attention of all positions to all, without positions of its own.
AttentionSpec image_attention(const Model& model);
/// time_text_embed: timestep, guidance (where `guided`) and pooled text, each through an MLP, summed: one vector per sample.
Block time_text_condition(const Model& model, std::int64_t pooled_width, bool guided);
/// A linear that is a block of its own.
Block stream_projection(const std::string& name, std::int64_t in, std::int64_t out, Block::Stream stream);
/// norm_out and proj_out, modulated by the output of block `condition`.
void append_continuous_output(Model& model, std::int64_t out_channels, int condition);

}  // namespace plimsoll::model
