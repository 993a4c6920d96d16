#include "plimsoll/units.hpp"

#include <gtest/gtest.h>

#include "plimsoll/error.hpp"

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

TEST(Errors, NearestNameIsFoundAndFarOnesAreNot) {
  EXPECT_EQ(nearest_name("hiden_size", {"hidden_size", "num_layers"}), "hidden_size");
  EXPECT_EQ(nearest_name("zzzzzzzz", {"hidden_size", "num_layers"}), "");
}

}  // namespace
}  // namespace plimsoll
