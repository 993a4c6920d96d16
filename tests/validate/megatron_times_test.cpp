// Published step times of Megatron-LM of 2021 and 2022 on A100 (Narayanan et al. 2021, Table 1; Korthikanti et al. 2022, Table 5) against
// the played program. The bounds are those that the planner promises for these rows.
#include <gtest/gtest.h>

#include "plimsoll/rows.hpp"
#include "plimsoll/validate.hpp"

namespace plimsoll {
namespace {

void expect_step_times(const std::string& name, std::size_t rows, double median, double ninetieth) {
  const Validation found = validate({{name, load_rows(std::string(PLIMSOLL_SOURCE_DIR) + "/bench/corpus/" + name + ".json")}});
  EXPECT_TRUE(found.refused.empty());
  ASSERT_EQ(found.quantities.size(), 1U);
  EXPECT_EQ(found.quantities[0].rows, rows);
  EXPECT_LT(found.quantities[0].median, median);
  EXPECT_LT(found.quantities[0].ninetieth, ninetieth);
  for (const Comparison& row : found.rows) EXPECT_EQ(row.basis, Basis::played) << row.id << ": " << row.closed_form_because;
}

TEST(MegatronTimes, NarayananAndOthersWeakScaling) { expect_step_times("narayanan2021", 10, 0.04, 0.10); }

TEST(MegatronTimes, KorthikantiAndOthersRecomputation) { expect_step_times("korthikanti2022", 8, 0.03, 0.10); }

}  // namespace
}  // namespace plimsoll
