/// BertSelfOutput and BertOutput, and those of their relatives: dense, dropout, LayerNorm of the sum with the input.
#pragma once

#include "program/modules/bare.hpp"
#include "program/modules/layers.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

/// `module` holds "dense" and "LayerNorm"; the rate and the norm are the block's.
class PostNorm {
 public:
  PostNorm(Module& module, Tape& tape, const Block& block)
      : module_(module),
        tape_(tape),
        dense_(module.child("dense"), tape),
        dropout_(module, "dropout", tape, block.hidden_dropout),
        norm_(module.child("LayerNorm"), tape, block.norm) {}

  Tensor operator()(const Tensor& input, const Tensor& residual) const {
    Tensor hidden = input;
    ModuleCall call(module_, tape_, {&hidden});
    hidden = dense_(hidden);
    hidden = dropout_(hidden);
    {
      const Tensor sum = add(hidden, residual);
      hidden = norm_(sum);
    }
    return call.done(hidden);
  }

 private:
  Module& module_;
  Tape& tape_;
  Linear dense_;
  Dropout dropout_;
  Norm norm_;
};

}  // namespace plimsoll::program
