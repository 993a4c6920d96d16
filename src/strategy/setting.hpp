// One value on its way into a field of a Strategy: typed, range-checked, and compared with what the same text said before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "strategy/names.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::strategy {

class Setting {
 public:
  Strategy& s;
  const JsonValue& value;

  /// `replace`: a later value wins (command line over file); otherwise two keys of one text that disagree are an error.
  Setting(Strategy& strategy, const JsonValue& json, bool replace) : s(strategy), value(json), replace_(replace) {}

  /// A whole number of at least 1, written as 8 or 5e8; a field of 0 was not said before.
  void count(int& field) { field = checked(field, 0, static_cast<int>(whole(1, kMostRanks))); }
  void count(std::int64_t& field) { field = checked(field, std::int64_t{0}, whole(1, kMostTokens)); }
  /// A whole number from 0 on that replaces the field's usual value.
  void size(std::int64_t& field) { field = whole(0, INT64_MAX / 2); }
  void flag(bool& field) { field = value.boolean(); }
  void flag(std::optional<bool>& field) { field = agreed(field, value.boolean()); }
  void name(std::string& field) { field = value.text(); }
  void type(std::optional<DType>& field) { field = agreed(field, named(dtype_names())); }
  /// A list of names: ["a", "b"] or "a,b".
  void list(std::vector<std::string>& field) { field = words(); }

  /// One of `names`. Where synonyms mean more than the field says, a message names all of `listed` instead of the first names.
  template <class Enum>
  void choice(Enum& field, const Names<Enum>& names, const char* listed = nullptr) {
    field = checked(field, Enum::automatic, named(names, listed));
  }
  /// A value already understood, for a field whose `unsaid` means that nothing was said.
  template <class T>
  void set(T& field, T unsaid, T said) {
    field = checked(field, unsaid, said);
  }

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

  template <class T>
  T checked(T before, T unsaid, T said) const {
    if (!replace_ && before != unsaid && before != said) disagree();
    return said;
  }
  template <class T>
  T agreed(const std::optional<T>& before, T said) const {
    if (!replace_ && before && *before != said) disagree();
    return said;
  }
  [[noreturn]] void disagree() const;

  bool replace_;
};

/// One key of a strategy.
struct Entry {
  const char* key;     ///< "fsdp.units"
  const char* values;  ///< for people: "none, full" or a unit
  const char* help;
  void (*set)(Setting&);  ///< nullptr: the key is known and changes nothing of memory or time
  bool text = false;      ///< the value is text even where it looks like a number
};

/// All keys; a key that ends in ".*" stands for everything below it.
const std::vector<Entry>& entries();

/// Reads all keys of the object `training` into `s`. Keys that nothing knows go to `s.unread_keys`; near-misses throw.
void read_object(Strategy& s, const JsonValue& training, bool replace);

}  // namespace plimsoll::strategy
