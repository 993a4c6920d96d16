// AllGatherPipeline and GradReducePipeline of Megatron-FSDP: when buckets of weights and gradients come and go.
#include <algorithm>
#include <map>

#include "program/op.hpp"
#include "program/wrappers/megatron_fsdp.hpp"

namespace plimsoll::program {

namespace {

Group collective_group(const MegatronFsdpLayout& layout) { return layout.expert ? Group::expert_data : Group::data_shard; }

}  // namespace

// ---- AllGatherPipeline ------------------------------------------------------------------------------------------------------

/// all_gather_params, then wait_bucket_ready of what was asked for.
void MegatronFsdp::gather(std::vector<std::size_t> wanted, Prefetch prefetch, bool wait) {
  if (wanted.empty()) return;
  const std::vector<std::size_t> asked = wanted;
  for (const std::size_t index : wanted) groups_[index].may_be_released = false;
  if (prefetch != Prefetch::none) add_prefetched(wanted, prefetch);
  std::map<std::size_t, std::vector<std::size_t>> calls;  // groups of one unit in one coalesced collective, in the order of the groups
  for (const std::size_t index : wanted) {
    if (groups_[index].status == Status::empty) calls[groups_[index].together.front()].push_back(index);
  }
  for (const auto& call : calls) {
    tape_.wait(gather_stream_, kComputeStream);
    const StreamScope stream(tape_, gather_stream_);
    for (const std::size_t index : call.second) start_gather(index);
    for (const std::size_t index : call.second) tape_.wait(groups_[index].gathered_event, gather_stream_);
  }
  if (!wait) return;
  for (const std::size_t index : asked) wait_gathered(groups_[index]);
}

/// The group behind (before, in backward) the first run of groups in `wanted`.
std::optional<std::size_t> MegatronFsdp::next_group(const std::vector<std::size_t>& wanted, Prefetch order) const {
  std::size_t run = 1;
  if (order == Prefetch::forward) {
    while (run < wanted.size() && wanted[run] == wanted.front() + run) ++run;
    const std::size_t next = wanted.front() + run;
    return next < groups_.size() ? std::optional(next) : std::nullopt;
  }
  while (run < wanted.size() && wanted[wanted.size() - 1 - run] + run == wanted.back()) ++run;
  return wanted.back() >= run ? std::optional(wanted.back() - run) : std::nullopt;
}

/// Whole units follow until half of suggested_communication_unit_size is gathered ahead.
void MegatronFsdp::add_prefetched(std::vector<std::size_t>& wanted, Prefetch order) const {
  const auto elements = [&] {
    std::int64_t sum = 0;
    for (const std::size_t index : wanted) sum += groups_[index].layout.elements;
    return sum;
  };
  const std::int64_t asked = elements();
  for (auto next = next_group(wanted, order); next; next = next_group(wanted, order)) {
    if (elements() - asked >= under_way_ / 2) return;
    const auto& together = groups_[*next].together;
    wanted.insert(wanted.end(), together.begin(), together.end());
    std::sort(wanted.begin(), wanted.end());
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  }
}

/// async_bucket_gather, on the current stream.
void MegatronFsdp::start_gather(std::size_t index) {
  Group& group = groups_[index];
  group.may_be_released = false;
  if (group.status != Status::empty) return;
  group.status = Status::communicating;
  release_unused();
  if (group.shares_weights) {
    const LabelScope label(tape_, tape_.intern("gathered parameters"));
    group.gathered.impl()->storage->stream = tape_.stream;
    tape_.allocate_storage(group.gathered, Category::communication_buffer);
  }
  if (group.layout.ranks == 1) return;
  tape_.collective({.kind = CollectiveKind::all_gather,
                    .group = collective_group(group.layout),
                    .bytes = group.gathered.bytes(),
                    .type = group.layout.type},
                   gather_stream_);
}

void MegatronFsdp::wait_gathered(Group& group) {
  if (group.status != Status::communicating) return;
  tape_.wait(kComputeStream, group.gathered_event);
  group.status = Status::ready;
}

/// release_bucket, not lazily.
void MegatronFsdp::release(Group& group) {
  if (group.status == Status::empty) return;
  wait_gathered(group);
  if (group.shares_weights) tape_.free_storage(group.gathered);
  group.status = Status::empty;
}

/// recycle_unused_buckets.
void MegatronFsdp::release_unused() {
  for (Group& group : groups_) {
    if (group.may_be_released) release(group);
    group.may_be_released = false;
  }
}

/// AllGatherPipeline.reset.
void MegatronFsdp::release_all() {
  for (Group& group : groups_) group.may_be_released = true;
  release_unused();
}

// ---- GradReducePipeline -----------------------------------------------------------------------------------------------------

/// _process_post_backward_gradients: into a bucket of the whole group where gradients are sharded, else added to what is there.
void MegatronFsdp::gradient_ready(const Place& place) {
  Group& group = groups_[place.group];
  Tensor& gradient = group.layout.items[place.item].parameter->tensor.grad();
  if (!group.whole_gradients) {
    const LabelScope label(tape_, tape_.intern("gradient bucket"));
    group.whole_gradients = tape_.empty({group.layout.elements}, options_.grad_dtype, Category::gradient);
  }
  if (!options_.already_added(gradient)) {
    if (group.shares_gradients) {
      in_place(gradient, {&gradient});
    } else {
      in_place(gradient, {&group.gradients, &gradient});
    }
  }
  gradient.reset();
  if (reduces_now()) mark_ready(place.group);
}

/// reduce_gradients: a unit's groups are reduced once all of their gradients are there.
void MegatronFsdp::mark_ready(std::size_t index) {
  ++groups_[index].gradients_ready;
  const std::vector<std::size_t>& together = groups_[index].together;
  const bool ready = std::all_of(together.begin(), together.end(), [&](std::size_t each) {
    return groups_[each].gradients_ready == groups_[each].layout.items.size();
  });
  if (!ready) return;
  wait_reduced(under_way_);
  reduce(together);
}

/// _bucket_group_gradient_reduce: into a fresh share each, which is added to what earlier micro-batches left.
void MegatronFsdp::reduce(const std::vector<std::size_t>& together) {
  tape_.wait(reduce_stream_, kComputeStream);
  const StreamScope stream(tape_, reduce_stream_);
  const LabelScope label(tape_, tape_.intern("gradient reduction"));
  std::vector<Tensor> reduced;
  for (const std::size_t index : together) {
    Group& group = groups_[index];
    if (options_.grad_dtype == DType::bf16) in_place(group.whole_gradients, {&group.whole_gradients});  // scaled apart from the sum
    if (shards_states()) reduced.push_back(tape_.empty({group.layout.share()}, options_.grad_dtype, Category::communication_buffer));
    if (group.layout.ranks == 1) continue;
    tape_.collective({.kind = shards_states() ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                      .group = collective_group(group.layout),
                      .bytes = group.whole_gradients.bytes(),
                      .type = options_.grad_dtype},
                     reduce_stream_);
  }
  for (const Tensor& share : reduced) in_place(share, {&share, &share});
  for (const std::size_t index : together) {
    tape_.wait(groups_[index].reduced_event, reduce_stream_);
    reducing_.push_back(index);
  }
}

/// wait_for_previous_grad_reduce: no more than `most_elements` stay under way.
void MegatronFsdp::wait_reduced(std::int64_t most_elements) {
  std::int64_t elements = 0;
  for (const std::size_t index : reducing_) elements += groups_[index].layout.elements;
  while (!reducing_.empty() && elements > most_elements) {
    Group& group = groups_[reducing_.front()];
    reducing_.pop_front();
    elements -= group.layout.elements;
    tape_.wait(kComputeStream, group.reduced_event);
    group.gradients_ready = 0;
    if (group.shares_gradients) group.whole_gradients.reset();
  }
}

/// start_grad_sync without overlap: every buffer in turn, in place. (all_reduce_gradients of no_shard leaves out all that have a buffer.)
void MegatronFsdp::reduce_at_once() {
  for (const Group& group : groups_) {
    if (!shards_states() || group.layout.ranks == 1) continue;
    tape_.wait(reduce_stream_, kComputeStream);
    tape_.collective({.kind = CollectiveKind::reduce_scatter,
                      .group = collective_group(group.layout),
                      .bytes = group.gradients.bytes(),
                      .type = options_.grad_dtype},
                     reduce_stream_);
  }
  tape_.wait(kComputeStream, reduce_stream_);
}

}  // namespace plimsoll::program
