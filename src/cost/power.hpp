// What kernels on matrix units would draw at the boost clock, in board powers; how much longer they take follows from it (product_cost.hpp).
#pragma once

#include "plimsoll/cost.hpp"

namespace plimsoll::cost {

double boost_power(const Product& product, const Accelerator& device);
double boost_power(const Attention& attention, const Accelerator& device);

}  // namespace plimsoll::cost
