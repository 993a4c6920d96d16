// Launchers' lines.
#include <gtest/gtest.h>

#include <fstream>

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

TEST(LaunchLine, AccelerateTakesTheWorldFromItsFile) {
  const std::string path = testing::TempDir() + "plimsoll-accelerate.yaml";
  std::ofstream(path) << "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                         "num_machines: 2\nnum_processes: 16\n";
  const LaunchLine line = parse_launch_line({"accelerate", "launch", "--config_file", path, "train.py"});
  EXPECT_EQ(line.world(), 16);
  EXPECT_EQ(line.processes_per_node, 8);
  EXPECT_EQ(
      parse_launch_line({"accelerate", "launch", "--config_file=" + path, "--num_processes", "4", "--num_machines", "1", "t.py"}).world(),
      4)
      << "what the line says comes first";
  std::ofstream(path) << "{\n  \"num_machines\": 1,\n  \"num_processes\": 8\n}\n";
  EXPECT_EQ(parse_launch_line({"accelerate", "launch", "--config_file", path, "train.py"}).world(), 8) << "JSON too";
}

TEST(LaunchLine, LaunchersThatAskTheMachineTakeEveryDevice) {
  EXPECT_TRUE(parse_launch_line({"torchrun", "--nproc-per-node", "gpu", "train.py"}).every_device);
  EXPECT_TRUE(parse_launch_line({"deepspeed", "train.py"}).every_device);
  EXPECT_TRUE(parse_launch_line({"accelerate", "launch", "train.py"}).every_device);
  EXPECT_FALSE(parse_launch_line({"torchrun", "train.py"}).every_device) << "one process";
  EXPECT_FALSE(parse_launch_line({"deepspeed", "--num_gpus", "4", "train.py"}).every_device);
}

TEST(HubConfig, KnowsModelsByTheirNamesOnTheHub) {
  ASSERT_TRUE(hub_config("meta-llama/Llama-3.1-8B-Instruct"));
  EXPECT_EQ(hub_config("meta-llama/Llama-3.1-8B-Instruct")->model, "llama-3.1-8b");
  EXPECT_EQ(hub_config("meta-llama/Meta-Llama-3-8B")->model, "llama-3-8b");
  EXPECT_EQ(hub_config("gpt2")->model, "gpt2");
  EXPECT_NE(hub_config("gpt2")->text.find("n_embd"), std::string::npos);
  EXPECT_FALSE(hub_config("nobody/nothing-7b-instruct"));
  EXPECT_FALSE(hub_config("../gpt2/../../etc"));
  EXPECT_FALSE(hub_config(""));
}

TEST(LaunchLine, RefusesLinesWithoutAProgramAndCountsThatAreNone) {
  EXPECT_THROW(parse_launch_line({}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node", "8"}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node", "many", "train.py"}), Error);
  EXPECT_THROW(parse_launch_line({"accelerate", "launch", "--config_file", "/nonexistent/file.yaml", "train.py"}), Error);
  EXPECT_THROW(parse_launch_line({"torchrun", "--nproc-per-node"}), Error);
  EXPECT_THROW(parse_launch_line({"mpirun", "-np", "0", "python"}), Error);
}

}  // namespace
}  // namespace plimsoll
