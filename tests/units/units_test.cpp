#include "plimsoll/units.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"
#include "units/length.hpp"

namespace plimsoll {
namespace {

TEST(Units, BinaryAndDecimalSizesAreKeptApart) {
  EXPECT_EQ(parse_bytes("80 GiB"), Bytes(80LL << 30));
  EXPECT_EQ(parse_bytes("141 GB"), Bytes(141'000'000'000));
  EXPECT_EQ(parse_bytes("512MiB"), 512_MiB);
}

TEST(Units, NetworkRatesAreInBits) {
  // 400 Gbit/s = 400e9 / 8 bytes per second
  EXPECT_DOUBLE_EQ(parse_bytes_per_second("400 Gbit/s").value, 50e9);
  EXPECT_DOUBLE_EQ(parse_bytes_per_second("5.3 TB/s").value, 5.3e12);
}

TEST(Units, NonsenseIsRefusedWithWhatWasExpected) {
  EXPECT_THROW(parse_bytes("80"), Error);
  EXPECT_THROW(parse_bytes("nan GiB"), Error);
  EXPECT_THROW(parse_bytes("-1 GiB"), Error);
  EXPECT_THROW(parse_bytes("1e30 TiB"), Error);
  EXPECT_THROW(parse_flops_per_second("12 furlongs"), Error);
}

TEST(Units, PrintedWithTheirNames) {
  EXPECT_EQ(to_string(Bytes(88'453'000'000)), "82.38 GiB");
  EXPECT_EQ(with_thousands(8030261248), "8,030,261,248");
  EXPECT_EQ(with_thousands(-999), "-999");
  EXPECT_EQ(to_string(Seconds(0.0123)), "12.3 ms");
}

// k is 1,024 and m its square, in either case; anything else, and what overflows, is no length.
TEST(Lengths, AreDigitsWithOneLetterAtMost) {
  EXPECT_EQ(parse_length("8192"), 8192);
  EXPECT_EQ(parse_length("8k"), 8192);
  EXPECT_EQ(parse_length("1M"), 1048576);
  for (const char* wrong : {"", "k", "1kk", "1.5k", "-1k", "8 k", "0x8", "999999999m", "99999999999999999999"}) EXPECT_FALSE(parse_length(wrong)) << wrong;
}

TEST(Errors, NearestNameIsFoundAndFarOnesAreNot) {
  EXPECT_EQ(nearest_name("hiden_size", {"hidden_size", "num_layers"}), "hidden_size");
  EXPECT_EQ(nearest_name("zzzzzzzz", {"hidden_size", "num_layers"}), "");
}

// What begins so comes before what is a letter away, that before what holds the name somewhere; capitals are no difference.
TEST(Errors, BeginningsComeBeforeTyposAndThoseBeforeParts) {
  const std::vector<std::string> devices{"a100-40gb", "a100-80gb-pcie", "a100-80gb-sxm", "rtx4090", "mi300a", "mi300x"};
  EXPECT_EQ(meant("a100-80g", devices), "did you mean 'a100-80gb-pcie', 'a100-80gb-sxm'?");
  EXPECT_EQ(meant("MI300", devices), "did you mean 'mi300a', 'mi300x'?");
  EXPECT_EQ(meant("RTX4O90", devices), "did you mean 'rtx4090'?");
  EXPECT_EQ(meant("4090", devices), "did you mean 'rtx4090'?");
  EXPECT_EQ(meant("90", devices), "") << "two letters stand in many names";
  EXPECT_EQ(meant("", devices), "");
  EXPECT_EQ(suggest("tpu", devices).substr(0, 8), "one of: ");
}

}  // namespace
}  // namespace plimsoll
