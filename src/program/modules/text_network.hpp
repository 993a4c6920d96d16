/// Networks whose modules are told by a text of ours.
#pragma once

#include <memory>

#include "program/modules/network.hpp"
#include "program/modules/transformers/text_encoders.hpp"

namespace plimsoll::program {

// What the room `code` defines, which evaluates such texts (src/code/families): whoever links programs links that room, too.

/// The network of a model type by our own text of its classes, on the modules that the Model has made. Throws Error (refused): a class that
/// the text does not have; an attention that the class does not have.
std::unique_ptr<Network> make_text_network(const Model& model, const RunOptions& options, Module& root, Tape& tape);

/// An encoder of prompts by such a text.
std::unique_ptr<TextEncoder> make_told_text_encoder(const Model& model, const HfRelease& release, Module& root, Tape& tape);

}  // namespace plimsoll::program
