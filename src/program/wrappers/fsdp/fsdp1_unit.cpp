#include "program/wrappers/fsdp/fsdp1_unit.hpp"

#include <algorithm>
#include <deque>
#include <unordered_set>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/resting.hpp"
#include "program/streamed_node.hpp"
#include "program/wrappers/broadcast.hpp"
#include "program/wrappers/leaf.hpp"

namespace plimsoll::program {
namespace {

constexpr std::int64_t kAlignment = 16;  // bytes; FlatParamHandle aligns the original parameters it shows

/// _div_if_needed.
void divide_if(bool needed, const Tensor& gradient) {
  if (needed) in_place(gradient, {&gradient});
}

}  // namespace

Fsdp1Unit::Fsdp1Unit(Fsdp1& owner, Module& module, std::vector<std::shared_ptr<Parameter>> slots, bool is_root)
    : owner_(owner), module_(module), is_root_(is_root) {
  if (!slots.empty()) type_ = slots.front()->type;
  const std::int64_t quantum = owner.settings_.use_orig_params ? kAlignment / size_of(compute_type()) : 1;
  for (auto& slot : slots) {
    if (slot->type != type_)
      fail("FSDP1 flattens tensors of one type only: " + module.path + " holds " + std::string(name_of(type_)) + " and, as '" + slot->name +
               "', " + std::string(name_of(slot->type)),
           "param_dtype", "one type, of 4-bit weights too (bnb_4bit_quant_storage)");
    if (slot->trainable != slots.front()->trainable && !owner.settings_.use_orig_params)
      fail("FSDP1 flattens frozen and trained parameters together only with use_orig_params", "fsdp.use_orig_params", "true");
    trainable_ = trainable_ || slot->trainable;
    elements_ = round_up(elements_, quantum);
    pieces_.push_back({slot, elements_});
    elements_ += slot->sizes.product();
  }
  padded_ = round_up(elements_, owner.settings_.shard);
  if (owner.settings_.use_orig_params) elements_ = padded_;
}

/// _get_modules_to_materialize: breadth first, without the modules that are units of their own; each with its parameters and buffers.
std::vector<Tensor> Fsdp1Unit::materialize_modules() {
  std::vector<Tensor> parameters;
  std::unordered_set<const Parameter*> moved;  // a tied one once
  std::deque<Module*> queue{&module_};
  for (; !queue.empty(); queue.pop_front()) {
    Module& module = *queue.front();
    for (const auto& slot : module.parameters) {
      const bool own = std::any_of(pieces_.begin(), pieces_.end(), [&](const FlatPiece& piece) { return piece.slot == slot; });
      if (!own || !moved.insert(slot.get()).second) continue;
      const Tensor loaded = std::exchange(slot->tensor, {});
      parameters.push_back(loaded ? loaded : tape().empty(slot->sizes, type_, Category::parameter));
    }
    if (!owner_.settings_.loaded_on_device) {
      for (ModuleBuffer& buffer : module.buffers) buffer.tensor = tape().empty(buffer.sizes, buffer.type, Category::parameter);
      module.materialize_constants(tape());
    }
    for (const auto& child : module.children)
      if (!owner_.wraps(*child)) queue.push_back(child.get());
  }
  return parameters;
}

/// _sync_module_params_and_buffers: buffers that no inner unit has sent, then the unit's own parameters.
void Fsdp1Unit::broadcast_states(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> states;
  for (Module* module : module_.all_modules())
    for (ModuleBuffer& buffer : module->buffers)
      if (owner_.synced_.insert(&buffer).second) states.push_back(buffer.tensor);
  states.insert(states.end(), parameters.begin(), parameters.end());
  broadcast_coalesced(tape(), states, std::int64_t{250} << 20);  // PARAM_BROADCAST_BUCKET_SIZE
}

void Fsdp1Unit::materialize() {
  const LabelScope label(tape(), module_.label);
  const std::vector<Tensor> parameters = materialize_modules();
  if (owner_.settings_.sync_module_states) broadcast_states(parameters);
  Tensor flat;
  if (sharded()) flat = tape().empty({elements_}, type_, Category::parameter);  // FlatParamHandle.shard: the rank's part is a clone
  shard_ = tape().parameter({shard_elements()}, type_, trainable_);
  for (const FlatPiece& piece : pieces_)
    if (mine(piece) > 0 && piece.slot->trainable)  // _use_unsharded_views and _use_sharded_views: only whole parameters keep their shape
      originals_.push_back({piece.slot.get(), leaf_on(tape(), shard_, sharded() ? Dims{mine(piece)} : piece.slot->sizes, true)});
  if (!owner_.settings_.offload_to_host) return;
  tape().copy({Copy::Direction::device_to_host, shard_.bytes()}, tape().stream);
  tape().free_storage(shard_);
  tape().program().host_pinned += Bytes(2 * shard_.bytes());  // and as much for the reduced gradient
}

std::int64_t Fsdp1Unit::mine(const FlatPiece& piece) const {
  const std::int64_t begin = sharded() ? owner_.settings_.rank % owner_.settings_.shard * shard_elements() : 0,
                     end = begin + shard_elements();
  return std::max<std::int64_t>(std::min(piece.offset + piece.slot->sizes.product(), end) - std::max(piece.offset, begin), 0);
}

/// init_flat_param_attributes at the first forward: buffers are made and emptied.
void Fsdp1Unit::initialize() {
  if (pieces_.empty()) return;
  const LabelScope label(tape(), module_.label);
  if (low_precision()) {
    low_precision_shard_ = tape().empty({shard_elements()}, compute_type(), Category::communication_buffer);
    tape().free_storage(low_precision_shard_);
  }
  if (sharded()) {
    const Tensor padded = tape().empty({padded_}, compute_type(), Category::communication_buffer);
    tape().free_storage(padded);
    gathered_ = leaf_on(tape(), padded, {elements_}, trainable_);
    if (low_precision()) tape().empty({padded_}, type_, Category::communication_buffer);
  } else {
    gathered_ = leaf_on(tape(), low_precision() ? low_precision_shard_ : shard_, {elements_}, trainable_);
  }
  if (!trainable_) return;
  accumulator_ = tape().gradient_edge(gathered_).function;
  accumulator_->post_hooks.push_back([this](const Gradients&) { post_backward(); });
}

void Fsdp1Unit::install_hooks() {
  module_.pre_forward.insert(module_.pre_forward.begin(), [this](Module&, std::vector<Tensor*>& inputs) { pre_forward(inputs); });
  module_.post_forward.push_back([this](Module&, std::vector<Tensor*>& outputs) { post_forward(outputs); });
}

// ---- gathering -----------------------------------------------------------------------------------------------------------

void Fsdp1Unit::unshard() {
  if (unsharded_ || pieces_.empty()) return;
  const LabelScope label(tape(), module_.label);
  unsharded_ = true;
  if (low_precision()) gather_low_precision();
  if (sharded()) all_gather();
}

/// _use_low_precision_shard: the shard's cast, by way of a copy on the device where the shard lives on the host.
void Fsdp1Unit::gather_low_precision() {
  const StreamScope scope(tape(), owner_.pre_unshard_stream_);
  tape().allocate_storage(low_precision_shard_, Category::communication_buffer);
  Tensor arrived;
  if (owner_.settings_.offload_to_host) {
    arrived = tape().empty({shard_elements()}, type_, Category::communication_buffer);
    tape().copy({Copy::Direction::host_to_device, arrived.bytes()}, tape().stream);
  }
  in_place(low_precision_shard_, {&shard_});
}

void Fsdp1Unit::all_gather() {
  Tensor arrived;
  if (owner_.settings_.offload_to_host && !low_precision()) {
    const StreamScope scope(tape(), owner_.pre_unshard_stream_);
    arrived = tape().empty({shard_elements()}, type_, Category::communication_buffer);
    tape().copy({Copy::Direction::host_to_device, arrived.bytes()}, tape().stream);
  }
  tape().wait(owner_.unshard_stream_, owner_.pre_unshard_stream_);
  const StreamScope scope(tape(), owner_.unshard_stream_);
  tape().allocate_storage(gathered_, Category::communication_buffer);
  const std::int64_t bytes = padded_ * size_of(compute_type());
  tape().collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = bytes, .type = compute_type()},
                    tape().stream);
  if (arrived) tape().record_stream(arrived, tape().stream);
  if (!low_precision()) return;
  tape().record_stream(low_precision_shard_, tape().stream);
  tape().free_storage(low_precision_shard_);
}

/// Modules lose their views; the memory goes where it is asked for, or where it is only the cast of parameters that are not sharded.
void Fsdp1Unit::reshard(bool free_gathered) {
  prefetched_ = false;
  if (!unsharded_) return;
  for (const FlatPiece& piece : pieces_) {
    piece.slot->tensor.reset();
    // With use_orig_params a module shows its piece of the shard, else the view of what was gathered.
    if (!owner_.settings_.use_orig_params) piece.slot->type_at_rest = compute_type();
  }
  if (!sharded() && !low_precision()) return;
  if (sharded() && !free_gathered) return;
  tape().record_stream(gathered_, tape().stream);
  tape().free_storage(gathered_);
  unsharded_ = false;
}

/// _get_unflat_views: torch.split of the flat parameter, on the unshard stream, and a view of each part; the backward concatenates the gradients there.
void Fsdp1Unit::split_views() {
  const StreamScope scope(tape(), owner_.unshard_stream_);
  views_.clear();
  Op op("split_with_sizes", {&gathered_});
  const auto parts = static_cast<std::int64_t>(pieces_.size());
  tape().host(HostWork::operation, parts);
  for (const FlatPiece& piece : pieces_) views_.push_back(tape().view(gathered_, piece.slot->sizes, contiguous_strides(piece.slot->sizes)));
  op.finish_all(views_, on_stream(owner_.unshard_stream_, [this, parts](BackwardCall& call) {
                  tape().host(HostWork::backward_node, parts);
                  const StreamScope backward_scope(tape(), owner_.unshard_stream_);
                  const std::vector<Tensor> unused = zeros_of_unused(call);
                  Tensor flat = tape().empty({elements_}, compute_type(), Category::gradient);
                  concatenate(flat, {flat});
                  call.give(0, std::move(flat));
                }));
}

/// split_with_sizes_backward: what got no gradient (parameters that nobody used, padding) is filled up with zeros.
std::vector<Tensor> Fsdp1Unit::zeros_of_unused(BackwardCall& call) const {
  std::vector<Tensor> filled;
  const auto fill = [&](std::int64_t elements) {
    if (elements > 0) filled.push_back(zeros(tape(), {elements}, compute_type()));
  };
  std::int64_t end = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    fill(pieces_[i].offset - end);
    end = pieces_[i].offset + pieces_[i].slot->sizes.product();
    if (!call.grad(i).defined()) fill(end - pieces_[i].offset);
  }
  fill(elements_ - end);
  return filled;
}

void Fsdp1Unit::show_views() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].slot->tensor = views_[i];
}

/// Gathered, and seen by autograd as one split from then on: its backward comes behind that of all that runs later.
void Fsdp1Unit::unshard_for_forward() {
  unshard();
  split_views();
}

/// _prefetch_handle in forward: the unit that ran after this one in the first pass, unless it ran in this pass already; a recomputation runs
/// units that did.
void Fsdp1Unit::prefetch_forward() {
  if (!owner_.settings_.forward_prefetch || *pre_forward_index_ + 1 >= owner_.pre_forward_order_.size()) return;
  Fsdp1Unit& next = *owner_.pre_forward_order_[*pre_forward_index_ + 1];
  if (!next.unshards_in_forward_ || next.prefetched_) return;
  next.unshard_for_forward();
  next.prefetched_ = true;
}

/// _prefetch_handle: the unit that ran before this one in forward, before this one's gradients (BACKWARD_PRE) or after (BACKWARD_POST).
void Fsdp1Unit::prefetch_backward(FsdpOptions::Prefetch now) {
  if (post_forward_index_.value_or(0) == 0 || owner_.settings_.backward_prefetch != now) return;
  Fsdp1Unit& target = *owner_.post_forward_order_[*post_forward_index_ - 1];
  if (target.unshards_in_backward_) target.unshard();
}

// ---- forward -------------------------------------------------------------------------------------------------------------

/// MixedPrecision casts the root's inputs (cast_root_forward_inputs), those of other units only where it is told so (cast_forward_inputs).
void Fsdp1Unit::cast_inputs(std::vector<Tensor*>& inputs) const {
  if (!owner_.settings_.param_dtype) return;
  for (Tensor* input : inputs)
    if (input->defined() && is_floating(input->dtype())) *input = to(*input, *owner_.settings_.param_dtype);
}

void Fsdp1Unit::pre_forward(std::vector<Tensor*>& inputs) {
  if (state_ == State::pre_backward) return;
  tape().host(HostWork::unit);
  state_ = State::forward;
  if (is_root_) {
    owner_.initialize();
    if (owner_.settings_.forward_prefetch) owner_.begin_forward();
    cast_inputs(inputs);
  }
  if (!pieces_.empty()) {
    if (!pre_forward_index_) {
      pre_forward_index_ = owner_.pre_forward_order_.size();
      owner_.pre_forward_order_.push_back(this);
    }
    if (!prefetched_) unshard_for_forward();
    unshards_in_forward_ = false;
    tape().wait(kComputeStream, owner_.unshard_stream_);
    show_views();
    prefetch_forward();
  }
  if (!trainable_) reshard_behind(inputs);
}

/// _register_post_backward_reshard_only_hook: a unit without gradients is given back when those of its inputs have come.
void Fsdp1Unit::reshard_behind(const std::vector<Tensor*>& inputs) {
  inputs_waiting_ = 0;
  if (!tape().grad_enabled || pieces_.empty()) return;
  for (const Tensor* input : inputs) {
    if (!input->defined() || !input->requires_grad()) continue;
    ++inputs_waiting_;
    input->register_hook([this](Tensor&) {
      if (--inputs_waiting_ > 0) return;
      state_ = State::post_backward;
      reshard(frees_in_backward());
      prefetch_backward(FsdpOptions::Prefetch::post);
    });
  }
}

void Fsdp1Unit::post_forward(std::vector<Tensor*>& outputs) {
  if (state_ == State::pre_backward) return;
  if (!pieces_.empty()) {  // _ExecOrderData.record_post_forward: the first use counts, but for one at the very start
    if (post_forward_index_.value_or(0) == 0) post_forward_index_ = owner_.post_forward_order_.size();
    owner_.post_forward_order_.push_back(this);
  }
  if (!is_root_ && (owner_.settings_.reshard_after_forward || !sharded())) reshard(true);
  if (is_root_ && !sharded()) reshard(true);
  state_ = State::idle;
  unshards_in_backward_ = false;
  if (!tape().grad_enabled) return;
  for (Tensor* output : outputs) {
    if (!output->defined() || !output->requires_grad()) continue;
    output->register_hook([this](Tensor&) { pre_backward(); });
    unshards_in_backward_ = true;
  }
}

// ---- backward ------------------------------------------------------------------------------------------------------------

void Fsdp1Unit::pre_backward() {
  if (!owner_.callback_queued_) {
    owner_.callback_queued_ = true;
    tape().queue_callback([&owner = owner_] { owner.finish_backward(); });
  }
  if (pieces_.empty()) return;  // a root whose parameters are all those of units below gathers nothing ahead
  if (state_ == State::pre_backward || !unshards_in_backward_) return;
  tape().host(HostWork::unit);
  state_ = State::pre_backward;
  unshard();
  tape().wait(kComputeStream, owner_.unshard_stream_);
  show_views();
  unshards_in_backward_ = false;
  prefetch_backward(FsdpOptions::Prefetch::pre);
  if (Tensor& earlier = shard_.grad(); earlier && sharded()) reduced_ = std::exchange(earlier, {});
}

/// _post_backward_hook: the flat gradient is reduced in its own stream and becomes the shard's gradient.
void Fsdp1Unit::post_backward() {
  if (!gathered_.grad()) return;
  tape().host(HostWork::unit);
  state_ = State::post_backward;
  const LabelScope label(tape(), module_.label);
  reshard(frees_in_backward());
  prefetch_backward(FsdpOptions::Prefetch::post);
  views_.clear();
  if (!owner_.synchronize_) return show_unsharded_gradient();
  tape().wait(owner_.reduce_stream_, kComputeStream);
  const StreamScope scope(tape(), owner_.reduce_stream_);
  const Tensor computed = gathered_.grad();
  gathered_.grad().reset();
  Tensor gradient = computed.dtype() == reduce_type() ? computed : elementwise(tape(), {&computed}, reduce_type());
  if (sharded())
    reduce_sharded(gradient);
  else
    reduce_whole(std::move(gradient));
  tape().record_stream(computed, owner_.reduce_stream_);
}

/// _use_unsharded_grad_views in no_sync(): where the original parameter differs in size or type from its gradient's view, it is given an
/// empty gradient first, whose data then become the view.
void Fsdp1Unit::show_unsharded_gradient() {
  if (!owner_.settings_.use_orig_params || std::exchange(unsharded_gradient_shown_, true)) return;
  if (!sharded() && !low_precision()) return;
  for (const FlatPiece& piece : pieces_)
    if (mine(piece) > 0 && piece.slot->trainable) tape().empty({mine(piece)}, type_, Category::gradient);
}

/// _reduce_grad, whose variables hold the gradient both as it was and padded until it returns.
void Fsdp1Unit::reduce_sharded(const Tensor& gradient) {
  const Tensor padded = padded_ > elements_ ? pad_last(gradient, 0, padded_ - elements_) : gradient;
  accumulate(reduce(padded));
}

/// Reduce-scattered, with HYBRID_SHARD then all-reduced over the replicas on a stream of its own.
Tensor Fsdp1Unit::reduce(const Tensor& unsharded) {
  Tensor output = tape().empty({shard_elements()}, reduce_type(), Category::gradient);
  divide_if(owner_.predivision() > 1, unsharded);
  tape().collective({.kind = CollectiveKind::reduce_scatter, .group = Group::data_shard, .bytes = unsharded.bytes(), .type = reduce_type()},
                    tape().stream);
  if (owner_.settings_.replicate == 1) {
    divide_if(owner_.divides_again(), output);
    return output;
  }
  tape().wait(owner_.replicate_stream_, tape().stream);
  tape().record_stream(output, owner_.replicate_stream_);
  tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = output.bytes(), .type = reduce_type()},
                    owner_.replicate_stream_);
  const StreamScope scope(tape(), owner_.replicate_stream_);
  divide_if(owner_.divides_again(), output);
  return output;
}

/// _accumulate_sharded_grad, and the copy to the host.
void Fsdp1Unit::accumulate(Tensor output) {
  const StreamScope scope(tape(), owner_.settings_.replicate > 1 ? owner_.replicate_stream_ : tape().stream);
  if (reduce_type() != type_) output = elementwise(tape(), {&output}, type_);
  Tape::categorize(output, Category::gradient);
  if (reduced_) {
    in_place(reduced_, {&reduced_, &output});
  } else {
    reduced_ = std::move(output);
  }
  if (!owner_.settings_.offload_to_host) return;
  tape().copy({Copy::Direction::device_to_host, reduced_.bytes()}, tape().stream);
  tape().record_stream(reduced_, owner_.reduce_stream_);
}

/// _reduce_grad_no_shard: the flat parameter keeps the gradient, to which later micro-batches add; what the optimizer sees follows at once
/// (_post_backward_use_sharded_grad_views).
void Fsdp1Unit::reduce_whole(Tensor gradient) {
  divide_if(owner_.predivision() > 1, gradient);
  tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::world, .bytes = gradient.bytes(), .type = gradient.dtype()},
                    tape().stream);
  divide_if(owner_.divides_again(), gradient);
  if (gradient.dtype() != type_) gradient = elementwise(tape(), {&gradient}, type_);
  Tape::categorize(gradient, Category::gradient);
  gathered_.grad() = std::move(gradient);
  show_gradient();
}

/// prepare_gradient_for_optim: the optimizer's tensors get views of the reduced gradient.
void Fsdp1Unit::show_gradient() {
  if (pieces_.empty()) return;  // a root whose modules are all in units of their own
  if (!sharded()) reduced_ = gathered_.grad();
  if (!reduced_) return;
  if (owner_.settings_.offload_to_host) {
    reduced_.reset();
    return;
  }
  if (!owner_.settings_.use_orig_params) {
    shard_.grad() = std::exchange(reduced_, {});
    return;
  }
  for (const auto& [slot, original] : originals_) original.grad() = tape().view(reduced_, original.sizes(), original.strides());
}

void Fsdp1Unit::end_backward() {
  reshard(frees_in_backward());
  state_ = State::idle;
  unshards_in_backward_ = false;
  post_forward_index_.reset();
  if (owner_.synchronize_) show_gradient();
}

void Fsdp1Unit::rest() {
  if (!pieces_.empty()) rest_storage(shard_);
}

void Fsdp1Unit::fetch() {
  if (!pieces_.empty()) fetch_storage(shard_, Category::parameter);
}

void Fsdp1Unit::collect_originals(std::unordered_map<const Parameter*, Tensor>& into) const {
  for (const auto& [slot, original] : originals_) into.emplace(slot, original);
}

}  // namespace plimsoll::program
