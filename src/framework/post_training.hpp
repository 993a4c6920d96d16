#pragma once

#include "framework/resolver.hpp"

namespace plimsoll::framework {

/// The type of adapters where one of TRL's trainers decides it, before the framework does.
void complete_adapters_of_trl(Resolver& r);

/// What one of TRL's trainers (Strategy::post_training) takes by itself: its release, who the reference is, who writes the answers. Throws
/// Error: a reference that does not go with the adapters, an engine's keys without one; refused: what TRL's rules were not read for.
void complete_post_training(Resolver& r);

}  // namespace plimsoll::framework
