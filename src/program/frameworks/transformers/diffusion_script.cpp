#include "program/frameworks/transformers/diffusion_script.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/modules/diffusers/autoencoder.hpp"
#include "program/modules/transformers/text_encoders.hpp"
#include "program/ops/images.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"

namespace plimsoll::program {

namespace {

using Place = NeighbourPlaces::Place;

constexpr std::int64_t kClipTokens = 77;  // every script pads CLIP's prompts to its table of positions
constexpr std::int64_t kPackedSide = 2;   // FLUX's tokens are 2 x 2 places of its latents

bool is_flux(const Model& model) { return model.model_type == "FluxTransformer2DModel"; }
bool is_sd3(const Model& model) { return model.model_type == "SD3Transformer2DModel"; }

/// weight_dtype of the scripts: what the mixed precision computes in, and else the weights' own type.
DType weight_type(const Strategy& strategy) { return hf_autocast(strategy).value_or(hf_parameter_type(strategy)); }

/// SD3's scripts keep the autoencoder in fp32.
DType autoencoder_type(const Model& model, const Strategy& strategy) { return is_sd3(model) ? DType::fp32 : weight_type(strategy); }

/// A frozen model on the device.
struct Resting {
  const Model* model = nullptr;
  std::unique_ptr<Module> root;
};

Resting put_on_device(const Model& model, DType type, Tape& tape) {
  Resting made{&model, build_modules(model, type, tape)};
  for (const auto& parameter : made.root->all_parameters()) parameter->trainable = false;
  materialize(*made.root, tape, Arrival::moved);
  return made;
}

/// What encoders make of a micro-batch's prompts, and what the autoencoder makes of its images.
struct Prompts {
  Tensor hidden, pooled;
};

class PromptEncoders {
 public:
  PromptEncoders(const Model& model, const Strategy& strategy, Tape& tape) : tape_(tape), flux_(is_flux(model)), sd3_(is_sd3(model)) {
    const HfRelease release(strategy.releases.of(Package::transformers));
    for (const Neighbour& each : model.neighbours) {
      if (each.part == "vae") continue;
      resting_.push_back(put_on_device(*each.model, weight_type(strategy), tape));
      encoders_.push_back(make_text_encoder(*each.model, release, *resting_.back().root, tape));
    }
    text_tokens_ = strategy.text_tokens - (sd3_ ? kClipTokens : 0);
    if (text_tokens_ < 1) fail("77 of the prompt's tokens are CLIP's", "text_tokens", "77 and those of T5");
  }

  /// encode_prompt of the scripts, without a graph.
  Prompts operator()(std::int64_t batch) const {
    const GradMode no_grad(tape_, false);
    Prompts made;
    std::vector<Tensor> clip, pooled;
    for (std::size_t i = 0; i < encoders_.size(); ++i) {
      const bool is_clip = resting_[i].model->model_type == "clip_text_model";
      const Tensor ids = tape_.empty({batch, is_clip ? kClipTokens : text_tokens_}, DType::int64, Category::input);
      const TextFeatures features = (*encoders_[i])(ids, is_clip && sd3_);
      if (is_clip) pooled.push_back(features.pooled);
      if (is_clip && sd3_) clip.push_back(features.hidden);
      if (!is_clip) made.hidden = repeated(features.hidden, {1, 1, 1});  // num_images_per_prompt
    }
    if (!pooled.empty()) made.pooled = pooled.size() == 1 ? repeated(pooled[0], {1, 1}) : cat(pooled, -1);
    if (clip.empty()) return made;
    Tensor joined = cat(clip, -1);
    joined = padded(joined, {0, 0, 0}, {0, 0, made.hidden.size(2) - joined.size(2)});
    made.hidden = cat({joined, made.hidden}, 1);
    return made;
  }

 private:
  Tape& tape_;
  bool flux_, sd3_;
  std::int64_t text_tokens_ = 0;
  std::vector<Resting> resting_;
  std::vector<std::unique_ptr<TextEncoder>> encoders_;
};

/// The latents' side of one image.
std::int64_t latent_side(const Model& model, const Strategy& strategy) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(strategy.seq_len))));
  return side * (is_flux(model) ? kPackedSide : model.patch_size);
}

class Autoencoder {
 public:
  Autoencoder(const Model& model, const Strategy& strategy, Tape& tape) : tape_(tape), type_(autoencoder_type(model, strategy)) {
    for (const Neighbour& each : model.neighbours)
      if (each.part == "vae") resting_ = put_on_device(*each.model, type_, tape);
    const std::int64_t side = latent_side(model, strategy) * pixels_of_latent(*resting_.model);
    pixels_ = {strategy.micro_batch, resting_.model->channels, side, side};
  }

  /// Images as the loader hands them out, in fp32.
  Tensor pixels() const { return tape_.empty(pixels_, DType::fp32, Category::input); }
  LatentDistribution operator()(const Tensor& pixels) const {
    const Tensor typed = to(pixels, type_);
    return encode_images(*resting_.model, *resting_.root, tape_, typed);
  }

 private:
  Tape& tape_;
  DType type_;
  Resting resting_;
  Dims pixels_;
};

class ScriptNetwork final : public Network {
 public:
  ScriptNetwork(const Model& model, const Strategy& strategy, std::unique_ptr<Network> network, Tape& tape)
      : model_(model), strategy_(strategy), network_(std::move(network)), tape_(tape) {
    tape_.phase(Phase::init);
    const NeighbourPlaces& places = strategy.neighbours;
    if (NeighbourPlaces::comes(places.vae)) autoencoder_ = std::make_unique<Autoencoder>(model, strategy, tape);
    if (NeighbourPlaces::comes(places.text_encoders)) encoders_ = std::make_unique<PromptEncoders>(model, strategy, tape);
    if (places.text_encoders == Place::cached) keep_prompts();
    if (places.vae == Place::cached) keep_latents();
    if (autoencoder_) pixels_ = autoencoder_->pixels();
  }

  Batch fed(const Batch& resident) override {
    tape_.phase(Phase::encoding);
    Batch made = resident;
    if (encoders_) feed_prompts(made);
    if (autoencoder_ || kept_.moments) feed_latents(made);
    return made;
  }

  void before_step(const Batch& batch) override { network_->before_step(batch); }
  Tensor loss(const Batch& batch) override { return network_->loss(batch); }

  Tensor criterion(Tensor output) override {
    if (!latents_) return network_->criterion(std::move(output));
    tape_.phase(Phase::loss);
    output = to(output, DType::fp32);  // Accelerate hands outputs out in fp32
    if (is_flux(model_)) output = unpacked(output);
    if (is_sd3(model_)) output = preconditioned(output);
    if (output.size(1) == 2 * latents_.size(1)) output = chunk(output, 2, 1)[0];  // of a model that learns its variance, too
    const Tensor target = is_sd3(model_) ? latents_ : subtract(noise_, latents_);
    const Tensor weighting = filled(tape_, {latents_.size(0), 1, 1, 1}, DType::fp32);
    Tensor errors;
    {
      Tensor difference = subtract(output, to(target, DType::fp32));
      const Tensor squares = power(difference);
      difference.reset();
      errors = multiply(weighting, squares);
    }
    errors = reshape(errors, {latents_.size(0), -1});
    return mean(mean(errors, 1, false), 0, false);
  }

  /// The names of a pass that the next one's take the place of.
  void after_backward(const Batch& batch) override {
    network_->after_backward(batch);
    for (Tensor* each : {&prompt_, &pooled_, &latents_, &noise_, &sigmas_, &noisy_}) each->reset();
  }

 private:
  void keep_prompts() {
    tape_.operator_name = "prompts";
    const Prompts prompts = (*encoders_)(1);
    encoders_.reset();
    tape_.empty_cache();
  }

  /// One micro-batch of those that the run keeps: what the others take, the notes say.
  void keep_latents() {
    {
      const GradMode no_grad(tape_, false);
      const Tensor pixels = autoencoder_->pixels();
      kept_ = (*autoencoder_)(pixels);
    }
    autoencoder_.reset();
    tape_.empty_cache();
  }

  void feed_prompts(Batch& made) {
    Prompts prompts = (*encoders_)(strategy_.micro_batch);
    prompt_ = std::move(prompts.hidden);
    pooled_ = std::move(prompts.pooled);
    made.conditions[0] = prompt_;
    if (pooled_) made.conditions[1] = pooled_;
  }

  void feed_latents(Batch& made) {
    if (autoencoder_) {
      const LatentDistribution distribution = (*autoencoder_)(pixels_);
      latents_ = sample_latents(distribution);
    } else {
      latents_ = sample_latents(kept_);
    }
    latents_ = add_scalar(latents_);
    latents_ = multiply_scalar(latents_);
    latents_ = to(latents_, weight_type(strategy_));
    noise_ = filled(tape_, latents_.sizes(), latents_.dtype());
    sigmas_ = filled(tape_, {latents_.size(0), 1, 1, 1}, latents_.dtype());
    {
      const Tensor rest = add_scalar(sigmas_);
      const Tensor kept = multiply(rest, latents_), added = multiply(sigmas_, noise_);
      noisy_ = add(kept, added);
    }
    made.input_ids = is_flux(model_) ? packed(noisy_) : noisy_;
  }

  /// FluxPipeline._pack_latents: [batch, channels, height, width] as tokens of 2 x 2 places.
  static Tensor packed(const Tensor& x) {
    const std::int64_t batch = x.size(0), channels = x.size(1), height = x.size(2) / kPackedSide, width = x.size(3) / kPackedSide;
    const Tensor grid = permute(view(x, {batch, channels, height, kPackedSide, width, kPackedSide}), {0, 2, 4, 1, 3, 5});
    return reshape(grid, {batch, height * width, channels * kPackedSide * kPackedSide});
  }

  /// FluxPipeline._unpack_latents.
  Tensor unpacked(const Tensor& x) const {
    const std::int64_t batch = x.size(0), height = latents_.size(2) / kPackedSide, width = latents_.size(3) / kPackedSide;
    const Tensor grid = permute(view(x, {batch, height, width, -1, kPackedSide, kPackedSide}), {0, 3, 1, 4, 2, 5});
    return reshape(grid, {batch, -1, latents_.size(2), latents_.size(3)});
  }

  /// model_pred * (-sigmas) + noisy_model_input.
  Tensor preconditioned(const Tensor& x) const {
    const Tensor scaled = multiply(x, negate(sigmas_));
    return add(scaled, noisy_);
  }

  const Model& model_;
  const Strategy& strategy_;
  std::unique_ptr<Network> network_;
  Tape& tape_;
  std::unique_ptr<PromptEncoders> encoders_;
  std::unique_ptr<Autoencoder> autoencoder_;
  LatentDistribution kept_;  ///< latents_cache
  Tensor pixels_;
  Tensor prompt_, pooled_, latents_, noise_, sigmas_, noisy_;  ///< of a pass
};

}  // namespace

std::unique_ptr<Network> beside_neighbours(const Model& model, const Strategy& strategy, std::unique_ptr<Network> network, Tape& tape) {
  if (!strategy.neighbours.any()) return network;
  return std::make_unique<ScriptNetwork>(model, strategy, std::move(network), tape);
}

void drop_what_neighbours_make(const Model& model, const Strategy& strategy, Batch& batch) {
  if (NeighbourPlaces::comes(strategy.neighbours.vae)) batch.input_ids.reset();
  if (strategy.neighbours.text_encoders != Place::device) return;
  batch.conditions[0].reset();
  if (is_flux(model) || is_sd3(model)) batch.conditions[1].reset();  // what is pooled
}

}  // namespace plimsoll::program
