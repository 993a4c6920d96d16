#include "program/modules/torchtune/compiled.hpp"

#include <utility>
#include <vector>

#include "program/inductor/kernels.hpp"
#include "program/modules/adapters/nf4.hpp"
#include "program/op.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// One linear within a graph: where its trained tensors stand among the graph's inputs, and what its forward keeps.
struct Piece {
  const TuneLinear* linear = nullptr;
  int weight = -1, bias = -1, down = -1, up = -1;
  Tensor reduced;        ///< lora_a(x), kept for lora_b's gradient
  Tensor dequantized;    ///< an NF4 weight that the graph keeps for its backward
  std::size_t kept = 0;  ///< where these two stand among what the graph keeps

  /// The graph keeps them, behind `before` tensors that it keeps already.
  void keep(Op& op, std::size_t before) {
    kept = before;
    op.save_output(reduced);
    op.save_output(dequantized);
    reduced.reset();
    dequantized.reset();
  }
  /// The piece as the backward graph gets it.
  Piece taken(BackwardCall& b) const {
    Piece piece = *this;
    piece.reduced = b.take_saved(kept);
    piece.dequantized = b.take_saved(kept + 1);
    return piece;
  }
};
constexpr std::size_t kKeptByPiece = 2;

/// A graph's inputs besides its activations: the trained weights of its linears and norms.
class Inputs {
 public:
  explicit Inputs(std::initializer_list<const Tensor*> activations) {
    for (const Tensor* tensor : activations) list_.push_back(tensor);
  }
  int add(const Tensor& tensor) {
    if (!tensor || !tensor.requires_grad()) return -1;
    list_.push_back(&tensor);
    return static_cast<int>(list_.size()) - 1;
  }
  Piece add(const TuneLinear& linear) {
    Module& module = linear.module();
    Piece piece;
    piece.linear = &linear;
    piece.weight = add(module.tensor("weight"));
    piece.bias = add(module.tensor("bias"));
    if (!linear.adapted()) return piece;
    piece.down = add(module.child("lora_a").tensor("weight"));
    piece.up = add(module.child("lora_b").tensor("weight"));
    return piece;
  }
  const List<const Tensor*>& list() const { return list_; }

 private:
  List<const Tensor*> list_;
};

std::int64_t rows_of(const Tensor& x) { return x.elements() / x.size(-1); }
std::int64_t rank_of(const Piece& piece) { return piece.linear->module().child("lora_a").tensor("weight").size(0); }

/// A product in `dead`'s buffer where it has that many elements, else in a new one.
Tensor product_over(Tensor& dead, Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner) {
  if (!dead || dead.elements() != rows * columns || dead.dtype() != type) return inductor::product(tape, type, rows, columns, inner);
  Tensor y = tape.view(dead, {rows, columns}, {columns, 1});
  dead.reset();
  inductor::product_into(y, rows, columns, inner);
  return y;
}

/// The weight of an NF4 linear as one kernel makes it: [out, in].
Tensor dequantized_in_graph(const TuneLinear& linear, Tape& tape, DType type) {
  const Tensor weight = tape.empty({linear.shape().out, linear.shape().in}, type);
  inductor::fused(tape, {&weight}, {&weight});
  return weight;
}

/// linear(x): the base product, and lora_b(lora_a(x)) in `update`, which the caller adds in its next kernel.
Tensor forward_of(Piece& piece, const Tensor& x, Tensor& update, bool keeps_weight = false) {
  Tape& tape = x.tape();
  const TuneLinear::Shape& shape = piece.linear->shape();
  const std::int64_t rows = rows_of(x);
  Tensor dead, result;
  if (piece.linear->quantized()) dead = dequantized_in_graph(*piece.linear, tape, x.dtype());
  result = inductor::product(tape, x.dtype(), rows, shape.out, shape.in);
  if (keeps_weight) piece.dequantized = std::move(dead);
  update.reset();
  if (!piece.linear->adapted()) return result;
  piece.reduced = inductor::product(tape, x.dtype(), rows, rank_of(piece), shape.in);
  update = product_over(dead, tape, x.dtype(), rows, shape.out, rank_of(piece));
  return result;
}

/// The gradient of the linear's input from `gradient`, and those of its weights. `scaled`: the gradient times the adapter's factor.
Tensor backward_of(BackwardCall& b, Piece& piece, const Tensor& x, Tensor& gradient, Tensor& scaled) {
  Tape& tape = b.tape;
  const DType type = gradient.dtype();
  const TuneLinear::Shape& shape = piece.linear->shape();
  const std::int64_t rows = rows_of(gradient);
  if (piece.weight >= 0) b.give(static_cast<std::size_t>(piece.weight), inductor::product(tape, type, shape.out, shape.in, rows));
  if (piece.bias >= 0) b.give(static_cast<std::size_t>(piece.bias), tape.empty({shape.out}, type));
  Tensor through_adapter;
  if (piece.linear->adapted()) {
    const std::int64_t rank = rank_of(piece);
    b.give(static_cast<std::size_t>(piece.up), inductor::product(tape, type, shape.out, rank, rows));
    piece.reduced.reset();
    const Tensor reduced = inductor::product(tape, type, rows, rank, shape.out);
    scaled.reset();
    b.give(static_cast<std::size_t>(piece.down), inductor::product(tape, type, rank, shape.in, rows));
    through_adapter = inductor::product(tape, type, rows, shape.in, rank);
  }
  Tensor weight = std::move(piece.dequantized);
  if (piece.linear->quantized() && !weight) weight = dequantized_in_graph(*piece.linear, tape, type);
  Tensor result = inductor::product(tape, type, rows, x.size(-1), shape.out);
  gradient.reset();
  weight.reset();
  if (through_adapter) inductor::fused(tape, {&result, &through_adapter}, {&result});
  return result;
}

Tensor per_row(const Tensor& x) {
  Dims sizes = x.sizes();
  sizes[-1] = 1;
  return x.tape().empty(sizes, DType::fp32);
}

/// A norm's weight: partial sums over the rows, then their sum.
void norm_weight(BackwardCall& b, int input, const Tensor& x) {
  if (input < 0) return;
  const Tensor partial = inductor::partial_sums(b.tape, rows_of(x), x.size(-1));
  b.give(static_cast<std::size_t>(input), inductor::finish_sum(partial, x.size(-1), x.dtype()));
}

Tensor like(const Tensor& x) { return x.tape().empty(x.sizes(), x.dtype()); }

Tensor scaled_copy(const Piece& piece, const Tensor& gradient) {
  if (!piece.linear->adapted()) return {};
  Tensor scaled = like(gradient);
  inductor::fused(gradient.tape(), {&gradient}, {&scaled});
  return scaled;
}

}  // namespace

Tensor compiled_tune_norm(const TuneNorm& norm, const Tensor& x) {
  Inputs inputs({&x});
  const int weight = inputs.add(norm.weight());
  CompiledGraph op("compiled_norm", inputs.list());
  Tensor scale = per_row(x);
  Tensor normed = like(x);
  inductor::fused(op.tape(), {&x}, {&normed, &scale});
  op.save(x);
  op.save_output(scale);
  return op.done(normed, [weight](BackwardCall& b) {
    Tensor input = b.take_saved(0), scale_kept = b.take_saved(1);
    norm_weight(b, weight, input);
    Tensor gradient = like(input);
    inductor::fused(b.tape, {&b.grad(), &input}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

namespace {

/// What the projections' graph keeps.
struct ProjectionPieces {
  Piece query, key, value;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

/// [batch, heads, length, dim], in memory [batch, length, heads, dim].
Tensor heads_inside(const Tensor& x, std::int64_t heads, std::int64_t dim) {
  Tensor y = x.tape().empty({x.size(0), heads, x.size(1), dim}, x.dtype());
  y.impl()->strides = {x.size(1) * heads * dim, dim, heads * dim, 1};
  return y;
}

/// Gradients of rotated keys, summed over the queries that share them: their halves in fp32 until they are turned back.
Tensor rotate_back(const Tensor& gradient, std::int64_t batch, std::int64_t length, std::int64_t width, bool halves) {
  Tape& tape = gradient.tape();
  std::vector<Tensor> parts;
  for (int i = 0; halves && i < 4; ++i) parts.push_back(tape.empty({batch, length, width / 2}, DType::fp32, Category::workspace));
  Tensor turned = tape.empty({batch, length, width}, gradient.dtype());
  inductor::fused(tape, {&gradient}, {&turned});
  return turned;
}

void projections_backward(BackwardCall& b, const ProjectionPieces& p) {
  Tape& tape = b.tape;
  const Tensor normed = b.take_saved(0);
  Piece query_piece = p.query.taken(b), key_piece = p.key.taken(b), value_piece = p.value.taken(b);
  const std::int64_t batch = normed.size(0), length = normed.size(1), kv = p.kv_heads * p.head_dim, q = p.heads * p.head_dim;
  const bool grouped = p.heads != p.kv_heads;
  Tensor key = rotate_back(b.take_grad(1), batch, length, kv, grouped);
  Tensor value = tape.empty({batch, length, kv}, normed.dtype());
  {
    const Tensor expanded = b.take_grad(2);
    inductor::fused(tape, {&expanded}, {&value});
  }
  Tensor scaled = scaled_copy(p.value, value);
  Tensor from_value = backward_of(b, value_piece, normed, value, scaled);
  scaled = scaled_copy(p.key, key);
  const Tensor from_key = backward_of(b, key_piece, normed, key, scaled);
  Tensor query;
  {
    const Tensor incoming = b.take_grad(0);
    query = rotate_back(incoming, batch, length, q, false);
  }
  scaled = scaled_copy(p.query, query);
  const Tensor from_query = backward_of(b, query_piece, normed, query, scaled);
  inductor::fused(tape, {&from_value, &from_key, &from_query}, {&from_value});
  Tensor result = tape.view(from_value, normed.sizes(), normed.strides());
  b.give(0, std::move(result));
}

}  // namespace

TuneHeads compiled_tune_projections(const TuneProjections& projections, const Tensor& normed) {
  Inputs inputs({&normed});
  ProjectionPieces pieces{inputs.add(projections.query), inputs.add(projections.key), inputs.add(projections.value), projections.heads,
                          projections.kv_heads,          projections.head_dim};
  CompiledGraph op("compiled_projections", inputs.list());
  Tape& tape = op.tape();
  TuneHeads heads;
  {
    Tensor update, key_update, value_update;
    const Tensor query = forward_of(pieces.query, normed, update);
    heads.query = heads_inside(normed, projections.heads, projections.head_dim);
    inductor::fused(tape, {&query, &update}, {&heads.query});
    update.reset();
    const Tensor key = forward_of(pieces.key, normed, key_update), value = forward_of(pieces.value, normed, value_update);
    if (projections.heads == projections.kv_heads) {
      heads.key = heads_inside(normed, projections.heads, projections.head_dim);
      heads.value = heads_inside(normed, projections.heads, projections.head_dim);
    } else {
      heads.key = tape.empty(heads.query.sizes(), normed.dtype());
      heads.value = tape.empty(heads.query.sizes(), normed.dtype());
    }
    inductor::fused(tape, {&key, &key_update}, {&heads.key});
    inductor::fused(tape, {&value, &value_update}, {&heads.value});
  }
  op.save(normed);
  std::size_t kept = 1;
  for (Piece* piece : {&pieces.query, &pieces.key, &pieces.value}) {
    piece->keep(op, kept);
    kept += kKeptByPiece;
  }
  if (projections.keeps_rotary_rows) op.save_output(tape.empty({normed.size(0), normed.size(1), projections.head_dim}, DType::fp32));
  op.finish({&heads.query, &heads.key, &heads.value}, [pieces](BackwardCall& b) { projections_backward(b, pieces); });
  return heads;
}

Tensor compiled_tune_output(const TuneLinear& output, const Tensor& attended) {
  Inputs inputs({&attended});
  Piece piece = inputs.add(output);
  CompiledGraph op("compiled_output", inputs.list());
  Tensor result;
  {
    Tensor update;
    result = forward_of(piece, attended, update);
    if (update) inductor::fused(op.tape(), {&result, &update}, {&result});
  }
  Dims sizes = attended.sizes();
  sizes[-1] = output.shape().out;
  result = op.tape().view(result, sizes, contiguous_strides(sizes));
  op.save(attended);
  piece.keep(op, 1);
  return op.done(result, [piece](BackwardCall& b) {
    const Tensor input = b.take_saved(0);
    Piece own = piece.taken(b);
    Tensor gradient = b.take_grad();
    Tensor scaled = scaled_copy(own, gradient);
    const Tensor flat = backward_of(b, own, input, gradient, scaled);
    b.give(0, b.tape.view(flat, input.sizes(), input.strides()));
  });
}

namespace {

struct MlpPieces {
  Piece gate, down, up;
  int norm = -1;
};
enum MlpSaved : std::size_t { kSavedStream, kSavedScale, kSavedNormed, kSavedGate, kSavedUp, kSavedActivated, kMlpSaved };

void mlp_backward(BackwardCall& b, const MlpPieces& p) {
  Tape& tape = b.tape;
  Piece gate_piece = p.gate.taken(b), down_piece = p.down.taken(b), up_piece = p.up.taken(b);
  Tensor incoming = b.take_grad();
  Tensor stream = b.take_saved(kSavedStream), scale = b.take_saved(kSavedScale), normed = b.take_saved(kSavedNormed);
  Tensor gate = b.take_saved(kSavedGate), up = b.take_saved(kSavedUp), activated = b.take_saved(kSavedActivated);
  const DType type = incoming.dtype();
  Tensor residual = incoming;
  Tensor scaled = scaled_copy(p.down, incoming);
  Tensor from_down = backward_of(b, down_piece, activated, incoming, scaled);
  activated.reset();
  // The activation's inputs become its gradients where their buffers are free; an adapter takes a scaled copy of each.
  const bool adapted = p.gate.linear->adapted() || p.up.linear->adapted();
  Tensor gate_gradient = tape.empty(gate.sizes(), type), up_gradient = adapted ? tape.empty(up.sizes(), type) : up;
  Tensor scaled_up = p.up.linear->adapted() ? tape.empty(up.sizes(), type) : Tensor();
  Tensor scaled_gate = p.gate.linear->adapted() ? tape.empty(up.sizes(), type) : Tensor();
  inductor::fused(tape, {&from_down, &gate, &up}, {&gate_gradient, &up_gradient});
  gate.reset();
  up.reset();
  from_down.reset();
  const Tensor from_up = backward_of(b, up_piece, normed, up_gradient, scaled_up);
  Tensor from_gate = backward_of(b, gate_piece, normed, gate_gradient, scaled_gate);
  normed.reset();
  norm_weight(b, p.norm, stream);
  Tensor result = tape.view(from_up, residual.sizes(), residual.strides());
  inductor::fused(tape, {&from_up, &from_gate, &stream, &residual}, {&result});
  b.give(0, result);
  b.give(1, std::move(result));
}

}  // namespace

Tensor compiled_tune_mlp(const TuneMlp& mlp, const Tensor& attended, const Tensor& x) {
  Inputs inputs({&attended, &x});
  const int norm = inputs.add(mlp.norm.weight());
  MlpPieces pieces{inputs.add(mlp.gate), inputs.add(mlp.down), inputs.add(mlp.up), norm};
  CompiledGraph op("compiled_mlp", inputs.list());
  Tape& tape = op.tape();
  Tensor stream = like(x), scale = per_row(x), normed = like(x);
  inductor::fused(tape, {&attended, &x}, {&stream, &scale, &normed});
  Tensor gate, up, activated;
  {
    Tensor gate_update, up_update;
    gate = forward_of(pieces.gate, normed, gate_update, op.differentiable());
    up = forward_of(pieces.up, normed, up_update, op.differentiable());
    activated = like(gate);
    inductor::fused(tape, {&gate, &gate_update, &up, &up_update}, {&activated});
  }
  Tensor result;
  {
    Tensor update;
    result = forward_of(pieces.down, activated, update);
    inductor::fused(tape, {&result, &update, &stream}, {&result});
  }
  result = tape.view(result, x.sizes(), x.strides());
  for (const Tensor* kept : {&stream, &scale, &normed, &gate, &up, &activated}) op.save_output(*kept);
  std::size_t kept = kMlpSaved;
  for (Piece* piece : {&pieces.gate, &pieces.down, &pieces.up}) {
    piece->keep(op, kept);
    kept += kKeptByPiece;
  }
  return op.done(result, [pieces](BackwardCall& b) { mlp_backward(b, pieces); });
}

}  // namespace plimsoll::program
