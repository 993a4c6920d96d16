/// Networks whose modules are told by a text of ours.
#pragma once

#include <memory>

#include "program/modules/network.hpp"

namespace plimsoll::program {

/// The network of a model type by our own text of its classes (src/code/families), on the modules that the Model has made. The one function
/// of this room that the room `code` defines, which evaluates such texts: whoever links programs links that room, too. Throws Error
/// (refused): a class that the text does not have; an attention that the class does not have.
std::unique_ptr<Network> make_text_network(const Model& model, const RunOptions& options, Module& root, Tape& tape);

}  // namespace plimsoll::program
