// AllGatherPipeline and GradReducePipeline of Megatron-FSDP: when buckets of weights and gradients come and go.
#include <algorithm>
#include <map>
#include <set>

#include "program/op.hpp"
#include "program/wrappers/megatron/fsdp.hpp"

namespace plimsoll::program {

namespace {

/// Units that the two buffers hold.
constexpr std::size_t kBufferedUnits = 2;

Group collective_group(const MegatronFsdpLayout& layout) { return layout.expert ? Group::expert_data : Group::data_shard; }

}  // namespace

// ---- AllGatherPipeline ------------------------------------------------------------------------------------------------------

/// all_gather_params, then wait_bucket_ready of what was asked for.
void MegatronFsdp::gather(std::vector<std::size_t> wanted, Prefetch prefetch, bool wait) {
  if (wanted.empty()) return;
  tape_.host(HostWork::unit);
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
    for (const std::size_t index : call.second) tape_.record_event(groups_[index].gathered_event, gather_stream_);
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
  std::set<std::optional<std::int64_t>> buffered;
  for (const std::size_t index : wanted) {
    if (groups_[index].pooled) buffered.insert(groups_[index].layout.unit);
  }
  for (auto next = next_group(wanted, order); next; next = next_group(wanted, order)) {
    if (elements() - asked >= under_way_ / 2) return;
    buffered.insert(groups_[*next].layout.unit);
    if (options_.double_buffer && buffered.size() > kBufferedUnits) return;
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
    fetch_bucket(index);
    set_weights(group);
  }
  if (group.layout.ranks == 1) return;
  tape_.collective({.kind = CollectiveKind::all_gather,
                    .group = collective_group(group.layout),
                    .bytes = group.gathered.bytes(),
                    .type = group.layout.type},
                   gather_stream_);
}

/// DataParallelBuffer.fetch_bucket: from the pool, or else a new tensor, where buffers are doubled; a tensor that is resized otherwise.
void MegatronFsdp::fetch_bucket(std::size_t index) {
  Group& group = groups_[index];
  const LabelScope label(tape_, tape_.intern("gathered parameters"));
  constexpr Category kCategory = Category::communication_buffer;
  if (group.pooled) {
    group.gathered = weight_pool_.take(index, *group.pooled, group.layout.elements, group.layout.type, kCategory);
  } else if (!group.gathered || options_.double_buffer) {
    group.gathered = tape_.empty({group.layout.elements}, group.layout.type, kCategory);
  } else {
    group.gathered.impl()->storage->stream = tape_.stream;
    tape_.allocate_storage(group.gathered, kCategory);
  }
}

/// free_bucket_storage.
void MegatronFsdp::free_bucket(std::size_t index) {
  Group& group = groups_[index];
  if (group.pooled) {
    weight_pool_.give_back(index);
  } else {
    tape_.free_storage(group.gathered);
  }
}

void MegatronFsdp::wait_gathered(Group& group) {
  if (group.status != Status::communicating) return;
  tape_.wait_event(kComputeStream, group.gathered_event);
  group.status = Status::ready;
}

/// release_bucket, not lazily.
void MegatronFsdp::release(std::size_t index) {
  Group& group = groups_[index];
  if (group.status == Status::empty) return;
  wait_gathered(group);
  if (group.shares_weights) free_bucket(index);
  group.status = Status::empty;
}

/// recycle_unused_buckets.
void MegatronFsdp::release_unused() {
  for (std::size_t index = 0; index < groups_.size(); ++index) {
    if (groups_[index].may_be_released) release(index);
    groups_[index].may_be_released = false;
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
  const Tensor& weight = group.layout.items[place.item].parameter->tensor;
  Tensor& gradient = weight.grad();
  if (group.shares_gradients && options_.double_buffer) wait_for_buffers({place.group});
  if (!group.whole_gradients) {
    const LabelScope label(tape_, tape_.intern("gradient bucket"));
    const std::int64_t elements = group.layout.elements;
    group.whole_gradients =
        group.pooled ? gradient_pool_.take(place.group, *group.pooled, elements, options_.grad_dtype, Category::gradient)
                     : tape_.empty({elements}, options_.grad_dtype, Category::gradient);
  }
  if (!options_.already_added(weight)) {
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

/// _bucket_group_gradient_reduce: into a fresh share each (in place where buffers are doubled), which is added to what earlier
/// micro-batches left.
void MegatronFsdp::reduce(const std::vector<std::size_t>& together) {
  if (options_.double_buffer) wait_for_buffers(together);
  tape_.wait(reduce_stream_, kComputeStream);
  const StreamScope stream(tape_, reduce_stream_);
  const LabelScope label(tape_, tape_.intern("gradient reduction"));
  std::vector<Tensor> reduced;
  for (const std::size_t index : together) {
    Group& group = groups_[index];
    if (options_.grad_dtype == DType::bf16) in_place(group.whole_gradients, {&group.whole_gradients});  // scaled apart from the sum
    if (shards_states() && !options_.double_buffer)
      reduced.push_back(tape_.empty({group.layout.share()}, options_.grad_dtype, Category::communication_buffer));
    if (group.layout.ranks == 1) continue;
    tape_.collective({.kind = shards_states() ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                      .group = collective_group(group.layout),
                      .bytes = group.whole_gradients.bytes(),
                      .type = options_.grad_dtype},
                     reduce_stream_);
  }
  for (const std::size_t index : together) {
    const Tensor& own = groups_[index].gradients;
    if (shards_states()) in_place(own, {&own, &own});
  }
  for (const std::size_t index : together) {
    tape_.record_event(groups_[index].reduced_event, reduce_stream_);
    reducing_.push_back(index);
  }
}

/// wait_for_previous_grad_reduce: no more than `most_elements` stay under way.
void MegatronFsdp::wait_reduced(std::int64_t most_elements) {
  std::int64_t elements = 0;
  for (const std::size_t index : reducing_) elements += groups_[index].layout.elements;
  while (!reducing_.empty() && elements > most_elements) {
    elements -= groups_[reducing_.front()].layout.elements;
    wait_first_reduced();
  }
}

void MegatronFsdp::wait_first_reduced() {
  const std::size_t index = reducing_.front();
  Group& group = groups_[index];
  reducing_.pop_front();
  tape_.wait_event(kComputeStream, group.reduced_event);
  group.gradients_ready = 0;
  if (!group.shares_gradients) return;
  group.whole_gradients.reset();
  if (group.pooled) gradient_pool_.give_back(index);
}

/// _enforce_double_buffer_limit: no more units are under way than there are buffers, those wanted next included.
void MegatronFsdp::wait_for_buffers(const std::vector<std::size_t>& wanted) {
  std::set<std::optional<std::int64_t>> units;
  for (const std::size_t index : wanted) {
    if (groups_[index].pooled) units.insert(groups_[index].layout.unit);
  }
  std::size_t kept = reducing_.size();
  for (auto index = reducing_.rbegin(); index != reducing_.rend(); ++index) {
    units.insert(groups_[*index].layout.unit);
    if (units.size() > kBufferedUnits) --kept;
  }
  kept = std::min(kept, groups_.size() - 1);
  while (reducing_.size() > kept) wait_first_reduced();
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
