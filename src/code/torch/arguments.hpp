// What functions of torch read off their arguments.
#pragma once

#include "code/torch/torch.hpp"

namespace plimsoll::code {

inline Torch& torch_of(Interpreter& i) { return i.torch(); }
inline const program::Tensor& input_of(Interpreter& i, const Bound& a) { return i.torch().tensor_of(a[0], "input"); }
inline bool is_floating(DType type) { return type == DType::fp32 || type == DType::fp64 || type == DType::bf16 || type == DType::fp16; }
inline bool flag(Interpreter& i, const Bound& a, std::size_t at, bool otherwise = false) {
  return a.values[at].is_bound() && !a.values[at].is_none() ? i.truth(a.values[at]) : otherwise;
}
/// The dimension of an argument; `otherwise` where none was given.
inline int dimension_at(Interpreter& i, const Bound& a, std::size_t at, int rank, int otherwise) {
  return a.has(at) ? i.torch().dimension_of(a[at], rank) : otherwise;
}

}  // namespace plimsoll::code
