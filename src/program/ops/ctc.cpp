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

/// Whether many classes or sequences make a kernel of its own for what is no blank worth it.
bool is_large(const Tensor& log_probabilities) {
  constexpr std::int64_t kLarge = 450;
  return 2 * log_probabilities.size(0) + 24 * log_probabilities.size(1) / 10 + 2 * log_probabilities.size(2) / 10 > kLarge;
}

/// What the blanks' probabilities take off their gradient: every second place of a sequence is one.
void subtract_blanks(const Tensor& gradient, const Tensor& before, const Tensor& behind, const Tensor& losses,
                     const Tensor& log_probabilities, std::int64_t longest) {
  Tape& tape = gradient.tape();
  Dims sizes = before.sizes(), strides = before.strides();
  sizes[2] = longest + 1;
  strides[2] = 2;
  const Tensor blanks_before = tape.view(before, sizes, strides), blanks_behind = tape.view(behind, sizes, strides);
  const Tensor both = elementwise(tape, {&blanks_before, &blanks_behind}, before.dtype());
  const Tensor sums = permute(log_sum_exp(both, {2}, true), {1, 0, 2});
  const auto blank_of = [&](const Tensor& x) { return tape.view(x, {x.size(0), x.size(1), 1}, x.strides()); };
  const Tensor of_sequence = tape.view(losses, {1, losses.size(0), 1}, {0, 1, 0}), own = blank_of(log_probabilities);
  in_place(sums, {&sums, &of_sequence});
  in_place(sums, {&sums, &own});
  in_place(sums, {&sums});
  const Tensor place = blank_of(gradient);
  in_place(place, {&place, &sums});
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
  return op.done(losses, [longest](BackwardCall& b) {  // ctc_loss_backward_gpu_template
    const Tensor log_probs = b.saved(0), labels = b.saved(1), of_each = b.saved(2), before = b.saved(3);
    const std::int64_t count = log_probs.size(1);
    const GradMode frozen(b.tape, false);
    const Tensor inputs = numbers_of_host(b.tape, count, DType::int64), lengths = numbers_of_host(b.tape, count, DType::int64),
                 offsets = numbers_of_host(b.tape, count, DType::int64);
    const Tensor behind = empty_like(before);
    in_place(behind, {});
    Tensor gradient = b.tape.empty(log_probs.sizes(), log_probs.dtype());
    in_place(gradient, {});
    gather(Gather::Function::scan, behind.elements(), {&log_probs, &labels}, {&behind});
    if (is_large(log_probs)) {
      in_place(gradient, {&log_probs});
      subtract_blanks(gradient, before, behind, of_each, log_probs, longest);
      const Tensor scale = b.tape.view(b.grad(), {1, count, 1}, {0, 1, 0});
      in_place(gradient, {&gradient, &scale});
    }
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
  read_lengths(target_lengths);  // whether it is cuDNN's is asked of them, too
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
