#include "code/timm/model.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "code/json_values.hpp"
#include "code/library_texts.hpp"
#include "code/network.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

using Json = nlohmann::json;

constexpr const char* kFactory = "timm.models._factory";
constexpr const char* kModels = "timm/models/";

/// The files of timm.models, as its __init__.py imports them: `from .resnet import *`.
std::vector<std::string> model_files(const Package& timm) {
  constexpr std::string_view kFrom = "from .", kStar = " import *";
  std::vector<std::string> files;
  std::istringstream lines(timm.read(std::string(kModels) + "__init__.py").value_or(""));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(kFrom) && line.ends_with(kStar))
      files.push_back(line.substr(kFrom.size(), line.size() - kFrom.size() - kStar.size()));
  return files;
}

/// What stands above and before the name of a function that makes a model.
constexpr std::string_view kRegistered = "@register_model\ndef ";

/// The names of the models that a text of such a file has.
std::vector<std::string> names_in(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(kRegistered); at != std::string_view::npos; at = text.find(kRegistered, at)) {
    at += kRegistered.size();
    names.emplace_back(text.substr(at, text.find('(', at) - at));
  }
  return names;
}

/// The file that has the function of that name. Raises what timm does where none has.
std::string file_of(Interpreter& i, const Package& timm, const std::string& name) {
  std::vector<std::string> others;
  for (const std::string& file : model_files(timm)) {
    std::vector<std::string> names = names_in(timm.read(kModels + file + ".py").value_or(""));
    if (std::find(names.begin(), names.end(), name) != names.end()) return file;
    std::move(names.begin(), names.end(), std::back_inserter(others));
  }
  const std::string near = nearest_name(name, others);
  i.raise("RuntimeError", "Unknown model (" + name + ")" + (near.empty() ? "" : ". Did you mean '" + near + "'?"));
}

/// The function that makes a model, and what its file says of pretrained weights.
Value function_of(Interpreter& i, const Package& timm, const std::string& name) {
  const std::string module = "timm.models." + file_of(i, timm, name);
  Value configured = i.imported(module, i.symbol("default_cfgs"));
  if (configured.as<DictionaryObject>() == nullptr) configured = Value(new DictionaryObject(i.heap()));
  return i.tuple({i.imported(module, i.symbol(name)), std::move(configured)});
}

/// What create_model is asked for.
struct Asked {
  std::string name;
  Json arguments = Json::object();
};

/// A name, "timm/NAME" as on the hub, or its config.json: {"architecture": NAME, "num_classes": …, "model_args": {…}}.
Asked asked_of(const PackageModel& package) {
  if (package.config.empty()) return {package.model_type.substr(package.model_type.starts_with("timm/") ? 5 : 0)};
  const Json json = Json::parse(package.config, nullptr, false);
  if (!json.is_object() || !json.contains("architecture") || !json["architecture"].is_string())
    fail("says no 'architecture'", package.where, "timm's config.json, or the name of a model, such as vit_base_patch16_224");
  Asked asked{json["architecture"].get<std::string>()};
  if (json.contains("model_args") && json["model_args"].is_object()) asked.arguments = json["model_args"];
  for (const char* key : {"num_classes", "global_pool"})
    if (json.contains(key)) asked.arguments.emplace(key, json[key]);
  if (json.contains("pretrained_cfg")) asked.arguments["pretrained_cfg"] = json["pretrained_cfg"];
  return asked;
}

std::unique_ptr<BuiltModule> build(const PackageModel& package) {
  auto interpreter = std::make_unique<Interpreter>("", package.package, Limits{.steps = 20'000'000, .calls = 200, .expressions = 2'000});
  Interpreter& i = *interpreter;
  i.torch().expects_draws = true;
  const std::shared_ptr<const Package> timm = open_package(package.package);
  i.add_package(timm);
  define_timm(i, timm);
  const Asked asked = asked_of(package);
  CallArguments call{{i.text(asked.name)}, {}};
  for (const auto& [name, value] : asked.arguments.items())
    call.keywords.emplace_back(i.symbol(name), value_of_json(i, value, package.where));
  for (const auto& [name, text] : package.arguments) call.keywords.emplace_back(i.symbol(name), i.literal(text, "--args " + name));
  Value module = i.call_from_outside(i.imported_or_fail(kFactory, "create_model"), std::move(call));
  i.set_attribute(module, i.symbol("forward"),
                  Value(new BoundMethodObject(i.heap(), module, i.imported_or_fail(kFactory, "loss_of_images"))));
  return std::make_unique<BuiltModule>(std::move(interpreter), std::move(module));
}

/// Images as the weights were trained on, or as large as the model was asked for.
std::vector<Input> inputs_of(BuiltModule& built) {
  Interpreter& i = built.interpreter();
  const Value told = i.call_from_outside(i.imported_or_fail(kFactory, "image_size"), {{built.module()}, {}});
  Input images{"images", DType::fp32, {Size{Size::Of::batch}}, true};
  for (const Value& each : i.all_of(told)) images.sizes.push_back({Size::Of::one, i.whole(each, "the size of an image")});
  return {std::move(images), Input{"labels", DType::int64, {Size{Size::Of::batch}}}};
}

}  // namespace

void define_timm(Interpreter& interpreter, std::shared_ptr<const Package> timm) {
  put_texts_over(interpreter, "src/code/timm/python/");
  interpreter.library("plimsoll").attributes[interpreter.symbol("has_timm")] = Value::boolean(true);
  interpreter.library("plimsoll").attributes[interpreter.symbol("timm_function")] = interpreter.native(
      "plimsoll.timm_function", "name",
      [timm = std::move(timm)](Interpreter& i, Bound& a) { return function_of(i, *timm, i.words(a[0], "names of models")); });
}

bool is_timm(const PackageModel& package) {
  if (std::filesystem::path(package.package).filename() == "timm") return true;  // an installed one, whatever is installed beside it
  const auto opened = open_package(package.package);
  return opened->read("timm/__init__.py") && !opened->read("transformers/__init__.py");
}

Model model_of_timm(const PackageModel& package) {
  const std::unique_ptr<BuiltModule> built = build(package);
  Model model;
  model.name = package.where.empty() ? package.model_type : package.where;
  model.architecture = built->interpreter().type_name(built->module());
  model.model_type = asked_of(package).name;
  model.task = Model::Task::image_classification;
  model.max_positions = 1;
  model.blocks.push_back(built->block());
  std::vector<Input> inputs = parse_inputs(package.inputs);
  if (inputs.empty()) inputs = inputs_of(*built);
  model.assumed.push_back("code: " + model.model_type + " as " + package.package + " has it, its loss the cross entropy of its logits");
  model.source = make_source({[package](const program::RunOptions&, DType) { return build(package); }, std::move(inputs),
                              program::CodeLibrary::timm, [] { return program::ModelParts{}; }});
  return model;
}

}  // namespace plimsoll::code
