#include "program/modules/transformers/compiled_layer.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

/// What of types has not been held against the real compiler.
void check_types(Module& layer, const Tensor& hidden) {
  for (const std::shared_ptr<Parameter>& parameter : layer.all_parameters())
    if (parameter->tensor && parameter->tensor.dtype() != hidden.dtype())
      refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
}

/// DDP's buckets cut a graph in front of what fills one; checkpoints within it are one operation each.
void check_buckets(Module& layer, const Tape& tape, bool checkpointed) {
  if (!tape.ddp_buckets || checkpointed) return;
  std::int64_t bytes = 0;
  for (const std::shared_ptr<Parameter>& parameter : layer.all_parameters())
    if (parameter->tensor && parameter->tensor.requires_grad()) bytes += parameter->tensor.bytes();
  if (bytes >= tape.ddp_buckets->first)
    refuse("compiled blocks of this type within DDP, whose buckets cut their graphs, are not modelled", "compile", "false");
}

}  // namespace

void check_compiled_layer(Module& layer, const Tensor& hidden, bool checkpointed) {
  check_types(layer, hidden);
  check_buckets(layer, hidden.tape(), checkpointed);
}

Tensor run_compiled_layer(Module& layer, const RunOptions& options, const void* kind, const std::vector<Tensor>& arguments, const EagerLayer& make) {
  const bool checkpointed = options.checkpoints_in_graph();
  check_compiled_layer(layer, arguments.front(), checkpointed);
  RunOptions eager = options;
  eager.compiled_blocks = false;
  eager.checkpointing = RunOptions::Checkpointing::none;
  eager.unchecked = {};
  return options.graphs->run({"compiled_layer", kind, checkpointed, [checkpointed] { return inductor::Checkpointing{.on = checkpointed}; },
                              [&](Module& twin, Tape& tape) { return make(twin, tape, eager); }},
                             layer, arguments);
}

}  // namespace plimsoll::program
