// estimate --on with several machines: one job, which of them to book.
#pragma once

#include "command.hpp"

namespace plimsoll::cli {

/// Whether --on names several machines, or any.
bool names_machines(const Arguments& arguments);

/// Estimates the job on each and prints a table. Exit code: 0 where one of them holds it.
int estimate_machines(const Arguments& arguments, const std::string& format);

}  // namespace plimsoll::cli
