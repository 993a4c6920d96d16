#include "trace/align.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>

namespace plimsoll::trace {
namespace {

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// Differences that are followed before the rest is left to the class and the keys: memory grows with their square.
constexpr int kMostDifferences = 4000;

/// Numbers for keys; pieces without one get a number that the other side has not.
std::vector<int> numbered(const std::vector<Piece>& list, std::unordered_map<std::string, int>& numbers, int without) {
  std::vector<int> found;
  for (const Piece& piece : list)
    found.push_back(piece.key.empty() ? without : numbers.try_emplace(piece.key, static_cast<int>(numbers.size())).first->second);
  return found;
}

/// The pairs of a longest common subsequence, by Myers' greedy algorithm; of its beginning where there are too many differences.
Pairs common(const std::vector<int>& a, const std::vector<int>& b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size()), most = std::min(n + m, kMostDifferences);
  std::vector<int> furthest(static_cast<std::size_t>(2 * most + 3), 0);
  const auto at = [&](std::vector<int>& v, int k) -> int& { return v[static_cast<std::size_t>(k + most + 1)]; };
  std::vector<std::vector<int>> trail;  // of every number of differences: the furthest x of diagonals −d … d
  int d = 0, end_k = 0;
  for (bool reached = false; d <= most && !reached; ++d) {
    trail.emplace_back(furthest.begin() + (most + 1 - d), furthest.begin() + (most + 2 + d));
    for (int k = -d; k <= d && !reached; k += 2) {
      int x = k == -d || (k != d && at(furthest, k - 1) < at(furthest, k + 1)) ? at(furthest, k + 1) : at(furthest, k - 1) + 1;
      while (x < n && x - k < m && a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(x - k)]) ++x;
      at(furthest, k) = x;
      if (x >= n && x - k >= m) reached = true, end_k = k;
    }
    if (d == most && !reached) {  // as far as it went
      for (int k = -d; k <= d; k += 2)
        if (at(furthest, k) + at(furthest, k) - k > at(furthest, end_k) + at(furthest, end_k) - end_k && at(furthest, k) <= n && at(furthest, k) - k <= m) end_k = k;
    }
  }
  Pairs pairs;
  int x = std::min(at(furthest, end_k), n), k = end_k;
  for (int step = static_cast<int>(trail.size()) - 1; step >= 0; --step) {
    const auto before = [&](int diagonal) { return std::abs(diagonal) > step ? -1 : trail[static_cast<std::size_t>(step)][static_cast<std::size_t>(diagonal + step)]; };
    const bool down = k == -step || (k != step && before(k - 1) < before(k + 1));
    const int from_k = down ? k + 1 : k - 1, from_x = step == 0 ? 0 : before(from_k);
    const int begun = step == 0 ? 0 : down ? from_x : from_x + 1;
    for (; x > begun; --x)
      if (x - k >= 1) pairs.emplace_back(static_cast<std::size_t>(x - 1), static_cast<std::size_t>(x - 1 - k));
    x = from_x;
    k = from_k;
  }
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

/// Between two pairs: what is of one class, in order, where one of the two has no key.
void pair_by_class(const std::vector<Piece>& a, const std::vector<Piece>& b, Pairs& pairs) {
  Pairs more;
  std::size_t from_a = 0, from_b = 0;
  Pairs bounds = pairs;
  bounds.emplace_back(a.size(), b.size());
  for (const auto& [to_a, to_b] : bounds) {
    std::size_t j = from_b;
    for (std::size_t i = from_a; i < to_a; ++i) {
      std::size_t at = j;
      while (at < to_b && !(b[at].kind == a[i].kind && (a[i].key.empty() || b[at].key.empty()))) ++at;
      if (at == to_b) continue;
      more.emplace_back(i, at);
      j = at + 1;
    }
    from_a = to_a + 1;
    from_b = to_b + 1;
  }
  pairs.insert(pairs.end(), more.begin(), more.end());
}

/// Equal keys that no pair has, each with the next of the other side.
void pair_the_moved(const std::vector<Piece>& a, const std::vector<Piece>& b, Pairs& pairs) {
  std::vector<bool> paired_a(a.size()), paired_b(b.size());
  for (const auto& [i, j] : pairs) paired_a[i] = paired_b[j] = true;
  std::map<std::string, std::deque<std::size_t>> left;
  for (std::size_t j = 0; j < b.size(); ++j)
    if (!paired_b[j] && !b[j].key.empty()) left[b[j].key].push_back(j);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (paired_a[i] || a[i].key.empty()) continue;
    const auto found = left.find(a[i].key);
    if (found == left.end() || found->second.empty()) continue;
    pairs.emplace_back(i, found->second.front());
    found->second.pop_front();
  }
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> align(const std::vector<Piece>& a, const std::vector<Piece>& b) {
  std::unordered_map<std::string, int> numbers;
  const std::vector<int> keys_a = numbered(a, numbers, -1), keys_b = numbered(b, numbers, -2);
  Pairs pairs = common(keys_a, keys_b);
  pair_by_class(a, b, pairs);
  pair_the_moved(a, b, pairs);
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace plimsoll::trace
