#include "program/torch_release.hpp"

#include <cstdio>

namespace plimsoll::program {

TorchRelease TorchRelease::of(const std::string& version) {
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "%3d.%3d", &major, &minor) != 2) return {};
  return {major * 100 + minor};
}

}  // namespace plimsoll::program
