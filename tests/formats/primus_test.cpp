// Primus' experiments with files of its own beside them: those that `model` and `config` name, and those that they extend.
#include <gtest/gtest.h>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"

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

// Data that are made up have the NullTokenizer whatever tokenizer is named: 131,072 tokens unless vocab_size says others, and the end of a document
// (mock_data_patches.py; NullTokenizer.vocab_size). A Llama of 4 layers without biases, embedding and head apart: 2 · 131,073 · 1,024 rows and
// columns more than the layers' 4 · (4 · 1,024² + 3 · 1,024 · 4,096 + 2 · 1,024) + 1,024. A shipped model has that vocabulary as well.
TEST(PrimusFiles, DataThatAreMadeUpHaveAVocabularyOfTheirOwn) {
  const Folder folder;
  const std::string sizes = "num_layers: 4\nhidden_size: 1024\nffn_hidden_size: 4096\nnum_attention_heads: 8\nswiglu: true\nhidden_dropout: 0\nattention_dropout: 0\n"
                            "max_position_embeddings: 4096\nnormalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\n"
                            "untie_embeddings_and_output_weights: true\nmicro_batch_size: 1\nseq_length: 1024\n";
  folder.write("trainer.yaml", "mock_data: true\n");
  folder.write("model.yaml", sizes + "tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: meta-llama/Llama-4-Scout-17B-16E\n");
  const std::int64_t layers = 4 * (4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024) + 1024;
  const ForeignRun mock = run_of(folder, "megatron", "eval_iters: 0");
  EXPECT_EQ(mock.model.vocab_size, 131073);
  EXPECT_EQ(mock.model.parameters(), layers + 2 * 131073LL * 1024);
  folder.write("model.yaml", sizes + "vocab_size: 163840\n");
  EXPECT_EQ(run_of(folder, "megatron", "eval_iters: 0").model.vocab_size, 163841);
  EXPECT_EQ(run_of(folder, "megatron", "mock_data: false").model.vocab_size, 163840);
  const std::string alone = "exp_name: a\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: llama2_7B.yaml\n    overrides: {micro_batch_size: 1, seq_length: 4096, mock_data: ";
  const auto shipped = [&](const std::string& mocks) { return read_foreign({folder.write("alone.yaml", alone + mocks + "}\n")}, {"", "8xmi300x", {}}).model; };
  EXPECT_EQ(shipped("false").parameters(), 6738415616);
  EXPECT_EQ(shipped("true").parameters(), 6738415616 + 2 * (131073 - 32000) * 4096LL);
}

// Kinds of layers are an argument of Primus' own specification of a GPT (core/models/gpt/gpt_layer_specs.py): LFM2's short convolutions are no
// attention. A quote that stays open, and a switch in the place of a kind, are errors of one line.
TEST(PrimusFiles, LayersOfAnotherKindAreRefused) {
  const Folder folder;
  folder.write("trainer.yaml", "mock_data: true\n");
  const std::string sizes = "num_layers: 2\nhidden_size: 1024\nffn_hidden_size: 4096\nnum_attention_heads: 8\nswiglu: true\nhidden_dropout: 0\nattention_dropout: 0\n"
                            "max_position_embeddings: 4096\nnormalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\nmicro_batch_size: 1\nseq_length: 1024\n";
  folder.write("model.yaml", sizes + "lfm_layer_types: null\n");
  EXPECT_EQ(run_of(folder, "megatron", "eval_iters: 0").model.layers, 2);
  folder.write("model.yaml", sizes + "lfm_layer_types: [conv, full_attention]\n");
  const auto problem = [&](const std::string& overrides) {
    try {
      (void)run_of(folder, "megatron", overrides);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(problem("eval_iters: 0").find("not modelled: what Primus has beside Megatron-LM, found lfm_layer_types"), std::string::npos) << problem("eval_iters: 0");
  folder.write("model.yaml", sizes);
  EXPECT_NE(problem("recompute_granularity: true").find("'true' is no value of recompute_granularity (one of: full, selective, None)"), std::string::npos);
  EXPECT_NE(problem("micro-batch-size: 2").find("unknown key 'micro-batch-size'"), std::string::npos) << problem("micro-batch-size: 2");
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

// An experiment of nothing but what it extends is Primus' as well. PrimusConfig takes `modules` and what names the run: a trainer's key beside
// them changes nothing, so that it is no setting of the run.
TEST(PrimusFiles, KeysBesideTheModulesAreNone) {
  const Folder folder;
  folder.write("plain.yaml", "exp_name: a\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: llama3.1_8B.yaml\n    overrides: {micro_batch_size: 1, seq_length: 4096}\n");
  const std::string bare = folder.write("bare.yaml", "extends:\n  - plain.yaml\n");
  EXPECT_EQ(value_in(read_foreign({bare}, {"", "8xmi300x", {}}), "seq_len"), "4096");
  const std::string beside = folder.write("beside.yaml", "extends:\n  - plain.yaml\nlora: {enabled: true, dim: 32}\nlr: 2.0e-4\nmicro_batch_size: 2\n");
  EXPECT_NE(problem_of({beside}, {"", "8xmi300x", {}}).find("lora stands beside modules, where Primus reads nothing"), std::string::npos);
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

constexpr const char* kDense =
    "num_layers: 4\nhidden_size: 1024\nnum_attention_heads: 8\nvocab_size: 32000\nswiglu: true\nhidden_dropout: 0\nattention_dropout: 0\n"
    "max_position_embeddings: 4096\nnormalization: RMSNorm\nposition_embedding_type: rope\nadd_bias_linear: false\n"
    "untie_embeddings_and_output_weights: true\n";
constexpr const char* kExperts = "num_experts: 8\nmoe_router_topk: 2\nmoe_ffn_hidden_size: 512\n";

std::string problem_with(const Folder& folder, const std::string& framework, const std::string& overrides) {
  try {
    (void)run_of(folder, framework, overrides);
    return "read";
  } catch (const std::exception& error) {
    return error.what();
  }
}

// A file that another extends decides what that leaves out: where it is nowhere, it is asked for.
TEST(PrimusFiles, ABaseThatIsNowhereIsAskedFor) {
  const Folder folder;
  folder.write("trainer.yaml", "extends: [nowhere.yaml]\nglobal_batch_size: 32\n");
  folder.write("model.yaml", kDense);
  const std::string problem = problem_with(folder, "megatron", "micro_batch_size: 4");
  EXPECT_NE(problem.find("nowhere.yaml, which this one extends, is nowhere"), std::string::npos) << problem;
}

// TorchFullyShardedDataParallel knows no buffers: what they would be asked for says nothing, and gradients have the weights' type. validate_args
// of Megatron-LM wants no distributed optimizer beside it.
TEST(PrimusFiles, TorchsFsdp2IsDataParallel) {
  const Folder folder;
  folder.write("trainer.yaml", "bf16: true\nuse_distributed_optimizer: false\ngradient_accumulation_fusion: false\n");
  folder.write("model.yaml", kDense);
  const ForeignRun run = run_of(folder, "megatron", "use_torch_fsdp2: true, accumulate_allreduce_grads_in_fp32: true, overlap_grad_reduce: true");
  EXPECT_EQ(value_in(run, "data_parallel"), "fsdp2");
  EXPECT_EQ(value_in(run, "fsdp.reshard_after_forward"), "always");
  EXPECT_EQ(value_in(run, "grad_dtype"), "(nothing)");
  const ForeignRun whole = run_of(folder, "megatron", "use_torch_fsdp2: true, torch_fsdp2_no_reshard_after_forward: true");
  EXPECT_EQ(value_in(whole, "fsdp.reshard_after_forward"), "never");
  EXPECT_NE(problem_with(folder, "megatron", "use_torch_fsdp2: true, use_distributed_optimizer: true").find("which Megatron refuses"),
            std::string::npos);
}

// MegatronSFTTrainer's step is that of pretraining over samples of the whole length; its adapters are Megatron-Bridge's, with their defaults
// (primus/backends/megatron/peft/lora.py: rank 32, alpha 32, all four linears). Over other backends it is refused by name.
TEST(PrimusFiles, FineTuningOverMegatronIsRead) {
  const Folder folder;
  folder.write("model.yaml", kDense);
  const auto run = [&](const std::string& overrides, const std::string& framework = "megatron", const std::string& section = "post_trainer") {
    const std::string experiment = "exp_name: a\nmodules:\n  " + section + ":\n    framework: " + framework +
                                   "\n    config: sft_trainer.yaml\n    model: model.yaml\n    overrides: {" + overrides + "}\n";
    return read_foreign({folder.write("exp.yaml", experiment)}, {"", "8xmi300x", {}});
  };
  const ForeignRun whole = run("stage: sft, enable_packed_sequences: true, lora: {enabled: false}");
  EXPECT_EQ(value_in(whole, "micro_batch"), "1");
  EXPECT_EQ(value_in(whole, "global_batch"), "128");
  EXPECT_EQ(value_in(whole, "seq_len"), "2048");
  EXPECT_EQ(value_in(whole, "lora.r"), "(nothing)");
  const ForeignRun adapters = run("lora: {enabled: true, alpha: 16}");
  EXPECT_EQ(value_in(adapters, "lora.r"), "32");
  EXPECT_EQ(value_in(adapters, "lora.alpha"), "16");
  EXPECT_EQ(value_in(run("lora: {enabled: true}", "megatron", "pre_trainer"), "lora.r"), "32");  // the stage counts, not the section
  EXPECT_EQ(value_in(adapters, "lora.target_modules"), "linear_qkv,linear_proj,linear_fc1,linear_fc2");
  const auto problem = [&](const std::string& overrides, const std::string& framework = "megatron") {
    try {
      (void)run(overrides, framework);
      return std::string("read");
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(problem("trainer_class: FluxPretrainTrainer").find("another trainer"), std::string::npos);
  EXPECT_NE(problem("stage: pretrain, lora: {enabled: true}").find("pretraining passes over"), std::string::npos);
  EXPECT_NE(problem("use_packed_attention: true").find("use_packed_attention"), std::string::npos);
  EXPECT_NE(problem("lora: {enabled: true, dropout_position: post}").find("dropout behind an adapter"), std::string::npos);
  EXPECT_NE(problem("seq_length: 1024", "megatron_bridge").find("fine-tuning over megatron_bridge"), std::string::npos);
}

// A sink is one number a head and is told; within a window attention is another, which is refused. Experts of the grouped_gemm library have the
// sizes of Transformer Engine's in 16 bits, and multiply in 16 bits whatever fp8 says.
TEST(PrimusFiles, SinksAndLegacyExpertsAreToldOrRefused) {
  const Folder folder;
  folder.write("trainer.yaml", "bf16: true\nenable_primus_turbo: true\nuse_turbo_attention: true\n");
  folder.write("model.yaml", std::string(kDense) + kExperts);
  const ForeignRun run = run_of(folder, "megatron", "use_sink_attention: true, sink_sliding_window: 0, moe_use_legacy_grouped_gemm: true");
  ASSERT_EQ(run.unknown.size(), 2U);
  EXPECT_NE(run.unknown[0].find("grouped_gemm library"), std::string::npos);
  EXPECT_NE(run.unknown[1].find("number per head"), std::string::npos);
  EXPECT_NE(problem_with(folder, "megatron", "use_sink_attention: true, sink_sliding_window: 128").find("within windows"), std::string::npos);
  EXPECT_NE(problem_with(folder, "megatron", "moe_use_legacy_grouped_gemm: true, stage: sft, lora: {enabled: true}").find("adapters beside experts"),
            std::string::npos);
  EXPECT_NE(problem_with(folder, "megatron", "moe_use_legacy_grouped_gemm: true, fp8: hybrid").find("experts in 16 bits"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll
