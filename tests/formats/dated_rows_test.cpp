// What a row's source says about the releases that it ran on.
#include <gtest/gtest.h>

#include <string>

#include "plimsoll/rows.hpp"

namespace plimsoll {
namespace {

std::string row_of(const std::string& date, const std::string& more) {
  return R"([{"id": "a", "source": {"title": "t", "version_or_date": ")" + date + R"("}, "model": {"name": "gpt2"},
    "hardware": {"gpu": "V100-16GB", "gpus": 1}, "training": {"framework": "hf-transformers", "seq_len": 512, "micro_batch": 4,
    "precision": "fp32")" +
         more + R"(}, "measured": {"peak_mem_gib": 14.0, "peak_mem_kind": "device"}}])";
}

// PyTorch 2.0 is of March 2023: an undated run of a source from 2022 was before it.
TEST(DatedRows, AYearBeforePyTorch2) {
  const auto torch_of = [](const std::string& date, const std::string& more) {
    const std::vector<MeasuredRow> rows = parse_rows(row_of(date, more), "rows");
    const Releases::Entry* torch = rows.at(0).strategy.releases.find(Package::torch);
    return torch ? torch->release.text() : std::string();
  };
  EXPECT_EQ(torch_of("2022-2023", ""), "1.13");
  EXPECT_EQ(torch_of("2023", ""), "");
  EXPECT_EQ(torch_of("2022-2023", R"(, "torch": "2.1")"), "2.1");
  EXPECT_EQ(torch_of("2022", R"(, "framework_version": "4.30")"), "");
}

}  // namespace
}  // namespace plimsoll
