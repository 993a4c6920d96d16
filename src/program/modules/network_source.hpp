/// What makes and runs the modules of a network that is told by its own code.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/lower.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// What libraries around a model of transformers ask it for; of one's own class nothing.
struct ModelParts {
  std::vector<std::string> embeddings;      ///< paths: get_input_embeddings() of the model, then of the models within it
  std::string head;                         ///< path: get_output_embeddings(); empty: it has none
  std::string base;                         ///< base_model_prefix: the model without its head
  std::vector<std::string> layer_classes;   ///< _no_split_modules of the model and of the models within it
  std::vector<std::string> kept_in_fp32;    ///< _keep_in_fp32_modules, likewise
};

/// Whose a class of code is: one's own, or a library's.
enum class CodeLibrary : std::uint8_t { none, transformers, diffusers, timm };

class NetworkSource : public ModelSource {
 public:
  /// The tree of its parameters and buffers, not yet on the device, in `type` where that is not fp32.
  virtual std::unique_ptr<Module> modules(DType type, Tape& tape) const = 0;
  /// The network of such a tree, which is on the device.
  virtual std::unique_ptr<Network> network(const RunOptions& options, Module& root, Tape& tape) const = 0;
  /// The inputs of one micro-batch, resident.
  virtual Batch batch(const Strategy& strategy, Tape& tape) const = 0;
  /// Whose class it is. A library's is made on the device, its checkpoints are the strategy's, and so is the attention of transformers'.
  virtual CodeLibrary library() const { return CodeLibrary::none; }
  virtual ModelParts parts() const = 0;
};

/// The model's source; null where it has none.
const NetworkSource* network_source(const Model& model);

/// Throws Error (refused) where what the strategy does to modules is not modelled of a network that is told by its own code.
void refuse_beside_source(const NetworkSource& source, const Strategy& strategy);

/// How the model comes onto the device: transformers' are made there, one's own class and timm's are built on the host and moved
/// (model.to("cuda")).
Arrival arrival_of(const Model& model, bool prepared_by_accelerate);

}  // namespace plimsoll::program
