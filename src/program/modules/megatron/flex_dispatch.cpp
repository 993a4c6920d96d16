#include "program/modules/megatron/flex_dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "program/modules/megatron/permutation.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// HybridEP's own kernels, between its buffers and the order of the experts. Nobody publishes their rate: that of Transformer Engine's.
void place_rows_in_order(Tape& tape, std::int64_t from, const Tensor& like, std::int64_t to) {
  const std::int64_t width = like.size(-1);
  gather(tape, Gather::Function::permute, std::max(from, to) * width, {packed(from * width, like.dtype())},
         {packed(to * width, like.dtype())});
}

}  // namespace

double parts_of_token(std::int64_t experts, std::int64_t top_k, std::int64_t parts) {
  const std::int64_t each = experts / parts;
  double none = 1;  // that all of its experts lie elsewhere
  for (std::int64_t i = 0; i < top_k; ++i) none *= static_cast<double>(experts - each - i) / static_cast<double>(experts - i);
  return static_cast<double>(parts) * (1 - std::max(none, 0.0));
}

double parts_of_token_in_turn(std::int64_t experts, std::int64_t top_k, std::int64_t parts) {
  const std::int64_t each = experts / parts, turns = experts / std::gcd(experts, top_k);
  std::int64_t held = 0;
  for (std::int64_t token = 0; token < turns; ++token) {
    const std::int64_t first = token * top_k % each;  // within its part
    held += std::min(ceil_div(first + top_k, each), parts);
  }
  return static_cast<double>(held) / static_cast<double>(turns);
}

double FlexDispatch::parts(std::int64_t among) const {
  return options_.in_turn ? parts_of_token_in_turn(options_.experts, options_.top_k, among)
                          : parts_of_token(options_.experts, options_.top_k, among);
}

/// Rows that come to this rank before they are copied for each of its experts.
std::int64_t FlexDispatch::arrived(std::int64_t tokens) const {
  const double copies = parts(options_.ranks);
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(tokens) * copies * options_.imbalance));
}

/// What a rank holds for all others: over NVLink a copy for each rank, over the network one for each domain (handing on is hidden by it).
/// `weighted`: beside each copy HybridEP sends the fp32 probabilities of all experts of the domain (hybrid_ep_backend.cuh,
/// NUM_OF_EXPERTS_PER_RANK * NUM_OF_RANKS_PER_NODE), forward in dispatch and back in its gradient.
void FlexDispatch::exchange(std::int64_t tokens, std::int64_t width, DType type, bool weighted) const {
  const std::int64_t domains = ceil_div(options_.ranks, options_.domain);
  const double copies = parts(domains > 1 ? domains : options_.ranks);
  const std::int64_t weights = weighted && options_.hybrid ? options_.experts / domains * size_of(DType::fp32) : 0;
  const auto bytes = static_cast<std::int64_t>(std::ceil(static_cast<double>(tokens * (width * size_of(type) + weights)) * copies));
  runtime_.exchange({.kind = CollectiveKind::all_to_all, .group = Group::expert, .bytes = bytes, .type = type});
}

TePermuted FlexDispatch::dispatch(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const {
  const Tensor wide = to(probabilities, DType::fp32);  // both take probabilities of 32 bits alone
  return options_.hybrid ? dispatch_hybrid(rows, wide, received) : dispatch_deep(rows, wide, received);
}

/// hybrid_ep_dispatch: who goes where is gathered first; rows land in buffers of HybridEP's own, and from there in the order of experts.
TePermuted FlexDispatch::dispatch_hybrid(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const {
  PythonFunction op("hybrid_ep_dispatch", {&rows, &probabilities});
  Tape& tape = op.tape();
  const std::int64_t tokens = rows.size(0), there = arrived(tokens);
  tape.collective({.kind = CollectiveKind::all_gather,
                   .group = Group::expert,
                   .bytes = tokens * options_.experts * options_.ranks,
                   .type = DType::boolean},
                  kComputeStream);
  tape.read_back();  // the number of rows sizes the result
  TePermuted dispatched;
  dispatched.places = tape.empty({there, options_.experts / options_.ranks}, DType::int32);
  // metadata_preprocessing: every rank reads where all ranks' tokens go.
  pointwise(tape, Pointwise::Form::map, {packed(tokens * options_.ranks * options_.experts, DType::boolean)},
            {packed(tokens * options_.ranks, DType::int32)});
  exchange(tokens, rows.size(1), rows.dtype(), true);
  dispatched.tokens = op.output({received, rows.size(1)}, rows.dtype());
  dispatched.probabilities = op.output({received}, DType::fp32);
  place_rows_in_order(tape, there, rows, received);
  op.save_output(dispatched.places);
  const auto backward = [self = *this, tokens, there, experts = options_.experts](BackwardCall& b) {
    place_rows_in_order(b.tape, b.grad(0).size(0), b.grad(0), there);
    self.exchange(tokens, b.grad(0).size(1), b.grad(0).dtype(), true);
    b.give(0, b.tape.empty({tokens, b.grad(0).size(1)}, b.grad(0).dtype()));
    if (b.grad(1)) b.give(1, b.tape.empty({tokens, experts}, DType::fp32));
    b.drop_gradients();
  };
  op.finish({&dispatched.tokens, &dispatched.probabilities}, backward);
  return dispatched;
}

/// One direction of fused_dispatch and fused_combine; its gradient goes the other.
Tensor FlexDispatch::exchanged(const char* name, const Tensor& x, std::int64_t rows, std::int64_t tokens) const {
  PythonFunction op(name, {&x});
  exchange(tokens, x.size(1), x.dtype());
  Tensor y = op.output({rows, x.size(1)}, x.dtype());
  return op.done(y, [self = *this, tokens, before = x.sizes()](BackwardCall& b) {
    self.exchange(tokens, before[1], b.grad().dtype());
    b.give(0, b.tape.empty(before, b.grad().dtype()));
    b.drop_gradients();
  });
}

/// _DeepepManager: the chosen probabilities travel with their tokens; rows are put in order behind the exchange.
TePermuted FlexDispatch::dispatch_deep(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const {
  Tape& tape = runtime_.tape();
  const std::int64_t tokens = rows.size(0), there = arrived(tokens);
  const TopK chosen = top_k(probabilities, options_.top_k);
  tape.read_back();  // the host waits for the numbers of rows that come
  const Tensor came = exchanged("deep_ep_dispatch", rows, there, tokens);
  const std::int64_t local = options_.experts / options_.ranks;
  if (!options_.permute_fusion) {
    const Multihot multihot = indices_to_multihot(chosen.indices, chosen.values, there, local, received);
    return permute_by_map(came, multihot.probabilities, multihot.map, received);
  }
  PythonFunction op("indices_to_multihot", {&chosen.values});
  Tensor own = op.output({there, local}, DType::fp32);
  pointwise(Pointwise::Form::fused, {&chosen.values, &chosen.indices}, {&own});
  own = op.done(own, [like = chosen.values.sizes()](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(like, DType::fp32);
    pointwise(Pointwise::Form::fused, {&b.grad()}, {&gradient});
    b.give(0, gradient);
    b.drop_gradients();
  });
  return te_permute(came, own, received);
}

Tensor FlexDispatch::combine(const Tensor& rows, const TePermuted& dispatched, std::int64_t tokens) const {
  if (!options_.hybrid) {
    const Tensor whole =
        options_.permute_fusion ? te_unpermute(rows, dispatched.places) : unpermute_by_order(rows, dispatched.places, arrived(tokens));
    return exchanged("deep_ep_combine", whole, tokens, tokens);
  }
  PythonFunction op("hybrid_ep_combine", {&rows});
  const std::int64_t there = arrived(tokens);
  place_rows_in_order(op.tape(), rows.size(0), rows, there);
  exchange(tokens, rows.size(1), rows.dtype());
  Tensor output = op.output({tokens, rows.size(1)}, rows.dtype());
  return op.done(output, [self = *this, there, tokens, before = rows.sizes()](BackwardCall& b) {
    self.exchange(tokens, before[1], b.grad().dtype());
    const Tensor gradient = b.tape.empty(before, b.grad().dtype());
    place_rows_in_order(b.tape, there, gradient, before[0]);
    b.give(0, gradient);
    b.drop_gradients();
  });
}

}  // namespace plimsoll::program
