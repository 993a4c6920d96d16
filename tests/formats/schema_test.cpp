// Every key of a program's schema is accounted for: used by its reader's table, or marked in models/keys.
#include "formats/foreign/schema.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "foreign_test.hpp"
#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace {

using formats::KeyMark;
using formats::Schema;

const char* const kFormats[] = {"axolotl", "llama-factory", "megatron", "megatron-swift", "ms-swift", "nanotron", "peft", "primus", "torchtitan", "torchtune", "transformers", "verl"};

ForeignRun read_text(const std::string& name, const std::string& text, const std::string& model = {}) {
  const Folder folder;
  return read_foreign({folder.write(name, text)}, {model, "8xh100-sxm", {}});
}

std::string problem_in(const std::string& name, const std::string& text, const std::string& model = {}) {
  const Folder folder;
  return problem_of({folder.write(name, text)}, {model, "8xh100-sxm", {}});
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Schemas, EveryKeyIsUsedOrMarked) {
  for (const char* name : kFormats) {
    const Schema* schema = Schema::of(name);
    ASSERT_NE(schema, nullptr) << name;
    EXPECT_FALSE(schema->release().empty());
    const formats::Rows& rows = formats::find_format(name).rows();
    const auto below_of = [&](const std::string& key) {  // rows of a table's own members account for the table
      return std::any_of(rows.begin(), rows.end(), [&](const formats::Row& row) { return std::string(row.foreign).rfind(key + ".", 0) == 0; });
    };
    for (const std::string& key : schema->keys()) {
      const bool used = formats::find_row(rows, key) != nullptr || below_of(key);
      EXPECT_TRUE(used || schema->mark(key).kind != KeyMark::Kind::unjudged) << name << ": nobody says what '" << key << "' means";
    }
  }
}

TEST(Schemas, EveryMarkHasAReason) {
  for (const char* name : kFormats)
    for (const std::string& key : Schema::of(name)->keys()) {
      const KeyMark mark = Schema::of(name)->mark(key);
      if (mark.kind == KeyMark::Kind::neutral || mark.kind == KeyMark::Kind::not_modelled) {
        EXPECT_FALSE(mark.why.empty()) << name << ": " << key;
      }
    }
}

// axolotl 0.19 has no `gradient_checkpoiting` and drops it: the run would not recompute, which whoever wrote it does not know.
TEST(Schemas, AMisspeltKeyIsAnErrorWithTheNearest) {
  const std::string base = "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 1\n";
  EXPECT_TRUE(holds(problem_in("a.yml", base + "gradient_checkpoiting: true\n"), "did you mean 'gradient_checkpointing'?"));
  EXPECT_TRUE(holds(problem_in("a.yml", base + "context_parapllel_size: 2\n"), "did you mean 'context_parallel_size'?"));
  const std::string arguments = R"({"model_name_or_path": "gpt2", "bf16": true, "block_size": 512, "output_dir": "o", )";
  EXPECT_TRUE(holds(problem_in("t.json", arguments + R"("per_device_train_batch_sze": 2})"), "did you mean 'per_device_train_batch_size'?"));
  const std::string titan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 2048\n";
  EXPECT_TRUE(holds(problem_in("t.toml", titan + "local_batchsize = 4\n"), "did you mean 'training.local_batch_size'?"));
  EXPECT_TRUE(holds(problem_in("l.yaml", "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutof_len: 1024\n"),
                    "did you mean 'cutoff_len'?"));
}

// Neutral keys are listed as changing nothing; keys that are not modelled are refused, but not where they say what the program takes anyway.
TEST(Schemas, MarksDecide) {
  const std::string base = "base_model: NousResearch/Llama-3.2-1B\nflash_attention: true\nsequence_len: 2048\nmicro_batch_size: 1\n";
  const ForeignRun run = read_text("a.yml", base + "warmup_ratio: 0.1\nflash_attn_cross_entropy: false\nlora_on_cpu: true\nanything: 7\n");
  ASSERT_EQ(run.unread.size(), 4U);
  EXPECT_TRUE(holds(run.unread[3], "has no such key and drops it"));
  EXPECT_TRUE(holds(problem_in("a.yml", base + "flash_attn_cross_entropy: true\n"), "not modelled: attention by these kernels"));
  EXPECT_TRUE(holds(problem_in("a.yml", base + "float32: true\n"), "a.yml:5: not modelled: weights or products of other types"));
}

// A script of one's own may have keys of its own. What such a key may decide is refused, by the name that other programs give it; of the
// others nothing is known, and nothing is claimed.
TEST(Schemas, KeysOfAScriptsOwn) {
  const std::string base = R"({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "bf16": true, "block_size": 512, )";
  const ForeignRun run = read_text("t.json", base + R"("data_path": "x", "logging_steps": 5, "freeze_llm": false})");
  EXPECT_EQ(run.unknown.size(), 2U);
  EXPECT_EQ(run.unread.size(), 1U);
  EXPECT_EQ(run.strategy.unread_keys, run.unknown);
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("freeze_llm": true})"), "may decide what is trained"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("tensor_parallel_size": 2})"), "may decide tp"));
  // argparse takes the beginning of one name for it: of one that decides it is asked, a beginning of several is none.
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("gradient_acc": 4})"), "short form of gradient_accumulation_steps"));
  EXPECT_FALSE(holds(problem_in("t.json", base + R"("gradient": 4})"), "short form"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("lora_r": 8})"), "lora_r without use_peft"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("num_generations": 8})"), "training by preferences or rewards"));
  // Of no trainer of these alone: a run's name, and a length whose word is another's.
  const ForeignRun named = read_text("t.json", base + R"("exp_name": "sft", "min_length": 3, "budget": "b"})");
  EXPECT_EQ(named.unknown.size(), 2U);
  // Scripts of pairs and of classes: what they train is no language model at block_size.
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("passage_max_len": 156})"), "may decide how long sequences are"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("train_group_size": 8})"), "how many a sample has"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("classifier_dropout": 0.1})"), "which head is trained"));
  // Of a projector between two models, of some layers in turn, by another optimizer, by a file of what is unfrozen.
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("vision_tower": "openai/clip-vit-large-patch14-336"})"), "that a model of images is trained"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("mm_tunable_parts": "mm_mlp_adapter"})"), "may decide what is trained"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("lisa_activated_layers": 2})"), "may decide what is trained"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("customized_optim": "lamb"})"), "may decide the optimizer"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("spectrum_config_path": "snr_30.yaml"})"), "names a configuration of the script's own"));
  EXPECT_TRUE(holds(problem_in("t.json", base + R"("train_mode": "qlora"})"), "may decide what is trained"));
  EXPECT_EQ(read_text("t.json", base + R"("train_mode": "full"})").unknown.size(), 1U);
}

// A key that several programs have is no mark of one: llm2vec's model_class stands beside model_name_or_path.
TEST(Schemas, MarksOfOtherPrograms) {
  EXPECT_TRUE(holds(problem_in("l.yaml", "model: Qwen/Qwen3-4B\nmodel_class: llm\nsample_backend: hf\n"), "a file of LLaMA-Factory v1"));
  const std::string other = R"({"model_name_or_path": "gpt2", "model_class": "custom", "per_device_train_batch_size": 1, "bf16": true, "block_size": 512})";
  EXPECT_EQ(read_text("t.json", other).unknown.size(), 1U);
}

// TrainingArguments reads JSON in the place of a table (_VALID_DICT_FIELDS).
TEST(Schemas, TablesGivenAsJson) {
  const ForeignRun run = read_text(
      "t.json", R"J({"model_name_or_path": "gpt2", "per_device_train_batch_size": 1, "bf16": true, "block_size": 512,
                     "gradient_checkpointing": true, "gradient_checkpointing_kwargs": "{\"use_reentrant\": true}"})J");
  EXPECT_EQ(value_in(run, "recompute_reentrant"), "true");
}

// normalize_config of axolotl: {"use_reentrant": True} where checkpointing is on and nothing else is said of it.
TEST(Schemas, AxolotlsOwnDefaults) {
  const std::string base = "base_model: NousResearch/Llama-3.2-1B\nflash_attention: true\nsequence_len: 2_048\nmicro_batch_size: 010\n";
  const ForeignRun run = read_text("a.yml", base + "gradient_checkpointing: true\n");
  EXPECT_EQ(value_in(run, "recompute_reentrant"), "true");
  EXPECT_EQ(value_in(run, "seq_len"), "2048");    // PyYAML's integers: underscores between digits,
  EXPECT_EQ(value_in(run, "micro_batch"), "8");   // and a leading zero for octal
  EXPECT_EQ(value_in(read_text("a.yml", base + "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"),
                     "recompute_reentrant"),
            "false");
  EXPECT_EQ(value_in(read_text("a.yml", base + "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"), "lora.o_kernel"), "true");
  EXPECT_EQ(value_in(read_text("a.yml", base + "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_mlp_kernel: false\n"), "lora.r"), "8");
}

// Megatron-LM's argparse refuses what it does not know; a fork's own flags are refused where their names tell of weights or of how the run is
// laid out, and else told.
TEST(Schemas, FlagsOfMegatron) {
  const std::string front = "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 2 --hidden-size 256 --num-attention-heads 4 "
                            "--seq-length 512 --max-position-embeddings 512 --vocab-size 1024 --micro-batch-size 1 --global-batch-size 8 ";
  const auto said = [&](const std::string& flags) { return problem_in("m.sh", "#!/bin/bash\n" + front + flags + "\n"); };
  EXPECT_TRUE(holds(said("--tensor-model-parallel-sizes 4"), "did you mean 'tensor_model_parallel_size'?"));
  EXPECT_TRUE(holds(said("--ds-sequence-parallel-size 4"), "ds_sequence_parallel_size: 4"));
  EXPECT_TRUE(holds(said("--freeze-LM"), "may decide what is trained"));
  EXPECT_TRUE(holds(said("--my-parallel-way 2"), "may decide how the run is laid out"));
  EXPECT_EQ(said("--my-own-flag 2 --log-interval 10 --lr 1e-4"), "read");
}

// PrimusTurboSpecProvider.core_attention is Turbo's wherever use_turbo_attention is on, whatever attention_backend says; without
// enable_primus_turbo there is no such provider.
TEST(Schemas, PrimusTurbo) {
  const auto read = [](const std::string& more) {
    return read_text("p.yaml",
                     "work_group: a\nexp_name: b\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: llama3.1_8B.yaml\n    overrides:\n"
                     "      seq_length: 2048\n      micro_batch_size: 1\n      global_batch_size: 8\n      use_turbo_attention: true\n"
                     "      attention_backend: auto\n" + more);
  };
  EXPECT_EQ(value_in(read("      enable_primus_turbo: true\n"), "attention"), "flash");
  EXPECT_EQ(value_in(read("      enable_primus_turbo: false\n"), "attention"), "te");
}

// transformers 5 loads weights in the type of their checkpoint, which for a shipped model is known: meta-llama/Llama-3.1-8B's is bfloat16. Its
// predecessors took fp32.
TEST(Schemas, AShippedModelKnowsItsCheckpointsType) {
  const std::string text =
      R"({"model_name_or_path": "meta-llama/Llama-3.1-8B", "per_device_train_batch_size": 1, "bf16": true, "max_length": 512})";
  EXPECT_EQ(value_in(read_text("t.json", text), "param_dtype"), "bf16");
  const Folder folder;
  const std::string file = folder.write("t.json", text);
  EXPECT_EQ(value_in(read_foreign({file}, {{}, "8xh100-sxm", {}, {"transformers=4.46.3"}}), "param_dtype"), "fp32");
}

// A base model has no loss: it is refused by name.
TEST(Schemas, ABaseModelsClassIsNoneToTrain) {
  const Folder folder;
  const ForeignRun run = read_foreign(
      {folder.write("config.json", R"({"model_type": "llama", "architectures": ["LlamaModel"], "num_hidden_layers": 2, "hidden_size": 256,
                                       "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1024})")},
      {{}, "1xh100-sxm", {}});
  try {
    (void)resolve(run.strategy, run.model, run.cluster);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_TRUE(holds(error.what(), "LlamaModel has no head")) << error.what();
  }
}

struct Foreigner {
  const char *program, *name, *text;
};

void PrintTo(const Foreigner& one, std::ostream* out) { *out << one.program; }

class OtherPrograms : public testing::TestWithParam<Foreigner> {};

// Files of programs that are not read share keys with some that are; each is refused by its own name.
TEST_P(OtherPrograms, AreRefusedByName) {
  const std::string said = problem_in(GetParam().name, GetParam().text, "gpt2");
  EXPECT_TRUE(holds(said, std::string("a file of ") + GetParam().program + " is not read")) << said;
}

const Foreigner kForeigners[] = {
    {"NeMo AutoModel", "a.yaml",
     "step_scheduler: {global_batch_size: 32}\nmodel:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\ndataset: {x: 1}\n"},
    {"LLaMA-Factory v1", "b.yaml", "model: gpt2\nmodel_class: llm\ncutoff_len: 2048\ndist_config: {name: fsdp2}\n"},
    {"GPT-NeoX", "c.yml", "pipe_parallel_size: 2\nmodel_parallel_size: 2\nnum_layers: 12\ntrain_micro_batch_size_per_gpu: 4\n"},
    {"GPT-NeoX", "d.yml", "num-layers: 12\nhidden-size: 768\nzero_optimization: {stage: 1}\n"},
    {"GPT-NeoX", "c2.yml", "optimizer: {type: Adam, params: {lr: 0.1}}\nzero_optimization: {stage: 1}\ntrain_micro_batch_size_per_gpu: 4\ncheckpoint_activations: true\n"},
    {"GPT-NeoX", "c3.yml", "text_gen_type: unconditional\nrecompute: false\ntop_k: 0\n"},
    {"NeMo AutoModel", "a2.yaml", "recipe: Eagle\ndist_env: {backend: nccl}\nrecipe_args: {output_dir: a}\noptimizer: {lr: 0.1}\n"},
    {"LitGPT", "e.yaml", "checkpoint_dir: c\nprecision: bf16-true\nlora_r: 32\nlora_alpha: 16\ntrain: {micro_batch_size: 4}\n"},
    {"LitGPT", "f.yaml", "model_name: tiny-llama-1.1b\nprecision: bf16-mixed\ntrain: {micro_batch_size: 4, max_seq_length: 2048}\n"},
    {"OLMo", "g.yaml", "model: {d_model: 2048, n_layers: 16}\noptimizer: {name: adamw}\nfsdp: {wrapping_strategy: by_block}\n"},
    {"OLMo-core", "h.yaml", "model: {_CLASS_: TransformerConfig}\ntrain_module: {rank_microbatch_size: 8192}\n"},
    {"Lightning's command line", "i.yaml", "seed_everything: 1\ntrainer: {devices: 8, num_nodes: 1}\nmodel: {class_path: m.GPT}\n"},
    {"Megatron-Bridge", "j.yaml", "train: {global_batch_size: 64, micro_batch_size: 1}\nmodel: {tensor_model_parallel_size: 2}\n"},
    {"open-instruct", "k.yaml", "model_name_or_path: gpt2\nwith_tracking: true\nper_device_train_batch_size: 1\n"},
    {"Levanter", "n.yaml", "trainer: {train_batch_size: 256, mp: p=f32}\nmodel: {type: llama}\n"},
    {"MaxText", "o.yml", "base_emb_dim: 2048\nper_device_batch_size: 8\n"},
    {"trlX", "p.yml", "train: {seq_length: 512}\nmethod: {name: ppoconfig}\nmodel: {model_path: gpt2}\n"},
    {"kohya's scripts", "q.toml", "pretrained_model_name_or_path = \"x\"\nnetwork_module = \"networks.lora\"\n"},
    {"Ludwig", "r.yaml", "model_type: llm\ninput_features: []\noutput_features: []\n"},
};
INSTANTIATE_TEST_SUITE_P(Schemas, OtherPrograms, testing::ValuesIn(kForeigners));

// Keys that many programs have tell of none: a list of datasets, a rate and a folder, a switch among keys of somebody's own.
TEST(Schemas, FilesWithoutMarksAreOfNoFormat) {
  for (const char* text : {"datasets: [{path: a}]\n", "learning_rate: 0.1\noutput_dir: a\n", "recompute: false\ncolour: red\nshape: round\nsize: 3\n"})
    EXPECT_TRUE(holds(problem_in("x.yaml", text, "gpt2"), "is of no format that is known")) << text;
}

}  // namespace
}  // namespace plimsoll
