// What vision transformers share: patches, class token and learned positions, and the size of an image in tokens.
#pragma once

#include <string>

#include "model/families/encoder.hpp"

namespace plimsoll::model {

/// Dimensions of a vision transformer; `tokens` is what a layer works on: patches and the extra tokens before them.
struct Vision {
  Model model;
  std::int64_t patches = 0, tokens = 0;
};
/// Reads the config. Throws Error when patches do not tile the image.
Vision vision_model(const Config& config, std::int64_t extra_tokens);

/// Tokens and positions that an image transformer learns beside the patches.
struct ImageEmbeddings {
  std::string name;                 ///< "vit.embeddings"
  bool mask_token = false;          ///< dinov2: a parameter that only masked training reads
  bool distillation_token = false;  ///< deit
};
/// The projection of patches, and the block that adds class token and positions; registered in the opposite order.
void append_image_embeddings(Vision& vision, const ImageEmbeddings& plan);
/// A parameter tensor that stands for a token, or is added to every one.
Operator learned(OperatorKind kind, const std::string& name, std::vector<std::int64_t> shape, std::int64_t width);
/// Completes the registration order with the blocks appended since.
void register_rest(Model& model);

}  // namespace plimsoll::model
