#include "program/frameworks/torchtitan/loss.hpp"

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

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
  PythonFunction op("chunked_loss", {&hidden});
  op.save(gradient);
  Tensor result = loss.detach();
  return op.done(result, [](BackwardCall& b) { b.give(0, b.saved(0)); });
}

void reduce_over_ranks(Tape& tape, Tensor& x) {
  Tensor sent = clone(x);
  x = std::move(sent);
  tape.collective({.kind = CollectiveKind::all_reduce, .group = Group::tensor, .bytes = x.bytes(), .type = x.dtype()}, kComputeStream);
}

/// The labels of this rank's part of the vocabulary and the mask of the others', as _LossParallelCrossEntropy makes them.
struct LocalLabels {
  Tensor safe, outside, local;
};

LocalLabels local_labels(Tape& tape, const Tensor& labels) {
  LocalLabels result;
  auto& [safe, outside, local] = result;
  {
    const Tensor valid = elementwise(tape, {&labels}, DType::boolean), zero = filled(tape, {}, DType::int64);
    safe = elementwise(tape, {&valid, &labels, &zero}, DType::int64);
  }
  {
    const Tensor below = elementwise(tape, {&safe}, DType::boolean), above = elementwise(tape, {&safe}, DType::boolean);
    outside = elementwise(tape, {&below, &above}, DType::boolean);
  }
  local = elementwise(tape, {&safe}, DType::int64);
  in_place(local, {&local, &outside});
  return result;
}

/// torch.where(labels != IGNORE_INDEX, x, 0).
Tensor where_labelled(Tape& tape, const Tensor& labels, const Tensor& x, const Dims& sizes) {
  const Tensor valid = elementwise(tape, {&labels}, DType::boolean), zero = filled(tape, {}, DType::fp32);
  const Tensor result = tape.empty(sizes, DType::fp32);
  pointwise(tape, Pointwise::Form::map, {operand(valid), operand(x)}, {operand(result)});
  return result;
}

/// The backward of _LossParallelCrossEntropy: (−1 at the labels + softmax) · gradient.
void vocabulary_backward(BackwardCall& b) {
  Tape& tape = b.tape;
  const Tensor log_probabilities = b.saved(0);
  const LocalLabels ids = local_labels(tape, b.saved(1));
  const Tensor one_hot = zeros(tape, log_probabilities.sizes(), DType::fp32);
  const Tensor rows = arange(tape, ids.local.elements());
  Tensor update = elementwise(tape, {&ids.outside}, DType::fp32);
  update = elementwise(tape, {&update}, DType::fp32);                             // less one
  gather(tape, Gather::Function::scatter, update.elements(), {operand(rows), operand(ids.local), operand(update)},
         {operand(update)});  // one_hot[rows, labels] = update
  const Tensor of_rows = where_labelled(tape, b.saved(1), b.grad(), {ids.local.elements(), 1});
  Tensor sum;
  {
    const Tensor softmax = elementwise(tape, {&log_probabilities}, DType::fp32);
    sum = elementwise(tape, {&one_hot, &softmax}, DType::fp32);
  }
  Tensor gradient = elementwise(tape, {&sum, &of_rows}, DType::fp32);
  b.give(0, std::move(gradient));
}

/// _LossParallelCrossEntropy: logits [rows, vocabulary / ranks] in fp32; the sum over the rows.
Tensor vocabulary_cross_entropy(const Tensor& logits, const Tensor& labels) {
  Op op("loss_parallel", {&logits});
  Tape& tape = op.tape();
  const Dims column{logits.size(0), 1};
  Tensor largest = tape.empty(column, DType::fp32);
  reduce(largest, logits, Reduction::Axis::inner);
  reduce_over_ranks(tape, largest);
  const Tensor shifted = elementwise(tape, {&logits, &largest}, DType::fp32);
  Tensor total;
  {
    const Tensor exponentials = elementwise(tape, {&shifted}, DType::fp32);
    total = tape.empty(column, DType::fp32);
    reduce(total, exponentials, Reduction::Axis::inner);
  }
  reduce_over_ranks(tape, total);
  Tensor log_probabilities;
  {
    const Tensor logarithm = elementwise(tape, {&total}, DType::fp32);
    log_probabilities = elementwise(tape, {&shifted, &logarithm}, DType::fp32);
  }
  const LocalLabels ids = local_labels(tape, labels);
  Tensor picked = tape.empty(column, DType::fp32);
  gather(tape, Gather::Function::index, picked.elements(), {operand(ids.local), operand(picked)}, {operand(picked)});
  in_place(picked, {&picked, &ids.outside});
  reduce_over_ranks(tape, picked);
  Tensor losses = elementwise(tape, {&picked}, DType::fp32);
  losses = where_labelled(tape, labels, losses, {logits.size(0)});
  Tensor loss = tape.empty({}, DType::fp32);
  reduce(loss, losses, Reduction::Axis::all);
  op.save(log_probabilities);
  op.save(labels);
  return op.done(loss, vocabulary_backward);
}

}  // namespace

Tensor cross_entropy_loss(const TensorParallel& group, const Tensor& logits, const LossInputs& inputs) {
  Tensor sum;
  {
    const Tensor flat = view(logits, {-1, logits.size(-1)});
    const Tensor wide = to(flat, DType::fp32);
    const Tensor labels = view(inputs.labels, {-1});
    sum = group.on() ? vocabulary_cross_entropy(wide, labels) : cross_entropy(wide, labels);
  }
  return inputs.valid_tokens ? divide(sum, inputs.valid_tokens) : sum;
}

Tensor compiled_cross_entropy(const Tensor& logits, const LossInputs& inputs) {
  CompiledGraph op("compiled_loss", {&logits});
  Tape& tape = op.tape();
  const Dims column{logits.elements() / logits.size(-1), 1};
  const Tensor largest = tape.empty(column, DType::fp32), logarithm = tape.empty(column, DType::fp32);
  // Largest logits, then sums of exponentials: both passes over a row in one kernel.
  row_wise(tape, RowWise::Function::cross_entropy, column[0], logits.size(-1), {operand(logits), operand(logits)},
           {operand(largest), operand(logarithm)});
  Tensor loss = tape.empty({}, DType::fp32);
  reduce(loss, logarithm, Reduction::Axis::all);
  for (const Tensor* kept : {&logits, &inputs.labels, &largest, &logarithm}) op.save(*kept);
  const Tensor sum = op.done(loss, [](BackwardCall& b) {
    const Tensor saved = b.take_saved(0);
    Tensor gradient = b.tape.empty(saved.sizes(), saved.dtype());
    pointwise(Pointwise::Form::fused, {&saved, &b.saved(2), &b.saved(3)}, {&gradient});
    b.give(0, std::move(gradient));
  });
  return inputs.valid_tokens ? divide(sum, inputs.valid_tokens) : sum;
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
    const LossInputs chunk{labels[i], positions[i], inputs.valid_tokens};
    loss = decoder.run().compiled_loss ? compiled_cross_entropy(logits, chunk)
                                       : cross_entropy_loss(decoder.run().tensor_parallel, logits, chunk);
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
