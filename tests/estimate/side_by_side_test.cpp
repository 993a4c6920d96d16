// Ranks that are estimated side by side, on several threads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "estimate/read_programs.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

/// What of a report is read off each rank, and off all together: which kernels come first among equals too.
std::vector<std::string> told(const Report& report) {
  std::vector<std::string> lines{std::to_string(report.time.step_seconds.expected)};
  for (const RankReport& rank : report.ranks)
    lines.push_back(std::to_string(rank.stage) + " " + std::to_string(rank.memory.allocated.count) + " " +
                    std::to_string(rank.memory.reserved.count) + " " + std::to_string(rank.work->launches) + " " + rank.memory.peak_label);
  for (const DearKernel& kernel : report.time.dearest) lines.push_back(kernel.what + " " + kernel.label + " " + std::to_string(kernel.launches));
  return lines;
}

// Who reads the programs sees them one by one, so its ranks are estimated one after the other.
TEST(SideBySide, RanksSayWhatTheySayOneAfterTheOther) {
  const Model model = load_model("llama-3.1-8b");
  const Cluster cluster = parse_cluster("8xh100-sxm");
  for (const char* framework : {"megatron", "torchtitan"}) {
    Strategy strategy;
    set_options(strategy, {{"framework", framework}, {"pp", "8"}, {"micro_batch", "1"}, {"global_batch", "16"}, {"seq_len", "1024"}});
    const std::vector<std::string> one_by_one = told(estimation::estimate_and_read(model, cluster, strategy, [](const StepProgram&) {}));
    for (int run = 0; run < 5; ++run) EXPECT_EQ(told(estimate(model, cluster, strategy)), one_by_one) << framework;
  }
}

}  // namespace
}  // namespace plimsoll
