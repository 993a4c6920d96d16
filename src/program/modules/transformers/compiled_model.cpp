#include "program/modules/transformers/compiled_model.hpp"

#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/inductor/module_graphs.hpp"
#include "program/modules/transformers/causal_lm.hpp"

namespace plimsoll::program {

namespace {

class CompiledModel final : public Network {
 public:
  CompiledModel(NetworkFactory make, const RunOptions& options, Module& root, Tape& tape)
      : make_(std::move(make)), options_(options), root_(root), tape_(tape) {}

  Tensor loss(const Batch& batch) override {
    if (!batch.conditions.empty())
      refuse("torch.compile of a whole model that is given more than a text and its labels is not modelled", "compile", "blocks");
    Tensor ids = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&ids, &labels});
    std::vector<Tensor> results = graphs_.run(
        {"compiled_model", this, false, {}, [this](Module& twin, Tape& tape) { return eager_on(twin, tape); }}, root_, {ids, labels});
    std::vector<Tensor*> outputs;
    for (Tensor& result : results) outputs.push_back(&result);
    call.done(outputs);
    if (options_.held) options_.held->insert(options_.held->end(), results.begin() + 1, results.end());
    return results.front();
  }

 private:
  inductor::CompiledForward::Eager eager_on(Module& twin, Tape& tape) const {
    RunOptions eager = options_;
    eager.compiled_model = false;
    eager.held = std::make_shared<std::vector<Tensor>>();
    const std::shared_ptr<Network> network = make_(eager, twin, tape);
    return [network, held = eager.held](const std::vector<Tensor>& given) {
      std::vector<Tensor> results{network->loss({.input_ids = given[0], .labels = given[1]})};
      results.insert(results.end(), held->begin(), held->end());
      held->clear();
      return results;
    };
  }

  NetworkFactory make_;
  RunOptions options_;
  Module& root_;
  Tape& tape_;
  inductor::ModuleGraphs graphs_;
};

}  // namespace

std::unique_ptr<Network> make_compiled_model(NetworkFactory make, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<CompiledModel>(std::move(make), options, root, tape);
}

}  // namespace plimsoll::program
