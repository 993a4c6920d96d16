#include "program/wrappers/fsdp1.hpp"

#include <algorithm>
#include <unordered_set>

#include "program/op.hpp"
#include "program/ops.hpp"
#include "program/wrappers/leaf.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kAlignment = 16;  // bytes; FlatParamHandle aligns the original parameters it shows

struct FlatPiece {
  std::shared_ptr<Parameter> slot;
  std::int64_t offset = 0;  ///< elements from the start of the flat parameter
};

}  // namespace

/// FlatParamHandle: the parameters of one wrapped module in one flat tensor.
class Fsdp1Unit {
 public:
  enum class State { idle, forward, pre_backward, post_backward };

  Fsdp1Unit(Fsdp1& owner, Module& module, std::vector<std::shared_ptr<Parameter>> slots, bool is_root);
  void materialize();
  void install_hooks();
  void initialize();
  void unshard();
  void reshard();
  void show_gradient();
  void collect_shards(std::vector<Tensor>& into) const;
  void forget_gradient() { reduced_.reset(); }
  State state = State::idle;

 private:
  void pre_forward();
  void post_forward(std::vector<Tensor*>& outputs);
  void pre_backward();
  void post_backward();
  void split_views();
  void show_views();
  DType compute_type() const { return owner_.settings_.param_dtype.value_or(type_); }
  bool low_precision() const { return compute_type() != type_; }
  std::int64_t shard_elements() const { return padded_ / owner_.settings_.shard; }
  Tape& tape() const { return owner_.tape_; }

  Fsdp1& owner_;
  Module& module_;
  bool is_root_;
  std::vector<FlatPiece> pieces_;
  DType type_ = DType::fp32;
  std::int64_t elements_ = 0, padded_ = 0;
  Tensor shard_;                   ///< the rank's part, in the parameters' type
  std::vector<Tensor> originals_;  ///< the optimizer's pieces of it, with use_orig_params
  Tensor gathered_;                ///< leaf on the padded unsharded storage
  NodeRef accumulator_;            ///< of the leaf: carries the post-backward hook
  Tensor low_precision_shard_;
  std::vector<Tensor> views_;  ///< of the original parameters, outputs of one split
  Tensor reduced_;             ///< the reduced gradient: _saved_grad_shard
  bool unsharded_ = false;
  std::size_t post_forward_index_ = 0;
};

Fsdp1Unit::Fsdp1Unit(Fsdp1& owner, Module& module, std::vector<std::shared_ptr<Parameter>> slots, bool is_root)
    : owner_(owner), module_(module), is_root_(is_root) {
  if (!slots.empty()) type_ = slots.front()->type;
  const std::int64_t quantum = owner.settings_.use_orig_params ? kAlignment / size_of(compute_type()) : 1;
  for (auto& slot : slots) {
    elements_ = round_up(elements_, quantum);
    pieces_.push_back({slot, elements_});
    elements_ += slot->sizes.product();
  }
  padded_ = round_up(elements_, owner.settings_.shard);
  if (owner.settings_.use_orig_params) elements_ = padded_;
}

void Fsdp1Unit::materialize() {
  const LabelScope label(tape(), module_.label);
  std::vector<Tensor> parameters;
  for (const FlatPiece& piece : pieces_) parameters.push_back(tape().empty(piece.slot->sizes, type_, Category::parameter));
  const Tensor flat = tape().empty({elements_}, type_, Category::parameter);
  shard_ = tape().parameter({shard_elements()}, type_, true);
  // Rank 0's pieces of the original parameters; what lies in other ranks' shards is empty and no business of the optimizer.
  for (const FlatPiece& piece : pieces_) {
    const std::int64_t mine = std::min(piece.offset + piece.slot->sizes.product(), shard_elements()) - piece.offset;
    if (mine > 0 && piece.slot->trainable) originals_.push_back(leaf_on(tape(), shard_, {mine}, true));
  }
}

/// init_flat_param_attributes at the first forward: buffers are made and emptied.
void Fsdp1Unit::initialize() {
  if (pieces_.empty()) return;
  const LabelScope label(tape(), module_.label);
  if (low_precision()) {
    low_precision_shard_ = tape().empty({shard_elements()}, compute_type(), Category::communication_buffer);
    tape().free_storage(low_precision_shard_);
  }
  const Tensor padded = tape().empty({padded_}, compute_type(), Category::communication_buffer);
  gathered_ = leaf_on(tape(), padded, {elements_}, true);
  tape().free_storage(gathered_);
  accumulator_ = tape().gradient_edge(gathered_).function;
  accumulator_->post_hooks.push_back([this](const Gradients&) { post_backward(); });
}

void Fsdp1Unit::install_hooks() {
  module_.pre_forward.insert(module_.pre_forward.begin(), [this](Module&, std::vector<Tensor*>&) { pre_forward(); });
  module_.post_forward.push_back([this](Module&, std::vector<Tensor*>& outputs) { post_forward(outputs); });
}

void Fsdp1Unit::unshard() {
  if (unsharded_ || pieces_.empty()) return;
  const LabelScope label(tape(), module_.label);
  if (low_precision()) {
    const StreamScope scope(tape(), owner_.pre_unshard_stream_);
    tape().allocate_storage(low_precision_shard_, Category::communication_buffer);
    launch(tape(), KernelKind::elementwise, compute_type(), shard_.bytes(), low_precision_shard_.bytes());
  }
  tape().wait(owner_.unshard_stream_, owner_.pre_unshard_stream_);
  {
    const StreamScope scope(tape(), owner_.unshard_stream_);
    tape().allocate_storage(gathered_, Category::communication_buffer);
    tape().collective({.kind = CollectiveKind::all_gather,
                       .group = Group::data_shard,
                       .bytes = padded_ * size_of(compute_type()),
                       .type = compute_type()},
                      owner_.unshard_stream_);
    if (low_precision()) tape().free_storage(low_precision_shard_);
  }
  unsharded_ = true;
}

void Fsdp1Unit::reshard() {
  if (!unsharded_) return;
  for (const FlatPiece& piece : pieces_) piece.slot->tensor.reset();
  tape().free_storage(gathered_);
  unsharded_ = false;
}

/// _get_unflat_views: torch.split of the flat parameter, on the unshard stream; the backward concatenates the gradients there.
void Fsdp1Unit::split_views() {
  const StreamScope scope(tape(), owner_.unshard_stream_);
  views_.clear();
  Op op("split_with_sizes", {&gathered_});
  for (const FlatPiece& piece : pieces_) views_.push_back(tape().view(gathered_, piece.slot->sizes, contiguous_strides(piece.slot->sizes)));
  op.finish_all(views_, [this](BackwardCall& call) {
    const StreamScope backward_scope(tape(), owner_.unshard_stream_);
    Tensor flat = tape().empty({elements_}, compute_type(), Category::gradient);
    launch(tape(), KernelKind::elementwise, flat.dtype(), flat.bytes(), flat.bytes());
    call.give(0, std::move(flat));
  });
}

void Fsdp1Unit::show_views() {
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].slot->tensor = views_[i];
}

void Fsdp1Unit::pre_forward() {
  if (state == State::pre_backward) return;
  state = State::forward;
  if (is_root_ && !owner_.initialized_) {
    for (auto& unit : owner_.units_) unit->initialize();
    owner_.initialized_ = true;
  }
  unshard();
  tape().wait(kComputeStream, owner_.unshard_stream_);
  if (pieces_.empty()) return;
  split_views();
  show_views();
}

void Fsdp1Unit::post_forward(std::vector<Tensor*>& outputs) {
  if (state == State::pre_backward) return;
  post_forward_index_ = owner_.post_forward_order_.size();
  owner_.post_forward_order_.push_back(this);
  if (!is_root_ && owner_.settings_.reshard_after_forward) reshard();
  state = State::idle;
  if (!tape().grad_enabled) return;
  for (Tensor* output : outputs)
    if (output->defined() && output->requires_grad()) output->register_hook([this](Tensor&) { pre_backward(); });
}

void Fsdp1Unit::pre_backward() {
  if (!owner_.callback_queued_) {
    owner_.callback_queued_ = true;
    tape().queue_callback([&owner = owner_] { owner.finish_backward(); });
  }
  if (state == State::pre_backward) return;
  state = State::pre_backward;
  unshard();
  tape().wait(kComputeStream, owner_.unshard_stream_);
  show_views();
  if (post_forward_index_ > 0) owner_.post_forward_order_[post_forward_index_ - 1]->unshard();  // BackwardPrefetch.BACKWARD_PRE
}

/// _post_backward_hook: the flat gradient is reduced in its own stream and becomes the shard's gradient.
void Fsdp1Unit::post_backward() {
  if (!gathered_.grad()) return;
  state = State::post_backward;
  const LabelScope label(tape(), module_.label);
  reshard();
  views_.clear();
  tape().wait(owner_.reduce_stream_, kComputeStream);
  const StreamScope scope(tape(), owner_.reduce_stream_);
  const Tensor computed = std::move(gathered_.grad());
  gathered_.grad().reset();
  const DType reduce_type = owner_.settings_.reduce_dtype.value_or(compute_type());
  Tensor unsharded = computed.dtype() == reduce_type ? computed : elementwise(tape(), {&computed}, reduce_type);
  if (padded_ > elements_) unsharded = pad_last(unsharded, 0, padded_ - elements_);
  Tensor output = tape().empty({shard_elements()}, reduce_type, Category::gradient);
  tape().collective({.kind = CollectiveKind::reduce_scatter, .group = Group::data_shard, .bytes = unsharded.bytes(), .type = reduce_type},
                    owner_.reduce_stream_);
  if (reduce_type != type_) output = elementwise(tape(), {&output}, type_);
  Tape::categorize(output, Category::gradient);
  if (reduced_) {
    in_place(reduced_, {&reduced_, &output});
  } else {
    reduced_ = std::move(output);
  }
  tape().record_stream(computed, owner_.reduce_stream_);
}

/// prepare_gradient_for_optim: the optimizer's tensors get views of the reduced gradient.
void Fsdp1Unit::show_gradient() {
  state = State::idle;
  if (!reduced_) return;
  if (!owner_.settings_.use_orig_params) {
    shard_.grad() = reduced_;
    reduced_.reset();
    return;
  }
  for (const Tensor& original : originals_) original.grad() = tape().view(reduced_, original.sizes(), original.strides());
}

void Fsdp1Unit::collect_shards(std::vector<Tensor>& into) const {
  if (owner_.settings_.use_orig_params) {
    into.insert(into.end(), originals_.begin(), originals_.end());
  } else if (shard_) {
    into.push_back(shard_);
  }
}

Fsdp1::Fsdp1(Tape& tape, Module& root, const std::vector<Module*>& units, const Fsdp1Settings& settings)
    : tape_(tape),
      root_(root),
      settings_(settings),
      pre_unshard_stream_(tape.add_stream("pre-unshard")),
      unshard_stream_(tape.add_stream("unshard")),
      reduce_stream_(tape.add_stream("post-backward")) {
  std::unordered_set<Parameter*> managed;
  const auto wrap = [&](Module& module, bool is_root) {
    std::vector<std::shared_ptr<Parameter>> slots;
    for (auto& slot : module.all_parameters())
      if (managed.insert(slot.get()).second) slots.push_back(slot);
    units_.push_back(std::make_unique<Fsdp1Unit>(*this, module, std::move(slots), is_root));
    units_.back()->install_hooks();
  };
  for (Module* module : units) wrap(*module, false);
  wrap(root, true);
}

Fsdp1::~Fsdp1() = default;

void Fsdp1::materialize() {
  for (auto& unit : units_) unit->materialize();
  for (Module* module : root_.all_modules()) {
    const LabelScope label(tape_, module->label);
    for (ModuleBuffer& buffer : module->buffers) buffer.tensor = tape_.empty(buffer.sizes, buffer.type, Category::parameter);
  }
}

std::vector<Tensor> Fsdp1::shards() const {
  std::vector<Tensor> all;
  units_.back()->collect_shards(all);   // the root's own come first in named_parameters()
  for (auto unit = units_.begin(); unit + 1 != units_.end(); ++unit) (*unit)->collect_shards(all);
  return all;
}

void Fsdp1::after_step() {
  for (auto& unit : units_) unit->forget_gradient();
}

void Fsdp1::finish_backward() {
  tape_.wait(kComputeStream, reduce_stream_);
  for (auto& unit : units_) unit->show_gradient();
  post_forward_order_.clear();
  callback_queued_ = false;
}

}  // namespace plimsoll::program
