/// The passes of a step that later steps make again: recorded once.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Forward and backward passes of the first step, as later steps repeat them: the same operators on tensors of the same shapes, in the same
/// order, so the same instructions. That holds where the passes find no gradients and leave behind nothing but gradients, which only their
/// leaves hold, and which are gone before the next step: no tensor tells a later pass from the first. All of that is checked. Workspaces that
/// the tape keeps for good are left behind as well: a later pass is the first without their allocations. That the wrappers' own state (flags,
/// lists) is after a step as before it is their promise: who learns passes has read them.
///
/// The copy has the names of the original: by then these are free again, as they are each time that a step is played.
class KnownPasses {
 public:
  /// What the first step has recorded up to here, of which `leaves` got the gradients. Forgets it where one of the conditions fails.
  void learn(Tape& tape, const std::vector<Tensor>& leaves);
  /// Records the same again at the beginning of a later step, and gives the leaves the same gradients. False, and nothing happens, where
  /// nothing was learnt or something of the first step is still there.
  bool record(Tape& tape, const std::vector<Tensor>& leaves) const;
  /// Where an instruction of the first step's passes stands in a copy of them.
  std::size_t place_of(std::size_t first) const;

 private:
  /// A storage that outlives the passes.
  struct Survivor {
    TensorId id;
    std::size_t birth;  ///< its allocation's place in the step
    StreamId stream;
    std::int64_t bytes;
    std::uint32_t holders = 0, others = 0;  ///< tensors on it: gradients with what they are views of, and all else
  };
  struct Form {
    Dims sizes, strides;
    DType type;
    std::size_t survivor;
  };
  struct Gradient {
    std::size_t leaf;
    Form form;
    std::size_t base;  ///< in bases_; kNone where it is no view
  };
  static constexpr std::size_t kNone = ~std::size_t{0};

  bool find_survivors(const Tape& tape, const std::vector<Instruction>& passes);
  bool find_gradients(const std::vector<Tensor>& leaves);
  std::size_t find(TensorId id) const;
  std::size_t hold(const TensorImpl& tensor);
  void give_gradients(Tape& tape, const std::vector<Tensor>& leaves) const;

  std::size_t length_ = 0;  ///< instructions; 0: nothing is known
  std::vector<Survivor> survivors_;
  std::vector<std::size_t> kept_;  ///< allocations of workspaces for good, in order: a copy has none of them
  std::vector<std::pair<const TensorImpl*, Form>> bases_;  ///< by the tensor of the first step, which is told by its address alone
  std::vector<Gradient> gradients_;
};

}  // namespace plimsoll::program
