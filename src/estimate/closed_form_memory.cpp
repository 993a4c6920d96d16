#include "estimate/closed_form_memory.hpp"

#include <algorithm>
#include <cmath>

#include "estimate/model_states.hpp"
#include "estimate/saved_tensors.hpp"
#include "memory/model_states.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/schedule.hpp"

namespace plimsoll::estimation {
namespace {

double bytes_of(std::optional<DType> type, DType otherwise) { return static_cast<double>(size_of(type.value_or(otherwise))); }

/// Gathered and reduced copies that are alive while a layer's backward runs.
double sharding_transient(const States& states, const Strategy& s) {
  const auto unit = static_cast<std::int64_t>(states.largest_unit);
  switch (engine_of(s)) {
    case Engine::torch_ddp:
      return s.ddp.gradient_as_bucket_view.value_or(false) ? 0 : states.gradients;  // buckets: a second copy
    case Engine::fsdp1:
    case Engine::fsdp2:
    case Engine::megatron_fsdp: {
      if (!divided_by(s).parameters) return 0;
      const double root = states.root_unit * bytes_of(s.compute_dtype, DType::bf16);
      const bool whole = s.fsdp.reshard == FsdpOptions::Reshard::never || s.pp > 1;  // every unit stays gathered
      const double gathered = whole ? states.held.whole * bytes_of(s.compute_dtype, DType::bf16) : root;
      return gathered + static_cast<double>(memory::fsdp2_backward_transient(unit, s.reduce_dtype.value_or(DType::fp32)).count);
    }
    case Engine::deepspeed: {
      const DType type = s.compute_dtype.value_or(DType::bf16);
      if (s.data_parallel == DataParallel::zero0) return 0;
      double bytes = static_cast<double>(
          memory::deepspeed_reduce_buckets(s.deepspeed.reduce_bucket_size, type, s.deepspeed.overlap_comm.value_or(false)).count);
      if (s.data_parallel == DataParallel::zero3)
        bytes +=
            std::min(states.held.whole, static_cast<double>(s.deepspeed.stage3_max_live_parameters)) * static_cast<double>(size_of(type));
      return bytes;
    }
    default:
      return 0;
  }
}

double optimizer_transient(const States& states, const Strategy& s) {
  const Elements& trained = s.lora ? states.adapters : states.held;
  const double shard = divided_by(s).optimizer ? trained.shard : trained.whole;
  if (engine_of(s) == Engine::deepspeed && s.data_parallel != DataParallel::zero0)
    return shard * (s.data_parallel == DataParallel::zero3 ? 6 : 2 + 4);  // flattened 16-bit gradients and their fp32 copy
  if (s.optimizer_impl != OptimizerImpl::foreach || s.offload.optimizer) return 0;
  return static_cast<double>(memory::foreach_adam_temporary(static_cast<std::int64_t>(shard), s.state_dtype.value_or(DType::fp32)).count);
}

/// Bytes per logit at the worst point of the loss (docs/modelling.md, the head).
double loss_bytes_per_logit(const Strategy& s, ModelCode code) {
  const bool wide = s.compute_dtype == DType::fp32;
  switch (s.loss) {
    case LossKernel::vocab_parallel:
    case LossKernel::fused_vocab_parallel:
    case LossKernel::te:
      return 6;
    case LossKernel::compiled:
      return 4;
    case LossKernel::liger:
      return 2;
    case LossKernel::liger_fused_linear:
      return 0;
    case LossKernel::chunked:
      return 12.0 / std::max(1, s.loss_chunks);
    default:
      return wide || code == ModelCode::torchtitan ? 12 : 14;
  }
}

std::int64_t sequence_of(const Strategy& s) { return s.tgt_len > 0 ? s.tgt_len : s.seq_len; }

double loss_bytes(const Model& model, const std::vector<const Stage*>& chunks, const Strategy& s, ModelCode code) {
  const bool last = std::any_of(chunks.begin(), chunks.end(), [](const Stage* chunk) { return chunk->last; });
  const bool language = model.task == Model::Task::causal_lm || model.task == Model::Task::masked_lm || model.task == Model::Task::seq2seq;
  if (!last || !language) return 0;
  const double logits = static_cast<double>(s.micro_batch * sequence_of(s)) / s.cp * static_cast<double>(model.vocab_size) / s.tp;
  return logits * loss_bytes_per_logit(s, code);
}

/// Activations of all micro-batches in flight, and what one layer's backward brings back.
struct Activations {
  double kept = 0, layer = 0;
};

double in_flight(const Strategy& s, int stage) {
  if (s.pp <= 1) return 1;
  const Schedule schedule = make_schedule(s.pp_schedule, s.pp, static_cast<int>(s.micro_batches_per_run()), s.vp);
  return static_cast<double>(peak_in_flight(schedule, stage)) / std::max(1, s.vp);
}

Activations activations_of(const Model& model, const std::vector<const Stage*>& chunks, int stage, const Strategy& s,
                           const FrameworkProfile& framework, const flops::Lengths& lengths) {
  Activations all;
  for (const Stage* chunk : chunks)
    for (const Part& part : chunk->parts) {
      const SavedBytes saved = saved_bytes(*part.block, input_width(model, *part.block), s, framework, lengths);
      all.kept += saved.kept * static_cast<double>(part.layers);
      if (is_layer(*part.block)) all.layer = std::max(all.layer, saved.recomputed + 3 * saved.widest);  // three wide gradients at once
    }
  all.kept *= in_flight(s, stage);
  if (s.offload.activations) all.kept = 2 * all.layer;
  return all;
}

/// One point of the step: what is alive there, by category.
struct Point {
  Phase phase;
  MemoryByCategory alive;
  Bytes total() const {
    Bytes sum;
    for (const Bytes bytes : alive.bytes) sum += bytes;
    return sum;
  }
};

Bytes whole(double bytes) { return Bytes(std::llround(bytes)); }

Point point(Phase phase, const States& states, double gradients, double activations, double temporary, double communication) {
  Point at{phase, {}};
  at.alive[Category::parameter] = whole(states.parameters);
  at.alive[Category::optimizer_state] = whole(states.optimizer);
  at.alive[Category::gradient] = whole(gradients);
  at.alive[Category::activation] = whole(activations);
  at.alive[Category::temporary] = whole(temporary);
  at.alive[Category::communication_buffer] = whole(communication);
  return at;
}

}  // namespace

MemoryTrace closed_form_memory(const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster,
                               const Strategy& resolved) {
  if (profile_of(resolved).code == ModelCode::maxtext) refuse("what XLA plans has none");
  for (const Block& block : model.blocks)
    if (block.mamba) refuse("state-space layers have none", block.name);
  const std::vector<const Stage*> chunks = chunks_of(stages, stage, resolved);
  const FrameworkProfile framework = profile_of(resolved);
  const flops::Lengths lengths{resolved.seq_len, resolved.tgt_len > 0 ? resolved.tgt_len : resolved.text_tokens};
  States states = states_of(chunks, resolved);
  if (resolved.offload.params) states.parameters = 0;
  if (resolved.offload.optimizer) states.optimizer = 0;
  const Activations activations = activations_of(model, chunks, stage, resolved, framework, lengths);
  const double head = loss_bytes(model, chunks, resolved, framework.code), transient = sharding_transient(states, resolved);
  const bool accumulates = states.gradients_persist || resolved.grad_accum > 1;
  const double early_gradients = accumulates ? states.gradients : 0;
  const double ddp_copy = engine_of(resolved) == Engine::torch_ddp ? transient : 0;

  const Point points[] = {
      point(Phase::loss, states, early_gradients, activations.kept, head, ddp_copy),
      point(Phase::backward, states, early_gradients, activations.kept, activations.layer, transient),
      point(Phase::backward, states, states.gradients, 0, 0, transient),
      point(Phase::optimizer, states, states.gradients, 0, optimizer_transient(states, resolved), ddp_copy),
  };
  const auto& peak =
      *std::max_element(std::begin(points), std::end(points), [](const Point& a, const Point& b) { return a.total() < b.total(); });

  MemoryTrace trace;
  trace.at_peak = peak.alive;
  trace.at_peak[Category::workspace] = cluster.accelerator.overheads.blas_workspace.value;
  trace.peak_phase = peak.phase;
  trace.peak_allocated = peak.total() + trace.at_peak[Category::workspace];
  trace.backward_peak = std::max({points[0].total(), points[1].total(), points[2].total()}, [](Bytes a, Bytes b) { return a < b; }) +
                        trace.at_peak[Category::workspace];
  trace.first_step_allocated = trace.backward_peak - whole(states.optimizer);
  trace.persistent = whole(states.parameters + states.optimizer + (states.gradients_persist ? states.gradients : 0));
  return trace;
}

}  // namespace plimsoll::estimation
