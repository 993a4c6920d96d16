// Towers: encoders of images and text that stand beside another network, as CLIP and SigLIP build them.
#pragma once

#include <string>

#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// What CLIP's and SigLIP's towers differ in.
enum class TowerKind : std::uint8_t {
  clip,    ///< a class token, a norm before the layers, causal text
  siglip,  ///< biased patches, a head that pools by attention, text read both ways
};

/// The blocks of an image tower: patches, positions, layers, norms, SigLIP's head. Their registration order is appended too.
void append_vision_tower(Model& model, const Config& vision, TowerKind kind, const std::string& name);
/// The blocks of a text tower; it becomes the model's dimensions.
void append_text_tower(Model& model, const Config& text, TowerKind kind, const std::string& name);

/// A model without layers yet, for networks whose parameters are known and whose step is not modelled.
Model counted_model(const Config& config);

}  // namespace plimsoll::model
