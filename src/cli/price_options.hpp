// --prices FILE, and how old a price is today.
#pragma once

#include <optional>
#include <string>

#include "command.hpp"
#include "plimsoll/price_list.hpp"

namespace plimsoll::cli {

inline constexpr const char* kPrices = "--prices";

Option prices_option();

/// The list that the line names, with the shipped prices of all other devices; else the shipped ones.
PriceList prices_said(const Arguments& arguments);

/// The day of SOURCE_DATE_EPOCH (reproducible-builds.org), which makes a report the same on every day; else of the clock. UTC: "2026-11-28".
/// Throws Error: that variable is no number of seconds.
std::string today();

/// A line of `lead` and the age of a price that is older than a year; empty for others.
std::string age_note(const GpuPrice& price, const std::string& lead);

/// The same of one machine among several; empty where it has no price.
std::string age_note_of(const std::string& machine, const std::optional<GpuPrice>& price);

}  // namespace plimsoll::cli
