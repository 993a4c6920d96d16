/// List prices of devices: the shipped ones, and a user's own.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/campaign.hpp"

namespace plimsoll {

/// Devices by their shipped names, and what each costs an hour, the cheapest first.
struct PriceList {
  std::vector<std::pair<std::string, GpuPrice>> rows;
};

/// hardware/prices.json.
const PriceList& shipped_prices();

/// A file of the same schema (docs/campaign.md). Its devices are reckoned with its prices alone; of all others the shipped ones stay.
/// Throws Error: no such file, another schema, an unknown device, kind or key, a price or date that is none; with file and pointer.
PriceList read_prices(const std::string& path);

std::vector<GpuPrice> prices_in(const PriceList& list, const std::string& device);
/// The cheapest on-demand one of a device, else the cheapest of any kind, whatever its date; nothing where none is listed.
std::optional<GpuPrice> reckoned_price(const PriceList& list, const std::string& device);
/// A node of every device that the list has a price of: "8xh100-sxm".
std::vector<std::string> priced_nodes(const PriceList& list);

/// "price of 2024-12, 23 months old" where that is more than a year before `today` ("2026-11-28"); empty: newer, or without a date.
/// A date without a day is taken for the first of its month.
std::string age_warning(const GpuPrice& price, const std::string& today);

}  // namespace plimsoll
