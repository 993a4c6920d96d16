#include "program/wrappers/megatron/fsdp_layout.hpp"

#include <algorithm>
#include <list>
#include <numeric>

namespace plimsoll::program {

namespace {

/// shape[1:].numel(): elements of one row.
std::int64_t row_of(const Parameter& parameter) { return parameter.sizes.rank() > 1 ? parameter.sizes.product() / parameter.sizes[0] : 1; }

/// Step 1: parameters alike in type, kind and unit, in the order of their first one.
std::vector<std::vector<MegatronFsdpParameter>> grouped(const std::vector<MegatronFsdpParameter>& parameters) {
  std::vector<std::vector<MegatronFsdpParameter>> groups;
  for (const MegatronFsdpParameter& each : parameters) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& other) {
      const MegatronFsdpParameter& first = other.front();
      return first.parameter->type == each.parameter->type && first.expert == each.expert && first.unit == each.unit;
    });
    if (group == groups.end()) {
      groups.push_back({each});
    } else {
      group->push_back(each);
    }
  }
  return groups;
}

/// Step 2: what lies in no unit is cut into buckets of the suggested size.
std::vector<std::vector<MegatronFsdpParameter>> bucketed(const std::vector<MegatronFsdpParameter>& group, std::int64_t bucket_size) {
  std::vector<std::vector<MegatronFsdpParameter>> buckets;
  std::vector<MegatronFsdpParameter> bucket;
  std::int64_t elements = 0;
  const auto close = [&] {
    if (!bucket.empty()) buckets.push_back(std::exchange(bucket, {}));
    elements = 0;
  };
  for (const MegatronFsdpParameter& each : group) {
    bucket.push_back(each);
    elements += each.parameter->sizes.product();
    if (!each.unit && bucket_size > 0 && elements >= bucket_size) close();
  }
  close();
  return buckets;
}

/// Step 3: wide rows first; the least number of elements by which all of the bucket's matrices can be cut between rows.
std::int64_t chunk_size(std::vector<MegatronFsdpParameter>& bucket) {
  std::stable_sort(bucket.begin(), bucket.end(), [](const auto& a, const auto& b) { return row_of(*a.parameter) > row_of(*b.parameter); });
  std::int64_t chunk = row_of(*bucket.front().parameter);
  for (const MegatronFsdpParameter& each : bucket) {
    const std::int64_t row = row_of(*each.parameter), all = each.parameter->sizes.product();
    const bool fits = row == chunk || (chunk % row == 0 && all % chunk == 0) || all < chunk;
    if (!fits) chunk = std::lcm(chunk, row);
  }
  return chunk;
}

/// Places a bucket's items: each starts at a multiple of the chunk; what is left of the chunk that an item ends in takes the end of another
/// such item, and items smaller than a chunk.
class Placement {
 public:
  Placement(const std::vector<MegatronFsdpParameter>& bucket, std::int64_t chunk) : chunk_(chunk) {
    for (const MegatronFsdpParameter& each : bucket) (each.parameter->sizes.product() < chunk ? small_ : large_).push_back(each.parameter);
  }

  std::vector<MegatronFsdpLayout::Item> run() {
    while (!large_.empty()) {
      const auto item = large_.front();
      large_.pop_front();
      place(item);
    }
    for (const auto& item : small_) {
      add(item, position_);
      position_ += item->sizes.product();
    }
    return std::move(items_);
  }
  std::int64_t end() const { return position_; }

 private:
  void add(const std::shared_ptr<Parameter>& parameter, std::int64_t begin) {
    items_.push_back({parameter, begin, begin + parameter->sizes.product()});
  }

  void place(const std::shared_ptr<Parameter>& item) {
    const std::int64_t elements = item->sizes.product(), rest = elements % chunk_;
    add(item, position_);
    if (rest == 0) {
      position_ += elements;
      return;
    }
    std::int64_t gap = position_ + elements, space = chunk_ - rest;
    position_ += (elements / chunk_ + 1) * chunk_;
    const auto other = std::find_if(large_.begin(), large_.end(), [&](const auto& each) {
      const std::int64_t tail = each->sizes.product() % chunk_;
      return tail != 0 && rest + tail <= chunk_;
    });
    if (other != large_.end()) {
      const std::int64_t all = (*other)->sizes.product(), tail = all % chunk_;
      add(*other, position_ - tail);
      space -= tail;
      position_ += all / chunk_ * chunk_;
      large_.erase(other);
    }
    for (auto small = small_.begin(); small != small_.end();) {
      const std::int64_t size = (*small)->sizes.product();
      if (size > space) {
        ++small;
        continue;
      }
      add(*small, gap);
      space -= size;
      gap += size;
      small = small_.erase(small);
    }
  }

  std::int64_t chunk_;
  std::list<std::shared_ptr<Parameter>> large_, small_;
  std::int64_t position_ = 0;
  std::vector<MegatronFsdpLayout::Item> items_;
};

MegatronFsdpLayout laid_out(std::vector<MegatronFsdpParameter> bucket, const MegatronFsdpLayoutOptions& options) {
  const MegatronFsdpParameter first = bucket.front();
  MegatronFsdpLayout layout;
  layout.unit = first.unit;
  layout.expert = first.expert;
  layout.type = first.parameter->type;
  layout.ranks = first.expert ? options.expert_ranks : options.ranks;
  layout.chunk = chunk_size(bucket);
  Placement placement(bucket, layout.chunk);
  std::vector<MegatronFsdpLayout::Item> placed = placement.run();
  const std::int64_t quantum = options.shards ? layout.ranks * layout.chunk : 1;
  layout.elements = (placement.end() + quantum - 1) / quantum * quantum;
  for (const MegatronFsdpParameter& each : bucket) {
    layout.items.push_back(
        *std::find_if(placed.begin(), placed.end(), [&](const auto& item) { return item.parameter == each.parameter; }));
  }
  return layout;
}

}  // namespace

MegatronFsdpLayout::Part MegatronFsdpLayout::part(const Item& item, std::int64_t rank) const {
  const std::int64_t begin = std::max(item.begin, rank * share()), end = std::min(item.end, (rank + 1) * share());
  return end > begin ? Part{begin, end} : Part{begin, begin};
}

std::vector<MegatronFsdpLayout> megatron_fsdp_layout(const std::vector<MegatronFsdpParameter>& parameters,
                                                     const MegatronFsdpLayoutOptions& options) {
  std::vector<MegatronFsdpLayout> layouts;
  for (const auto& group : grouped(parameters)) {
    for (auto& bucket : bucketed(group, options.bucket_size)) layouts.push_back(laid_out(std::move(bucket), options));
  }
  return layouts;
}

}  // namespace plimsoll::program
