/// LoRALinear and ParallelLinearAdapter of NeMo and Megatron-Bridge: two narrow linears beside a frozen one. They are Megatron's own,
/// in 16 bits whatever the frozen one multiplies in.
/// Source: src/megatron/bridge/peft/{lora,lora_layers,utils}.py of Megatron-Bridge 0.6.
#pragma once

#include "program/module.hpp"
#include "program/modules/megatron/runtime.hpp"
#include "program/modules/megatron/te.hpp"

namespace plimsoll::program {

/// Where an adapter stands.
struct AdapterPlace {
  TeParallel beside = TeParallel::none;  ///< how the frozen linear is cut; none: every rank has it whole, and the adapter cut
  bool parallel = false;                 ///< several ranks share the adapter
  bool sequence = false;                 ///< the model's sequence is cut over them
  bool expert = false;                   ///< beside the linear of an expert, whose rows nobody gathers or scatters
  double dropout = 0;                    ///< before the first linear
};

/// LoRALinear.forward: output + scaled product of x with the adapter's two linears. Beside a column-parallel linear a cut sequence is
/// gathered before them, the narrow product's columns behind it; beside a row-parallel one the narrow product is summed over the ranks, the
/// wide one's columns are gathered, and cut over the sequence again.
Tensor adapted(MegatronRuntime& runtime, const Tensor& output, const Tensor& x, Module& adapter, const AdapterPlace& place);

}  // namespace plimsoll::program
