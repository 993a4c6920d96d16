// torchtitan's published flavors and the shipped models of the same shape.
#pragma once

#include <string>

namespace plimsoll::formats {

struct TitanFlavor {
  const char *family, *flavor, *shipped;
};

/// The flavor of the shape of a shipped model, or nullptr.
const TitanFlavor* titan_flavor(const std::string& shipped);

/// The flavor of a family by its name ("deepseek_v3", "16B"), also as configurations spell it (0_6b); null: there is none.
const TitanFlavor* titan_flavor(const std::string& family, const std::string& flavor);

}  // namespace plimsoll::formats
