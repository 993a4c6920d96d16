#include "code/objects.hpp"

#include <algorithm>
#include <cmath>

#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

constexpr std::int64_t kEntryBytes = 96;  ///< of an entry with its place

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) { return (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) * 0x100000001b3ULL; }

}  // namespace

namespace {

constexpr int kMostKeyDepth = 50, kMostKeyParts = 10'000;  ///< of a tuple that is a key

std::uint64_t hash_within(const Value& key, int depth, int& parts) {
  if (depth > kMostKeyDepth || ++parts > kMostKeyParts) refuse("a key of a dictionary of so many parts");
  if (key.is_real() && key.as_real() == std::floor(key.as_real()) && std::abs(key.as_real()) < 0x1p62)
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(key.as_real())) * 0x9e3779b97f4a7c15ULL;
  if (key.is_integer()) return static_cast<std::uint64_t>(key.as_integer()) * 0x9e3779b97f4a7c15ULL;
  if (key.is_real()) return std::hash<double>()(key.as_real());
  if (!key.is_object()) return static_cast<std::uint64_t>(key.tag());
  if (const auto* text = key.as<TextObject>()) return std::hash<std::string>()(text->text);
  if (const auto* sequence = key.as<SequenceObject>(); sequence != nullptr) {
    if (sequence->is_list()) fail("TypeError: unhashable type: 'list'");
    std::uint64_t hash = sequence->items.size();
    for (const Value& item : sequence->items) hash = mixed(hash, hash_within(item, depth + 1, parts));
    return hash;
  }
  if (key.as<DictionaryObject>() != nullptr) fail("TypeError: unhashable type: 'dict'");
  return std::hash<Object*>()(key.object());
}

}  // namespace

std::uint64_t hash_of(const Value& key) {
  int parts = 0;
  return hash_within(key, 0, parts);
}

bool equal_keys(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.as_integer() == b.as_integer() : a.as_real() == b.as_real();
  if (const auto* text = a.as<TextObject>()) {
    const auto* other = b.as<TextObject>();
    return other != nullptr && text->text == other->text;
  }
  if (const auto* sequence = a.as<SequenceObject>()) {
    const auto* other = b.as<SequenceObject>();
    return other != nullptr && sequence->is_list() == other->is_list() &&
           std::equal(sequence->items.begin(), sequence->items.end(), other->items.begin(), other->items.end(), equal_keys);
  }
  return a.same(b);
}

std::size_t DictionaryObject::position(const Value& key, std::uint64_t hash) const {
  const auto [first, last] = places_.equal_range(hash);
  for (auto each = first; each != last; ++each)
    if (equal_keys(entries_[each->second].key, key)) return each->second;
  return entries_.size();
}

Value* DictionaryObject::find(const Value& key) {
  const std::size_t at = position(key, hash_of(key));
  return at == entries_.size() ? nullptr : &entries_[at].value;
}

void DictionaryObject::set(const Value& key, Value value) {
  const std::uint64_t hash = hash_of(key);
  const std::size_t at = position(key, hash);
  if (at < entries_.size()) {
    entries_[at].value = std::move(value);
    return;
  }
  heap_.charge(kEntryBytes);
  charged_ += kEntryBytes;
  places_.emplace(hash, at);
  entries_.push_back({key, std::move(value)});
  ++known_;
}

Value DictionaryObject::take(const Value& key) {
  const std::uint64_t hash = hash_of(key);
  const auto [first, last] = places_.equal_range(hash);
  for (auto each = first; each != last; ++each) {
    Entry& entry = entries_[each->second];
    if (!equal_keys(entry.key, key)) continue;
    places_.erase(each);
    --known_;
    entry.key = Value();
    return std::move(entry.value);
  }
  return {};
}

void DictionaryObject::clear() {
  places_.clear();
  known_ = 0;
  entries_.clear();
}

std::int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

void Attributes::set(Symbol name, Value value) {
  constexpr std::size_t kMost = 1'000;
  if (Value* known = find(name)) {
    *known = std::move(value);
    return;
  }
  if (items.size() >= kMost) refuse("an object or class of more than " + std::to_string(kMost) + " attributes");
  items.emplace_back(name, std::move(value));
}

bool Attributes::erase(Symbol name) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == name; });
  if (found == items.end()) return false;
  const Value kept = std::move(found->second);  // dies when the list is whole again
  items.erase(found);
  return true;
}

bool ClassObject::derives_from(const ClassObject* other) const { return std::find(order.begin(), order.end(), other) != order.end(); }

Value* ClassObject::find(Symbol wanted, const ClassObject* behind) {
  auto each = order.begin();
  if (behind != nullptr) {
    each = std::find(order.begin(), order.end(), behind);
    if (each != order.end()) ++each;
  }
  for (; each != order.end(); ++each)
    if (Value* found = (*each)->attributes.find(wanted)) return found;
  return nullptr;
}

}  // namespace plimsoll::code
