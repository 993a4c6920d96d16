/// diffusers' AutoencoderKL, frozen: what its encoder makes of images.
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// vae.encode(pixels).latent_dist: the moments and what DiagonalGaussianDistribution makes of them.
struct LatentDistribution {
  Tensor moments, mean, logvar, deviation, variance;
};

/// `pixels` [batch, channels, height, width] in the weights' type.
LatentDistribution encode_images(const Model& model, Module& root, Tape& tape, const Tensor& pixels);

/// latent_dist.sample(): [batch, latent channels, height / 8, width / 8].
Tensor sample_latents(const LatentDistribution& distribution);

/// How many pixels of a side make one place of a side of the latents.
std::int64_t pixels_of_latent(const Model& model);

}  // namespace plimsoll::program
