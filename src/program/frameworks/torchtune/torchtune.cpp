// torchtune's recipes: full_finetune and lora_finetune, on a single device and distributed.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/accumulation.hpp"
#include "program/carried.hpp"
#include "program/frameworks/torchtune/loss.hpp"
#include "program/frameworks/torchtune/pairs.hpp"
#include "program/lower.hpp"
#include "program/modules/torchtune/decoder.hpp"
#include "program/offload_activations.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/clipping.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"

namespace plimsoll::program {

namespace {

/// Releases of PyTorch whose habits were read: 2.5 and 2.15. What changed in between is taken as of the later half.
Release torch_of(const Strategy& s) { return s.releases.of(Package::torch); }

DType weight_type(const Strategy& s) {
  if (s.param_dtype) return *s.param_dtype;
  if (s.precision == Precision::pure_bf16) return DType::bf16;
  if (s.precision == Precision::fp32) return DType::fp32;
  refuse("torchtune trains in bf16 or fp32 throughout", "precision", "bf16");
}

/// max_seq_len of torchtune's builder for the model, which a description by dimensions alone does not say.
std::int64_t builder_positions(const Model& model, const Strategy& s) {
  if (model.max_positions > s.seq_len) return model.max_positions;
  constexpr std::pair<const char*, std::int64_t> kBuilders[] = {{"3.1", 131072}, {"3.2", 131072},   {"3.3", 131072}, {"lama-3", 8192},
                                                                {"lama3", 8192}, {"istral", 32768}, {"wen", 32768},  {"emma", 8192},
                                                                {"hi-3", 4096},  {"lama-2", 4096},  {"lama2", 4096}};
  for (const auto& [name, positions] : kBuilders)
    if (model.name.find(name) != std::string::npos) return std::max(positions, s.seq_len);
  return std::max(model.max_positions, s.seq_len);
}

TuneRun run_of(const Model& model, const Strategy& s) {
  const Release release = s.releases.of(Package::torchtune), torch = torch_of(s);
  using Copies = TuneRun::KeyCopies;
  TuneRun run;
  run.type = weight_type(s);
  run.key_copies = !release.since(0, 4)  ? Copies::before_rotation
                   : !release.since(0, 5) ? Copies::behind_rotation
                                          : Copies::by_head;
  run.composed_norm = !release.since(0, 5);
  run.own_unembed = release.since(0, 5);
  run.packed = s.packed;
  run.flex = s.packed && torch.since(2, 5);
  run.checkpointed = s.recompute.kind == Recompute::Kind::full;
  run.compiled = s.compile == Strategy::Compile::blocks;
  run.keeps_rotary_rows = run.packed && !torch.since(2, 10);
  run.positions = builder_positions(model, s);
  run.output_chunks = s.loss == LossKernel::chunked ? s.loss_chunks : 0;
  run.lora = s.lora;
  run.qat_group = s.qat_group_size;
  run.nf4 = s.base_weights == BaseWeights::nf4 || s.base_weights == BaseWeights::nf4_double_quant;
  return run;
}

/// lora_attn_modules, apply_lora_to_mlp and apply_lora_to_output, by the modules' names.
void check_targets(const std::vector<std::string>& targets) {
  static const std::vector<std::string> known = {"q_proj", "k_proj", "v_proj", "output_proj", "w1", "w2", "w3", "output"};
  for (const std::string& target : targets) {
    const std::string name = target.substr(0, target.find('('));
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail("torchtune's modules have no '" + name + "' to adapt", "lora.target_modules", suggest(name, known));
  }
  if (targets.empty()) fail("adapters without targets", "lora.target_modules", "q_proj, v_proj, output_proj");
}

void refuse_what_is_not_modelled(const Strategy& s) {
  if (s.tp > 1 || s.pp > 1 || s.cp > 1 || s.ep > 1) refuse("torchtune's model parallelism is not modelled", "tp");
  if (s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::full)
    refuse("torchtune's selective recomputation is not modelled", "recompute", "none or full");
  if (s.attention == AttentionKernel::memory_efficient) refuse("torchtune leaves the attention kernel to PyTorch", "attention", "sdpa");
  if (s.packed && s.compile == Strategy::Compile::blocks && !torch_of(s).since(2, 5))
    refuse("compiled layers over a mask of packed samples are not modelled: before torch 2.5 there was no flex_attention", "releases.torch", "2.5");
  if (s.offload.activations && s.recompute.kind != Recompute::Kind::full)
    refuse("torchtune offloads activations beside activation checkpointing only", "recompute", "full");
  if (s.offload.activations && s.offload.activation_layers > 0)
    refuse("torchtune offloads the activations of all layers", "offload_layers");
  if (s.data_parallel != DataParallel::none && s.data_parallel != DataParallel::fsdp2)
    refuse("torchtune's recipes shard with fully_shard or run on one device", "data_parallel", "fsdp2");
  if (s.data_parallel == DataParallel::fsdp2 && s.optimizer_in_backward)
    refuse("an optimizer within the backward of a sharded model is not modelled", "optimizer_in_bwd", "false");
  if (s.data_parallel == DataParallel::fsdp2 && is_bitsandbytes(s.optimizer))
    fail("bitsandbytes' optimizers do not take FSDP2's DTensors", "optimizer", "adamw");
  if (s.base_weights == BaseWeights::int8) refuse("torchtune quantises base weights to NF4 only", "base_weights", "nf4");
  if (s.base_weights != BaseWeights::as_trained && !s.lora) refuse("NF4 weights are frozen: they need adapters", "lora");
  if (s.lora) check_targets(s.lora->targets);
  if (s.post_training && (s.packed || s.compile != Strategy::Compile::no || s.qat_group_size > 0 || s.optimizer_in_backward))
    refuse("torchtune's DPO is modelled eager, of pairs that are not packed, by one optimizer", "task", "leave packed, compile, optimizer_in_bwd and qat out");
  if (s.qat_group_size > 0 && s.compile != Strategy::Compile::no) refuse("compiled fake quantizers are not modelled", "compile", "false");
  if (s.qat_group_size > 0 && (s.base_weights != BaseWeights::as_trained || (s.lora && s.lora->dora)))
    fail("torchtune's quantization-aware training is of LoRA's own linears: it takes neither NF4 weights nor DoRA", "qat.group_size", "leave it out");
  if (s.lora && !s.lora->modules_to_save.empty()) refuse("torchtune's LoRA trains adapters alone", "lora.modules_to_save");
}

/// packed_block_causal_mask: block tables of flex_attention, over a mask of all positions that dies when they are made.
std::shared_ptr<BlockMask> make_block_mask(Tape& tape, std::int64_t batch, std::int64_t length) {
  constexpr std::int64_t kBlock = 128;
  const std::int64_t blocks = ceil_div(length, kBlock);
  auto mask = std::make_shared<BlockMask>();
  mask->documents = tape.empty({batch, length}, DType::int64, Category::input);
  {
    Tensor seen;
    {
      const Tensor causal = tape.empty({length, length}, DType::boolean);
      const Tensor same = tape.empty({batch, length, length}, DType::boolean);
      seen = elementwise(tape, {&causal, &same}, DType::boolean);
    }
    const Tensor padded = elementwise(tape, {&seen}, DType::boolean);
    const Tensor counts = tape.empty({batch, 1, blocks, blocks}, DType::int64);
    const Tensor wide = elementwise(tape, {&padded}, DType::int64);
  }
  for (int i = 0; i < 4; ++i) {  // by queries and by keys, partly and wholly seen
    mask->tables.push_back(tape.empty({batch, 1, blocks}, DType::int32, Category::input));
    mask->tables.push_back(tape.empty({batch, 1, blocks, blocks}, DType::int32, Category::input));
  }
  return mask;
}

/// shard_model: every layer from the last, the modules of custom_sharded_layers, the rest with the root.
std::vector<std::vector<Module*>> units_of(TuneDecoder& decoder, const std::vector<std::string>& custom) {
  std::vector<std::vector<Module*>> units;
  const auto sharded_alone = [&](const char* name) {
    if (std::find(custom.begin(), custom.end(), name) == custom.end()) return;
    Module* module = decoder.root().find_child(name);
    if (!module) fail("torchtune's model has no module of its own of that name", "fsdp.units", "leave '" + std::string(name) + "' out");
    units.push_back({module});
  };
  sharded_alone("output");
  for (std::size_t i = decoder.layers(); i-- > 0;) units.push_back({&decoder.layer(i)});
  sharded_alone("tok_embeddings");
  return units;
}

Fsdp2Options fsdp2_options(const Strategy& s) {
  if (s.fsdp.reshard == FsdpOptions::Reshard::number)
    refuse("torchtune reshards behind a forward pass or not at all", "fsdp.reshard_after_forward");
  Fsdp2Options options;
  options.mesh = data_mesh(s);
  options.reshard_after_forward = s.fsdp.reshard != FsdpOptions::Reshard::never;
  // Said explicitly it holds for the root, too; before, the root was never resharded after forward.
  options.reshard_root = options.reshard_after_forward && torch_of(s).since(2, 8);
  options.offload_to_host = s.offload.params;
  return options;
}

class Trainer {
 public:
  explicit Trainer(const Lowering& run)
      : strategy_(run.strategy), run_(run_of(run.model, run.strategy)), tape_(run.device), decoder_(run.model, run_, tape_) {
    const Strategy& strategy = run.strategy;
    // Samples that are not packed are padded to the longest of their batch only: seq_len is their limit.
    if (!strategy.packed && strategy.average_tokens > 0)
      strategy_.seq_len = std::min(strategy.seq_len, static_cast<std::int64_t>(std::ceil(strategy.average_tokens)));
    if (strategy.data_parallel != DataParallel::fsdp2) return;
    sharded_ = std::make_unique<Fsdp2>(tape_, decoder_.root(), units_of(decoder_, strategy.fsdp.units), fsdp2_options(strategy));
  }

  StepProgram record(bool every_micro_batch) {
    tape_.phase(Phase::init);
    materialize();
    Tensor blas_workspace;
    if (!torch_of(strategy_).since(2, 10)) blas_workspace = tape_.workspace_for_good();
    if (strategy_.offload.activations) offload_activations();
    make_optimizers();
    fetch_what_does_not_fit();
    ignored_ = tape_.empty({strategy_.micro_batch, 1}, DType::int64, Category::input);
    // Fake quantizers keep their scales until the next pass: no micro-batch stands for another, and each step finds those of the last.
    const bool keeps_scales = run_.qat_group > 0;
    Accumulation accumulation(tape_, std::max<std::int64_t>(strategy_.grad_accum, 1), every_micro_batch || keeps_scales);
    for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
      tape_.record_into(part);
      train_step(accumulation);
    }
    StepProgram program = tape_.take();
    accumulation.repeat(program);
    if (keeps_scales) carry_across_steps(program);
    return program;
  }

 private:
  std::unique_ptr<Optimizer> optimizer_of(std::vector<Tensor> parameters) {
    if (strategy_.offload.params) return make_host_optimizer(strategy_, tape_, parameters);
    return make_optimizer(strategy_.optimizer, strategy_.optimizer_impl, tape_, std::move(parameters), strategy_.state_dtype);
  }

  /// The model as the recipe makes it: on its device, or as shards of what comes weight by weight.
  void materialize() {
    if (!sharded_) {
      decoder_.materialize();
      parameters_ = trainable_tensors(decoder_.root());
      return;
    }
    sharded_->materialize();
    decoder_.materialize_rope();
    parameters_ = sharded_->shards();
    tape_.empty_cache();  // cleanup_before_training
  }

  /// get_act_offloading_ctx_manager: everything but the head's.
  void offload_activations() {
    OffloadActivations::Options options;
    options.streams = torch_of(strategy_).since(2, 5);
    for (const auto& parameter : decoder_.root().all_parameters()) options.parameters.push_back(parameter->tensor);
    offload_ = std::make_shared<OffloadActivations>(tape_, std::move(options));
    decoder_.spare_head();
  }

  /// The driver gives pages up in the order of their last use: where weights and states do not fit together, no state is ever found.
  void fetch_what_does_not_fit() {
    std::int64_t bytes = 0;
    for (const Tensor& parameter : parameters_) bytes += parameter.bytes();
    for (const auto& optimizer : optimizers_) bytes += optimizer->managed_bytes();
    if (bytes <= tape_.device.memory) return;
    for (const auto& optimizer : optimizers_) optimizer->fetch_managed();
  }

  /// One optimizer, or, in backward, one per parameter that steps as soon as its gradient is there.
  void make_optimizers() {
    if (!strategy_.optimizer_in_backward) {
      optimizers_.push_back(optimizer_of(parameters_));
      return;
    }
    for (const Tensor& parameter : parameters_) {
      optimizers_.push_back(optimizer_of({parameter}));
      parameter.register_post_accumulate_grad_hook([optimizer = optimizers_.back().get()](const Tensor&) {
        optimizer->step();
        optimizer->zero_grad();
      });
    }
  }

  TuneBatch next_batch() {
    tape_.operator_name = "inputs";
    const std::int64_t batch = strategy_.micro_batch, length = strategy_.seq_len;
    const auto input = [&] { return tape_.empty({batch, length}, DType::int64, Category::input); };
    TuneBatch made;
    if (run_.packed && run_.flex) made.block_mask = make_block_mask(tape_, batch, length);
    made.tokens = input();
    made.labels = input();
    if (!run_.packed) return made;
    made.positions = input();
    if (!run_.flex) made.mask = tape_.empty({batch, length, length}, DType::boolean, Category::input);
    return made;
  }

  std::vector<Tensor> logits_of(const TuneBatch& batch) {
    if (!offload_) return decoder_(batch);
    const SavedTensorHooksScope offloading(tape_, offload_);
    return decoder_(batch);
  }

  /// _loss_step: the labels' tensor dies when the shifted one exists, the logits when the loss does.
  Tensor loss_of(TuneBatch& batch) {
    const std::vector<Tensor> logits = logits_of(batch);
    tape_.phase(Phase::loss);
    tape_.operator_name = "loss";
    const Tensor labels = shifted_labels(std::exchange(batch.labels, {}));
    if (run_.output_chunks == 0) return whole_loss(logits.front(), labels);
    return chunked_output_loss(logits, labels, run_.compiled);
  }

  /// concatenated_forward: both answers of every pair in one pass, which copies them to the device. `batch` outlives the pass: what backward
  /// computes again asks it for a mask.
  PairAnswers answer_pairs(TuneBatch& batch) {
    tape_.operator_name = "inputs";
    const Dims both{2 * strategy_.micro_batch, strategy_.seq_len};
    batch.tokens = tape_.empty(both, DType::int64, Category::input);
    batch.labels = tape_.empty(both, DType::int64, Category::input);
    const Tensor logits = logits_of(batch).front();
    PairAnswers said = answers_of(logits, batch.labels, strategy_.micro_batch);
    batch.tokens.reset(), batch.labels.reset();
    return said;
  }

  /// A micro-batch of lora_dpo_distributed.py: the policy's answers, those of the model with its adapters off, and the loss of both.
  Tensor pairs_loss(TuneBatch& batch) {
    PairAnswers policy = answer_pairs(batch);
    tape_.phase(Phase::loss);
    const Tensor chosen = mean_logit(policy.chosen_logits), rejected = mean_logit(policy.rejected_logits);
    policy.chosen_logits.reset(), policy.rejected_logits.reset();
    PairAnswers reference;
    {
      tape_.phase(Phase::scoring);
      const GradMode frozen(tape_, false);
      decoder_.switch_adapters(false);
      reference = answer_pairs(batch);
      decoder_.switch_adapters(true);
    }
    if (!kept_logits_) kept_logits_ = reference.rejected_logits;
    reference.chosen_logits.reset(), reference.rejected_logits.reset();
    tape_.phase(Phase::loss);
    return divide_scalar(dpo_loss(policy, reference));
  }

  void train_pairs(Accumulation& accumulation) {
    accumulation.run([&](bool) {
      tape_.phase(Phase::forward);
      TuneBatch batch;
      const Tensor loss = pairs_loss(batch);
      tape_.phase(Phase::backward);
      tape_.backward(loss);
    });
    tape_.phase(Phase::optimizer);
    optimizers_.front()->step();
    optimizers_.front()->zero_grad();
    tape_.phase(Phase::end);
  }

  void train_step(Accumulation& accumulation) {
    if (strategy_.post_training) return train_pairs(accumulation);
    Tensor targets, loss_sum, scaled_loss;
    TuneBatch batch;
    accumulation.run([&](bool) {
      batch = next_batch();
      tape_.operator_name = "loss";
      const Tensor counted = count_targets(batch.labels);
      if (targets) {
        in_place(targets, {&counted});
      } else {
        targets = elementwise(tape_, {&counted}, DType::int64);
      }
      // The previous micro-batch's current_loss lives until this one's takes its name.
      if (!scaled_loss && logged_) scaled_loss = tape_.empty({}, DType::fp32);
      tape_.phase(Phase::forward);
      {
        const Tensor loss = loss_of(batch);
        scaled_loss = multiply(loss, counted);
      }
      loss_sum = loss_sum ? add_into(loss_sum, scaled_loss) : add_scalar(scaled_loss);
      tape_.phase(Phase::backward);
      tape_.backward(scaled_loss);
    });
    tape_.phase(Phase::optimizer);
    if (!strategy_.optimizer_in_backward) step_optimizer(targets);
    if (!logged_) logged_ = elementwise(tape_, {&targets}, DType::fp32);
    tape_.phase(Phase::end);
  }

  void step_optimizer(const Tensor& targets) {
    tape_.operator_name = "scale_grads";
    const Tensor scale = elementwise(tape_, {&targets}, DType::fp32);
    for (const Tensor& parameter : parameters_)
      if (parameter.grad()) in_place(parameter.grad(), {&scale});
    if (strategy_.clip_grad_norm.value_or(false)) {
      clip_grad_norm(tape_, parameters_);
      if (strategy_.offload.params) clip_grad_norm_on_host(tape_, parameters_);
    }
    optimizers_.front()->step();
    optimizers_.front()->zero_grad();
  }

  Strategy strategy_;
  TuneRun run_;
  Tape tape_;
  TuneDecoder decoder_;
  std::unique_ptr<Fsdp2> sharded_;
  std::vector<Tensor> parameters_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::shared_ptr<OffloadActivations> offload_;
  Tensor ignored_;  ///< labels behind the last token
  Tensor logged_;   ///< loss_to_log, which every step replaces
  /// Of a reference: the recipe names them `_` until the next micro-batch's take that name. The first ones stand for those of all later ones, which
  /// go when they would be named.
  Tensor kept_logits_;
};

}  // namespace

StepProgram lower_torchtune(const Lowering& run, const Rank& rank) {
  refuse_what_is_not_modelled(run.strategy);
  return Trainer(run).record(rank.every_micro_batch);
}

}  // namespace plimsoll::program
