// nanotron: 3D parallelism with an fp32 gradient accumulator and ZeRO-1.
#include "framework/nanotron.hpp"

#include "framework/catalogue.hpp"

namespace plimsoll::framework {

bool nanotron_waits_for_sends(const Strategy& strategy) {
  return !strategy.releases.of(Package::nanotron).since_date(2024, 12, 27);
}

bool nanotron_hosts_meet(const Strategy& strategy) {
  const Releases::Entry* said = strategy.releases.find(Package::nanotron);
  return strategy.pp > 1 || (said != nullptr && said->origin == Releases::Origin::said && said->release.since_date(2024, 12, 26));
}

namespace {

/// ParallelismArgs: tp_mode of every example.
void complete_nanotron(Strategy& s, const Model&) {
  if (s.tp == 1 || s.sequence_parallel) return;
  s.sequence_parallel = true;
  s.assumed.push_back("sequence_parallel: true (tp_mode: REDUCE_SCATTER, as in nanotron's examples)");
}

}  // namespace

Entry nanotron() {
  FrameworkProfile p;
  p.name = "nanotron";
  p.title = "nanotron";
  p.source = "nanotron's Llama trainer and configs, 2024-12";
  p.code = ModelCode::nanotron;
  p.bf16 = Precision::mixed_bf16;
  p.fp16 = Precision::mixed_fp16;
  p.data_parallel = DataParallel::ddp;
  p.optimizer_impl = OptimizerImpl::fused;
  p.attention = AttentionKernel::flash;
  p.loss = LossKernel::vocab_parallel;
  p.kinds = {DataParallel::none, DataParallel::ddp, DataParallel::zero1};
  p.attentions = {AttentionKernel::flash};
  p.losses = {LossKernel::vocab_parallel};
  p.recomputes = {Recompute::Kind::none, Recompute::Kind::full};
  p.low_precisions = {LowPrecision::none};
  p.schedules = {"1f1b", "gpipe"};
  p.stages = StageSplit::by_cost;
  p.other_stage_modules = 5;  // embedding, final norm, head, cast and loss are pipeline blocks
  p.tensor = p.sequence_parallel = true;
  p.fused_rms_norm = p.fused_qkv = true;
  return {p, nullptr, complete_nanotron, nullptr};
}

}  // namespace plimsoll::framework
