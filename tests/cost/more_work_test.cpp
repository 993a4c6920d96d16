// More bytes, or more ranks to reduce over, never take less time: pairs of collectives drawn over every shipped device. By hand, by the
// ten thousand for each: PLIMSOLL_DRAWS=10000 test_cost --gtest_filter='MoreWork.*'
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "plimsoll/cost.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll {
namespace {

/// Pairs for each device.
unsigned pairs(unsigned usual) {
  const char* asked = std::getenv("PLIMSOLL_DRAWS");
  return asked ? static_cast<unsigned>(std::strtoul(asked, nullptr, 10)) : usual;
}

constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                     CollectiveKind::broadcast,  CollectiveKind::all_to_all, CollectiveKind::send};

struct Drawn {
  CollectiveKind kind;
  std::int64_t bytes, ranks, stride;

  std::string text(const std::string& device) const {
    return device + ": " + std::string(name_of(kind)) + " of " + std::to_string(bytes) + " B, " + std::to_string(ranks) + " ranks, every " +
           std::to_string(stride);
  }
  double seconds(const Cluster& cluster) const {
    return price(Collective{kind, Group::world, bytes, DType::bf16}, Topology(cluster).group({0, ranks, stride}), cluster).value;
  }
};

/// NCCL's all-reduce in rings across nodes takes 1.4 times the latency where a rank's part of a channel is 64 elements or more (tuning.cc,
/// "plateau effect"): more ranks have smaller parts, and may leave it.
bool leaves_the_plateau(const Drawn& less, const Drawn& more, const Cluster& cluster) {
  const auto part = [&](const Drawn& drawn) { return drawn.bytes / (drawn.ranks * cluster.node.collectives.channels); };
  return less.kind == CollectiveKind::all_reduce && part(less) >= 64 && part(more) < 64;
}

/// The node's library as it models, without what was measured: a curve is as even as its points are, and is of the ranks it was measured over.
Cluster modelled(const std::string& device) {
  Cluster cluster = cluster_of(device, 128);
  cluster.node.collectives.all_reduce.clear();
  cluster.node.collectives.reduce_scatter.clear();
  cluster.node.collectives.measured.clear();
  return cluster;
}

TEST(MoreWork, CollectivesTakeNoLess) {
  std::mt19937 random(1);
  const auto below = [&](std::int64_t n) { return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random); };
  unsigned compared = 0;
  for (const std::string& device : shipped_accelerators()) {
    const Cluster cluster = modelled(device);
    const std::int64_t reach = cluster.node.nics > 0 ? 128 : cluster.gpus_per_node;
    for (unsigned i = 0; i < pairs(300); ++i) {
      Drawn less{kKinds[below(6)], static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution<double>(4, 33)(random))), 2 + below(15),
                 std::int64_t{1} << below(4)};
      Drawn more = less;
      if (below(2) == 0) {
        more.bytes += 1 + static_cast<std::int64_t>(static_cast<double>(less.bytes) * std::exp2(-static_cast<double>(below(8))));
      } else {  // more nodes of as many ranks each: on a mesh two ranks of a node have one link, and all of them have all
        const std::int64_t per_node = below(2) == 0 ? 1 : cluster.gpus_per_node;
        less.stride = more.stride = cluster.gpus_per_node / per_node;
        less.ranks = per_node * (2 + below(4)), more.ranks = less.ranks + per_node * (1 + below(8));
      }
      if (more.ranks * more.stride > reach || leaves_the_plateau(less, more, cluster)) continue;
      ++compared;
      const double before = less.seconds(cluster), after = more.seconds(cluster);
      EXPECT_GE(after, before * (1 - 1e-9)) << more.text(device) << "\n  against " << less.text(device) << ": " << after / before;
    }
  }
  EXPECT_GT(compared, 1000U);
}

}  // namespace
}  // namespace plimsoll
