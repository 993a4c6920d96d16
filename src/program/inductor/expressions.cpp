#include "program/inductor/expressions.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace plimsoll::program::inductor {

std::int64_t product_of(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<std::int64_t> in_a_row(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

View whole_view(const Dims& sizes) { return {listed(sizes), in_a_row(listed(sizes)), 0}; }

std::size_t hash_of(const View& view) {
  std::size_t hash = 0;
  const auto add = [&](std::int64_t value) { hash = hash * 1000003U + static_cast<std::size_t>(value) + 1; };
  for (std::size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.sizes[i] == 1) continue;
    add(view.sizes[i]), add(view.strides[i]);
  }
  add(view.offset);
  return hash;
}

namespace {

/// The strides under a view that has the same dimensions in another order; none where it is another view.
std::optional<std::vector<std::int64_t>> permuted(const std::vector<std::int64_t>& strides, const std::vector<std::int64_t>& sizes,
                                                  const std::vector<std::int64_t>& places, const View& view) {
  if (view.offset != 0 || product_of(view.sizes) != product_of(sizes)) return std::nullopt;
  std::vector<std::int64_t> order;
  for (std::size_t k = 0; k < view.sizes.size(); ++k) {
    std::size_t i = 0;
    while (view.sizes[k] != 1 && i < sizes.size() && (sizes[i] != view.sizes[k] || places[i] != view.strides[k])) ++i;
    if (view.sizes[k] != 1 && i == sizes.size()) return std::nullopt;
    order.push_back(view.sizes[k] == 1 ? 0 : strides[i]);
  }
  return order;
}

/// Whether the load goes through a buffer as the loops go.
bool goes_in_a_row(const Load& load, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& places) {
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1 && load.strides[i] != places[i]) return false;
  return load.way == 0;
}

/// The view's dimensions in terms of the loops beneath: each begins in one of them, goes `width` there in a step, and on through those
/// around it, which the load must go through as through one.
class Steps {
 public:
  Steps(const Load& load, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& places, std::int64_t offset)
      : load_(load), sizes_(sizes), places_(places), most_(sizes.size()), start_(offset), told_(load.way == 0), offset_(load.offset) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      most_[i] = offset / places[i];
      offset_ += most_[i] * load.strides[i];
      offset %= places[i];
    }
  }

  /// The load's step for a dimension of the view.
  std::int64_t step(std::int64_t size, std::int64_t stride) {
    if (size == 1 || stride == 0) return 0;
    std::size_t inner = 0;
    while (inner + 1 < sizes_.size() && (sizes_[inner] == 1 || places_[inner] > stride)) ++inner;
    const std::int64_t width = stride / places_[inner];
    told_ = told_ && stride % places_[inner] == 0;
    std::int64_t reach = (size - 1) * width;
    std::size_t i = inner;
    for (; told_ && reach >= sizes_[i] && i > 0; --i) {
      told_ = width == 1 && (reach + 1) % sizes_[i] == 0 && (sizes_[i - 1] == 1 || load_.strides[i - 1] == load_.strides[i] * sizes_[i]);
      most_[i] += sizes_[i] - 1;
      reach = (reach + 1) / sizes_[i] - 1;
    }
    most_[i] += reach;
    if (told_ || reach == 0) return load_.strides[inner] * width;
    return place_of(start_ + stride) - place_of(start_);  // not by strides: what the first step moves (sizevars.py, stride_vars)
  }

  /// Whether a dimension of the view tells the place.
  bool moves(std::int64_t size, std::int64_t stride) const {
    for (std::int64_t index = 1; index < size; ++index)
      if (place_of(start_ + index * stride) != place_of(start_)) return true;
    return false;
  }

  std::int64_t offset() const { return offset_; }
  /// Whether strides tell every place: no dimension of the loops is left at its end.
  bool told() const {
    for (std::size_t i = 0; i < sizes_.size(); ++i)
      if (most_[i] >= sizes_[i]) return false;
    return told_;
  }

 private:
  /// Where the load finds the loops' element of that number.
  std::int64_t place_of(std::int64_t element) const {
    std::int64_t place = 0;
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      place += element / places_[i] * load_.strides[i];
      element %= places_[i];
    }
    return place;
  }

  const Load& load_;
  const std::vector<std::int64_t>&sizes_, &places_;
  std::vector<std::int64_t> most_;  ///< the largest index that is reached
  std::int64_t start_;
  bool told_;
  std::int64_t offset_;
};

}  // namespace

/// The places after which a load of the innermost loops alone begins anew where these are counted on through idle ones; 0: never.
static std::int64_t period_of(const Load& load, const std::vector<std::int64_t>& sizes) {
  if (load.strides.empty() || load.strides.back() == 0) return 0;
  std::int64_t places = 1;
  std::size_t i = sizes.size();
  for (; i > 0 && load.strides[i - 1] == places * load.strides.back(); --i) places *= sizes[i - 1];
  const bool idle = i > 0 && load.strides[i - 1] == 0 && sizes[i - 1] > 1;
  return idle ? places * load.strides.back() : 0;
}

Load seen_through(const Load& load, const std::vector<std::int64_t>& sizes, const View& view) {
  const std::vector<std::int64_t> places = in_a_row(sizes);
  if (goes_in_a_row(load, sizes, places)) return {load.buffer, view.strides, load.offset + view.offset};
  if (std::optional<std::vector<std::int64_t>> turned = permuted(load.strides, sizes, places, view))
    return {load.buffer, std::move(*turned), load.offset, load.way, load.places, load.once, load.period};
  Steps steps(load, sizes, places, view.offset);
  Load seen{load.buffer, {}, steps.offset(), load.way};
  seen.period = load.period;
  std::int64_t told = 1;
  for (std::size_t k = 0; k < view.sizes.size(); ++k) {
    seen.strides.push_back(steps.step(view.sizes[k], view.strides[k]));
    if (steps.moves(view.sizes[k], view.strides[k])) told *= view.sizes[k];
  }
  if (!steps.told()) {
    const bool whole = view.offset == 0 && product_of(view.sizes) == product_of(sizes) && view.strides == in_a_row(view.sizes);
    seen.way = load.way * 31 + hash_of(view) + 1;
    seen.once = whole && reads_each_once(load, sizes);
    seen.places = load.way == 0 ? told : load.places;
    if (load.way == 0) seen.period = period_of(load, sizes);
    if (view.strides.empty() || view.strides.back() != 1) seen.period = 0;
    if (seen.period > 0) seen.way = kPeriodic, seen.offset = load.offset + view.offset % seen.period;
  }
  return seen;
}

bool reads_each_once(const Load& load, const std::vector<std::int64_t>& sizes) {
  if (load.way != 0) return load.once;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] != 1) steps.emplace_back(load.strides[i], sizes[i]);
  std::sort(steps.begin(), steps.end());
  std::int64_t next = 1;
  for (const auto& [stride, size] : steps) {
    if (stride != next) return false;
    next *= size;
  }
  return load.offset == 0;
}

void add_load(std::vector<Load>& loads, Load load) {
  if (load.period > 0) load.offset = (load.offset % load.period + load.period) % load.period;
  if (std::find(loads.begin(), loads.end(), load) == loads.end()) loads.push_back(std::move(load));
}

std::size_t hash_of(const Load& load) { return hash_of(View{load.strides, load.strides, load.offset}) * 31 + load.way; }

LoweredOperation loops(LoweredOperation::Kind kind, const std::vector<std::int64_t>& kept, const std::vector<std::int64_t>& places,
                       const std::vector<std::int64_t>& summed, const std::vector<Load>& loads) {
  LoweredOperation operation{.kind = kind};
  std::vector<std::size_t> dimensions;
  for (const int i : loop_order(kept, {places})) {
    const auto dimension = static_cast<std::size_t>(i);
    if (kept[dimension] == 1) continue;
    dimensions.push_back(dimension);
    operation.kept.push_back(kept[dimension]);
    operation.places.push_back(places[dimension]);
  }
  for (std::size_t i = 0; i < summed.size(); ++i) {
    if (summed[i] == 1) continue;
    dimensions.push_back(kept.size() + i);
    operation.summed.push_back(summed[i]);
  }
  for (const Load& load : loads) {
    Load ordered{load.buffer, {}, load.offset, load.way, load.places, load.once, load.period};
    for (const std::size_t dimension : dimensions) ordered.strides.push_back(load.strides[dimension]);
    operation.loads.push_back(std::move(ordered));
  }
  return operation;
}

std::vector<std::int64_t> strides_like(const std::vector<std::int64_t>& kept, const std::vector<Load>& loads) {
  std::vector<std::vector<std::int64_t>> read;
  for (const Load& load : loads) read.emplace_back(load.strides.begin(), load.strides.begin() + static_cast<std::ptrdiff_t>(kept.size()));
  std::vector<std::int64_t> strides(kept.size(), 1);
  const std::vector<int> order = loop_order(kept, read);
  std::int64_t stride = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[static_cast<std::size_t>(order[i])] = stride;
    stride *= kept[static_cast<std::size_t>(order[i])];
  }
  return strides;
}

std::vector<int> loop_order(const std::vector<std::int64_t>& sizes, const std::vector<std::vector<std::int64_t>>& strides) {
  std::vector<int> order(sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);  // the innermost first
  const auto inside = [&](int a, int b) {
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (sizes[i] == 1 || sizes[j] == 1) return sizes[i] != 1 && sizes[j] == 1;
    int first = 0, second = 0;
    for (const std::vector<std::int64_t>& steps : strides) {
      first += steps[j] == 0 || steps[i] < steps[j] ? 1 : 0;
      second += steps[i] == 0 || steps[j] < steps[i] ? 1 : 0;
    }
    return first != second ? first > second : a > b;
  };
  std::stable_sort(order.begin(), order.end(), inside);
  std::reverse(order.begin(), order.end());
  return order;
}

Access merged(const Access& access) {
  if (access.way != 0) return access;
  Access merged{access.buffer, access.offset, 0, {}, {}, 0};
  for (std::size_t i = 0; i < access.sizes.size(); ++i) {
    if (!merged.sizes.empty() && merged.strides.back() == access.strides[i] * access.sizes[i]) {
      merged.sizes.back() *= access.sizes[i];
      merged.strides.back() = access.strides[i];
    } else {
      merged.sizes.push_back(access.sizes[i]);
      merged.strides.push_back(access.strides[i]);
    }
  }
  return merged;
}

Access in_order_of_strides(const Access& access) {
  std::vector<std::size_t> order(access.sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return access.strides[a] > access.strides[b]; });
  Access ordered{access.buffer, access.offset, access.way, {}, {}, access.places};
  for (const std::size_t i : order) ordered.sizes.push_back(access.sizes[i]), ordered.strides.push_back(access.strides[i]);
  return merged(ordered);
}

namespace {

/// Puts a loop inside the outer (0) or the inner (1) one; false where that goes on in another step.
bool put(Access& access, std::size_t at, std::int64_t size, std::int64_t stride) {
  if (access.sizes.size() == at) {
    access.sizes.push_back(size), access.strides.push_back(stride);
    return true;
  }
  if (access.sizes.size() < at || access.strides[at] != stride * size) return false;
  access.sizes[at] *= size, access.strides[at] = stride;
  return true;
}

}  // namespace

Access in_loops_of_sum(const Access& access, std::int64_t kept, std::int64_t summed) {
  Access made{access.buffer, access.offset, access.way, {}, {}, access.places};
  std::int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < access.sizes.size(); ++i) {
    const std::int64_t size = access.sizes[i], stride = access.strides[i];
    const std::int64_t outside = outer < kept ? std::min(size, kept / outer) : 1, inside = size / outside;
    const bool divides = outside * inside == size && (inside == 1 || outer * outside == kept);
    if (!divides || (inside != 1 && outside != 1 && access.way != 0)) return access;
    if (outside != 1 && !put(made, 0, outside, stride * inside)) return access;
    if (inside != 1 && !put(made, 1, inside, stride)) return access;
    outer *= outside, inner *= inside;
  }
  return outer == kept && (inner == summed || inner == 1) ? made : access;
}

}  // namespace plimsoll::program::inductor
