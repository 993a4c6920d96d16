// hardware/prices.json.
#pragma once

#include "plimsoll/campaign.hpp"

namespace plimsoll::campaigning {

/// GPU-hours between two interruptions of a large run, as published.
double published_gpu_hours_between_failures();

}  // namespace plimsoll::campaigning
