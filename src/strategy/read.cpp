#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "plimsoll/error.hpp"
#include "strategy/setting.hpp"
#include "units/length.hpp"
#include "units/switches.hpp"

namespace plimsoll {
namespace strategy {

std::optional<bool> Setting::perhaps_truth() const {
  if (value.is_boolean()) return value.boolean();
  return value.is_text() ? switch_of(value.text()) : std::nullopt;
}

bool Setting::truth() const {
  const std::optional<bool> on = perhaps_truth();
  if (!on) value.expected(kSwitchWords);
  return *on;
}

std::int64_t Setting::whole(std::int64_t least, std::int64_t most) const {
  if (value.is_integer()) return value.integer(least, most);
  // DeepSpeed files write sizes as 5e8.
  const double number = value.number(static_cast<double>(least), static_cast<double>(most));
  if (number != std::floor(number) || number >= 9.2e18) value.expected("a whole number");
  return static_cast<std::int64_t>(number);
}

std::vector<std::string> Setting::words() const {
  std::vector<std::string> list;
  if (value.is_array()) {
    for (const JsonValue& element : value.elements()) list.push_back(element.text());
    return list;
  }
  const std::string& text = value.text();
  for (std::size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1) {
    comma = text.find(',', at);
    std::string word = text.substr(at, comma == std::string::npos ? comma : comma - at);
    word.erase(0, word.find_first_not_of(' '));
    word.erase(word.find_last_not_of(' ') + 1);
    if (word.empty()) value.expected("names separated by commas, none of them empty");
    list.push_back(std::move(word));
  }
  return list;
}

bool Setting::same_name(const std::string& text, const char* name) {
  auto plain = [](char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c))); };
  const std::string_view other(name);
  return text.size() == other.size() &&
         std::equal(text.begin(), text.end(), other.begin(), [&](char a, char b) { return plain(a) == plain(b); });
}

void Setting::agree(const void* field, bool agrees) const {
  const std::string* other = agrees ? nullptr : source_.key_of(field);
  if (other == nullptr || *other == key_) return;
  fail("disagrees with '" + *other + "', which says the same thing", value.where(), "give one of them");
}

namespace {

bool stands_for(const Entry& entry, const std::string& key) {
  const std::string_view pattern(entry.key);
  if (pattern.size() > 2 && pattern.substr(pattern.size() - 2) == ".*")
    return key.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
  return pattern == key;
}

const Entry* find_entry(const std::string& key) {
  for (const Entry& entry : entries())
    if (stands_for(entry, key)) return &entry;
  return nullptr;
}

bool has_entries_below(const std::string& key) {
  const std::string prefix = key + ".";
  return std::any_of(entries().begin(), entries().end(),
                     [&](const Entry& entry) { return std::string_view(entry.key).substr(0, prefix.size()) == prefix; });
}

/// The keys that may stand beside `prefix`…: "units", "root_unit" for "fsdp.".
std::vector<std::string> siblings(const std::string& prefix) {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    const std::string key = entry.key;
    if (key.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string name = key.substr(prefix.size(), key.find('.', prefix.size()) - prefix.size());
    if (name != "*" && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

/// Whether a key that nothing knows speaks of what is sharded or kept, and its value of doing so: beside a verdict it must not go unread.
bool changes_who_holds_what(const std::string& key, const JsonValue& value) {
  if (!value.is_number() && !value.is_boolean()) return false;
  if (value.is_boolean() ? !value.boolean() : value.number(-1e18, 1e18) <= 1) return false;
  for (const char* word : {"ulysses", "parallel", "shard", "zero", "offload", "recompute", "activation_checkpoint", "gradient_checkpoint",
                           "partition", "replica", "pipeline", "expert", "degree", "frozen", "freeze"})
    if (key.find(word) != std::string::npos) return true;
  return false;
}

void read_below(Strategy& s, const JsonValue& object, const std::string& prefix, Source& source) {
  for (const std::string& name : object.keys()) {
    const std::string key = prefix + name;
    const JsonValue value = object[name];
    const bool group = has_entries_below(key), branch = value.is_object() && group;
    const Entry* entry = branch ? nullptr : find_entry(key);
    if (branch) {
      read_below(s, value, key + ".", source);
    } else if ((entry != nullptr && entry->set == nullptr) || ((entry != nullptr || group) && value.is_null())) {
      value.mark_read();
    } else if (entry != nullptr) {
      Setting setting(s, value, key, source);
      entry->set(setting);
      source.set.push_back(key);
    } else {
      if (group) value.expected("an object of its keys");
      const std::string near = nearest_name(name, siblings(prefix));
      if (!near.empty()) fail("unknown key '" + name + "'", value.where(), "did you mean '" + near + "'?");
      if (changes_who_holds_what(key, value))
        refuse("'" + key + "' is not modelled, and changes what is sharded or kept", value.where(),
               "leave it out, or see `plimsoll frameworks` for what is");
      s.unread_keys.push_back(key);
    }
  }
}

/// Text of the command line as JSON: numbers, true, false and lists as they are, everything else as a string.
std::string as_json(const std::string& text, bool quote) {
  const bool word = text == "true" || text == "false" || (!text.empty() && (text.front() == '[' || text.front() == '{'));
  char* end = nullptr;
  const bool starts_as_number = !text.empty() && (std::isdigit(static_cast<unsigned char>(text.front())) != 0 || text.front() == '-');
  const bool number = starts_as_number && (std::strtod(text.c_str(), &end), end == text.c_str() + text.size());
  if (!quote && (word || number)) return text;
  std::string json = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return json + "\"";
}

/// The text of one key's value as JSON; of keys that count tokens "8k" is 8192.
std::string as_json(const Entry& entry, const std::string& text) {
  const auto length = std::string_view(entry.values) == "tokens" ? parse_length(text) : std::nullopt;
  return length ? std::to_string(*length) : as_json(text, entry.text);
}

/// A file whose keys all lie below one that nothing knows ("training", as rows have it) would say nothing.
void refuse_wrapped(const Strategy& s, const JsonValue& root) {
  for (const std::string& name : s.unread_keys) {
    if (!root.has(name) || !root[name].is_object()) continue;
    for (const std::string& key : root[name].keys())
      if (find_entry(key) || has_entries_below(key))
        fail("unknown key '" + name + "'", root[name].where(), "'" + key + "' stands at the top");
  }
}

std::vector<std::string> read_keys(Strategy& s, const JsonValue& object) {
  if (!object.is_object()) object.expected("an object");
  Source source;
  read_below(s, object, "", source);
  return std::move(source.set);
}

Strategy read_root(const JsonDocument& document) {
  Strategy s;
  s.file_keys = read_keys(s, document.root());
  refuse_wrapped(s, document.root());
  return s;
}

}  // namespace

void read_object(Strategy& s, const JsonValue& training) { read_keys(s, training); }

}  // namespace strategy

Strategy parse_strategy(const std::string& json, const std::string& where) { return strategy::read_root(JsonDocument::parse(json, where)); }

Strategy load_strategy(const std::string& path) { return strategy::read_root(JsonDocument::read_file(path)); }

namespace strategy {
namespace {

std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

/// One key from the text of a command line.
void set_from_text(Strategy& s, const std::string& key, const std::string& value, Source& source) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "deepspeed") {  // a DeepSpeed file, as its own launcher takes it
    const JsonDocument file = JsonDocument::read_file(value);
    read_below(s, file.root(), "deepspeed.", source);
    return;
  }
  const Entry* entry = find_entry(name);
  if (entry == nullptr) {
    std::vector<std::string> known;
    for (const auto& each : entries()) known.emplace_back(each.key);
    fail("unknown option '" + key + "'", {}, suggest(name, known));
  }
  if (entry->set == nullptr) return;
  const std::string flag = flag_of(key);  // errors name it as the command line spells it
  const JsonDocument document = JsonDocument::parse(as_json(*entry, value), flag);
  const JsonValue root = document.root();
  Setting setting(s, root, flag, source);
  entry->set(setting);
}

}  // namespace

void set_text(Strategy& s, const std::string& key, const std::string& value, const std::string& where, Source& source) {
  const Entry* entry = find_entry(key);
  if (entry == nullptr) {
    const std::size_t dot = key.rfind('.');
    const std::string near =
        nearest_name(key.substr(dot == std::string::npos ? 0 : dot + 1), siblings(key.substr(0, dot == std::string::npos ? 0 : dot + 1)));
    if (!near.empty()) fail("unknown key '" + key + "'", where, "did you mean '" + near + "'?");
    s.unread_keys.push_back(key);
    return;
  }
  if (entry->set == nullptr) return;
  const JsonDocument document = JsonDocument::parse(as_json(*entry, value), where);
  const JsonValue root = document.root();
  Setting setting(s, root, key, source);
  entry->set(setting);
}

}  // namespace strategy

void set_option(Strategy& s, const std::string& key, const std::string& value) {
  strategy::Source source;
  strategy::set_from_text(s, key, value, source);
}

void set_options(Strategy& s, const std::vector<std::pair<std::string, std::string>>& options) {
  strategy::Source source;
  for (const auto& [key, value] : options) strategy::set_from_text(s, key, value, source);
  s.options = options;
}

const std::vector<StrategyOption>& strategy_options() {
  static const std::vector<StrategyOption> options = [] {
    std::vector<StrategyOption> list;
    for (const auto& entry : strategy::entries())
      if (entry.set != nullptr) {
        const std::string meant = entry.short_for;
        list.push_back({entry.key, entry.values, meant.empty() ? entry.help : "short for " + meant, meant});
      }
    return list;
  }();
  return options;
}

}  // namespace plimsoll
