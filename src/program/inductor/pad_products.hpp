/// Products of matrices whose sizes tensor cores do not take are made of padded ones (torch/_inductor/fx_passes/pad_mm.py of PyTorch 2.15):
/// what they read is padded with zeros to multiples of 16 bytes, and of what they give the rest is cut off.
///
/// Inductor measures which of both is faster, where arithmetic bounds the product at all: here it is the padded one.
#pragma once

#include <vector>

#include "program/inductor/fx.hpp"

namespace plimsoll::program::inductor {

/// `kept` tells the new number of each node, of a padded product what is left of it. Products in fp32 are padded where they may take tf32.
FxGraph with_padded_products(const FxGraph& graph, bool tf32, std::vector<int>& kept);

}  // namespace plimsoll::program::inductor
