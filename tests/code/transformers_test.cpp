// Models of transformers by the package's own code: their programs are those of the C++ classes, instruction by instruction.
//
// The wheel is not shipped: PLIMSOLL_TRANSFORMERS names it, or a folder with the package (pip download --no-deps transformers==5.23.0, which
// the families' texts are of); without it these tests are skipped. Those of Liger's patches want liger-kernel's, named by PLIMSOLL_LIGER.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "devices.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/kernel.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::code {
namespace {

using Options = std::vector<std::pair<std::string, std::string>>;

/// Instructions as lines: tensors by when they were made, work by what it is, streams by their names. Tensors that die at one point die
/// together: a frame of Python lets go of its variables from the first on, a block of C++ from the last, and where a phase begins among them does
/// not matter.
std::vector<std::string> lines_of(const StepProgram& program) {
  std::vector<std::string> lines;
  std::map<TensorId, std::size_t> names;
  std::size_t born = 0;
  for (const auto* part : {&program.init, &program.first_step, &program.second_step, &program.step}) {
    lines.push_back("---");
    std::size_t first_free = lines.size();
    for (const Instruction& i : *part) {
      if (i.kind == InstructionKind::host) continue;  // views, which a C++ class has fewer lines for than Python has temporaries
      if (i.kind != InstructionKind::free && i.kind != InstructionKind::phase) {
        std::sort(lines.begin() + static_cast<std::ptrdiff_t>(first_free), lines.end());
        first_free = lines.size() + 1;
      }
      std::string line = std::to_string(static_cast<int>(i.kind)) + " " + program.streams[i.stream] + " ";
      switch (i.kind) {
        case InstructionKind::alloc:
          names[i.id] = born++;
          line += std::to_string(names[i.id]) + ": " + std::to_string(i.bytes) + " B " + std::string(name_of(i.category));
          break;
        case InstructionKind::free:
        case InstructionKind::record_stream:
          line += std::to_string(names[i.id]);
          break;
        case InstructionKind::kernel:
          line += describe(program.kernels[i.id]) + " " + std::to_string(hash_of(program.kernels[i.id]));
          break;
        case InstructionKind::collective:
          line += std::string(name_of(program.collectives[i.id].kind)) + " " + std::to_string(program.collectives[i.id].bytes);
          break;
        case InstructionKind::copy:
          line += std::to_string(program.copies[i.id].bytes);
          break;
        case InstructionKind::record_event:
        case InstructionKind::wait_event:
          break;
        default:
          line += std::to_string(i.id) + " " + std::to_string(i.bytes);
      }
      lines.push_back(line + "\t" + program.labels[i.label]);
    }
  }
  return lines;
}

std::string without_label(const std::string& line) { return line.substr(0, line.find('\t')); }

/// The first lines in which two programs differ; empty: they are one.
std::string difference(const StepProgram& a, const StepProgram& b) {
  const std::vector<std::string> left = lines_of(a), right = lines_of(b);
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    if (i < left.size() && i < right.size() && without_label(left[i]) == without_label(right[i])) continue;
    std::string told = "line " + std::to_string(i) + " of " + std::to_string(left.size()) + " and " + std::to_string(right.size()) + "\n";
    for (std::size_t at = i < 4 ? 0 : i - 4; at < i + 5; ++at) {
      told += (at < left.size() ? left[at] : std::string("(end)")) + "\n";
      told += "          | " + (at < right.size() ? right[at] : std::string("(end)")) + "\n";
    }
    return told;
  }
  return {};
}

const char* package() { return std::getenv("PLIMSOLL_TRANSFORMERS"); }

/// Packages that patch its classes: PLIMSOLL_LIGER names liger_kernel's wheel or folder.
std::vector<std::string> beside() {
  const char* const liger = std::getenv("PLIMSOLL_LIGER");
  return liger != nullptr ? std::vector<std::string>{liger} : std::vector<std::string>{};
}

StepProgram program_of(const Model& model, const Options& options, const Cluster& cluster) {
  Strategy said;
  Options all = options;
  const auto says = [&](const char* key) { return std::any_of(options.begin(), options.end(), [&](const auto& option) { return option.first == key; }); };
  if (!says("framework")) all.insert(all.end(), {{"framework", "transformers"}});
  set_options(said, all);
  const Strategy strategy = resolve(said, model, cluster);
  return program::rank_source(program::on_cluster(cluster, model, strategy))->rank(0);
}

/// What the two say of one configuration, under one strategy.
std::string compared(const std::string& config, const Options& options, const std::string& cluster_name) {
  const Cluster cluster = parse_cluster(cluster_name);
  const Model ours = parse_model(config, "config.json", "config.json");
  const Model theirs = model_of_package({package(), config, "config.json", "", "", {}, beside()});
  if (ours.parameters() != theirs.parameters())
    return "parameters: " + std::to_string(ours.parameters()) + " and " + std::to_string(theirs.parameters());
  return difference(program_of(ours, options, cluster), program_of(theirs, options, cluster));
}

/// What a decoder is made of, small.
std::string decoder(const std::string& type, const std::string& architecture, const std::string& more = {}) {
  return R"({"architectures": [")" + architecture + R"("], "model_type": ")" + type +
         R"(", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8, "vocab_size": 1000,
    "max_position_embeddings": 512)" + (more.empty() ? "" : ", " + more) + "}";
}

void expect_equal(const std::string& config, const std::vector<std::pair<Options, const char*>>& runs) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  for (const auto& [options, cluster] : runs) {
    Options all = options;
    all.emplace_back("micro_batch", "2");
    if (config.find("image_size") == std::string::npos) all.emplace_back("seq_len", "128");
    std::string name;
    for (const auto& [key, value] : options) name += key + "=" + value + " ";
    EXPECT_EQ(compared(config, all, cluster), "") << config << " " << name;
  }
}

const std::vector<std::pair<Options, const char*>> kAll = {
    {{}, "1xh100-sxm"},
    {{{"attention", "eager"}}, "1xh100-sxm"},
    {{{"precision", "fp32"}}, "1xh100-sxm"},
    {{{"precision", "pure-bf16"}}, "1xh100-sxm"},
    {{{"precision", "amp-fp16"}}, "1xh100-sxm"},
    {{{"recompute", "full"}}, "1xh100-sxm"},
    {{{"recompute", "full"}, {"attention", "eager"}}, "1xh100-sxm"},
    {{{"recompute", "full"}, {"recompute_reentrant", "true"}}, "1xh100-sxm"},
    {{{"data_parallel", "ddp"}}, "4xh100-sxm"},
    {{{"data_parallel", "ddp"}, {"recompute", "full"}}, "2xh100-sxm"},
    {{{"grad_accum", "3"}}, "1xh100-sxm"},
    {{{"attention", "flash"}}, "1xh100-sxm"},
};

// ---- wrappers: what acts on modules acts alike on a class's and on a text's -----------------------------------------------

/// A setting of a wrapper, drawn, without values that are named.
Options drawn_setting(std::mt19937& random, const std::string& targets, const std::vector<std::string>& without) {
  const auto one_of = [&](std::initializer_list<const char*> values) {
    std::string value;
    do value = *(values.begin() + random() % values.size());
    while (std::find(without.begin(), without.end(), value) != without.end());
    return value;
  };
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const std::string wrapper = one_of({"none", "ddp", "fsdp2", "fsdp2", "fsdp1", "zero1", "zero2", "zero3", "zero3"});
  const bool deepspeed = wrapper.starts_with("zero"), sharded = wrapper.starts_with("fsdp"), adapted = chance(45);
  Options options{{"data_parallel", wrapper}};
  if (deepspeed) {
    options.insert(options.end(), {{"framework", "deepspeed"}, {"precision", one_of({"mixed-bf16", "fp32"})}});
  } else {
    options.emplace_back("framework", one_of({"transformers", "accelerate"}));
    options.emplace_back("precision", sharded ? one_of({"fsdp-mixed-bf16", "fp32"}) : one_of({"amp-bf16", "pure-bf16", "fp32"}));
  }
  if (adapted) {
    options.insert(options.end(), {{"lora.r", "8"}, {"lora.alpha", "16"}, {"lora.target_modules", chance(30) ? "all-linear" : targets}});
    if (chance(30)) options.emplace_back("lora.dropout", "0.1");
    if (!sharded && wrapper != "zero3") options.emplace_back("base_weights", one_of({"as-trained", "as-trained", "nf4", "int8"}));
  }
  if (chance(40)) options.emplace_back("recompute", "full");
  if (chance(30)) options.emplace_back("grad_accum", "2");
  options.emplace_back("attention", one_of({"eager", "sdpa", "sdpa", "sdpa"}));
  if (chance(50)) options.emplace_back("clip_grad_norm", "true");
  return options;
}

// Every config that is shipped for code alone: PyTorch's own count of the class that its architectures name, made on the meta device by
// transformers 5.23.
TEST(Packages, ShippedConfigsHaveTheParametersOfPyTorchsClasses) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  static const std::map<std::string, std::int64_t> counts = {
      {"gemma-4-26b-a4b", 25805933872},    {"gemma-4-31b", 31273086512},       {"qwen3-next-80b-a3b", 79674391296}, {"qwen3-vl-235b-a22b", 235670022896},
      {"qwen3-vl-2b", 2127532032},         {"qwen3-vl-30b-a3b", 31070754032},  {"qwen3-vl-32b", 33357390064},       {"qwen3-vl-4b", 4437815808},
      {"qwen3-vl-8b", 8767123696},         {"qwen3.5-122b-a10b", 122562817776}, {"qwen3.5-27b", 27356728560},        {"qwen3.5-35b-a3b", 35107181936},
      {"qwen3.5-397b-a17b", 396802360816}, {"qwen3.5-0.8b", 852985920},        {"qwen3.5-2b", 2213241664},          {"qwen3.5-4b", 4539265536},
      {"qwen3.5-9b", 9409813744},          {"lfm2-350m", 354483968},        {"lfm2-1.2b", 1170340608},           {"lfm2-8b-a1b", 8339929856},
      {"voxtral-mini-3b", 4676271104},     {"mistral-small-3.1-24b", 24011361280},
      {"ministral-3-3b", 3849090048},      {"smolvlm2-2.2b", 2246784880},   {"lfm2-vl-450m", 450822656},         {"llama-3.2-11b-vision", 10642941475},
      {"falcon-h1-0.5b", 521411104},       {"falcon-h1-1.5b", 1554863488},      {"falcon-h1-1.5b-deep", 1554874768}, {"falcon-h1-3b", 3149392384},
      {"falcon-h1-7b", 7585654880},        {"falcon-h1-34b", 33642516224},      {"trinity-nano", 6120003328},        {"paddleocr-vl", 799695472},
      {"glm-4.6v-flash", 10292777472}};
  for (const auto& [name, count] : counts) {
    const PackageModel asked = package_model(name, {package()});
    EXPECT_EQ(asked.where, name);
    EXPECT_EQ(model_of_package(asked).parameters(), count) << name;
  }
}

// Code of a repository's own beside its config.json (auto_map): a configuration with an __init__ of its own, as those have that were written
// for releases before configurations were dataclasses, and whose base still keeps what it is not asked for. Parameters: an embedding and a
// head of 64 by 16, two linears of 16 by 16 with their biases.
TEST(Packages, CodeBesideAConfigIsRead) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "own-code";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"architectures": ["OwnForCausalLM"], "model_type": "own", "width": 16, "vocab_size": 64,
    "auto_map": {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}})";
  std::ofstream(folder / "configuration_own.py") << R"(from transformers import PretrainedConfig


class OwnConfig(PretrainedConfig):
    model_type = "own"

    def __init__(self, width=8, vocab_size=32, **kwargs):
        self.width = width
        self.vocab_size = vocab_size
        super().__init__(**kwargs)
)";
  std::ofstream(folder / "modeling_own.py") << R"(import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_own import OwnConfig


class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList([nn.Linear(config.width, config.width) for _ in range(2)])
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None, **kwargs):
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        logits = self.head(hidden)
        loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits)
)";
  EXPECT_EQ(model_of_package(package_model(folder.string(), {package()})).parameters(), 2 * 64 * 16 + 2 * (16 * 16 + 16));
}

// A class over another package says which.
TEST(Packages, ATowerOfAnotherPackageIsRefusedByName) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  try {
    (void)model_of_package(package_model("google/gemma-3n-E2B-it", {package()}));
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("TimmWrapperModel, a class over vision and timm"), std::string::npos) << error.message();
  }
}

// A batch of text needs nothing of what lies beside the language model, whichever of the two names that has in its class: Qwen3-VL's
// "language_model", SmolVLM's "text_model".
TEST(Packages, TowersBesideALanguageModelRest) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  const auto is_tower = [](const Block& block) { return block.stream == Block::Stream::second; };
  const auto towers = [&](const char* name) {
    std::vector<std::string> parts;
    for (const Block& block : model_of_package(package_model(name, {package()})).blocks)
      if (is_tower(block)) parts.push_back(block.name);
    return parts;
  };
  EXPECT_EQ(towers("qwen3-vl-4b"), std::vector<std::string>{"model.visual"});
  EXPECT_EQ(towers("smolvlm2-2.2b"), (std::vector<std::string>{"model.vision_model", "model.connector"}));
  EXPECT_EQ(towers("lfm2-1.2b"), std::vector<std::string>{});
}

// What a loader goes through: Qwen3.5's class of images and text where that table comes first, and where the other does the one of text
// alone, which has the text's configuration.
TEST(Packages, ALoadersTablesChooseTheClass) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  PackageModel asked = package_model("Qwen/Qwen3.5-27B", {package()});
  asked.auto_classes = "AutoModelForImageTextToText,AutoModelForCausalLM";
  EXPECT_EQ(model_of_package(asked).architecture, "Qwen3_5ForConditionalGeneration");
  asked.auto_classes = "AutoModelForCausalLM";
  const Model text = model_of_package(asked);
  EXPECT_EQ(text.architecture, "Qwen3_5ForCausalLM");
  EXPECT_LT(text.parameters(), 27356728560);
  // Its linear attention is torch's where flash-linear-attention is not installed.
  const auto tells = [](const std::string& told) { return told.find("fla") != std::string::npos && told.find("not installed") != std::string::npos; };
  EXPECT_TRUE(std::any_of(text.assumed.begin(), text.assumed.end(), tells));
}

/// So many drawn settings of one configuration. Those that either side refuses by name are passed over. `without`: where a class tells less
/// than the text. ZeRO-3 hooks modules without parameters, too, of which BERT's class has fewer, so that it waits for its streams
/// less often; of BERT's head the class leaves all in 16 bits, bitsandbytes its output
/// embeddings alone.
void expect_equal_wrapped(const std::string& config, const std::string& targets, unsigned seed, int settings, const std::vector<std::string>& without = {}) {
  if (package() == nullptr) GTEST_SKIP() << "PLIMSOLL_TRANSFORMERS names no package";
  std::mt19937 random(seed);
  int compared_settings = 0;
  for (int turn = 0; turn < settings; ++turn) {
    Options options = drawn_setting(random, targets, without);
    options.insert(options.end(), {{"micro_batch", "2"}, {"seq_len", "128"}});
    std::string name;
    for (const auto& [key, value] : options) name += key + "=" + value + " ";
    const bool alone = options.front().second == "none";
    try {
      EXPECT_EQ(compared(config, options, alone ? "1xh100-sxm" : "2xh100-sxm"), "") << config << " " << name;
      ++compared_settings;
    } catch (const Error& error) {
      const bool shared = error.message().find("share") != std::string::npos || error.message().find("tied parameter") != std::string::npos;
      EXPECT_TRUE(error.code() == ErrorCode::refused || shared) << name << error.message();  // BERT's table is its head's, and of a unit under Accelerate
    }
  }
  EXPECT_GT(compared_settings, settings * 2 / 3);
}

TEST(Transformers, Llama) { expect_equal(decoder("llama", "LlamaForCausalLM", R"("num_key_value_heads": 4)"), kAll); }

const std::vector<std::pair<Options, const char*>> kSome = {
    {{}, "1xh100-sxm"},
    {{{"attention", "eager"}, {"recompute", "full"}}, "1xh100-sxm"},
    {{{"precision", "pure-bf16"}}, "1xh100-sxm"},
    {{{"data_parallel", "ddp"}, {"precision", "fp32"}}, "2xh100-sxm"},
};

const std::vector<std::pair<Options, const char*>> kFlash = {{{{"attention", "flash"}, {"recompute", "full"}}, "1xh100-sxm"},
                                                            {{{"attention", "flash-3"}, {"precision", "pure-bf16"}}, "1xh100-sxm"}};
TEST(Transformers, FlashAttention) {
  expect_equal(decoder("mistral", "MistralForCausalLM", R"("num_key_value_heads": 4, "sliding_window": 64)"), kFlash);
  expect_equal(decoder("qwen3", "Qwen3ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64)"), kFlash);
  expect_equal(decoder("bert", "BertForMaskedLM"), kFlash);
}

// torch.compile of every layer: what the trace sees of the text is what it sees of the class, so that the graphs are the same.
const std::vector<std::pair<Options, const char*>> kCompiled = {
    {{{"compile", "blocks"}}, "1xh100-sxm"},
    {{{"compile", "blocks"}, {"precision", "pure-bf16"}}, "1xh100-sxm"},
    {{{"compile", "blocks"}, {"recompute", "full"}}, "1xh100-sxm"},
    {{{"compile", "blocks"}, {"grad_accum", "2"}, {"precision", "pure-bf16"}, {"cudnn_attention", "false"}}, "1xh100-sxm"},
};
TEST(Transformers, CompiledBlocks) {
  expect_equal(decoder("llama", "LlamaForCausalLM", R"("num_key_value_heads": 4)"), kCompiled);
  expect_equal(decoder("qwen3", "Qwen3ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64)"), kCompiled);
  expect_equal(decoder("olmo2", "Olmo2ForCausalLM"), kCompiled);
  expect_equal(decoder("mistral", "MistralForCausalLM", R"("num_key_value_heads": 4, "sliding_window": 64)"), kCompiled);
  expect_equal(decoder("gpt_neox", "GPTNeoXForCausalLM"), kCompiled);
  expect_equal(decoder("granite", "GraniteForCausalLM"), kCompiled);
  expect_equal(decoder("glm", "GlmForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64, "pad_token_id": 0)"), kCompiled);
}

TEST(Transformers, Mistral) { expect_equal(decoder("mistral", "MistralForCausalLM", R"("num_key_value_heads": 4)"), kSome); }
TEST(Transformers, Qwen2) { expect_equal(decoder("qwen2", "Qwen2ForCausalLM", R"("num_key_value_heads": 4)"), kSome); }
TEST(Transformers, Qwen3) { expect_equal(decoder("qwen3", "Qwen3ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64)"), kSome); }
TEST(Transformers, Gemma) { expect_equal(decoder("gemma", "GemmaForCausalLM", R"("num_key_value_heads": 1, "head_dim": 64)"), kSome); }
TEST(Transformers, Gemma2) {
  expect_equal(decoder("gemma2", "Gemma2ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64, "sliding_window": 64)"),
               {{{{"attention", "eager"}}, "1xh100-sxm"}, {{{"attention", "eager"}, {"recompute", "full"}}, "1xh100-sxm"}});
}
TEST(Transformers, Gemma3) {
  expect_equal(decoder("gemma3_text", "Gemma3ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64, "sliding_window": 64)"), kSome);
}
TEST(Transformers, Olmo2) { expect_equal(decoder("olmo2", "Olmo2ForCausalLM"), kSome); }
TEST(Transformers, Granite) { expect_equal(decoder("granite", "GraniteForCausalLM"), kSome); }
TEST(Transformers, SmolLM3) { expect_equal(decoder("smollm3", "SmolLM3ForCausalLM", R"("num_key_value_heads": 4, "pad_token_id": 0)"), kSome); }
TEST(Transformers, Mixtral) {
  expect_equal(decoder("mixtral", "MixtralForCausalLM", R"("num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2)"), kSome);
}
TEST(Transformers, Qwen3Moe) {
  expect_equal(decoder("qwen3_moe", "Qwen3MoeForCausalLM",
                       R"("num_key_value_heads": 4, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128)"),
               kSome);
}
TEST(Transformers, Roberta) { expect_equal(decoder("roberta", "RobertaForMaskedLM"), kSome); }
TEST(Transformers, Bert) { expect_equal(decoder("bert", "BertForMaskedLM"), kSome); }

// ---- families that our texts tell: what upstream's own code says ----------------------------------------------------------

const std::vector<std::pair<Options, const char*>> kEager = {
    {{{"attention", "eager"}}, "1xh100-sxm"},
    {{{"attention", "eager"}, {"recompute", "full"}}, "1xh100-sxm"},
    {{{"attention", "eager"}, {"recompute", "full"}, {"recompute_reentrant", "true"}}, "1xh100-sxm"},
    {{{"attention", "eager"}, {"precision", "pure-bf16"}}, "1xh100-sxm"},
    {{{"attention", "eager"}, {"data_parallel", "ddp"}, {"precision", "fp32"}}, "2xh100-sxm"},
};
TEST(Transformers, Mpt) {
  expect_equal(
      R"({"architectures": ["MptForCausalLM"], "model_type": "mpt", "d_model": 240, "n_layers": 2, "n_heads": 6, "vocab_size": 1000,
    "max_seq_len": 512, "attn_config": {"attn_pdrop": 0.1, "clip_qkv": 8.0}})",
      kEager);
}
TEST(Transformers, GptNeo) {
  expect_equal(R"({"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "hidden_size": 256, "num_layers": 2, "num_heads": 8,
    "vocab_size": 1000, "max_position_embeddings": 512, "attention_types": [[["global", "local"], 1]]})",
               kEager);
}
TEST(Transformers, GptJ) {
  expect_equal(R"({"architectures": ["GPTJForCausalLM"], "model_type": "gptj", "n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 1000,
    "n_positions": 512, "rotary_dim": 32})",
               kEager);
}
TEST(Transformers, CodeGen) {
  expect_equal(
      R"({"architectures": ["CodeGenForCausalLM"], "model_type": "codegen", "n_embd": 256, "n_layer": 2, "n_head": 8, "vocab_size": 1000,
    "n_positions": 512, "n_ctx": 512, "rotary_dim": 16})",
      kEager);
}
TEST(Transformers, Bloom) {
  expect_equal(R"({"architectures": ["BloomForCausalLM"], "model_type": "bloom", "hidden_size": 192, "n_layer": 2, "n_head": 6,
    "vocab_size": 1000})",
               kEager);
}
TEST(Transformers, GptBigCode) {
  expect_equal(R"({"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 2, "n_head": 8,
    "vocab_size": 1000, "n_positions": 512})",
               kSome);
}
TEST(Transformers, GptNeoX) {
  expect_equal(decoder("gpt_neox", "GPTNeoXForCausalLM", R"("hidden_dropout": 0.1, "attention_dropout": 0.1)"), kAll);
  expect_equal(decoder("gpt_neox", "GPTNeoXForCausalLM", R"("use_parallel_residual": false, "attention_bias": false)"), kSome);
}
TEST(Transformers, Opt) {
  const std::string sizes = R"({"architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 192, "ffn_dim": 384,
    "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 1000, "max_position_embeddings": 512, "attention_dropout": 0.1)";
  expect_equal(sizes + R"(, "word_embed_proj_dim": 192})", kAll);
  expect_equal(sizes + R"(, "word_embed_proj_dim": 96, "do_layer_norm_before": false})", kSome);
  expect_equal(sizes + R"(, "word_embed_proj_dim": 192, "layer_norm_elementwise_affine": false, "enable_bias": false})", kSome);
}
TEST(Transformers, Gpt2) {
  const std::string config = R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 256, "n_layer": 2, "n_head": 8,
    "vocab_size": 1000, "n_positions": 512, "activation_function": "gelu_new"})";
  expect_equal(config, kAll);
  expect_equal(config, kCompiled);
}
TEST(Transformers, Images) {
  const auto config = [](const char* type, const char* prefix, const char* more) {
    return R"({"architectures": [")" + std::string(prefix) + R"(ForImageClassification"], "model_type": ")" + type + R"(", "hidden_size": 192,
    "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 64, "patch_size": 16, "num_labels": 10)" + more + "}";
  };
  expect_equal(config("vit", "ViT", R"(, "hidden_dropout_prob": 0.1)"), kAll);
  expect_equal(config("deit", "DeiT", ""), kSome);
  expect_equal(config("dinov2", "Dinov2", R"(, "use_mask_token": false)"), kSome);
  expect_equal(config("dinov2", "Dinov2", R"(, "use_mask_token": false, "use_swiglu_ffn": true)"), kSome);
}
TEST(Transformers, DistilBert) {
  for (const char* head : {"MaskedLM", "SequenceClassification"})
    expect_equal(
        R"({"architectures": ["DistilBertFor)" + std::string(head) + R"("], "model_type": "distilbert", "dim": 192, "hidden_dim": 384,
      "n_layers": 2, "n_heads": 3, "vocab_size": 1000})",
        kSome);
}
TEST(Transformers, ModernBert) {
  expect_equal(
      decoder("modernbert", "ModernBertForMaskedLM", R"("local_attention": 64, "global_attn_every_n_layers": 2, "pad_token_id": 0)"),
      kSome);
}
TEST(Transformers, DebertaV2) {
  expect_equal(
      decoder("deberta-v2", "DebertaV2ForMaskedLM", R"("relative_attention": true, "position_buckets": 32, "norm_rel_ebd": "layer_norm",
    "share_att_key": true, "pos_att_type": "p2c|c2p", "position_biased_input": false, "type_vocab_size": 0)"),
      {kEager[0], kEager[1], kEager[3], kEager[4]});
}
TEST(Transformers, Falcon) {
  const std::string sizes = R"({"architectures": ["FalconForCausalLM"], "model_type": "falcon", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 512)";
  expect_equal(sizes + R"(, "multi_query": true, "parallel_attn": true, "new_decoder_architecture": false, "bias": false})", kSome);
  expect_equal(sizes + R"(, "num_kv_heads": 2, "new_decoder_architecture": true, "bias": false})", kSome);
  expect_equal(sizes + R"(, "alibi": true, "multi_query": false, "parallel_attn": false, "bias": true, "hidden_dropout": 0.1})", kSome);
}
/// Heads that find what tokens are, and where answers stand, over decoders' bodies.
void expect_equal_heads(const std::string& type, const std::string& prefix, const std::string& sizes, const std::vector<const char*>& heads) {
  for (const char* head : heads)
    expect_equal(R"({"architectures": [")" + prefix + "For" + head + R"("], "model_type": ")" + type + R"(", "vocab_size": 1000, )" + sizes + "}",
                 {kEager[0], kEager[1], kEager[4]});
}
TEST(Transformers, HeadsOfDecoders) {
  const char *tokens = "TokenClassification", *answers = "QuestionAnswering";
  const std::string gpt = R"("n_embd": 256, "n_layer": 2, "n_head": 8, "n_positions": 512)";
  expect_equal_heads("bloom", "Bloom", R"("hidden_size": 192, "n_layer": 2, "n_head": 6)", {tokens, answers});
  expect_equal_heads("mpt", "Mpt", R"("d_model": 240, "n_layers": 2, "n_heads": 6, "max_seq_len": 512)", {tokens, answers});
  expect_equal_heads("falcon", "Falcon", R"("hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "hidden_dropout": 0.1)", {tokens, answers});
  expect_equal_heads("gpt_neo", "GPTNeo",
                     R"("hidden_size": 256, "num_layers": 2, "num_heads": 8, "max_position_embeddings": 512,
    "attention_types": [[["global", "local"], 1]])",
                     {tokens, answers});
  expect_equal_heads("gpt_bigcode", "GPTBigCode", gpt, {tokens});
  expect_equal_heads("gpt2", "GPT2", gpt, {tokens, answers});
  expect_equal_heads("gpt_neox", "GPTNeoX",
                     R"("hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8)",
                     {tokens, answers});
  expect_equal_heads("opt", "OPT",
                     R"("hidden_size": 192, "ffn_dim": 384, "num_hidden_layers": 2, "num_attention_heads": 3, "word_embed_proj_dim": 96,
    "max_position_embeddings": 512)",
                     {answers});
  expect_equal_heads("gptj", "GPTJ", gpt + R"(, "rotary_dim": 32)", {answers});
}

/// Encoders and decoders of different sizes. Of the decoder's mask of ones SDPA asks the device whether it is all ones: the package's code is
/// told that it is, texts and rows that it is not, so that eager attention is what both have.
void expect_equal_stacks(const std::string& type, const std::string& architecture) {
  const std::string config = R"({"architectures": [")" + architecture + R"("], "model_type": ")" + type +
                             R"(", "d_model": 192, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 384, "decoder_ffn_dim": 256,
    "encoder_attention_heads": 6, "decoder_attention_heads": 3, "vocab_size": 1000, "max_position_embeddings": 512, "activation_dropout": 0.1,
    "attention_dropout": 0.1)";
  std::vector<std::pair<Options, const char*>> runs = kEager;
  runs.emplace_back(Options{{"attention", "eager"}, {"precision", "amp-fp16"}}, "1xh100-sxm");
  for (auto& [options, cluster] : runs) options.emplace_back("tgt_len", "96");
  expect_equal(config + "}", runs);
  std::erase_if(runs, [](const auto& run) { return run.second != std::string("1xh100-sxm"); });  // the shared table gets no gradient
  expect_equal(config + R"(, "tie_word_embeddings": false, "scale_embedding": true})", runs);
}
TEST(Transformers, Bart) { expect_equal_stacks("bart", "BartForConditionalGeneration"); }
TEST(Transformers, MBart) { expect_equal_stacks("mbart", "MBartForConditionalGeneration"); }
TEST(Transformers, Pegasus) { expect_equal_stacks("pegasus", "PegasusForConditionalGeneration"); }
/// With checkpoints, for without them T5's decoder joins keys and values to a cache, which code of the package is planned without.
TEST(Transformers, T5) {
  const std::string sizes = R"("d_model": 192, "d_kv": 32, "d_ff": 384, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 6,
    "vocab_size": 1000, "decoder_start_token_id": 0, "pad_token_id": 0)";
  std::vector<std::pair<Options, const char*>> runs = {
      {{{"recompute", "full"}}, "1xh100-sxm"},
      {{{"recompute", "full"}, {"attention", "eager"}}, "1xh100-sxm"},
      {{{"recompute", "full"}, {"precision", "pure-bf16"}}, "1xh100-sxm"},
      {{{"recompute", "full"}, {"recompute_reentrant", "true"}, {"precision", "fp32"}}, "1xh100-sxm"},
      {{{"recompute", "full"}, {"data_parallel", "ddp"}, {"precision", "fp32"}}, "2xh100-sxm"},
  };
  for (auto& [options, cluster] : runs) options.emplace_back("tgt_len", "96");
  expect_equal(R"({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", )" + sizes + "}", runs);
  expect_equal(R"({"architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5", "feed_forward_proj": "gated-gelu", )" + sizes + "}", runs);
}
TEST(Transformers, WrappedDistilBert) {
  expect_equal_wrapped(
      R"({"architectures": ["DistilBertForSequenceClassification"], "model_type": "distilbert", "dim": 192, "hidden_dim": 384,
    "n_layers": 3, "n_heads": 3, "vocab_size": 1000})",
      "q_lin,v_lin", 7, 12, {"nf4", "int8", "accelerate"});
}
TEST(Transformers, WrappedBart) {
  expect_equal_wrapped(R"({"architectures": ["BartForConditionalGeneration"], "model_type": "bart", "d_model": 192, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_ffn_dim": 384, "decoder_ffn_dim": 384, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
    "vocab_size": 1000, "max_position_embeddings": 512})",
                       "q_proj,v_proj", 9, 14, {"sdpa"});
}
TEST(Transformers, WrappedGptBigCode) {
  expect_equal_wrapped(
      R"({"architectures": ["GPTBigCodeForCausalLM"], "model_type": "gpt_bigcode", "n_embd": 256, "n_layer": 3, "n_head": 8,
    "vocab_size": 1000, "n_positions": 512})",
      "c_attn,c_proj", 8, 12);
}

TEST(Transformers, WrappedLlama) {
  expect_equal_wrapped(decoder("llama", "LlamaForCausalLM", R"("num_key_value_heads": 4)"), "q_proj,v_proj", 1, 16);
}
TEST(Transformers, WrappedQwen2) {
  expect_equal_wrapped(decoder("qwen2", "Qwen2ForCausalLM", R"("num_key_value_heads": 4, "tie_word_embeddings": true)"), "q_proj,down_proj", 2, 10);
}
TEST(Transformers, WrappedMistral) {
  expect_equal_wrapped(decoder("mistral", "MistralForCausalLM", R"("num_key_value_heads": 4)"), "k_proj,o_proj,up_proj", 3, 6);
}
TEST(Transformers, WrappedGpt2) {
  expect_equal_wrapped(R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 256, "n_layer": 3, "n_head": 8, "vocab_size": 1000,
    "n_positions": 512, "activation_function": "gelu_new", "tie_word_embeddings": true})", "c_attn,c_proj", 4, 12);
}
TEST(Transformers, WrappedBert) { expect_equal_wrapped(decoder("bert", "BertForMaskedLM"), "query,value", 5, 12, {"zero3", "nf4", "int8"}); }
TEST(Transformers, WrappedMixtral) {
  expect_equal_wrapped(decoder("mixtral", "MixtralForCausalLM", R"("num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2)"),
                       "q_proj,v_proj", 6, 10);
}

// ---- PEFT's adapters of stacked experts ---------------------------------------------------------------------------------

TEST(Transformers, AdaptersOfExperts) {
  const auto adapters = [](const char* targets) { return Options{{"lora.r", "8"}, {"lora.alpha", "16"}, {"lora.target_modules", targets}}; };
  const auto with = [](Options options, const Options& more) {
    options.insert(options.end(), more.begin(), more.end());
    return options;
  };
  expect_equal(decoder("mixtral", "MixtralForCausalLM", R"("num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2)"),
               {{adapters("w1,w2,w3"), "1xh100-sxm"},
                {adapters("q_proj,gate,w2"), "1xh100-sxm"},
                {with(adapters("all-linear"), {{"recompute", "full"}}), "1xh100-sxm"},
                {with(adapters("w1,w3"), {{"data_parallel", "ddp"}, {"precision", "fp32"}}), "2xh100-sxm"}});
  expect_equal(decoder("qwen3_moe", "Qwen3MoeForCausalLM",
                       R"("num_key_value_heads": 4, "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128)"),
               {{adapters("gate_proj,up_proj,down_proj"), "1xh100-sxm"}, {adapters("all-linear"), "1xh100-sxm"}});
}

// ---- a trainer's own loss over what forward answers ---------------------------------------------------------------------

const std::vector<std::pair<Options, const char*>> kTrainers = {
    {{{"framework", "accelerate"}, {"task", "sft"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "dpo"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "dpo"}, {"data_parallel", "ddp"}, {"recompute", "full"}}, "2xh100-sxm"},
    {{{"framework", "deepspeed"}, {"task", "dpo"}, {"data_parallel", "zero2"}, {"precision", "mixed-bf16"}}, "2xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "dpo"}, {"lora.r", "8"}, {"lora.target_modules", "q_proj,v_proj"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "dpo"}, {"releases.trl", "0.29"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "dpo"}, {"releases.trl", "0.11"}, {"precision", "fp32"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "kto"}}, "1xh100-sxm"},
    {{{"framework", "accelerate"}, {"task", "orpo"}}, "1xh100-sxm"},
};

TEST(Transformers, TrainersOfLlama) { expect_equal(decoder("llama", "LlamaForCausalLM", R"("num_key_value_heads": 4)"), kTrainers); }
TEST(Transformers, TrainersOfQwen2) {
  expect_equal(decoder("qwen2", "Qwen2ForCausalLM", R"("num_key_value_heads": 4, "tie_word_embeddings": true)"), kTrainers);
}
// ---- Liger's patches, by its own text --------------------------------------------------------------------------------------

void expect_equal_patched(const std::string& config) {
  if (beside().empty()) GTEST_SKIP() << "PLIMSOLL_LIGER names no package";
  expect_equal(config, {
                           {{{"liger_kernel", "true"}, {"attention", "eager"}}, "1xh100-sxm"},
                           {{{"liger_kernel", "true"}, {"attention", "eager"}, {"loss", "ce"}, {"recompute", "full"}}, "1xh100-sxm"},
                           {{{"liger_kernel", "true"}, {"attention", "eager"}, {"precision", "pure-bf16"}, {"data_parallel", "ddp"}}, "2xh100-sxm"},
                       });
}

TEST(Transformers, LigerOfLlama) { expect_equal_patched(decoder("llama", "LlamaForCausalLM", R"("num_key_value_heads": 4)")); }
TEST(Transformers, LigerOfQwen3) { expect_equal_patched(decoder("qwen3", "Qwen3ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64)")); }
TEST(Transformers, LigerOfGemma2) { expect_equal_patched(decoder("gemma2", "Gemma2ForCausalLM", R"("num_key_value_heads": 4, "head_dim": 64)")); }
TEST(Transformers, LigerOfMixtral) {
  expect_equal_patched(decoder("mixtral", "MixtralForCausalLM", R"("num_key_value_heads": 4, "num_local_experts": 4, "num_experts_per_tok": 2)"));
}
TEST(Transformers, LigerOfOlmo2) { expect_equal_patched(decoder("olmo2", "Olmo2ForCausalLM")); }
TEST(Transformers, LigerOfGranite) { expect_equal_patched(decoder("granite", "GraniteForCausalLM")); }

}  // namespace
}  // namespace plimsoll::code
