#include "program/modules/transformers/rotary_complex.hpp"

#include "program/ops/ops.hpp"

namespace plimsoll::program {

RotaryTables polar_tables(Module& rotary, Tape& tape, const Tensor& position_ids) {
  const GradMode no_grad(tape, false);
  Tensor positions = position_ids;
  ModuleCall call(rotary, tape, {&positions});
  Tensor frequencies;
  {
    const Tensor inverse = to(rotary.buffer("inv_freq"), DType::fp32);  // FSDP1 keeps buffers in its compute type
    const Tensor wide = to(unsqueeze(positions, -1), DType::fp32);
    frequencies = multiply(wide, inverse);
  }
  Tensor table;
  {
    const Tensor ones = filled(tape, frequencies.sizes(), DType::fp32);
    table = elementwise(tape, {&ones, &frequencies}, DType::complex64);
  }
  return {multiply_scalar(table), {}};
}

namespace {

Tensor complex_pairs(const Tensor& x) {
  const Tensor wide = to(x, DType::fp32);
  Dims pairs = x.sizes();
  pairs[-1] /= 2;
  pairs.push_back(2);
  return view_as_complex(reshape(wide, pairs));
}

Tensor turned(const Tensor& numbers, const Tensor& table, const Dims& sizes) {
  return reshape(view_as_real(multiply_complex(numbers, table)), sizes);
}

}  // namespace

void rotate_complex(Tensor& query, Tensor& key, const RotaryTables& tables) {
  const Tensor complex_query = complex_pairs(query), complex_key = complex_pairs(key), table = unsqueeze(tables.cosine, 1);
  const Tensor turned_query = to(turned(complex_query, table, query.sizes()), query.dtype());
  key = to(turned(complex_key, table, key.sizes()), key.dtype());
  query = turned_query;
}

void rotate_complex_both(Tensor& query, Tensor& key, const RotaryTables& tables) {
  const Tensor complex_query = complex_pairs(query), complex_key = complex_pairs(key), table = unsqueeze(tables.cosine, 2);
  const Tensor turned_query = turned(complex_query, table, query.sizes()), turned_key = turned(complex_key, table, key.sizes());
  const Tensor low_query = to(turned_query, query.dtype());
  key = to(turned_key, key.dtype());
  query = low_query;
}

}  // namespace plimsoll::program
