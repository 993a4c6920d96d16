#include "program/attention_pass.hpp"

namespace plimsoll {

std::vector<Attention> kernels_of_pass(const Attention& main) {
  using Part = Attention::Part;
  if (main.part != Part::backward) return {main};
  std::vector<Attention> kernels(main.heads == main.kv_heads ? 3 : 5, main);
  kernels[0].part = Part::delta;
  kernels[2].part = Part::convert;
  for (std::size_t i = 3; i < kernels.size(); ++i) kernels[i].part = Part::sum_heads;
  return kernels;
}

}  // namespace plimsoll
