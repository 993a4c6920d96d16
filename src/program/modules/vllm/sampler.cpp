#include "program/kernels.hpp"
#include "program/modules/vllm/layers.hpp"

namespace plimsoll::program::vllm {
namespace {

/// Rows from which PyTorch sorts each as a segment of its own; fewer are sorted as one list, each value with its row (Sort.cu).
constexpr std::int64_t kSegments = 128;

/// What sorting so many fp32 values in rows takes beside its results: the indices before they are sorted and CUB's second copies of values
/// and indices, or pairs of row and index twice, the sorted values and CUB's copies.
std::int64_t sort_scratch(std::int64_t rows, std::int64_t elements) { return elements * (rows < kSegments ? 8 + 8 + 4 + 12 : 8 + 12); }

/// The rank's part of the vocabulary, gathered: on one rank piece by piece, on all of them through a tensor whose pieces are put side by
/// side.
Tensor gathered(const ServedRank& rank, Tape& tape, Tensor part) {
  if (rank.tp == 1) return part;
  if (!rank.gathers_everywhere && !rank.samples) return {};
  const Dims whole{part.size(0), part.size(1) * rank.tp};
  const Tensor pieces = tape.empty({part.size(0) * rank.tp, part.size(1)}, rank.type);
  tape.collective({CollectiveKind::all_gather, Group::tensor, pieces.bytes(), rank.type}, tape.stream);
  Tensor logits = tape.empty(whole, rank.type);
  pointwise(logits, {&pieces});
  return logits;
}

/// Probabilities over exponential noise, of which the largest is drawn (random_sample).
void draw(Tape& tape, const Tensor& logits) {
  const Tensor probabilities = tape.empty(logits.sizes(), DType::fp32), noise = tape.empty(logits.sizes(), DType::fp32);
  row_wise(RowWise::Function::softmax, logits.size(0), logits.size(1), {&logits}, {&probabilities});
  pointwise(probabilities, {&probabilities, &noise});
}

/// Top-k and top-p by PyTorch's operators (v1/sample/ops/topk_topp_sampler.py, forward_native).
void sample_sorted(const ServedRank& rank, Tape& tape, const Tensor& logits) {
  Tensor limited;
  {
    const Tensor sorted = tape.empty(logits.sizes(), DType::fp32), order = tape.empty(logits.sizes(), DType::int64);
    tape.scratch(sort_scratch(rank.sequences, logits.elements()));
    gather(Gather::Function::sort, logits.elements(), {&logits}, {&sorted, &order});
    {
      const Tensor mask = tape.empty(logits.sizes(), DType::boolean);
      pointwise(mask, {&sorted});
    }
    const Tensor probabilities = tape.empty(logits.sizes(), DType::fp32);
    row_wise(RowWise::Function::softmax, logits.size(0), logits.size(1), {&sorted}, {&probabilities});
    {
      const Tensor mask = tape.empty(logits.sizes(), DType::boolean);
      pointwise(mask, {&probabilities});
    }
    limited = tape.empty(logits.sizes(), DType::fp32);
    gather(Gather::Function::scatter, limited.elements(), {&sorted, &order}, {&limited});
  }
  draw(tape, limited);
}

/// A Triton kernel's masks, then as above (apply_top_k_top_p_triton; fewer than eight rows are sorted).
void sample_masked(const ServedRank& rank, Tape& tape, const Tensor& logits) {
  constexpr std::int64_t kFewest = 8;
  if (rank.sequences < kFewest) return sample_sorted(rank, tape, logits);
  const Tensor rows = tape.empty({rank.device.units, logits.size(1)}, DType::fp32);
  pointwise(logits, {&logits});
  draw(tape, logits);
}

/// FlashInfer's: logits below the k-th masked in a tensor of their own, then probabilities.
void sample_with_flashinfer(Tape& tape, const Tensor& logits) {
  const Tensor masked = tape.empty(logits.sizes(), DType::fp32), probabilities = tape.empty(logits.sizes(), DType::fp32);
  row_wise(RowWise::Function::softmax, logits.size(0), logits.size(1), {&logits}, {&masked});
  row_wise(RowWise::Function::softmax, logits.size(0), logits.size(1), {&masked}, {&probabilities});
}

}  // namespace

void sample(const ServedRank& rank, Tape& tape, Layers& layers, const Tensor& hidden) {
  const LabelScope label(tape, tape.intern("sampler"));
  const std::int64_t vocabulary = round_up(rank.model.vocab_size, 64);
  if (rank.sampling == Sampling::none) return void(gathered(rank, tape, layers.column(hidden, vocabulary)));
  const Tensor last = tape.empty({rank.sequences, hidden.size(1)}, rank.type);
  pointwise(last, {&last});
  Tensor random;  // in the place of the hidden states, which may hold infinities
  if (rank.draws_hidden_states) random = tape.empty(last.sizes(), rank.type);
  const Tensor logits = gathered(rank, tape, layers.column(last, vocabulary));
  if (!logits || !rank.samples) return;
  if (rank.sampling == Sampling::direct) return row_wise(RowWise::Function::softmax, logits.size(0), logits.size(1), {&logits}, {&last});
  const Tensor wide = tape.empty({rank.sequences, rank.model.vocab_size}, DType::fp32);
  pointwise(wide, {&logits});
  if (rank.sampling == Sampling::flashinfer) return sample_with_flashinfer(tape, wide);
  if (rank.sampling == Sampling::masked) return sample_masked(rank, tape, wide);
  sample_sorted(rank, tape, wide);
}

}  // namespace plimsoll::program::vllm
