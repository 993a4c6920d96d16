// What of a torchtune recipe stands in no key: which of its programs takes the file.
#include <gtest/gtest.h>

#include "foreign_test.hpp"

namespace plimsoll {
namespace {

std::string recipe(const std::string& folder, const std::string& optimizer, const std::string& model = "llama3_2.llama3_2_1b") {
  return "output_dir: " + folder + "\nmodel: {_component_: torchtune.models." + model +
         "}\ntokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 1024}\noptimizer: {_component_: " + optimizer +
         "}\nbatch_size: 2\ndtype: bf16\n";
}

// full_finetune_single_device.py runs on one device, whatever the machine has: by the file's name, by the folder it writes to, or since
// bitsandbytes' optimizers take no DTensors. full_finetune_distributed.py takes the same keys.
TEST(TorchtuneRecipes, OfASingleDeviceRunOnOne) {
  const Folder folder;
  const auto devices = [&](const std::string& name, const std::string& text) {
    const ForeignRun run = read_foreign({folder.write(name, text)}, {"", "h100-sxm", {}});
    return run.cluster.nodes * run.cluster.gpus_per_node;
  };
  EXPECT_EQ(devices("1B_lora_single_device.yaml", recipe("/o", "torch.optim.AdamW")), 1);
  EXPECT_EQ(devices("mine.yaml", recipe("/o/full_single_device", "torch.optim.AdamW")), 1);
  EXPECT_EQ(devices("low_memory.yaml", recipe("/o", "bitsandbytes.optim.PagedAdamW")), 1);
  const std::string file = folder.write("mine.yaml", recipe("/o", "torch.optim.AdamW"));
  EXPECT_EQ(read_foreign({file}, {"", "8xh100-sxm", {}}).cluster.gpus_per_node, 8);
  const std::string alone = folder.write("a_single_device.yaml", recipe("/o", "torch.optim.AdamW"));
  EXPECT_NE(problem_of({alone}, {"", "8xh100-sxm", {}}).find("has 8 devices, and 1 run"), std::string::npos);
}

// `tune run` names the recipe.
TEST(TorchtuneRecipes, ALaunchLineSaysWhichRecipeRuns) {
  const Folder folder;
  const std::string file = folder.write("r.yaml", recipe("/o", "torch.optim.AdamW"));
  const auto devices = [&](const std::string& line, const std::string& on) {
    const ForeignRun run = read_foreign({folder.write("run.sh", line + "\n")}, {"", on, {}});
    return run.cluster.nodes * run.cluster.gpus_per_node;
  };
  EXPECT_EQ(devices("tune run full_finetune_single_device --config " + file, "h100-sxm"), 1);
  const std::string alone = folder.write("a_single_device.yaml", recipe("/o", "torch.optim.AdamW"));
  EXPECT_EQ(devices("tune run --nproc_per_node 4 full_finetune_distributed --config " + alone, "h100-sxm"), 4);
}

// The recipes that torchtune ships are known by name, and what stands behind one replaces its value; of an unknown name the nearest is told.
TEST(TorchtuneRecipes, ThoseOfTheWheelAreKnownByName) {
  const Folder folder;
  const auto run_of = [&](const std::string& line) { return read_foreign({folder.write("run.sh", line + "\n")}, {"", "8xh100-sxm", {}}); };
  // 0.6.1's llama3_1/8B_full: batch_size 2, activation checkpointing, custom_sharded_layers of both ends, fused AdamW, chunked loss.
  const ForeignRun run = run_of("tune run --nproc_per_node 8 full_finetune_distributed --config llama3_1/8B_full tokenizer.max_seq_len=4096 batch_size=4");
  EXPECT_EQ(run.model.name, "llama-3.1-8b");
  EXPECT_EQ(run.strategy.micro_batch, 4);
  EXPECT_EQ(run.strategy.seq_len, 4096);
  EXPECT_EQ(run.strategy.recompute.kind, Recompute::Kind::full);
  EXPECT_EQ(run.strategy.optimizer_impl, OptimizerImpl::fused);
  const auto problem = [&](const std::string& name) {
    return problem_of({folder.write("run.sh", "tune run --nproc_per_node 8 full_finetune_distributed --config " + name + " tokenizer.max_seq_len=4096\n")}, {"", "8xh100-sxm", {}});
  };
  EXPECT_NE(problem("llama3_1/8B_ful").find("did you mean 'llama3_1/8B_full'"), std::string::npos) << problem("llama3_1/8B_ful");
}

// lora_llama2 and its like put an adapter on the head, too.
TEST(TorchtuneRecipes, AHeadMayBeAdapted) {
  const Folder folder;
  std::string text = recipe("/o", "torch.optim.AdamW", "llama2.lora_llama2_13b");
  text.replace(text.find("13b}"), 4, "13b, lora_attn_modules: [q_proj], apply_lora_to_output: true, lora_rank: 4, lora_alpha: 8}");
  const ForeignRun run = read_foreign({folder.write("r.yaml", text)}, {"", "8xh100-sxm", {}});
  EXPECT_EQ(value_in(run, "lora.target_modules"), "q_proj,output");
}

}  // namespace
}  // namespace plimsoll
