// The flags of commands that search: MODEL, --on, and keys of a strategy with one value or several.
#pragma once

#include "command.hpp"
#include "plimsoll/search.hpp"

namespace plimsoll::cli {

/// What opens, limits and splits a space; then every key of a strategy, which may list values (1,2,4) or range (1..16).
std::vector<Option> search_flags();
/// The request that the line makes. Throws Error on a wrong value.
SearchRequest search_request(const Arguments& arguments, const std::string& command);

}  // namespace plimsoll::cli
