// Methods of texts, lists and dictionaries.
#include <algorithm>

#include "code/iterators.hpp"
#include "code/library.hpp"

namespace plimsoll::code {

namespace {

const std::string& self_text(Bound& a) { return a[0].as<TextObject>()->text; }
SequenceObject& self_list(Bound& a) { return *a[0].as<SequenceObject>(); }
DictionaryObject& self_dictionary(Bound& a) { return *a[0].as<DictionaryObject>(); }

template <int (*kChange)(int)>
Value changed(Interpreter& i, Bound& a) {
  std::string made = self_text(a);
  std::transform(made.begin(), made.end(), made.begin(), [](unsigned char c) { return static_cast<char>(c < 0x80 ? kChange(c) : c); });
  return i.text(std::move(made));
}

template <bool kStart>
Value begins_or_ends(Interpreter& i, Bound& a) {
  const auto fits = [&](const Value& piece) {
    const std::string& words = i.words(piece, "prefixes");
    return kStart ? self_text(a).starts_with(words) : self_text(a).ends_with(words);
  };
  if (const auto* several = a[1].as<SequenceObject>())
    return Value::boolean(std::any_of(several->items.begin(), several->items.end(), fits));
  return Value::boolean(fits(a[1]));
}

Value split(Interpreter& i, Bound& a) {
  const std::string &text = self_text(a), separator = a.has(1) ? i.words(a[1], "separators") : std::string();
  if (a.has(1) && separator.empty()) i.raise("ValueError", "empty separator");
  std::int64_t left = a.has(2) ? i.whole(a[2], "splits") : -1;
  std::vector<Value> parts;
  i.step(static_cast<std::int64_t>(text.size() / 4));
  if (!a.has(1)) {
    for (std::size_t at = 0; (at = text.find_first_not_of(" \t\n", at)) != std::string::npos;) {
      const std::size_t end = std::min(text.find_first_of(" \t\n", at), text.size());
      parts.push_back(i.text(text.substr(at, end - at)));
      at = end;
    }
    return i.list(std::move(parts));
  }
  std::size_t start = 0;
  for (std::size_t at = text.find(separator); at != std::string::npos && left != 0; at = text.find(separator, start), --left) {
    parts.push_back(i.text(text.substr(start, at - start)));
    start = at + separator.size();
  }
  parts.push_back(i.text(text.substr(start)));
  return i.list(std::move(parts));
}

Value join(Interpreter& i, Bound& a) {
  std::string made;
  bool first = true;
  for (const Value& each : i.all_of(a[1])) {
    if (!first) made += self_text(a);
    made += i.words(each, "what is joined");
    first = false;
    if (made.size() > (std::size_t{1} << 22)) i.unknown("a text of more than 4 MiB");
  }
  return i.text(std::move(made));
}

Value replace(Interpreter& i, Bound& a) {
  const std::string &from = i.words(a[1], "replacements"), &to = i.words(a[2], "replacements"), &text = self_text(a);
  if (from.empty()) i.unknown("replacing nothing in a text");
  std::string made;
  std::size_t start = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, start)) {
    made.append(text, start, at - start).append(to);
    start = at + from.size();
    i.step(static_cast<std::int64_t>(to.size() / 16));
    if (made.size() > (std::size_t{1} << 22)) i.unknown("a text of more than 4 MiB");
  }
  return i.text(made.append(text, start));
}

template <bool kLeft, bool kRight>
Value strip(Interpreter& i, Bound& a) {
  const std::string characters = a.has(1) ? i.words(a[1], "characters") : " \t\n\r";
  std::string made = self_text(a);
  if (kLeft) made.erase(0, std::min(made.find_first_not_of(characters), made.size()));
  if (kRight) made.erase(made.find_last_not_of(characters) + 1);
  return i.text(std::move(made));
}

Value format(Interpreter& i, Bound& a) {
  const std::string& text = self_text(a);
  std::string made;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool doubled = at + 1 < text.size() && text[at + 1] == text[at] && (text[at] == '{' || text[at] == '}');
    if (doubled || text[at] != '{') {
      made += text[at];
      at += doubled ? 1 : 0;
      continue;
    }
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos) i.raise("ValueError", "expected '}' before end of string");
    const std::string inner = text.substr(at + 1, end - at - 1);
    const std::string name = inner.substr(0, inner.find(':')),
                      how = inner.find(':') == std::string::npos ? "" : inner.substr(inner.find(':') + 1);
    Value value;
    if (name.empty() && next < a.rest.size()) value = a.rest[next++];
    for (const auto& [keyword, given] : a.keyword_rest)
      if (i.names().text(keyword) == name) value = given;
    if (!name.empty() && name.size() < 4 && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      if (const std::size_t index = std::stoul(name); index < a.rest.size()) value = a.rest[index];
    if (!value.is_bound()) i.raise("IndexError", "Replacement index out of range");
    made += i.formatted(value, how);
    at = end;
  }
  return i.text(std::move(made));
}

Value position_in(Interpreter& i, Bound& a) {
  const auto& items = self_list(a).items;
  for (std::size_t at = 0; at < items.size(); ++at)
    if (i.equal(items[at], a[1])) return Value::integer(static_cast<std::int64_t>(at));
  i.raise("ValueError", i.written(a[1]) + " is not in list");
}

Value list_pop(Interpreter& i, Bound& a) {
  auto& items = self_list(a).items;
  const auto count = static_cast<std::int64_t>(items.size());
  std::int64_t at = a.has(1) ? i.whole(a[1], "indices") : -1;
  if (at < 0) at += count;
  if (at < 0 || at >= count) i.raise("IndexError", count == 0 ? "pop from empty list" : "pop index out of range");
  Value taken = std::move(items[static_cast<std::size_t>(at)]);
  i.step((count - at) / 8);
  items.erase(items.begin() + at);
  return taken;
}

Value list_insert(Interpreter& i, Bound& a) {
  auto& list = self_list(a);
  const auto count = static_cast<std::int64_t>(list.items.size());
  std::int64_t at = i.whole(a[1], "indices");
  if (at < 0) at = std::max<std::int64_t>(at + count, 0);
  i.step(count / 8);
  list.items.insert(list.items.begin() + std::min(at, count), a[2]);
  list.recount();
  return Value::none();
}

Value count_of(Interpreter& i, Bound& a) {
  std::int64_t count = 0;
  for (const Value& each : i.all_of(a[0])) count += i.equal(each, a[1]) ? 1 : 0;
  return Value::integer(count);
}

enum class Entries : std::uint8_t { keys, values, items };

template <Entries kWhat>
Value entries(Interpreter& i, Bound& a) {
  std::vector<Value> all;
  const auto& known = self_dictionary(a).entries();
  i.step(static_cast<std::int64_t>(known.size() / 4));
  for (const auto& entry : known) {
    if (!entry.key.is_bound()) continue;
    all.push_back(kWhat == Entries::keys ? entry.key : kWhat == Entries::values ? entry.value : i.tuple({entry.key, entry.value}));
  }
  return i.list(std::move(all));
}

Value dictionary_get(Interpreter&, Bound& a) {
  const Value* found = self_dictionary(a).find(a[1]);
  return found != nullptr ? *found : a[2].is_bound() ? a[2] : Value::none();
}

Value dictionary_pop(Interpreter& i, Bound& a) {
  Value taken = self_dictionary(a).take(a[1]);
  if (taken.is_bound()) return taken;
  if (a[2].is_bound()) return a[2];
  i.raise("KeyError", i.written(a[1]));
}

Value dictionary_setdefault(Interpreter&, Bound& a) {
  auto& dictionary = self_dictionary(a);
  if (const Value* found = dictionary.find(a[1])) return *found;
  Value value = a[2].is_bound() ? a[2] : Value::none();
  dictionary.set(a[1], value);
  return value;
}

Value dictionary_update(Interpreter& i, Bound& a) {
  auto& dictionary = self_dictionary(a);
  if (a.has(1)) {
    if (const auto* other = a[1].as<DictionaryObject>()) {
      const Value held = a[1];
      if (other != &dictionary)
        for (const auto& entry : other->entries())
          if (entry.key.is_bound()) dictionary.set(entry.key, entry.value);
    } else {
      for (const Value& each : i.all_of(a[1])) {
        if (dictionary.is_set) {
          dictionary.set(each, Value::none());
          continue;
        }
        const std::vector<Value> pair = i.all_of(each);
        if (pair.size() != 2) i.raise("ValueError", "dictionary update sequence element is no pair");
        dictionary.set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : a.keyword_rest) dictionary.set(i.text(i.names().text(name)), value);
  return Value::none();
}

Value copied(Interpreter& i, Bound& a) {
  if (const auto* sequence = a[0].as<SequenceObject>()) return i.list(sequence->items);
  auto& from = self_dictionary(a);
  Value made(new DictionaryObject(i.heap(), from.is_set));
  for (const auto& entry : from.entries())
    if (entry.key.is_bound()) made.as<DictionaryObject>()->set(entry.key, entry.value);
  return made;
}

enum class Of : std::uint8_t { text, list, dictionary };

/// The members of one that the other has, or those that it has not.
std::vector<Value> members(Interpreter& i, const Value& of, const Value& other, bool shared) {
  std::vector<Value> found;
  for (Value& each : i.all_of(of))
    if (i.contains(other, each) == shared) found.push_back(std::move(each));
  return found;
}

Value set_of(Interpreter& i, std::vector<Value> items) {
  Value made(new DictionaryObject(i.heap(), true));
  for (const Value& each : items) made.as<DictionaryObject>()->set(each, Value::none());
  return made;
}

struct Method {
  Of of;
  const char *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

constexpr Method kMethods[] = {
    {Of::text, "lower", "self", changed<std::tolower>},
    {Of::text, "upper", "self", changed<std::toupper>},
    {Of::text, "startswith", "self, prefix", begins_or_ends<true>},
    {Of::text, "endswith", "self, suffix", begins_or_ends<false>},
    {Of::text, "split", "self, sep=, maxsplit=", split},
    {Of::text, "join", "self, iterable", join},
    {Of::text, "replace", "self, old, new", replace},
    {Of::text, "strip", "self, chars=", strip<true, true>},
    {Of::text, "lstrip", "self, chars=", strip<true, false>},
    {Of::text, "rstrip", "self, chars=", strip<false, true>},
    {Of::text, "format", "self, *args, **kwargs", format},
    {Of::text, "isdigit", "self",
     [](Interpreter&, Bound& a) {
       const std::string& text = self_text(a);
       return Value::boolean(!text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }));
     }},
    {Of::text, "find", "self, piece",
     [](Interpreter& i, Bound& a) {
       const std::size_t at = self_text(a).find(i.words(a[1], "pieces"));
       return Value::integer(at == std::string::npos ? -1 : static_cast<std::int64_t>(at));
     }},
    {Of::list, "append", "self, value", [](Interpreter&, Bound& a) { return self_list(a).append(a[1]), Value::none(); }},
    {Of::list, "extend", "self, iterable",
     [](Interpreter& i, Bound& a) {
       for (Value& each : i.all_of(a[1])) self_list(a).append(std::move(each));
       return Value::none();
     }},
    {Of::list, "insert", "self, index, value", list_insert},
    {Of::list, "pop", "self, index=", list_pop},
    {Of::list, "index", "self, value", position_in},
    {Of::list, "count", "self, value", count_of},
    {Of::list, "copy", "self", copied},
    {Of::list, "reverse", "self",
     [](Interpreter&, Bound& a) { return std::reverse(self_list(a).items.begin(), self_list(a).items.end()), Value::none(); }},
    {Of::list, "numel", "self",
     [](Interpreter& i, Bound& a) {
       Value product = Value::integer(1);
       for (const Value& each : self_list(a).items) product = i.binary(Operator::multiply, product, each);
       return product;
     }},
    {Of::dictionary, "keys", "self", entries<Entries::keys>},
    {Of::dictionary, "values", "self", entries<Entries::values>},
    {Of::dictionary, "items", "self", entries<Entries::items>},
    {Of::dictionary, "get", "self, key, default=", dictionary_get},
    {Of::dictionary, "pop", "self, key, default=", dictionary_pop},
    {Of::dictionary, "setdefault", "self, key, default=", dictionary_setdefault},
    {Of::dictionary, "update", "self, other=, **kwargs", dictionary_update},
    {Of::dictionary, "copy", "self", copied},
    {Of::dictionary, "isdisjoint", "self, other",
     [](Interpreter& i, Bound& a) { return Value::boolean(members(i, a[0], a[1], true).empty()); }},
    {Of::dictionary, "issubset", "self, other",
     [](Interpreter& i, Bound& a) { return Value::boolean(members(i, a[0], a[1], false).empty()); }},
    {Of::dictionary, "issuperset", "self, other",
     [](Interpreter& i, Bound& a) { return Value::boolean(members(i, a[1], a[0], false).empty()); }},
    {Of::dictionary, "difference", "self, other", [](Interpreter& i, Bound& a) { return set_of(i, members(i, a[0], a[1], false)); }},
    {Of::dictionary, "intersection", "self, other", [](Interpreter& i, Bound& a) { return set_of(i, members(i, a[0], a[1], true)); }},
    {Of::dictionary, "union", "self, other",
     [](Interpreter& i, Bound& a) {
       std::vector<Value> all = i.all_of(a[0]);
       for (Value& each : i.all_of(a[1])) all.push_back(std::move(each));
       return set_of(i, std::move(all));
     }},
    {Of::dictionary, "discard", "self, value", [](Interpreter&, Bound& a) { return (void)self_dictionary(a).take(a[1]), Value::none(); }},
    {Of::dictionary, "add", "self, value",
     [](Interpreter&, Bound& a) { return self_dictionary(a).set(a[1], Value::none()), Value::none(); }},
};

bool is_of_sets(std::string_view name) {
  for (const std::string_view each : {"isdisjoint", "issubset", "issuperset", "difference", "intersection", "union", "discard"})
    if (name == each) return true;
  return false;
}

/// Whether the value has that method.
bool fits(const Method& method, const Value& of) {
  const auto* sequence = of.as<SequenceObject>();
  const auto* dictionary = of.as<DictionaryObject>();
  const std::string_view name = method.name;
  switch (method.of) {
    case Of::text:
      return of.as<TextObject>() != nullptr;
    case Of::list:
      if (sequence == nullptr) return false;
      if (name == "numel") return sequence->kind == SequenceObject::Kind::size;
      return sequence->is_list() || name == "index" || name == "count";
    case Of::dictionary:
      if (dictionary == nullptr) return false;
      return dictionary->is_set ? name == "add" || name == "update" || name == "copy" || is_of_sets(name) : name != "add" && !is_of_sets(name);
  }
  return false;
}

}  // namespace

Value method_of_builtin(Interpreter& i, const Value& of, Symbol name) {
  const std::string& wanted = i.names().text(name);
  for (const Method& method : kMethods) {
    if (wanted != method.name || !fits(method, of)) continue;
    return Value(new BoundMethodObject(i.heap(), of, i.method(method.name, method.signature, method.run)));
  }
  return {};
}

std::vector<std::string> builtin_methods(const Value& of) {
  std::vector<std::string> names;
  for (const Method& method : kMethods)
    if (fits(method, of)) names.emplace_back(method.name);
  return names;
}

}  // namespace plimsoll::code
