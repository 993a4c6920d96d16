#include "strategy/names.hpp"

namespace plimsoll {
namespace strategy {

const Names<DataParallel>& data_parallel_names() {
  static const Names<DataParallel> names = {
      {"none", DataParallel::none},
      {"ddp", DataParallel::ddp},
      {"zero0", DataParallel::zero0},
      {"zero1", DataParallel::zero1},
      {"zero2", DataParallel::zero2},
      {"zero3", DataParallel::zero3},
      {"fsdp", DataParallel::fsdp},
      {"hsdp", DataParallel::hsdp},
      {"fsdp1", DataParallel::fsdp1},
      {"fsdp2", DataParallel::fsdp2},
      {"megatron-fsdp", DataParallel::megatron_fsdp},
      {"megatron-distopt", DataParallel::megatron_distopt},
  };
  return names;
}

const Names<Precision>& precision_names() {
  static const Names<Precision> names = {
      {"bf16", Precision::bf16},
      {"fp16", Precision::fp16},
      {"fp32", Precision::fp32},
      {"amp-bf16", Precision::amp_bf16},
      {"amp-bf16 over bf16 parameters", Precision::amp_bf16},
      {"bf16-mixed", Precision::amp_bf16},
      {"amp-fp16", Precision::amp_fp16},
      {"16-mixed", Precision::amp_fp16},
      {"pure-bf16", Precision::pure_bf16},
      {"pure-fp16", Precision::pure_fp16},
      {"mixed-bf16", Precision::mixed_bf16},
      {"mixed-fp16", Precision::mixed_fp16},
      {"fsdp-mixed-bf16", Precision::fsdp_mixed_bf16},
      {"fsdp-mixed-fp16", Precision::fsdp_mixed_fp16},
      {"msamp-o1", Precision::msamp_o1},
      {"msamp-o2", Precision::msamp_o2},
      {"msamp-o3", Precision::msamp_o3},
  };
  return names;
}

const Names<LowPrecision>& low_precision_names() {
  static const Names<LowPrecision> names = {
      {"none", LowPrecision::none},
      {"fp8", LowPrecision::fp8},
      {"mxfp8", LowPrecision::mxfp8},
      {"nvfp4", LowPrecision::nvfp4},
  };
  return names;
}

const Names<Fp8Scaling>& fp8_scaling_names() {
  static const Names<Fp8Scaling> names = {
      {"delayed", Fp8Scaling::delayed},
      {"tensorwise", Fp8Scaling::tensorwise},
      {"rowwise", Fp8Scaling::rowwise},
      {"blockwise", Fp8Scaling::blockwise},
  };
  return names;
}

const Names<OptimizerKind>& optimizer_names() {
  static const Names<OptimizerKind> names = {
      {"adamw", OptimizerKind::adamw},
      {"decoupled_adamw", OptimizerKind::adamw},
      {"adamw_torch", OptimizerKind::adamw},
      {"adam", OptimizerKind::adam},
      {"sgd", OptimizerKind::sgd},
      {"sgdm", OptimizerKind::sgdm},
      {"adafactor", OptimizerKind::adafactor},
      {"lion", OptimizerKind::lion},
      {"muon", OptimizerKind::muon},
      {"adagrad", OptimizerKind::adagrad},
      {"rmsprop", OptimizerKind::rmsprop},
      {"sophia", OptimizerKind::sophia},
      {"shampoo", OptimizerKind::shampoo},
      {"lora-fa", OptimizerKind::lora_fa},
      {"adam-8bit", OptimizerKind::adam_8bit},
      {"adamw-8bit", OptimizerKind::adamw_8bit},
      {"adam8bit", OptimizerKind::adamw_8bit},
      {"paged-adamw-8bit", OptimizerKind::paged_adamw_8bit},
      {"lion-8bit", OptimizerKind::lion_8bit},
      {"adadelta", OptimizerKind::adadelta},
      {"adamax", OptimizerKind::adamax},
      {"asgd", OptimizerKind::asgd},
      {"nadam", OptimizerKind::nadam},
      {"radam", OptimizerKind::radam},
      {"rprop", OptimizerKind::rprop},
      {"torch-adafactor", OptimizerKind::torch_adafactor},
      {"adamw-bnb", OptimizerKind::adamw_bnb},
      {"paged-adamw", OptimizerKind::paged_adamw},
      {"paged-adamw-32bit", OptimizerKind::paged_adamw},
      {"lion-bnb", OptimizerKind::lion_bnb},
      {"lion-32bit", OptimizerKind::lion_bnb},
      {"paged-lion", OptimizerKind::paged_lion},
      {"paged-lion-32bit", OptimizerKind::paged_lion},
      {"rmsprop-bnb", OptimizerKind::rmsprop_bnb},
      {"ademamix", OptimizerKind::ademamix},
      {"paged-lion-8bit", OptimizerKind::paged_lion_8bit},
      {"rmsprop-8bit", OptimizerKind::rmsprop_8bit},
      {"rmsprop-bnb-8bit", OptimizerKind::rmsprop_8bit},
      {"adagrad-8bit", OptimizerKind::adagrad_8bit},
      {"sgdm-8bit", OptimizerKind::sgdm_8bit},
      {"ademamix-8bit", OptimizerKind::ademamix_8bit},
      {"adamw-torch-8bit", OptimizerKind::adamw_torch_8bit},
  };
  return names;
}

const Names<OptimizerImpl>& optimizer_impl_names() {
  static const Names<OptimizerImpl> names = {
      {"foreach", OptimizerImpl::foreach}, {"fused", OptimizerImpl::fused}, {"for-loop", OptimizerImpl::for_loop},
      {"library", OptimizerImpl::library}, {"cpu", OptimizerImpl::cpu},
  };
  return names;
}

const Names<AttentionKernel>& attention_names() {
  static const Names<AttentionKernel> names = {
      {"eager", AttentionKernel::eager},
      {"unfused", AttentionKernel::unfused},
      {"sdpa", AttentionKernel::sdpa},
      {"flash (torch SDPA default)", AttentionKernel::sdpa},
      {"flash", AttentionKernel::flash},
      {"flash-3", AttentionKernel::flash3},
      {"flash-4", AttentionKernel::flash4},
      {"flash (torch varlen_attn)", AttentionKernel::flash_varlen},
      {"flash-varlen", AttentionKernel::flash_varlen},
      {"flex", AttentionKernel::flex},
      {"memory-efficient", AttentionKernel::memory_efficient},
      {"cudnn", AttentionKernel::cudnn},
      {"te", AttentionKernel::te},
  };
  return names;
}

const Names<LossKernel>& loss_names() {
  static const Names<LossKernel> names = {
      {"ce", LossKernel::cross_entropy},
      {"chunked-ce", LossKernel::chunked},
      {"vocab-parallel cross entropy", LossKernel::vocab_parallel},
      {"native fused vocab-parallel cross entropy", LossKernel::fused_vocab_parallel},
      {"native", LossKernel::fused_vocab_parallel},
      {"te", LossKernel::te},
      {"compiled", LossKernel::compiled},
      {"liger", LossKernel::liger},
      {"liger-fused-linear", LossKernel::liger_fused_linear},
      {"cut-cross-entropy", LossKernel::cut_cross_entropy},
  };
  return names;
}

const Names<Recompute::Kind>& recompute_names() {
  using Kind = Recompute::Kind;
  static const Names<Kind> names = {
      {"none", Kind::none},
      {"full", Kind::full},
      {"selective", Kind::selective},
      {"selective-ac-op", Kind::operators},
      {"selective-layer", Kind::alternate},
  };
  return names;
}

const Names<Offload::By>& offload_by_names() {
  using By = Offload::By;
  static const Names<By> names = {{"save-on-cpu", By::save_on_cpu}, {"save-on-cpu-pinned", By::save_on_cpu_pinned}, {"trl", By::trl}};
  return names;
}

const Names<Strategy::Task>& task_names() {
  using Task = Strategy::Task;
  static const Names<Task> names = {
      {"lm", Task::lm},
      {"sft", Task::lm},
      {"full", Task::lm},
      {"trl-sft", Task::lm},
      {"dpo", Task::lm},
      {"kto", Task::lm},
      {"orpo", Task::lm},
      {"cpo", Task::lm},
      {"grpo", Task::lm},
      {"rloo", Task::lm},
      {"gkd", Task::lm},
      {"reward", Task::automatic},
      {"lora", Task::lm},
      {"qlora", Task::lm},
      {"mlm", Task::mlm},
      {"cls", Task::cls},
      {"token-cls", Task::token_cls},
      {"qa", Task::qa},
      {"seq2seq", Task::seq2seq},
      {"image", Task::image},
      {"flux", Task::diffusion},
      {"diffusion", Task::diffusion},
      {"ia3", Task::lm},
      {"ln_tuning", Task::lm},
      {"prompt_tuning", Task::lm},
      {"p_tuning", Task::lm},
      {"prefix_tuning", Task::lm},
  };
  return names;
}

const Names<PeftMethod>& peft_method_names() {
  static const Names<PeftMethod> names = {
      {"ia3", PeftMethod::ia3},           {"ln_tuning", PeftMethod::ln_tuning},         {"prompt_tuning", PeftMethod::prompt_tuning},
      {"p_tuning", PeftMethod::p_tuning}, {"prefix_tuning", PeftMethod::prefix_tuning},
  };
  return names;
}

const Names<MegatronOptions::Sharding>& megatron_sharding_names() {
  using Sharding = MegatronOptions::Sharding;
  static const Names<Sharding> names = {
      {"no_shard", Sharding::no_shard},
      {"optim", Sharding::optim},
      {"optim_grads", Sharding::optim_grads},
      {"optim_grads_params", Sharding::optim_grads_params},
  };
  return names;
}

const Names<BaseWeights>& base_weights_names() {
  static const Names<BaseWeights> names = {
      {"as-trained", BaseWeights::as_trained},
      {"nf4", BaseWeights::nf4},
      {"nf4-double-quant", BaseWeights::nf4_double_quant},
      {"int8", BaseWeights::int8},
  };
  return names;
}

const Names<PostTraining::Kind>& post_training_names() {
  using Kind = PostTraining::Kind;
  static const Names<Kind> names = {{"trl-sft", Kind::sft}, {"reward", Kind::reward}, {"dpo", Kind::dpo}, {"kto", Kind::kto},
                                                 {"orpo", Kind::orpo},   {"cpo", Kind::cpo},       {"grpo", Kind::grpo}, {"rloo", Kind::rloo},
                                                 {"gkd", Kind::gkd}};
  return names;
}

const Names<PostTraining::Program>& trainer_program_names() {
  using Program = PostTraining::Program;
  static const Names<Program> names = {{"trl", Program::trl}, {"llama-factory", Program::llamafactory}, {"ms-swift", Program::ms_swift}, {"verl", Program::verl}};
  return names;
}

const Names<PostTraining::Reference>& reference_names() {
  using Reference = PostTraining::Reference;
  static const Names<Reference> names = {
      {"model", Reference::model}, {"adapter-off", Reference::adapter_off}, {"precomputed", Reference::precomputed},
      {"teacher", Reference::teacher}, {"none", Reference::none}};
  return names;
}

const Names<PostTraining::Divergence>& divergence_names() {
  using Divergence = PostTraining::Divergence;
  static const Names<Divergence> names = {{"mixture", Divergence::mixture}, {"forward", Divergence::forward}, {"reverse", Divergence::reverse}};
  return names;
}

const Names<PostTraining::Rollout>& rollout_names() {
  using Rollout = PostTraining::Rollout;
  static const Names<Rollout> names = {{"elsewhere", Rollout::elsewhere}, {"colocated", Rollout::colocated}};
  return names;
}

const Names<NeighbourPlaces::Place>& neighbour_place_names() {
  using Place = NeighbourPlaces::Place;
  static const Names<Place> names = {{"device", Place::device}, {"cached", Place::cached}, {"absent", Place::absent}};
  return names;
}

const Names<HostLoading>& host_loading_names() {
  static const Names<HostLoading> names = {{"every-rank", HostLoading::every_rank}, {"first-rank", HostLoading::first_rank}};
  return names;
}

const Names<DType>& dtype_names() {
  static const Names<DType> names = {
      {"fp32", DType::fp32}, {"float32", DType::fp32},  {"fp16", DType::fp16}, {"float16", DType::fp16},
      {"bf16", DType::bf16}, {"bfloat16", DType::bf16}, {"fp8", DType::fp8},
  };
  return names;
}

}  // namespace strategy

std::string_view name_of(DataParallel kind) { return strategy::name_in(strategy::data_parallel_names(), kind); }
std::string_view name_of(Precision precision) { return strategy::name_in(strategy::precision_names(), precision); }
std::string_view name_of(LowPrecision type) { return strategy::name_in(strategy::low_precision_names(), type); }
std::string_view name_of(Fp8Scaling scaling) { return strategy::name_in(strategy::fp8_scaling_names(), scaling); }
std::string_view name_of(OptimizerKind optimizer) { return strategy::name_in(strategy::optimizer_names(), optimizer); }
std::string_view name_of(OptimizerImpl implementation) { return strategy::name_in(strategy::optimizer_impl_names(), implementation); }
std::string_view name_of(AttentionKernel kernel) { return strategy::name_in(strategy::attention_names(), kernel); }
std::string_view name_of(LossKernel loss) { return strategy::name_in(strategy::loss_names(), loss); }

}  // namespace plimsoll
