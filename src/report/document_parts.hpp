// What several documents are made of.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/document.hpp"

namespace plimsoll {

Cell text_cell(const std::string& text);
Cell count_cell(std::int64_t count);
Cell bytes_cell(Bytes bytes);
Cell seconds_cell(Seconds seconds);
/// "12.3 %"; exact: 0.123
Cell share_cell(double share);

/// Memory of every rank with a program of its own: one row each, every category a column.
Table ranks_table(const Report& report);
/// Categories of one rank against its capacity.
Table memory_table(const RankMemory& memory);
/// What stands on the device in each phase, where a step has more than training's own.
Table phases_table(const RankMemory& memory);
Table time_table(const TimeReport& time);
Table kernels_table(const TimeReport& time);

/// What was assumed, noted and not read.
std::vector<Listing> listings_of(const Report& report);

/// "plimsoll/view/1" of a rehearsal: what its framework's allocator and the played streams did.
std::string rehearsal_views(const Rehearsal& rehearsal);

/// The document of a report without its tables.
Document heading_of(const Report& report);

}  // namespace plimsoll
