// What MaxText's releases and NVIDIA's recipes for it change.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// Names that a layer's results have for MaxText's remat policies (checkpoint_name), as far as it computes them again.
struct MaxtextRemat {
  bool projections = true, context = true, out_proj = true, mlpwi = true;
};
/// Of a resolved strategy.
MaxtextRemat maxtext_remat(const Strategy& resolved);

/// Whether the embedding is a product with one-hot rows (use_iota_embed): NVIDIA's recipes switch it on, base.yml does not.
bool maxtext_embeds_by_product(const Strategy& strategy);

}  // namespace plimsoll::framework
