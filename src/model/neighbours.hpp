// What stands frozen beside a diffusion model: the rest of its pipeline.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::model {

/// The key of a config that names them: {"text_encoder": "clip-vit-l-text", "vae": {…a config…}}.
constexpr std::string_view kNeighboursKey = "neighbours";

/// The model of a name, or of a config's text.
using NeighbourReader = std::function<Model(const JsonValue& named)>;

/// Puts the neighbours of a diffusion model into it: those that the config names; else those that its class was published with. Nothing where the class has no pipeline that was read.
void add_neighbours(Model& model, const JsonValue& config, const NeighbourReader& read, const std::function<Model(const std::string&)>& shipped);

/// Puts one neighbour in. Throws Error (refused): a class that no training loop asks as that part.
void add_neighbour(Model& model, const std::string& part, Model neighbour, const std::string& where);

/// Parts of a pipeline that encode prompts or images, in the order in which its training loop asks them.
const std::vector<std::string>& neighbour_parts();

}  // namespace plimsoll::model
