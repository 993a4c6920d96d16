#include "program/frameworks/torchtitan_stage.hpp"

#include "plimsoll/error.hpp"
#include "program/frameworks/torchtitan_init.hpp"
#include "program/frameworks/torchtitan_loss.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// apply_fsdp_to_decoder's shard_placement_fn: experts are cut over the ranks that hold the same experts, and along their rows where there
/// are more ranks than experts.
Fsdp2Placement place_parameter(const Strategy& s, std::int64_t experts, const Parameter& parameter) {
  const Fsdp2Mesh dense{s.fsdp_degree, s.dp_replicate};
  if (!parameter.expert) return {0, dense};
  Fsdp2Mesh mesh = dense;
  if (s.ep > 1) mesh = {s.fsdp_degree * s.tp / s.ep, s.dp_replicate, Group::expert_data};
  return {mesh.shard * s.ep > experts ? 1 : 0, mesh};
}

std::int64_t experts_of(const Model& model) {
  for (const Block& block : model.blocks)
    if (block.moe) return block.moe->experts;
  return 0;
}

Fsdp2Options fsdp2_options(const Model& model, const Strategy& s) {
  if (s.fsdp.reshard == FsdpOptions::Reshard::number)
    refuse("reshard_after_forward to a smaller group is not modelled", "fsdp.reshard_after_forward");
  Fsdp2Options options;
  options.shard = s.fsdp_degree;
  options.replicate = s.dp_replicate;
  options.param_dtype = s.compute_dtype;
  options.reduce_dtype = s.reduce_dtype;
  options.cast_forward_inputs = false;
  // get_fsdp_reshard_after_forward_policy: by default a pipeline keeps its parameters gathered.
  const bool always = s.fsdp.reshard == FsdpOptions::Reshard::always;
  options.reshard_after_forward = always || (s.fsdp.reshard != FsdpOptions::Reshard::never && s.pp == 1);
  options.offload_to_host = s.offload.params;
  if (const std::int64_t experts = experts_of(model); experts > 0)
    options.placement = [s, experts](const Parameter& parameter) { return place_parameter(s, experts, parameter); };
  return options;
}

/// apply_fsdp_to_decoder: the embedding, norm and head together, every layer; tied tables are one unit with the norm.
std::vector<std::vector<Module*>> units_of(TitanDecoder& decoder, bool tied) {
  std::vector<std::vector<Module*>> units;
  if (tied) {
    units.push_back({decoder.embedding(), decoder.norm(), decoder.head()});
  } else {
    if (decoder.embedding()) units.push_back({decoder.embedding()});
    if (decoder.head()) units.push_back({decoder.norm(), decoder.head()});
  }
  for (std::size_t i = 0; i < decoder.layers(); ++i) units.push_back({&decoder.layer(i)});
  return units;
}

/// Before 0.3: every layer, and the root around embedding, norm and head.
std::vector<std::vector<Module*>> layers_of(TitanDecoder& decoder) {
  std::vector<std::vector<Module*>> units;
  for (std::size_t i = 0; i < decoder.layers(); ++i) units.push_back({&decoder.layer(i)});
  return units;
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

TitanPart::TitanPart(const Model& model, const Strategy& strategy, const TitanRun& run, const TitanStage& stage, Tape& tape)
    : tape_(tape),
      strategy_(strategy),
      stage_(stage),
      hidden_(model.hidden_size),
      tied_(model.tied_embeddings),
      decoder_(model, run, stage, tape),
      sharded_(tape, decoder_.root(), run.shared_table > 0 ? layers_of(decoder_) : units_of(decoder_, model.tied_embeddings),
               fsdp2_options(model, strategy)) {
  if (decoder_.norm() && run.shared_table == 0)
    sharded_.set_reshard_after_forward(*decoder_.norm(), strategy.fsdp.reshard == FsdpOptions::Reshard::always);
  if (strategy.ep > 1) prefetch_in_order();
}

/// With expert parallelism every unit gathers the next one itself: the exchange of tokens waits for the host.
void TitanPart::prefetch_in_order() {
  std::vector<const Module*> order;
  if (decoder_.embedding()) order.push_back(decoder_.embedding());
  for (std::size_t i = 0; i < decoder_.layers(); ++i) order.push_back(&decoder_.layer(i));
  if (decoder_.norm()) order.push_back(decoder_.norm());
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    sharded_.prefetch_in_forward(*order[i], *order[i + 1]);
    sharded_.prefetch_in_backward(*order[i + 1], *order[i]);
  }
}

void TitanPart::materialize() {
  sharded_.materialize();
  if (tied_) sharded_.share_shard(*decoder_.embedding(), *decoder_.head());
  if (decoder_.run().shared_table == 0) initialize_weights(tape_, decoder_, strategy_.fsdp_degree);
}

Tensor TitanPart::loss(const Tensor& prediction, const TitanBatch& batch, const Tensor& valid_tokens) {
  const LossInputs inputs{batch.labels, batch.positions, valid_tokens};
  if (strategy_.loss == LossKernel::chunked) return chunked_loss(tape_, decoder_, sharded_, strategy_.loss_chunks, prediction, inputs);
  return cross_entropy_loss(decoder_.run().tensor_parallel, prediction, inputs);
}

/// A tensor that travels between stages: the hidden states of one micro-batch.
Tensor TitanPart::boundary() {
  const TensorParallel& tp = decoder_.run().tensor_parallel;
  const std::int64_t length = strategy_.seq_len / strategy_.cp / (tp.sequence ? tp.degree : 1);
  tape_.operator_name = "pipeline";
  return tape_.empty({strategy_.micro_batch, length, hidden_}, strategy_.compute_dtype.value_or(DType::bf16),
                     Category::communication_buffer);
}

void TitanPart::begin_schedule(std::size_t micro_batches) {
  for (std::vector<Tensor>* list : {&inputs_, &outputs_, &gradients_, &losses_}) list->assign(micro_batches, Tensor());
}

void TitanPart::receive_activation(std::size_t micro_batch) {
  if (first()) return;
  last_received_ = inputs_[micro_batch] = boundary();
  tape_.collective(
      {.kind = CollectiveKind::receive, .group = Group::pipeline, .bytes = last_received_.bytes(), .type = last_received_.dtype()},
      kComputeStream);
}

void TitanPart::receive_gradient(std::size_t micro_batch, bool kept) {
  if (last()) return;
  gradients_[micro_batch] = boundary();
  if (kept) last_gradient_ = gradients_[micro_batch];
  const Tensor& buffer = gradients_[micro_batch];
  tape_.collective({.kind = CollectiveKind::receive, .group = Group::pipeline, .bytes = buffer.bytes(), .type = buffer.dtype()},
                   kComputeStream);
}

void TitanPart::forward(std::size_t micro_batch, const TitanBatch& batch, const Tensor& valid_tokens) {
  sharded_.set_manual_finalization(true);
  Tensor input = batch.tokens;
  if (!first()) {
    input = inputs_[micro_batch];
    input.set_requires_grad(true);
  }
  tape_.phase(Phase::forward);
  outputs_[micro_batch] = decoder_(input, batch.positions);
  const Tensor& output = outputs_[micro_batch];
  if (last()) {
    tape_.phase(Phase::loss);
    losses_[micro_batch] = loss(output, batch, valid_tokens);
  } else {
    tape_.collective({.kind = CollectiveKind::send, .group = Group::pipeline, .bytes = output.bytes(), .type = output.dtype()},
                     kComputeStream);
  }
}

void TitanPart::release_output(std::size_t micro_batch) {
  if (!last() && outputs_[micro_batch]) outputs_[micro_batch] = edge_of(outputs_[micro_batch]);
}

void TitanPart::backward(std::size_t micro_batch) {
  tape_.phase(Phase::backward);
  const Tensor output = std::move(outputs_[micro_batch]);
  const Tensor gradient = std::move(gradients_[micro_batch]);
  const Tensor input = std::move(inputs_[micro_batch]);
  outputs_[micro_batch].reset();
  gradients_[micro_batch].reset();
  inputs_[micro_batch].reset();
  sharded_.set_reshard_after_backward(false);
  sharded_.set_requires_gradient_sync(false);
  tape_.backward(last() ? losses_[micro_batch] : output, gradient);
  if (!input) return;
  sent_gradients_.push_back(input.grad());
  input.grad().reset();
}

void TitanPart::release_sent_gradients(std::size_t kept) {
  while (sent_gradients_.size() > kept) sent_gradients_.pop_front();
}

void TitanPart::reduce_gradients() {
  sharded_.finalize_backward();
  sharded_.set_manual_finalization(false);
}

void TitanPart::end_schedule() {
  for (std::vector<Tensor>* list : {&inputs_, &outputs_, &gradients_, &losses_}) list->clear();
  last_received_.reset();
  last_gradient_.reset();
  sent_gradients_.clear();
}

}  // namespace plimsoll::program
