/// torchao's IntxFakeQuantizer (torchao/quantization/qat of 0.12 to 0.15): values rounded as a quantization would round them, in the type that
/// they have; gradients pass the rounding as if it were not there.
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

class FakeQuantizer {
 public:
  /// x [..., width] to 8 bits with a scale and a zero point per token.
  Tensor per_token(const Tensor& x);
  /// weight [out, in] to 4 bits with a scale per `group` elements of a row.
  Tensor per_group(const Tensor& weight, std::int64_t group);

 private:
  Tensor rounded(const Tensor& x, const Dims& grouped) const;

  Tensor scale_, zero_point_;  ///< of the last pass, fp32: attributes of the module, that the next pass replaces
};

}  // namespace plimsoll::program
