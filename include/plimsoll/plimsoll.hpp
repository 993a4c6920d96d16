/// plimsoll in one include: load_model, parse_cluster, Strategy, estimate, to_text, to_json.
#pragma once

#include "plimsoll/campaign.hpp"
#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/formula.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/layer_graph.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/power_limit.hpp"
#include "plimsoll/report.hpp"
#include "plimsoll/search.hpp"
#include "plimsoll/strategy.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// "0.1.0"
const char* version();

}  // namespace plimsoll
