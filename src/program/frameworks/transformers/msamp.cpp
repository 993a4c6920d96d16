// transformers' modules trained by MS-AMP: msamp.initialize(model, optimizer), then the plain loop. Gradients are set to None after a step,
// as Accelerate's optimizer does; MS-AMP's own zero_grad() would keep them. Casts look for their largest magnitudes first, as they do until
// their windows of sixteen steps are full.
#include <memory>
#include <optional>

#include "plimsoll/error.hpp"
#include "program/carried.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/wrappers/ddp.hpp"
#include "program/wrappers/msamp/model.hpp"
#include "program/wrappers/msamp/optimizer.hpp"
#include "program/wrappers/msamp/reducer.hpp"

namespace plimsoll::program {

namespace {

/// DistributedDataParallel over the ordinary parameters, and MS-AMP's reducer over the others.
class Distributed {
 public:
  Distributed(Tape& tape, Module& root, msamp::Model& model, const Strategy& strategy)
      : ddp_(tape, root, settings(model, strategy)),
        reducer_(tape, model, hf_ddp_settings(strategy).bucket_cap, ddp_.stream()),
        no_sync_(strategy.no_sync) {}

  void before_micro_batch(bool last) {
    reducer_.reset();
    ddp_.before_forward(last || !no_sync_);
  }
  void after_step() { ddp_.after_step(); }

 private:
  static DdpSettings settings(const msamp::Model& model, const Strategy& strategy) {
    DdpSettings settings = hf_ddp_settings(strategy);
    if (model.leaves_unused() && !settings.find_unused_parameters)
      fail("the head's bias is a copy under MS-AMP, and DDP waits for the gradient of the one it was tied to", "data_parallel", "none");
    if (model.leaves_unused())
      refuse("DDP's search for the bias that MS-AMP's copy of the head leaves unused is not modelled", "data_parallel", "none");
    for (const auto& linear : model.linears()) settings.ignored.insert(linear->weight.get());
    return settings;
  }

  Ddp ddp_;
  msamp::Reducer reducer_;
  bool no_sync_;
};

}  // namespace

void refuse_unmodelled_msamp(const plimsoll::Model& model, const Strategy& strategy) {
  if (strategy.lora || strategy.peft || strategy.base_weights != BaseWeights::as_trained)
    refuse("MS-AMP with adapters or quantised weights is not modelled", "precision");
  if (strategy.compile != Strategy::Compile::no) refuse("MS-AMP with compiled modules is not modelled", "compile");
  if (strategy.loss == LossKernel::liger_fused_linear)
    fail("Liger reads the head's weight as an ordinary tensor, which MS-AMP's is not", "loss", "liger or ce");
  if (model.model_type == "falcon" && strategy.micro_batch * strategy.seq_len % 16 != 0)
    fail("Falcon adds in place to what its linears return, which autograd forbids of a padded product's view", "seq_len",
         "a multiple of 16 tokens");
  if (model.task == plimsoll::Model::Task::diffusion) refuse("MS-AMP of diffusion transformers is not modelled", "precision");
}

StepProgram lower_hf_msamp(const Lowering& run, const Rank& rank) {
  const plimsoll::Model& model = run.model;
  const Strategy& strategy = run.strategy;
  refuse_unmodelled_msamp(model, strategy);
  const bool distributed = strategy.data_parallel == DataParallel::ddp;
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  tape.phase(Phase::init);
  materialize(*root, tape);
  msamp::Model scaled(tape, *root, model, distributed ? strategy.dp : 1);
  const std::unique_ptr<Network> network = hf_network(model, strategy, *root, tape);
  std::optional<Distributed> wrapped;
  if (distributed) wrapped.emplace(tape, *root, scaled, strategy);
  const Batch batch = hf_batch(model, strategy, tape);
  const msamp::States states = strategy.precision == Precision::msamp_o2 ? msamp::States::scaled : msamp::States::fp32;
  const bool decays = strategy.optimizer == OptimizerKind::adamw;
  const std::unique_ptr<Optimizer> optimizer = msamp::make_optimizer(tape, scaled, scaled.trained(), states, decays);
  TrainingLoop loop{.network = *network, .optimizer = *optimizer, .clipped = {}};
  loop.clip = [&] { msamp::clip_grad_norm(tape, scaled.all()); };
  loop.second_step = true;  // from then on gradients of a head that was tied add to those of the step before
  if (wrapped) {
    loop.before_micro_batch = [&](bool last) { wrapped->before_micro_batch(last); };
    loop.after_step = [&] { wrapped->after_step(); };
  }
  record_hf_steps(tape, loop, strategy, batch, rank.every_micro_batch);
  StepProgram program = tape.take();
  carry_across_steps(program);  // the gradient of a head that was tied: nobody clears it
  return program;
}

}  // namespace plimsoll::program
