// Settings put into a command line, and the search for the largest that fits.
#include "plimsoll/variants.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kMostVariants = 1000;
constexpr int kMostGuesses = 3;  // that did not close the interval, before it is halved
constexpr std::int64_t kMostNumber = std::int64_t{1} << 40;

bool replace_all(std::string* text, const std::string& what, const std::string& by) {
  bool found = false;
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + by.size())) {
    text->replace(at, what.size(), by);
    found = true;
  }
  return found;
}

}  // namespace

VariedKey parse_varied_key(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    fail("'" + text + "' names no values", "--vary", "KEY=VALUE,VALUE,…, and {KEY} in the command line");
  VariedKey varied{text.substr(0, equals), {}};
  for (std::size_t from = equals + 1; from <= text.size();) {
    const std::size_t comma = std::min(text.find(',', from), text.size());
    const std::string value = text.substr(from, comma - from);
    if (std::find(varied.values.begin(), varied.values.end(), value) != varied.values.end())
      fail(fmt::format("'{}' has the value '{}' twice", varied.key, value), "--vary");
    varied.values.push_back(value);
    from = comma + 1;
  }
  return varied;
}

std::vector<Settings> combinations_of(const std::vector<VariedKey>& keys) {
  std::set<std::string> seen;
  std::vector<Settings> all{{}};
  for (const VariedKey& varied : keys) {
    if (!seen.insert(varied.key).second) fail("'" + varied.key + "' is given twice", "--vary", "list its values behind one another");
    std::vector<Settings> more;
    for (const Settings& before : all)
      for (const std::string& value : varied.values) {
        more.push_back(before);
        more.back().emplace_back(varied.key, value);
        if (more.size() > kMostVariants) fail(fmt::format("more than {} combinations", kMostVariants), "--vary");
      }
    all = std::move(more);
  }
  return all;
}

std::vector<std::string> with_settings(const std::vector<std::string>& words, const Settings& settings) {
  std::vector<std::string> filled = words;
  for (const auto& [key, value] : settings) {
    bool found = false;
    std::vector<std::string> kept;
    for (std::string& word : filled) {
      const bool here = replace_all(&word, "{" + key + "}", value);
      found |= here;
      if (!here || !word.empty()) kept.push_back(std::move(word));
    }
    if (!found)
      fail(fmt::format("no word of the command has {{{}}}", key), "--vary " + key, "put it where its values belong: --batch-size {" + key + "}");
    filled = std::move(kept);
  }
  return filled;
}

std::optional<std::int64_t> LargestSearch::next() const {
  if (fitting_.empty()) return too_large_ && *too_large_ <= least_ ? std::nullopt : std::optional(least_);
  const std::int64_t known = fitting_.back().number;
  if ((too_large_ && *too_large_ == known + 1) || (most_ > 0 && known >= most_) || known >= kMostNumber) return {};
  return guess();
}

/// Where the line through the two largest that fit meets the capacity; one beyond where that has been tried. Without two, twice as many.
std::int64_t LargestSearch::guess() const {
  const Trial& last = fitting_.back();
  const std::int64_t bound = too_large_ ? *too_large_ - 1 : most_ > 0 ? most_ : std::min(kMostNumber, 16 * last.number);
  std::int64_t wanted = 2 * last.number;
  if (too_large_ && guesses_ >= kMostGuesses) return std::clamp(last.number + (*too_large_ - last.number) / 2, last.number + 1, bound);
  if (fitting_.size() > 1) {
    const Trial& before = fitting_[fitting_.size() - 2];
    const double slope = (last.bytes - before.bytes) / static_cast<double>(last.number - before.number);
    if (slope > 0)
      wanted = last.number + static_cast<std::int64_t>(std::min((last.capacity - last.bytes) / slope, static_cast<double>(kMostNumber)));
  }
  return std::clamp(wanted, last.number + 1, bound);
}

void LargestSearch::tried(std::int64_t number, bool fits, Bytes device, Bytes capacity) {
  const std::int64_t low = fitting_.empty() ? 0 : fitting_.back().number;
  if (fits && number > low) fitting_.push_back({number, static_cast<double>(device.count), static_cast<double>(capacity.count)});
  if (!fits) too_large_ = too_large_ ? std::min(*too_large_, number) : number;
  guesses_ = guesses_ >= kMostGuesses ? 0 : guesses_ + 1;
}

std::vector<std::size_t> front_of(const std::vector<RehearsedVariant>& variants) {
  const bool tokens = std::all_of(variants.begin(), variants.end(), [](const auto& each) { return !each.fits() || each.tokens_per_second > 0; });
  const auto speed = [&](const RehearsedVariant& each) { return tokens ? each.tokens_per_second : -each.step.value; };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const bool beaten = std::any_of(variants.begin(), variants.end(), [&](const RehearsedVariant& other) {
      const bool no_worse = other.fits() && speed(other) >= speed(variants[i]) && other.left() >= variants[i].left();
      return no_worse && (speed(other) > speed(variants[i]) || other.left() > variants[i].left());
    });
    if (variants[i].fits() && !beaten) front.push_back(i);
  }
  std::stable_sort(front.begin(), front.end(), [&](std::size_t a, std::size_t b) { return speed(variants[a]) > speed(variants[b]); });
  return front;
}

}  // namespace plimsoll
