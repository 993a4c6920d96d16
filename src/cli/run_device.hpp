// What the commands that use a device share: a line of progress, and an interruption that keeps what was done.
#pragma once

#include "plimsoll/calibrate.hpp"

namespace plimsoll::cli {

/// From now on Ctrl-C sets a mark instead of ending the program; a second one ends it.
void watch_for_interruption();
bool interrupted();

/// One line on stderr that is drawn over and over, on a terminal only.
void draw_progress(const MeasureProgress& progress);
void clear_progress();

}  // namespace plimsoll::cli
