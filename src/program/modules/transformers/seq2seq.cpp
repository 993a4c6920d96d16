#include "program/modules/transformers/seq2seq.hpp"

#include "program/checkpoint.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

std::vector<Tensor> run_layer(Module& module, Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments_in,
                              const TupleRegion& forward) {
  std::vector<Tensor> arguments = arguments_in;
  ModuleCall call(module, tape, {&arguments.front()});
  std::vector<Tensor> results;
  switch (options.checkpointing) {
    case RunOptions::Checkpointing::non_reentrant:
      results = checkpoint(tape, forward, arguments);
      break;
    case RunOptions::Checkpointing::reentrant:
      results = checkpoint_reentrant(tape, forward, arguments);
      break;
    case RunOptions::Checkpointing::none:
      results = forward(arguments);
  }
  call.done({&results.front()});
  return results;
}

Tensor run_layer(Module& module, Tape& tape, const RunOptions& options, const std::vector<Tensor>& arguments, const Region& forward) {
  return run_layer(module, tape, options, arguments, TupleRegion([forward](const std::vector<Tensor>& x) {
                     std::vector<Tensor> results;
                     results.push_back(forward(x));
                     return results;
                   }))
      .front();
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
    copy_into(copy, kept);
    copy_into(slice(shifted, -1, 1, shifted.size(-1)), copy);
  }
  in_place(select(shifted, -1), {});  // the start token
  const Tensor ignored = elementwise(tape, {&shifted}, DType::boolean);
  in_place(shifted, {&ignored});
  return shifted;
}

}  // namespace plimsoll::program
