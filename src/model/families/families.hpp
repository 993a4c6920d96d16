// The family functions: each builds a Model from a config of its model types. Their table is registry.cpp.
#pragma once

#include "model/config.hpp"
#include "plimsoll/model.hpp"

namespace plimsoll::model {

// Text decoders.
Model build_llama(const Config& config);

}  // namespace plimsoll::model
