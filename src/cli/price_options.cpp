#include "price_options.hpp"

#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "plimsoll/error.hpp"
#include "plimsoll/printable.hpp"

namespace plimsoll::cli {
namespace {

constexpr const char* kEpoch = "SOURCE_DATE_EPOCH";
constexpr std::int64_t kLastSecond = 253402300799;  // of the year 9999

std::time_t now() {
  const char* said = std::getenv(kEpoch);
  if (!said || *said == '\0') return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const std::string_view text = said;
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0 || seconds > kLastSecond)
    fail("it is no number of seconds since 1970", kEpoch, "1764288000, or leave it unset");
  return static_cast<std::time_t>(seconds);
}

}  // namespace

Option prices_option() { return {Option::value, kPrices, "a file of your own prices (docs/campaign.md)", false, {}, true}; }

PriceList prices_said(const Arguments& arguments) { return arguments.has(kPrices) ? read_prices(arguments[kPrices]) : shipped_prices(); }

std::string today() {
  const std::time_t seconds = now();
  std::tm day{};
  gmtime_r(&seconds, &day);
  char text[16];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%d", &day);
  return {text, length};
}

std::string age_note(const GpuPrice& price, const std::string& lead) {
  const std::string warning = age_warning(price, today());
  return warning.empty() ? std::string() : lead + warning + "\n";
}

std::string age_note_of(const std::string& machine, const std::optional<GpuPrice>& price) {
  return price ? age_note(*price, "  " + printable(machine) + ": ") : std::string();
}

}  // namespace plimsoll::cli
