// Launchers' lines.
#include <gtest/gtest.h>

#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll {
namespace {

using Words = std::vector<std::string>;

TEST(LaunchLine, APlainProgramIsItself) {
  const LaunchLine line = parse_launch_line({"python", "train.py", "--tp", "8"});
  EXPECT_EQ(line.command, (Words{"python", "train.py", "--tp", "8"}));
  EXPECT_EQ(line.launcher, "");
  EXPECT_EQ(line.world(), 0);
}

TEST(LaunchLine, Torchrun) {
  const LaunchLine line =
      parse_launch_line({"/env/bin/torchrun", "--nnodes=2", "--nproc_per_node", "8", "--rdzv-backend", "c10d", "train.py", "-x", "1"});
  EXPECT_EQ(line.command, (Words{"/env/bin/python", "train.py", "-x", "1"}));
  EXPECT_EQ(line.world(), 16);
}

TEST(LaunchLine, TorchrunOfAModule) {
  const LaunchLine line = parse_launch_line(
      {"python3", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", "-m", "torchtitan.train", "--config", "c"});
  EXPECT_EQ(line.command, (Words{"python3", "-m", "torchtitan.train", "--config", "c"}));
  EXPECT_EQ(line.world(), 4);
}

TEST(LaunchLine, DeepSpeedGivesTheLocalRank) {
  const LaunchLine line = parse_launch_line({"deepspeed", "--num_gpus", "8", "--num_nodes", "4", "train.py", "--deepspeed", "ds.json"});
  EXPECT_EQ(line.command, (Words{"python", "train.py", "--deepspeed", "ds.json"}));
  EXPECT_TRUE(line.rank_argument);
  EXPECT_EQ(line.world(), 32);
}

TEST(LaunchLine, MpirunRunsAnyProgram) {
  const LaunchLine line = parse_launch_line({"mpirun", "-np", "16", "--allow-run-as-root", "-x", "NCCL_DEBUG=INFO", "python", "train.py"});
  EXPECT_EQ(line.command, (Words{"python", "train.py"}));
  EXPECT_EQ(line.world(), 16);
  ASSERT_EQ(line.environment.size(), 1u);
  EXPECT_EQ(line.environment[0].second, "INFO");
}

TEST(LaunchLine, AccelerateReadsItsOwnFlags) {
  const LaunchLine line =
      parse_launch_line({"accelerate", "launch", "--num_processes", "8", "--num_machines", "2", "--mixed_precision", "bf16", "train.py"});
  EXPECT_EQ(line.world(), 8);
  EXPECT_EQ(line.command.front(), "python");
  EXPECT_EQ(line.command.back(), "train.py");
  EXPECT_EQ(line.command[2], "plimsoll_rehearse.accelerate_launch");
}

TEST(LaunchLine, RefusesLinesWithoutAProgramAndCountsThatAreNone) {
  EXPECT_THROW(parse_launch_line({}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node", "8"}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node", "gpu", "train.py"}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node"}), Error);
  EXPECT_THROW(parse_launch_line({"mpirun", "-np", "0", "python"}), Error);
}

}  // namespace
}  // namespace plimsoll
