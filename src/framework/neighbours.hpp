#pragma once

#include "framework/resolver.hpp"

namespace plimsoll::framework {

/// Where the frozen parts of a diffusion model's pipeline stand (Strategy::neighbours) where nobody says: as the model's script of diffusers
/// keeps them, or nowhere, where no script was read. Throws Error: of a model without such parts.
void complete_neighbours(Resolver& r);

}  // namespace plimsoll::framework
