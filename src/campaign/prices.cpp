#include "campaign/prices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/price_list.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll {
namespace {

constexpr const char* kShipped = "hardware/prices.json";
constexpr const char* kSchema = "plimsoll/prices/1";
constexpr int kOldMonths = 12, kFirstYear = 2000;

std::optional<int> number_in(const std::string& text, std::size_t from, std::size_t digits) {
  if (from + digits > text.size()) return std::nullopt;
  int number = 0;
  const char* last = text.data() + from + digits;
  const auto [end, error] = std::from_chars(text.data() + from, last, number);
  return error == std::errc() && end == last && number >= 0 ? std::optional(number) : std::nullopt;
}

/// "2026-05-07", or "2024-12", the first of it; nullopt: no day of the calendar.
std::optional<std::chrono::year_month_day> date_of(const std::string& text) {
  const bool has_day = text.size() == 10 && text[7] == '-';
  if ((text.size() != 7 && !has_day) || text[4] != '-') return std::nullopt;
  const auto year = number_in(text, 0, 4), month = number_in(text, 5, 2), day = has_day ? number_in(text, 8, 2) : std::optional(1);
  if (!year || !month || !day) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  return date.ok() && *year >= kFirstYear ? std::optional(date) : std::nullopt;
}

/// Whole months from one day to another.
int months_between(const std::chrono::year_month_day& from, const std::chrono::year_month_day& to) {
  const auto months = std::chrono::year_month(to.year(), to.month()) - std::chrono::year_month(from.year(), from.month());
  return static_cast<int>(months.count()) - (to.day() < from.day() ? 1 : 0);
}

std::string kind_value(const JsonValue& value) {
  const std::vector<std::string> kinds{"on-demand", "reserved"};
  const std::string& kind = value.text();
  if (kind == "spot") fail("a spot price is no list price", value.where(), "campaign takes it as --spot-price-per-gpu-hour");
  if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) fail("there is no kind '" + kind + "'", value.where(), suggest(kind, kinds));
  return kind;
}

std::string date_value(const JsonValue& value) {
  if (!date_of(value.text())) fail("'" + value.text() + "' is no date", value.where(), "the day that the price was published: 2026-05-07, or 2026-05");
  return value.text();
}

std::string name_value(const JsonValue& value) {
  if (value.text().empty()) fail("the text is empty", value.where(), "who asks the price, or where it is published");
  return value.text();
}

std::pair<std::string, GpuPrice> row_of(const JsonValue& row) {
  return {hardware::device_value(row["device"]),
          {row["dollars_per_gpu_hour"].number(0.001, 10'000), kind_value(row["kind"]), name_value(row["provider"]), date_value(row["date"]),
           name_value(row["source"])}};
}

void sort_by_price(PriceList& list) {
  std::stable_sort(list.rows.begin(), list.rows.end(),
                   [](const auto& a, const auto& b) { return a.second.dollars_per_gpu_hour < b.second.dollars_per_gpu_hour; });
}

/// `failures`, which another file need not have, is published_gpu_hours_between_failures' to read.
PriceList list_of(const JsonValue& root) {
  if (const std::string& schema = root["schema"].text(); schema != kSchema)
    fail("the schema '" + schema + "' is not one of prices", root["schema"].where(), kSchema);
  for (const char* other : {"note", "failures"})
    if (const auto found = root.find(other)) found->mark_read();
  PriceList list;
  for (const JsonValue& row : root["prices"].elements()) list.rows.push_back(row_of(row));
  if (list.rows.empty()) fail("there is no price", root["prices"].where(), "at least one row; docs/campaign.md has one");
  if (const auto unread = root.unread_keys(); !unread.empty())
    fail("unknown key '" + unread.front() + "'", root.where() + "#/" + unread.front(), "docs/campaign.md lists the keys");
  sort_by_price(list);
  return list;
}

}  // namespace

const PriceList& shipped_prices() {
  static const PriceList list = list_of(hardware::shipped_document(kShipped).root());
  return list;
}

PriceList read_prices(const std::string& path) {
  PriceList list = list_of(JsonDocument::read_file(path).root());
  std::set<std::string> own;
  for (const auto& [device, price] : list.rows) own.insert(device);
  for (const auto& row : shipped_prices().rows)
    if (own.count(row.first) == 0) list.rows.push_back(row);
  sort_by_price(list);
  return list;
}

std::vector<GpuPrice> prices_in(const PriceList& list, const std::string& device) {
  std::vector<GpuPrice> prices;
  for (const auto& [of, price] : list.rows)
    if (of == device) prices.push_back(price);
  return prices;
}

std::vector<GpuPrice> prices_of(const std::string& device) { return prices_in(shipped_prices(), device); }

std::optional<GpuPrice> reckoned_price(const PriceList& list, const std::string& device) {
  std::optional<GpuPrice> reckoned;
  for (const GpuPrice& price : prices_in(list, device))
    if (!reckoned || (reckoned->kind != "on-demand" && price.kind == "on-demand")) reckoned = price;
  return reckoned;
}

std::vector<std::string> priced_nodes(const PriceList& list) {
  std::set<std::string> devices;
  for (const auto& [device, price] : list.rows) devices.insert(device);
  std::vector<std::string> nodes;
  for (const std::string& device : devices) nodes.push_back(std::to_string(parse_cluster("1x" + device).node.gpus_per_host) + "x" + device);
  return nodes;
}

std::string age_warning(const GpuPrice& price, const std::string& today) {
  const auto then = date_of(price.date), now = date_of(today);
  if (!then || !now) return {};
  const int months = months_between(*then, *now);
  return months < kOldMonths ? std::string() : fmt::format("price of {}, {} months old", price.date, months);
}

namespace campaigning {

double published_gpu_hours_between_failures() {
  const JsonDocument document = hardware::shipped_document(kShipped);
  return document.root()["failures"]["gpu_hours_between"].number(1, 1e12);
}

}  // namespace campaigning
}  // namespace plimsoll
