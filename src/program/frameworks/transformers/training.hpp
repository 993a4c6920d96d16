/// What a training step of transformers' modules consists of, whoever shards its states.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/verl.hpp"
#include "plimsoll/strategy.hpp"
#include "program/equal_layers.hpp"
#include "program/lower.hpp"
#include "program/modules/network.hpp"
#include "program/optimizers/clipping.hpp"
#include "program/optimizers/optimizer.hpp"
#include "program/tape.hpp"
#include "program/wrappers/ddp.hpp"

namespace plimsoll::program {

/// How the modules run under a resolved strategy. Throws Error (refused): a kernel or a recomputation that transformers does not have.
RunOptions hf_run_options(const Strategy& strategy);

/// The modules of the model, not yet on the device, with adapters where the strategy asks for them.
std::unique_ptr<Module> hf_modules(const Model& model, const Strategy& strategy, Tape& tape);

/// Accelerate, which computes in 16 bits, keeps what it trains under FSDP in fp32 whatever type it came in (prepare_model,
/// fsdp2_prepare_model); quantised models it leaves as they are under FSDP2.
void upcast_trained_weights(Module& root, const Strategy& strategy);

/// bitsandbytes' linears in the place of the model's, as from_pretrained puts them in. Throws Error (refused): what is not modelled beside
/// them, FSDP of 8-bit weights, mixtures whose modules were not read; bad input: what sharding makes of them does not run.
void put_quantised_linears(Module& root, const Model& model, const Strategy& strategy, Tape& tape);

/// The network of those modules, as who prepares it wraps its forward.
std::unique_ptr<Network> hf_wrapped_network(const Model& model, const Strategy& strategy, Module& root, Tape& tape);

/// The network that one of TRL's trainers compares with: of a frozen model, or of the policy with its adapters off; wrapped likewise. `cache`,
/// if it is there, gets the keys and values that its layers keep.
std::unique_ptr<Network> hf_reference_network(const Model& model, const Strategy& strategy, Module& root,
                                              std::shared_ptr<std::vector<Tensor>> cache, Tape& tape);

/// The same as hf_wrapped_network; with an encoder of prompts among the modules, in front of it; of one of TRL's trainers, whose frozen
/// copy comes onto the device.
std::unique_ptr<Network> hf_network(const Model& model, const Strategy& strategy, Module& root, Tape& tape);

/// Of a model of images and text, whose vision tower gets no gradient from a batch of text alone. Throws Error (refused) where something of
/// that tower is trained under `wrapper`, which waits for every trained parameter's gradient.
void refuse_resting_tower(const Model& model, Module& root, const std::string& wrapper);

/// Freezes every parameter but those of the strategy's trained_modules. Throws Error: a name that no module has.
void freeze_other_modules(Module& root, const Strategy& strategy);

/// Token ids or pixel values and labels of one micro-batch, resident.
Batch hf_batch(const Model& model, const Strategy& strategy, Tape& tape);

/// loss = model(**batch).loss under the strategy's autocast; `keeper` of the saved tensors: the device where there is none.
Tensor hf_loss(Network& network, const Strategy& strategy, const Batch& batch, Tape& tape, std::shared_ptr<SavedTensorHooks> keeper = {});

/// The type that the strategy's precision autocasts to; none when it does not.
std::optional<DType> hf_autocast(const Strategy& strategy);

/// The type of adapters: PEFT's own where its model stands around 16-bit weights, whatever was said; as said elsewhere.
DType hf_adapter_type(const Strategy& strategy);

/// Data type of the stored weights.
DType hf_parameter_type(const Strategy& strategy);

/// Whether Accelerate prepares what the Trainer, or a loop of its own, then steps: it autocasts around whatever wraps the model, hands the
/// outputs out in fp32, and cuts FSDP2's units (accelerate/accelerator.py, prepare_model; utils/fsdp_utils.py).
bool is_prepared_by_accelerate(const Strategy& strategy);

/// A model that is built before FSDP wraps it, autocast around it.
using framework::is_run_by_verl;

/// Whether each of the trainable parameters below `root` is decayed, in registration order (Trainer.get_decay_parameter_names).
std::vector<bool> decayed_parameters(Module& root);

/// The strategy's optimizer over `parameters`, which stand for the trainable ones below `root` in registration order; of the Trainer in two
/// groups, with weight decay and without (Trainer.create_optimizer).
std::unique_ptr<Optimizer> hf_grouped_optimizer(const Model& model, const Strategy& strategy, Module& root, Tape& tape,
                                                const std::vector<Tensor>& parameters);

/// The strategy's optimizer over the trainable parameters below `root`, which are on the device whole.
std::unique_ptr<Optimizer> hf_optimizer(const Model& model, const Strategy& strategy, Module& root, Tape& tape);

/// DistributedDataParallel's arguments.
DdpSettings hf_ddp_settings(const Strategy& strategy);

/// Throws Error (refused) where MS-AMP's linears do not go with what the strategy makes of the model, under whichever engine.
void refuse_unmodelled_msamp(const Model& model, const Strategy& strategy);

/// transformers' modules as msamp.initialize makes them, on one device or under MS-AMP's DistributedDataParallel, autocast to bf16 as
/// Accelerate does. Throws Error (refused): adapters, compiled or quantised modules.
StepProgram lower_hf_msamp(const Lowering& run, const Rank& rank);

/// Who takes part in a training step, whatever wraps the network.
struct TrainingLoop {
  Network& network;
  Optimizer& optimizer;
  std::vector<Tensor> clipped;                             ///< what clip_grad_norm_ sees
  std::function<void(bool last)> before_micro_batch = {};  ///< told whether the micro-batch is the step's last
  std::function<void()> after_step = {};
  bool second_step = false;         ///< something happens once in or behind the second step
  std::function<void()> clip = {};  ///< in the place of torch.nn.utils.clip_grad_norm_
  bool passes_recur = false;        ///< whatever wraps the network is after a step as before it: KnownPasses' promise
};

/// Whether transformers' modules alone keep KnownPasses' promise under this strategy: what torch.compile, offloaded activations and
/// adapters that change with the steps keep of the first one was not read.
bool hf_passes_recur(const Strategy& strategy);

/// Whose layers need not all run: those of the model's longest block, where transformers' modules alone treat them alike; of `leaves`
/// parameters that are trained. None where they all must.
std::unique_ptr<EqualLayers> hf_equal_layers(const Model& model, const Strategy& strategy, Module& root, Tape& tape, std::size_t leaves);

/// Records the first step and the steady one: micro-batches (those that only repeat others if `every_micro_batch`), clipping,
/// optimizer.step(), zero_grad(). False where the tape left out layers (Tape::equal_layers) that could not be told from those that ran:
/// what is recorded is not the step, and all of them must run.
bool record_hf_steps(Tape& tape, const TrainingLoop& loop, const Strategy& strategy, const Batch& batch, bool every_micro_batch);

/// The steps of a network on one device; the tape's program.
StepProgram record_plain(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch);

/// The steps of a network under DistributedDataParallel; the tape's program.
StepProgram record_ddp(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch);

/// The steps of a network whose layers and root are FullyShardedDataParallel's units; the tape's program.
StepProgram record_fsdp1(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch);

}  // namespace plimsoll::program
