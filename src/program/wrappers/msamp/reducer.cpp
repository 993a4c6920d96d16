#include "program/wrappers/msamp/reducer.hpp"

#include <algorithm>
#include <utility>

#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program::msamp {

Reducer::Reducer(Tape& tape, Model& model, std::int64_t bucket_cap, StreamId collectives)
    : tape_(tape), stream_(tape.add_stream("fp8 reduction")), collectives_(collectives) {
  bool open = false;
  for (auto linear = model.linears().rbegin(); linear != model.linears().rend(); ++linear) {
    if (!open) buckets_.push_back({{}, elements_, 0, 0});
    Bucket& bucket = buckets_.back();
    bucket.linears.push_back(linear->get());
    bucket.elements += (*linear)->weight->sizes.product();
    elements_ += (*linear)->weight->sizes.product();
    open = bucket.elements < bucket_cap;
  }
  model.keeps_wide_gradients = true;
  model.on_gradient = [this](ScaledLinear& linear) { ready(linear); };
}

void Reducer::reset() {
  for (Bucket& bucket : buckets_) bucket.pending = bucket.linears.size();
}

void Reducer::ready(ScaledLinear& linear) {
  for (Bucket& bucket : buckets_) {
    if (std::find(bucket.linears.begin(), bucket.linears.end(), &linear) == bucket.linears.end()) continue;
    if (--bucket.pending == 0) reduce(bucket);
    return;
  }
}

void Reducer::reduce(const Bucket& bucket) {
  tape_.wait(stream_, tape_.stream);
  const StreamScope scope(tape_, stream_);
  synchronize_scales(bucket);
  fill(bucket);
  tape_.wait(kComputeStream, stream_);
  tape_.wait(collectives_, stream_);
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = bucket.elements, .type = DType::fp8},
                   collectives_);
}

/// Steps 2 and 3: the largest magnitudes of all ranks, and the scales from them.
void Reducer::synchronize_scales(const Bucket& bucket) {
  const std::int64_t count = static_cast<std::int64_t>(bucket.linears.size());
  const auto stacked = [&] {
    Tensor together = tape_.empty({count}, DType::fp32);
    pointwise(tape_, Pointwise::Form::concatenate, {operand(together)}, {operand(together)});
    return together;
  };
  Tensor largest;
  {
    std::vector<Tensor> each;
    for (ScaledLinear* linear : bucket.linears) {
      const Tensor& gradient = linear->weight->tensor.grad();
      const Tensor magnitudes = elementwise(tape_, {&gradient}, gradient.dtype());
      const Tensor most = program::reduce(magnitudes, {true, true}, false, gradient.dtype(), size_of(gradient.dtype()));
      each.push_back(to(most, DType::fp32));
    }
    largest = stacked();
  }
  const Tensor scales = stacked();
  in_place(largest, {&largest});  // nan_to_num_
  tape_.wait(collectives_, stream_);
  tape_.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = largest.bytes(), .type = DType::fp32},
                   collectives_);
  tape_.wait(stream_, collectives_);
  const Tensor factor = scaling_factor(largest, scales);
  in_place(factor, {&factor});
  for (ScaledLinear* linear : bucket.linears)
    for (const Tensor* number : {&linear->weight_gradient.largest, &linear->weight_gradient.scale}) copy_into(*number, *number);
}

/// Step 4: gradients in 8 bits, copied into their places of the buffer. Every second one dies with the one before it only when the next is
/// fetched: zip() fills the tuple that it gave out last only when enumerate() has let go of it.
void Reducer::fill(const Bucket& bucket) {
  const Tensor largest = tape_.empty({1}, DType::fp32);
  if (!buffer_) buffer_ = tape_.empty({elements_}, DType::fp8, Category::gradient);
  std::vector<Tensor> held;
  Tensor cast;  // Python's variable lives on until the next gradient's
  std::int64_t offset = bucket.begin;
  for (std::size_t i = 0; i < bucket.linears.size(); ++i) {
    ScaledLinear& linear = *bucket.linears[i];
    if (i % 2 == 0) held.clear();
    Tensor& gradient = linear.weight->tensor.grad();
    held.push_back(gradient);
    cast = to_eight_bits(gradient, linear.weight_gradient, {.searches = false});
    Tensor place = tape_.view(slice(buffer_, 0, offset, offset + cast.elements()), cast.sizes(), contiguous_strides(cast.sizes()));
    copy_into(place, cast);
    gradient = std::move(place);
    in_place(linear.weight_gradient.inverse, {&linear.weight_gradient.inverse});  // / world_size
    offset += cast.elements();
  }
}

}  // namespace plimsoll::program::msamp
