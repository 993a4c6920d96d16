// The bands around predictions: hardware/residuals.json by kinds of runs, the narrowest that fits.
#include "estimate/residuals.hpp"

#include <gtest/gtest.h>

#include <set>

#include "hardware/read_values.hpp"

namespace plimsoll::estimation {
namespace {

// A kind of which nothing is known has the band of all runs: there is one for each quantity, on both sides of the prediction.
TEST(Residuals, WhatNobodyMeasuredHasTheBandOfAll) {
  for (const char* quantity : {"bytes", "step_seconds"}) {
    const Band band = band_of(quantity, {}, 100);
    EXPECT_LT(band.low, 100) << quantity;
    EXPECT_GT(band.high, 100) << quantity;
  }
}

// Every entry tells kinds by the words that a run's kind has, holds the prediction itself, and stands before those whose words are a part of
// its own: else it would never be reached.
TEST(Residuals, EntriesGoFromNarrowToWide) {
  const std::set<std::string> known = {"framework", "place", "network", "device", "arithmetic", "training", "basis", "host", "software"};
  const JsonDocument document = hardware::shipped_document("hardware/residuals.json");
  std::vector<std::pair<std::string, RunKind>> before;
  for (const JsonValue& row : document.root()["residuals"].elements()) {
    RunKind when;
    for (const std::string& word : row["when"].keys()) {
      EXPECT_EQ(known.count(word), 1u) << word;
      when[word] = row["when"][word].text();
    }
    const Band band = band_of(row["quantity"].text(), when, 100);
    EXPECT_NEAR(band.low, 100 / (1 + row["high"].number(0, 1000)), 1e-9);
    EXPECT_NEAR(band.high, 100 / (1 + row["low"].number(-1, 0)), 1e-9);
    before.emplace_back(row["quantity"].text(), when);
  }
  EXPECT_FALSE(before.empty());
}

// An uncompiled step needs more time and memory than the compiled one that it stands for: the bands lie below.
TEST(Residuals, ClosedFormsHaveTheirBandBelowThem) {
  const RunKind closed{{"basis", "closed form"}};
  const Band time = band_of("step_seconds", closed, 100);
  EXPECT_EQ(time.high, 100);
  EXPECT_LT(time.low, 80);
  const Band memory = band_of("bytes", closed, 100);
  EXPECT_GT(100 - memory.low, memory.high - 100);
}

}  // namespace
}  // namespace plimsoll::estimation
