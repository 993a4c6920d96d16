// One program rehearsed with every setting of --vary, and with the largest of --largest: each a plimsoll of its own.
#pragma once

#include "command.hpp"
#include "rehearsed_program.hpp"

namespace plimsoll::cli {

/// Whether the command line asks for more than one rehearsal.
bool asks_for_variants(const Arguments& arguments);

/// Runs them, as many at once as processors and memory allow, and prints what came out; what a line of one setting wants is `wanted_of`'s to
/// say. Throws Error: a key that stands nowhere, an option that belongs to one rehearsal, a program that cannot be run.
int run_variants(const Arguments& arguments, const std::vector<Option>& options, Rehearse (*wanted_of)(const Arguments&));

}  // namespace plimsoll::cli
