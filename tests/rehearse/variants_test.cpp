// Settings in a command line, the search for the largest, and the front.
#include "plimsoll/variants.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

TEST(Variants, EveryCombinationIsPutIntoTheWords) {
  const auto all = combinations_of({parse_varied_key("bs=1,2"), parse_varied_key("ac=--ac,")});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1], (Settings{{"bs", "1"}, {"ac", ""}}));
  const std::vector<std::string> words{"train.py", "--batch={bs}", "{ac}", "{other}"};
  EXPECT_EQ(with_settings(words, all[2]), (std::vector<std::string>{"train.py", "--batch=2", "--ac", "{other}"}));
  EXPECT_EQ(with_settings(words, all[3]), (std::vector<std::string>{"train.py", "--batch=2", "{other}"}));  // what became empty is left out
}

TEST(Variants, WhatMakesNoSenseIsRefusedByName) {
  EXPECT_THROW(parse_varied_key("bs"), Error);
  EXPECT_THROW(parse_varied_key("=1"), Error);
  EXPECT_THROW(parse_varied_key("bs=1,1"), Error);
  EXPECT_THROW(combinations_of({{"bs", {"1"}}, {"bs", {"2"}}}), Error);
  EXPECT_THROW(with_settings({"train.py", "--batch", "{bs }"}, {{"bs", "1"}}), Error);
  EXPECT_THROW(combinations_of({{"a", std::vector<std::string>(40, "1")}, {"b", std::vector<std::string>(40, "1")}}), Error);
}

/// A value that holds its own name is put in once.
TEST(Variants, AValueMayNameItself) { EXPECT_EQ(with_settings({"{a}{a}"}, {{"a", "x{a}"}}), (std::vector<std::string>{"x{a}x{a}"})); }

struct Found {
  std::optional<std::int64_t> largest;
  int runs;
};
/// Runs the search on a program that takes `bytes(n)` of a device of `capacity`.
template <class Size>
Found search(LargestSearch numbers, std::int64_t capacity, Size bytes) {
  int runs = 0;
  for (auto number = numbers.next(); number && runs < 100; number = numbers.next(), ++runs) {
    const std::int64_t size = bytes(*number);
    numbers.tried(*number, size <= capacity, Bytes(size), Bytes(capacity));
  }
  return {numbers.largest(), runs};
}

/// 10 + 3 n of 100: 30 fit. Two runs give the line, the third lies on it, the fourth is the one beyond.
TEST(Variants, TheLargestOfALineTakesFewRuns) {
  const Found found = search(LargestSearch(1, 0), 100, [](std::int64_t n) { return 10 + 3 * n; });
  EXPECT_EQ(found.largest, 30);
  EXPECT_LE(found.runs, 6);
}

/// Whatever the curve is, the answer is the largest that fits: one that jumps, one that hardly grows, and none at all.
TEST(Variants, TheLargestIsFoundOnAnyCurve) {
  for (const std::int64_t capacity : {5, 64, 100, 1'000, 65'537}) {
    const auto jumps = [](std::int64_t n) { return (n + 7) / 8 * 8 * 4; };
    const auto flat = [](std::int64_t n) { return n < 1'000 ? 3 : 1'000'000; };
    const auto square = [](std::int64_t n) { return n * n; };
    const auto expected = [&](auto size) {
      std::optional<std::int64_t> best;
      for (std::int64_t n = 1; n < 70'000; ++n)
        if (size(n) <= capacity) best = n;
      return best;
    };
    EXPECT_EQ(search(LargestSearch(1, 0), capacity, jumps).largest, expected(jumps)) << capacity;
    EXPECT_EQ(search(LargestSearch(1, 0), capacity, flat).largest, expected(flat)) << capacity;
    EXPECT_EQ(search(LargestSearch(1, 0), capacity, square).largest, expected(square)) << capacity;
    EXPECT_LE(search(LargestSearch(1, 0), capacity, square).runs, 30);
  }
  EXPECT_FALSE(search(LargestSearch(4, 0), 3, [](std::int64_t n) { return n; }).largest);
}

/// Between 2 and 16 of a device that would hold 40: 16, the bound.
TEST(Variants, TheLargestKeepsItsBounds) { EXPECT_EQ(search(LargestSearch(2, 16), 40, [](std::int64_t n) { return n; }).largest, 16); }

/// The second is slower and leaves less than the first; the fourth does not fit; the fifth failed.
TEST(Variants, TheFrontHasWhatNothingBeats) {
  const auto variant = [](const char* verdict, std::int64_t memory, double tokens) {
    RehearsedVariant each;
    each.verdict = verdict;
    each.memory = Bytes(memory);
    each.capacity = Bytes(100);
    each.step = Seconds(1);
    each.tokens_per_second = tokens;
    return each;
  };
  const std::vector<RehearsedVariant> variants{variant("fits", 30, 50), variant("fits", 40, 40), variant("tight", 90, 80),
                                               variant("does_not_fit", 120, 99), variant("", 0, 0)};
  EXPECT_EQ(front_of(variants), (std::vector<std::size_t>{2, 0}));
}

}  // namespace
}  // namespace plimsoll
