// What the ranks of a host keep in its memory, and what it says of a run.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

Report estimated(const std::string& cluster, const Options& more) {
  Options options = {{"zero", "3"}, {"offload", "params+optimizer"}, {"seq_len", "512"}, {"micro_batch", "1"}, {"recompute", "full"}};
  options.insert(options.end(), more.begin(), more.end());
  Strategy strategy;
  set_options(strategy, options);
  return estimate(load_model("llama-3.2-1b"), parse_cluster(cluster), strategy);
}

bool notes(const Report& report, const std::string& what) {
  for (const std::string& note : report.notes)
    if (note.find(what) != std::string::npos) return true;
  return false;
}

// Eight ranks of one host keep eight times what one does.
TEST(HostVerdict, AddsUpTheRanksOfAHost) {
  const Report one = estimated("1xh100-sxm", {}), eight = estimated("8xh100-sxm", {}), sixteen = estimated("2x8xh100-sxm", {});
  EXPECT_EQ(one.host.kept, one.ranks.front().host);
  EXPECT_EQ(eight.host.ranks, 8);
  EXPECT_EQ(eight.host.kept.count, 8 * eight.ranks.front().host.count);
  EXPECT_EQ(sixteen.host.ranks, 8);
  EXPECT_FALSE(eight.host.capacity);  // boards of many hosts
  EXPECT_EQ(eight.verdict, Verdict::fits);
  EXPECT_TRUE(notes(eight, "give --host-memory"));
}

// The verdict turns where the host is full, and is tight from nine tenths on, whatever the devices have left.
TEST(HostVerdict, IsTheHostsWhereThatIsWorse) {
  const Bytes kept = estimated("8xh100-sxm", {}).host.kept;
  const auto with = [&](double times) {
    return estimated("8xh100-sxm", {{"host_memory", std::to_string(static_cast<std::int64_t>(times * static_cast<double>(kept.count)))}});
  };
  EXPECT_EQ(with(1.2).verdict, Verdict::fits);
  EXPECT_EQ(with(1.05).verdict, Verdict::tight);
  const Report full = with(0.95);
  EXPECT_EQ(full.verdict, Verdict::does_not_fit);
  EXPECT_EQ(full.host.verdict, Verdict::does_not_fit);
  EXPECT_GT(full.worst_rank().memory.margin(), Bytes(0));
  EXPECT_TRUE(notes(full, "the kernel kills one of them"));
}

// A file that says it: one GH200 a host of 480 GB.
TEST(HostVerdict, TakesWhatTheClustersFileSays) {
  const Report report = estimated("1xgh200", {});
  ASSERT_TRUE(report.host.capacity);
  EXPECT_EQ(report.host.capacity->count, 480'000'000'000);
}

// 16-bit weights of 1,235,814,400 parameters, once in each of eight processes or once for all.
TEST(HostVerdict, CountsCopiesOfACheckpointWhereTheirReadersAreSaid) {
  const auto loading = [](const std::string& who) {
    Strategy strategy;
    set_options(strategy, {{"data_parallel", "ddp"}, {"precision", "pure-bf16"}, {"seq_len", "512"}, {"micro_batch", "1"}, {"host_loading", who}});
    return estimate(load_model("llama-3.2-1b"), parse_cluster("8xh100-sxm"), strategy).host.loading.count;
  };
  EXPECT_EQ(loading("first-rank"), 2 * 1'235'814'400LL);
  EXPECT_EQ(loading("every-rank"), 8 * 2 * 1'235'814'400LL);
}

}  // namespace
}  // namespace plimsoll
