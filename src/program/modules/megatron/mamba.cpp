#include "program/modules/megatron/mamba.hpp"

#include <vector>

#include "plimsoll/units.hpp"
#include "program/kernels.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kChunk = 128;  // chunk_size of Megatron's MambaMixer

/// A sequence in chunks, between which a state is handed on: head_dim × states per head.
class ChunkScan {
 public:
  ChunkScan(Tape& tape, const MambaSpec& spec, DType type, std::int64_t batch, std::int64_t length)
      : tape_(tape), spec_(spec), type_(type), batch_(batch), length_(length), chunks_(ceil_div(length, kChunk)) {}

  /// What the state-space kernels of both passes read, computed anew in each.
  struct Chunked {
    Tensor steps, decays;  ///< [batch, heads, chunks, chunk] fp32
    Tensor states;         ///< [batch, chunks, heads, head_dim, states]: that in which a chunk begins
    Tensor products;       ///< C · Bᵀ of each chunk and group, fp32
  };

  Tensor channels(std::int64_t width) const { return tape_.empty({batch_, length_, width}, type_); }

  /// causal_conv1d_fwd: channels, B and C through the convolution and silu.
  Tensor convolve() const {
    Tensor result = channels(spec_.convolved());
    const Operand read = packed(result.elements(), result.dtype());
    pointwise(tape_, Pointwise::Form::fused, {read}, {operand(result)});
    return result;
  }

  /// _chunk_cumsum_fwd, _chunk_state_fwd, _state_passing_fwd and _bmm_chunk_fwd.
  Chunked chunked(DType state_type) const {
    Chunked c;
    c.decays = per_step();
    c.steps = per_step();
    pointwise(tape_, Pointwise::Form::fused, {packed(step_elements(), type_)}, {operand(c.decays), operand(c.steps)});
    {
      const Tensor own = states(DType::fp32);  // what each chunk adds
      const Tensor b = channels(group_width()), x = channels(spec_.inner());
      multiply(type_, state_flops(), {&b, &x, &c.steps, &c.decays}, {&own});
      c.states = states(state_type);
      const Tensor last = tape_.empty({batch_, spec_.heads, spec_.head_dim, spec_.states}, DType::fp32);
      pointwise(Pointwise::Form::fused, {&own}, {&c.states, &last});
    }
    c.products = tape_.empty({batch_, chunks_, spec_.groups, kChunk, kChunk}, DType::fp32);
    const Tensor b = channels(group_width());
    multiply(type_, group_flops(), {&b, &b}, {&c.products});
    return c;
  }

  /// _chunk_scan_fwd: within chunks by their products, across them by the states, and the skip.
  Tensor scanned(const Chunked& c) const {
    Tensor out = channels(spec_.inner());
    const Tensor x = channels(spec_.inner()), projection = channels(group_width());
    multiply(type_, chunk_flops() / 2 + state_flops(), {&c.products, &x, &c.steps, &c.decays, &projection, &c.states}, {&out});
    return out;
  }

  struct Gradients {
    Tensor convolved, step_bias, decay, skip;
  };

  /// _mamba_chunk_scan_combined_bwd behind the gated norm's.
  Gradients backward(const Tensor& gradient, const MambaParameters& parameters) const {
    const Tensor steps_in = tape_.empty({batch_, length_, spec_.heads}, type_);
    in_place(steps_in, {&steps_in});  // dt.clone()
    const Chunked c = chunked(DType::fp32);
    const Tensor x = channels(spec_.inner()), b = channels(group_width());
    const Tensor of_states = states(DType::fp32);
    multiply(type_, state_flops(), {&b, &c.decays, &gradient}, {&of_states});  // _chunk_scan_bwd_dstates
    const Tensor of_states_passed = states(type_), states_cast = states(type_);
    pointwise(Pointwise::Form::fused, {&c.states, &of_states}, {&of_states_passed, &states_cast});
    Gradients all;
    all.convolved = channels(spec_.convolved());
    const Tensor of_x = channels(spec_.inner()), of_steps = per_step();
    multiply(type_, chunk_flops() / 2 + state_flops(), {&x, &c.products, &gradient, &of_states_passed, &b, &c.steps}, {&of_x, &of_steps});
    gradients_of_projections(c, x, gradient, of_states_passed, states_cast);
    all.step_bias = empty_like(parameters.step_bias);
    all.decay = empty_like(parameters.decay);
    all.skip = empty_like(parameters.skip);
    gradients_of_decays(c, x, gradient, of_steps, all);
    return all;
  }

 private:
  std::int64_t step_elements() const { return batch_ * length_ * spec_.heads; }
  std::int64_t group_width() const { return spec_.groups * spec_.states; }
  double positions() const { return static_cast<double>(batch_ * length_); }
  /// Of a product over head_dim and states for every position and head.
  double state_flops() const { return 2 * positions() * static_cast<double>(spec_.inner() * spec_.states); }
  /// Of a product of all positions of a chunk with all others, over head_dim, for every head; causal work is half of it.
  double chunk_flops() const { return 2 * positions() * static_cast<double>(kChunk * spec_.inner()); }
  /// The same over the states, for every group.
  double group_flops() const { return 2 * positions() * static_cast<double>(kChunk * group_width()); }

  Tensor per_step() const { return tape_.empty({batch_, spec_.heads, chunks_, kChunk}, DType::fp32); }
  Tensor states(DType type) const { return tape_.empty({batch_, chunks_, spec_.heads, spec_.head_dim * spec_.states}, type); }

  /// _chunk_state_bwd_db, _chunk_scan_bwd_dC, _chunk_scan_bwd_dcb and _bmm_chunk_bwd twice: gradients of B and C.
  void gradients_of_projections(const Chunked& c, const Tensor& x, const Tensor& gradient, const Tensor& of_states,
                                const Tensor& states) const {
    const Tensor b = channels(group_width()), of_b = tape_.empty({batch_, length_, group_width()}, DType::fp32),
                 of_c = tape_.empty({batch_, length_, group_width()}, DType::fp32);
    const Tensor of_decays = per_step(), of_products = empty_like(c.products);
    multiply(type_, state_flops(), {&x, &c.steps, &c.decays, &of_states, &b}, {&of_b, &of_decays});
    multiply(type_, state_flops(), {&states, &c.decays, &gradient, &b}, {&of_c, &of_decays});
    multiply(type_, chunk_flops() / 2, {&x, &c.steps, &c.decays, &gradient}, {&of_products});
    for (const Tensor& residual : {of_b, of_c}) multiply(type_, group_flops(), {&b, &of_products, &residual}, {&b});
  }

  /// Reverse sums of what the states gave, _chunk_scan_bwd_ddAcs_stable, and _chunk_cumsum_bwd.
  void gradients_of_decays(const Chunked& c, const Tensor& x, const Tensor& gradient, const Tensor& of_steps, const Gradients& all) const {
    const Tensor of_decays = per_step();
    constexpr int kEager = 6;  // += of the chunks' ends, flip, cumsum, flip, and two sums
    for (int i = 0; i < kEager; ++i) pointwise(of_decays, {&of_decays});
    multiply(type_, chunk_flops() / 2, {&x, &c.steps, &c.decays, &gradient, &c.products}, {&of_decays});
    const Tensor given = tape_.empty({batch_, length_, spec_.heads}, type_);
    pointwise(Pointwise::Form::fused, {&of_decays, &of_steps, &given}, {&given, &all.step_bias, &all.decay});
  }

  Tape& tape_;
  const MambaSpec& spec_;
  DType type_;
  std::int64_t batch_, length_, chunks_;
};

/// causal_conv1d_bwd: what went in, its gradient, and the gradient of what came out.
void convolve_backward(const Tensor& of_convolved, const MambaParameters& gradients, const Tensor& of_projected) {
  const Operand whole = operand(of_convolved);
  pointwise(of_projected.tape(), Pointwise::Form::fused, {whole, whole},
            {whole, operand(gradients.convolution), operand(gradients.convolution_bias)});
}

}  // namespace

Tensor mamba_split_scan(const Tensor& projected, const MambaSpec& spec, const MambaParameters& parameters) {
  PythonFunction op("mamba_split_conv1d_scan", {&projected, &parameters.convolution, &parameters.convolution_bias, &parameters.step_bias,
                                                &parameters.decay, &parameters.skip, &parameters.norm});
  const std::int64_t batch = projected.size(0), length = projected.size(1);
  const DType type = projected.dtype();
  Tensor scanned;
  {
    const ChunkScan scan(op.tape(), spec, type, batch, length);
    const Tensor convolved = scan.convolve();
    scanned = scan.scanned(scan.chunked(type));
  }
  Tensor output = op.output({batch, length, spec.inner()}, type);
  Tensor statistics = op.tape().empty({batch * length, spec.groups}, DType::fp32);
  const Tensor gate = op.tape().empty(output.sizes(), type);
  row_wise(RowWise::Function::rms_norm, batch * length, spec.inner(), {&scanned, &gate, &parameters.norm}, {&output, &statistics});
  op.save(projected);
  for (const Tensor* each : {&parameters.convolution, &parameters.convolution_bias, &parameters.step_bias, &parameters.decay,
                             &parameters.skip, &parameters.norm})
    op.save(*each);
  op.save_output(scanned);
  op.save_output(statistics);
  return op.done(output, [spec](BackwardCall& b) {
    const Tensor &projected_in = b.saved(0), &scanned_out = b.saved(7);
    const MambaParameters weights{b.saved(1), b.saved(2), b.saved(3), b.saved(4), b.saved(5), b.saved(6)};
    const std::int64_t rows = scanned_out.elements() / spec.inner();
    const ChunkScan scan(b.tape, spec, projected_in.dtype(), projected_in.size(0), projected_in.size(1));
    const Tensor convolved = scan.convolve();
    const Tensor of_projected = empty_like(projected_in), of_norm = empty_like(weights.norm);
    const Tensor of_scanned = empty_like(scanned_out), of_gate = empty_like(scanned_out);
    row_wise(RowWise::Function::rms_norm_backward, rows, spec.inner(), {&b.grad(), &scanned_out, &of_gate}, {&of_scanned, &of_gate, &of_norm});
    const ChunkScan::Gradients gradients = scan.backward(of_scanned, weights);
    const MambaParameters of_weights{empty_like(weights.convolution), empty_like(weights.convolution_bias), {}, {}, {}, {}};
    convolve_backward(gradients.convolved, of_weights, of_projected);
    b.give(0, of_projected);
    b.give(1, of_weights.convolution);
    b.give(2, of_weights.convolution_bias);
    b.give(3, gradients.step_bias);
    b.give(4, gradients.decay);
    b.give(5, gradients.skip);
    b.give(6, of_norm);
    b.drop_gradients();
  });
}

}  // namespace plimsoll::program
