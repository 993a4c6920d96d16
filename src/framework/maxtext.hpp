// What MaxText's releases and NVIDIA's recipes for it change.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::framework {

/// Results of a layer, by their names in MaxText's remat policies (checkpoint_name), that are kept for its backward pass; all others are
/// computed again.
struct MaxtextKept {
  bool projections = false;  ///< query_proj, key_proj, value_proj
  bool context = false;      ///< attention's result, with its statistics
  bool out_proj = false;
  bool mlpwi = false;  ///< both products before the activation
};
/// Of a resolved strategy.
MaxtextKept maxtext_kept(const Strategy& resolved);

/// Whether the embedding is a product with one-hot rows (use_iota_embed): NVIDIA's recipes switch it on, base.yml does not.
bool maxtext_embeds_by_product(const Strategy& strategy);

}  // namespace plimsoll::framework
