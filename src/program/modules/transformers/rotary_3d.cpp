#include "program/modules/transformers/rotary_3d.hpp"

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// recomposition_frequencies: of every section of the frequencies the positions of one of the three directions, twice side by side. Where
/// the sections end does not matter to memory.
Tensor recomposed(const Tensor& frequencies) {
  const std::int64_t width = frequencies.size(-1), third = width / 3;
  const auto section = [&](std::int64_t i) {
    return slice(slice(frequencies, 0, i, i + 1), -1, i * third, i == 2 ? width : (i + 1) * third);
  };
  const Tensor chosen = cat({section(0), section(1), section(2)}, -1);
  const Tensor table = cat({chosen, chosen}, -1);
  return view(table, {frequencies.size(1), frequencies.size(2), 2 * width});
}

}  // namespace

RotaryTables rotary_tables_3d(Module& rotary, Tape& tape, const Tensor& position_ids, std::int64_t batch, DType type) {
  const GradMode no_grad(tape, false);
  Tensor positions = position_ids;
  ModuleCall call(rotary, tape, {&positions});
  Tensor frequencies;
  {
    const Tensor inverse = to(rotary.buffer("inv_freq"), DType::fp32);
    const Tensor directions = expand(view(positions, {1, 1, positions.size(1), 1}), {3, batch, positions.size(1), 1});
    const Tensor wide = elementwise(tape, {&directions}, DType::fp32);
    frequencies = multiply(wide, inverse);
  }
  Tensor cosine = program::cosine(frequencies);
  cosine = multiply_scalar(cosine);
  Tensor sine = program::sine(frequencies);
  sine = multiply_scalar(sine);
  sine = recomposed(sine);
  cosine = recomposed(cosine);
  return {to(cosine, type), to(sine, type)};
}

}  // namespace plimsoll::program
