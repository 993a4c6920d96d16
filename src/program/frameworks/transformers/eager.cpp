// transformers on one device: loss = model(**batch).loss; loss.backward(); clipping; optimizer.step(); zero_grad().
#include "program/frameworks/transformers/training.hpp"
#include "program/lower.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::program {

namespace {

void put_on_device(Module& root, const Strategy& strategy, Tape& tape) {
  tape.phase(Phase::init);
  materialize(root, tape, is_prepared_by_accelerate(strategy) ? Arrival::moved : Arrival::empty);
}

StepProgram record_steps(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch) {
  const std::vector<Tensor> parameters = trainable_tensors(root);
  const std::unique_ptr<Optimizer> optimizer = hf_optimizer(model, strategy, root, tape);
  const Batch batch = hf_batch(model, strategy, tape);
  TrainingLoop loop{network, *optimizer, parameters};
  loop.passes_recur = hf_passes_recur(strategy);
  record_hf_steps(tape, loop, strategy, batch, every_micro_batch);
  return tape.take();
}

}  // namespace

StepProgram record_plain(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch) {
  put_on_device(root, strategy, tape);
  return record_steps(tape, model, root, network, strategy, every_micro_batch);
}

StepProgram lower_hf_eager(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  if (is_msamp(strategy.precision)) return lower_hf_msamp(run, rank);
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  put_on_device(*root, strategy, tape);
  const std::unique_ptr<Network> network = hf_network(model, strategy, *root, tape);
  return record_steps(tape, model, *root, *network, strategy, rank.every_micro_batch);
}

}  // namespace plimsoll::program
