#include "program/modules/megatron/adapters.hpp"

#include <utility>

#include "program/modules/megatron/mappings.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor adapted(MegatronRuntime& runtime, const Tensor& output, const Tensor& x, Module& adapter, const AdapterPlace& place) {
  const LabelScope label(runtime.tape(), adapter.label);
  const bool column = place.beside == TeParallel::column, row = place.beside == TeParallel::row;
  const bool communicates = place.sequence && !place.expert;
  Tensor inner = dropout(contiguous(x), place.dropout);
  if (column && communicates) inner = gather_sequence(runtime, inner);
  const MegatronLinear in{.gather_input = false, .reduce_gradient = !row && place.parallel && !place.sequence};
  Tensor narrow = megatron_linear(runtime, inner, adapter.child("linear_in").tensor("weight"), {}, in);
  inner = !place.parallel ? narrow : row ? reduce_over_tensor_parallel(runtime, narrow) : gather_columns(runtime, narrow);
  narrow.reset();
  const MegatronLinear out{.gather_input = false, .reduce_gradient = place.parallel};
  Tensor wide = megatron_linear(runtime, inner, adapter.child("linear_out").tensor("weight"), {}, out);
  inner = place.parallel && !column ? gather_columns(runtime, wide) : wide;
  wide.reset();
  if (row && communicates) inner = scatter_sequence(runtime, inner);
  Tensor scaled = multiply_scalar(inner);
  inner = std::move(scaled);
  return add(output, inner);
}

}  // namespace plimsoll::program
