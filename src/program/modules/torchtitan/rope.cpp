#include "program/modules/torchtitan/rope.hpp"

#include "program/modules/layers.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// Pairs of neighbouring elements as complex fp32 numbers.
Tensor paired(const Tensor& x) {
  const Tensor wide = to(x, DType::fp32);
  return view_as_complex(reshape(wide, {x.size(0), x.size(1), x.size(2), -1, 2}));
}

Tensor turned_pairs(const Tensor& x, const Tensor& rows) {
  const Tensor product = multiply_complex(x, rows);
  return reshape(view_as_real(product), {x.size(0), x.size(1), x.size(2), -1});
}

/// ComplexRoPE.apply_rotary_emb.
std::pair<Tensor, Tensor> turn_complex(const Tensor& query, const Tensor& key, const Tensor& rows) {
  const Tensor wide_query = paired(query), wide_key = paired(key);
  const Tensor turned_query = turned_pairs(wide_query, rows), turned_key = turned_pairs(wide_key, rows);
  Tensor low_query = to(turned_query, query.dtype());
  Tensor low_key = to(turned_key, key.dtype());
  return {std::move(low_query), std::move(low_key)};
}

/// CosSinRoPE.apply_rotary_emb: x · cos + rotate_half(x) · sin in fp32.
std::pair<Tensor, Tensor> turn_halves(const Tensor& query, const Tensor& key, const Tensor& rows) {
  const std::int64_t dim = query.size(-1);
  const Tensor cosine = slice(rows, -1, 0, dim), sine = slice(rows, -1, dim, 2 * dim);
  const Tensor wide_query = to(query, DType::fp32), wide_key = to(key, DType::fp32);
  const Tensor turned_query = rotate(wide_query, cosine, sine), turned_key = rotate(wide_key, cosine, sine);
  Tensor low_query = to(turned_query, query.dtype());
  Tensor low_key = to(turned_key, key.dtype());
  return {std::move(low_query), std::move(low_key)};
}

/// apply_rotary_emb of Qwen3 before 0.3: the same in the type of queries and keys.
std::pair<Tensor, Tensor> turn_low_halves(const Tensor& query, const Tensor& key, const Tensor& rows) {
  const std::int64_t dim = query.size(-1);
  const Tensor cosine = to(slice(rows, -1, 0, dim), query.dtype()), sine = to(slice(rows, -1, dim, 2 * dim), query.dtype());
  Tensor turned_query = rotate(query, cosine, sine);
  Tensor turned_key = rotate(key, cosine, sine);
  return {std::move(turned_query), std::move(turned_key)};
}

Dims table_sizes(const RopeShape& shape) { return {shape.length, shape.complex ? shape.dim / 2 : 2 * shape.dim}; }
DType table_type(const RopeShape& shape) { return shape.complex ? DType::complex64 : DType::fp32; }

/// _maybe_check_max_pos: torch.all(positions <= limit), asserted on the device.
void check_positions(Tape& tape, const Tensor& positions) {
  tape.operator_name = "check_positions";
  const Tensor below = elementwise(tape, {&positions}, DType::boolean);
  const Tensor all = tape.empty({}, DType::boolean);
  reduce(all, below, Reduction::Axis::all);
  pointwise(tape, Pointwise::Form::map, {operand(all)}, {});  // _assert_async
}

}  // namespace

Rope add_rope(Module& parent, const RopeShape& shape, Tape& tape) {
  Module& module = parent.child("rope", true);
  module.label = tape.intern(module.path);
  module.buffers.push_back({.name = kRopeTable, .sizes = table_sizes(shape), .type = table_type(shape), .tensor = {}});
  return {module, shape, tape};
}

void add_shared_table(Module& root, const RopeShape& shape) {
  root.buffers.push_back({.name = kRopeTable, .sizes = table_sizes(shape), .type = table_type(shape), .tensor = {}});
}

/// _reshape_for_broadcast: [1 or batch, length, 1, width].
Tensor Rope::rows(const Tensor& query, const Tensor& positions) const {
  const Tensor& table = module_->buffer(kRopeTable);
  const std::int64_t width = table.size(1), length = query.size(1);
  if (!shape_.positions) return view(slice(table, 0, 0, length), {1, length, 1, width});
  check_positions(*tape_, positions);
  const Tensor gathered = positions.size(0) == 1 ? table_rows(table, positions) : gather_rows(table, positions);
  return view(gathered, {positions.size(0), length, 1, width});
}

std::pair<Tensor, Tensor> Rope::operator()(const Tensor& query, const Tensor& key, const Tensor& positions) const {
  const LabelScope label(*tape_, module_->label);
  const Tensor table = rows(query, positions);
  if (shape_.complex) return turn_complex(query, key, table);
  return shape_.low ? turn_low_halves(query, key, table) : turn_halves(query, key, table);
}

Tensor Rope::turn(const Tensor& x, const Tensor& positions) const {
  const LabelScope label(*tape_, module_->label);
  const Tensor table = rows(x, positions);
  const Tensor wide = paired(x);
  const Tensor turned = turned_pairs(wide, table);
  return to(turned, x.dtype());
}

}  // namespace plimsoll::program
