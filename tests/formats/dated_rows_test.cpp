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

// PEFT 0.7 is of 6 December 2023, 0.6 of 3 November: adapters of an undated run are those of the month, or the last of the months, that its
// source names; without adapters, a month or another release said there is nothing to date.
TEST(DatedRows, AdaptersOfTheMonthOfTheirSource) {
  const auto peft_of = [](const std::string& date, const std::string& more) {
    const std::vector<MeasuredRow> rows = parse_rows(row_of(date, more), "rows");
    const Releases::Entry* peft = rows.at(0).strategy.releases.find(Package::peft);
    return peft ? peft->release.text() : std::string();
  };
  const std::string lora = R"(, "task": "lora", "lora": {"r": 8})";
  EXPECT_EQ(peft_of("2023-11", lora), "0.6");
  EXPECT_EQ(peft_of("2023-11/12, torch 2.0, CUDA 11.8", lora), "0.7");
  EXPECT_EQ(peft_of("2023-11/12", ""), "");
  EXPECT_EQ(peft_of("2023", lora), "");
  EXPECT_EQ(peft_of("2023-99", lora), "");
  EXPECT_EQ(peft_of("2023-12", lora + R"(, "framework_version": "4.50")"), "");
}

}  // namespace
}  // namespace plimsoll
