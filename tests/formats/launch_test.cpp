// Scripts in our own words, of kinds that were misread or refused in the wild: what stands in front of a launcher, how many devices it
// counts, which of several lines is meant. What each must become is bash's, or the launcher's own, as said beside it.
#include <gtest/gtest.h>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

const std::string kProgram =
    "train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 True --per_device_train_batch_size 1 --model_max_length 1024";

ForeignRun run_of(const Folder& folder, const std::string& script, const std::string& on = "h100-sxm", std::vector<std::string> values = {},
                  std::int64_t launch = 0) {
  ForeignOptions options;
  options.on = on;
  options.values = std::move(values);
  options.launch = launch;
  return read_foreign({folder.write("run.sh", script)}, options);
}

std::string refusal_of(const std::string& script, const std::string& on = "h100-sxm") {
  const Folder folder;
  try {
    (void)run_of(folder, script, on);
  } catch (const Error& error) {
    const std::string said = error.what();
    EXPECT_NE(error.code(), ErrorCode::internal);
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    return said;
  }
  return "read";
}

// ---- in front of a launcher ------------------------------------------------------------------------------------------------------
class InFrontOfALauncher : public testing::TestWithParam<const char*> {};

// Each starts what follows it (its manual page), so that torchrun's eight processes and the program's bf16 are found.
TEST_P(InFrontOfALauncher, TheLauncherIsFound) {
  const Folder folder;
  const ForeignRun run = run_of(folder, std::string(GetParam()) + " --nproc_per_node 8 " + kProgram + "\n");
  EXPECT_EQ(run.cluster.nodes * run.cluster.gpus_per_node, 8);
  EXPECT_EQ(value_in(run, "precision"), "bf16");
  EXPECT_EQ(value_in(run, "micro_batch"), "1");
}

INSTANTIATE_TEST_SUITE_P(
    Wrappers, InFrontOfALauncher,
    testing::Values("torchrun", "/opt/conda/bin/torchrun", "$(which torchrun)", "python -m torch.distributed.run",
                    "python3 -u -m torch.distributed.run", "python -X dev -W ignore -m torch.distributed.launch --use_env",
                    "python -u $(which torchrun)", "nohup torchrun", "exec torchrun", "time -p torchrun",
                    "/usr/bin/time -v -o t.log torchrun", "setsid torchrun", "stdbuf -oL torchrun", "nice -n 5 torchrun",
                    "taskset -c 0-31 torchrun", "numactl --cpunodebind 0 -m 0 torchrun", "numactl --interleave=all torchrun",
                    "timeout 3600 torchrun", "timeout -k 10 -s TERM 48h torchrun", "env OMP_NUM_THREADS=8 NCCL_DEBUG=INFO torchrun",
                    "env -u LD_PRELOAD A=1 torchrun", "sudo -E torchrun", "OMP_NUM_THREADS=1 torchrun", "conda run -n train torchrun",
                    "conda run --no-capture-output -p /envs/a torchrun", "poetry run torchrun", "poetry -C there run torchrun",
                    "pipenv run torchrun", "uv run torchrun", "uv run --with trl --extra gpu torchrun", "uv run -m torch.distributed.run",
                    "nsys profile -t cuda,nvtx -o report --force-overwrite true torchrun", "ncu --set full -o k torchrun",
                    "rocprofv3 --hip-trace -- torchrun", "ray job submit --address http://head:8265 --working-dir . -- torchrun",
                    "srun torchrun", "srun -lu -N1 -n1 torchrun",
                    "srun --nodes=1 --ntasks 1 --container-image img.sqsh --container-mounts /a:/a --no-container-mount-home torchrun",
                    "srun --mpi=pmix --cpu-bind none --kill-on-bad-exit=1 bash -c 'exec \"$0\" \"$@\"' torchrun",
                    "srun --export ALL env A=1 nohup torchrun", "docker run --gpus all --rm -v /data:/data image:tag torchrun",
                    "singularity exec --nv img.sif torchrun"));

// Options of an interpreter and of wrappers are none of the program's; accelerate and deepspeed started as modules are what they are.
TEST(LaunchLines, ModulesOfLaunchersAreTheirLaunchers) {
  const Folder folder;
  const ForeignRun run =
      run_of(folder, "python -m accelerate.commands.launch --num_processes 8 --mixed_precision bf16 " + kProgram + "\n", "8xh100-sxm");
  EXPECT_EQ(value_in(run, "precision"), "bf16");
  const ForeignRun deep = run_of(
      folder,
      "cat > ds.json <<EOF\n{\"zero_optimization\": {\"stage\": 1}}\nEOF\npython -m deepspeed.launcher.runner --num_gpus 4 " + kProgram + " --deepspeed ds.json\n",
      "h100-sxm", {});
  EXPECT_EQ(deep.cluster.gpus_per_node, 4);
}

// Accelerate's num_processes is of all machines: another --on is asked for, as where a launcher counts.
TEST(LaunchLines, AcceleratesFileSaysHowManyDevicesRun) {
  const Folder folder;
  const std::string file = folder.write("a.yaml", "distributed_type: MULTI_GPU\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 4\n");
  const std::string said = problem_of({file}, {"gpt2", "8xh100-sxm", {}});
  EXPECT_NE(said.find("has 8 devices, and 4 run (num_processes)"), std::string::npos) << said;
  EXPECT_EQ(value_in(read_foreign({file}, {"gpt2", "2x2xh100-sxm", {}}), "gpus"), "4");
}

// ---- how many devices --------------------------------------------------------------------------------------------------------------
struct Counted {
  std::string what, front;
  std::int64_t nodes, per_node;
};

void PrintTo(const Counted& one, std::ostream* out) { *out << one.what; }

class DeviceCounts : public testing::TestWithParam<Counted> {};

TEST_P(DeviceCounts, AreTheLaunchers) {
  const Folder folder;
  folder.write("hosts", "# two nodes\na slots=4\nb slots=4\n");
  const ForeignRun run = run_of(folder, GetParam().front + " " + kProgram + "\n");
  EXPECT_EQ(run.cluster.nodes, GetParam().nodes);
  EXPECT_EQ(run.cluster.gpus_per_node, GetParam().per_node);
}

// deepspeed/launcher/runner.py of 0.19: a filter's slots, a hostfile's, CUDA_VISIBLE_DEVICES where neither is given.
// torch/distributed/run.py: determine_local_world_size(); one process where nothing is said.
INSTANTIATE_TEST_SUITE_P(
    Launchers, DeviceCounts,
    testing::Values(Counted{"torchrun alone", "torchrun", 1, 1}, Counted{"of two nodes", "torchrun --nnodes 2 --nproc_per_node 4", 2, 4},
                    Counted{"gpu, of those seen", "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node gpu", 1, 4},
                    Counted{"exported", "export CUDA_VISIBLE_DEVICES=4,5\ntorchrun --nproc_per_node auto", 1, 2},
                    Counted{"env's", "env CUDA_VISIBLE_DEVICES=4,5,6 torchrun --nproc_per_node auto", 1, 3},
                    Counted{"--include", "deepspeed --include localhost:0,1,2,3", 1, 4}, Counted{"-i", "deepspeed -i localhost:0,2", 1, 2},
                    Counted{"--include of two", "deepspeed --include a:0,1@b:2,3", 2, 2},
                    Counted{"seen by deepspeed", "CUDA_VISIBLE_DEVICES=0,1 deepspeed", 1, 2},
                    Counted{"a filter goes before what is seen", "CUDA_VISIBLE_DEVICES=0,1 deepspeed --include localhost:0,1,2", 1, 3},
                    Counted{"--num_gpus goes before what is seen", "CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 8", 1, 8},
                    Counted{"hostfile", "deepspeed --hostfile hosts", 2, 4}, Counted{"-H", "deepspeed -H hosts --num_nodes 1", 1, 4},
                    Counted{"hostfile and filter", "deepspeed --hostfile hosts --include b:1,3", 1, 2},
                    Counted{"hostfile and exclusion", "deepspeed --hostfile hosts --exclude a@b:0", 1, 3},
                    Counted{"a hostfile that is none, so that the machine counts", "deepspeed --hostfile /dev/null --num_gpus 4", 1, 4},
                    Counted{"mpirun's hostfile", "mpirun -np 8 --hostfile hosts python", 2, 4},
                    Counted{"accelerate's are those seen", "CUDA_VISIBLE_DEVICES=0,1 accelerate launch", 1, 2}));

TEST(LaunchLines, CountsThatContradictAreSaid) {
  EXPECT_NE(refusal_of("torchrun --nproc_per_node 4 " + kProgram + "\n", "8xh100-sxm")
                .find("--on 8xh100-sxm has 8 devices, and 4 run (torchrun)"),
            std::string::npos);
  EXPECT_NE(refusal_of("deepspeed --include localhost:0,1 " + kProgram + "\n", "8xh100-sxm").find("and 2 run (--include)"),
            std::string::npos);
  EXPECT_NE(refusal_of("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 4 " + kProgram + "\n").find("shows 2 devices"),
            std::string::npos);
  EXPECT_NE(refusal_of("deepspeed --num_gpus 2 --include localhost:0 " + kProgram + "\n").find("no --include"), std::string::npos);
  EXPECT_NE(refusal_of("deepspeed --exclude localhost:0 " + kProgram + "\n").find("--include localhost:"), std::string::npos);
  EXPECT_NE(refusal_of("deepspeed --include localhost:a " + kProgram + "\n").find("expected a device's index"), std::string::npos);
}

// Scripts carry NNODES=1 as a placeholder: --on may say more nodes of as many devices, and the report lists that.
TEST(LaunchLines, MoreNodesThanAScriptHasAreListed) {
  const Folder folder;
  const ForeignRun run = run_of(folder, "torchrun --nnodes 1 --nproc_per_node 8 " + kProgram + "\n", "2x8xh100-sxm");
  EXPECT_EQ(run.cluster.nodes, 2);
  ASSERT_EQ(run.unknown.size(), 1);
  EXPECT_NE(run.unknown[0].find("1 nodes (torchrun): --on says 2"), std::string::npos) << run.unknown[0];
}

// --set @='…' are words as a command line's: what $#, $1 and shift see.
TEST(LaunchLines, AScriptsArgumentsAreWords) {
  const Folder folder;
  const std::string script = "while [[ $# -gt 0 ]]; do\n  case $1 in\n    --bs) B=\"$2\"; shift 2;;\n    --name) N=\"$2\"; shift 2;;\n    *) exit 1;;\n  esac\ndone\n"
                             "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 True --run_name \"$N\" "
                             "--per_device_train_batch_size $B --model_max_length 1024\n";
  const ForeignRun run = run_of(folder, script, "8xh100-sxm", {"@=--name 'a run' --bs 4"});
  EXPECT_EQ(value_in(run, "micro_batch"), "4");
}

// python starts one process. transformers' Trainer (training_args.py, n_gpu) has it share all devices by DataParallel, so that a plan of a
// process a device is told to be one; of a device's name alone it is one device.
TEST(LaunchLines, AScriptWithoutALauncherIsOneProcess) {
  const Folder folder;
  const std::string line = "CUDA_DEVICE_MAX_CONNECTIONS=1 python -u " + kProgram + "\n";
  EXPECT_EQ(run_of(folder, line).cluster.gpus(), 1);
  EXPECT_TRUE(run_of(folder, line, "1xh100-sxm").unknown.empty());
  const ForeignRun run = run_of(folder, line, "8xh100-sxm");
  EXPECT_EQ(run.cluster.gpus(), 8);
  ASSERT_EQ(run.unknown.size(), 1);
  EXPECT_NE(run.unknown[0].find("python starts one process, and the Trainer has one alone share 8 devices (DataParallel)"), std::string::npos) << run.unknown[0];
}

// ---- programs that are not read ------------------------------------------------------------------------------------------------------
TEST(LaunchLines, ProgramsThatAreNotReadAreNamed) {
  const std::pair<const char*, const char*> lines[] = {
      {"megatron rlhf --rlhf_type dpo --model a", "which 'megatron rlhf' does"},
      {"python run_squad.py --model_name_or_path bert-base-cased --do_train --per_device_train_batch_size 32",
       "a head of classes or answers, which run_squad.py trains"},
      {"torchrun --nproc_per_node 8 examples/run_mae.py --do_train --learning_rate 1e-4", "a masked autoencoder, which examples/run_mae.py trains"},
      {"accelerate launch run_glue_no_trainer.py --model_name_or_path bert-base-cased", "the Trainer's step by a loop of its own, which run_glue_no_trainer.py"},
      {"accelerate launch examples/scripts/tpo.py --model_name_or_path a --learning_rate 1e-6", "which examples/scripts/tpo.py does"},
      {"trl distillation --model_name_or_path a", "by preferences, rewards or a teacher, which 'trl distillation' does"},
      {"accelerate launch -m trl.scripts.distillation --model_name_or_path a", "which trl.scripts.distillation does"},
      {"torchrun --nproc_per_node 8 scripts/run_orpo.py --model_name_or_path a", "which scripts/run_orpo.py does"},
      {"litgpt finetune_lora a", "(LitGPT) is not read"},
      {"python3 -m verl.trainer.sft_trainer a=b", "(verl) is not read"},
      {"deepspeed --module openrlhf.cli.train_sft --bf16", "(OpenRLHF) is not read"},
      {"ray job submit -- python3 -u -m openrlhf.cli.train_ppo_ray", "which openrlhf.cli.train_ppo_ray does"},
      {"./run_train.sh 8", "it starts './run_train.sh' ("},
      {"NGPU=8 ./run_train.sh", "it starts './run_train.sh' ("},
      {"hostname\nmy-trainer a", "'my-trainer'"}};
  for (const auto& [line, part] : lines) {
    const std::string said = refusal_of(line);
    EXPECT_NE(said.find(part), std::string::npos) << said;
    EXPECT_NE(said.find("plimsoll rehearse"), std::string::npos) << said;
  }
  const std::string analysis = refusal_of("python ../analyze_data.py --model_name_or_path gpt2 --per_device_train_batch_size 1000");
  EXPECT_NE(analysis.find("the program ../analyze_data.py does not train"), std::string::npos) << analysis;
}

// src/common/slurm_opt.c: -K, -k and -I have a value in the same word or none.
TEST(LaunchLines, SrunsOptionalValuesTakeNoWord) {
  const Folder folder;
  for (const std::string option : {"-K1", "-lK1", "-K", "--kill-on-bad-exit", "--nice", "-u --oom-kill-step=1"}) {
    const std::string line = "srun " + option + " -n 8 python train.py --model_name_or_path meta-llama/Llama-3.2-1B --block_size 512 --bf16 True\n";
    EXPECT_EQ(value_in(run_of(folder, line, "h100-sxm"), "gpus"), "8") << option;
  }
}

// A shipped cluster counts devices as "8x…" does.
TEST(LaunchLines, AShippedClusterIsHeldAgainstTheLinesCount) {
  const std::string four = "torchrun --nproc_per_node 4 run_clm.py --model_name_or_path meta-llama/Llama-3.2-1B --block_size 512 --bf16 True\n";
  const std::string said = refusal_of(four, "hgx-h100");
  EXPECT_NE(said.find("--on hgx-h100 has 8 devices, and 4 run (torchrun)"), std::string::npos) << said;
  EXPECT_NE(said.find("--on 4xh100-sxm"), std::string::npos) << said;
  const Folder folder;
  EXPECT_EQ(run_of(folder, "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path meta-llama/Llama-3.2-1B --block_size 512\n", "hgx-h100")
                .cluster.gpus(),
            8);
}

// sed's substitution of words, as Megatron-DeepSpeed's scripts write their configuration from a template; what it puts in and is not known is
// asked for where it decides, and what sed is not followed in is not taken as it was.
TEST(LaunchLines, ConfigurationsThatSedWrites) {
  const Folder folder;
  const std::string front = "cat > t.json <<'E'\n{\"zero_optimization\": {\"stage\": ZERO_STAGE}, \"bf16\": {\"enabled\": CONFIG/BF16},\n"
                            " \"train_micro_batch_size_per_gpu\": MICRO, \"note\": \"a a\"}\nE\n";
  const std::string line = "deepspeed --num_gpus 8 train.py --deepspeed_config d.json\n";
  const ForeignOptions options{"llama-3.2-1b", "8xh100-sxm", {}};
  const auto run = [&](const std::string& sed) { return read_foreign({folder.write("run.sh", front + sed + line)}, options); };
  const std::string one = "cat t.json | sed \"s/ZERO_STAGE/2/\" | sed 's|CONFIG/BF16|true|' | sed -e s/MICRO/4/ -e 's/a a/b b/g' > d.json\n";
  EXPECT_EQ(value_in(run(one), "zero_stage"), "2");
  EXPECT_EQ(value_in(run(one), "micro_batch"), "4");
  const std::string in_place = "cp a b\ncat t.json > d.json\nsed -i 's/ZERO_STAGE/3/; s/CONFIG\\/BF16/true/; s/MICRO/2/' d.json\n";
  EXPECT_EQ(value_in(run(in_place), "zero_stage"), "3");
  const auto said = [&](const std::string& sed) {
    return problem_of({folder.write("run.sh", front + sed + line)}, options);
  };
  EXPECT_NE(said("sed \"s/ZERO_STAGE/$STAGE/; s/MICRO/1/; s/CONFIG.BF16/true/\" t.json > d.json\n").find("d.json"), std::string::npos);
  EXPECT_NE(said("sed \"s/ZERO_STAGE/$STAGE/; s/MICRO/1/; s|CONFIG/BF16|true|\" t.json > d.json\n").find("variable STAGE"), std::string::npos);
  EXPECT_NE(said("cat t.json > d.json\nsed -i -E 's/(ZERO)_STAGE/3/' d.json\n").find("what 'sed -i' makes of d.json"), std::string::npos);
}

// ---- several lines -------------------------------------------------------------------------------------------------------------------
TEST(LaunchLines, OfSeveralEachIsListedAndOneIsChosen) {
  const Folder folder;
  const std::string script =
      "for B in 1 2 4; do\n  torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 True "
      "--model_max_length 1024 --per_device_train_batch_size $B\ndone\n";
  const std::string said = refusal_of(script);
  EXPECT_NE(said.find("starts 3 trainings"), std::string::npos) << said;
  EXPECT_NE(said.find("--launch NUMBER"), std::string::npos) << said;
  EXPECT_EQ(value_in(run_of(folder, script, "h100-sxm", {}, 3), "micro_batch"), "4");
  const std::vector<ForeignLaunch> all = foreign_launches({folder.path("run.sh")}, {});
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[1].differs, "--per_device_train_batch_size 2");
  EXPECT_EQ(all[2].differs, "--per_device_train_batch_size 4");
  EXPECT_NE(all[0].where.find("run.sh:2"), std::string::npos);
  EXPECT_NE(all[0].line.find("--per_device_train_batch_size 1"), std::string::npos);
}

// torchtune/_cli/run.py: torchrun's options stand in front of the recipe, --config takes one file, what follows are overrides.
TEST(LaunchLines, TuneRunTakesTorchrunsOptionsAndOverrides) {
  const Folder folder;
  folder.write("r.yaml",
               "model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\ntokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, "
               "max_seq_len: 1024}\noptimizer: {_component_: torch.optim.AdamW}\nbatch_size: 2\ndtype: bf16\n");
  const ForeignRun run = run_of(folder, "tune run --standalone --nproc_per_node 8 --nnodes 1 full_finetune_distributed --config " +
                                            folder.path("r.yaml") + " batch_size=4 gradient_accumulation_steps=3\n");
  EXPECT_EQ(run.cluster.nodes * run.cluster.gpus_per_node, 8);
  EXPECT_EQ(value_in(run, "micro_batch"), "4");
  EXPECT_EQ(value_in(run, "grad_accum"), "3");
}

// TorchTitan is started by its run_train.sh, which the variables in front tell what to train, and which lets segments expand.
TEST(Launches, TorchTitansOwnScriptNeedNotBeThere) {
  const Folder folder;
  const ForeignRun run = run_of(folder, "MODULE=llama3 CONFIG=llama3_8b NGPU=8 ./run_train.sh --training.local_batch_size=2");
  EXPECT_EQ(run.model.name, "llama-3.1-8b");
  EXPECT_EQ(run.cluster.gpus_per_node, 8);
  EXPECT_EQ(run.strategy.micro_batch, 2);
  EXPECT_TRUE(run.strategy.allocator.expandable_segments);
  const std::string file = folder.write("llama3.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 3\nseq_len = 4096\n");
  EXPECT_EQ(run_of(folder, "CONFIG_FILE=" + file + " bash run_train.sh").strategy.micro_batch, 3);
}

// ---- what stands around a line -------------------------------------------------------------------------------------------------------
TEST(LaunchLines, HereDocumentsAndJobsAreFollowed) {
  const Folder folder;
  const std::string job =
      "sbatch <<'EOF'\n#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node "
      "$SLURM_GPUS_ON_NODE " +
      kProgram + "\nEOF\n";
  const ForeignRun of_job = run_of(folder, job);
  EXPECT_EQ(of_job.cluster.nodes, 2);
  EXPECT_EQ(of_job.cluster.gpus_per_node, 4);
  const ForeignRun written =
      run_of(folder,
             "STAGE=3\ncat > ds.json <<EOF\n{\"bf16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": $STAGE}, "
             "\"train_micro_batch_size_per_gpu\": \"auto\"}\nEOF\ndeepspeed --num_gpus 8 " +
                 kProgram + " --deepspeed ds.json\n");
  EXPECT_EQ(value_in(written, "zero_stage"), "3");
  const ForeignRun read = run_of(folder, "read -r -d '' LINE <<EOF\n" + kProgram + "\nEOF\ndeepspeed --num_gpus 8 $LINE\n");
  EXPECT_EQ(value_in(read, "micro_batch"), "1");
}

TEST(LaunchLines, WhatIsNotKnownIsAskedFor) {
  const Folder folder;
  const std::string script =
      "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 True --model_max_length 1024 "
      "--per_device_train_batch_size $1 2>&1 | tee log\n";
  EXPECT_NE(refusal_of(script).find("--set 1=VALUE"), std::string::npos);
  const ForeignRun run = run_of(folder, script, "h100-sxm", {"1=4"});
  EXPECT_EQ(value_in(run, "micro_batch"), "4");
  EXPECT_EQ(value_in(run, "precision"), "bf16");
}

}  // namespace
}  // namespace plimsoll
