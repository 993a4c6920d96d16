/// Encoders of prompts, frozen, as a diffusion model's training loop asks them.
#pragma once

#include <memory>

#include "plimsoll/model.hpp"
#include "program/hf_release.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

struct TextFeatures {
  Tensor hidden;  ///< [batch, length, width]: the last layer's; of one that is asked for all layers', the one before the last's
  Tensor pooled;  ///< [batch, width] or [batch, projection]; undefined where the encoder has none
};

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// `all_layers`: output_hidden_states, all of which live until the call returns.
  virtual TextFeatures operator()(const Tensor& ids, bool all_layers) = 0;
};

/// CLIPTextModel or CLIPTextModelWithProjection; T5EncoderModel. In evaluation. Throws Error (refused): another class.
std::unique_ptr<TextEncoder> make_text_encoder(const Model& model, const HfRelease& release, Module& root, Tape& tape);

/// The model without its dropouts: module.eval().
Model in_evaluation(Model model);

}  // namespace plimsoll::program
