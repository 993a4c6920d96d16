#include "model/neighbours.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll::model {
namespace {

struct NamedNeighbour {
  const char* part;
  const char* shipped;
};

/// The pipelines that the classes were published with (each repository's model_index.json and the configs below it).
const std::vector<NamedNeighbour>& published(const std::string& class_name) {
  static const std::vector<NamedNeighbour> flux = {{"text_encoder", "clip-vit-l-text"}, {"text_encoder_2", "t5-v1.1-xxl-encoder"}, {"vae", "vae-16-channels"}};
  static const std::vector<NamedNeighbour> sd3 = {{"text_encoder", "clip-vit-l-text-projected"},
                                                  {"text_encoder_2", "clip-vit-bigg-text-projected"},
                                                  {"text_encoder_3", "t5-v1.1-xxl-encoder"},
                                                  {"vae", "vae-16-channels"}};
  static const std::vector<NamedNeighbour> pixart = {{"text_encoder", "t5-v1.1-xxl-encoder"}, {"vae", "vae-4-channels"}};
  static const std::vector<NamedNeighbour> dit = {{"vae", "vae-4-channels"}};
  static const std::vector<NamedNeighbour> none;
  if (class_name == "FluxTransformer2DModel") return flux;
  if (class_name == "SD3Transformer2DModel") return sd3;
  if (class_name == "PixArtTransformer2DModel") return pixart;
  return class_name == "DiTTransformer2DModel" ? dit : none;
}

/// What a part must be for a training loop to ask it.
void check_part(const std::string& part, const Model& model, const std::string& where) {
  const bool autoencoder = model.model_type == "AutoencoderKL";
  const bool text = model.model_type == "clip_text_model" || (model.model_type == "t5" && model.architecture == "T5EncoderModel");
  if (part == "vae" ? autoencoder : text) return;
  refuse(fmt::format("{} as a pipeline's {} is not modelled", model.architecture, part), where,
         part == "vae" ? "an AutoencoderKL" : "a CLIPTextModel, a CLIPTextModelWithProjection or a T5EncoderModel");
}

}  // namespace

const std::vector<std::string>& neighbour_parts() {
  static const std::vector<std::string> parts = {"text_encoder", "text_encoder_2", "text_encoder_3", "vae"};
  return parts;
}

void add_neighbour(Model& model, const std::string& part, Model neighbour, const std::string& where) {
  check_part(part, neighbour, where);
  model.neighbours.push_back({part, std::make_shared<const Model>(std::move(neighbour))});
}

void add_neighbours(Model& model, const JsonValue& config, const NeighbourReader& read, const std::function<Model(const std::string&)>& shipped) {
  if (model.task != Model::Task::diffusion) return;
  const auto named = config.find(kNeighboursKey);
  if (!named) {
    for (const NamedNeighbour& each : published(model.model_type)) add_neighbour(model, each.part, shipped(each.shipped), each.shipped);
    return;
  }
  for (const std::string& key : named->keys())
    if (std::find(neighbour_parts().begin(), neighbour_parts().end(), key) == neighbour_parts().end())
      refuse(fmt::format("a pipeline's part '{}' is not known", key.substr(0, 60)), named->where(), suggest(key, neighbour_parts()));
  for (const std::string& part : neighbour_parts())
    if (const auto each = named->find(part)) add_neighbour(model, part, read(*each), each->where());
}

}  // namespace plimsoll::model
