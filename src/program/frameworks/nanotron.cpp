// nanotron's trainer on one rank: fp32 gradient accumulation, torch DDP or ZeRO-1, 1F1B. Sources: nanotron (Dec 2024) trainer.py,
// optim/gradient_accumulator.py, optim/zero.py, distributed.py, parallel/pipeline_parallel/{engine,block,state,functional}.py.
#include "framework/nanotron.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>

#include "plimsoll/error.hpp"
#include "program/lower.hpp"
#include "program/modules/nanotron/llama.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/point_to_point.hpp"
#include "program/python_function.hpp"
#include "program/wrappers/ddp.hpp"

namespace plimsoll::program {

namespace {

/// Steady micro-batches recorded behind the warm-up of 1F1B: from the second one on every micro-batch meets the allocator as the one before
/// did.
constexpr std::int64_t kRecordedSteadyMicroBatches = 3;
constexpr std::int64_t kBandwidthElements = 256LL << 20;  // measure_bandwidth
constexpr std::int64_t kRanksPerNode = 8;
/// Entries that a CUDA channel takes before the host blocks; CUDA_DEVICE_MAX_CONNECTIONS=1 makes it one channel for all streams.
constexpr std::int64_t kLaunchQueue = 1024;

NanotronSizes sizes_of_rank(const Model& model, const Strategy& strategy) {
  const std::int64_t tp = std::max(strategy.tp, 1);
  const auto divided = [tp](std::int64_t n, const char* what) {
    if (n % tp != 0)
      refuse(std::string("nanotron cuts ") + what + " over the tensor-parallel ranks: " + std::to_string(n) + " are not divisible by " +
             std::to_string(tp));
    return n / tp;
  };
  NanotronSizes sizes;
  sizes.tp = tp;
  sizes.scatters = strategy.sequence_parallel.value_or(true);
  sizes.hidden = model.hidden_size;
  sizes.head_dim = model.head_dim;
  sizes.heads = divided(model.heads, "the heads");
  sizes.kv_heads = divided(model.kv_heads, "the key and value heads");
  sizes.ffn = divided(model.intermediate_size, "the MLP");
  sizes.vocab = ceil_div(model.vocab_size, tp);  // _vocab_size_with_padding
  sizes.batch = strategy.micro_batch;
  sizes.sequence = strategy.seq_len;
  if (sizes.scatters) divided(sizes.sequence, "the sequence");
  return sizes;
}

NanotronStage stage_of_rank(const Model& model, const Strategy& strategy, int rank) {
  const int stages = std::max(strategy.pp, 1);
  if (stages == 1) return {0, static_cast<int>(model.layers), true, true};
  if (strategy.pp_layers.size() != static_cast<std::size_t>(stages)) refuse("nanotron's interleaved stages have no lowering");
  const auto first = strategy.pp_layers.begin();
  return {std::accumulate(first, first + rank, 0), strategy.pp_layers[static_cast<std::size_t>(rank)], rank == 0, rank == stages - 1};
}

/// AllForwardAllBackwardPipelineEngine.
bool runs_all_forwards_first(const Strategy& strategy) { return strategy.pp > 1 && strategy.pp_schedule == "gpipe"; }

void check(const Model& model, const Strategy& strategy) {
  if (model.task != Model::Task::causal_lm || model.blocks.empty()) refuse("nanotron is modelled for its Llama only");
  for (const Block& block : model.blocks) {
    if (block.moe || (block.attention && block.attention->qk_norm != AttentionSpec::QkNorm::none))
      refuse("nanotron is modelled for its Llama only");
    if (block.attention && (block.attention->qkv_bias || block.attention->output_bias))
      refuse("nanotron's Llama has no biases", "model");
  }
  if (strategy.recompute.kind != Recompute::Kind::none && strategy.recompute.kind != Recompute::Kind::automatic &&
      strategy.recompute.kind != Recompute::Kind::full)
    refuse("nanotron recomputes whole layers or nothing", "recompute", "full or none");
  if (strategy.cp > 1 || strategy.ep > 1) refuse("nanotron has no context or expert parallelism here");
  if (strategy.optimizer != OptimizerKind::adamw && strategy.optimizer != OptimizerKind::adam)
    refuse("nanotron's optimizer is modelled as fused AdamW only");
  if (!runs_all_forwards_first(strategy) && strategy.micro_batches < strategy.pp - 1)
    refuse("nanotron's 1F1B needs at least pp − 1 micro-batches");
}

/// FP32GradientAccumulator: one fp32 gradient buffer of all parameters; fp32 weights, and with ZeRO-1 moments, of this rank's slices.
class NanotronOptimizer {
 public:
  NanotronOptimizer(Tape& tape, Module& root, std::int64_t data_parallel, bool sharded)
      : tape_(tape), parameters_(trainable_tensors(root)), ranks_(data_parallel), sharded_(sharded && data_parallel > 1) {
    std::int64_t all = 0, own = 0;
    for (const Tensor& parameter : parameters_) {
      all += parameter.elements();
      own += slice(parameter);
    }
    all_ = all;
    own_ = own;
    tape_.operator_name = "gradient accumulator";
    gradients_ = tape_.empty({all}, DType::fp32, Category::gradient);
    weights_ = tape_.empty({own}, DType::fp32, Category::optimizer_state);
  }

  /// Adds this micro-batch's 16-bit gradients to the fp32 ones and drops them.
  void accumulate() {
    tape_.operator_name = "accumulate";
    for (const Tensor& parameter : parameters_) {
      Tensor& gradient = parameter.grad();
      if (!gradient) continue;
      const Operand sum = packed(gradient.elements(), DType::fp32);
      pointwise(tape_, Pointwise::Form::map, {sum, operand(gradient)}, {sum});
      gradient.reset();
    }
  }

  void step(StreamId communication) {
    if (sharded_) all_reduce_gradients(communication);
    clip();
    tape_.operator_name = "adamw";
    tape_.host(HostWork::optimizer);
    tape_.host(HostWork::optimizer_tensor, static_cast<std::int64_t>(parameters_.size()));
    const bool first = moments_.empty();
    for (const Tensor& parameter : parameters_) {
      const std::int64_t own = slice(parameter);
      if (first) {
        moments_.push_back(tape_.empty({}, DType::fp32, Category::optimizer_state));  // step
        for (int moment = 0; moment < 2; ++moment) moments_.push_back(tape_.empty({own}, DType::fp32, Category::optimizer_state));
      }
      multi_tensor(tape_, MultiTensor::Function::fused, 1, own, {DType::fp32, DType::fp32, DType::fp32, DType::fp32},
                   {DType::fp32, DType::fp32, DType::fp32});
    }
    pointwise(tape_, Pointwise::Form::map, {packed(own_, DType::fp32)}, {packed(own_, DType::bf16)});
    if (sharded_) gather_weights(communication);
    pointwise(tape_, Pointwise::Form::map, {}, {packed(all_, DType::fp32)});  // zero_grad
  }

 private:
  /// Elements of a parameter that data-parallel rank 0 updates.
  std::int64_t slice(const Tensor& parameter) const { return sharded_ ? ceil_div(parameter.elements(), ranks_) : parameter.elements(); }

  void all_reduce_gradients(StreamId communication) { communicate(CollectiveKind::all_reduce, gradients_, communication); }

  /// A collective of torch.distributed without async_op: the compute stream waits for it.
  void communicate(CollectiveKind kind, const Tensor& whole, StreamId communication) {
    tape_.wait(communication, kComputeStream);
    tape_.collective({.kind = kind, .group = Group::data_shard, .bytes = whole.bytes(), .type = whole.dtype()}, communication);
    tape_.wait(kComputeStream, communication);
  }

  /// clip_grad_norm: one norm per parameter, their norm, a scaling in place.
  void clip() {
    tape_.operator_name = "clip";
    std::vector<Tensor> norms;
    for (const Tensor& parameter : parameters_) {
      norms.push_back(tape_.empty({}, DType::fp32));
      const Operand gradient = packed(parameter.elements(), DType::fp32);
      reduce(tape_, Reduction::Axis::all, 1, {gradient}, {operand(norms.back())});
      pointwise(tape_, Pointwise::Form::map, {gradient}, {gradient});
    }
  }

  /// all_gather_coalesced: the rank's new weights flattened, one flat output per rank, and NCCL's own flat copy of those. Every rank's
  /// slice of every parameter is cut out before and copied to its place behind, one by one.
  void gather_weights(StreamId communication) {
    tape_.operator_name = "gather weights";
    const Tensor own = flattened_weights();
    std::vector<Tensor> outputs;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) outputs.push_back(flattened_weights());
    const Tensor flat = tape_.empty({own_ * ranks_}, DType::bf16, Category::communication_buffer);
    communicate(CollectiveKind::all_gather, flat, communication);
    for (const Tensor& output : outputs) in_place(output, {&output});
    tape_.host(HostWork::optimizer_tensor, ranks_ * static_cast<std::int64_t>(parameters_.size()));
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      for (const Tensor& parameter : parameters_) {
        const Operand piece = packed(slice(parameter), DType::bf16);
        pointwise(tape_, Pointwise::Form::map, {piece}, {piece});
      }
    }
  }

  Tensor flattened_weights() {
    Tensor weights = tape_.empty({own_}, DType::bf16, Category::communication_buffer);
    tape_.host(HostWork::optimizer_tensor, static_cast<std::int64_t>(parameters_.size()));
    const Operand all = operand(weights);
    pointwise(tape_, Pointwise::Form::concatenate, {all}, {all});
    return weights;
  }

  Tape& tape_;
  std::vector<Tensor> parameters_;
  std::int64_t ranks_, all_ = 0, own_ = 0;
  bool sharded_;
  Tensor gradients_, weights_;
  std::vector<Tensor> moments_;
};

/// Which rank of how many.
struct PipelineRank {
  int rank = 0, ranks = 1;
};

/// One pipeline rank's OneForwardOneBackwardPipelineEngine, or AllForwardAllBackward's: all of it is warm-up.
class NanotronEngine {
 public:
  /// `waits_for_sends`: so that no neighbour opens its communicators while this rank's host goes on.
  NanotronEngine(NanotronDevice& device, NanotronLlama& model, const NanotronStage& stage, NanotronOptimizer& optimizer, Ddp* ddp,
                 const PipelineRank& pipeline_rank, bool waits_for_sends)
      : device_(device),
        tape_(device.tape),
        model_(model),
        stage_(stage),
        optimizer_(optimizer),
        ddp_(ddp),
        transfers_(tape_, pipeline_rank.ranks),
        rank_(pipeline_rank.rank),
        waits_for_sends_(waits_for_sends),
        connected_(waits_for_sends) {}

  /// `warm_up`: forward passes before the first backward one. The second turn of the steady state stands for `left_out` more.
  /// In the first step the next rank stops between its first two receives to open its communicator with the rank behind it, while this
  /// rank's second send waits on the device and its host goes on: the only time in a pipeline that the host is far ahead.
  void train_batch(std::int64_t micro_batches, std::int64_t warm_up, std::int64_t left_out) {
    backwards_left_ = micro_batches;
    Repeated repeated{.times = 1 + left_out};
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      if (i == warm_up + 1) repeated.begin = tape_.recorded();
      if (i == warm_up + 2) repeated.end = tape_.recorded();
      forward();
      if (i < warm_up) {
        if (i == 1 && !connected_) tape_.stall();
        send_activation();
      } else {
        backward();
      }
    }
    connected_ = true;
    sent_gradient_.reset();
    while (!in_flight_.empty()) {
      backward();
      sent_gradient_.reset();
    }
    batch_ = {};
    losses_.clear();
    tape_.program().repeated = repeated;
  }

 private:
  struct Batch {
    Tensor ids, ids_mask, labels, label_mask;
  };

  Batch next_batch() {
    const Dims sizes{device_.sizes.batch, device_.sizes.sequence};
    tape_.operator_name = "inputs";
    Batch batch;
    if (stage_.embedding) {
      batch.ids = tape_.empty(sizes, DType::int64, Category::input);
      batch.ids_mask = tape_.empty(sizes, DType::boolean, Category::input);
    }
    if (stage_.head) {
      batch.labels = tape_.empty(sizes, DType::int64, Category::input);
      batch.label_mask = tape_.empty(sizes, DType::boolean, Category::input);
    }
    return batch;
  }

  void forward() {
    tape_.phase(Phase::forward);
    batch_ = next_batch();
    Tensor state = model_.hidden(stage_.embedding ? batch_.ids : receive_activation());
    if (stage_.head) {
      tape_.phase(Phase::loss);
      const Tensor loss = model_.loss(state, batch_.labels, batch_.label_mask);
      Tensor scaled = divide_scalar(loss);
      losses_.push_back(scaled.detach());
      in_flight_.push_back(std::move(scaled));
    } else {
      in_flight_.push_back(register_send(state));
      activation_ = std::move(state);
    }
  }

  void backward() {
    if (ddp_) ddp_->before_forward(--backwards_left_ == 0);
    tape_.phase(Phase::backward);
    const Tensor root = std::move(in_flight_.front());
    in_flight_.pop_front();
    tape_.backward(root);
    optimizer_.accumulate();
  }

  /// RecvTensorFromPipelineBuffer: a new tensor; its backward registers the gradient, which is sent at the next communication.
  Tensor receive_activation() {
    Tensor received = tape_.empty(device_.sizes.hidden_state(), DType::bf16, Category::communication_buffer);
    transfer(CollectiveKind::receive, rank_ - 1, received);
    sent_gradient_.reset();
    received.set_requires_grad(true);
    PythonFunction op("receive", {&received});
    Tensor y = tape_.view(received, received.sizes(), received.strides());
    return op.done(y, [this](BackwardCall& b) {
      sent_gradient_ = b.grad();
      transfer(CollectiveKind::send, rank_ - 1, sent_gradient_);
    });
  }

  /// SendTensorToPipelineBuffer: a scalar on the host, whose backward sends what is still to be sent and receives the gradient.
  Tensor register_send(const Tensor& state) {
    PythonFunction op("send", {&state});
    Tensor token = tape_.empty({0}, DType::fp32);
    return op.done(token, [this](BackwardCall& b) {
      Tensor gradient = b.tape.empty(device_.sizes.hidden_state(), DType::bf16, Category::communication_buffer);
      transfer(CollectiveKind::receive, rank_ + 1, gradient);
      send_activation();
      b.give(0, std::move(gradient));
    });
  }

  void send_activation() {
    if (!activation_) return;
    transfer(CollectiveKind::send, rank_ + 1, activation_);
    activation_.reset();
  }

  /// The receiver reads on the host what tensor is to come, and so waits for the device; once the sender asked until it had been read.
  /// What was received is waited for at once, what is sent never.
  void transfer(CollectiveKind kind, int peer, const Tensor& tensor) {
    if (kind == CollectiveKind::receive || waits_for_sends_) tape_.synchronize();
    const StreamId stream = transfers_.issue(kind, peer, message_of(tensor));
    tape_.record_stream(tensor, stream);
    if (kind == CollectiveKind::receive) tape_.wait(kComputeStream, stream);
  }

  NanotronDevice& device_;
  Tape& tape_;
  NanotronLlama& model_;
  NanotronStage stage_;
  NanotronOptimizer& optimizer_;
  Ddp* ddp_;
  PairedTransfers transfers_;
  int rank_;
  bool waits_for_sends_;
  bool connected_;  ///< every neighbour has opened its communicators
  std::int64_t backwards_left_ = 0;
  Batch batch_;
  Tensor activation_;     ///< this rank's output until it is sent
  Tensor sent_gradient_;  ///< gradient of the received activation until the next communication
  std::deque<Tensor> in_flight_;
  std::vector<Tensor> losses_;
};

/// Trainer.pre_init: bandwidths are measured with tensors of 1 GiB, whose segments the parameters then fill.
void measure_bandwidth(Tape& tape, std::int64_t ranks) {
  const std::int64_t local = std::min(ranks, kRanksPerNode);
  std::vector<Tensor> tensors;
  tape.operator_name = "measure_bandwidth";
  const auto make = [&](std::int64_t elements) { tensors.push_back(tape.empty({elements}, DType::fp32)); };
  make(kBandwidthElements);
  make(kBandwidthElements);
  make(kBandwidthElements / ranks);
  make(kBandwidthElements / local);
  make(kBandwidthElements / ranks);
  make(kBandwidthElements);
  make(kBandwidthElements / local);
  make(kBandwidthElements);
  make(kBandwidthElements);
}

}  // namespace

std::int64_t nanotron_launch_queue() { return kLaunchQueue; }

StepProgram lower_nanotron(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  const int pipeline_rank = rank.pipeline;
  check(model, strategy);
  Tape tape(run.device, run.torch());
  tape.record_into(Tape::Part::init);
  tape.phase(Phase::init);
  const std::int64_t dp = std::max(strategy.dp, 1);
  measure_bandwidth(tape, dp * std::max(strategy.tp, 1) * std::max(strategy.pp, 1));
  const NanotronStage stage = stage_of_rank(model, strategy, pipeline_rank);
  NanotronDevice device(tape, sizes_of_rank(model, strategy));
  NanotronLlama llama(device, stage, model.tied_embeddings, strategy.recompute.kind == Recompute::Kind::full);
  std::unique_ptr<Ddp> ddp;
  if (strategy.data_parallel == DataParallel::ddp && dp > 1)
    ddp = std::make_unique<Ddp>(tape, llama.root(), DdpSettings{.accumulators = DType::fp32});
  NanotronOptimizer optimizer(tape, llama.root(), dp, strategy.data_parallel == DataParallel::zero1);
  tape.empty_cache();
  NanotronEngine engine(device, llama, stage, optimizer, ddp.get(), {pipeline_rank, std::max(strategy.pp, 1)},
                        framework::nanotron_waits_for_sends(strategy));
  const StreamId communication = tape.add_stream("data parallel");
  const bool all_forwards = runs_all_forwards_first(strategy);
  const std::int64_t warm_up = all_forwards ? strategy.micro_batches : std::max(strategy.pp, 1) - pipeline_rank - 1;
  const std::int64_t micro_batches = std::min(strategy.micro_batches, warm_up + kRecordedSteadyMicroBatches);
  for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
    tape.record_into(part);
    engine.train_batch(micro_batches, std::min(warm_up, micro_batches), strategy.micro_batches - micro_batches);
    tape.phase(Phase::optimizer);
    if (ddp) tape.wait(kComputeStream, ddp->stream());
    optimizer.step(communication);
    if (ddp) ddp->after_step();
    tape.synchronize();  // the loss is printed
    tape.phase(Phase::end);
  }
  return tape.take();
}

}  // namespace plimsoll::program
