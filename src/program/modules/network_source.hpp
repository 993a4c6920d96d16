/// What makes and runs the modules of a network that is told by its own code.
#pragma once

#include <memory>

#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

class NetworkSource : public ModelSource {
 public:
  /// The tree of its parameters and buffers, not yet on the device, in `type` where that is not fp32.
  virtual std::unique_ptr<Module> modules(DType type, Tape& tape) const = 0;
  /// The network of such a tree, which is on the device.
  virtual std::unique_ptr<Network> network(const RunOptions& options, Module& root, Tape& tape) const = 0;
  /// The inputs of one micro-batch, resident.
  virtual Batch batch(const Strategy& strategy, Tape& tape) const = 0;
  /// A model of transformers: made on the device, its attention and its checkpoints are the strategy's.
  virtual bool is_of_transformers() const { return false; }
};

/// The model's source; null where it has none.
const NetworkSource* network_source(const Model& model);

/// Throws Error (refused) where what the strategy does to modules is not modelled of a network that is told by its own code.
void refuse_beside_source(const NetworkSource& source, const Strategy& strategy);

/// How the model comes onto the device: transformers' are made there, one's own class is built on the host and moved (model.to("cuda")).
Arrival arrival_of(const Model& model, bool prepared_by_accelerate);

}  // namespace plimsoll::program
