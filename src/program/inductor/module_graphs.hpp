/// torch.compile of modules: each is traced once for every kind of call that its guards tell apart, and runs its graphs from then on
/// (torch/_dynamo/guards.py of PyTorch 2.15). Equal modules share them, as all layers of a model do whose code object is one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "program/inductor/compiled.hpp"
#include "program/inductor/trace.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// What is compiled of a module.
struct CompiledForward {
  using Eager = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

  const char* name;              ///< of the operator that it is on the tape (a literal)
  const void* kind;              ///< the same of all modules that are equal
  bool checkpointed = false;     ///< told apart by guards
  /// What of the traced operators is computed again; empty: nothing is.
  std::function<Checkpointing()> checkpointing = {};
  /// An equal module's eager forward, whose parameters and buffers lie in `twin`, on `tape`. What it refers to lives until it is gone.
  std::function<Eager(Module& twin, Tape& tape)> make;
};

class ModuleGraphs {
 public:
  /// The module's results on `arguments`, of which undefined ones are None. Throws Error (refused): an operator or a tensor that a trace
  /// does not know.
  std::vector<Tensor> run(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments);

  /// Whether no module was compiled yet.
  bool empty() const { return known_.empty(); }

 private:
  /// Where the tensor is that a graph is given: an argument of the call, a parameter or buffer of the module of that path below, or the
  /// result of an earlier graph.
  struct Input {
    enum class Kind : std::uint8_t { argument, parameter, buffer, made } kind;
    std::size_t argument = 0;
    std::string module = {}, name = {};
    std::size_t graph = 0, result = 0;
  };
  struct Part {
    std::shared_ptr<const CompiledModule> graphs;
    std::vector<Input> inputs;
    std::vector<std::size_t> last_read = {};  ///< of each result: the last part behind which somebody holds it
  };
  /// What a call of the module runs: one graph, or where they are cut several.
  struct Entry {
    std::vector<std::int64_t> guards = {};
    const void* kind = nullptr;
    bool breaks = false;  ///< the code itself does, whatever cuts its graphs
    std::vector<Part> parts = {};
    std::vector<Input> results = {};
  };
  /// What was compiled of a trace: modules that no kind tells to be equal are, where their traces are.
  struct Traced {
    JointGraph joint;
    std::shared_ptr<const CompiledModule> graphs;
  };

  const Entry& entry_for(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments);
  Entry compile_module(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments);
  class Sources;

  /// `twin` becomes an equal module, whose eager forward runs on `tape`.
  static CompiledForward::Eager make_twin(const CompiledForward& compiled, Module& module, Module& twin, Tape& tape, const Tape& caller);
  static std::set<std::size_t> cuts_of(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments);

  std::shared_ptr<const CompiledModule> compiled_of(JointGraph joint, const Tape& tape);

  std::vector<std::unique_ptr<Entry>> known_;
  std::vector<Traced> traced_;
};

}  // namespace plimsoll::program::inductor
