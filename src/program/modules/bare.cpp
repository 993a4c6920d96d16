#include "program/modules/bare.hpp"

#include <utility>

#include "program/modules/layers.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

Module& made(Module& parent, std::string_view name, Tape& tape) {
  Module& module = parent.child(name, true);
  module.label = tape.intern(module.path);
  return module;
}

}  // namespace

Activation::Activation(Module& parent, std::string_view name, Tape& tape, std::string function)
    : module_(&made(parent, name, tape)), tape_(&tape), function_(std::move(function)) {}

Tensor Activation::operator()(const Tensor& x) const {
  Tensor input = x;
  ModuleCall call(*module_, *tape_, {&input});
  return call.done(activate(function_, input));
}

Dropout::Dropout(Module& parent, std::string_view name, Tape& tape, double rate)
    : module_(&made(parent, name, tape)), tape_(&tape), rate_(rate) {}

Tensor Dropout::operator()(const Tensor& x) const {
  Tensor input = x;
  ModuleCall call(*module_, *tape_, {&input});
  return call.done(dropout(input, rate_));
}

}  // namespace plimsoll::program
