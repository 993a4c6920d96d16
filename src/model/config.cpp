#include "model/config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll::model {
namespace {

constexpr std::string_view kDefaultsPath = "models/defaults.json";

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

JsonDocument read_defaults() {
  const auto* file = data::find_shipped_file(kDefaultsPath);
  if (file == nullptr) throw Error(ErrorCode::internal, "the library was built without its defaults", std::string(kDefaultsPath));
  return JsonDocument::parse(file->text, std::string(kDefaultsPath));
}

}  // namespace

ConfigDefaults::ConfigDefaults() : document_(read_defaults()) {
  for (const auto& key : document_.root()["immaterial"].elements()) immaterial_.push_back(key.text());
}

const ConfigDefaults& ConfigDefaults::shipped() {
  static const ConfigDefaults defaults;
  return defaults;
}

std::optional<JsonValue> ConfigDefaults::model_type(std::string_view name) const { return document_.root()["model_types"].find(name); }

bool ConfigDefaults::known_to_any(std::string_view key) const {
  const JsonValue types = document_.root()["model_types"];
  for (const std::string& type : types.keys())
    if (const auto defaults = types[type].find("defaults"); defaults && defaults->has(key)) return true;
  return false;
}

bool ConfigDefaults::immaterial(std::string_view key) const { return contains(immaterial_, key); }

bool ConfigDefaults::has_head(std::string_view model_type, std::string_view suffix) const {
  const std::vector<JsonValue> types = document_.root()["heads"][suffix].elements();
  return std::any_of(types.begin(), types.end(), [&](const JsonValue& each) { return each.text() == model_type; });
}

Config::Config(JsonValue object, std::string model_type, std::string name, std::string architecture, bool of_checkpoint)
    : object_(object),
      model_type_(std::move(model_type)),
      name_(std::move(name)),
      architecture_(std::move(architecture)),
      of_checkpoint_(of_checkpoint) {
  if (!object_.is_object()) object_.expected("an object");
  const auto row = ConfigDefaults::shipped().model_type(model_type_);
  if (!row) return;
  defaults_ = row->find("defaults");
  if (const auto aliases = row->find("aliases"))
    for (const auto& canonical : aliases->keys()) aliases_.emplace_back(canonical, (*aliases)[canonical].text());
}

bool Config::architecture_ends_with(std::string_view suffix) const {
  return architecture_.size() >= suffix.size() && std::string_view(architecture_).substr(architecture_.size() - suffix.size()) == suffix;
}

std::optional<JsonValue> Config::explicit_value(std::string_view key) const {
  if (!contains(wanted_, key)) wanted_.emplace_back(key);
  for (const auto& [canonical, own] : aliases_) {
    if (canonical != key && own != key) continue;
    const std::string& other = canonical == key ? own : canonical;
    if (!contains(wanted_, other)) wanted_.push_back(other);
    if (auto value = object_.find(canonical)) return value;
    if (auto value = object_.find(own)) return value;
  }
  return object_.find(key);
}

std::optional<JsonValue> Config::find(std::string_view key) const {
  auto value = explicit_value(key);
  if (!value && defaults_) {
    value = defaults_->find(key);
    for (const auto& [canonical, own] : aliases_)
      if (!value && canonical == key) value = defaults_->find(own);
  }
  return value && !value->is_null() ? value : std::nullopt;
}

bool Config::given(std::string_view key) const { return explicit_value(key).has_value(); }

std::string Config::pointer(std::string_view key) const {
  const auto value = explicit_value(key);
  return value ? value->where() : object_.where();
}

JsonValue Config::required(std::string_view key) const {
  if (const auto value = find(key)) return *value;
  if (const auto value = explicit_value(key)) value->expected("a value (this key is needed)");
  return object_[key];  // missing: the error names the key that was perhaps meant
}

namespace {

/// A whole number, also as Python's floats are written: "hidden_size": 2048.0.
std::int64_t whole(const JsonValue& value, std::int64_t least, std::int64_t most) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value.is_number() && !value.is_integer()) {
    const double number = value.number(-kExact, kExact);
    if (std::floor(number) == number && number >= static_cast<double>(least) && number <= static_cast<double>(most))
      return static_cast<std::int64_t>(number);
  }
  return value.integer(least, most);
}

}  // namespace

std::int64_t Config::dimension(std::string_view key, std::int64_t most) const { return whole(required(key), 1, most); }

std::int64_t Config::dimension_or(std::string_view key, std::int64_t fallback, std::int64_t most) const {
  return optional_dimension(key, most).value_or(fallback);
}

std::optional<std::int64_t> Config::optional_dimension(std::string_view key, std::int64_t most) const {
  const auto value = find(key);
  return value ? std::optional(whole(*value, 1, most)) : std::nullopt;
}

std::int64_t Config::integer(std::string_view key, std::int64_t least, std::int64_t most) const {
  return whole(required(key), least, most);
}

std::int64_t Config::integer_or(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most) const {
  const auto value = find(key);
  return value ? whole(*value, least, most) : fallback;
}

double Config::number(std::string_view key, double least, double most) const { return required(key).number(least, most); }

double Config::number_or(std::string_view key, double fallback, double least, double most) const {
  const auto value = find(key);
  return value ? value->number(least, most) : fallback;
}

bool Config::flag(std::string_view key) const { return required(key).boolean(); }

bool Config::flag_or(std::string_view key, bool fallback) const {
  const auto value = find(key);
  return value ? value->boolean() : fallback;
}

std::string Config::text(std::string_view key) const { return required(key).text(); }

std::string Config::text_or(std::string_view key, const std::string& fallback) const {
  const auto value = find(key);
  return value ? value->text() : fallback;
}

std::string Config::activation(std::string_view key) const { return activation_or(key, text(key)); }

std::string Config::activation_or(std::string_view key, const std::string& fallback) const {
  // transformers/activations.py, ACT2CLS of 5.23; diffusers/models/attention.py, FeedForward.
  static const std::vector<std::string> names{
      "gelu",       "gelu_10",  "gelu_accurate", "gelu_fast", "gelu_new",    "gelu_python", "gelu_python_tanh", "gelu_pytorch_tanh",
      "hardswish",  "laplace",  "leaky_relu",    "linear",    "mish",        "prelu",       "quick_gelu",       "relu",
      "relu2",      "relu6",    "sigmoid",       "silu",      "sqrtsoftplus", "swish",       "tanh",             "xielu",
      "gelu-approximate", "geglu", "geglu-approximate", "swiglu", "linear-silu"};
  const std::string name = text_or(key, fallback);
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail_at(key, "\"" + name.substr(0, 60) + "\" is no activation function of transformers: " + suggest(name.substr(0, 60), names));
  return name;
}

std::optional<Config> Config::nested(std::string_view key, const std::string& model_type) const {
  const auto value = find(key);
  return value ? std::optional(Config(*value, model_type, name_, architecture_)) : std::nullopt;
}

Config Config::part(std::string_view key, const std::string& model_type, std::string architecture) const {
  static const JsonDocument nothing = JsonDocument::parse("{}", "defaults");
  const JsonValue object = find(key).value_or(nothing.root());
  if (!object.is_object()) object.expected("an object");
  const auto own_type = object.find("model_type");
  return {object, own_type ? own_type->text() : model_type, name_, std::move(architecture)};
}

Config Config::as(std::string model_type, std::string architecture) const {
  return {object_, std::move(model_type), name_, std::move(architecture)};
}

void Config::fail_at(std::string_view key, const std::string& message) const { fail(message, pointer(key)); }
void Config::refuse_at(std::string_view key, const std::string& message) const { refuse(message, pointer(key)); }

void Config::require_divisible(std::string_view key, std::int64_t value, std::string_view divisor_key, std::int64_t divisor) const {
  if (value % divisor != 0) fail_at(key, fmt::format("{} = {} is not divisible by {} = {}", key, value, divisor_key, divisor));
}

std::int64_t Config::labels() const {
  const std::optional<std::int64_t> said = optional_dimension("num_labels");
  const auto names = find("id2label");
  if (names) names->mark_read();
  if (asked_labels_ > 0) return asked_labels_;
  if (said) return *said;
  return names && names->size() > 0 ? static_cast<std::int64_t>(names->size()) : 2;
}

std::vector<std::string> Config::unread_keys() const {
  std::vector<std::string> unread;
  for (const auto& key : object_.unread_keys()) {
    const std::string first = key.substr(0, key.find('/')), last = key.substr(key.rfind('/') + 1);
    if (ConfigDefaults::shipped().immaterial(first) || ConfigDefaults::shipped().immaterial(last)) continue;
    unread.push_back(key);
    const bool known = defaults_ && defaults_->has(first);
    if (known || first.size() < 5 || first != key || first.front() == '_' || ConfigDefaults::shipped().known_to_any(first)) continue;
    // A misspelling differs from a wanted key in one or two letters, and that key is not there itself.
    std::vector<std::string> missing;
    for (const auto& name : wanted_)
      if (!object_.has(name) && std::abs(static_cast<int>(name.size()) - static_cast<int>(first.size())) <= 2) missing.push_back(name);
    const std::string near = nearest_name(first, missing, 2);
    if (!near.empty()) fail(fmt::format("unknown key \"{}\"", first), object_.where(), fmt::format("did you mean \"{}\"?", near));
  }
  return unread;
}

}  // namespace plimsoll::model
