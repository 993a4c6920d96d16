// Prices of machines, as reports of several of them list them.
#pragma once

#include <string>

#include "plimsoll/campaign.hpp"

namespace plimsoll {

/// "8xh100-sxm: 2.29 $ an hour and GPU, Verda, on-demand (2026-05-24)".
std::string price_line(const std::string& on, const GpuPrice& price);

}  // namespace plimsoll
