// A text that begins right and ends wrong, or the other way round, is another text: nothing of it is taken.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

/// Names of modules, classes and releases, which are the user's own or another package's.
const std::set<std::string> kFree{"fsdp.units", "wrap", "recompute_modules", "lora.target_modules", "lora.modules_to_save", "peft.target_modules",
                                  "peft.feedforward_modules", "module_precision", "framework", "framework_version", "torch", "zero_wrapper",
                                  "schedule", "pp_schedule", "lora.note"};

/// Texts that a key takes: those that its table lists, and its own forms.
std::vector<std::string> texts_of(const StrategyOption& option) {
  static const std::map<std::string, std::vector<std::string>> kForms{
      {"recompute", {"none", "full", "selective", "selective-ac-op", "selective-layer", "every-2-layers", "full-block-2-of-12-layers", "selective:mlp"}},
      {"cuda_graph", {"mcore", "local", "layer", "full_iteration", "full_iteration:[]", "transformer_engine:['attn', 'moe_router']", "transformer_engine:mlp"}},
      {"compile", {"blocks", "model", "jit-fusers", "true", "no"}},
      {"fp8_recipe", {"delayed", "tensorwise", "rowwise", "blockwise", "tensorwise, fp8 all-gather, precomputed scales, force_recompute_fp8_weight_in_bwd"}},
      {"offload", {"none", "params+grads", "activations"}},
      {"rope_cache", {"complex64, one per layer"}},
      {"optimizer_impl", {"fused", "fused, bf16 states"}},
      {"clip_grad_norm", {"true", "off"}},
      {"reshard_after_forward", {"default", "always", "yes"}}};
  if (const auto own = kForms.find(option.key); own != kForms.end()) return own->second;
  if (option.values == "true, false") return {"true", "false", "on", "off", "yes", "no"};
  if (option.values.find(", ") == std::string::npos) return {};
  std::vector<std::string> names;
  std::istringstream list(option.values);
  for (std::string name; std::getline(list, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    name.resize(std::min({name.size(), name.find(" …"), name.find(';')}));
    names.push_back(name);
  }
  return names;
}

bool takes(const std::string& key, const std::string& text) {
  try {
    Strategy strategy;
    set_option(strategy, key, text);
    return true;
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::internal) << key << " " << text << ": " << error.what();
    return false;
  }
}

TEST(Texts, WithMoreBeforeOrBehindAreRefused) {
  int keys = 0, texts = 0;
  for (const StrategyOption& option : strategy_options()) {
    if (kFree.count(option.key) > 0) continue;
    bool has_text = false;
    for (const std::string& text : texts_of(option)) {
      if (!takes(option.key, text)) continue;  // "ranks", "{enabled, …}": a word for people
      has_text = true;
      for (const std::string& wrong : {text + "banana", "banana" + text, text + " banana", "not " + text, text + ",", "x" + text, text + "-layers", text + "2"}) {
        if (text == "selective:mlp" && wrong != "banana" + text) continue;  // a list of modules
        if (wrong == "fsdp2") continue;                                     // another kind
        EXPECT_FALSE(takes(option.key, wrong)) << option.key << " takes '" << wrong << "'";
        ++texts;
      }
    }
    keys += has_text;
  }
  EXPECT_GT(keys, 100);
  EXPECT_GT(texts, 2000);
}

TEST(Texts, SwitchesAreReadAlike) {
  Strategy on, off;
  set_option(on, "tf32", "yes"), set_option(off, "tf32", "off");
  EXPECT_EQ(on.tf32, true);
  EXPECT_EQ(off.tf32, false);
  set_option(on, "cuda_graph", "on"), set_option(off, "cuda_graph", "off");
  EXPECT_EQ(on.cuda_graph, "true");
  EXPECT_EQ(off.cuda_graph, "");
  for (const char* no : {"no", "none", "false"}) {
    set_option(off, "cuda_graph", no);
    EXPECT_EQ(off.cuda_graph, "") << no;
  }
  EXPECT_FALSE(takes("cuda_graph", "banana"));
}

}  // namespace
}  // namespace plimsoll
