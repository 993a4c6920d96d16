/// The layers that all of TorchTitan's blocks are made of.
#pragma once

#include <cstdint>
#include <string>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/torchtitan/decoder.hpp"

namespace plimsoll::program {

/// What every layer is built with.
struct TitanContext {
  const TitanRun& run;
  Module& root;
  Tape& tape;
};

Module& add_titan_module(Module& parent, const std::string& name, Tape& tape);
void add_titan_parameter(Module& module, const std::string& name, const Dims& sizes);
Linear add_titan_linear(Module& parent, const std::string& name, std::int64_t in, std::int64_t out, Tape& tape, bool bias = false);

/// F.rms_norm: one kernel, or before torch 2.8 its parts.
Tensor apply_rms_norm(bool fused, const Tensor& x, const Tensor& weight);

/// nn.RMSNorm.
class TitanNorm {
 public:
  TitanNorm(Module& parent, const std::string& name, std::int64_t width, bool fused, Tape& tape);
  Tensor operator()(const Tensor& input) const;

 private:
  Module* module_;
  Tape* tape_;
  bool fused_;
};

/// FeedForward: w2(silu(w1(x)) * w3(x)).
class TitanFeedForward {
 public:
  /// Where the input comes from under tensor parallelism: cut over the sequence or replicated as the activations between the blocks are,
  /// or already gathered by the module around it.
  enum class Input : std::uint8_t { of_block, gathered };
  /// Where the output's partial sums go: over the sequence or replicated as those activations, or, where these are replicated, to the
  /// module around it, which adds others to them first.
  enum class Output : std::uint8_t { of_block, summed_outside };
  TitanFeedForward(Module& parent, const std::string& name, std::int64_t hidden, std::int64_t intermediate, const TitanContext& context,
                   Input input = Input::of_block, Output output = Output::of_block);
  Tensor operator()(const Tensor& input) const;

 private:
  Module& module_;
  TitanContext context_;
  Input input_;
  Output output_;
  Linear gate_, up_, down_;
};

}  // namespace plimsoll::program
