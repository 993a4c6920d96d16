/// A stack of equal layers of which some run: the others are written down from those.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// The passes of a deep network say of one layer what they say of the next. Of a run of layers that the model describes as one block, the
/// first and the last few run, with all of their wrappers' hooks; `write_out` then puts the passes of those in between where they would
/// stand, and gives their parameters the gradients. It does so only where the layers next to the gap, on both sides of it, say the same
/// instruction by instruction: each frees, and marks by record_stream, what as many layers before it allocated at the same place. Nothing
/// that a layer allocates is freed outside of the layers' passes, unless layer by layer between forward and backward (autocast's casts).
/// The two outermost at either end may differ: they see the network's ends.
///
/// What can not be seen there is the caller's promise: that nothing counts layers or bytes over several of them (buckets, rate limits
/// longer than the seen ones), and that a layer's hooks leave their own state behind a step as they found it (KnownPasses' promise too).
class EqualLayers {
 public:
  /// `layers`: of one block, in order; `first`: the place of the first in its stack. Shorter runs than `worthwhile` run whole.
  EqualLayers(Tape& tape, std::vector<Module*> layers, std::size_t first);
  EqualLayers(const EqualLayers&) = delete;
  EqualLayers& operator=(const EqualLayers&) = delete;
  static bool worthwhile(std::size_t layers) { return layers >= kFewest; }

  /// Whether the stack's layer runs, whose input is `hidden`. Asked of every layer in order.
  bool enter(std::size_t layer, const Tensor& hidden);
  /// Behind the stack's last layer.
  void leave(const Tensor& hidden);
  /// The place in its stack of a layer of the run; none of another module.
  std::optional<std::size_t> place_of(const Module& module) const;
  /// Whether a layer of the run is followed by one that does not run.
  bool precedes_left_out(std::size_t layer) const { return layer + 1 < first_ + layers_.size() && !runs(layer + 1 - first_); }
  bool is_last(std::size_t layer) const { return layer + 1 == first_ + layers_.size(); }
  /// Whether the module is one of a layer that does not run.
  bool leaves_out(const Module& module) const;

  /// Behind the backward pass: writes down what was left out, from the beginning of the recorded part on. `leaves` are whose gradients the
  /// passes computed, those of a layer in the same order as another's. False where the layers do not say the same: then the program is not
  /// that of the whole network.
  bool write_out(const std::vector<Tensor>& leaves);
  /// Which of the layers (by its place in the run) each of `leaves` belongs to; kNone: to none.
  std::vector<std::size_t> owners;
  static constexpr std::size_t kNone = ~std::size_t{0};

 private:
  friend class LayerLabels;
  friend class LayerWriter;
  static constexpr std::size_t kEdge = 4;       ///< layers that run at either end
  static constexpr std::size_t kOutermost = 2;  ///< of which so many may differ from those within
  static constexpr std::size_t kFewest = 3 * kEdge;

  /// The layer, by its place in the run, that a path or a label is of ("model.layers.7.mlp"), and where its number stands; kNone: of none.
  struct Numbered {
    std::size_t layer = kNone;
    std::size_t begin = 0, end = 0;
  };
  Numbered numbered(std::string_view text) const;
  bool runs(std::size_t layer) const { return layer < kEdge || layer + kEdge >= layers_.size(); }
  /// Notes where a layer's passes begin in forward and end in backward; `at`: of those that run.
  void mark(std::size_t at, const Tensor& hidden);

  Tape& tape_;
  std::vector<Module*> layers_;
  std::size_t first_;
  std::string front_;       ///< what stands before a layer's number in its path
  std::size_t number_ = 0;  ///< of the first layer
  /// Of the layers that run: where the forward pass of each begins, then where the last one's ends; and where the gradient of each one's
  /// input is known, then that of the last one's output.
  std::vector<std::size_t> forward_, backward_;
};

/// The layers of a stack one after the other. `call` is given a layer's place and its input.
template <class Call>
Tensor run_layers(Tape& tape, std::size_t layers, Tensor hidden, Call&& call) {
  for (std::size_t i = 0; i < layers; ++i)
    if (!tape.equal_layers || tape.equal_layers->enter(i, hidden)) hidden = call(i, hidden);
  if (tape.equal_layers) tape.equal_layers->leave(hidden);
  return hidden;
}

}  // namespace plimsoll::program
