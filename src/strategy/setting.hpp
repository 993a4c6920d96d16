// One value on its way into a field of a Strategy: typed, range-checked, and compared with what the same text or command line said before.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "strategy/names.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::strategy {

/// Which fields one text, or one command line, has set, and by which key: another key that says otherwise is a contradiction.
class Source {
 public:
  /// The key that set the field; nullptr: none.
  const std::string* key_of(const void* field) const {
    const auto found = keys_.find(field);
    return found == keys_.end() ? nullptr : &found->second;
  }
  void note(const void* field, const std::string& key) { keys_[field] = key; }
  void forget(const void* field) { keys_.erase(field); }
  /// The keys of a text that were set, in its order.
  std::vector<std::string> set;

 private:
  std::map<const void*, std::string> keys_;
};

class Setting {
 public:
  Strategy& s;
  const JsonValue& value;

  /// `key` as the text spells it; `source` has seen the text's other keys, and `strategy` must not move while it lives.
  Setting(Strategy& strategy, const JsonValue& json, std::string key, Source& source)
      : s(strategy), value(json), key_(std::move(key)), source_(source) {}

  /// The same of a value within this one.
  Setting at(const JsonValue& inner) const { return Setting(s, inner, key_, source_); }

  /// A whole number of at least 1, written as 8 or 5e8.
  void count(int& field) { put(field, static_cast<int>(whole(1, kMostRanks))); }
  void count(std::int64_t& field) { put(field, whole(1, kMostTokens)); }
  /// A whole number from 0 on that replaces the field's usual value.
  void size(std::int64_t& field) { put(field, whole(0, INT64_MAX / 2)); }
  void flag(bool& field) { put(field, truth()); }
  void flag(std::optional<bool>& field) { put(field, std::optional<bool>(truth())); }
  void name(std::string& field) { put(field, value.text()); }
  void type(std::optional<DType>& field) { put(field, std::optional<DType>(named(dtype_names()))); }
  /// A list of names: ["a", "b"] or "a,b".
  void list(std::vector<std::string>& field) { put(field, words()); }

  /// One of `names`. Where synonyms mean more than the field says, a message names all of `listed` instead of the first names.
  template <class Enum>
  void choice(Enum& field, const Names<Enum>& names, const char* listed = nullptr) {
    put(field, named(names, listed));
  }
  /// One of a few words that a framework knows.
  void word(std::string& field, std::initializer_list<const char*> known) {
    Names<const char*> names;
    for (const char* each : known) names.push_back({each, each});
    put(field, std::string(named(names)));
  }
  /// A value already understood. Throws Error where another key of the same source said otherwise.
  template <class T>
  void put(T& field, T said) {
    if (field != said) agree(&field, false);
    field = std::move(said);
    source_.note(&field, key_);
  }
  /// Whether a key of the same source set the field.
  template <class T>
  bool said(const T& field) const {
    return source_.key_of(&field) != nullptr;
  }
  /// The key as the text spells it.
  const std::string& key() const { return key_; }
  /// Notes that this key set what `field` stands for.
  void note(const void* field) { source_.note(field, key_); }
  /// Throws Error, naming both keys, where another key of the same source set the field and they do not `agree`.
  void agree(const void* field, bool agrees) const;
  /// What was said of the field stands for nothing: another key says it better.
  template <class T>
  void retract(T& field, T unsaid) {
    field = unsaid;
    source_.forget(&field);
  }

  /// A switch, as people write one ("on", "no"). Throws Error for what is none.
  bool truth() const;
  /// The same where other values are possible too.
  std::optional<bool> perhaps_truth() const;
  std::int64_t whole(std::int64_t least, std::int64_t most) const;
  std::vector<std::string> words() const;
  /// The value of that name; a remark in parentheses behind the name is ignored: "flash (torch SDPA)".
  template <class Enum>
  Enum named(const Names<Enum>& names, const char* listed = nullptr) const {
    const std::string text = value.text();
    for (const std::string& candidate : {text, without_remark(text)})
      for (const auto& entry : names)
        if (same_name(candidate, entry.name)) return entry.value;
    value.expected("one of " + (listed ? std::string(listed) : list_of(names)));
  }

 private:
  static constexpr std::int64_t kMostRanks = 1 << 24, kMostTokens = std::int64_t{1} << 40;

  static std::string without_remark(const std::string& text) { return text.substr(0, text.find(" (")); }
  /// Equal up to case and the kind of dash.
  static bool same_name(const std::string& text, const char* name);

  std::string key_;
  Source& source_;
};

/// One key of a strategy.
struct Entry {
  const char* key;     ///< "fsdp.units"
  const char* values;  ///< for people: "none, full" or a unit
  const char* help;
  void (*set)(Setting&);       ///< nullptr: the key is known and changes nothing of memory or time
  bool text = false;           ///< the value is text even where it looks like a number
  const char* short_for = "";  ///< the key that this one is another name of
};

/// All keys; a key that ends in ".*" stands for everything below it.
const std::vector<Entry>& entries();

/// Reads all keys of the object `training` into `s`. Keys that nothing knows go to `s.unread_keys`; near-misses throw.
void read_object(Strategy& s, const JsonValue& training);

/// Sets one key from text, as `set_option` does; `where` names the place in errors and `source` the keys that the same run has set.
void set_text(Strategy& s, const std::string& key, const std::string& value, const std::string& where, Source& source);

}  // namespace plimsoll::strategy
