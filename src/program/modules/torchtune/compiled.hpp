/// A layer of torchtune under torch.compile: attention breaks it into graphs of their own.
#pragma once

#include "program/modules/torchtune/layers.hpp"

namespace plimsoll::program {

/// RMSNorm in front of attention.
Tensor compiled_tune_norm(const TuneNorm& norm, const Tensor& x);

/// Queries, keys and values of a normed input, rotated and copied to one head per query: [batch, heads, length, dim] each.
struct TuneHeads {
  Tensor query, key, value;
};
struct TuneProjections {
  const TuneLinear &query, &key, &value;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool keeps_rotary_rows = false;  ///< of packed samples: [batch, length, head_dim] in fp32
};
TuneHeads compiled_tune_projections(const TuneProjections& projections, const Tensor& normed);

/// The output projection of attention's result [batch, length, width].
Tensor compiled_tune_output(const TuneLinear& output, const Tensor& attended);

/// Residual, norm, MLP, residual: the layer's output.
struct TuneMlp {
  const TuneNorm& norm;
  const TuneLinear &gate, &down, &up;
};
Tensor compiled_tune_mlp(const TuneMlp& mlp, const Tensor& attended, const Tensor& x);

}  // namespace plimsoll::program
