/// F.ctc_loss without cuDNN: aten/src/ATen/native/LossCTC.cpp and cuda/LossCTC.cu of PyTorch 2.15.
#include "program/ops/choosing.hpp"
#include "program/ops/losses.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program {

namespace {

/// to(kCPU, kLong): the host reads them.
void read_lengths(const Tensor& lengths) {
  Tape& tape = lengths.tape();
  tape.copy({.direction = Copy::Direction::device_to_host, .bytes = lengths.bytes()}, tape.stream);
  tape.read_back();
}

/// at::tensor(numbers of the host).cuda().
Tensor numbers_of_host(Tape& tape, std::int64_t count, DType type) {
  Tensor numbers = tape.empty({count}, type, Category::workspace);
  tape.copy({Copy::Direction::host_to_device, numbers.bytes()}, tape.stream);
  return numbers;
}

/// _ctc_loss: a loss for each sequence, and the logarithms of all prefixes' probabilities, which its backward reads.
Tensor losses_of_sequences(const Tensor& log_probabilities, const Tensor& targets, std::int64_t longest) {
  Op op("ctc_loss", {&log_probabilities});
  op.save(log_probabilities);
  op.save(targets);
  const std::int64_t batch = log_probabilities.size(1), places = 2 * longest + 1;
  Tape& tape = op.tape();
  const Tensor prefixes = tape.empty({batch, log_probabilities.size(0), places}, log_probabilities.dtype());
  Tensor losses = op.output({batch}, log_probabilities.dtype());
  {
    const Tensor inputs = numbers_of_host(tape, batch, DType::int64), lengths = numbers_of_host(tape, batch, DType::int64),
                 offsets = numbers_of_host(tape, batch, DType::int64);
    gather(Gather::Function::scan, prefixes.elements(), {&log_probabilities, &targets}, {&prefixes, &losses});
  }
  op.save_output(losses);
  op.save_output(prefixes);
  return op.done(losses, [](BackwardCall& b) {
    const Tensor log_probs = b.saved(0), labels = b.saved(1), of_each = b.saved(2), before = b.saved(3);
    const std::int64_t count = log_probs.size(1);
    const Tensor behind = empty_like(before);
    Tensor gradient = b.tape.empty(log_probs.sizes(), log_probs.dtype());
    in_place(gradient, {});
    const Tensor inputs = numbers_of_host(b.tape, count, DType::int64), lengths = numbers_of_host(b.tape, count, DType::int64),
                 offsets = numbers_of_host(b.tape, count, DType::int64);
    gather(Gather::Function::scan, behind.elements(), {&log_probs, &labels}, {&behind});
    gather(Gather::Function::scatter, before.elements(), {&before, &behind, &log_probs, &of_each, &b.grad()}, {&gradient});
    in_place(gradient, {&gradient});  // where sequences are padded
    b.give(0, std::move(gradient));
  });
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                std::int64_t longest, LossReduction reduction, bool zero_infinity) {
  read_lengths(input_lengths);
  read_lengths(target_lengths);
  Tensor losses = losses_of_sequences(log_probabilities, targets, longest);
  Tape& tape = losses.tape();
  if (zero_infinity) {
    const Tensor infinite = compare(losses, {}, DType::boolean), zero = zeros(tape, {}, losses.dtype());
    losses = where(infinite, zero, losses, losses.dtype());
  }
  if (reduction == LossReduction::mean) {
    const Tensor lengths = numbers_of_host(tape, losses.size(0), losses.dtype());
    losses = divide(losses, clamp_one_side(lengths));
  }
  return reduced_loss(losses, reduction);
}

}  // namespace plimsoll::program
