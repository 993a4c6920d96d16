#include "program/ops/liger.hpp"

#include <algorithm>
#include <cstring>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// x, or a copy of it in rows (ensure_contiguous), as the body of an autograd function sees it.
Tensor dense(const Tensor& x) {
  const GradMode no_grad(x.tape(), false);
  return contiguous(x.detach());
}

/// One Triton kernel over the rows of these tensors.
void triton(RowWise::Function function, std::initializer_list<const Tensor*> read, std::initializer_list<const Tensor*> written) {
  const Tensor& rows = **read.begin();
  row_wise(function, rows.elements() / rows.size(-1), rows.size(-1), read, written);
}

/// torch.sum of per-token losses.
Tensor sum_of(const Tensor& losses) { return reduce(losses, {true}, false, losses.dtype()); }

/// "If cross entropy is the last layer, grad_output is 1.0": torch.equal with a new scalar; then nothing is scaled.
void compare_with_one(BackwardCall& b) {
  const Tensor one = zeros(b.tape, {}, DType::fp32);
  const Tensor equal = elementwise(b.tape, {&b.grad(), &one}, DType::boolean);
  const Tensor all = reduce(equal, {}, false, DType::boolean, 1);
}

/// target != ignore_index, and how many those are.
Tensor counted_mask(const Tensor& target) {
  Tensor mask = elementwise(target.tape(), {&target}, DType::boolean);
  count(mask, {true});
  return mask;
}

/// The assertions that targets are classes: a product with the mask, its extreme value, a comparison.
void check_bound(const Tensor& target, const Tensor& mask) {
  Tensor extreme = elementwise(target.tape(), {&target, &mask}, DType::int64);
  extreme = reduce(extreme, {true}, false, DType::int64, 8);
  elementwise(target.tape(), {&extreme}, DType::boolean);
}

std::int64_t next_power_of_2(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/// fused_linear_cross_entropy_forward's loop.
class FusedLinear {
 public:
  FusedLinear(const Tensor& hidden, const Tensor& weight, const Tensor& grad_input, const Tensor& grad_weight)
      : tape_(hidden.tape()), hidden_(hidden), weight_(weight), grad_input_(grad_input), grad_weight_(grad_weight) {
    const std::int64_t rows = hidden.size(0), factor = ceil_div(weight.size(0), hidden.size(1));
    chunk_ = std::min(rows, next_power_of_2(ceil_div(rows, factor)));
    writes_into_ = hidden.dtype() == weight.dtype() && (!tape_.autocast.enabled || hidden.dtype() == tape_.autocast.type);
  }

  void run() {
    const std::int64_t rows = hidden_.size(0);
    Tensor storage;
    if (writes_into_) storage = tape_.empty({chunk_, classes()}, hidden_.dtype());
    for (std::int64_t first = 0; first < rows; first += chunk_)
      one_chunk(slice(hidden_, 0, first, std::min(first + chunk_, rows)), storage);
  }

 private:
  std::int64_t classes() const { return weight_.size(0); }
  std::int64_t width() const { return weight_.size(1); }

  void one_chunk(const Tensor& hidden, const Tensor& storage) {
    const std::int64_t rows = hidden.size(0);
    const Tensor logits = storage ? slice(storage, 0, 0, rows) : product_with_transposed(hidden);
    if (storage) gemm(tape_, matrix(hidden), matrix(weight_).t(), matrix(logits));
    triton(RowWise::Function::cross_entropy, {&logits, &logits}, {&logits});
    give_input(logits, rows);
    if (grad_weight_) add_to_weight(logits, hidden);
  }

  /// chunk @ weight.t(): under autocast the transposed view is cast anew in every chunk, since only leaves are cached.
  Tensor product_with_transposed(const Tensor& hidden) {
    const Tensor low_weight = autocast_low(transpose(weight_.detach(), 0, 1)), low = autocast_low(hidden);
    Tensor made = tape_.empty({hidden.size(0), classes()}, low.dtype());
    gemm(tape_, matrix(low), matrix(low_weight), matrix(made));
    return made;
  }

  void give_input(const Tensor& gradient, std::int64_t rows) {
    if (writes_into_) {
      Matrix out = matrix(gradient);
      out.columns = out.leading = width();
      gemm(tape_, matrix(gradient), matrix(weight_), out);
    } else {
      const Tensor low_weight = autocast_low(weight_);
      const Tensor made = tape_.empty({rows, width()}, gradient.dtype());
      gemm(tape_, matrix(gradient), matrix(low_weight), matrix(made));
      in_place(grad_input_, {&made});
    }
  }

  /// addmm into the accumulator; for fp32 logits a product of the weight's size, added.
  void add_to_weight(const Tensor& gradient, const Tensor& hidden) {
    const bool low = gradient.dtype() != DType::fp32;
    if (low && (grad_weight_.dtype() == DType::fp32 || grad_weight_.dtype() == gradient.dtype())) {
      const Tensor narrow = to(hidden, gradient.dtype());
      return gemm(tape_, matrix(gradient).t(), matrix(narrow), matrix(grad_weight_), {.accumulates = true});
    }
    const Tensor narrow = autocast_low(hidden);
    const Tensor made = tape_.empty({classes(), width()}, gradient.dtype());
    gemm(tape_, matrix(gradient).t(), matrix(narrow), matrix(made));
    const Tensor wide = to(made, DType::fp32);
    in_place(grad_weight_, {&grad_weight_, &wide});
  }

  Tape& tape_;
  const Tensor &hidden_, &weight_, &grad_input_, &grad_weight_;
  std::int64_t chunk_ = 0;
  bool writes_into_ = false;
};

}  // namespace

Tensor liger_rms_norm(const Tensor& x, const Tensor& weight, bool in_place) {
  PythonFunction op("LigerRMSNorm", {&x, &weight});
  const Tensor rows = dense(x);
  const std::int64_t width = x.size(-1);
  Tensor y = op.output(x.sizes(), x.dtype());
  const Tensor deviation = op.output({x.elements() / width}, DType::fp32);
  triton(RowWise::Function::rms_norm, {&rows, &weight}, {&y, &deviation});
  op.save(rows);
  op.save(weight);
  op.save(deviation);
  return op.done(y, [in_place, width](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    Tensor partial;
    if (b.needs(1)) partial = b.tape.empty({b.tape.device.units, width}, DType::fp32);
    const Tensor rows_gradient = in_place ? gradient : zeros(b.tape, gradient.sizes(), gradient.dtype());
    Tensor result = b.tape.view(rows_gradient, gradient.sizes(), gradient.strides());  // dX.view(*shape): its base is a reference
    triton(RowWise::Function::rms_norm_backward, {&gradient, &b.saved(0), &b.saved(1), &b.saved(2)}, {&result});
    if (partial) {
      const Tensor sum = reduce(partial, {true, false}, false, DType::fp32);
      b.give(1, to(sum, b.saved(1).dtype()));
    }
    b.give(0, std::move(result));
  });
}

std::pair<Tensor, Tensor> liger_rope(const Tensor& query, const Tensor& key, const Tensor& cosine, const Tensor& sine) {
  const auto turned = [](const Tensor& x) {
    const GradMode no_grad(x.tape(), false);
    const Tensor physical = contiguous(transpose(x.detach(), 1, 2));
    return transpose(physical, 1, 2);
  };
  PythonFunction op("LigerRope", {&query, &key});
  Tensor q = turned(query), k = turned(key);
  triton(RowWise::Function::rope, {&q, &k, &cosine, &sine}, {&q, &k});
  op.save(cosine.detach());
  op.save(sine.detach());
  op.finish({&q, &k}, [turned](BackwardCall& b) {
    Tensor dq = turned(b.grad(0)), dk = turned(b.grad(1));
    triton(RowWise::Function::rope, {&dq, &dk}, {&dq, &dk});
    b.give(0, std::move(dq));
    b.give(1, std::move(dk));
  });
  return {std::move(q), std::move(k)};
}

Tensor liger_gated(const char* activation, const Tensor& gate, const Tensor& up) {
  PythonFunction op(std::strcmp(activation, "silu") == 0 ? "LigerSiLUMul" : "LigerGELUMul", {&gate, &up});
  const Tensor a = dense(gate), c = dense(up);
  Tensor y = op.output(gate.sizes(), gate.dtype());
  pointwise(Pointwise::Form::fused, {&a, &c}, {&y});
  op.save(a);
  op.save(c);
  return op.done(y, [](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    pointwise(Pointwise::Form::fused, {&gradient, &b.saved(0), &b.saved(1)}, {&b.saved(0), &b.saved(1)});
    b.give(0, b.saved(0).detach());
    b.give(1, b.saved(1).detach());
  });
}

namespace {

/// compute_routing_metadata: where each expert's rows start, the permutations there and back, and the tiles of 32 rows.
struct MoeRouting {
  Tensor counts, starts, gathered, scattered, reversed, tile_rows, tile_experts;
};

MoeRouting moe_routing(const Tensor& choices, std::int64_t experts) {
  constexpr std::int64_t kTileRows = 32, kChoicesPerBlock = 1024;
  Tape& tape = choices.tape();
  const std::int64_t tokens = choices.size(0), k = choices.size(1), rows = tokens * k;
  std::int64_t padded = 1;
  while (padded < k) padded *= 2;
  const std::int64_t blocks = ceil_div(tokens, std::max<std::int64_t>(1, kChoicesPerBlock / padded));
  const auto integers = [&](std::int64_t n) { return tape.empty({n}, DType::int32); };
  MoeRouting routing;
  const Tensor of_blocks = tape.empty({experts, blocks}, DType::int32);
  pointwise(of_blocks, {&choices});
  routing.counts = reduce(of_blocks, {false, true}, false, DType::int32);
  routing.starts = integers(experts + 1);
  const Tensor tile_offsets = integers(experts + 1);
  pointwise(tile_offsets, {&routing.counts});
  tape.read_back();  // num_m_tiles
  const std::int64_t tiles = rows < experts ? rows : experts * ceil_div(rows / experts, kTileRows);
  routing.tile_rows = integers(tiles);
  routing.tile_experts = integers(tiles);
  routing.scattered = integers(rows);
  routing.reversed = integers(rows);
  routing.gathered = integers(rows);
  pointwise(Pointwise::Form::fused, {&choices}, {&routing.scattered, &routing.reversed, &routing.gathered});
  return routing;
}

/// [rows, columns] in rows, or one such matrix per expert.
Matrix row_major(std::int64_t rows, std::int64_t columns, DType type, std::int64_t batch = 1) {
  return {rows, columns, batch, columns, false, type};
}

}  // namespace

Tensor liger_fused_moe(const Tensor& x_in, const Tensor& gate_up, const Tensor& down, const Tensor& choices, const Tensor& weights_in) {
  PythonFunction op("LigerFusedMoE", {&x_in, &gate_up, &down, &weights_in});
  Tape& tape = op.tape();
  const GradMode no_grad(tape, false);
  const Tensor x = dense(x_in), weights = dense(weights_in);
  const std::int64_t tokens = x.size(0), width = x.size(1), experts = gate_up.size(0), inner = down.size(2), rows = choices.elements();
  const DType type = x.dtype();
  Tensor out, before;
  MoeRouting routing = moe_routing(choices, experts);
  {
    before = tape.empty({rows, 2 * inner}, type);
    const Tensor behind = tape.empty({rows, inner}, type);
    grouped_gemm(tape, row_major(rows, width, type), matrix(gate_up).t(), row_major(rows, 2 * inner, type), experts);
    const Tensor y = tape.empty({rows, width}, type);
    grouped_gemm(tape, row_major(rows, inner, type), matrix(down).t(), row_major(rows, width, type), experts);
    out = tape.empty({tokens, width}, type);
    pointwise(Pointwise::Form::fused, {&y}, {&out});
    routing.counts.reset();
  }
  op.save(x);
  op.save(gate_up);
  op.save(down);
  for (const Tensor& saved :
       {before, weights, routing.starts, routing.gathered, routing.scattered, routing.reversed, routing.tile_rows, routing.tile_experts})
    op.save(saved);
  return op.done(out, [=](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    const auto empty = [&](const Dims& sizes) { return b.tape.empty(sizes, type); };
    const Tensor of_before = empty({rows, 2 * inner}), act = empty({rows, inner});
    Tensor of_weights = zeros(b.tape, {rows}, type);
    grouped_gemm(b.tape, row_major(rows, width, type), row_major(width, inner, type, experts), row_major(rows, inner, type), experts);
    Tensor of_down = zeros(b.tape, {experts, width, inner}, b.saved(2).dtype());
    grouped_gemm(b.tape, row_major(rows, width, type).t(), row_major(rows, inner, type), matrix(of_down), experts);
    const Tensor of_rows = empty({rows, width});
    grouped_gemm(b.tape, row_major(rows, 2 * inner, type), row_major(2 * inner, width, type, experts), row_major(rows, width, type),
                 experts);
    Tensor of_x = zeros(b.tape, {tokens, width}, type);
    pointwise(Pointwise::Form::fused, {&of_rows}, {&of_x});
    Tensor of_gate_up = zeros(b.tape, {experts, 2 * inner, width}, b.saved(1).dtype());
    grouped_gemm(b.tape, row_major(rows, 2 * inner, type).t(), row_major(rows, width, type), matrix(of_gate_up), experts);
    b.give(0, std::move(of_x));
    if (b.needs(1)) b.give(1, std::move(of_gate_up));
    if (b.needs(2)) b.give(2, std::move(of_down));
    if (b.needs(3)) b.give(3, view(of_weights, {tokens, rows / tokens}));
  });
}

Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target) {
  PythonFunction op("LigerCrossEntropy", {&logits, &target});
  Tensor loss;
  {
    const Tensor losses = zeros(op.tape(), {logits.size(0)}, logits.dtype());
    const Tensor mask = counted_mask(target);
    for (int i = 0; i < 2; ++i) check_bound(target, mask);
    triton(RowWise::Function::cross_entropy, {&logits, &logits}, {&logits});
    loss = sum_of(losses);
  }
  op.save(logits.detach());
  return op.done(loss, [](BackwardCall& b) {
    compare_with_one(b);
    b.give(0, b.saved(0).detach());
  });
}

Tensor liger_fused_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& target) {
  PythonFunction op("LigerFusedLinearCrossEntropy", {&hidden, &weight, &target});
  const GradMode no_grad(op.tape(), false);
  const Tensor grad_input = zeros(op.tape(), hidden.sizes(), hidden.dtype());
  Tensor grad_weight;
  if (op.needs(0) && op.needs(1)) grad_weight = zeros(op.tape(), weight.sizes(), weight.dtype());
  Tensor loss;
  {
    const Tensor losses = zeros(op.tape(), {hidden.size(0)}, DType::fp32);
    const Tensor mask = counted_mask(target);
    FusedLinear(hidden, weight, grad_input, grad_weight).run();
    loss = sum_of(losses);
  }
  op.save(grad_input);
  op.save_if(grad_weight.defined(), grad_weight);
  return op.done(loss, [](BackwardCall& b) {
    compare_with_one(b);
    b.give(0, b.saved(0).detach());
    if (b.saved(1)) b.give(1, b.saved(1).detach());
  });
}

}  // namespace plimsoll::program
