/// The node whose backward runs (torch._C._current_autograd_node).
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// Null outside of a backward pass. As in PyTorch it is the thread's.
Node* running_node();

}  // namespace plimsoll::program
