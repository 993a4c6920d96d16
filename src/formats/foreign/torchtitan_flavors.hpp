// torchtitan's published flavors and the shipped models of the same shape.
#pragma once

#include <string>

namespace plimsoll::formats {

struct TitanFlavor {
  const char *family, *flavor, *shipped;
};

/// The flavor of the shape of a shipped model, or nullptr.
const TitanFlavor* titan_flavor(const std::string& shipped);

}  // namespace plimsoll::formats
