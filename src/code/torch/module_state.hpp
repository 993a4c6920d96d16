// What an nn.Module holds beside attributes.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "code/objects.hpp"
#include "program/modules/adapters/param_wrapper.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {
class ModuleGraphs;
}

namespace plimsoll::code {

/// What a tensor holds, where that is known: numbers that the host has made, or small ones that follow from them.
struct Followed {
  std::vector<double> values;     ///< in row-major order; none of a tensor too large to be followed, all of whose elements are one number
  double uniform = 0;             ///< that number
  bool dealt = false;             ///< follows from what a router chose, which is taken to be balanced
  std::shared_ptr<bool> changed;  ///< shared with views of the same storage: somebody has written into it
};

/// A tensor, or a parameter, which is a slot whose tensor may change.
class TensorObject final : public Object {
 public:
  TensorObject(Heap& heap, program::Tensor tensor_in) : Object(heap, 768), tensor(std::move(tensor_in)) {}
  void clear() override { tensor.reset(); }
  program::Tensor tensor;  ///< of a parameter the host's, until it is on the device
  std::shared_ptr<program::Parameter> parameter;
  enum class Buffer : std::uint8_t { no, persistent, not_persistent } buffer = Buffer::no;  ///< of nn.Buffer: a module registers it
  std::shared_ptr<const Followed> followed;  ///< null: what it holds is not known
  std::int64_t ids_below = 0;                ///< of ordinary tokens: whole numbers from 0 to below this, none a special one; 0: not of such

  const program::Tensor& current() const { return parameter && parameter->tensor ? parameter->tensor : tensor; }
};

/// What module.compile() makes of a module's calls.
struct CompiledState {
  std::shared_ptr<program::inductor::ModuleGraphs> graphs;
  bool checkpointed = false;  ///< its checkpoint is part of its graph
  Value answer = {};          ///< what its forward gives, but for the tensor
};

/// In the order in which they were registered; None where a name was registered for nothing.
struct ModuleState {
  std::vector<std::pair<Symbol, Value>> parameters, modules;
  struct Buffer {
    Symbol name;
    Value value;
    bool persistent = true;
  };
  std::vector<Buffer> buffers;
  std::vector<std::pair<Symbol, Value>> computed;  ///< attributes that a call gives: tensors that are parametrized
  bool training = true;
  std::function<void(const program::Parameter&)> asked;  ///< what a wrapper does when a parameter of its own is asked for
  program::Module* module = nullptr;  ///< what wrappers see of it; null until there is one
  program::WrappedParameters* wrapped = nullptr;  ///< what PEFT puts in the places of its parameters, while it runs
  std::unique_ptr<CompiledState> compiled;  ///< null: it runs eagerly

  void clear() {
    parameters.clear();
    modules.clear();
    buffers.clear();
    computed.clear();
    compiled.reset();
  }
};

}  // namespace plimsoll::code
