/// The exchange of tokens between the ranks of an expert-parallel group.
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

struct ExpertParallel {
  std::int64_t degree = 1;
  bool functional = false;  ///< torch.distributed's functional collective: one buffer, kept by selective checkpoints; else chunk by chunk
};

/// all_to_all over dimension 0, every rank sending and getting equal parts; its backward is the same.
Tensor all_to_all(const ExpertParallel& group, const Tensor& x);

}  // namespace plimsoll::program
