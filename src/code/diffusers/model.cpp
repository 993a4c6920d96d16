#include "code/diffusers/model.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "code/json_values.hpp"
#include "code/library_texts.hpp"
#include "code/network.hpp"
#include "code/package.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

using Json = nlohmann::json;

constexpr const char* kClassName = "_class_name";

/// Makes diffusers' names known to an interpreter that reads its package.
void define_diffusers(Interpreter& i) {
  put_texts_over(i, "src/code/diffusers/python/");
  const Value absent = i.native("is_available", "*args, **kwargs", [](Interpreter&, Bound&) { return Value::boolean(false); });
  i.set_rule([absent](const std::string& path, const std::string& name) {
    const bool asks =
        path.starts_with("diffusers.utils") && name.starts_with("is_") && name.ends_with("_available") && name != "is_torch_available";
    return asks ? absent : Value();
  });
}

/// What a configuration and the package's code make.
class Builder {
 public:
  explicit Builder(const PackageModel& package) : package_(package), json_(Json::parse(package.config)) {
    interpreter_ = std::make_unique<Interpreter>("", package.package, Limits{.steps = 20'000'000, .calls = 200, .expressions = 2'000});
    interpreter_->torch().expects_draws = true;
    interpreter_->add_package(open_package(package.package));
    define_diffusers(*interpreter_);
  }

  std::string class_name() const { return json_[kClassName].get<std::string>(); }

  std::int64_t number(const char* name) const {
    return json_.contains(name) && json_[name].is_number_integer() ? json_[name].get<std::int64_t>() : 0;
  }

  std::unique_ptr<BuiltModule> build() {
    Interpreter& i = *interpreter_;
    const Value type = i.imported("diffusers.models.transformers", i.symbol(class_name()));
    if (type.as<ClassObject>() == nullptr)
      fail("has no transformer '" + class_name() + "'", package_.package, "a class of diffusers.models.transformers");
    CallArguments arguments;
    for (const auto& [name, value] : json_.items())
      if (!name.starts_with("_")) arguments.keywords.emplace_back(i.symbol(name), value_of_json(i, value, package_.where));
    Value module = i.call_from_outside(type, std::move(arguments));
    return std::make_unique<BuiltModule>(std::move(interpreter_), std::move(module));
  }

 private:
  const PackageModel& package_;
  Json json_;
  std::unique_ptr<Interpreter> interpreter_;
};

/// What a step's loop gives forward.
std::vector<Input> inputs_of(BuiltModule& built, const std::string& class_name) {
  Interpreter& i = built.interpreter();
  const Value told = i.call_from_outside(i.imported_or_fail("diffusers.models.model_inputs", "inputs"),
                                         {{i.text(class_name), i.attribute(built.module(), i.symbol("config"))}, {}});
  if (told.is_none()) refuse("what a training step gives '" + class_name + "' is not known", "--code", "--input NAME:TYPE[SIZES] of each");
  return told_inputs(i, told);
}

program::ModelParts parts_of(BuiltModule& built) {
  Interpreter& i = built.interpreter();
  program::ModelParts parts;
  const auto names = [&](const char* attribute) {
    std::vector<std::string> found;
    const Value listed = i.attribute(built.module(), i.symbol(attribute));
    if (!listed.is_none())
      for (const Value& each : i.all_of(listed)) found.push_back(i.words(each, "names"));
    return found;
  };
  parts.layer_classes = names("_no_split_modules");
  parts.kept_in_fp32 = names("_keep_in_fp32_modules");
  return parts;
}

}  // namespace

bool names_class_of_diffusers(const PackageModel& package) {
  const Json json = Json::parse(package.config, nullptr, false);
  return json.is_object() && json.contains(kClassName) && json[kClassName].is_string();
}

Model model_of_diffusers(const PackageModel& package) {
  Builder builder(package);
  Model model;
  model.name = package.where;
  model.model_type = model.architecture = builder.class_name();
  model.task = Model::Task::diffusion;
  model.image_size = builder.number("sample_size");
  model.patch_size = builder.number("patch_size");
  const std::unique_ptr<BuiltModule> built = builder.build();
  model.blocks.push_back(built->block());
  std::vector<Input> inputs = parse_inputs(package.inputs);
  if (inputs.empty()) inputs = inputs_of(*built, model.architecture);
  if (!any_of_size(inputs, Size::Of::sequence) && !any_of_size(inputs, Size::Of::side)) model.max_positions = 1;
  model.assumed.push_back("code: " + model.architecture + " as " + package.package + " has it; nothing beside it is on the device");
  model.source = make_source({[package](const program::RunOptions&, DType) { return Builder(package).build(); }, std::move(inputs),
                              program::CodeLibrary::diffusers, [package] { return parts_of(*Builder(package).build()); }});
  return model;
}

}  // namespace plimsoll::code
