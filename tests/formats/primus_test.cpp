// Primus' experiments with files of its own beside them: those that `model` and `config` name, and those that they extend.
#include <gtest/gtest.h>

#include "foreign_test.hpp"

namespace plimsoll {
namespace {

ForeignRun run_of(const Folder& folder, const std::string& framework, const std::string& overrides) {
  const std::string experiment = "exp_name: a\nmodules:\n  pre_trainer:\n    framework: " + framework +
                                 "\n    config: trainer.yaml\n    model: model.yaml\n    overrides: {" + overrides + "}\n";
  return read_foreign({folder.write("exp.yaml", experiment)}, {"", "8xmi300x", {}});
}

// What stands nearer counts: the experiment, then the model's file, then the module's and what that extends.
TEST(PrimusFiles, AreReadWithWhatTheyExtend) {
  const Folder folder;
  folder.write("base.yaml", "micro_batch_size: 2\nglobal_batch_size: 64\nseq_length: 4096\noverlap_grad_reduce: true\ncuda_graph_scope: full\n");
  folder.write("trainer.yaml", "extends: [base.yaml]\nglobal_batch_size: 32\n");
  folder.write("model.yaml",
               "num_layers: 4\nhidden_size: 1024\nnum_attention_heads: 8\nvocab_size: 32000\nseq_length: 2048\nswiglu: true\nhidden_dropout: 0\n"
               "attention_dropout: 0\nmax_position_embeddings: 4096\nnormalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\n"
               "untie_embeddings_and_output_weights: true\n");
  const ForeignRun run = run_of(folder, "megatron", "micro_batch_size: 4");
  EXPECT_EQ(value_in(run, "micro_batch"), "4");
  EXPECT_EQ(value_in(run, "global_batch"), "32");
  EXPECT_EQ(value_in(run, "seq_len"), "2048");
  EXPECT_EQ(value_in(run, "overlap_grad_reduce"), "true");
  EXPECT_EQ(run.model.layers, 4);
}

// An experiment may extend another, whose sections fill what it leaves out; one that extends itself ends.
TEST(PrimusFiles, ExperimentsExtendEachOther) {
  const Folder folder;
  folder.write("plain.yaml", "exp_name: a\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: llama3.1_8B.yaml\n    overrides: {micro_batch_size: 1, seq_length: 4096}\n");
  const std::string longer = folder.write("longer.yaml", "extends: [plain.yaml]\nexp_name: b\nmodules:\n  pre_trainer:\n    overrides: {seq_length: 8192}\n");
  const ForeignRun run = read_foreign({longer}, {"", "8xmi300x", {}});
  EXPECT_EQ(value_in(run, "seq_len"), "8192");
  EXPECT_EQ(value_in(run, "micro_batch"), "1");
  const std::string circle = folder.write("circle.yaml", "extends: [circle.yaml]\nexp_name: c\nmodules: {pre_trainer: {framework: megatron}}\n");
  EXPECT_NE(problem_of({circle}, {"", "8xmi300x", {}}).find("without end"), std::string::npos);
}

// Over torchtitan sections are merged key by key; Primus-Turbo's attention is told, its products in 8 bits and DeepSeek's other attention are
// refused (primus/backends/torchtitan/primus_turbo_extensions/config_extension.py and patches/turbo).
TEST(PrimusFiles, OverTorchtitanAreMergedBySection) {
  const Folder folder;
  folder.write("trainer.yaml", "training: {local_batch_size: 2, seq_len: 1024}\nprimus_turbo: {enable_primus_turbo: true, use_moe_fp8: true}\n");
  folder.write("model.yaml", "model: {name: llama3, flavor: 8B, converters: [primus_turbo]}\n");
  const ForeignRun run = run_of(folder, "torchtitan", "training: {seq_len: 2048}");
  EXPECT_EQ(value_in(run, "local_batch"), "2");
  EXPECT_EQ(value_in(run, "seq_len"), "2048");
  EXPECT_EQ(value_in(run, "model"), "llama-3.1-8b");
  ASSERT_FALSE(run.unknown.empty());
  EXPECT_NE(run.unknown.front().find("use_turbo_attention"), std::string::npos);
  const auto refusal = [&](const std::string& overrides) {
    try {
      (void)run_of(folder, "torchtitan", overrides);
      return std::string("read");
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(refusal("primus_turbo: {use_turbo_grouped_mm: true}").find("use_moe_fp8"), std::string::npos);
  EXPECT_NE(refusal("primus_turbo: {use_classic_attention: true}").find("use_classic_attention"), std::string::npos);
  EXPECT_NE(refusal("model: {converters: [primus_turbo, quantize.linear.float8]}").find("in fp8"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
