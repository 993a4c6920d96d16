/// Operators of which the host has more to do than of ATen's, either way.
#pragma once

#include <utility>
#include <vector>

#include "program/op.hpp"

namespace plimsoll::program {

/// An Op whose forward and backward are such work of the host.
template <HostWork kWork>
class HostedOp : public Op {
 public:
  HostedOp(const char* name, std::initializer_list<const Tensor*> inputs) : Op(name, inputs) { tape().host(kWork); }
  HostedOp(const char* name, List<const Tensor*> inputs) : Op(name, std::move(inputs)) { tape().host(kWork); }

  template <class Function>
  void finish(std::initializer_list<Tensor*> outputs, Function&& backward) {
    Op::finish(outputs, marked(std::forward<Function>(backward)));
  }
  template <class Function>
  Tensor done(Tensor& output, Function&& backward) {
    return Op::done(output, marked(std::forward<Function>(backward)));
  }
  template <class Function>
  void finish_all(std::vector<Tensor>& outputs, Function&& backward) {
    Op::finish_all(outputs, marked(std::forward<Function>(backward)));
  }

 private:
  template <class Function>
  static auto marked(Function&& backward) {
    return [backward = std::forward<Function>(backward)](BackwardCall& call) mutable {
      call.tape.host(kWork);
      backward(call);
    };
  }
};

/// A torch.autograd.Function written in Python.
using PythonFunction = HostedOp<HostWork::python_function>;
/// A graph that torch.compile made of a few operators, of both ways.
using CompiledGraph = HostedOp<HostWork::compiled_call>;
/// Of a whole layer.
using CompiledLayerGraph = HostedOp<HostWork::compiled_layer>;

}  // namespace plimsoll::program
