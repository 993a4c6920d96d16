#include "rehearse/recorded_values.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostRanks = 10'000'000;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60U;

}  // namespace

DType type_of(record::Type type) {
  switch (type) {
    case record::Type::f64:
      return DType::fp64;
    case record::Type::f16:
      return DType::fp16;
    case record::Type::bf16:
    case record::Type::i16:
    case record::Type::u16:
      return DType::bf16;
    case record::Type::f8_e4m3:
    case record::Type::f8_e5m2:
    case record::Type::f8_e8m0:
    case record::Type::f4_e2m1:
    case record::Type::f6_e2m3:
    case record::Type::f6_e3m2:
      return DType::fp8;
    case record::Type::i64:
    case record::Type::u64:
      return DType::int64;
    case record::Type::i32:
    case record::Type::u32:
      return DType::int32;
    case record::Type::i8:
    case record::Type::i4:
      return DType::int8;
    case record::Type::u8:
      return DType::uint8;
    case record::Type::c64:
    case record::Type::c128:
      return DType::complex64;
    default:
      return DType::fp32;
  }
}

CollectiveKind kind_of(record::Collective op) {
  switch (op) {
    case record::Collective::all_reduce:
      return CollectiveKind::all_reduce;
    case record::Collective::all_gather:
      return CollectiveKind::all_gather;
    case record::Collective::reduce_scatter:
      return CollectiveKind::reduce_scatter;
    case record::Collective::all_to_all:
    case record::Collective::all_to_all_v:
    case record::Collective::gather:
    case record::Collective::scatter:
      return CollectiveKind::all_to_all;
    case record::Collective::send:
      return CollectiveKind::send;
    case record::Collective::receive:
      return CollectiveKind::receive;
    default:
      return CollectiveKind::broadcast;  // a reduction to one rank moves what a broadcast moves
  }
}

std::int64_t full_bytes(CollectiveKind kind, std::int64_t argument, std::int64_t ranks) {
  const bool share = kind == CollectiveKind::all_gather || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
  const double whole = static_cast<double>(argument) * static_cast<double>(std::max<std::int64_t>(ranks, 1));
  return !share ? argument : whole < 1e18 ? argument * std::max<std::int64_t>(ranks, 1) : kMostBytes;
}

std::int64_t plus(std::int64_t sum, std::int64_t change) {
  return std::clamp(sum + std::clamp(change, -kMostBytes, kMostBytes), -kMostBytes, kMostBytes);
}

std::int64_t signed_bytes(std::uint64_t bytes) {
  return static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 60U));
}

std::vector<std::int64_t> numbers_in(const std::string& text) {
  std::vector<std::int64_t> ranks;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    std::int64_t rank = 0;
    const auto [next, error] = std::from_chars(at, end, rank);
    if (error != std::errc() || rank < 0 || rank > kMostRanks) return {};
    ranks.push_back(rank);
    at = next;
    while (at < end && *at == ' ') ++at;
  }
  return ranks;
}

std::optional<record::Gemm> grouped_product(const std::string& text) {
  const std::vector<std::int64_t> numbers = numbers_in(text);
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  if (numbers.size() != 5 || std::any_of(numbers.begin(), numbers.end(), [](std::int64_t each) { return each < 0 || each > kMost; }))
    return {};
  record::Gemm product{};
  product.m = numbers[0];
  product.n = numbers[1];
  product.k = numbers[2];
  product.batch = static_cast<decltype(product.batch)>(std::min<std::int64_t>(numbers[3], 1 << 20));
  product.a = product.b = numbers[4] == 1 ? record::Type::f8_e4m3 : record::Type::bf16;
  product.c = product.d = record::Type::bf16;
  return product;
}

}  // namespace plimsoll::rehearse
