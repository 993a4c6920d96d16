#include "program/modules/seq2seq.hpp"

#include "program/checkpoint.hpp"
#include "program/ops.hpp"

namespace plimsoll::program {

Tensor run_layer(Module& module, Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments_in,
                 const std::function<Tensor(const std::vector<Tensor>&)>& forward) {
  std::vector<Tensor> arguments = arguments_in;
  ModuleCall call(module, tape, {&arguments.front()});
  switch (options.checkpointing) {
    case RunOptions::Checkpointing::non_reentrant:
      return call.done(checkpoint(tape, forward, arguments));
    case RunOptions::Checkpointing::reentrant:
      return call.done(checkpoint_reentrant(tape, forward, arguments));
    case RunOptions::Checkpointing::none:
      break;
  }
  return call.done(forward(arguments));
}

Tensor flat_cross_entropy(const Tensor& logits, const Tensor& labels) {
  const Tensor flat = view(logits, {-1, logits.size(-1)});
  return cross_entropy(flat, view(labels, {-1}));
}

Tensor shift_right(const Tensor& labels) {
  Tape& tape = labels.tape();
  tape.operator_name = "shift_right";
  const Tensor shifted = zeros(tape, labels.sizes(), labels.dtype());
  {
    const Tensor kept = slice(labels, -1, 0, labels.size(-1) - 1);
    const Tensor copy = tape.empty(kept.sizes(), kept.dtype());
    in_place(copy, {&kept});
    in_place(shifted, {&copy});
  }
  const Tensor ignored = elementwise(tape, {&shifted}, DType::boolean);
  in_place(shifted, {&ignored});
  return shifted;
}

}  // namespace plimsoll::program
