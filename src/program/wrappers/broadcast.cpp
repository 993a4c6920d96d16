#include "program/wrappers/broadcast.hpp"

#include <algorithm>
#include <deque>
#include <map>

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {
namespace {

using Bucket = std::vector<std::size_t>;

/// By type, in order of their first tensors.
std::vector<Bucket> buckets_of(const std::vector<Tensor>& tensors, std::int64_t bucket_bytes) {
  struct Open {
    Bucket indices;
    std::int64_t bytes = 0;
  };
  std::map<DType, Open> open;
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Open& bucket = open[tensors[i].dtype()];
    bucket.indices.push_back(i);
    bucket.bytes += tensors[i].bytes();
    if (bucket.bytes < bucket_bytes) continue;
    buckets.push_back(std::move(bucket.indices));
    bucket = {};
  }
  for (auto& [type, bucket] : open)
    if (!bucket.indices.empty()) buckets.push_back(std::move(bucket.indices));
  std::sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) { return a.front() < b.front(); });
  return buckets;
}

struct InFlight {
  Bucket indices;
  Tensor flat;
};

InFlight start(Tape& tape, const std::vector<Tensor>& tensors, const Bucket& bucket) {
  InFlight work{bucket, tensors[bucket.front()]};
  std::int64_t elements = 0;
  for (const std::size_t index : bucket) elements += tensors[index].sizes().product();
  if (bucket.size() > 1) {
    work.flat = tape.empty({elements}, tensors[bucket.front()].dtype(), Category::communication_buffer);
    concatenate(work.flat, {work.flat});
  }
  tape.collective({.kind = CollectiveKind::broadcast, .group = Group::world, .bytes = work.flat.bytes(), .type = work.flat.dtype()},
                  tape.stream);
  return work;
}

void finish(const std::vector<Tensor>& tensors, const InFlight& work) {
  if (work.indices.size() == 1) return;
  for (const std::size_t index : work.indices) in_place(tensors[index], {&tensors[index]});
}

}  // namespace

void broadcast_coalesced(Tape& tape, const std::vector<Tensor>& tensors, std::int64_t bucket_bytes) {
  constexpr std::size_t kMostInFlight = 2;
  std::deque<InFlight> in_flight;
  const auto finish_first = [&] {
    finish(tensors, in_flight.front());
    in_flight.pop_front();
  };
  for (const Bucket& bucket : buckets_of(tensors, bucket_bytes)) {
    if (in_flight.size() >= kMostInFlight) finish_first();
    in_flight.push_back(start(tape, tensors, bucket));
  }
  while (!in_flight.empty()) finish_first();
}

}  // namespace plimsoll::program
