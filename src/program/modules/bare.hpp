/// Modules without parameters. Only who hooks every module (ZeRO-3) sees that they are called.
#pragma once

#include <string>
#include <string_view>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// An activation of ACT2FN, by its name in a config.
class Activation {
 public:
  /// The child `name` of `parent`, which is made.
  Activation(Module& parent, std::string_view name, Tape& tape, std::string function);
  Tensor operator()(const Tensor& x) const;

 private:
  Module* module_;
  Tape* tape_;
  std::string function_;
};

/// nn.Dropout.
class Dropout {
 public:
  /// The child `name` of `parent`, which is made.
  Dropout(Module& parent, std::string_view name, Tape& tape, double rate);
  Tensor operator()(const Tensor& x) const;

 private:
  Module* module_;
  Tape* tape_;
  double rate_;
};

}  // namespace plimsoll::program
