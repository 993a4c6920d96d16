// estimate --all: every training that a script starts.
#pragma once

#include "command.hpp"

namespace plimsoll::cli {

/// Estimates each and prints a table, or one plimsoll/launches/1 object; what cannot be estimated says why. Exit code: that of the fullest.
int estimate_all(const Arguments& arguments, const std::string& format);

}  // namespace plimsoll::cli
