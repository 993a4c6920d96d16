/// The feed-forward network of two linears: down(activation(up(x))).
#pragma once

#include <string>

#include "program/modules/bare.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

class PlainMlp {
 public:
  PlainMlp(Module& module, Tape& tape, std::string activation, const char* up, const char* down);
  Tensor operator()(const Tensor& input) const;

 private:
  Module& module_;
  Tape& tape_;
  Module* xielu_;  ///< apertus: an activation with parameters
  Activation act_;
  Linear up_, down_;
};

}  // namespace plimsoll::program
