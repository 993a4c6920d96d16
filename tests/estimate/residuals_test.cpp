// The bands around predictions: measured ones as hardware/residuals.json has them, unmeasured ones wider.
#include "estimate/residuals.hpp"

#include <gtest/gtest.h>

namespace plimsoll::estimation {
namespace {

// No run ever held a closed form of reserved bytes to account: its band is that of played ones with both errors doubled, never none.
TEST(Residuals, WhatNobodyMeasuredHasTwiceTheBand) {
  const Band played = band_of("reserved_bytes", "no framework", Basis::played, 100),
             closed = band_of("reserved_bytes", "no framework", Basis::closed_form, 100);
  const double above = 100 / played.low - 1, below = 100 / played.high - 1;  // predicted / measured − 1
  EXPECT_GT(above, 0);
  EXPECT_LT(below, 0);
  EXPECT_NEAR(closed.low, 100 / (1 + 2 * above), 1e-9);
  EXPECT_NEAR(closed.high, 100 / (1 + 2 * below), 1e-9);
}

// Step times of closed forms were measured: too fast, so the band lies above.
TEST(Residuals, AQuickClosedFormHasItsBandAboveIt) {
  const Band band = band_of("step_seconds", "no framework", Basis::closed_form, 100);
  EXPECT_EQ(band.low, 100);
  EXPECT_GT(band.high, 120);
}

}  // namespace
}  // namespace plimsoll::estimation
