#include "program/frameworks/torchtitan_loss.hpp"

#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

/// torch.split of dimension 1, each piece made contiguous.
std::vector<Tensor> chunk_sequence(const Tensor& x, int chunks) {
  std::vector<Tensor> pieces;
  const std::vector<std::int64_t> lengths(static_cast<std::size_t>(chunks), x.size(1) / chunks);
  for (const Tensor& piece : split(x, lengths, 1)) pieces.push_back(contiguous(piece));
  return pieces;
}

/// GradAccumulator.add: the piece's gradient in fp32, written to its place.
void accumulate(const Tensor& buffer, const Tensor& gradient) {
  const Tensor wide = to(gradient, buffer.dtype());
  in_place(wide, {&wide});
}

/// _DecoderOutputGradientBackProp: the loss, whose gradient is the accumulated one.
Tensor with_gradient(const Tensor& hidden, const Tensor& gradient, const Tensor& loss) {
  Op op("chunked_loss", {&hidden});
  op.save(gradient);
  Tensor result = loss.detach();
  return op.done(result, [](BackwardCall& b) { b.give(0, b.saved(0)); });
}

}  // namespace

Tensor cross_entropy_loss(const Tensor& logits, const LossInputs& inputs) {
  Tensor sum;
  {
    const Tensor flat = view(logits, {-1, logits.size(-1)});
    const Tensor wide = to(flat, DType::fp32);
    sum = cross_entropy(wide, view(inputs.labels, {-1}));
  }
  return divide(sum, inputs.valid_tokens);
}

Tensor chunked_loss(Tape& tape, TitanDecoder& decoder, Fsdp2& sharded, int chunks, const Tensor& hidden, const LossInputs& inputs) {
  std::vector<Tensor> pieces = chunk_sequence(hidden, chunks);
  for (Tensor& piece : pieces) {
    piece = piece.detach();
    piece.set_requires_grad(true);
  }
  const std::vector<Tensor> labels = chunk_sequence(inputs.labels, chunks), positions = chunk_sequence(inputs.positions, chunks);
  tape.operator_name = "chunked_loss";
  Tensor buffer = zeros(tape, hidden.sizes(), DType::fp32);
  Tensor total = zeros(tape, {}, DType::fp32);
  Module& head = *decoder.head();
  sharded.set_reshard_after_forward(head, false);
  sharded.set_reshard_after_backward(head, false);
  sharded.set_requires_gradient_sync(head, false);
  sharded.unshard(head);
  Tensor logits, loss;  // Python's variables live on into the next round
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i + 1 == pieces.size()) sharded.set_requires_gradient_sync(head, true);
    logits = decoder.apply_head(pieces[i]);
    loss = cross_entropy_loss(logits, {labels[i], positions[i], inputs.valid_tokens});
    total = add(total, loss.detach());
    tape.backward(loss);
    accumulate(buffer, pieces[i].grad());
    pieces[i].grad().reset();
  }
  sharded.set_reshard_after_forward(head, true);
  sharded.set_reshard_after_backward(head, true);
  sharded.reshard(head);
  const Tensor gradient = to(buffer, hidden.dtype());
  buffer.reset();
  return with_gradient(hidden, gradient, total);
}

}  // namespace plimsoll::program
