// A config.json, resolved: an explicit key, else the class's default (models/defaults.json), else the rule of the family that asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "units/json_reader.hpp"

namespace plimsoll::model {

/// The largest dimension that a config may state; a product of two stays within 63 bits, longer products are checked.
constexpr std::int64_t kLargestDimension = std::int64_t{1} << 30;
/// The most layers of one stack: the deepest published networks have about a thousand.
constexpr std::int64_t kMostLayers = 4096;

/// Reads keys by their canonical names ("hidden_size") or by the family's own ("n_embd"): the class's attribute map joins the two.
/// A key that is present but null counts as given and empty, as in transformers: the optional reads answer nothing.
/// Valid while the document of `object` lives.
class Config {
 public:
  /// `object` is the config (or a nested "text_config"), `model_type` the row of defaults.json to fall back on (none is fine).
  /// `of_checkpoint`: the config stands beside trained weights; otherwise its class is built.
  Config(JsonValue object, std::string model_type, std::string name, std::string architecture, bool of_checkpoint = false);
  /// from_pretrained's num_labels: what is asked for in the place of the config's own.
  void set_labels(std::int64_t labels) { asked_labels_ = labels; }

  const std::string& name() const { return name_; }
  const std::string& model_type() const { return model_type_; }
  /// The class to build: "LlamaForCausalLM".
  const std::string& architecture() const { return architecture_; }
  bool architecture_ends_with(std::string_view suffix) const;
  bool of_checkpoint() const { return of_checkpoint_; }

  /// A size, at least 1. Throws Error when it is neither given nor has a default, or is absurd.
  std::int64_t dimension(std::string_view key, std::int64_t most = kLargestDimension) const;
  std::int64_t dimension_or(std::string_view key, std::int64_t fallback, std::int64_t most = kLargestDimension) const;
  std::optional<std::int64_t> optional_dimension(std::string_view key, std::int64_t most = kLargestDimension) const;
  std::int64_t layers(std::string_view key = "num_hidden_layers") const { return dimension(key, kMostLayers); }
  /// An integer from `least` to `most`: counts that may be 0.
  std::int64_t integer(std::string_view key, std::int64_t least, std::int64_t most) const;
  std::int64_t integer_or(std::string_view key, std::int64_t fallback, std::int64_t least, std::int64_t most) const;

  double number(std::string_view key, double least, double most) const;
  double number_or(std::string_view key, double fallback, double least, double most) const;
  /// A probability: dropouts.
  double rate_or(std::string_view key, double fallback) const { return number_or(key, fallback, 0.0, 1.0); }
  bool flag(std::string_view key) const;
  bool flag_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, const std::string& fallback) const;

  /// An activation function by a name of transformers' ACT2FN or diffusers'. Throws Error for any other.
  std::string activation(std::string_view key) const;
  std::string activation_or(std::string_view key, const std::string& fallback) const;

  /// The value of a key, explicit or default; nothing when it is absent everywhere or null.
  std::optional<JsonValue> find(std::string_view key) const;
  /// Whether the config itself gives the key (null included).
  bool given(std::string_view key) const;
  /// A nested config ("attn_config", "text_config"). Throws Error when it is there and no object.
  std::optional<Config> nested(std::string_view key, const std::string& model_type = {}) const;

  /// A part of the config that has a class of its own ("text_config"), as that class: its own "model_type", else `model_type`; all defaults
  /// where the part is absent or null.
  Config part(std::string_view key, const std::string& model_type, std::string architecture) const;
  /// The same keys, read as another class.
  Config as(std::string model_type, std::string architecture) const;

  /// Throws Error at this key: the value is understood and wrong, or cannot be modelled.
  [[noreturn]] void fail_at(std::string_view key, const std::string& message) const;
  [[noreturn]] void refuse_at(std::string_view key, const std::string& message) const;
  /// Throws Error unless `divisor` divides the value of `key`.
  void require_divisible(std::string_view key, std::int64_t value, std::string_view divisor_key, std::int64_t divisor) const;

  /// Classes of a classification head: what was asked for, else "num_labels", else the entries of "id2label", else 2.
  std::int64_t labels() const;

  /// Keys of the config that nothing read and that matter. Throws Error when one is a misspelling of a key that was wanted.
  std::vector<std::string> unread_keys() const;

 private:
  /// What the object says of a key. Where it gives a value under both of its names, PretrainedConfig.__init__ sets its own fields first and
  /// then what else it was given, so the canonical name (attribute_map's) has the last word.
  std::optional<JsonValue> explicit_value(std::string_view key) const;
  JsonValue required(std::string_view key) const;
  std::string pointer(std::string_view key) const;

  JsonValue object_;
  std::string model_type_, name_, architecture_;
  bool of_checkpoint_;
  std::int64_t asked_labels_ = 0;
  std::optional<JsonValue> defaults_;                         // the row of models/defaults.json
  std::vector<std::pair<std::string, std::string>> aliases_;  // canonical name, the family's own
  mutable std::vector<std::string> wanted_;                   // keys asked for, to recognize misspellings
};

/// The class defaults and attribute maps that plimsoll ships.
class ConfigDefaults {
 public:
  static const ConfigDefaults& shipped();
  /// Object with "defaults" and perhaps "aliases", or nothing for an unknown model_type.
  std::optional<JsonValue> model_type(std::string_view name) const;
  /// Whether any type's config has a key: another's key that stands in a config is no slip of the pen.
  bool known_to_any(std::string_view key) const;
  /// Keys that have no influence on parameters, memory or time: token ids, generation, initialisation.
  bool immaterial(std::string_view key) const;
  /// Whether transformers has a class of a type that ends so: "ForSequenceClassification", "ForTokenClassification" …
  bool has_head(std::string_view model_type, std::string_view suffix) const;

 private:
  ConfigDefaults();
  JsonDocument document_;
  std::vector<std::string> immaterial_;
};

}  // namespace plimsoll::model
