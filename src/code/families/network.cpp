// The networks of families that texts of ours tell: python/families, a file per family.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "code/families/family.hpp"
#include "code/json_values.hpp"
#include "code/library_texts.hpp"
#include "code/torch/torch.hpp"
#include "code/transformers/mechanisms.hpp"
#include "plimsoll/error.hpp"
#include "program/modules/text_network.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"
#include "units/python_json.hpp"

namespace plimsoll::code {

using program::HfRelease;
using program::RunOptions;
using program::Tensor;

namespace {

/// "deberta-v2" is told by families/deberta_v2.py.
std::string module_of(const std::string& model_type) {
  std::string name = model_type;
  std::replace(name.begin(), name.end(), '-', '_');
  return "families." + name;
}

const char* name_of(RunOptions::Attention attention) {
  switch (attention) {
    case RunOptions::Attention::eager:
      return "eager";
    case RunOptions::Attention::sdpa:
      return "sdpa";
    case RunOptions::Attention::flash:
      return "flash_attention_2";
    case RunOptions::Attention::flash3:
      return "flash_attention_3";
    default:
      return "flash_attention_4";
  }
}

/// The first layer of one of the model's stacks: what all of them have in common.
const Block& layer_of(const Model& model, Block::Stream stream) {
  const auto found = std::find_if(model.blocks.begin(), model.blocks.end(),
                                  [&](const Block& block) { return is_layer(block) && block.stream == stream; });
  if (found == model.blocks.end()) throw Error(ErrorCode::internal, "a family without layers is told by a text");
  return *found;
}

/// Of each layer the keys that a query sees, None where it is all of them.
Value windows_of(Interpreter& i, const Model& model) {
  std::vector<Value> windows;
  for (const Block& block : model.blocks)
    for (std::int64_t at = 0; is_layer(block) && at < block.repeat; ++at) {
      const auto& window = block.attention->sliding_window;
      windows.push_back(window ? Value::integer(*window) : Value::none());
    }
  return i.list(std::move(windows));
}

/// Whether the head's input is multiplied by a number of the configuration's.
bool scales_head_input(const Model& model) {
  const std::vector<plimsoll::Operator>& head = model.blocks.back().operators;
  return !head.empty() && head.front().kind == OperatorKind::scale;
}

/// What a text asks of its configuration, by names that all families share; a Model has read and resolved it.
CallArguments facts_of(Interpreter& i, const Model& model, const RunOptions& options) {
  CallArguments facts;
  const auto say = [&](const char* name, Value value) { facts.keywords.emplace_back(i.symbol(name), std::move(value)); };
  const auto whole = [&](const char* name, std::int64_t value) { say(name, Value::integer(value)); };
  const auto real = [&](const char* name, double value) { say(name, Value::real(value)); };
  const Block& layer = layer_of(model, Block::Stream::main);
  if (!model.config) refuse("a model of type '" + model.model_type + "' without its config.json is not modelled");
  facts.positional.push_back(value_of_json(i, nlohmann::json::parse(json_of_python(model.config->text)), model.config->where));
  say("model_type", i.text(model.model_type));
  say("_attn_implementation", i.text(name_of(options.attention)));
  whole("vocab_size", model.vocab_size);
  whole("hidden_size", model.hidden_size);
  whole("intermediate_size", model.intermediate_size);
  whole("num_hidden_layers", model.layers);
  whole("num_attention_heads", model.heads);
  whole("num_key_value_heads", model.kv_heads);
  whole("head_dim", model.head_dim);
  whole("max_position_embeddings", model.max_positions);
  whole("num_labels", model.labels);
  whole("patch_size", model.patch_size);
  whole("num_channels", model.channels);
  say("tie_word_embeddings", Value::boolean(model.tied_embeddings));
  real("embedding_dropout", model.embedding_dropout);
  real("head_dropout", program::head_dropout(model));
  real("hidden_dropout", layer.hidden_dropout);
  say("norm_bias", Value::boolean(layer.norm.bias));
  say("scale_decoder_outputs", Value::boolean(scales_head_input(model)));
  say("packs_position_bias", Value::boolean(options.release.packs_position_bias()));
  if (layer.attention) {
    real("attention_dropout", layer.attention->dropout);
    say("attention_bias", Value::boolean(layer.attention->qkv_bias));
    real("clip_qkv", layer.attention->clip);
    whole("rotary_dim", layer.attention->rotary_dim);
    say("layer_windows", windows_of(i, model));
  }
  if (layer.mlp) {
    say("hidden_act", i.text(layer.mlp->activation));
    say("mlp_bias", Value::boolean(layer.mlp->bias));
    say("mlp_gated", Value::boolean(layer.mlp->gated));
    real("inner_dropout", layer.mlp->dropout);
  }
  if (model.decoder_layers > 0) {
    const Block& decoder = layer_of(model, Block::Stream::second);
    whole("num_decoder_layers", model.decoder_layers);
    whole("decoder_attention_heads", decoder.attention->heads);
    whole("decoder_intermediate_size", decoder.mlp->intermediate);
  }
  return facts;
}

/// What texts call of the tape beside torch's names: activations by their names in configurations, and the end of a language model as its
/// release has it.
void define_operators(Interpreter& i, const RunOptions& options, const HfRelease::CausalLoss& code) {
  const auto define = [&](const char* name, const char* signature, Native run) {
    i.library("plimsoll").attributes[i.symbol(name)] = i.native(std::string("plimsoll.") + name, signature, std::move(run));
  };
  define("answered_logits", "logits", [code](Interpreter& inner, Bound& a) {
    const Tensor logits = inner.torch().tensor_of(a[0], "logits");
    logits.tape().phase(Phase::loss);
    return code.upcasts_before ? inner.torch().wrap(program::to(logits, DType::fp32)) : a[0];
  });
  // attn_implementation's of [batch, heads, length, dim]: [batch, length, heads, dim], and the probabilities of the eager one.
  define("attend",
         "query, key, value, mask, *, causal=, dropout=, window=, positions=, softmax_in_fp32=", [options](Interpreter& inner, Bound& a) {
           const auto tensor = [&](std::size_t at, const char* what) { return inner.torch().tensor_of(a[at], what); };
           const Tensor query = tensor(0, "query"), key = tensor(1, "key"), value = tensor(2, "value");
           const Tensor mask = inner.torch().tensor_or_none(a[3], "mask"), positions = inner.torch().tensor_or_none(a[7], "positions");
           Tensor weights;
           const program::AttentionCall call{.kind = options.attention,
                                             .causal = !a.has(4) || inner.truth(a[4]),
                                             .dropout = a.has(5) ? inner.number(a[5], "dropout") : 0,
                                             .window = a.has(6) ? inner.whole(a[6], "windows") : 0,
                                             .positions = &positions,
                                             .packed_length = options.packed_length,
                                             .release = options.release,
                                             .weights = &weights,
                                             .softmax_in_fp32 = !a.has(8) || inner.truth(a[8])};
           Value output = inner.torch().wrap(program::attend(query, key, value, mask, call));
           return inner.tuple({std::move(output), weights ? inner.torch().wrap(std::move(weights)) : Value::none()});
         });
  // mask.nonzero() of a mask of the device's that is taken to be true everywhere: labels that are all given.
  define("nonzero_of_all", "mask", [](Interpreter& inner, Bound& a) {
    const Tensor mask = inner.torch().tensor_of(a[0], "mask");
    return inner.torch().wrap(program::transpose(program::nonzero(mask, mask.elements()), 0, 1));
  });
  // linear.weight.dtype. Measured steps of ZeRO-3 do not gather a weight that is asked for its type alone.
  define("weight_type", "linear", [](Interpreter& inner, Bound& a) {
    program::Module& linear = *inner.torch().state(a[0]).module;
    program::Module* const base = linear.find_child("base_layer");  // of an adapter, whose weight is its base layer's
    return inner.torch().type_value((base != nullptr ? *base : linear).tensor("weight").dtype());
  });
  define("activate", "function, x", [](Interpreter& inner, Bound& a) {
    return inner.torch().wrap(program::activate(inner.words(a[0], "activations"), inner.torch().tensor_of(a[1], "x")));
  });
  define("causal_lm_loss", "logits, labels, hidden", [options, code](Interpreter& inner, Bound& a) {
    const auto tensor = [&](std::size_t at, const char* what) { return inner.torch().tensor_of(a[at], what); };
    return inner.torch().wrap(program::model_loss(options, tensor(2, "hidden states"), tensor(0, "logits"), tensor(1, "labels"), code));
  });
  define("model_mask", "embeddings, positions", [options](Interpreter& inner, Bound& a) {
    const Tensor embeddings = inner.torch().tensor_of(a[0], "embeddings"), positions = inner.torch().tensor_of(a[1], "positions");
    Tensor made = program::model_mask(embeddings.tape(), options, embeddings, positions, std::nullopt);
    return made ? inner.torch().wrap(std::move(made)) : Value::none();
  });
}

/// The paths of what the modules answer that are asked for their embeddings (PreTrainedModel.enable_input_require_grads): the whole, its
/// body, each of two stacks.
std::vector<std::string> embeddings_of(Interpreter& i, const Value& module) {
  const auto modules = i.torch().all_modules(module);
  std::vector<std::string> paths;
  for (const auto& [path, each] : modules) {
    const Value asked = i.attribute_or(each, i.symbol("get_input_embeddings"));
    if (!asked.is_bound()) continue;
    const Value embeddings = i.call_from_outside(asked, {});
    const auto found = std::find_if(modules.begin(), modules.end(), [&](const auto& known) { return known.second.same(embeddings); });
    if (found == modules.end()) throw Error(ErrorCode::internal, "input embeddings that no module has registered", path);
    if (std::find(paths.begin(), paths.end(), found->first) == paths.end()) paths.push_back(found->first);
  }
  return paths;
}

/// What forward is given, in the order of a batch.
std::vector<Input> inputs_of(const Model& model) {
  if (model.architecture.ends_with("ForQuestionAnswering"))
    return parse_inputs({"input_ids:int64[B,S]", "start_positions:int64[B]", "end_positions:int64[B]"});
  if (model.task == Model::Task::image_classification) {
    const std::string size = std::to_string(model.image_size);
    return parse_inputs({"pixel_values:float[B," + std::to_string(model.channels) + "," + size + "," + size + "]", "labels:int64[B]"});
  }
  return parse_inputs({"input_ids:int64[B,S]", "labels:int64[B,S]"});
}

}  // namespace

Family built_family(const Model& model, const RunOptions& options) {
  auto interpreter = std::make_unique<Interpreter>("", model.name);
  Interpreter& i = *interpreter;
  define_mechanisms(i);
  define_operators(i, options, options.release.causal_loss(model.model_type));
  put_texts_over(i, "src/code/families/python/");
  const Value config = i.call_from_outside(i.imported_or_fail("families.common", "Configuration"), facts_of(i, model, options));
  const Value type = i.imported(module_of(model.model_type), i.symbol(model.architecture));
  if (type.as<ClassObject>() == nullptr) refuse("a training step of " + model.architecture + " is not modelled");
  if (!i.contains(i.attribute(type, i.symbol("attentions")), i.text(name_of(options.attention))))
    fail(std::string(name_of(options.attention)) + " attention does not exist for " + model.model_type, {}, "use eager attention");
  const Value module = i.call_from_outside(type, {{config}, {}});
  Family family;
  family.embeddings = embeddings_of(i, module);
  family.built = std::make_unique<BuiltModule>(std::move(interpreter), module);
  return family;
}

}  // namespace plimsoll::code

namespace plimsoll::program {

namespace {

class TextEncoderOfText final : public TextEncoder {
 public:
  TextEncoderOfText(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : built_(code::built_family(model, options).built) {
    built_->bind(root, tape);
  }

  TextFeatures operator()(const Tensor& ids, bool) override {
    code::Interpreter& i = built_->interpreter();
    i.start_counting();
    return {i.torch().tensor_of(i.call_from_outside(built_->module(), {{i.torch().wrap(ids)}, {}}), "hidden states"), {}};
  }

 private:
  std::unique_ptr<code::BuiltModule> built_;
};

}  // namespace

std::unique_ptr<TextEncoder> make_told_text_encoder(const Model& model, const HfRelease& release, Module& root, Tape& tape) {
  RunOptions options;
  options.release = release;
  return std::make_unique<TextEncoderOfText>(in_evaluation(model), options, root, tape);
}

std::unique_ptr<Network> make_text_network(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  code::Family family = code::built_family(model, options);
  family.built->complete(root, tape);
  if (options.hidden_requires_grad) code::require_input_gradients(root, family.embeddings);
  code::Recipe recipe;
  recipe.inputs = code::inputs_of(model);
  recipe.library = CodeLibrary::transformers;
  recipe.vocabulary = model.vocab_size;
  return code::network_of(std::move(family.built), std::make_shared<const code::Recipe>(std::move(recipe)), options, root, tape);
}

}  // namespace plimsoll::program
