#include "model/block_builder.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

bool starts_with(const std::string& text, const std::string& prefix) { return text.compare(0, prefix.size(), prefix) == 0; }

/// Index of the longest prefix that matches whole words of `name`.
std::size_t rank_of(const std::string& name, const std::vector<std::string>& prefixes) {
  const std::string* best = nullptr;
  for (const auto& prefix : prefixes) {
    const bool whole_word = name.size() <= prefix.size() || name[prefix.size()] == '.';
    if (starts_with(name, prefix) && whole_word && (best == nullptr || prefix.size() > best->size())) best = &prefix;
  }
  if (best == nullptr) throw Error(ErrorCode::internal, "the operator '" + name + "' has no place in its block's registration order");
  return static_cast<std::size_t>(best - prefixes.data());
}

}  // namespace

int BlockBuilder::add(Operator op, const std::vector<int>& from) {
  const int index = static_cast<int>(block_.operators.size());
  for (const int source : from) block_.edges.push_back({source, index});
  block_.operators.push_back(std::move(op));
  return index;
}

Block BlockBuilder::build(const std::vector<std::string>& registration) {
  if (registration.empty()) return std::move(block_);
  std::vector<std::pair<std::size_t, int>> ranked;
  for (std::size_t i = 0; i < block_.operators.size(); ++i)
    if (!block_.operators[i].parameters.empty()) ranked.emplace_back(rank_of(block_.operators[i].name, registration), static_cast<int>(i));
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [rank, index] : ranked) block_.registration.push_back(index);
  return std::move(block_);
}

}  // namespace plimsoll::model
