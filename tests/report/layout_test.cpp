#include "report/layout.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace plimsoll {
namespace {

TEST(Layout, ANumberAndItsUnitStayOnOneLine) {
  EXPECT_EQ(wrapped("", "optimizer 5 %, and 6.5 ms more", 11), "optimizer\n5 %, and\n6.5 ms more\n");
}

TEST(Layout, ABarIsFilledToTheEighthOfACell) {
  EXPECT_EQ(bar(0.5, 4), "██");
  EXPECT_EQ(bar(1.0 / 32, 4), "▏");  // an eighth of one of four cells
  EXPECT_EQ(bar(0, 4), "");
  EXPECT_EQ(bar(1.7, 4), "████>");
}

TEST(Layout, ABarOfNothingKnownIsEmpty) { EXPECT_EQ(bar(std::numeric_limits<double>::quiet_NaN(), 4), ""); }

TEST(Layout, ControlCharactersOfAFileDoNotReachTheTerminal) { EXPECT_EQ(printable("a\x1b[31mb\n\x7f"), "a?[31mb??"); }

TEST(Layout, LongTextIsIndentedUnderItsLead) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "words ";
  const std::string lines = wrapped("  - ", text);
  EXPECT_EQ(lines.substr(0, 9), "  - words");
  EXPECT_NE(lines.find("\n    words"), std::string::npos);
  EXPECT_LE(lines.find('\n'), 110u);
}

TEST(Layout, ColumnsAreAsWideAsTheirWidestCell) { EXPECT_EQ(columns({{"a", "1"}, {"bcd", "22"}}), "a     1\nbcd  22\n"); }

}  // namespace
}  // namespace plimsoll
