#include <algorithm>

#include "formats/foreign/cluster_texts.hpp"
#include "formats/foreign/format.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

const Rows& no_rows() {
  static const Rows none;
  return none;
}

void read_fsdp_file(Reading& reading, const Node& tree) { read_fsdp(reading, tree, "fsdp_config.", 2, "transformers 5.23"); }

int recognises_fsdp(const Node& tree) {
  return 2 *
         count_of(tree, {"transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap", "auto_wrap_policy", "fsdp_auto_wrap_policy",
                         "backward_prefetch", "fsdp_backward_prefetch", "reshard_after_forward", "xla_fsdp_v2", "xla_fsdp_settings"});
}

/// The file of --fsdp_config.
Format fsdp_format() {
  return {"fsdp_config", "FSDP's keys of TrainingArguments or Accelerate", "accelerate 1.15", fsdp_rows, recognises_fsdp, read_fsdp_file};
}

/// Our own keys (docs/rows.md), as `--strategy` takes them.
void read_strategy(Reading& reading, const Node& tree) {
  const std::function<void(const Node&, const std::string&)> say = [&](const Node& table, const std::string& path) {
    for (const auto& [name, value] : table.members) {
      if (value.is_table()) {
        say(value, path + name + ".");
      } else if (!value.is_null()) {
        reading.say(path + name, value.word(), path + name, value.where);
      }
    }
  };
  say(tree, {});
}

/// Its usual keys, where most keys are its own: others have a `recompute` or a `precision` too.
int recognises_strategy(const Node& tree) {
  const auto& options = strategy_options();
  const auto own = std::count_if(tree.members.begin(), tree.members.end(), [&](const auto& member) {
    return std::any_of(options.begin(), options.end(), [&](const StrategyOption& option) {
      return option.key == member.first || option.key.rfind(member.first + ".", 0) == 0;
    });
  });
  if (2 * own < static_cast<std::ptrdiff_t>(tree.members.size())) return 0;
  return 2 * count_of(tree, {"micro_batch", "seq_len", "data_parallel", "tp", "pp", "framework", "recompute", "precision"});
}

}  // namespace

Format strategy_format() {
  return {"strategy", "plimsoll's own keys of a strategy", "docs/rows.md", no_rows, recognises_strategy, read_strategy};
}

bool sees_images(const Model& model) {
  const auto is_tower = [](const Block& block) { return block.stream == Block::Stream::second; };
  return model.task == Model::Task::causal_lm && std::any_of(model.blocks.begin(), model.blocks.end(), is_tower);
}

void require_language_model(Reading& said, const std::string& program) {
  said.when_model_is_known([program](Reading&, const Model& model) {
    if (sees_images(model) || model.patch_size > 0)
      refuse("not modelled: a model of several modes under " + program + ", which trains some of its parts", {}, "a language model");
  });
}

int count_of(const Node& tree, std::initializer_list<const char*> names) {
  return static_cast<int>(std::count_if(names.begin(), names.end(), [&](const char* name) { return tree.find(name) != nullptr; }));
}

const std::vector<Format>& tree_formats() {
  static const std::vector<Format> formats = {peft_format(),
                                              transformers_config_format(),
                                              accelerate_format(),
                                              deepspeed_format(),
                                              torchtitan_format(),
                                              torchtune_format(),
                                              primus_format(),
                                              nemo_format(),
                                              llama_factory_format(),
                                              axolotl_format(),
                                              llm_foundry_format(),
                                              nanotron_format(),
                                              megatron_format(),
                                              swift_format(),
                                              swift_megatron_format(),
                                              trl_format(),
                                              verl_format(),
                                              diffusers_format(),
                                              training_arguments_format(),
                                              strategy_format(),
                                              fsdp_format(),
                                              kubernetes_format()};
  return formats;
}

const Format& find_format(const std::string& name) {
  std::vector<std::string> known;
  for (const Format& format : tree_formats()) {
    if (name == format.name) return format;
    known.emplace_back(format.name);
  }
  fail("there is no format '" + name.substr(0, 60) + "'", {}, suggest(name.substr(0, 60), known));
}

}  // namespace plimsoll::formats

namespace plimsoll {

std::optional<std::string> strategy_key_of(const std::string& foreign) {
  constexpr std::size_t kTelling = 8;  // shorter beginnings are those of many keys
  constexpr std::size_t kDegree = 3;   // tp, dp, cp, dtp
  std::string wanted = foreign;
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  const auto known = [](std::string_view ours) {
    const auto& keys = strategy_options();
    return std::any_of(keys.begin(), keys.end(), [&](const StrategyOption& key) { return key.key == ours; });
  };
  for (const bool whole : {true, false})
    for (const formats::Format& format : formats::tree_formats())
      for (const formats::Row& row : format.rows()) {
        const std::string_view path(row.foreign), name = path.substr(path.rfind('.') + 1);
        const bool begins = wanted.size() >= kTelling && name.rfind(wanted + "_", 0) == 0;
        // "version" and "device" within a table, FSDP's too where it is a file of its own, tell of that table alone.
        const bool nested = path != name || std::string_view(format.name) == "fsdp_config";
        const bool ordinary = nested && name.size() > kDegree && name.find('_') == std::string_view::npos;
        const bool is_it = (path == wanted && path != name) || (name == wanted && !ordinary);
        if ((whole ? is_it : begins) && known(row.ours)) return std::string(row.ours);
      }
  return std::nullopt;
}

}  // namespace plimsoll
