// What a framework writes when it saves a run.
#pragma once

#include "plimsoll/campaign.hpp"

namespace plimsoll::campaigning {

/// `storage`: bytes a second of the file system, 0 where nobody said.
Checkpoint checkpoint_of(const Model& model, const Strategy& resolved, double storage);

}  // namespace plimsoll::campaigning
