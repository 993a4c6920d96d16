#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>

#include "plimsoll/explain.hpp"

namespace plimsoll {
namespace {

/// "model.layers.7.mlp" as {"model.layers.", ".mlp"} and {7}.
struct Path {
  std::vector<std::string> texts{""};
  std::vector<std::int64_t> numbers;
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Whole components that are numbers; digits inside a name belong to the name.
Path split_path(const std::string& module) {
  constexpr std::size_t kMostDigits = 18;
  Path path;
  for (std::size_t at = 0; at <= module.size();) {
    const std::size_t dot = std::min(module.find('.', at), module.size());
    const std::string component = module.substr(at, dot - at);
    const bool number = !component.empty() && component.size() <= kMostDigits && std::all_of(component.begin(), component.end(), is_digit);
    if (number) {
      path.numbers.push_back(std::stoll(component));
      path.texts.emplace_back();
    } else {
      path.texts.back() += component;
    }
    if (dot < module.size()) path.texts.back() += '.';
    at = dot + 1;
  }
  return path;
}

/// {0, 1, 2, 5} as "0-2,5".
std::string ranges(const std::set<std::int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const std::int64_t first = *at;
    std::int64_t last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
  }
  return text;
}

struct Gathered {
  std::vector<std::set<std::int64_t>> numbers;
  std::int64_t count = 0;
  Bytes bytes, largest;
};

std::string joined(const std::vector<std::string>& texts, const std::vector<std::set<std::int64_t>>& numbers) {
  std::string module = texts.front();
  for (std::size_t i = 0; i < numbers.size(); ++i) module += ranges(numbers[i]) + texts[i + 1];
  return module;
}

}  // namespace

std::vector<PeakGroup> group_alive(const std::vector<LiveTensor>& alive) {
  using Key = std::tuple<Category, std::vector<std::string>, std::string>;
  std::map<Key, Gathered> gathered;
  for (const LiveTensor& tensor : alive) {
    const std::size_t colon = tensor.label.find(": ");
    const Path path = split_path(tensor.label.substr(0, colon));
    Gathered& group = gathered[{tensor.category, path.texts, colon == std::string::npos ? std::string() : tensor.label.substr(colon + 2)}];
    group.numbers.resize(path.numbers.size());
    for (std::size_t i = 0; i < path.numbers.size(); ++i) group.numbers[i].insert(path.numbers[i]);
    ++group.count;
    group.bytes += tensor.bytes;
    group.largest = std::max(group.largest, tensor.bytes);
  }
  std::vector<PeakGroup> groups;
  for (const auto& [key, group] : gathered)
    groups.push_back(
        {std::get<0>(key), joined(std::get<1>(key), group.numbers), std::get<2>(key), group.count, group.bytes, group.largest});
  std::stable_sort(groups.begin(), groups.end(), [](const PeakGroup& a, const PeakGroup& b) { return a.bytes > b.bytes; });
  return groups;
}

}  // namespace plimsoll
