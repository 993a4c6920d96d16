// Prices against kernels that were timed on an H100 inside training steps, and on an H200 alone with the H100's constants and its own bandwidth.
#include "silicon_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "plimsoll/cost.hpp"

namespace plimsoll {
namespace {

struct Miss {
  double error, weight;  ///< |price / measured − 1|; the time that the row stands for
};

std::vector<silicon::TimedKernel> rows_of(const std::string& file) {
  return silicon::read(std::string(PLIMSOLL_SOURCE_DIR "/tests/cost/data/") + file);
}

std::vector<Miss> misses(const std::vector<silicon::TimedKernel>& rows, const Accelerator& device, std::string_view kind) {
  std::vector<Miss> list;
  for (const auto& row : rows)
    if (kind == row.kind || (kind == "memory" && row.kind != "attention"))
      list.push_back({std::abs(price(row.kernel, device).value * 1e6 / row.microseconds - 1), row.launches * row.microseconds});
  std::sort(list.begin(), list.end(), [](const Miss& a, const Miss& b) { return a.error < b.error; });
  return list;
}

/// The error that rows of that share of the time do not exceed.
double error_at(const std::vector<Miss>& sorted, double share) {
  double all = 0, passed = 0;
  for (const Miss& miss : sorted) all += miss.weight;
  for (const Miss& miss : sorted)
    if ((passed += miss.weight) >= share * all) return miss.error;
  return sorted.empty() ? 1 : sorted.back().error;
}

void expect_within(const std::vector<silicon::TimedKernel>& rows, const Accelerator& device, std::string_view kind, double median,
                   double nine_in_ten) {
  const std::vector<Miss> list = misses(rows, device, kind);
  ASSERT_GE(list.size(), 10U) << kind;
  EXPECT_LE(error_at(list, 0.5), median) << kind;
  EXPECT_LE(error_at(list, 0.9), nine_in_ten) << kind;
  EXPECT_LE(list[list.size() / 2].error, 2.5 * median) << kind << ", unweighted";
}

TEST(Silicon, H100Steps) {
  const auto rows = rows_of("h100_steps.json");
  const Accelerator device = load_accelerator("h100-sxm");
  expect_within(rows, device, "memory", 0.03, 0.10);
  expect_within(rows, device, "pointwise", 0.03, 0.10);
  expect_within(rows, device, "row_wise", 0.03, 0.07);
  expect_within(rows, device, "multi_tensor", 0.03, 0.10);
  expect_within(rows, device, "attention", 0.05, 0.14);
  expect_within(rows, device, "gather", 0.06, 0.15);
  expect_within(rows, device, "reduction", 0.12, 0.25);
}

// Nothing of the H200 is fitted but its bandwidth: kernels bound by instructions gain as little as they do (1.06 to 1.16 times).
TEST(Silicon, H200WithTheConstantsOfTheH100) {
  const auto rows = rows_of("h200_alone.json");
  const Accelerator device = load_accelerator("h200");
  expect_within(rows, device, "memory", 0.065, 0.15);
  expect_within(rows, device, "pointwise", 0.065, 0.15);
  expect_within(rows, device, "attention", 0.04, 0.08);
}

}  // namespace
}  // namespace plimsoll
