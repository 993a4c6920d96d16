// Our own words for what transformers does by mechanisms, as texts that are put over its modules.
#pragma once

#include <vector>

namespace plimsoll::code {

struct ModuleText {
  const char* module;
  const char* text;
};

const std::vector<ModuleText>& transformers_texts();

}  // namespace plimsoll::code
