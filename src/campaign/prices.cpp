#include "campaign/prices.hpp"

#include <algorithm>

#include "hardware/read_values.hpp"

namespace plimsoll {

std::vector<GpuPrice> prices_of(const std::string& device) {
  const JsonDocument document = hardware::shipped_document("hardware/prices.json");
  std::vector<GpuPrice> prices;
  for (const JsonValue& row : document.root()["prices"].elements())
    if (hardware::device_value(row["device"]) == device)
      prices.push_back({row["dollars_per_gpu_hour"].number(0.001, 10'000), row["kind"].text(), row["provider"].text(), row["date"].text(),
                        row["source"].text()});
  std::stable_sort(prices.begin(), prices.end(), [](const GpuPrice& a, const GpuPrice& b) { return a.dollars_per_gpu_hour < b.dollars_per_gpu_hour; });
  return prices;
}

namespace campaigning {

double published_gpu_hours_between_failures() {
  const JsonDocument document = hardware::shipped_document("hardware/prices.json");
  return document.root()["failures"]["gpu_hours_between"].number(1, 1e12);
}

}  // namespace campaigning
}  // namespace plimsoll
