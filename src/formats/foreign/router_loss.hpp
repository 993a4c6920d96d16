// Programs that ask a mixture's forward for its routers' logits, so that their auxiliary loss becomes part of the model's.
#pragma once

#include <string>
#include <string_view>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// Says that the program asks, where `coefficient` is a number above 0: of the model types listed, comma between them, or of any.
void read_router_loss(Reading& reading, const Node* coefficient, std::string_view key, std::string_view types = "any");

/// Once the model is known, adds the loss where a program asks for it. Throws Error (refused): a mixture that is read from code.
void add_router_loss(const Reading& reading, Model& model);

}  // namespace plimsoll::formats
