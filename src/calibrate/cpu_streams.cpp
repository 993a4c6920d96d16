#include "calibrate/cpu_streams.hpp"

#include <algorithm>
#include <cstring>

namespace plimsoll::calibrate {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kRow = 1024;  // of a gather

/// y = x / 2 + 1/4: stays within (−1, 1) however often it is applied.
void map(const std::byte* from, std::byte* to, std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const auto* x = reinterpret_cast<const float*>(from);
  auto* y = reinterpret_cast<float*>(to);
  for (std::size_t i = 0; i < count; ++i) y[i] = 0.5F * x[i] + 0.25F;
  std::memcpy(to + count * sizeof(float), from + count * sizeof(float), bytes % sizeof(float));
}

/// Sums side by side, of memory that need not be aligned; the result leaves through a volatile so that nothing is optimised away.
void sum(const std::byte* from, std::size_t bytes) {
  constexpr std::size_t kLanes = kLine / sizeof(std::uint32_t);
  const std::size_t whole = bytes / kLine * kLine;
  std::uint32_t totals[kLanes] = {};
  for (std::size_t at = 0; at < whole; at += kLine) {
    std::uint32_t line[kLanes];
    std::memcpy(line, from + at, kLine);
    for (std::size_t lane = 0; lane < kLanes; ++lane) totals[lane] += line[lane];
  }
  std::uint32_t total = 0;
  for (std::uint32_t each : totals) total += each;
  for (std::size_t i = whole; i < bytes; ++i) total += static_cast<std::uint32_t>(from[i]);
  volatile std::uint32_t sink = total;
  static_cast<void>(sink);
}

/// Rows of a table in an order that no prefetcher follows, each once.
void gather(const std::byte* from, std::byte* to, std::size_t bytes) {
  const std::size_t rows = bytes / kRow;
  std::size_t stride = rows * 5 / 8 | 1;
  while (rows > 1 && std::max<std::size_t>(stride, 1) % rows != 0 && [&] {
    std::size_t a = rows, b = stride % rows;
    while (b != 0) std::swap(a %= b, b);
    return a != 1;
  }())
    stride += 2;
  for (std::size_t i = 0, row = 0; i < rows; ++i, row = (row + stride) % rows) std::memcpy(to + i * kRow, from + row * kRow, kRow);
  std::memcpy(to + rows * kRow, from + rows * kRow, bytes % kRow);
}

}  // namespace

std::pair<std::size_t, std::size_t> share_of(std::size_t bytes, int part, int parts) {
  const std::size_t lines = bytes / kLine, n = static_cast<std::size_t>(parts), i = static_cast<std::size_t>(part);
  return {lines * i / n * kLine, i + 1 == n ? bytes : lines * (i + 1) / n * kLine};
}

void cpu_stream(plimsoll::KernelKind kind, const void* from, std::int64_t read, void* to, std::int64_t written, int part, int parts) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  const auto both = static_cast<std::size_t>(std::min(read, written));
  const auto [begin, end] = share_of(both, part, parts);
  if (kind == plimsoll::KernelKind::gather)
    gather(source + begin, target + begin, end - begin);
  else
    map(source + begin, target + begin, end - begin);
  const auto [read_from, read_to] = share_of(static_cast<std::size_t>(read) - both, part, parts);
  sum(source + both + read_from, read_to - read_from);
  const auto [write_from, write_to] = share_of(static_cast<std::size_t>(written) - both, part, parts);
  std::memset(target + both + write_from, 0, write_to - write_from);
}

}  // namespace plimsoll::calibrate
