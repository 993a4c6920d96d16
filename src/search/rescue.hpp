// The nearest change that would make a plan fit.
#pragma once

#include <string>

#include "search/screen.hpp"

namespace plimsoll::searching {

/// The one axis, and its value, with which the plan seems to fit and lose the least time; empty where no single change does.
std::string rescue_of(const Screened& plan, const Screen& screen, const Space& space, const Layouts& layouts, const SearchRequest& request);

}  // namespace plimsoll::searching
