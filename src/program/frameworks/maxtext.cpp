// MaxText's train_step on one rank, as XLA makes it of GSPMD's partitions: layers in two scans, weights gathered a layer ahead and
// gradients scattered a layer behind (the pipelined collectives and the latency-hiding scheduler of XLA's GPU compiler), one optimizer
// fusion a parameter. Sources: AI-Hypercomputer/maxtext of December 2024 (train.py, layers/models.py, max_utils.py), optax.adamw,
// openxla/xla: gpu_compiler.cc (its collectives' passes), collective_quantizer, NVIDIA/dgxc-benchmarking maxtext/configure.sh.
#include "framework/maxtext.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/kernels.hpp"
#include "program/lower.hpp"
#include "program/modules/maxtext/decoder_layer.hpp"

namespace plimsoll::program {

namespace {

const Block& layers_of(const Model& model) {
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::decoder) return block;
  refuse("MaxText is modelled for decoders of layers");
}

void check_model(const Model& model) {
  const Block& block = layers_of(model);
  const bool llama = model.task == Model::Task::causal_lm && block.repeat == model.layers && block.attention && block.mlp && !block.moe &&
                     block.placement == NormPlacement::pre && block.norm.kind == NormSpec::Kind::rms_norm;
  const auto no = [](bool lacks, const std::string& what) {
    if (lacks) refuse(what + " no lowering for MaxText yet", {}, "its Llama layers have one");
  };
  no(!llama, "layers other than Llama's have");
  const AttentionSpec& attention = *block.attention;
  no(attention.mla.has_value() || attention.qk_norm != AttentionSpec::QkNorm::none || attention.sinks || attention.qkv_bias,
     "this attention has");
  no(attention.sliding_window.has_value() || attention.positions != Positions::rope,
     "attention with a window or without rotary positions has");
  no(!block.mlp->gated || block.mlp->bias, "an MLP that is not gated, or with biases, has");
}

void check_strategy(const Strategy& s) {
  const auto no = [](bool lacks, const char* what, const char* key) {
    if (lacks) refuse(std::string(what) + " has no lowering for MaxText yet", key);
  };
  no(s.precision != Precision::amp_bf16, "a precision other than bf16 over fp32 weights", "precision");
  no(s.optimizer != OptimizerKind::adamw, "an optimizer other than adamw", "optimizer");
  no(s.micro_batches > 1, "gradient accumulation", "grad_accum");
  no(s.lora.has_value() || s.offload.any(), "an adapter or offloading", "offload");
}

MaxtextSizes sizes_of(const Model& model, const Strategy& strategy) {
  return {model.layers,   strategy.micro_batch, strategy.seq_len,        model.hidden_size, model.heads,
          model.kv_heads, model.head_dim,       model.intermediate_size, model.vocab_size};
}

class MaxtextTrainer {
 public:
  MaxtextTrainer(Tape& tape, const Model& model, const Strategy& strategy)
      : tape_(tape),
        sizes_(sizes_of(model, strategy)),
        eight_bits_(strategy.low_precision == LowPrecision::fp8),
        embeds_by_product_(framework::maxtext_embeds_by_product(strategy)),
        tied_(model.tied_embeddings),
        clips_(strategy.clip_grad_norm.value_or(true)),
        shards_(std::max(strategy.dp_shard, 1)),
        replicas_(std::max(strategy.dp_replicate, 1)),
        collectives_(tape.add_stream("collectives")),
        layer_(tape, sizes_, framework::maxtext_kept(strategy), eight_bits_),
        table_(tape, "token_embedder", sizes_.vocab, sizes_.hidden, CutDimension::out, false),
        head_(tape, "decoder.logits_dense", sizes_.hidden, sizes_.vocab, CutDimension::in, false) {}

  void initialize() {
    for (const MaxtextLinear& linear : layer_.linears()) add_parameter(linear.elements() * sizes_.layers, true);
    add_parameter(2 * sizes_.hidden * sizes_.layers, false);  // norms are whole on every rank
    add_parameter(sizes_.hidden, false);
    add_parameter(table_.elements(), true);
    if (!tied_) add_parameter(head_.elements(), true);
  }

  void step() {
    tape_.phase(Phase::forward);
    Tensor table = gather(table_.elements(), DType::bf16), first = gather_layer();
    Tensor head = tied_ ? table : gather(head_.elements(), DType::bf16);
    tape_.wait(kComputeStream, collectives_);
    Tensor x = scan_forward(embed(), std::move(first));
    if (!tied_) table.reset();
    tape_.phase(Phase::loss);
    open_gradients();
    Tensor gradient = loss(x);
    head.reset();
    tape_.phase(Phase::backward);
    gradient = scan_backward(std::move(gradient));
    embed_backward(gradient);
    tape_.phase(Phase::optimizer);
    update();
    gradients_.clear();
    tape_.phase(Phase::end);
  }

 private:
  struct Parameter {
    Tensor weight, mean, variance;  ///< fp32, this rank's shard
  };

  bool alone() const { return shards_ * replicas_ == 1; }
  std::int64_t shard(std::int64_t elements) const { return ceil_div(elements, shards_); }

  void add_parameter(std::int64_t elements, bool sharded) {
    const Dims own{sharded ? shard(elements) : elements};
    parameters_.push_back({tape_.empty(own, DType::fp32, Category::parameter), tape_.empty(own, DType::fp32, Category::optimizer_state),
                           tape_.empty(own, DType::fp32, Category::optimizer_state)});
  }

  // ---- collectives -------------------------------------------------------------------------------------------------------

  /// A started collective waits for what was issued before it; who reads its result waits for the stream.
  void start(CollectiveKind kind, Group group, std::int64_t bytes, DType type) {
    tape_.collective({.kind = kind, .group = group, .bytes = bytes, .type = type}, collectives_);
  }

  /// A weight's shard in the type in which it is gathered, and its gathering. 8-bit operands are quantized before they are sent (XLA's
  /// collective quantizer).
  Tensor gather(std::int64_t elements, DType type) {
    tape_.operator_name = "gather weights";
    Tensor whole = tape_.empty({elements}, type, Category::communication_buffer);
    const Tensor own = tape_.empty({shard(elements)}, DType::fp32), cast = tape_.empty({shard(elements)}, type);
    fusion(tape_, {own}, {cast});
    tape_.wait(collectives_, kComputeStream);
    if (shards_ > 1) start(CollectiveKind::all_gather, Group::data_shard, whole.bytes(), type);
    return whole;
  }

  std::int64_t layer_elements() const {
    std::int64_t elements = 0;
    for (const MaxtextLinear& linear : layer_.linears()) elements += linear.elements();
    return elements;
  }

  /// All weights of a layer, which XLA's combiner makes one all-gather.
  Tensor gather_layer() { return gather(layer_elements(), eight_bits_ ? DType::fp8 : DType::bf16); }

  /// A weight's gradient, in 16 bits on its way, becomes the fp32 shard that the optimizer reads.
  void scatter(std::int64_t elements) {
    if (shards_ > 1) start(CollectiveKind::reduce_scatter, Group::data_shard, elements * size_of(DType::bf16), DType::bf16);
    if (replicas_ > 1) start(CollectiveKind::all_reduce, Group::data_replicate, shard(elements) * size_of(DType::bf16), DType::bf16);
  }

  /// What a layer's ranks tell each other beside its weights' gradients: those of the norms, and in 8 bits the maxima of three operands of
  /// every product.
  void reduce_small() {
    const auto maxima = static_cast<std::int64_t>(eight_bits_ ? 3 * layer_.linears().size() : 0);
    const std::int64_t bytes = (2 * sizes_.hidden + maxima) * size_of(DType::fp32);
    if (!alone()) start(CollectiveKind::all_reduce, Group::world, bytes, DType::fp32);
  }

  void scatter_layer() {
    for (const MaxtextLinear& linear : layer_.linears()) scatter(linear.elements());
    reduce_small();
  }

  void store_gradient(std::int64_t elements) {
    const Tensor reduced = tape_.empty({shard(elements)}, DType::bf16), stored = tape_.empty({shard(elements)}, DType::fp32);
    fusion(tape_, {reduced}, {stored});
  }

  // ---- passes ------------------------------------------------------------------------------------------------------------

  Tensor embed() {
    tape_.operator_name = "embed";
    Tensor x = tape_.empty({sizes_.rows(), sizes_.hidden}, DType::bf16);
    const Tensor ids = tape_.empty({sizes_.rows()}, DType::int32, Category::input);
    if (embeds_by_product_) {
      const Tensor one_hot = tape_.empty({sizes_.rows(), sizes_.vocab}, DType::bf16);
      fusion(tape_, {ids}, {one_hot});
      table_.forward(one_hot, x);
    } else {
      plimsoll::program::gather(Gather::Function::embedding, x.elements(), {&ids, &x}, {&x});
    }
    return x;
  }

  void embed_backward(const Tensor& gradient) {
    tape_.operator_name = "embed";
    const Tensor ids = tape_.empty({sizes_.rows()}, DType::int32, Category::input);
    const Tensor whole = tape_.empty({table_.elements()}, DType::bf16, Category::communication_buffer);
    if (embeds_by_product_) {
      const Tensor one_hot = tape_.empty({sizes_.rows(), sizes_.vocab}, DType::bf16);
      fusion(tape_, {ids}, {one_hot});
      table_.weight_gradient(one_hot);
    } else {
      plimsoll::program::gather(Gather::Function::scatter, gradient.elements(), {&ids, &gradient}, {&gradient});
    }
    tape_.wait(collectives_, kComputeStream);
    scatter(table_.elements());
    tape_.wait(kComputeStream, collectives_);
    store_gradient(table_.elements());
  }

  /// An iteration gathers the next layer's weights while it multiplies by its own.
  Tensor scan_forward(Tensor x, Tensor weights) {
    layer_.open_stacks();
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
      Tensor next;
      if (layer + 1 < sizes_.layers) next = gather_layer();
      x = layer_.forward(x);
      tape_.wait(kComputeStream, collectives_);
      weights = std::move(next);
    }
    return x;
  }

  /// The same backwards; the gradients of the layer before are scattered meanwhile.
  Tensor scan_backward(Tensor gradient) {
    Tensor weights = gather_layer(), scattered;
    tape_.wait(kComputeStream, collectives_);
    for (std::int64_t layer = sizes_.layers; layer-- > 0;) {
      Tensor next;
      if (layer > 0) next = gather_layer();
      if (scattered) scatter_layer();
      Tensor own = tape_.empty({layer_elements()}, DType::bf16, Category::communication_buffer);
      gradient = layer_.backward(gradient);
      tape_.wait(kComputeStream, collectives_);
      if (scattered) store_gradient(layer_elements());
      scattered = std::move(own);
      weights = std::move(next);
    }
    layer_.close_stacks();
    tape_.wait(collectives_, kComputeStream);
    scatter_layer();
    tape_.wait(kComputeStream, collectives_);
    store_gradient(layer_elements());
    return gradient;
  }

  void open_gradients() {
    for (const Parameter& parameter : parameters_)
      gradients_.push_back(tape_.empty(parameter.weight.sizes(), DType::fp32, Category::gradient));
  }

  /// Final norm, head and cross entropy with their gradients; each reduction over a row reads the logits again.
  Tensor loss(const Tensor& x) {
    tape_.operator_name = "loss";
    const Tensor statistic = rms_statistic(tape_, x), normed = head_.operand(sizes_.rows());
    fusion(tape_, {x, statistic}, {normed});
    Tensor logits = tape_.empty({sizes_.rows(), sizes_.vocab}, DType::bf16);
    head_.forward(normed, logits);
    constexpr int kReductions = 3;  // the maximum, the sum of exponentials, the target's logarithm
    const Tensor of_row = tape_.empty({sizes_.rows()}, DType::fp32);
    for (int i = 0; i < kReductions; ++i) reduce(tape_, Reduction::Axis::inner, sizes_.rows(), {operand(logits)}, {operand(of_row)});
    const Tensor of_logits = tape_.empty(logits.sizes(), logits.dtype());
    fusion(tape_, {logits, of_row}, {of_logits});
    logits.reset();
    const Tensor of_normed = tape_.empty(x.sizes(), x.dtype()), whole = tape_.empty({head_.elements()}, DType::bf16);
    head_.input_gradient({of_logits, of_logits}, of_normed);
    head_.weight_gradient(normed);
    tape_.wait(collectives_, kComputeStream);
    scatter(head_.elements());
    tape_.wait(kComputeStream, collectives_);
    store_gradient(head_.elements());
    return rms_norm_backward(tape_, of_normed, x, statistic, {});
  }

  /// Norms of gradients before and after clipping and of the weights, which train_step reports, and one fusion a parameter.
  void update() {
    tape_.operator_name = "adamw";
    const Tensor norm = tape_.empty({}, DType::fp32);
    const auto sum_squares = [&](const Tensor& of) { reduce(tape_, Reduction::Axis::all, 1, {operand(of)}, {operand(norm)}); };
    for (const Tensor& gradient : gradients_) sum_squares(gradient);
    if (!alone()) {
      tape_.wait(collectives_, kComputeStream);
      start(CollectiveKind::all_reduce, Group::world, size_of(DType::fp32), DType::fp32);
      tape_.wait(kComputeStream, collectives_);
    }
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [weight, mean, variance] = parameters_[i];
      if (clips_) sum_squares(gradients_[i]);
      fusion(tape_, {weight, gradients_[i], mean, variance}, {weight, mean, variance});
      sum_squares(weight);
    }
  }

  Tape& tape_;
  MaxtextSizes sizes_;
  bool eight_bits_, embeds_by_product_, tied_, clips_;
  std::int64_t shards_, replicas_;
  StreamId collectives_;
  MaxtextLayer layer_;
  MaxtextLinear table_, head_;
  std::vector<Parameter> parameters_;
  std::vector<Tensor> gradients_;
};

}  // namespace

StepProgram lower_maxtext(const Lowering& run, const Rank& /*rank*/) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  check_model(model);
  check_strategy(strategy);
  Tape tape(run.device);
  MaxtextTrainer trainer(tape, model, strategy);
  trainer.initialize();
  tape.record_into(Tape::Part::first_step);
  trainer.step();
  tape.record_into(Tape::Part::step);
  trainer.step();
  return tape.take();
}

}  // namespace plimsoll::program
