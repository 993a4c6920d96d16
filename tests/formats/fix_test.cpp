// A change put into the files that a run came from.
#include "plimsoll/fix.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/fix/text_edits.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/explain.hpp"

namespace plimsoll {
namespace {

using formats::Node;

ForeignOptions with(const std::string& name, const std::string& text) {
  ForeignOptions options;
  options.on = "8xh100-sxm";
  options.texts = {{name, text}};
  return options;
}

Fix fixed(const std::string& name, const std::string& text, const std::vector<std::pair<std::string, std::string>>& change) {
  return fix_run({name}, with(name, text), change);
}

std::string refusal(const std::string& name, const std::string& text, const std::vector<std::pair<std::string, std::string>>& change) {
  try {
    fixed(name, text, change);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

const char* const kAxolotl =
    "# what we train\n"
    "base_model: NousResearch/Meta-Llama-3.1-8B\n"
    "sequence_len: 4096   # tokens\n"
    "micro_batch_size: 4\n"
    "gradient_checkpointing: false  # for speed\n"
    "bf16: true\n"
    "optimizer: adamw_torch\n"
    "attn_implementation: flash_attention_2\n";

// A value that stands there is replaced on its line; its comment, and all other lines, stay.
TEST(Fix, OneValueIsOneLine) {
  const Fix fix = fixed("run.yaml", kAxolotl, {{"micro_batch", "2"}});
  ASSERT_EQ(fix.files.size(), 1u);
  std::string expected = kAxolotl;
  expected.replace(expected.find("micro_batch_size: 4"), 19, "micro_batch_size: 2");
  EXPECT_EQ(fix.files.front().after, expected);
  EXPECT_EQ(fix.said, std::vector<std::string>{"run.yaml: micro_batch_size: 2"});
  EXPECT_LT(fix.after.worst_rank().memory.allocated, fix.before.worst_rank().memory.allocated);
  EXPECT_EQ(difference_of(fix.files.front()),
            "--- run.yaml\n+++ run.yaml\n # what we train\n base_model: NousResearch/Meta-Llama-3.1-8B\n sequence_len: 4096   # tokens\n-micro_batch_size: 4\n"
            "+micro_batch_size: 2\n gradient_checkpointing: false  # for speed\n bf16: true\n optimizer: adamw_torch\n");
}

// Trainer reduces gradients in the last accumulation step alone, also where it is the change that makes it accumulate.
TEST(Fix, AccumulationComesWithItsReduction) {
  const Fix fix = fixed("run.yaml", kAxolotl, {{"micro_batch", "1"}, {"grad_accum", "4"}});
  EXPECT_EQ(fix.said, (std::vector<std::string>{"run.yaml: gradient_accumulation_steps: 4", "run.yaml: micro_batch_size: 1"}));
}

// A line that becomes several: what follows it is as it was, the last line as well.
TEST(Fix, ADifferenceMarksOnlyWhatDiffers) {
  EXPECT_EQ(difference_of({"a.json", "{\n{}\n}\n", "{\n{\n  1\n}\n}\n"}), "--- a.json\n+++ a.json\n {\n-{}\n+{\n+  1\n+}\n }\n");
  EXPECT_EQ(difference_of({"a", "x\n", "x\nx\n"}), "--- a\n+++ a\n+x\n x\n");
}

TEST(Fix, CommentsStayAndWhatIsMissingIsAdded) {
  const std::string after = fixed("run.yaml", kAxolotl, {{"recompute", "full"}}).files.front().after;
  EXPECT_NE(after.find("gradient_checkpointing: true  # for speed\n"), std::string::npos) << after;
  EXPECT_EQ(after.rfind("# what we train\n", 0), 0u);
}

// A launch: an option is replaced where it stands, in the middle of its line, or added behind the last one.
TEST(Fix, ALaunchLineGetsItsOption) {
  const std::string script =
      "#!/bin/bash\n# ours\ntorchrun --nproc_per_node 8 train.py \\\n  --model_name_or_path meta-llama/Llama-3.2-1B --per_device_train_batch_size 4 \\\n"
      "  --bf16 true --max_seq_length 2048\n";
  const Fix smaller = fixed("run.sh", script, {{"micro_batch", "1"}});
  EXPECT_NE(smaller.files.front().after.find("--per_device_train_batch_size 1 \\\n"), std::string::npos) << smaller.files.front().after;
  const Fix again = fixed("run.sh", script, {{"recompute", "full"}});
  EXPECT_EQ(again.files.front().after.rfind(script.substr(0, script.size() - 1), 0), 0u) << "all that stood there stands";
  EXPECT_NE(again.files.front().after.find("--max_seq_length 2048 \\\n  --"), std::string::npos) << again.files.front().after;
}

// An option is added before what ends the command's words on its line.
TEST(Fix, AnOptionIsAddedBeforeWhatIsNoWord) {
  const std::string launch = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --bf16 true --max_seq_length 2048";
  for (const std::string behind : {"  # long", " 2>&1 | tee log", " > log", " &", "; echo done"})
    EXPECT_EQ(fixed("run.sh", launch + behind + "\n", {{"grad_accum", "2"}}).files.front().after.find(launch + " --gradient_accumulation_steps 2"), 0u)
        << behind;
}

// A value that is a variable is changed where the one line above gives it, however that is written; one that other options share is refused, as they would change with it.
TEST(Fix, AVariableIsChangedWhereItIsSet) {
  const std::string launch = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.2-1B --max_seq_length 2048 --bf16 true --per_device_train_batch_size ";
  const std::vector<std::pair<std::string, std::string>> scripts = {{"B=4\n" + launch + "$B\n", "B=1\n"},
                                                                    {"export A=1 B=\"4\"  # each\n" + launch + "\"${B}\"\n", "export A=1 B=\"1\"  # each\n"},
                                                                    {"declare -i B=4; echo\n" + launch + "$B\n", "declare -i B=1; echo\n"},
                                                                    {"B=${B:-4}\n" + launch + "$B\n", "B=${B:-1}\n"},
                                                                    {launch + "${B:-4}\n", launch + "${B:-1}\n"}};
  for (const auto& [script, begins] : scripts) {
    const Fix fix = fixed("run.sh", script, {{"micro_batch", "1"}});
    EXPECT_EQ(fix.files.front().after.rfind(begins, 0), 0u) << fix.files.front().after;
    EXPECT_EQ(fix.files.front().after.size(), script.size());
  }
  EXPECT_NE(refusal("run.sh", "B=4\n" + launch + "$B --gradient_accumulation_steps $B\n", {{"micro_batch", "1"}}), "");
}

// TRL's trainers take the arguments of transformers' Trainer beside their own.
TEST(Fix, ARunOfTrlGetsItsArgument) {
  const std::string script = "trl sft --model_name_or_path meta-llama/Llama-3.2-1B --dataset_name x --bf16 --per_device_train_batch_size 8 --max_length 2048\n";
  EXPECT_NE(fixed("sft.sh", script, {{"micro_batch", "2"}}).files.front().after.find("--per_device_train_batch_size 2 --max_length"), std::string::npos);
  EXPECT_NE(fixed("sft.sh", script, {{"recompute", "none"}}).files.front().after.find("--max_length 2048 \\\n    --activation_checkpointing false"), std::string::npos);
}

// DeepSpeed's table within training_arguments.json.
TEST(Fix, ATableWithinAnothersFile) {
  const std::string json = "{\n  \"model_name_or_path\": \"meta-llama/Llama-3.2-1B\",\n  \"per_device_train_batch_size\": 2,\n  \"bf16\": true, \"max_seq_length\": 2048,\n"
                           "  \"deepspeed\": {\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": true}}\n}\n";
  const Fix fix = fixed("args.json", json, {{"zero_stage", "3"}});
  EXPECT_NE(fix.files.front().after.find("\"stage\": 3"), std::string::npos) << fix.files.front().after;
  EXPECT_EQ(fix.files.front().after.find("\"stage\": 2"), std::string::npos);
}

TEST(Fix, WhatCannotBeSaidIsRefused) {
  EXPECT_NE(refusal("run.yaml", kAxolotl, {{"recompute", "none"}}).find("these files say --recompute none already"), std::string::npos);
  EXPECT_NE(refusal("run.sh", "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 4\n", {{"data_parallel", "fsdp2"}}).find("accelerate"),
            std::string::npos);
  for (const char* set : {"B=4\nB=8\n", "B=$((2 * 4))\n", "for B in 4; do :; done\n"})  // twice, computed, by a loop
    EXPECT_NE(refusal("run.sh", std::string(set) + "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size $B\n", {{"micro_batch", "2"}})
                  .find("not written out"),
              std::string::npos)
        << set;
  EXPECT_NE(refusal("run.yaml", "model_name_or_path:\n  gpt2\nper_device_train_batch_size:\n  8\nmax_length:\n  512\nbf16:\n  true\n", {{"micro_batch", "2"}}).find("is not a line of its own"),
            std::string::npos);
}

// Every sample of the formats that are written: a change either stands in the files afterwards, with few lines moved, or is refused by name.
TEST(Fix, SamplesSayTheChangeOrRefuseIt) {
  const std::filesystem::path samples = std::filesystem::path(PLIMSOLL_SOURCE_DIR) / "tests/formats/samples";
  const std::vector<std::vector<std::pair<std::string, std::string>>> changes = {
      {{"micro_batch", "3"}}, {{"recompute", "full"}}, {{"recompute", "none"}}, {{"seq_len", "1024"}}, {{"grad_accum", "2"}}};
  int said = 0, refused = 0;
  for (const char* format : {"axolotl", "llama-factory", "torchtitan", "torchtune", "megatron", "transformers", "trl"})
    for (const auto& entry : std::filesystem::directory_iterator(samples / format))
      for (const auto& change : changes) {
        ForeignOptions options;
        options.on = "8xh100-sxm";
        try {
          const Fix fix = fix_run({entry.path().string()}, options, change);
          ++said;
          ASSERT_FALSE(fix.files.empty()) << entry.path();
          for (const FixedFile& file : fix.files) {
            const std::string difference = difference_of(file);
            EXPECT_LT(std::count(difference.begin(), difference.end(), '\n'), 60) << entry.path() << "\n" << difference;
          }
        } catch (const Error& error) {
          EXPECT_NE(error.code(), ErrorCode::internal) << entry.path() << ": " << error.what();
          ++refused;
        }
      }
  EXPECT_GT(said, 40) << refused << " refused";
}

// A change is said by the keys that the program needs for it, without those that are so already; options of a launch are spelled as such.
TEST(ProgramWords, AreTheKeysOfTheChange) {
  const ProgramWords axolotl(read_foreign({"run.yaml"}, with("run.yaml", kAxolotl)));
  EXPECT_EQ(axolotl.said({{"micro_batch", "2"}}), std::vector<std::string>{"micro_batch_size: 2"});
  EXPECT_EQ(axolotl.said({{"recompute", "full"}}),
            (std::vector<std::string>{"gradient_checkpointing: true", "gradient_checkpointing_kwargs.use_reentrant: false"}));
  const ProgramWords launch(read_foreign({"run.sh"}, with("run.sh", "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path meta-llama/Llama-3.1-8B --block_size 8192 --bf16\n")));
  EXPECT_EQ(launch.said({{"liger_kernel", "true"}}), std::vector<std::string>{"--use_liger_kernel true"});
  EXPECT_FALSE(launch.can_say({{"loss", "cut-cross-entropy"}})) << "the Trainer has no switch for it";
}

// What makes a run fit is looked for among what its files can say: cut cross entropy would save the most time here.
TEST(ProgramWords, DecideWhatMakesARunFit) {
  const std::string line = "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path meta-llama/Llama-3.2-1B --block_size 4096 --per_device_train_batch_size 8 --bf16\n";
  const ForeignRun run = read_foreign({"run.sh"}, with("run.sh", line));
  const ProgramWords words(run);
  const auto change = fitting_change(run.model, run.cluster, run.strategy, [&](const Change& one) { return words.can_say(one.options); });
  ASSERT_TRUE(change);
  EXPECT_NE(change->verdict, Verdict::does_not_fit);
  EXPECT_TRUE(words.can_say(change->options)) << change->flag;
}


// Values are set in texts that nobody formats: flow tables, lists, empty values, sections that are not there.
TEST(TextEdits, Yaml) {
  const auto set = [](const std::string& text, const std::string& path, const char* value) {
    return formats::set_in_yaml(text, formats::parse_yaml_text(text, "a.yaml"), path, Node::scalar(value, ""), "a.yaml");
  };
  EXPECT_EQ(set("a: 1 # one\nb: 2\n", "a", "3"), "a: 3 # one\nb: 2\n");
  EXPECT_EQ(set("a:\n  b: 1\n  c: 2\n\n# end\nd: 4\n", "a.x", "5"), "a:\n  b: 1\n  c: 2\n  x: 5\n\n# end\nd: 4\n");
  EXPECT_EQ(set("a: 1\n", "b.c", "x y"), "a: 1\nb:\n  c: \"x y\"\n");
  EXPECT_EQ(set("l:\n- 1\n- 2\n", "z", "true"), "l:\n- 1\n- 2\nz: true\n");
  EXPECT_THROW(set("a: {b: 1}\n", "a.c", "2"), Error);
  EXPECT_THROW(set("a: {b: 1}\n", "a.b", "2"), Error);
  EXPECT_THROW(set("a:\n  - 1\n", "a", "2"), Error);
}

// A list is added on one line; one whose items have lines of their own gets those that it lacks.
TEST(TextEdits, Lists) {
  const Node value = formats::parse_yaml_text("[a.B, c]", "v.yaml");
  const auto yaml = [&](const std::string& text) { return formats::set_in_yaml(text, formats::parse_yaml_text(text, "a.yaml"), "l", value, "a.yaml"); };
  EXPECT_EQ(yaml("x: 1\n"), "x: 1\nl: [a.B, c]\n");
  EXPECT_EQ(yaml("l:\n  - c  # kept\n\ny: 2\n"), "l:\n  - c  # kept\n  - a.B\n\ny: 2\n");
  EXPECT_EQ(yaml("l:\n- d\n"), "l:\n- d\n- a.B\n- c\n");
  EXPECT_THROW(yaml("l: [d]\n"), Error);
  EXPECT_THROW(yaml("l:\n- d\n  .e\n"), Error) << "an item of two lines";
  EXPECT_THROW(yaml("l: 1\n"), Error);
  EXPECT_EQ(formats::set_in_json("{}", Node(), "l", value, "a.json"), R"({"l": ["a.B", "c"]})");
  EXPECT_THROW(formats::set_in_json(R"({"l": []})", Node(), "l", value, "a.json"), Error);
  EXPECT_EQ(formats::set_in_toml("", formats::parse_toml_text("", "a.toml"), "t.l", value, "a.toml"), "\n[t]\nl = [\"a.B\", \"c\"]\n");
}

// Liger's kernels are a plugin of axolotl's and its switches.
TEST(Fix, APluginIsListed) {
  for (const char* plugins : {"", "plugins:\n  - axolotl.integrations.swanlab.SwanLabPlugin  # ours\n"}) {
    const std::string text = std::string(kAxolotl) + plugins;
    const Fix fix = fixed("run.yaml", text, {{"liger_kernel", "true"}});
    ASSERT_EQ(fix.files.size(), 1u);
    EXPECT_EQ(fix.files.front().after.rfind(text, 0), 0u) << fix.files.front().after;
    EXPECT_NE(fix.files.front().after.find("axolotl.integrations.liger.LigerPlugin"), std::string::npos);
  }
}

TEST(TextEdits, TomlAndJson) {
  const auto toml = [](const std::string& text, const std::string& path, const char* value) {
    return formats::set_in_toml(text, formats::parse_toml_text(text, "a.toml"), path, Node::scalar(value, ""), "a.toml");
  };
  EXPECT_EQ(toml("[a]\nb=1 # x\n", "a.b", "2"), "[a]\nb=2 # x\n");
  EXPECT_EQ(toml("[a]\nb = 1\n", "a.c", "full"), "[a]\nc = \"full\"\nb = 1\n");
  EXPECT_EQ(toml("[a]\nb = 1\n", "z.c", "true"), "[a]\nb = 1\n\n[z]\nc = true\n");
  const auto json = [](const std::string& text, const std::string& path, const char* value) {
    return formats::set_in_json(text, Node(), path, Node::scalar(value, ""), "a.json");
  };
  EXPECT_EQ(json(R"({"a": {"b": 1}, "c": "}"})", "a.b", "2"), R"({"a": {"b": 2}, "c": "}"})");
  EXPECT_EQ(json("{\n  \"a\": 1\n}", "b", "full"), "{\n  \"b\": \"full\",\n  \"a\": 1\n}");
  EXPECT_EQ(json("{}", "b", "3"), "{\"b\": 3}");
  EXPECT_THROW(json(R"({"a": [1]})", "a", "2"), Error);
}

TEST(TextEdits, Launches) {
  const auto set = [](const std::string& text, std::size_t line, const std::string& option, const std::string& value) { return formats::set_in_launch(text, line, option, value, "a.sh"); };
  EXPECT_EQ(set("run --a=1 --b 2\n", 1, "--a", "3"), "run --a=3 --b 2\n");
  EXPECT_EQ(set("run --ab 1 --a 2\n", 1, "--a", "3"), "run --ab 1 --a 3\n") << "--ab is another option";
  EXPECT_EQ(set("run --x 1\n", 1, "--a", "3"), "run --x 1 \\\n    --a 3\n");
  EXPECT_EQ(set("run --a --b 1\n", 1, "--a", "true"), "run --a true --b 1\n");
  EXPECT_THROW(set("run --a $A\n", 1, "--a", "3"), Error);
  EXPECT_EQ(set("run --x 1 | tee log\n", 1, "--a", "3"), "run --x 1 --a 3 | tee log\n") << "what is added is not tee's";
  EXPECT_EQ(set("run --x 'a | b'\n", 1, "--a", "3"), "run --x 'a | b' \\\n    --a 3\n");
  EXPECT_THROW(set("run\n", 7, "--a", "3"), Error);
}

}  // namespace
}  // namespace plimsoll
