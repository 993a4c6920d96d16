#include "program/modules/megatron/permutation.hpp"

#include <utility>
#include <vector>

#include "program/modules/megatron/expert_mlp.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// torch.nonzero of a mask: counted, and once the host has read the count, found; [marks, 2] (nonzero_out_cuda_impl).
Tensor places_of_marks(const Tensor& mask, std::int64_t marks) {
  Tape& tape = mask.tape();
  {
    const Tensor count = tape.empty({}, DType::int32, Category::workspace);
    reduce(count, mask, Reduction::Axis::all);
  }
  tape.read_back();
  const Tensor places = tape.empty({2, marks}, DType::int64);
  gather(Gather::Function::scan, mask.elements(), {&mask}, {&places});
  pointwise(places, {&places});  // write_indices: rows and columns of flat places
  return places;
}

/// x.masked_select(mask).
Tensor masked_select(const Tensor& x, const Tensor& mask, std::int64_t marks) {
  Op op("masked_select", {&x});
  op.save(mask);
  op.save(x);
  const Tensor places = places_of_marks(mask, marks);
  Tensor y = op.output({marks}, x.dtype());
  gather(Gather::Function::index, marks, {&places, &y}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {  // zeros.masked_scatter
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    const Tensor starts = b.tape.empty(before, DType::int64, Category::workspace);
    gather(Gather::Function::scan, starts.elements(), {&b.saved(0)}, {&starts});
    pointwise(gradient, {&gradient, &b.saved(0), &starts});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

TePermuted permute_by_map(const Tensor& rows, const Tensor& probabilities, const Tensor& map, std::int64_t marks) {
  Tape& tape = rows.tape();
  const Tensor by_expert = contiguous(transpose(map, 0, 1));
  TePermuted permuted;
  {
    const Tensor tokens = arange(tape, rows.size(0));
    permuted.places = masked_select(expand(unsqueeze(tokens, 0), by_expert.sizes()), by_expert, marks);
  }
  {
    const Tensor weights = contiguous(transpose(probabilities, 0, 1));
    permuted.probabilities = masked_select(weights, by_expert, marks);
  }
  permuted.tokens = index_select(rows, permuted.places);
  return permuted;
}

Tensor unpermute_by_order(const Tensor& rows, const Tensor& order, std::int64_t tokens) {
  Op op("scatter_add", {&rows});
  op.save(order);
  Tensor output = zeros(op.tape(), {tokens, rows.size(-1)}, rows.dtype());
  gather(op.tape(), Gather::Function::scatter, rows.elements(),
         {operand(order), operand(rows), packed(rows.elements(), rows.dtype())}, {packed(rows.elements(), rows.dtype())});
  return op.done(output, [sizes = rows.sizes()](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(b.tape, Gather::Function::index, gradient.elements(), {operand(b.saved(0)), packed(gradient.elements(), gradient.dtype())},
           {operand(gradient)});
    b.give(0, gradient);
  });
}

Tensor swap_chunks(const Tensor& rows, std::int64_t outer, std::int64_t inner) {
  const std::vector<Tensor> chunks = split(rows, even_split(rows.size(0), static_cast<std::size_t>(outer * inner)), 0);
  std::vector<Tensor> swapped;
  for (std::int64_t i = 0; i < inner; ++i)
    for (std::int64_t j = 0; j < outer; ++j) swapped.push_back(chunks[static_cast<std::size_t>(j * inner + i)]);
  return cat(swapped, 0);
}

Multihot indices_to_multihot(const Tensor& chosen, const Tensor& probabilities, std::int64_t rows, std::int64_t experts,
                             std::int64_t marks) {
  Op op("indices_to_multihot", {&probabilities});
  Tape& tape = op.tape();
  const Dims sizes{rows, experts}, listed{rows, chosen.size(-1)};
  const Tensor marked = zeros(tape, sizes, DType::int64);
  Multihot multihot;
  multihot.probabilities = op.output(sizes, DType::fp32);
  pointwise(multihot.probabilities, {});
  const Tensor mask = tape.empty(listed, DType::boolean);
  pointwise(tape, Pointwise::Form::map, {packed(mask.elements(), DType::int64)}, {operand(mask)});
  op.save(mask);
  const Tensor valid = tape.empty({marks}, DType::int64), values = tape.empty({marks}, DType::fp32);
  const auto take = [&](const Tensor& into) {  // listed[mask]
    const Tensor places = places_of_marks(mask, marks);
    gather(Gather::Function::index, marks, {&places, &into}, {&into});
  };
  take(valid);
  const Tensor origins = tape.empty({marks}, DType::int64);
  op.save(origins);
  {
    const Tensor lengths = tape.empty({rows}, DType::int64);
    reduce(lengths, mask, Reduction::Axis::inner);
    const Tensor ends = cumulative_sum(lengths, DType::int64);
    tape.read_back();  // repeat_interleave sizes its result
    gather(Gather::Function::scatter, marks, {&ends}, {&origins});
  }
  gather(Gather::Function::scatter, marks, {&origins, &valid}, {&valid});
  take(values);
  gather(Gather::Function::scatter, marks, {&origins, &values}, {&values});
  multihot.map = to(marked, DType::boolean);
  multihot.probabilities = op.done(multihot.probabilities, [like = probabilities.sizes(), marks](BackwardCall& b) {
    const Tensor values_gradient = b.tape.empty({marks}, DType::fp32);
    gather(Gather::Function::index, marks, {&b.saved(1), &values_gradient}, {&values_gradient});
    Tensor gradient = zeros(b.tape, like, DType::fp32);
    gather(Gather::Function::scatter, marks, {&values_gradient}, {&values_gradient});
    b.give(0, std::move(gradient));
  });
  return multihot;
}

}  // namespace plimsoll::program
