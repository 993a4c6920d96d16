/// The kernels of a Mamba-2 mixer: mamba_ssm's mamba_split_conv1d_scan_combined, with its gated norm, over what the input projection gave.
/// Sources: mamba_ssm/ops/triton/{ssd_combined,ssd_chunk_state,ssd_state_passing,ssd_bmm,ssd_chunk_scan,layernorm_gated}.py of
/// state-spaces/mamba 2.2, causal_conv1d of Dao-AILab/causal-conv1d.
#pragma once

#include "plimsoll/model.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Parameters on this rank.
struct MambaParameters {
  Tensor convolution, convolution_bias;  ///< [channels, 1, places], [channels]
  Tensor step_bias, decay, skip;         ///< [heads] each: dt_bias, A_log, D
  Tensor norm;                           ///< [heads · head_dim]
};

/// projected [batch, length, spec.projected()] → [batch, length, heads · head_dim]; `spec` counts this rank's heads and groups.
Tensor mamba_split_scan(const Tensor& projected, const MambaSpec& spec, const MambaParameters& parameters);

}  // namespace plimsoll::program
