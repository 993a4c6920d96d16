// Every key that a strategy understands: the keys of the measured rows' `training` object and a few short forms for the command line;
// what a step runs is in kernel_options.cpp, DeepSpeed's own JSON in deepspeed_options.cpp.
#include "strategy/options.hpp"

#include <string_view>

#include "plimsoll/error.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::strategy {
namespace {

const Names<FsdpOptions::Sharding>& sharding_names() {
  using Sharding = FsdpOptions::Sharding;
  static const Names<Sharding> names = {
      {"FULL_SHARD", Sharding::full_shard},     {"SHARD_GRAD_OP", Sharding::shard_grad_op},           {"NO_SHARD", Sharding::no_shard},
      {"HYBRID_SHARD", Sharding::hybrid_shard}, {"HYBRID_SHARD_ZERO2", Sharding::hybrid_shard_zero2},
  };
  return names;
}

const Names<FsdpOptions::Prefetch>& backward_prefetch_names() {
  using Prefetch = FsdpOptions::Prefetch;
  static const Names<Prefetch> names = {
      {"BACKWARD_PRE", Prefetch::pre}, {"BACKWARD_POST", Prefetch::post}, {"NO_PREFETCH", Prefetch::none}};
  return names;
}

// ---- values that need more than a table ------------------------------------------------------------------------------

/// DDP's hooks (fp16, bf16, power_sgd) hold a compressed copy of every bucket in flight.
void refuse_comm_hook(Setting& x) {
  if (x.value.text() != "no")
    refuse("communication hooks of DDP are not modelled, found \"" + x.value.text() + "\"", "ddp.comm_hook", "no");
}

/// LoraConfig's bias: all or lora_only also train biases of the base model.
void refuse_lora_bias(Setting& x) {
  if (x.value.text() != "none")
    refuse("biases trained beside adapters are not modelled, found \"" + x.value.text() + "\"", "lora.bias", "none");
}

/// All that `precision` may say, the products among it.
const std::string& precision_list() {
  static const std::string list = list_of(precision_names()) + ", fp8, mxfp8, nvfp4";
  return list;
}

/// "fp8", "mxfp8", "nvfp4" are products over 16-bit training; all other names are ways to hold the weights.
void set_precision(Setting& x) {
  for (const auto& entry : low_precision_names())
    if (entry.value != LowPrecision::none && x.value.text() == entry.name) {
      if (entry.value == LowPrecision::fp8 && is_msamp(x.s.precision)) return;  // it is MS-AMP's
      x.put(x.s.low_precision, entry.value);
      return put_precision(x, Precision::bf16);
    }
  if (x.value.text().rfind("apex", 0) == 0)
    refuse("apex.amp (" + x.value.text() + "), whose own copies of weights and gradients nothing here has, is not modelled", "precision", "amp-fp16, autocast's; its O3 is pure-fp16");
  if (x.value.text() == "amp-bf16 over bf16 parameters") x.s.param_dtype = DType::bf16;
  put_precision(x, x.named(precision_names(), precision_list().c_str()));
}

/// `autocast`: bf16 or fp16 says amp.
void set_autocast(Setting& x) {
  const DType type = x.named(dtype_names());
  if (type != DType::fp16 && type != DType::bf16) x.value.expected("bf16 or fp16");
  put_precision(x, type == DType::fp16 ? Precision::amp_fp16 : Precision::amp_bf16);
}

/// A scaling by its name, or in the words of torchtitan's files and of measured rows. torchao's rowwise_with_gw_hp computes gradients of
/// weights in 16 bits; of mxfp8 recipes the scaling is mxfp8's own, and how scales are rounded changes no byte.
void set_fp8_recipe(Setting& x) {
  struct Words {
    std::string_view text;
    Fp8Scaling scaling;
    bool gathers;
  };
  static constexpr Words kWords[] = {
      {"tensorwise, fp8 all-gather", Fp8Scaling::tensorwise, true},
      {"tensorwise, fp8 all-gather, precomputed scales, force_recompute_fp8_weight_in_bwd", Fp8Scaling::tensorwise, true},
      {"float8 dynamic tensorwise on nn.Linear", Fp8Scaling::tensorwise, false},
      {"fp8-tensorwise", Fp8Scaling::tensorwise, false},
      {"fp8-rowwise", Fp8Scaling::rowwise, false},
      {"rowwise (torchao, eager, lm_head kept bf16)", Fp8Scaling::rowwise, false},
  };
  const std::string& text = x.value.text();
  if (text == "rowwise-gw-hp" || text == "rowwise_with_gw_hp")
    refuse("the fp8 recipe " + text + ", whose gradients of weights are products in 16 bits, is not modelled", x.value.where(), "rowwise");
  if (text == "mxfp8-cublas" || text == "mxfp8-cublas-rceil") return x.put(x.s.low_precision, LowPrecision::mxfp8);
  for (const Words& words : kWords) {
    if (text != words.text) continue;
    x.s.fp8_all_gather = words.gathers;
    return x.put(x.s.fp8_scaling, words.scaling);
  }
  x.choice(x.s.fp8_scaling, fp8_scaling_names());
}

/// "none", "activations", "params+grads+optimizer" …
void set_offload(Setting& x) {
  Offload offload = x.s.offload;
  offload.params = offload.grads = offload.optimizer = false;
  offload.activations = offload.activations_by != Offload::By::automatic;
  const std::string& text = x.value.text();
  for (std::size_t at = 0, plus = 0; plus != std::string::npos; at = plus + 1) {
    plus = text.find('+', at);
    const std::string part = text.substr(at, plus == std::string::npos ? plus : plus - at);
    if (part == "params")
      offload.params = true;
    else if (part == "grads")
      offload.grads = true;
    else if (part == "optimizer")
      offload.optimizer = true;
    else if (part == "activations")
      offload.activations = true;
    else if (text == "none")
      offload.activations = false;
    else
      x.value.expected("none, or params, grads, optimizer, activations joined by +");
  }
  for (bool Offload::*what : {&Offload::params, &Offload::grads, &Offload::optimizer, &Offload::activations})
    x.put(x.s.offload.*what, offload.*what);
}

Lora& lora(Setting& x) {
  if (!x.s.lora) x.s.lora.emplace();
  return *x.s.lora;
}

Peft& peft(Setting& x) {
  if (!x.s.peft) x.s.peft.emplace();
  return *x.s.peft;
}

constexpr const char* kTasks =
    "lm, mlm, cls, token-cls, qa, seq2seq, image, diffusion, sft, trl-sft, reward, dpo, kto, orpo, cpo, grpo, rloo, gkd, lora, qlora, ia3, ln_tuning, prompt_tuning, p_tuning, prefix_tuning";

/// A host's memory: a number of bytes or text with a unit, more than none.
Bytes host_bytes(Setting& x) {
  const auto counts = [](const std::string& text) { return text.find_first_not_of("0123456789") == std::string::npos; };
  const Bytes bytes = !x.value.is_text()          ? Bytes(x.whole(1, INT64_MAX / 2))
                      : counts(x.value.text()) ? parse_bytes(x.value.text() + " B")
                                               : parse_bytes(x.value.text());
  if (bytes <= Bytes(0)) x.value.expected("more than 0 bytes");
  return bytes;
}

PostTraining& post_training(Setting& x) {
  if (!x.s.post_training) x.s.post_training.emplace();
  return *x.s.post_training;
}

/// A task is what the model learns to do, or the method by which a causal language model learns it: all of `kTasks` mean different runs.
void set_task(Setting& x) {
  const std::string& task = x.value.text();
  for (const auto& method : peft_method_names())
    if (task == method.name) peft(x).method = method.value;
  if (task == "lora" || task == "qlora") lora(x);
  for (const auto& trainer : post_training_names())
    if (task == trainer.name) post_training(x).kind = trainer.value;
  if (task == "qlora" && x.s.base_weights == BaseWeights::as_trained) x.s.base_weights = BaseWeights::nf4;
  x.choice(x.s.task, task_names(), kTasks);
}

/// `activation_offload`: says also that activations leave.
void set_activation_offload(Setting& x) {
  x.choice(x.s.offload.activations_by, offload_by_names());
  x.put(x.s.offload.activations, true);
}

void set_base_weights(Setting& x) {
  if (x.value.text().rfind("gptq", 0) == 0)
    refuse("weights of GPTQ (" + x.value.text() + ") are not modelled", "base_weights", "nf4, which holds 4 bits as well");
  x.s.base_weights = x.named(base_weights_names());
}

/// default | always | never | true | false | a number of ranks
void set_reshard(Setting& x) {
  using Reshard = FsdpOptions::Reshard;
  static const Names<Reshard> names = {{"default", Reshard::automatic}, {"always", Reshard::always}, {"never", Reshard::never}};
  if (x.value.is_integer()) x.put(x.s.fsdp.reshard_to, static_cast<int>(x.whole(1, 1 << 20)));
  const std::optional<bool> on = x.perhaps_truth();
  const Reshard said = x.value.is_integer() ? Reshard::number : !on ? x.named(names) : *on ? Reshard::always : Reshard::never;
  x.put(x.s.fsdp.reshard, said);
}

void set_backward_prefetch(Setting& x) { x.choice(x.s.fsdp.backward_prefetch, backward_prefetch_names()); }

/// Who shares the states: "fsdp" and "hsdp" leave open which implementation, which another key may say.
void put_kind(Setting& x, DataParallel kind) {
  const DataParallel before = x.s.data_parallel;
  const auto exact = [](DataParallel one) { return one == DataParallel::fsdp1 || one == DataParallel::fsdp2; };
  if (is_fsdp(before) && is_fsdp(kind) && before != kind && exact(before) != exact(kind)) {
    if (exact(before)) kind = before;
    x.retract(x.s.data_parallel, kind);
  }
  x.put(x.s.data_parallel, kind);
}

void set_data_parallel(Setting& x) { put_kind(x, x.named(data_parallel_names())); }

/// The command line's --fsdp full|grad-op|hybrid|none.
void set_fsdp(Setting& x) {
  using Sharding = FsdpOptions::Sharding;
  static const Names<Sharding> names = {{"full", Sharding::full_shard},
                                        {"grad-op", Sharding::shard_grad_op},
                                        {"hybrid", Sharding::hybrid_shard},
                                        {"none", Sharding::no_shard}};
  const Sharding sharding = x.named(names);
  put_kind(x, sharding == Sharding::hybrid_shard ? DataParallel::hsdp : DataParallel::fsdp);
  x.put(x.s.fsdp.sharding, sharding);
}

void set_sharding(Setting& x) { x.choice(x.s.fsdp.sharding, sharding_names()); }

/// An optimizer's name; "fused-adam" (Apex's, Megatron's) and "adamw (cpu)" (DeepSpeed's) also say who steps.
void set_optimizer(Setting& x) {
  const std::string& text = x.value.text();
  if (text == "adamw_torch_fused") {  // transformers' name of both
    x.put(x.s.optimizer_impl, OptimizerImpl::fused);
    return x.put(x.s.optimizer, OptimizerKind::adamw);
  }
  if (text == "adamw_bnb_8bit") return x.put(x.s.optimizer, OptimizerKind::adamw_8bit);
  if (text == "fused-adam") {
    x.put(x.s.optimizer_impl, OptimizerImpl::fused);
    return x.put(x.s.optimizer, OptimizerKind::adam);
  }
  constexpr std::string_view kOnHost = " (cpu)";
  if (text.size() > kOnHost.size() && text.compare(text.size() - kOnHost.size(), kOnHost.size(), kOnHost) == 0)
    x.put(x.s.optimizer_impl, OptimizerImpl::cpu);
  x.choice(x.s.optimizer, optimizer_names());
}

/// "fused", or "fused, bf16 states".
void set_optimizer_impl(Setting& x) {
  if (x.value.text() == "fused, bf16 states") {
    x.s.state_dtype = DType::bf16;
    x.put(x.s.optimizer_impl, OptimizerImpl::fused);
  } else {
    x.choice(x.s.optimizer_impl, optimizer_impl_names());
  }
}

/// Composer's FSDP mixed precision: PURE reduces in the compute type, DEFAULT and FULL in fp32.
void set_composer_precision(Setting& x) {
  static const Names<DType> names = {{"PURE", DType::bf16}, {"DEFAULT", DType::fp32}, {"FULL", DType::fp32}};
  const DType reduce = x.named(names);
  if (!x.s.reduce_dtype) x.s.reduce_dtype = reduce;
}

/// `master_dtype`: fp32 or none.
void set_master(Setting& x) {
  const std::string& text = x.value.text();
  if (text != "none" && text != "fp32") x.value.expected("fp32 or none");
  x.s.master_weights = text == "fp32";
}

void set_stage_layers(Setting& x) {
  x.s.stage_layers.clear();
  for (const JsonValue& chunk : x.value.elements()) {
    if (chunk.elements().empty()) continue;  // a stage of the norm and the head alone
    const auto first = static_cast<int>(chunk.at(0).integer(0, 1 << 20)), last = static_cast<int>(chunk.at(1).integer(0, 1 << 20));
    x.s.stage_layers.emplace_back(first, last);
  }
}

void set_pp_layers(Setting& x) {
  x.s.pp_layers.clear();
  for (const JsonValue& stage : x.value.elements()) x.s.pp_layers.push_back(static_cast<int>(stage.integer(0, 1 << 20)));
}

/// The release of a package: "2.8", "2.15.0+cu132", "2024-12". Two keys may name it (torch, releases.torch).
void put_release(Setting& x, const std::string& name) {
  const auto [package, release] = parse_release(name, x.value.text(), x.value.where());
  const Releases::Entry* before = x.s.releases.find(package);
  const PackageFacts* field = &facts_of(package);
  if (before != nullptr && before->release != release) x.agree(field, false);
  x.s.releases.put(package, release);
  x.note(field);
}

/// "releases.PACKAGE", as a file's object or the command line's --release has it.
void set_release(Setting& x) { put_release(x, x.key().substr(x.key().find('.') + 1)); }

void set_rank(Setting& x, std::optional<int>& rank) { rank = static_cast<int>(x.whole(0, 1 << 24)); }

// ---- the table ---------------------------------------------------------------------------------------------------------

const std::vector<Entry>& framework_entries() {
  static const std::vector<Entry> table = {
      {"framework", "name", "who runs the step: transformers, torchtitan, megatron-core, deepspeed …",
       [](Setting& x) { x.name(x.s.framework); }},
      {"framework_version", "text", "its version", [](Setting& x) { x.name(x.s.framework_version); }, true},
      {"releases.*", "text", "the release of a package: releases.transformers", set_release, true},
      {"torch", "text", "PyTorch's release, as releases.torch", [](Setting& x) { put_release(x, "torch"); }, true},
      {"transformers", "text", "transformers' release, as releases.transformers", [](Setting& x) { put_release(x, "transformers"); }, true},
      {"task", kTasks, "what is trained", set_task},
      {"gpus", "ranks", "world size", [](Setting& x) { x.count(x.s.gpus); }},
      {"tp", "ranks", "tensor parallel", [](Setting& x) { x.count(x.s.tp); }},
      {"pp", "ranks", "pipeline parallel", [](Setting& x) { x.count(x.s.pp); }},
      {"vp", "chunks", "model chunks per pipeline rank", [](Setting& x) { x.count(x.s.vp); }},
      {"cp", "ranks", "context parallel", [](Setting& x) { x.count(x.s.cp); }},
      {"ep", "ranks", "expert parallel", [](Setting& x) { x.count(x.s.ep); }},
      {"etp", "ranks", "tensor parallel of the experts", [](Setting& x) { x.count(x.s.etp); }},
      {"dp", "ranks", "data parallel", [](Setting& x) { x.count(x.s.dp); }},
      {"dp_shard", "ranks", "data-parallel ranks that share one copy of the states", [](Setting& x) { x.count(x.s.dp_shard); }},
      {"dp_replicate", "copies", "copies of the sharded states", [](Setting& x) { x.count(x.s.dp_replicate); }},
      {"fsdp_degree", "ranks", "ranks over which FSDP shards: dp_shard · cp", [](Setting& x) { x.count(x.s.fsdp_degree); }},
      {"sequence_parallel", "true, false", "norms and dropout on 1/tp of the sequence", [](Setting& x) { x.flag(x.s.sequence_parallel); }},
      {"pp_schedule", "name", "pipeline schedule", [](Setting& x) { x.name(x.s.pp_schedule); }},
      {"schedule", "name", "", [](Setting& x) { x.name(x.s.pp_schedule); }, false, "pp_schedule"},
      {"pp_layers", "list", "layers of each stage", set_pp_layers},
      {"stage_layers", "[[first, last], …]", "layers of the rank that is asked about", set_stage_layers},
      {"stages_per_rank", "chunks", "number of those", nullptr},
      {"has_embedding", "true, false", "that rank holds the embedding", [](Setting& x) { x.flag(x.s.stage_has_embedding); }},
      {"has_head", "true, false", "that rank holds the head", [](Setting& x) { x.flag(x.s.stage_has_head); }},
      {"rank", "rank", "the data-parallel rank that is asked about", [](Setting& x) { set_rank(x, x.s.rank); }},
      {"pp_rank", "rank", "the pipeline rank that is asked about", [](Setting& x) { set_rank(x, x.s.pp_rank); }},
      {"micro_batch", "sequences", "per rank and micro-batch", [](Setting& x) { x.count(x.s.micro_batch); }},
      {"global_batch", "sequences", "per optimizer step", [](Setting& x) { x.count(x.s.global_batch); }},
      {"local_batch", "sequences", "per rank and schedule run (torchtitan)", nullptr},
      {"grad_accum", "passes", "backward passes per optimizer step", [](Setting& x) { x.count(x.s.grad_accum); }},
      {"micro_batches_per_step", "micro-batches", "per optimizer step of one replica", [](Setting& x) { x.count(x.s.micro_batches); }},
      {"seq_len", "tokens", "of a sequence", [](Setting& x) { x.count(x.s.seq_len); }},
      {"seq", "tokens", "", [](Setting& x) { x.count(x.s.seq_len); }, false, "seq_len"},
      {"tgt_len", "tokens", "of the target (seq2seq)", [](Setting& x) { x.count(x.s.tgt_len); }},
      {"num_labels", "classes", "of a classifier's head (task cls, token-cls or image)", [](Setting& x) { x.count(x.s.num_labels); }},
      {"text_tokens", "tokens", "of the prompt (diffusion)", [](Setting& x) { x.count(x.s.text_tokens); }},
      {"packed", "true, false", "sequences packed without padding", [](Setting& x) { x.flag(x.s.packed); }},
      {"average_tokens_per_sample", "tokens", "that are no padding", [](Setting& x) { x.s.average_tokens = x.value.number(0, 1e12); }},
  };
  return table;
}

const std::vector<Entry>& data_parallel_entries() {
  static const std::vector<Entry> table = {
      {"data_parallel", "none, ddp, zero0 … zero3, fsdp, hsdp, fsdp1, fsdp2, megatron-fsdp, megatron-distopt", "who shares the states",
       set_data_parallel},
      {"zero_stage", "0 … 3", "DeepSpeed ZeRO", set_zero_stage},
      {"zero", "0 … 3", "", set_zero_stage, false, "zero_stage"},
      {"fsdp", "full, grad-op, hybrid, none", "FSDP's sharding", set_fsdp},
      {"fsdp.units", "list", "module classes or paths that are wrapped; none: the root alone", [](Setting& x) { x.list(x.s.fsdp.units); }},
      {"wrap", "list", "the same", [](Setting& x) { x.list(x.s.fsdp.units); }},
      {"fsdp.root_unit", "true, false", "the root is a unit of its own", [](Setting& x) { x.flag(x.s.fsdp.root_unit); }},
      {"fsdp.reshard_after_forward", "default, always, never, true, false, ranks", "FSDP2", set_reshard},
      {"reshard_after_forward", "default, always, never, true, false, ranks", "the same", set_reshard},
      {"fsdp.strategy", "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2", "FSDP1", set_sharding},
      {"fsdp.mixed_precision", "true, false", "units are gathered in the compute type",
       [](Setting& x) { x.flag(x.s.fsdp.mixed_precision); }},
      {"fsdp.reduce_dtype", "fp32, bf16, fp16", "gradients while they are reduced", [](Setting& x) { x.type(x.s.reduce_dtype); }},
      {"fsdp.no_sync", "true, false", "gradients reduced in the last micro-batch only", [](Setting& x) { x.flag(x.s.no_sync); }},
      {"fsdp.shard", "ranks", "dp_shard", [](Setting& x) { x.count(x.s.dp_shard); }},
      {"fsdp.replicate", "copies", "dp_replicate", [](Setting& x) { x.count(x.s.dp_replicate); }},
      {"fsdp.limit_all_gathers", "true, false", "FSDP1", [](Setting& x) { x.flag(x.s.fsdp.limit_all_gathers); }},
      {"limit_all_gathers", "true, false", "the same", [](Setting& x) { x.flag(x.s.fsdp.limit_all_gathers); }},
      {"fsdp.use_orig_params", "true, false", "FSDP1", [](Setting& x) { x.flag(x.s.fsdp.use_orig_params); }},
      {"fsdp.forward_prefetch", "true, false", "", [](Setting& x) { x.flag(x.s.fsdp.forward_prefetch); }},
      {"fsdp.backward_prefetch", "BACKWARD_PRE, BACKWARD_POST, NO_PREFETCH", "FSDP1: when the next unit of backward is gathered",
       set_backward_prefetch},
      {"fsdp.min_num_params", "parameters", "modules of so many are units (SIZE_BASED_WRAP)",
       [](Setting& x) { x.put(x.s.fsdp.min_num_params, x.whole(1, INT64_MAX / 2)); }},
      {"ddp.bucket_cap_mb", "MiB", "", [](Setting& x) { x.s.ddp.bucket_cap_mb = x.value.number(1e-6, 1e9); }},
      {"ddp.gradient_as_bucket_view", "true, false", "", [](Setting& x) { x.flag(x.s.ddp.gradient_as_bucket_view); }},
      {"ddp.static_graph", "true, false", "", [](Setting& x) { x.flag(x.s.ddp.static_graph); }},
      {"ddp.find_unused_parameters", "true, false", "", [](Setting& x) { x.flag(x.s.ddp.find_unused_parameters); }},
      {"ddp.comm_hook", "no", "", refuse_comm_hook},
      {"ddp.no_sync", "true, false", "gradients reduced in the last micro-batch only", [](Setting& x) { x.flag(x.s.no_sync); }},
      {"overlap_grad_reduce", "true, false", "Megatron", [](Setting& x) { x.flag(x.s.megatron.overlap_grad_reduce); }},
      {"overlap_param_gather", "true, false", "Megatron", [](Setting& x) { x.flag(x.s.megatron.overlap_param_gather); }},
      {"align_param_gather", "true, false", "Megatron: weights of a model chunk are gathered during the chunk before it",
       [](Setting& x) { x.flag(x.s.megatron.align_param_gather); }},
      {"defer_embedding_wgrad_compute", "true, false", "Megatron: the output layer's weight gradients wait for the end of the schedule",
       [](Setting& x) { x.flag(x.s.megatron.defer_embedding_wgrad_compute); }},
      {"wgrad_deferral_limit", "micro-batches", "of those, the last so many; left out: all",
       [](Setting& x) { x.count(x.s.megatron.wgrad_deferral_limit); }},
      {"ddp_bucket_size", "elements", "Megatron", [](Setting& x) { x.count(x.s.megatron.ddp_bucket_size); }},
      {"pad_buckets_for_high_nccl_busbw", "true, false", "Megatron",
       [](Setting& x) { x.flag(x.s.megatron.pad_buckets_for_high_nccl_busbw); }},
      {"check_for_nan_in_grad", "true, false", "Megatron-core: the host asks for the norm of every bucket before it is reduced",
       [](Setting& x) { x.flag(x.s.megatron.check_for_nan_in_grad); }},
      {"gradient_accumulation_fusion", "true, false", "Megatron", [](Setting& x) { x.flag(x.s.megatron.gradient_accumulation_fusion); }},
      {"masked_softmax_fusion", "true, false", "Megatron", [](Setting& x) { x.flag(x.s.megatron.masked_softmax_fusion); }},
      {"rope_fusion", "true, false", "Megatron", [](Setting& x) { x.flag(x.s.megatron.rope_fusion); }},
      {"bias_swiglu_fusion", "true, false", "Megatron-core", [](Setting& x) { x.flag(x.s.megatron.bias_swiglu_fusion); }},
      {"layer_spec", "local, te", "Megatron-core",
       [](Setting& x) { x.word(x.s.megatron.layer_spec, {"local", "te"}); }},
      {"precision_aware_optimizer", "true, false", "Megatron-core", [](Setting& x) { x.flag(x.s.megatron.precision_aware_optimizer); }},
      {"make_vocab_size_divisible_by", "rows", "Megatron",
       [](Setting& x) { x.s.megatron.make_vocab_size_divisible_by = static_cast<int>(x.whole(1, 1 << 20)); }},
      {"cp_comm_type", "p2p, a2a, allgather, a2a+p2p", "Megatron",
       [](Setting& x) { x.word(x.s.megatron.cp_comm_type, {"p2p", "a2a", "allgather", "a2a+p2p"}); }},
      {"data_parallel_sharding_strategy", "no_shard, optim, optim_grads, optim_grads_params", "Megatron-FSDP",
       [](Setting& x) { x.choice(x.s.megatron.sharding, megatron_sharding_names()); }},
      {"fsdp_double_buffer", "true, false", "Megatron-FSDP", [](Setting& x) { x.flag(x.s.megatron.fsdp_double_buffer); }},
      {"suggested_communication_unit_size", "elements", "Megatron-FSDP",
       [](Setting& x) { x.count(x.s.megatron.suggested_communication_unit); }},
      {"mtp_num_layers", "modules", "Megatron-core: multi-token prediction",
       [](Setting& x) { x.put(x.s.megatron.mtp_num_layers, static_cast<int>(x.whole(0, 1 << 10))); }},
      {"mtp_use_repeated_layer", "true, false", "Megatron-core: one module's weights predict all tokens",
       [](Setting& x) { x.flag(x.s.megatron.mtp_use_repeated_layer); }},
      {"module_precision", "list of pattern=bf16, mxfp8", "Megatron-core: linears whose products have a recipe of their own",
       [](Setting& x) { x.list(x.s.megatron.module_precision); }},
      {"cp_comm", "text", "how context parallelism exchanges keys and values", nullptr},
      {"offload", "none, params, grads, optimizer, activations, joined by +", "what leaves the device", set_offload},
      {"activation_offload", "save-on-cpu, save-on-cpu-pinned, trl", "who takes activations to the host", set_activation_offload},
      {"offload_layers", "layers", "whose activations leave", [](Setting& x) { x.count(x.s.offload.activation_layers); }},
  };
  return table;
}

const std::vector<Entry>& precision_entries() {
  static const std::vector<Entry> table = {
      {"precision", "bf16, fp16, fp32, amp-bf16, pure-bf16, mixed-bf16, fsdp-mixed-bf16, fp8, mxfp8, nvfp4, msamp-o1 …",
       "what weights, gradients and states are held in", set_precision},
      {"autocast", "bf16, fp16", "torch.autocast", set_autocast},
      {"fp8_recipe", "delayed, tensorwise, rowwise, blockwise", "scaling", set_fp8_recipe},
      {"fp8_params", "true, false", "primary weights in fp8", [](Setting& x) { x.flag(x.s.fp8_params); }},
      {"fp8_activations", "true, false", "", [](Setting& x) { x.flag(x.s.fp8_activations); }},
      {"fp8_attention", "true, false", "", [](Setting& x) { x.flag(x.s.fp8_attention); }},
      {"bf16_tail_layers", "layers", "last layers kept in bf16", [](Setting& x) { x.count(x.s.bf16_tail_layers); }},
      {"param_dtype", "fp32, bf16, fp16", "weights as stored", [](Setting& x) { x.type(x.s.param_dtype); }},
      {"grad_dtype", "fp32, bf16, fp16", "gradients that reach the optimizer", [](Setting& x) { x.type(x.s.grad_dtype); }},
      {"reduce_dtype", "fp32, bf16, fp16", "gradients while they are reduced", [](Setting& x) { x.type(x.s.reduce_dtype); }},
      {"state_dtype", "fp32, bf16", "the optimizer's moments", [](Setting& x) { x.type(x.s.state_dtype); }},
      {"master_dtype", "fp32, none", "copy of the weights in the optimizer", set_master},
      {"composer_mixed_precision", "PURE, DEFAULT, FULL", "llm-foundry", set_composer_precision},
      {"optimizer", "adamw, adam, sgd, sgdm, adafactor, torch-adafactor, lion, muon, nadam, adamw-8bit, paged-adamw …", "", set_optimizer},
      {"optimizer_impl", "foreach, fused, for-loop, library, cpu", "", set_optimizer_impl},
      {"optimizer_in_bwd", "true, false", "each gradient is applied and freed in backward",
       [](Setting& x) { x.flag(x.s.optimizer_in_backward); }},
      {"trainer_optimizer", "true, false",
       "deepspeed: transformers' Trainer makes the optimizer, in which norms and biases are a group of their own",
       [](Setting& x) { x.flag(x.s.trainer_optimizer); }},
      {"clip_grad_norm", "true, false, norm", "gradients are clipped", set_clip},
      {"lora.r", "rank", "low-rank adapters", [](Setting& x) { x.count(lora(x).r); }},
      {"lora.alpha", "", "", [](Setting& x) { lora(x).alpha = x.value.number(0, 1e9); }},
      {"lora.dropout", "0 … 1", "", [](Setting& x) { lora(x).dropout = x.value.number(0, 1); }},
      {"lora.target_modules", "list, all-linear", "linears that get an adapter", [](Setting& x) { x.list(lora(x).targets); }},
      {"lora.modules_to_save", "list", "modules trained whole", [](Setting& x) { x.list(lora(x).modules_to_save); }},
      {"lora.adapter_dtype", "fp32, bf16, fp16", "", [](Setting& x) { x.type(lora(x).adapter_dtype); }},
      {"lora.use_dora", "true, false", "", [](Setting& x) { x.flag(lora(x).dora); }},
      {"lora.mlp_kernel", "true, false", "axolotl's autograd function for gated MLPs whose linears are adapted (lora_mlp_kernel)",
       [](Setting& x) { x.flag(lora(x).mlp_kernel); }},
      {"lora.qkv_kernel", "true, false", "the same for queries, keys and values (lora_qkv_kernel)",
       [](Setting& x) { x.flag(lora(x).qkv_kernel); }},
      {"lora.o_kernel", "true, false", "the same for attention's output (lora_o_kernel)", [](Setting& x) { x.flag(lora(x).o_kernel); }},
      {"lora.use_rslora", "true, false", "scales by alpha / √r: no byte of it", nullptr},
      {"lora.bias", "none", "", refuse_lora_bias},
      {"lora.note", "text", "", [](Setting& x) { lora(x), x.value.mark_read(); }},
      {"lora.peft", "text", "PEFT's release, as releases.peft", [](Setting& x) { put_release(x, "peft"); }, true},
      {"trainer", "trl, llama-factory, ms-swift, verl", "preferences and rewards: whose trainer computes the loss",
       [](Setting& x) { x.put(post_training(x).program, x.named(trainer_program_names())); }},
      {"reference", "model, adapter-off, precomputed, none", "dpo, kto, grpo, rloo: who says how likely the answers were before training",
       [](Setting& x) { x.choice(post_training(x).reference, reference_names()); }},
      {"teacher", "model", "gkd: whose answers are learnt from: a shipped model, or a config.json",
       [](Setting& x) { x.name(post_training(x).teacher); }},
      {"divergence", "mixture, forward, reverse", "gkd: of student and teacher from the mixture of both, or of one from the other (beta 0, beta 1)",
       [](Setting& x) { x.choice(post_training(x).divergence, divergence_names()); }},
      {"prompt_len", "tokens", "TRL's trainers: of a sequence that are the prompt, of which nothing is learnt",
       [](Setting& x) { x.count(post_training(x).prompt_len); }},
      {"supervised_term", "true, false", "cpo: the next token of the better answer is learnt as well (cpo_alpha above 0)",
       [](Setting& x) { x.flag(post_training(x).supervised_term); }},
      {"disable_dropout", "true, false", "TRL's trainers but sft: all dropout of their models is off, adapters' as well",
       [](Setting& x) { x.flag(post_training(x).disable_dropout); }},
      {"router_loss", "true, false",
       "TRL's trainers of mixtures since 1.8: the routers' auxiliary loss is learnt of as well (router_aux_loss_coef)",
       [](Setting& x) { x.flag(post_training(x).router_loss); }},
      {"kl_batch", "true, false", "kto: answers go through both models behind others' prompts as well",
       [](Setting& x) { x.flag(post_training(x).kl_batch); }},
      {"rollout", "elsewhere, colocated", "grpo, rloo: where the engine runs that writes the answers",
       [](Setting& x) { x.choice(post_training(x).rollout, rollout_names()); }},
      {"old_log_probs", "true, false", "grpo: the answers are scored once more before they are learnt of",
       [](Setting& x) { x.flag(post_training(x).old_log_probs); }},
      {"engine_share", "0 … 1", "grpo, rloo: of the device's memory, that the colocated engine takes (vllm_gpu_memory_utilization)",
       [](Setting& x) { x.put(post_training(x).engine_share, x.value.number(0.01, 1)); }},
      {"engine_sleeps", "true, false", "grpo, rloo: it gives weights and cache back while the trainer trains",
       [](Setting& x) { x.flag(post_training(x).engine_sleeps); }},
      {"engine_tp", "devices", "verl: of one engine (rollout.tensor_model_parallel_size)",
       [](Setting& x) { x.count(post_training(x).workers.engine_tp); }},
      {"answers", "answers", "verl: that a device learns of in an update (ppo_mini_batch_size · rollout.n / ranks)",
       [](Setting& x) { x.count(post_training(x).workers.answers); }},
      {"updates", "updates", "verl: of one rollout (train_batch_size / ppo_mini_batch_size)",
       [](Setting& x) { x.count(post_training(x).workers.updates); }},
      {"row_tokens", "tokens", "verl: of a packed micro-batch (ppo_max_token_len_per_gpu)",
       [](Setting& x) { x.count(post_training(x).workers.row_tokens); }},
      {"score_tokens", "tokens", "verl: of a packed micro-batch that the actor scores (rollout.log_prob_…)",
       [](Setting& x) { x.count(post_training(x).workers.score_tokens); }},
      {"reference_tokens", "tokens", "verl: of a packed micro-batch that the reference scores (ref.log_prob_…)",
       [](Setting& x) { x.count(post_training(x).workers.reference_tokens); }},
      {"params_rest", "true, false", "verl: between its passes the actor's parameters lie on the host (param_offload)",
       [](Setting& x) { x.flag(post_training(x).workers.params_rest); }},
      {"states_rest", "true, false", "verl: between updates the optimizer's states lie on the host (optimizer_offload)",
       [](Setting& x) { x.flag(post_training(x).workers.states_rest); }},
      {"scales_logits", "true, false", "verl: logits are divided by a temperature that is not 1",
       [](Setting& x) { x.flag(post_training(x).workers.scales_logits); }},
      {"learns_entropy", "true, false", "verl: the loss has a term of entropy (entropy_coeff)",
       [](Setting& x) { x.flag(post_training(x).workers.learns_entropy); }},
      {"text_encoders", "device, cached, absent", "diffusion: where the frozen encoders of prompts stand",
       [](Setting& x) { x.choice(x.s.neighbours.text_encoders, neighbour_place_names()); }},
      {"vae", "device, cached, absent", "diffusion: where the frozen autoencoder stands",
       [](Setting& x) { x.choice(x.s.neighbours.vae, neighbour_place_names()); }},
      {"host_loading", "every-rank, first-rank", "who reads a checkpoint into a host's memory before the devices have it",
       [](Setting& x) { x.choice(x.s.host_loading, host_loading_names()); }},
      {"host_memory", "bytes", "of one host, where the cluster's file does not say: 1.9TB",
       [](Setting& x) { x.put(x.s.host_memory, std::optional<Bytes>(host_bytes(x))); }, true},
      {"trained_modules", "list", "modules that are trained, with all below them; everything else is frozen",
       [](Setting& x) { x.list(x.s.trained_modules); }},
      {"trainable_params", "parameters", "as the run printed them", [](Setting& x) { x.count(x.s.trainable_params); }},
      {"peft.target_modules", "list", "what ia3 or ln_tuning trains", [](Setting& x) { x.list(peft(x).targets); }},
      {"peft.feedforward_modules", "list", "", [](Setting& x) { x.list(peft(x).feedforward); }},
      {"peft.num_virtual_tokens", "tokens", "prompts learnt before the text", [](Setting& x) { x.count(peft(x).virtual_tokens); }},
      {"peft.encoder_hidden_size", "size", "", [](Setting& x) { x.count(peft(x).encoder_hidden_size); }},
      {"base_weights", "as-trained, nf4, nf4-double-quant, int8", "how frozen weights are stored", set_base_weights},
      {"qat.group_size", "elements", "quantization-aware training by torchao: int4 weights in groups of so many, int8 inputs by token",
       [](Setting& x) { x.count(x.s.qat_group_size); }},
      {"bnb_4bit_quant_storage", "fp32, bf16, fp16; left out: uint8", "the type that 4-bit weights lie in",
       [](Setting& x) { x.type(x.s.quant_storage); }},
  };
  return table;
}

/// bf16 or fp16: the type that a recipe multiplies in; others have none of the two.
DType half_of(Precision precision) {
  switch (precision) {
    case Precision::bf16:
    case Precision::amp_bf16:
    case Precision::pure_bf16:
    case Precision::mixed_bf16:
    case Precision::fsdp_mixed_bf16:
      return DType::bf16;
    case Precision::fp16:
    case Precision::amp_fp16:
    case Precision::pure_fp16:
    case Precision::mixed_fp16:
    case Precision::fsdp_mixed_fp16:
      return DType::fp16;
    default:
      return DType::fp32;
  }
}

}  // namespace

void put_precision(Setting& x, Precision precision) {
  const Precision before = x.s.precision;
  const auto open = [](Precision one) { return one == Precision::bf16 || one == Precision::fp16; };
  if (half_of(before) == half_of(precision) && open(before) != open(precision) && before != Precision::automatic) {
    if (!open(before)) precision = before;
    x.retract(x.s.precision, precision);
  }
  x.put(x.s.precision, precision);
}

void set_clip(Setting& x) {
  const std::optional<bool> on = x.perhaps_truth();
  x.put(x.s.clip_grad_norm, std::optional<bool>(on ? *on : x.value.number(0, 1e30) > 0));
}

void set_zero_stage(Setting& x) {
  constexpr DataParallel stages[] = {DataParallel::zero0, DataParallel::zero1, DataParallel::zero2, DataParallel::zero3};
  x.put(x.s.data_parallel, stages[x.whole(0, 3)]);
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> joined;
    for (const auto* part : {&framework_entries(), &data_parallel_entries(), &deepspeed_entries(), &precision_entries(),
                             &accelerate_entries(), &kernel_entries()})
      joined.insert(joined.end(), part->begin(), part->end());
    return joined;
  }();
  return all;
}

}  // namespace plimsoll::strategy
