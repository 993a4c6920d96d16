#include "program/frameworks/torchtitan/stage.hpp"

#include "plimsoll/error.hpp"
#include "program/frameworks/torchtitan/init.hpp"
#include "program/frameworks/torchtitan/loss.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// ParallelDims: sequences of a context-parallel group lie within the sharding group; of each the first rank is asked about.
Fsdp2Mesh dense_mesh(const Strategy& s) {
  return {s.fsdp_degree, s.dp_replicate, Group::data_shard, std::int64_t{data_mesh(s).rank} * s.cp};
}

/// The ranks of which apply_fsdp_to_decoder asks whether they are more than there are experts: those over which expert parallelism spreads
/// them; without it the whole mesh that fully_shard is given, replicas and, under spmd_types, tensor-parallel ranks included.
std::int64_t ranks_of_experts(const Strategy& s) {
  const std::int64_t shard = s.fsdp_degree;
  if (s.ep > 1) return shard * s.tp;
  return shard * s.dp_replicate * (s.titan.spmd_backend == "spmd_types" ? s.tp : 1);
}

/// apply_fsdp_to_decoder's shard_placement_fn: experts are cut over the ranks that hold the same experts, and along their rows where there
/// are more ranks than experts.
Fsdp2Placement place_parameter(const Strategy& s, std::int64_t experts, const Parameter& parameter) {
  Fsdp2Mesh mesh = dense_mesh(s);
  if (!parameter.expert) return {0, mesh};
  if (s.ep > 1) mesh = {s.fsdp_degree * s.tp / s.ep, s.dp_replicate, Group::expert_data, mesh.rank * s.tp / s.ep};
  return {ranks_of_experts(s) > experts ? 1 : 0, mesh};
}

std::int64_t experts_of(const Model& model) {
  for (const Block& block : model.blocks)
    if (block.moe) return block.moe->experts;
  return 0;
}

Fsdp2Options fsdp2_options(const Model& model, const Strategy& s, const TitanRun& run) {
  if (s.fsdp.reshard == FsdpOptions::Reshard::number)
    refuse("reshard_after_forward to a smaller group is not modelled", "fsdp.reshard_after_forward");
  Fsdp2Options options;
  options.mesh = dense_mesh(s);
  options.param_dtype = s.compute_dtype;
  options.reduce_dtype = s.reduce_dtype;
  options.cast_forward_inputs = false;
  // get_fsdp_reshard_after_forward_policy: by default a pipeline keeps its parameters gathered.
  const bool always = s.fsdp.reshard == FsdpOptions::Reshard::always;
  options.reshard_root = run.ends_in_root && s.pp == 1;  // fully_shard(model, reshard_after_forward=not pp_enabled)
  options.reshard_after_forward = always || (s.fsdp.reshard != FsdpOptions::Reshard::never && s.pp == 1);
  options.offload_to_host = options.buffers_on_host = s.offload.params;  // to_empty on the host; buffers are made anew on the device
  if (const std::int64_t experts = experts_of(model); experts > 0)
    options.placement = [s, experts](const Parameter& parameter) { return place_parameter(s, experts, parameter); };
  return options;
}

/// The experts of a layer where they are a unit of their own: before 0.3, over the ranks that hold the same ones.
Module* unit_of_experts(const TitanRun& run, Module& layer) {
  if (run.expert_ranks == 1 || run.experts == TitanRun::Experts::dispatched) return nullptr;
  Module* mixture = layer.find_child("moe");
  return mixture ? mixture->find_child("experts") : nullptr;
}

/// What is gathered with a module.
std::vector<Module*> with_experts(TitanDecoder& decoder, Module& module) {
  Module* experts = unit_of_experts(decoder.run(), module);
  return experts ? std::vector<Module*>{&module, experts} : std::vector<Module*>{&module};
}

/// apply_fsdp_to_decoder: the embedding, norm and head together, every layer; tied tables are one unit with the norm where they are one
/// parameter. Until July 2025 the root held embedding, norm and head.
std::vector<std::vector<Module*>> units_of(TitanDecoder& decoder, bool tied) {
  const TitanRun& run = decoder.run();
  std::vector<std::vector<Module*>> units;
  if (tied && !run.shared_table) {
    units.push_back({decoder.embedding(), decoder.norm(), decoder.head()});
  } else if (!run.ends_in_root) {
    if (decoder.embedding()) units.push_back({decoder.embedding()});
    if (decoder.head()) units.push_back({decoder.norm(), decoder.head()});
  }
  for (std::size_t i = 0; i < decoder.layers(); ++i) {
    if (Module* experts = unit_of_experts(run, decoder.layer(i))) units.push_back({experts});
    units.push_back({&decoder.layer(i)});
  }
  return units;
}

/// Whether passes are alike behind the first: not where what they gather depends on what ran before, nor where the run keeps their outputs.
bool may_call(const Strategy& strategy, const TitanRun& run) {
  return strategy.fsdp.reshard != FsdpOptions::Reshard::always && !run.gives_outputs;
}

/// What is left of an output that was sent: its edge into the graph, without memory (torch.autograd.graph.GradientEdge).
Tensor edge_of(const Tensor& output) {
  Tensor edge = output.tape().empty({0}, output.dtype());
  TensorImpl& impl = *edge.impl();
  impl.sizes = output.sizes();
  impl.strides = output.strides();
  impl.grad_fn = output.impl()->grad_fn;
  impl.output = output.impl()->output;
  impl.requires_grad = true;
  return edge;
}

}  // namespace

TitanPart::TitanPart(const Model& model, const Strategy& strategy, const TitanRun& run, const TitanStage& stage, Tape& tape,
                     TitanTransfers* transfers, std::int64_t index, bool calls)
    : tape_(tape),
      strategy_(strategy),
      stage_(stage),
      hidden_(model.hidden_size),
      tied_(run.tied),
      decoder_(model, run, stage, tape),
      sharded_(tape, decoder_.root(), units_of(decoder_, run.tied), fsdp2_options(model, strategy, run)),
      transfers_(transfers),
      index_(index),
      calls_(calls && may_call(strategy, run)),
      alikes_{Alike{Routine(tape)}, Alike{Routine(tape, stage.embedding ? 1 : 2)}} {
  keep_last_unit();
  if (strategy.ep > 1) prefetch_in_order();
}

/// What backward needs first is not resharded by default: norm and head, or the last layer where these are the root's.
void TitanPart::keep_last_unit() {
  const bool always = strategy_.fsdp.reshard == FsdpOptions::Reshard::always;
  if (!decoder_.run().ends_in_root) {
    if (decoder_.norm()) sharded_.set_reshard_after_forward(*decoder_.norm(), always);
  } else if (decoder_.layers() > 0 && !always) {
    sharded_.set_reshard_after_forward(decoder_.layer(decoder_.layers() - 1), false);
  }
}

/// With expert parallelism every unit gathers the next one itself: the exchange of tokens waits for the host.
void TitanPart::prefetch_in_order() {
  std::vector<Module*> order;
  if (decoder_.embedding()) order.push_back(decoder_.embedding());
  for (std::size_t i = 0; i < decoder_.layers(); ++i) order.push_back(&decoder_.layer(i));
  if (decoder_.norm()) order.push_back(decoder_.norm());
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    for (const Module* unit : with_experts(decoder_, *order[i + 1])) sharded_.prefetch_in_forward(*order[i], *unit);
    for (const Module* unit : with_experts(decoder_, *order[i])) sharded_.prefetch_in_backward(*order[i + 1], *unit);
  }
}

void TitanPart::materialize() {
  sharded_.materialize();
  if (tied_ && !decoder_.run().one_table) sharded_.share_shard(*decoder_.embedding(), *decoder_.head());
  initialize_weights(tape_, decoder_, sharded_.options(), strategy_.offload.params);
}

Tensor TitanPart::loss(const Tensor& prediction, const TitanBatch& batch, const Tensor& valid_tokens) {
  const LossInputs inputs{batch.labels, batch.positions, valid_tokens};
  if (strategy_.loss == LossKernel::chunked) return chunked_loss(tape_, decoder_, sharded_, strategy_.loss_chunks, prediction, inputs);
  Tensor loss = decoder_.run().compiled_loss ? compiled_cross_entropy(prediction, inputs)
                                             : cross_entropy_loss(decoder_.run().tensor_parallel, prediction, inputs);
  for (int i = 0; i < decoder_.run().loss_divisions; ++i) loss = divide_scalar(loss);
  return loss;
}

/// A tensor that travels between stages: the hidden states of one micro-batch.
Tensor TitanPart::boundary() {
  const TensorParallel& tp = decoder_.run().tensor_parallel;
  const std::int64_t length = strategy_.seq_len / strategy_.cp / (tp.sequence ? tp.degree : 1);
  tape_.operator_name = "pipeline";
  return tape_.empty({strategy_.micro_batch, length, hidden_}, strategy_.compute_dtype.value_or(DType::bf16),
                     Category::communication_buffer);
}

void TitanPart::begin_inference() {
  if (tape_.torch.stages_keep_buffers()) return;
  tape_.operator_name = "metadata_inference";
  for (Module* module : decoder_.root().all_modules())
    for (const ModuleBuffer& buffer : module->buffers) buffers_kept_.push_back(elementwise(tape_, {&buffer.tensor}, buffer.type));
}

void TitanPart::infer_forward(const TitanBatch& batch) {
  tape_.phase(Phase::forward);
  if (tape_.torch.stages_keep_buffers()) {  // _shape_inference: zeros like the input, under no_grad
    const GradMode no_grad(tape_, false);
    const Tensor input = first() ? elementwise(tape_, {&batch.tokens}, batch.tokens.dtype()) : boundary();
    const Tensor output = decoder_(input, batch.positions);
    return;
  }
  inferred_input_ = first() ? batch.tokens : boundary();
  if (!first()) inferred_input_.set_requires_grad(true);
  inferred_output_ = decoder_(inferred_input_, batch.positions);
}

/// Gradients of the input alone; the first stage has none to infer.
void TitanPart::infer_backward(const TitanBatch& batch, const Tensor& valid_tokens) {
  if (tape_.torch.stages_keep_buffers()) return;
  const Tensor input = std::move(inferred_input_), output = std::move(inferred_output_);
  inferred_input_.reset();
  inferred_output_.reset();
  tape_.phase(Phase::backward);
  const Tensor root = last() ? loss(output, batch, valid_tokens) : output;
  Tensor ones;
  if (!last()) ones = boundary();
  if (first()) return;
  if (last()) ones = elementwise(tape_, {&root}, root.dtype());
  tape_.gradients({tape_.gradient_edge(root)}, {ones}, {tape_.gradient_edge(input)}, false);
}

void TitanPart::end_inference() {
  if (tape_.torch.stages_keep_buffers()) return;
  buffers_kept_.clear();
  sharded_.reshard_all();
  for (const Tensor& shard : sharded_.shards()) shard.grad().reset();
}

void TitanPart::begin_schedule(std::vector<WayBack> ways, std::int64_t all) {
  ways_ = std::move(ways);
  const std::size_t count = ways_.size();
  for (Alike& each : alikes_) each.shows = 0;
  for (std::size_t i = 1; i < count; ++i)
    if (Alike& each = alikes_[static_cast<std::size_t>(ways_[i])]; each.shows == 0) each.shows = i;
  if (tape_.torch.stages_keep_buffers() && received_[kActivation].empty() && received_[kGradient].empty()) {
    if (stage_.rank_before >= 0)
      for (std::int64_t i = 0; i < all; ++i) received_[kActivation].push_back(boundary());
    if (stage_.rank_behind >= 0)
      for (std::int64_t i = 0; i < all; ++i) received_[kGradient].push_back(boundary());
  }
  for (std::vector<Tensor>* list : {&inputs_, &outputs_, &gradients_, &losses_}) list->assign(count, Tensor());
  halves_.clear();
  halves_.resize(count);
}

/// A send that waits for its receive goes with it; one in the other direction goes before, alone.
void TitanPart::receive(Received what, std::size_t micro_batch, const Tensor& buffer) {
  const bool forward = what == kActivation;
  const int peer = forward ? stage_.rank_before : stage_.rank_behind;
  if (transfers_->pairs) {
    const StreamId stream = transfers_->pairs->issue(CollectiveKind::receive, peer, message_of(buffer));
    tape_.record_event(transfers_->events.at(kReceived * index_ + what, static_cast<std::int64_t>(micro_batch)), stream);
    return;
  }
  BatchedTransfers& groups = transfers_->groups;
  groups.begin();
  Message& fused = forward ? gradient_to_send_ : activation_to_send_;
  if (fused) groups.send(peer, std::exchange(fused, {}));
  groups.receive(peer, message_of(buffer));
  groups.end(!transfers_->waits_late);
  if (transfers_->waits_late)
    tape_.record_event(transfers_->events.at(kReceived * index_ + what, static_cast<std::int64_t>(micro_batch)), groups.receiving());
}

/// The compute stream waits for what was received earlier.
void TitanPart::await(Received what, std::size_t micro_batch) {
  if (!transfers_ || !transfers_->waits_late || (what == kActivation ? stage_.rank_before : stage_.rank_behind) < 0) return;
  tape_.wait_event(kComputeStream, transfers_->events.at(kReceived * index_ + what, static_cast<std::int64_t>(micro_batch)));
}

void TitanPart::send(Message& pending, int peer, const Tensor& tensor) {
  if (peer < 0) return;
  pending = message_of(tensor);
  if (!transfers_->fuses) fire(pending, peer);
}

/// A send alone.
void TitanPart::fire(Message& pending, int peer) {
  if (!pending) return;
  if (transfers_->pairs) {
    transfers_->pairs->issue(CollectiveKind::send, peer, std::exchange(pending, {}));
    return;
  }
  transfers_->groups.begin();
  transfers_->groups.send(peer, std::exchange(pending, {}));
  transfers_->groups.end(false);
}

/// Where a micro-batch's input or gradient arrives.
Tensor TitanPart::buffer_of(Received what, std::size_t micro_batch) {
  return tape_.torch.stages_keep_buffers() ? received_[what][micro_batch] : boundary();
}

void TitanPart::receive_activation(std::size_t micro_batch, bool kept) {
  fire(activation_to_send_, stage_.rank_behind);
  if (first()) return;
  inputs_[micro_batch] = buffer_of(kActivation, micro_batch);
  if (kept) last_received_ = inputs_[micro_batch];
  receive(kActivation, micro_batch, inputs_[micro_batch]);
}

void TitanPart::receive_gradient(std::size_t micro_batch, bool kept) {
  fire(gradient_to_send_, stage_.rank_before);
  if (last()) return;
  gradients_[micro_batch] = buffer_of(kGradient, micro_batch);
  if (kept) last_gradient_ = gradients_[micro_batch];
  receive(kGradient, micro_batch, gradients_[micro_batch]);
}

void TitanPart::forward(std::size_t micro_batch, const TitanBatch& batch, const Tensor& valid_tokens) {
  sharded_.set_manual_finalization(true);
  Tensor input = batch.tokens;
  if (!first()) {
    input = inputs_[micro_batch];
    input.set_requires_grad(true);
  }
  await(kActivation, micro_batch);
  Alike* const alike = this->alike(micro_batch);
  if (alike && alike->routine.knows_forward()) {
    std::vector<Tensor> made = alike->routine.forward(input);
    outputs_[micro_batch] = std::move(made.back());
    if (last()) losses_[micro_batch] = std::move(made.front());
  } else {
    compute_forward(micro_batch, input, batch, valid_tokens);
  }
  if (!last()) send(activation_to_send_, stage_.rank_behind, outputs_[micro_batch]);
}

void TitanPart::compute_forward(std::size_t micro_batch, const Tensor& input, const TitanBatch& batch, const Tensor& valid_tokens) {
  Alike* const alike = this->alike(micro_batch);
  if (alike) alike->routine.begin_forward(input);
  tape_.phase(Phase::forward);
  outputs_[micro_batch] = decoder_(input, batch.positions);
  const Tensor& output = outputs_[micro_batch];
  if (last()) {
    if (decoder_.run().gives_outputs) chunks_.push_back(output.detach());
    tape_.phase(Phase::loss);
    losses_[micro_batch] = loss(output, batch, valid_tokens);
  }
  if (!alike) return;
  std::vector<Tensor> made(1, output);
  if (last()) made.insert(made.begin(), losses_[micro_batch]);
  alike->routine.end_forward(input, made);
}

/// Of the micro-batch and those that go back as it does; null for the first, which gathers weights and makes gradients, and where all run.
TitanPart::Alike* TitanPart::alike(std::size_t micro_batch) {
  return calls_ && micro_batch > 0 ? &alikes_[static_cast<std::size_t>(ways_[micro_batch])] : nullptr;
}

void TitanPart::release_output(std::size_t micro_batch) {
  if (!transfers_->fuses) transfers_->await_sends();
  if (!tape_.torch.stages_keep_buffers() && !last() && outputs_[micro_batch]) outputs_[micro_batch] = edge_of(outputs_[micro_batch]);
}

TitanPart::BetweenHalves TitanPart::take_state(std::size_t micro_batch) {
  BetweenHalves state;
  state.output = std::move(outputs_[micro_batch]);
  state.gradient = std::move(gradients_[micro_batch]);
  state.input = std::move(inputs_[micro_batch]);
  state.call = Routine::call_of(last() ? losses_[micro_batch] : state.output);
  for (std::vector<Tensor>* list : {&outputs_, &gradients_, &inputs_}) (*list)[micro_batch].reset();
  return state;
}

/// The gradients of all micro-batches are reduced together, and the weights stay gathered until then.
void TitanPart::hold_reductions() {
  tape_.phase(Phase::backward);
  sharded_.set_reshard_after_backward(false);
  sharded_.set_requires_gradient_sync(false);
}

/// The next pass back of a micro-batch: called where its pass forward was, else `run`.
void TitanPart::go_back(std::size_t micro_batch, const BetweenHalves& state, const std::function<void()>& run) {
  Tensor root = last() ? losses_[micro_batch] : state.output;
  Alike* const alike = this->alike(micro_batch);
  if (state.call) return alike->routine.backward(state.call, state.input, root);
  Routine* const shown = alike && alike->shows == micro_batch ? &alike->routine : nullptr;
  const bool shows = shown && shown->knows_forward() && !shown->knows_backward();
  if (shows) shown->begin_backward(state.input, root);
  run();
  if (shows) shown->end_backward(state.input, root);
}

Tensor TitanPart::backward(std::size_t micro_batch) {
  await(kGradient, micro_batch);
  hold_reductions();
  const BetweenHalves state = take_state(micro_batch);
  go_back(micro_batch, state, [&] { tape_.backward(last() ? losses_[micro_batch] : state.output, state.gradient); });
  if (!state.input || first()) return {};
  return std::exchange(state.input.grad(), Tensor());
}

Tensor TitanPart::backward_input(std::size_t micro_batch) {
  await(kGradient, micro_batch);
  hold_reductions();
  BetweenHalves& state = halves_[micro_batch] = take_state(micro_batch);
  if (first()) return {};
  const Tensor& root = last() ? losses_[micro_batch] : state.output;
  const auto detach = [&] { root.impl()->grad_fn.reset(); };
  go_back(micro_batch, state, [&] {
    InputBackward result = backward_to_input(tape_, root, state.gradient, state.input, sharded_.gathered());
    state.groups = std::move(result.groups);
    state.input.grad() = std::move(result.gradient);
    detach();
  });
  if (state.call) detach();
  if (last()) state.output.reset();
  return state.input.grad();
}

void TitanPart::backward_weight(std::size_t micro_batch) {
  hold_reductions();
  BetweenHalves state = std::exchange(halves_[micro_batch], BetweenHalves());
  go_back(micro_batch, state, [&] {
    if (first()) {
      tape_.backward(last() ? losses_[micro_batch] : state.output, state.gradient);
    } else {
      backward_to_weights(tape_, std::move(state.groups), sharded_.gathered());
    }
  });
}

void TitanPart::send_gradient(Tensor gradient) {
  send(gradient_to_send_, stage_.rank_before, gradient);
  sent_gradients_.push_back(std::move(gradient));
}

void TitanPart::release_sent_gradients(std::size_t kept) {
  while (sent_gradients_.size() > kept) sent_gradients_.pop_front();
}

void TitanPart::reduce_gradients() {
  if (transfers_ && transfers_->fuses) {
    fire(gradient_to_send_, stage_.rank_before);
    transfers_->await_sends();
  }
  sharded_.finalize_backward();
  sharded_.set_manual_finalization(false);
}

void TitanPart::end_schedule() {
  if (!transfers_->fuses) transfers_->await_sends();
  losses_of_step_ = std::move(losses_);
  for (std::vector<Tensor>* list : {&inputs_, &outputs_, &gradients_, &losses_}) list->clear();
  halves_.clear();
  last_received_.reset();
  last_gradient_.reset();
  sent_gradients_.clear();
  if (!chunks_.empty()) cat(chunks_, 0);  // _merge_outputs, for nobody
}

}  // namespace plimsoll::program
