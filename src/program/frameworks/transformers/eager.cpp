// transformers on one device: loss = model(**batch).loss; loss.backward(); clipping; optimizer.step(); zero_grad().
#include <optional>
#include <utility>

#include "program/frameworks/transformers/training.hpp"
#include "program/lower.hpp"
#include "program/modules/network_source.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::program {

namespace {

void put_on_device(const Model& model, Module& root, const Strategy& strategy, Tape& tape) {
  tape.phase(Phase::init);
  materialize(root, tape, arrival_of(model, is_prepared_by_accelerate(strategy)));
}

/// The steps; none where `some` of equal layers were to stand for all of them, and do not.
std::optional<StepProgram> record_steps(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy,
                                        bool every_micro_batch, bool some) {
  const std::vector<Tensor> parameters = trainable_tensors(root);
  const std::unique_ptr<Optimizer> optimizer = hf_optimizer(model, strategy, root, tape);
  const Batch batch = hf_batch(model, strategy, tape);
  TrainingLoop loop{network, *optimizer, parameters};
  loop.passes_recur = hf_passes_recur(strategy) && !model.source;  // code may keep what it made in a first pass
  std::unique_ptr<EqualLayers> equal;
  if (some) equal = hf_equal_layers(model, strategy, root, tape, parameters.size());
  tape.equal_layers = equal.get();
  if (!record_hf_steps(tape, loop, strategy, batch, every_micro_batch)) return {};
  return tape.take();
}

std::optional<StepProgram> lowered(const Lowering& run, const Rank& rank, bool some) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  put_on_device(model, *root, strategy, tape);
  const std::unique_ptr<Network> network = hf_network(model, strategy, *root, tape);
  return record_steps(tape, model, *root, *network, strategy, rank.every_micro_batch, some);
}

}  // namespace

StepProgram record_plain(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch) {
  put_on_device(model, root, strategy, tape);
  return std::move(*record_steps(tape, model, root, network, strategy, every_micro_batch, false));
}

StepProgram lower_hf_eager(const Lowering& run, const Rank& rank) {
  if (is_msamp(run.strategy.precision)) return lower_hf_msamp(run, rank);
  if (std::optional<StepProgram> program = lowered(run, rank, true)) return std::move(*program);
  return std::move(*lowered(run, rank, false));
}

}  // namespace plimsoll::program
