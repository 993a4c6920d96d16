#include "program/modules/network.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/inductor/module_graphs.hpp"
#include "program/modules/liger.hpp"
#include "program/modules/network_source.hpp"
#include "program/modules/text_network.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/compiled_model.hpp"
#include "program/modules/transformers/families.hpp"

namespace plimsoll::program {

namespace {

using Factory = std::unique_ptr<Network> (*)(const Model&, const RunOptions&, Module&, Tape&);

struct Family {
  const char* model_type;
  Factory make;
};

/// The catalogue of lowered model types.
constexpr Family kFamilies[] = {
    {"llama", make_rotary_decoder},
    {"internlm3", make_rotary_decoder},
    {"iquestcoder", make_rotary_decoder},
    {"jais2", make_rotary_decoder},
    {"mistral", make_rotary_decoder},
    {"ministral", make_rotary_decoder},
    {"ministral3", make_rotary_decoder},
    {"cwm", make_rotary_decoder},
    {"helium", make_rotary_decoder},
    {"apertus", make_rotary_decoder},
    {"nanochat", make_rotary_decoder},
    {"hunyuan_v1_dense", make_rotary_decoder},
    {"qwen2", make_rotary_decoder},
    {"qwen3", make_rotary_decoder},
    {"phi3", make_rotary_decoder},
    {"gemma", make_rotary_decoder},
    {"gemma2", make_rotary_decoder},
    {"vaultgemma", make_rotary_decoder},
    {"olmo2", make_rotary_decoder},
    {"olmo3", make_rotary_decoder},
    {"mixtral", make_rotary_decoder},
    {"minimax_m2", make_rotary_decoder},
    {"olmoe", make_rotary_decoder},
    {"flex_olmo", make_rotary_decoder},
    {"qwen2_moe", make_rotary_decoder},
    {"qwen3_moe", make_rotary_decoder},
    {"granite", make_rotary_decoder},
    {"hyperclovax", make_rotary_decoder},
    {"granitemoe", make_rotary_decoder},
    {"smollm3", make_rotary_decoder},
    {"llama4_text", make_rotary_decoder},
    {"starcoder2", make_rotary_decoder},
    {"stablelm", make_rotary_decoder},
    {"gemma3_text", make_rotary_decoder},
    {"llava", make_rotary_decoder},
    {"gemma3", make_rotary_decoder},
    {"qwen2_vl", make_rotary_decoder},
    {"qwen2_5_vl", make_rotary_decoder},
    {"phi", make_rotary_decoder},
    {"seed_oss", make_rotary_decoder},
    {"arcee", make_rotary_decoder},
    {"ernie4_5", make_rotary_decoder},
    {"ernie4_5_moe", make_rotary_decoder},
    {"olmo", make_rotary_decoder},
    {"cohere", make_rotary_decoder},
    {"cohere2", make_rotary_decoder},
    {"glm", make_rotary_decoder},
    {"glm4", make_rotary_decoder},
    {"glm4_moe", make_rotary_decoder},
    {"glm4_moe_lite", make_rotary_decoder},
    {"solar_open", make_rotary_decoder},
    {"nemotron", make_rotary_decoder},
    {"exaone4", make_rotary_decoder},
    {"gpt_oss", make_rotary_decoder},
    {"deepseek_v2", make_rotary_decoder},
    {"deepseek_v3", make_rotary_decoder},
    {"youtu", make_rotary_decoder},
    {"dots1", make_rotary_decoder},
    {"gpt2", make_text_network},
    {"gpt_bigcode", make_text_network},
    {"gptj", make_text_network},
    {"codegen", make_text_network},
    {"bloom", make_text_network},
    {"mpt", make_text_network},
    {"gpt_neo", make_text_network},
    {"opt", make_text_network},
    {"gpt_neox", make_text_network},
    {"falcon", make_text_network},
    {"bert", make_bert},
    {"ernie", make_bert},
    {"mpnet", make_bert},
    {"roberta", make_bert},
    {"data2vec-text", make_bert},
    {"xlm-roberta", make_bert},
    {"camembert", make_bert},
    {"electra", make_bert},
    {"albert", make_bert},
    {"deberta-v2", make_text_network},
    {"distilbert", make_text_network},
    {"modernbert", make_text_network},
    {"vit", make_text_network},
    {"deit", make_text_network},
    {"dinov2", make_text_network},
    {"bart", make_text_network},
    {"mbart", make_text_network},
    {"pegasus", make_text_network},
    {"graph", make_graph_network},
    {"resnet", make_graph_network},
    {"DiTTransformer2DModel", make_dit},
    {"FluxTransformer2DModel", make_flux},
    {"PixArtTransformer2DModel", make_pixart},
    {"SD3Transformer2DModel", make_sd3},
    {"t5", make_text_network},
    {"mt5", make_text_network},
};

/// Not through the attention interface that the others share: classes of their own, or masks of ones that the model makes.
bool has_flash_of_its_own(const Family& family) {
  constexpr std::string_view kTypes[] = {"bart", "mbart", "pegasus", "falcon", "gptj", "codegen", "gpt_neo"};
  return std::find(std::begin(kTypes), std::end(kTypes), family.model_type) != std::end(kTypes);
}

/// Whose forward knows an end without a loss of its own: those that share their ends (causal_lm.hpp, families/common.py).
bool answers_without_loss(Factory make, const Model& model) {
  if (make == make_rotary_decoder) return true;
  const auto decodes = [](const Block& block) { return block.role == Block::Role::decoder; };
  return make == make_text_network && model.task != Model::Task::seq2seq && std::any_of(model.blocks.begin(), model.blocks.end(), decodes);
}

/// Under torch.compile of its layers: a family that hands none to the compiler would run as if nothing had been asked.
class CompiledLayers final : public Network {
 public:
  CompiledLayers(std::unique_ptr<Network> network, std::shared_ptr<const inductor::ModuleGraphs> graphs, std::string type)
      : network_(std::move(network)), graphs_(std::move(graphs)), type_(std::move(type)) {}

  Tensor loss(const Batch& batch) override {
    Tensor loss = network_->loss(batch);
    if (graphs_->empty()) refuse("torch.compile of the layers of model type '" + type_ + "' is not modelled", "compile", "false");
    return loss;
  }
  Tensor criterion(Tensor output) override { return network_->criterion(std::move(output)); }
  Tensor take_auxiliary_loss() override { return network_->take_auxiliary_loss(); }

 private:
  std::unique_ptr<Network> network_;
  std::shared_ptr<const inductor::ModuleGraphs> graphs_;
  std::string type_;
};

std::unique_ptr<Network> network_of_family(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  const bool no_loss = answers_no_loss(options);
  const bool cut = options.loss == RunOptions::Loss::cut_cross_entropy;
  if (const NetworkSource* source = network_source(model)) {
    if (options.loss == RunOptions::Loss::sequence_scores) refuse("scores of sequences by a model that is told by its code are not modelled", "task", "dpo");
    if (cut) refuse("cut cross entropy of a model that is told by its code is not modelled", "loss", "ce");
    return source->network(options, root, tape);
  }
  if (!model.activations_modelled) refuse("a training step of " + model.architecture + " is not modelled");
  for (const Family& family : kFamilies) {
    if (model.model_type != family.model_type) continue;
    if (options.compiled_frames && family.make != make_rotary_decoder && model.model_type != "gpt2")
      refuse("torch.compile of a whole model of type '" + model.model_type + "' that hooks of FSDP2's units cut is not modelled", "compile", "blocks");
    if (RunOptions::is_flash(options.attention) && has_flash_of_its_own(family))
      refuse("flash attention of " + model.architecture + "'s own class is not modelled", "attention", "sdpa or eager");
    if (options.unchecked && model.task == Model::Task::diffusion)
      refuse("checkpoints of every k-th block are not modelled for diffusers", "recompute", "full or none");
    const bool of_decoders = model.task == Model::Task::classification && answers_without_loss(family.make, model);
    const bool scores = of_decoders && model.architecture.ends_with("ForSequenceClassification");
    if (options.loss == RunOptions::Loss::sequence_scores && !scores)
      refuse("scores of sequences by model type '" + model.model_type + "' are not modelled", "task", "dpo, whose policy has a language model's head");
    if (of_decoders && options.loss != RunOptions::Loss::cross_entropy && options.loss != RunOptions::Loss::sequence_scores)
      refuse("this loss of a classifier is not modelled", "loss", "leave it out: its own loss is cross entropy among the classes");
    if (of_decoders && options.compiled_model)
      refuse("torch.compile of a whole classifier of type '" + model.model_type + "' is not modelled", "compile", "blocks");
    if (no_loss && !answers_without_loss(family.make, model))
      refuse("a trainer's own loss over model type '" + model.model_type + "' is not modelled", "task", "lm");
    if (cut && family.make != make_rotary_decoder)
      refuse("cut cross entropy of model type '" + model.model_type + "' is not modelled", "loss", "ce");
    (void)liger_patches(model.model_type, options);
    if (options.compiled_model && model.task == Model::Task::diffusion)
      refuse("torch.compile of a whole model of type '" + model.model_type + "' is not modelled", "compile", "false");
    const auto make = [&model, &family](const RunOptions& eager, Module& twin, Tape& own) { return family.make(model, eager, twin, own); };
    if (!options.compiled_model) return family.make(model, options, root, tape);
    return make_compiled_model(make, options, root, tape);
  }
  refuse("the memory and time of a step of model type '" + model.model_type + "' are not modelled", {},
         "transformers' own code plays its types, --code WHEEL (docs/code.md)");
}

}  // namespace

std::unique_ptr<Network> make_network(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  std::unique_ptr<Network> network = network_of_family(model, options, root, tape);
  if (!options.compiled_blocks) return network;
  return std::make_unique<CompiledLayers>(std::move(network), options.graphs, model.model_type);
}

}  // namespace plimsoll::program
