/// What the image of a kernel (an ELF file for an NVIDIA device) says of its parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "arguments.hpp"

namespace plimsoll::device {

/// The parameters of every kernel of an image, those of at most eight bytes, by its name. Empty for what is no such image: PTX, a fat
/// binary, another vendor's.
std::map<std::string, std::vector<KeptArgument>> parameters_in(const void* image);

}  // namespace plimsoll::device
