// List prices: the shipped ones, a user's own, and how old one is.
#include "plimsoll/price_list.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// A file of prices for the time of a test.
class PricesFile {
 public:
  explicit PricesFile(const std::string& text) : path_(std::filesystem::path(testing::TempDir()) / "own_prices.json") { std::ofstream(path_) << text; }
  ~PricesFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string file_of(const std::string& rows) { return R"({"schema": "plimsoll/prices/1", "prices": [)" + rows + "]}"; }

std::string row_of(const std::string& device, const std::string& kind, const std::string& date, const std::string& dollars = "2.5") {
  return R"({"device": ")" + device + R"(", "dollars_per_gpu_hour": )" + dollars + R"(, "kind": ")" + kind + R"(", "provider": "us", "date": ")" + date +
         R"(", "source": "contract"})";
}

std::string complaint_of(const std::string& text) {
  const PricesFile file(text);
  try {
    read_prices(file.path());
  } catch (const Error& error) {
    return error.what();
  }
  return "read";
}

// What is promised of the shipped list: 25 devices on 8 providers, each row dated and sourced. A provider's name stands before its first comma.
TEST(Prices, CoverTheDevicesThatAreRented) {
  std::set<std::string> devices, providers, kinds;
  std::set<std::vector<std::string>> rows;
  for (const auto& [device, price] : shipped_prices().rows) {
    devices.insert(device);
    kinds.insert(price.kind);
    providers.insert(price.provider.substr(0, price.provider.find(',')));
    EXPECT_TRUE(rows.insert({device, price.provider, price.kind}).second) << device << " of " << price.provider << " stands there twice";
    EXPECT_GT(price.dollars_per_gpu_hour, 0.04) << device << " of " << price.provider;
    EXPECT_LT(price.dollars_per_gpu_hour, 20) << device << " of " << price.provider;
  }
  EXPECT_GE(devices.size(), 25U);
  EXPECT_GE(providers.size(), 8U);
  EXPECT_EQ(kinds, (std::set<std::string>{"on-demand", "reserved"}));
}

// Who commits himself pays less: of one offer (the reserved row's name goes on where the on-demand row's ends) the reserved price is the lower one.
TEST(Prices, ReservedOnesAreBelowOnDemandOnes) {
  int compared = 0;
  for (const auto& [device, reserved] : shipped_prices().rows)
    for (const GpuPrice& price : prices_in(shipped_prices(), device))
      if (reserved.kind == "reserved" && price.kind == "on-demand" && price.date == reserved.date && reserved.provider.rfind(price.provider + ",", 0) == 0) {
        EXPECT_LT(reserved.dollars_per_gpu_hour, price.dollars_per_gpu_hour) << device << " of " << reserved.provider;
        ++compared;
      }
  EXPECT_GT(compared, 10);
}

TEST(Prices, AUsersOwnTakeThePlaceOfTheShippedOnesOfTheirDevices) {
  const PricesFile file(file_of(row_of("H100", "reserved", "2026-11", "9.75") + "," + row_of("w7900", "on-demand", "2026-11-02")));
  const PriceList list = read_prices(file.path());
  const auto h100 = reckoned_price(list, "h100-sxm");
  ASSERT_TRUE(h100);
  EXPECT_EQ(h100->dollars_per_gpu_hour, 9.75) << "the shipped on-demand ones are cheaper, and another's";
  EXPECT_EQ(h100->provider, "us");
  EXPECT_EQ(prices_in(list, "h100-sxm").size(), 1U);
  ASSERT_TRUE(reckoned_price(list, "w7900"));
  EXPECT_EQ(prices_in(list, "mi300x").size(), prices_of("mi300x").size());
  EXPECT_EQ(priced_nodes(list).size(), priced_nodes(shipped_prices()).size() + 1);
}

// File, pointer, and what was expected.
TEST(Prices, AWrongFileIsToldByItsPlace) {
  const std::string good = row_of("h100-sxm", "on-demand", "2026-05-07");
  EXPECT_EQ(complaint_of(file_of(good)), "read");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"{", "own_prices.json"},
      {R"({"schema": "plimsoll/estimate/1", "prices": []})", "#/schema"},
      {file_of(""), "#/prices"},
      {file_of(row_of("h100-smx", "on-demand", "2026-05-07")), "#/prices/0/device"},
      {file_of(good + "," + row_of("h100-sxm", "on demand", "2026-05-07")), "#/prices/1/kind"},
      {file_of(row_of("h100-sxm", "spot", "2026-05-07")), "--spot-price-per-gpu-hour"},
      {file_of(row_of("h100-sxm", "on-demand", "May 2026")), "#/prices/0/date"},
      {file_of(row_of("h100-sxm", "on-demand", "2026-13")), "#/prices/0/date"},
      {file_of(row_of("h100-sxm", "on-demand", "2026-02-30")), "#/prices/0/date"},
      {file_of(row_of("h100-sxm", "on-demand", "2026-05-07", "-1")), "#/prices/0/dollars_per_gpu_hour"},
      {file_of(row_of("h100-sxm", "on-demand", "2026-05-07", "\"2.5\"")), "#/prices/0/dollars_per_gpu_hour"},
      {file_of(R"({"device": "h100-sxm"})"), "#/prices/0"},
      {R"({"schema": "plimsoll/prices/1", "price": [], "prices": [)" + good + "]}", "'price'"}};
  for (const auto& [text, place] : wrong) EXPECT_NE(complaint_of(text).find(place), std::string::npos) << text << "\n" << complaint_of(text);
  EXPECT_THROW(read_prices("no/such/prices.json"), Error);
}

TEST(Prices, AnOldOneIsToldWithItsAge) {
  const auto warning = [](const std::string& date, const std::string& today) { return age_warning(GpuPrice{1, "on-demand", "us", date, "there"}, today); };
  EXPECT_EQ(warning("2024-12", "2026-11-28"), "price of 2024-12, 23 months old") << "as of the first of its month";
  EXPECT_EQ(warning("2024-12-29", "2026-11-28"), "price of 2024-12-29, 22 months old");
  EXPECT_EQ(warning("2025-11-28", "2026-11-28"), "price of 2025-11-28, 12 months old");
  EXPECT_EQ(warning("2025-11-29", "2026-11-28"), "");
  EXPECT_EQ(warning("2026-05-24", "2026-11-28"), "");
  EXPECT_EQ(warning("2027-05-24", "2026-11-28"), "") << "the clock is wrong";
  EXPECT_EQ(warning("", "2026-11-28"), "") << "as given";
}

}  // namespace
}  // namespace plimsoll
