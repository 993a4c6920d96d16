// From a configuration and the code of transformers to a Model.
#include "code/diffusers/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "code/json_values.hpp"
#include "code/network.hpp"
#include "code/timm/model.hpp"
#include "code/torch/torch.hpp"
#include "code/transformers/mechanisms.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {

namespace code {

namespace {

using Json = nlohmann::json;

Json parsed(const PackageModel& package) {
  if (package.config.empty()) return Json{{"model_type", package.model_type}};
  Json json = Json::parse(package.config, nullptr, false);
  if (json.is_discarded() || !json.is_object()) fail("is no JSON object", package.where, "a config.json");
  if (!json.contains("model_type") || !json["model_type"].is_string())
    fail("has no model_type", package.where, "a config.json of transformers");
  return json;
}

constexpr std::int64_t kUsualImage = 224;  ///< pixels on a side, where a configuration says none

/// A table of classes by model type, and what their forward takes.
struct Task {
  const char* table;
  const char* ending;  ///< of the classes' names
  Model::Task task;
};

constexpr Task kTasks[] = {
    {"MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "ForCausalLM", Model::Task::causal_lm},
    {"MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "ForConditionalGeneration", Model::Task::seq2seq},
    {"MODEL_FOR_MASKED_LM_MAPPING_NAMES", "ForMaskedLM", Model::Task::masked_lm},
    {"MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "ForConditionalGeneration", Model::Task::causal_lm},
    {"MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "ForImageClassification", Model::Task::image_classification},
    {"MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", "ForSequenceClassification", Model::Task::classification},
    {"MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", "ForTokenClassification", Model::Task::classification},
    {"MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", "ForQuestionAnswering", Model::Task::classification},
    {"MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "LMHeadModel", Model::Task::causal_lm},
    {"MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "ForSpeechSeq2Seq", Model::Task::seq2seq},
    {"MODEL_FOR_CTC_MAPPING_NAMES", "ForCTC", Model::Task::seq2seq},
};

/// What a configuration and the package's code make.
class Builder {
 public:
  Builder(const PackageModel& package, const program::RunOptions& options) : package_(package) {
    interpreter_ = std::make_unique<Interpreter>("", package.package, limits());
    interpreter_->torch().expects_draws = true;
    interpreter_->add_package(open_package(package.package));
    define_transformers(*interpreter_);
    for (const std::string& beside : package.beside) add_beside(open_package(beside));
    json_ = parsed(package);
    if (json_.contains("auto_map") && !package.folder.empty()) interpreter_->add_package(open_folder(package.folder));
    make_config(options);
    find_class();
  }

  std::unique_ptr<BuiltModule> build(DType type = DType::fp32) {
    Interpreter& i = *interpreter_;
    i.torch().default_type = type;
    Value model = i.call_from_outside(i.imported_or_fail("transformers.models.auto.auto_factory", "made"), {{class_, config_}, {}});
    i.torch().default_type = DType::fp32;
    class_ = config_ = Value();  // the interpreter's, which is the module's from here on
    return std::make_unique<BuiltModule>(std::move(interpreter_), std::move(model));
  }

  /// What libraries ask a model that `build` made for.
  static program::ModelParts parts_of(BuiltModule& built) {
    Interpreter& i = built.interpreter();
    const Value told = i.call_from_outside(i.imported_or_fail("transformers.models.auto.auto_factory", "parts"), {{built.module()}, {}});
    const std::vector<Value>& items = told.as<SequenceObject>()->items;
    const auto modules = i.torch().all_modules(built.module());
    const auto path_of = [&](const Value& wanted) {
      for (const auto& [path, module] : modules)
        if (module.same(wanted)) return path;
      return std::string();
    };
    program::ModelParts parts;
    for (const Value& each : items[0].as<SequenceObject>()->items) parts.embeddings.push_back(path_of(each));
    parts.head = path_of(items[1]);
    parts.base = i.words(items[2], "base_model_prefix");
    for (const Value& each : items[3].as<SequenceObject>()->items) parts.layer_classes.push_back(i.words(each, "names of classes"));
    for (const Value& each : items[4].as<SequenceObject>()->items) parts.kept_in_fp32.push_back(i.words(each, "names of modules"));
    return parts;
  }

  Model::Task task() const { return task_; }
  /// What the type's processor gives its forward; none where that is ids, an image or a sound alone.
  std::vector<Input> inputs_of_processor() {
    Interpreter& i = *interpreter_;
    return told_inputs(i, i.call_from_outside(i.imported_or_fail("transformers.models.auto.model_inputs", "inputs"), {{config_}, {}}));
  }
  std::string class_name() const { return class_.as<ClassObject>()->name; }
  std::string model_type() const { return json_["model_type"].get<std::string>(); }

  /// A whole number of the configuration, or of the first of its parts that has it; 0: none has.
  std::int64_t number(const char* name) {
    for (const char* part : kParts) {
      Value of = *part == '\0' ? config_ : known(config_, part);
      if (!of.is_bound() || of.is_none()) continue;
      Value found = known(of, name);
      if (const auto* several = found.as<SequenceObject>(); several != nullptr && !several->items.empty()) {
        const Value first = several->items.front();
        found = first;
      }
      if (found.is_bound() && found.is_integer() && !found.is_boolean()) return found.as_integer();
    }
    return 0;
  }
  /// The name of what forward takes first: "input_ids".
  std::string main_input() {
    const Value name = interpreter_->attribute_or(class_, interpreter_->symbol("main_input_name"));
    const auto* words = name.as<TextObject>();
    return words != nullptr ? words->text : std::string("input_ids");
  }
  /// A real number of the configuration or of the first of its parts that has it; 0: none has.
  double real(const char* name) {
    for (const char* part : kParts) {
      Value of = *part == '\0' ? config_ : known(config_, part);
      if (!of.is_bound() || of.is_none()) continue;
      const Value found = known(of, name);
      if (found.is_number()) return found.as_real();
    }
    return 0;
  }
  /// Whether forward has an argument of that name, and, with `required`, no default for it.
  bool takes(const char* argument, bool required) {
    const Value forward = interpreter_->attribute_or(class_, interpreter_->symbol("forward"));
    const Value inner = interpreter_->attribute_or(forward, interpreter_->symbol("__wrapped__"));
    const auto* function = (inner.is_bound() ? inner : forward).as<FunctionObject>();
    if (function == nullptr) return false;
    return std::any_of(function->code.parameters.begin(), function->code.parameters.end(), [&](const Parameter& each) {
      return each.name == interpreter_->symbol(argument) && (!required || each.default_value == nullptr);
    });
  }
  /// Packages whose kernels upstream would put in the place of functions that the model reaches.
  static std::vector<std::string> absent_packages(Interpreter& i) {
    std::vector<std::string> names;
    const Value listed = i.imported_or_fail("transformers.integrations.hub_kernels", "ABSENT");
    for (const Value& each : listed.as<SequenceObject>()->items) names.push_back(i.words(each, "packages"));
    return names;
  }
  bool has(const char* part) {
    const Value found = known(config_, part);
    return found.is_bound() && !found.is_none();
  }
  bool flag(const char* name) {
    const Value found = known(config_, name);
    return found.is_bound() && found.is_boolean() && found.as_integer() != 0;
  }

 private:
  /// Whose patches stand beside the classes, or what some are made of.
  void add_beside(const std::shared_ptr<const Package>& package) {
    interpreter_->add_package(package);
    if (package->read("timm/__init__.py")) define_timm(*interpreter_, package);
  }

  static constexpr const char* kParts[] = {"", "text_config", "vision_config", "audio_config", "encoder_config", "encoder", "decoder"};

  static Limits limits() { return {.steps = 20'000'000, .calls = 200, .expressions = 2'000}; }

  /// attn_implementation; null: the class's own default.
  static const char* attention_asked(const program::RunOptions& options) {
    switch (options.attention) {
      case program::RunOptions::Attention::eager:
        return "eager";
      case program::RunOptions::Attention::flash:
        return "flash_attention_2";
      case program::RunOptions::Attention::flash3:
        return "flash_attention_3";
      case program::RunOptions::Attention::flash4:
        return "flash_attention_4";
      default:
        return nullptr;
    }
  }

  Value known(const Value& of, const char* name) {
    Interpreter& i = *interpreter_;
    return i.call_from_outside(i.builtin("getattr"), {{of, i.text(name), Value::none()}, {}});
  }

  /// The model's own class that auto_map names ("modeling_own.OwnForCausalLM"); unbound where it names none.
  Value own_class(const char* kind) {
    if (package_.folder.empty() || !json_.contains("auto_map")) return {};
    const Json& map = json_["auto_map"];
    if (!map.is_object() || !map.contains(kind) || !map[kind].is_string()) return {};
    std::string reference = map[kind].get<std::string>();
    if (const std::size_t behind = reference.find("--"); behind != std::string::npos) reference.erase(0, behind + 2);
    const std::size_t dot = reference.rfind('.');
    if (dot == std::string::npos || dot == 0) fail("'" + reference + "' of auto_map is no MODULE.CLASS", package_.where);
    return interpreter_->imported_or_fail(reference.substr(0, dot), reference.substr(dot + 1));
  }

  Value configuration_class() {
    if (Value own = own_class("AutoConfig"); own.is_bound()) return own;
    Interpreter& i = *interpreter_;
    const Value find = i.imported_or_fail("transformers.models.auto.auto_factory", "config_class");
    const Value names = i.imported_or_fail("transformers.models.auto.auto_factory", "CONFIG_MAPPING_NAMES");
    std::vector<std::string> types;
    for (const auto& entry : names.as<DictionaryObject>()->entries())
      if (entry.key.is_bound()) types.push_back(i.words(entry.key, "model types"));
    if (std::find(types.begin(), types.end(), model_type()) == types.end())
      fail("has no model type '" + model_type() + "'", package_.package, suggest(model_type(), types));
    return i.call_from_outside(find, {{i.text(model_type())}, {}});
  }

  void make_config(const program::RunOptions& options) {
    Interpreter& i = *interpreter_;
    const Value type = configuration_class();
    CallArguments arguments;
    for (const auto& [name, value] : json_.items())
      if (!package_.config.empty()) arguments.keywords.emplace_back(i.symbol(name), value_of_json(i, value, package_.where));
    config_ = i.call_from_outside(type, std::move(arguments));
    if (const char* attention = attention_asked(options)) i.set_attribute(config_, i.symbol("_attn_implementation"), i.text(attention));
    (void)i.call_from_outside(i.imported_or_fail("transformers.models.auto.auto_factory", "without_cache"), {{config_}, {}});
  }

  bool find_own_class() {
    static constexpr std::pair<const char*, Model::Task> kKinds[] = {
        {"AutoModelForCausalLM", Model::Task::causal_lm},
        {"AutoModelForSeq2SeqLM", Model::Task::seq2seq},
        {"AutoModelForMaskedLM", Model::Task::masked_lm},
        {"AutoModelForSequenceClassification", Model::Task::classification},
        {"AutoModelForImageClassification", Model::Task::image_classification}};
    for (const auto& [kind, task] : kKinds) {
      if (Value own = own_class(kind); own.is_bound()) {
        class_ = std::move(own);
        task_ = task;
        return true;
      }
    }
    return false;
  }

  /// What the first of transformers' automatic classes that the loader goes through makes of the type. Throws Error: none has a class for
  /// it.
  bool find_by_loader() {
    struct Loader {
      const char *name, *table;
      Model::Task task;
    };
    static constexpr Loader kLoaders[] = {
        {"AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", Model::Task::causal_lm},
        {"AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", Model::Task::causal_lm},
        {"AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", Model::Task::seq2seq},
        {"AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", Model::Task::masked_lm},
        {"AutoModelForSequenceClassification", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", Model::Task::classification},
        {"AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", Model::Task::image_classification}};
    if (package_.auto_classes.empty()) return false;
    Interpreter& i = *interpreter_;
    std::istringstream names(package_.auto_classes);
    for (std::string name; std::getline(names, name, ',');)
      for (const Loader& known : kLoaders) {
        if (name != known.name) continue;
        const Value table = i.imported_or_fail("transformers.models.auto.modeling_auto", known.table);
        if (table.as<DictionaryObject>()->find(i.text(model_type())) == nullptr) continue;
        class_ = i.call_from_outside(i.imported_or_fail("transformers.models.auto.auto_factory", "model_class"), {{config_, table}, {}});
        task_ = known.task;
        return true;
      }
    fail("neither of " + package_.auto_classes + " has a class for the model type '" + model_type() + "'", package_.where);
  }

  /// The class that a loader asks for or config.json names; else the type's own of the first task it has one for.
  void find_class() {
    if (find_own_class()) return;
    if (find_by_loader()) return;
    Interpreter& i = *interpreter_;
    std::vector<std::string> wanted;
    if (!package_.class_name.empty()) {
      wanted.push_back(package_.class_name);
    } else if (json_.contains("architectures") && json_["architectures"].is_array()) {
      for (const Json& each : json_["architectures"])
        if (each.is_string()) wanted.push_back(each.get<std::string>());
    }
    const Value named = i.imported_or_fail("transformers.models.auto.auto_factory", "named");
    for (const std::string& name : wanted) {
      const auto* const task =
          std::find_if(std::begin(kTasks), std::end(kTasks), [&](const Task& each) { return name.ends_with(each.ending); });
      if (task == std::end(kTasks)) {
        if (package_.class_name.empty()) continue;
        refuse("what the forward of '" + name + "' takes is not known", package_.package,
               "a class for a language model or an image's class");
      }
      task_ = task->task;
      if (name.ends_with("ForConditionalGeneration") && !flag("is_encoder_decoder")) task_ = Model::Task::causal_lm;
      class_ = i.call_from_outside(named, {{i.text(model_type()), i.text(name)}, {}});
      return;
    }
    const Value choose = i.imported_or_fail("transformers.models.auto.auto_factory", "model_class");
    // A language model unless the configuration is made for something else: of two halves, or looking both ways.
    std::vector<Task> tasks(std::begin(kTasks), std::end(kTasks));
    const Value decodes = known(config_, "is_decoder");
    const bool both_ways = decodes.is_bound() && decodes.is_boolean() && decodes.as_integer() == 0;
    const Model::Task first = flag("is_encoder_decoder") ? Model::Task::seq2seq
                              : both_ways                ? Model::Task::masked_lm
                                                         : Model::Task::causal_lm;
    std::stable_partition(tasks.begin(), tasks.end(), [&](const Task& each) { return each.task == first; });
    for (const Task& each : tasks) {
      const Value table = i.imported_or_fail("transformers.models.auto.modeling_auto", each.table);
      if (table.as<DictionaryObject>()->find(i.text(model_type())) == nullptr) continue;
      class_ = i.call_from_outside(choose, {{config_, table}, {}});
      task_ = each.task;
      return;
    }
    refuse("model type '" + model_type() + "' has no class for a task that is modelled",
           package_.where.empty() ? package_.package : package_.where, "language models and image classification");
  }

  const PackageModel& package_;
  std::unique_ptr<Interpreter> interpreter_;
  Json json_;
  Value config_, class_;
  Model::Task task_ = Model::Task::causal_lm;
};

constexpr Size kBatch{Size::Of::batch}, kSequence{Size::Of::sequence}, kTarget{Size::Of::target};

Size whole(std::int64_t number) { return {Size::Of::one, number}; }

/// A spectrogram: whisper's, [bins, frames], are of twice its positions; others are [frames, bins], of as many frames as --seq.
Input sound(Builder& builder, const std::string& name) {
  const std::int64_t bins = builder.number("num_mel_bins"), positions = builder.number("max_source_positions");
  if (bins != 0 && positions != 0) return Input{name, DType::fp32, {kBatch, whole(bins), whole(2 * positions)}, true};
  const std::int64_t features = builder.number("input_feat_per_channel") * std::max<std::int64_t>(builder.number("input_channels"), 1);
  const std::int64_t width = bins != 0 ? bins : features != 0 ? features : builder.number("feature_projection_input_dim");
  if (width == 0) refuse("the size of the sound that '" + builder.class_name() + "' takes is not known");
  return Input{name, DType::fp32, {kBatch, kSequence, whole(width)}, true};
}

Input image(Builder& builder, const std::string& name) {
  const std::int64_t size = builder.number("image_size") > 0 ? builder.number("image_size") : kUsualImage,
                     channels = builder.number("num_channels");
  return Input{name, DType::fp32, {kBatch, whole(channels > 0 ? channels : 3), whole(size), whole(size)}, true};
}

std::vector<Input> inputs_of(Builder& builder) {
  if (std::vector<Input> told = builder.inputs_of_processor(); !told.empty()) return told;
  const auto tokens = [](const char* name, std::vector<Size> sizes) { return Input{name, DType::int64, std::move(sizes)}; };
  const std::string main = builder.main_input();
  if (main == "input_values")  // sound, of as many samples
    return {Input{main, DType::fp32, {kBatch, kSequence}, true}, tokens("labels", {kBatch, kTarget})};
  if (main == "input_features" && !builder.takes("input_ids", false)) {
    std::vector<Input> inputs{sound(builder, main), tokens("labels", {kBatch, kTarget})};
    // Of a sound whose frames are counted the lengths of all are told by a mask of ones.
    if (inputs.front().sizes[1] == kSequence && builder.takes("attention_mask", false)) {
      inputs.push_back(tokens("attention_mask", {kBatch, kSequence}));
      inputs.back().filled = 1;
    }
    return inputs;
  }
  const bool looks = main == "pixel_values" || builder.takes("pixel_values", true);
  if (looks && builder.task() == Model::Task::seq2seq && !builder.takes("input_ids", false))
    return {image(builder, "pixel_values"), tokens("labels", {kBatch, kTarget})};
  if (looks && builder.task() == Model::Task::causal_lm) {
    std::vector<Input> inputs{tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch, kSequence}),
                              image(builder, "pixel_values")};
    if (builder.takes("qformer_input_ids", true)) inputs.push_back(tokens("qformer_input_ids", {kBatch, kSequence}));
    return inputs;
  }
  switch (builder.task()) {
    case Model::Task::seq2seq:
      return {tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch, kTarget})};
    case Model::Task::classification:
      if (builder.class_name().ends_with("ForQuestionAnswering"))
        return {tokens("input_ids", {kBatch, kSequence}), tokens("start_positions", {kBatch}), tokens("end_positions", {kBatch})};
      if (builder.class_name().ends_with("ForTokenClassification"))
        return {tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch, kSequence})};
      return {tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch})};
    case Model::Task::image_classification:
      if (main == "input_ids")
        return {tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch})};  // an image of colours' numbers
      return {image(builder, "pixel_values"), tokens("labels", {kBatch})};
    default:
      return {tokens("input_ids", {kBatch, kSequence}), tokens("labels", {kBatch, kSequence})};
  }
}

/// "model.visual.blocks.0" lies in "model.visual".
std::string part_of(const std::string& path) {
  const std::size_t first = path.find('.');
  return first == std::string::npos ? path : path.substr(0, path.find('.', first + 1));
}

/// Names an operator of a part, and its parameters, as they are called within that.
void name_within(plimsoll::Operator& op, const std::string& part) {
  const auto cut = [&](std::string& name) { name.erase(0, std::min(name.size(), part.size() + 1)); };
  cut(op.name);
  for (ParameterTensor& parameter : op.parameters) cut(parameter.name);
}

/// Where classes of images and text have their language model: Idefics' and SmolVLM's call it the text's.
bool is_of_language(const plimsoll::Operator& op) {
  return op.name.starts_with("model.language_model.") || op.name.starts_with("model.text_model.");
}

/// Takes what lies beside the language model out of a class of images and text, of which a batch of text needs nothing: a block of the second
/// stream a part ("model.visual"), as of the families.
void part_towers(Model& model) {
  constexpr std::string_view kHead = "lm_head";
  std::vector<plimsoll::Operator> all = std::move(model.blocks.front().operators), language;
  std::vector<Block> towers;
  for (plimsoll::Operator& op : all) {
    if (is_of_language(op) || op.name == kHead) {
      language.push_back(std::move(op));
      continue;
    }
    const std::string part = part_of(op.name);
    if (towers.empty() || towers.back().name != part) {
      towers.emplace_back().name = part;
      towers.back().stream = Block::Stream::second;
    }
    name_within(op, part);
    towers.back().operators.push_back(std::move(op));
  }
  model.blocks.front().operators = std::move(language);
  std::move(towers.begin(), towers.end(), std::back_inserter(model.blocks));
  if (model.blocks.size() > 1) model.assumed.push_back("a batch of text alone: the vision tower rests");
}

/// Whether a class has its language model at one place beside others.
bool has_parts(const Model& model) {
  const auto& operators = model.blocks.front().operators;
  return std::any_of(operators.begin(), operators.end(), is_of_language);
}

}  // namespace
}  // namespace code

Model model_of_package(const PackageModel& package) {
  if (code::names_class_of_diffusers(package)) return code::model_of_diffusers(package);
  if (code::is_timm(package)) return code::model_of_timm(package);
  if (!package.arguments.empty())
    fail("are arguments of timm's create_model, or of a class of --code FILE:CLASS", "--args", "config.json says a model's sizes");
  code::Builder builder(package, {});
  Model model;
  model.name = package.where.empty() ? package.model_type : package.where;
  model.model_type = builder.model_type();
  model.architecture = builder.class_name();
  model.task = builder.task();
  model.vocab_size = builder.number("vocab_size");
  model.hidden_size = builder.number("hidden_size");
  model.layers = builder.number("num_hidden_layers");
  model.heads = builder.number("num_attention_heads");
  model.max_positions = builder.task() == Model::Task::image_classification ? 1 : builder.number("max_position_embeddings");
  std::vector<code::Input> inputs = code::parse_inputs(package.inputs);
  if (inputs.empty()) inputs = code::inputs_of(builder);
  if (code::any_of_size(inputs, code::Size::Of::target)) model.task = Model::Task::seq2seq;
  if (builder.task() == Model::Task::image_classification && builder.number("image_size") == 0)
    model.assumed.push_back("images: 224 by 224, which the configuration does not say");
  model.assumed.push_back("code: " + model.architecture + " as " + package.package + " has it, its weights not initialised, its cache off");
  for (const char* name : {"layerdrop", "encoder_layerdrop", "decoder_layerdrop"})
    if (const double share = builder.real(name); share > 0)
      model.assumed.push_back(fmt::format("layers: all run ({} {}: the host draws for each whether it does)", name, share));
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (builder.number(name) > 1) {
      model.assumed.push_back("experts: chosen evenly, where the code asks how many tokens each gets");
      break;
    }
  if (model.vocab_size > 0)
    model.assumed.push_back("ids: below the vocabulary, none a special token (padding, an end, an image), where the code asks");
  model.assumed.push_back("numbers: finite, where the code asks");
  if (builder.real("mask_time_prob") > 0 && builder.main_input().starts_with("input_") && builder.main_input() != "input_ids")
    model.assumed.push_back("SpecAugment: as many spans as are expected, none over another");
  const bool sees = builder.has("vision_config");
  const std::unique_ptr<code::BuiltModule> built = builder.build();
  model.blocks.push_back(built->block());
  const auto shows_image = [](const code::Input& input) { return input.name == "pixel_values"; };
  if (sees && std::none_of(inputs.begin(), inputs.end(), shows_image) && code::has_parts(model)) code::part_towers(model);
  if (const auto absent = code::Builder::absent_packages(built->interpreter()); !absent.empty())
    model.assumed.push_back(
        fmt::format("kernels: {} not installed, whose functions transformers has in torch as well: with them a step takes less",
                    fmt::join(absent, " and ")));
  model.source =
      code::make_source({[package](const program::RunOptions& options, DType type) { return code::Builder(package, options).build(type); },
                         std::move(inputs), program::CodeLibrary::transformers,
                         [package] { return code::Builder::parts_of(*code::Builder(package, {}).build()); }, model.vocab_size});
  return model;
}

}  // namespace plimsoll
