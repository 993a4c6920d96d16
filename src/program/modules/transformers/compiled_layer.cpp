#include "program/modules/transformers/compiled_layer.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

void check_compiled_layer(Module& layer, const Tensor& hidden) {
  for (const std::shared_ptr<Parameter>& parameter : layer.all_parameters())
    if (parameter->tensor && parameter->tensor.dtype() != hidden.dtype())
      refuse("compiled blocks whose weights and inputs have different types are not modelled", "compile");
}

Tensor run_compiled_layer(Module& layer, const RunOptions& options, const void* kind, const std::vector<Tensor>& arguments, const EagerLayer& make) {
  const bool checkpointed = options.checkpoints_in_graph();
  check_compiled_layer(layer, arguments.front());
  RunOptions eager = options;
  eager.compiled_blocks = eager.compiled_frames = false;
  eager.checkpointing = RunOptions::Checkpointing::none;
  eager.unchecked = {};
  return options.graphs
      ->run({"compiled_layer", kind, checkpointed, [checkpointed] { return inductor::Checkpointing{.on = checkpointed}; },
             [&](Module& twin, Tape& tape) -> inductor::CompiledForward::Eager {
               return [forward = make(twin, tape, eager)](const std::vector<Tensor>& given) { return std::vector<Tensor>{forward(given)}; };
             }},
            layer, arguments)
      .front();
}

std::vector<Tensor> run_frame(const RunOptions& options, const char* name, Module& module, const std::vector<Tensor>& arguments,
                              const EagerFrame& make) {
  if (!options.compiled_frames) return make(module, arguments.front().tape())(arguments);
  return options.graphs->run({.name = name, .kind = name, .make = make}, module, arguments);
}

}  // namespace plimsoll::program
