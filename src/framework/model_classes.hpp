// Which release of a package brought the code of a model.
#pragma once

#include <map>
#include <string>

#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// Model types, and the release or the day of the main branch from which something holds of their classes.
using TypesSince = std::map<std::string, Release>;

/// That part of a package in models/releases.json.
const TypesSince& types_since(Package package, const char* part);

/// Where no release was said and the newest that was published has no classes of the model's type, the day of the main branch that has.
void assume_release_with_classes(Package package, Strategy& s, const Model& model);

/// Throws Error where the package's release has no classes of the model's type yet.
void check_classes(Package package, const Strategy& s, const Model& model);

}  // namespace plimsoll::framework
