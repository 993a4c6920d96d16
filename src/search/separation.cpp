#include "search/separation.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace plimsoll::searching {
namespace {

const std::string* find(const Options& options, const char* key) {
  const auto found = std::find_if(options.begin(), options.end(), [&](const auto& each) { return each.first == key; });
  return found == options.end() ? nullptr : &found->second;
}

void replace(Options& options, const char* key, const std::string& value) {
  for (auto& [name, said] : options)
    if (name == key) said = value;
}

/// The values of the core: the first of each axis, "bf16" and "none" where those are among them.
class Bases {
 public:
  explicit Bases(const Space& space) {
    for (const SearchAxis& axis : space.axes()) {
      if (std::find(axis.values.begin(), axis.values.end(), std::string()) != axis.values.end()) continue;  // not said in some plans
      const auto among = [&](const char* value) { return std::find(axis.values.begin(), axis.values.end(), value) != axis.values.end(); };
      if (axis.key == "optimizer" || axis.key == "loss") base_[axis.key] = axis.values.front();
      if (axis.key == "precision" && among("bf16")) base_[axis.key] = "bf16";
      if (axis.key == "offload" && among("none")) base_[axis.key] = "none";
      if (axis.key == "recompute" && among("full")) least_memory_ = "full";
    }
  }

  /// What the options say of a part beside the core, in words; it is taken out of them.
  std::string take(std::size_t part, Options& options) const {
    if (part == Separation::loss) return taken(options, "loss", nullptr);
    if (part == Separation::half) return taken(options, "precision", "fp16");
    const std::string* where = find(options, "offload");
    return where != nullptr && *where == "optimizer" ? std::string() : taken(options, "optimizer", nullptr);
  }
  /// With nothing separated, and as little memory as there is.
  Options plainest(Options options) const {
    for (std::size_t part = 0; part < Separation::kParts; ++part) (void)take(part, options);
    for (const auto& [key, base] : base_) replace(options, key.c_str(), base);
    if (!least_memory_.empty()) replace(options, "recompute", least_memory_);
    return options;
  }

 private:
  /// Sets the key to its base and tells what it was; empty where it is the base, or not `only`, or has none.
  std::string taken(Options& options, const char* key, const char* only) const {
    const std::string* said = find(options, key);
    const auto base = base_.find(key);
    if (said == nullptr || base == base_.end() || *said == base->second || (only != nullptr && *said != only)) return {};
    std::string was = *said;
    replace(options, key, base->second);
    return was;
  }

  std::map<std::string, std::string> base_;
  std::string least_memory_;
};

/// `from`'s words for the part, all else as in `plain`.
Options with_part(std::size_t part, Options plain, const Options& from) {
  constexpr std::array<const char*, Separation::kParts> kKeys{"optimizer", "precision", "loss"};
  if (const std::string* said = find(from, kKeys[part])) replace(plain, kKeys[part], *said);
  return plain;
}

}  // namespace

Separation::Separation(const Space& space) {
  std::map<Options, std::uint64_t> numbers;
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting) numbers.emplace(space.setting_options(setting), setting);
  const Bases bases(space);
  std::map<Options, std::uint32_t> known;
  std::array<std::map<std::string, std::uint32_t>, kParts> words;
  for (std::size_t part = 0; part < kParts; ++part) values[part].push_back(numbers.at(bases.plainest(space.setting_options(0))));
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting) {
    const Options all = space.setting_options(setting);
    Options rest = all;
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::string word = bases.take(part, rest);
      if (word.empty()) {
        value[part].push_back(0);
        continue;
      }
      const auto [found, fresh] = words[part].emplace(word, static_cast<std::uint32_t>(values[part].size()));
      if (fresh) values[part].push_back(numbers.at(with_part(part, bases.plainest(all), all)));
      value[part].push_back(found->second);
    }
    const auto [found, fresh] = known.emplace(rest, static_cast<std::uint32_t>(cores.size()));
    if (fresh) cores.push_back(numbers.at(rest));
    core.push_back(found->second);
  }
}

}  // namespace plimsoll::searching
