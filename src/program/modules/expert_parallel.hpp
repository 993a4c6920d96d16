/// The exchange of tokens between the ranks of an expert-parallel group.
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

struct ExpertParallel {
  std::int64_t degree = 1;
  bool functional = false;  ///< torch.distributed's functional collective: one buffer; else chunk by chunk
  bool kept = true;         ///< what a functional collective gives is kept by selective checkpoints
};

/// all_to_all over dimension 0, every rank sending equal parts and getting `received` rows in equal parts; its backward is the same the
/// other way.
Tensor all_to_all(const ExpertParallel& group, const Tensor& x, std::int64_t received);
inline Tensor all_to_all(const ExpertParallel& group, const Tensor& x) { return all_to_all(group, x, x.size(0)); }

}  // namespace plimsoll::program
