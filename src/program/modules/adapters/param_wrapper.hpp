/// PEFT's lora.ParamWrapper: adapters of a parameter that no linear holds, as a mixture's router and its stacked experts are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/peft.hpp"
#include "plimsoll/strategy.hpp"
#include "program/module.hpp"

namespace plimsoll::program {

/// Wraps the parameters that are targeted of every sparse block. Throws Error (bad input): a dropout or DoRA, which PEFT's wrapper does not
/// take.
void wrap_parameters(Module& root, const framework::MixtureTargets& targets, const Lora& lora, DType adapter_type);

/// The module within all wrappers; itself where it has none.
Module& within_wrappers(Module& module);

/// The wrappers around a module while it runs: torch.nn.utils.parametrize puts weight + scaling · B A in the place of the parameter, made
/// when it is asked for and kept until the outermost wrapper returns.
class WrappedParameters {
 public:
  WrappedParameters(Module& outermost, Tape& tape);
  /// What the module within reads under this name.
  Tensor operator()(const char* name);
  /// Whether a parameter of that name has an adapter.
  bool adapts(const std::string& name) const;

 private:
  struct Proxy {
    Module* wrapper;
    Tensor lhs, rhs;  ///< of stacked experts: the factors, folded in by one baddbmm
    Tensor delta;     ///< of a matrix: their product
    Tensor weight;    ///< parametrize.cached()
  };
  Tensor parametrized(const Proxy& proxy) const;

  Module& module_;
  std::vector<Proxy> proxies_;  ///< from the outermost in
};

}  // namespace plimsoll::program
