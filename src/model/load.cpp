// From a name, a path or a text to a Model.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "data/shipped_files.hpp"
#include "model/block_builder.hpp"
#include "model/config.hpp"
#include "model/graph_file.hpp"
#include "model/hub_names.hpp"
#include "model/neighbours.hpp"
#include "model/registry.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/printable.hpp"
#include "plimsoll/suggestion.hpp"
#include "units/files.hpp"
#include "units/json_reader.hpp"
#include "units/python_json.hpp"

namespace plimsoll {
namespace {

using model::Config;
using model::Family;

constexpr std::string_view kModelsFolder = "models/";
/// Of checkpoints whose model type has no family: what plays them is transformers' own code.
constexpr std::string_view kCodedFolder = "models/code/";
constexpr std::string_view kConfigName = "/config.json", kGraphName = "/graph.json";

std::vector<std::string> known_types() {
  std::vector<std::string> names;
  for (const auto& family : model::families()) names.emplace_back(family.model_type);
  return names;
}

/// The class named by the config: `architectures`, of which there is one. Empty when it names none.
std::string stated_architecture(const JsonValue& root) {
  const auto list = root.find("architectures");
  if (!list || list->is_null()) return {};
  if (!list->is_array() || list->size() != 1) list->expected("an array of one class name");
  return list->at(0).text();
}

[[noreturn]] void refuse_type(const std::string& model_type, const std::string& where) {
  for (const auto& refused : model::refused_types())
    if (refused.model_type == model_type)
      refuse(fmt::format("model_type \"{}\" is not modelled: it needs {}", model_type, refused.missing), where);
  const std::string near = nearest_name(model_type, known_types());
  refuse(fmt::format("model_type \"{}\" has no family here", model_type.substr(0, 60)), where,
         (near.empty() ? std::string() : fmt::format("did you mean '{}'? ", near)) +
             "transformers' types are planned by its own code, --code WHEEL (docs/code.md); any network can be given as a graph file");
}

const Family& family_of(const JsonValue& root, const std::string& architecture) {
  for (const char* key : {"model_type", "_class_name"}) {
    const auto given = root.find(key);
    if (!given || given->is_null()) continue;
    const Family* family = model::find_family(given->text());
    if (family == nullptr) refuse_type(given->text(), given->where());
    if (!architecture.empty() && !model::class_meant_by(architecture, *family))
      refuse(fmt::format("the architecture \"{}\" is no class of model_type \"{}\"", architecture.substr(0, 60), given->text()),
             root.where(), fmt::format("its classes start with {}", family->class_prefix));
    return *family;
  }
  if (const Family* family = model::find_family_of_class(architecture)) return *family;
  if (!architecture.empty()) refuse(fmt::format("the architecture \"{}\" is unknown", architecture.substr(0, 60)), root.where());
  const std::string near = nearest_name("model_type", root.keys());
  fail("the config has neither \"model_type\" nor \"architectures\"", root.where(),
       near.empty() ? "" : fmt::format("is \"{}\" meant to be model_type?", near));
}

/// Facts that the builders leave to the reader of the config: what was assumed, what was not read, sizes that no number holds.
void finish(Model& built, const Config& config, const std::string& stated, const Family& family) {
  if (stated.empty()) built.assumed.push_back(fmt::format("the class {} (the config names no architecture)", family.default_class));
  if (!stated.empty() && built.architecture != stated && !model::is_class_of(stated, family))
    built.assumed.push_back(fmt::format("the class {} for '{}'", built.architecture, stated.substr(0, 60)));
  built.unread_keys = config.unread_keys();
  (void)built.parameters();  // throws when the sizes leave 63 bits
}

/// What stands behind a config: a class that is built, its weights new; or, where the config is read from a file, a checkpoint.
enum class Source : std::uint8_t { built, checkpoint };

/// What is read of a config in the place of what it says itself; nothing: as it says.
struct Wanted {
  std::string architecture = {};
  std::int64_t labels = 0;
};

Model read_root(const JsonValue& root, const std::string& where, const std::string& name, const Wanted& wanted, Source source) {
  if (!root.is_object()) root.expected("an object: the config of a model");
  if (root.has(model::kGraphKey)) return model::read_graph(root, name);
  if (const auto named = root.find(model::kNeighboursKey)) named->mark_read();
  const std::string in_config = stated_architecture(root);
  const std::string stated = wanted.architecture.empty() ? in_config : wanted.architecture;
  const Family& family = family_of(root, stated);
  const auto type = root.find("model_type");
  Config config(root, type && type->is_text() ? type->text() : std::string(family.model_type), name,
                stated.empty() ? std::string(family.default_class) : model::class_meant_by(stated, family).value_or(stated),
                source == Source::checkpoint);
  config.set_labels(wanted.labels);
  try {
    Model built = family.build(config);
    finish(built, config, stated, family);
    return built;
  } catch (const Error& error) {
    if (!error.where().empty()) throw;
    throw error.at(where);
  }
}

std::optional<Model> load_shipped(const std::string& name, const std::string& architecture);

/// A neighbour as a config names it: a shipped model, or a config of its own.
Model read_neighbour(const JsonValue& named) {
  if (!named.is_text()) return read_root(named, named.where(), "neighbour", {}, Source::checkpoint);
  auto shipped = load_shipped(named.text(), {});
  if (!shipped) fail(fmt::format("no model is called \"{}\"", named.text().substr(0, 100)), named.where(), suggest(named.text(), shipped_models()));
  return *std::move(shipped);
}

Model read_model(const std::string& json, const std::string& where, const std::string& name, const Wanted& wanted, Source source) {
  const JsonDocument document = JsonDocument::parse(json_of_python(json), where);
  Model read = read_root(document.root(), where, name, wanted, source);
  read.config = std::make_shared<const ModelConfig>(ModelConfig{json, where, source == Source::checkpoint});
  model::add_neighbours(read, document.root(), read_neighbour, [](const std::string& shipped) { return load_shipped(shipped, {}).value(); });
  return read;
}

}  // namespace

Model parse_model(const std::string& json, const std::string& where, const std::string& name, const std::string& architecture) {
  return read_model(json, where, name, {architecture}, Source::built);
}

std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  for (const auto* file : data::shipped_files_under(kModelsFolder)) {
    const std::string_view rest = file->path.substr(kModelsFolder.size());
    const std::size_t slash = rest.find('/');
    if (slash != std::string_view::npos && (rest.substr(slash) == kConfigName || rest.substr(slash) == kGraphName))
      names.emplace_back(rest.substr(0, slash));
  }
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

namespace {

std::optional<Model> load_shipped(const std::string& name, const std::string& architecture) {
  for (const std::string_view file_name : {kConfigName, kGraphName}) {
    const std::string shipped_path = fmt::format("{}{}{}", kModelsFolder, name, file_name);
    if (const auto* file = data::find_shipped_file(shipped_path))
      return read_model(std::string(file->text), shipped_path, name, {architecture}, Source::checkpoint);
  }
  return {};
}

constexpr const char* kPipelineName = "model_index.json";

/// One of diffusers' pipelines: the transformer that is trained, and beside it the parts that its index names.
Model load_pipeline(const std::filesystem::path& folder, const std::string& architecture) {
  const auto config_of = [&](const std::string& part) { return (folder / part / "config.json").string(); };
  const JsonDocument index = JsonDocument::read_file((folder / kPipelineName).string());
  if (!files::exists(config_of("transformer")))
    refuse("a pipeline without a transformer is not modelled", (folder / kPipelineName).string(), "one whose network is a transformer, not a UNet");
  Model trained = load_model(config_of("transformer"), architecture);
  trained.name = printable(std::filesystem::absolute(folder).lexically_normal().filename().string());
  trained.neighbours.clear();
  for (const std::string& part : model::neighbour_parts()) {
    const auto named = index.root().find(part);
    if (!named || named->is_null() || (named->is_array() && named->size() == 2 && named->at(1).is_null())) continue;
    model::add_neighbour(trained, part, load_model(config_of(part)), config_of(part));
  }
  return trained;
}

/// "mistral-7b" is the beginning of two; else the nearest.
std::string meant_by(const std::string& name) {
  const std::string near = meant(name, shipped_models());
  return near.empty() ? "`plimsoll models` lists them; a config.json is given by its path" : near;
}

/// "google/gemma-3-27b-it": one owner, one name, and no folder of that owner's name.
bool looks_like_hub_name(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == text.size() || text.find('/', slash + 1) != std::string::npos) return false;
  return text.front() != '.' && text.front() != '~' && std::filesystem::path(text).extension() != ".json" &&
         !files::exists(text.substr(0, slash));
}

/// The config of a shipped name, in either folder.
std::optional<ShippedConfig> config_of_shipped(const std::string& name) {
  for (const std::string_view folder : {kModelsFolder, kCodedFolder}) {
    const std::string path = fmt::format("{}{}{}", folder, name, kConfigName);
    if (const auto* file = data::find_shipped_file(path)) return ShippedConfig{name, std::string(file->text), path};
  }
  return {};
}

/// Of a checkpoint that only transformers' own code plays.
[[noreturn]] void refuse_coded(const std::string& asked, const ShippedConfig& config) {
  const JsonDocument document = JsonDocument::parse(config.text, config.where);
  refuse(fmt::format("\"{}\" is of model type {}, which transformers' own code plays", asked.substr(0, 100),
                     document.root()["model_type"].text()),
         "", "add --code WHEEL, after pip download --no-deps transformers");
}

}  // namespace

std::optional<ShippedConfig> shipped_config(const std::string& name) {
  if (auto config = config_of_shipped(name)) return config;
  const auto shipped = model::shipped_name_of(name);
  return shipped ? config_of_shipped(*shipped) : std::nullopt;
}

Model load_model(const std::string& name_or_path, const std::string& architecture) {
  if (auto shipped = load_shipped(name_or_path, architecture)) return *std::move(shipped);

  if (!files::exists(name_or_path))
    if (const auto name = model::shipped_name_of(name_or_path)) {
      std::optional<Model> found = load_shipped(*name, architecture);
      if (!found) refuse_coded(name_or_path, config_of_shipped(*name).value());
      Model shipped = *std::move(found);
      shipped.assumed.push_back(fmt::format("model: the shipped {} for '{}'", *name, name_or_path));
      return shipped;
    }
  std::filesystem::path path = name_or_path;
  if (files::is_folder(path.string())) {
    if (!files::exists((path / "config.json").string()) && files::exists((path / kPipelineName).string())) return load_pipeline(path, architecture);
    const bool graph = !files::exists((path / "config.json").string()) && files::exists((path / "graph.json").string());
    path /= graph ? "graph.json" : "config.json";
  }
  const bool looks_like_path = name_or_path == "-" || name_or_path.find('/') != std::string::npos || path.extension() == ".json";
  if (!looks_like_path && !files::exists(path.string())) {
    fail(fmt::format("no model is called \"{}\"", name_or_path.substr(0, 100)), "", meant_by(name_or_path));
  }
  if (!files::exists(path.string()) && looks_like_hub_name(name_or_path)) {
    const std::string meant = meant_by(model::name_without_owner(name_or_path));
    fail(fmt::format("\"{}\" is not among the shipped models, and nothing is downloaded", name_or_path.substr(0, 100)), "",
         meant.rfind("did you mean", 0) == 0 ? meant + " A config.json is given by its path" : meant);
  }
  const std::string text = read_text_file(path.string(), JsonLimits{}.text_bytes);
  const std::string folder =
      path.has_parent_path() ? std::filesystem::absolute(path).parent_path().filename().string() : path.stem().string();
  const bool named_by_folder = path.filename() == "config.json" || path.filename() == "graph.json";
  const std::string name = printable(name_or_path == "-" ? "stdin" : named_by_folder ? folder : path.stem().string());
  return read_model(text, path.string(), name, {architecture}, Source::checkpoint);
}

namespace {

constexpr std::string_view kSequences = "ForSequenceClassification", kCausal = "ForCausalLM", kCausalHead = "LMHeadModel";

/// How the classes of a head's name end, and what such a model is called in messages.
struct HeadClass {
  std::string_view suffix, told;
};

HeadClass class_of(AutoHead head) {
  switch (head) {
    case AutoHead::tokens:
      return {"ForTokenClassification", "a token classifier"};
    case AutoHead::answers:
      return {"ForQuestionAnswering", "a model that answers questions"};
    case AutoHead::words:
      return {"ForMaskedLM", "a masked language model"};
    case AutoHead::images:
      return {"ForImageClassification", "an image classifier"};
    default:
      return {kSequences, "a sequence classifier"};
  }
}

/// A language model's body under the head `score`, as GenericForSequenceClassification and the classes before it have it.
Model scored(Model model, std::int64_t labels) {
  const std::string_view before = model.architecture.ends_with(kCausalHead) ? kCausalHead : kCausal;
  model.blocks.pop_back();
  model::BlockBuilder score(Block::Role::head, "score");
  score.linear("", kBlockInput, {.in = model.hidden_size, .out = labels});
  model.blocks.push_back(score.build());
  model.architecture.replace(model.architecture.size() - before.size(), before.size(), kSequences);
  model.task = Model::Task::classification;
  model.labels = labels;
  model.tied_embeddings = false;
  model.logit_softcap = 0;
  return model;
}

/// "GPT2" of GPT2LMHeadModel, "Bert" of BertForMaskedLM, "Llama" of LlamaModel.
std::string stem_of(const std::string& architecture) {
  if (architecture.ends_with(kCausalHead)) return architecture.substr(0, architecture.size() - kCausalHead.size());
  return architecture.substr(0, std::min(architecture.rfind("For"), architecture.rfind("Model")));
}

}  // namespace

Model with_auto_head(const Model& model, AutoHead head, std::int64_t labels) {
  const auto [suffix, told] = class_of(head);
  const bool is_one = model.architecture.find(suffix) != std::string::npos;  // DeiTForImageClassificationWithTeacher
  if (is_one && (labels == 0 || labels == model.labels)) return model;
  if (model.source || !model::ConfigDefaults::shipped().has_head(model.model_type, suffix))
    refuse(fmt::format("{} of {} is not modelled", told, model.architecture), "task",
           fmt::format("a type of which transformers has a class {}{}", suffix, head == AutoHead::images ? "" : ", such as bert"));
  // A decoder's body is as it is under any head, so that it need not be read again: a reward model is made for every rank of a search.
  const bool decodes = model.task == Model::Task::causal_lm && !model.blocks.empty() && model.blocks.back().role == Block::Role::head;
  if (head == AutoHead::sequences && decodes && labels > 0) return scored(model, labels);
  if (!model.config) refuse(fmt::format("{} of {} that is told by its dimensions is not modelled", told, model.architecture), "task", "its config.json");
  Model read = read_model(model.config->text, model.config->where, model.name,
                          {is_one ? model.architecture : stem_of(model.architecture) + std::string(suffix), labels},
                          model.config->of_checkpoint ? Source::checkpoint : Source::built);
  for (const std::string& each : model.assumed)
    if (std::find(read.assumed.begin(), read.assumed.end(), each) == read.assumed.end()) read.assumed.push_back(each);
  return read;
}

}  // namespace plimsoll
