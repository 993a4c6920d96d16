/// TorchFullyShardedDataParallel (--use-torch-fsdp2): fully_shard around the embedding, every layer, the output layer of Transformer Engine's
/// models, and all. Sources: megatron/core/distributed/torch_fully_sharded_data_parallel.py of Megatron-core 0.16.1; what Primus has in its
/// place, primus/backends/megatron/core/distributed/torch_fully_sharded_data_parallel.py (fd1eeab).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"
#include "program/wrappers/fsdp/fsdp2.hpp"
#include "program/wrappers/megatron/data_parallel.hpp"
#include "program/wrappers/megatron/fsdp_modules.hpp"

namespace plimsoll::program {

struct MegatronTorchFsdp2Options {
  std::int64_t ranks = 1;             ///< data-parallel × context-parallel
  std::int64_t rank = 0;              ///< whose shards are recorded
  bool reshards = true;               ///< torch_fsdp2_reshard_after_forward
  bool wraps_output_layer = true;     ///< it is a unit of its own; not among local layers
  /// Which neighbours a unit gathers ahead by order; where it has none FSDP2's own rule decides.
  bool prefetches_forward = false, prefetches_backward = false;
};

/// The wrapper of the whole model on one rank.
class MegatronTorchFsdp2 : public MegatronDataParallel {
 public:
  /// Cuts up the model that lies on the device, unit by unit.
  MegatronTorchFsdp2(Tape& tape, const MegatronFsdpModules& modules, const MegatronTorchFsdp2Options& options);

  /// There is no buffer: the optimizer's zero_grad() drops the shards' gradients.
  void zero_grad_buffer() override {}
  /// Every backward pass reduces: the class has no no_sync of its own.
  void set_synchronizing(bool) override {}
  void finish_grad_sync() override {}
  void gather_parameters() override {}
  std::int64_t gradient_elements(const Parameter& parameter) const override { return parameter.sizes.product(); }
  DType gradient_type() const override { return DType::bf16; }

  /// The trained parameters as the optimizer is given them, in registration order; gradients are in grad() behind a backward pass.
  std::vector<Tensor> shards() const;

 private:
  std::unique_ptr<Fsdp2> sharded_;
};

}  // namespace plimsoll::program
