/// Modules: the tree of parameters that a framework wraps, and the calls that its hooks see (torch.nn.Module).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// A module's parameter: a slot whose tensor a wrapper may swap (gathered, cast) while modules read `tensor`.
struct Parameter {
  std::string name;  ///< within its module: "weight"
  Dims sizes;
  DType type = DType::fp32;
  bool trainable = true;
  bool expert = false;  ///< belongs to one expert-parallel rank
  Cut cut = Cut::replicated;
  std::optional<DType> type_at_rest = std::nullopt;  ///< that a wrapper shows while it has given the tensor back; none: its own
  Tensor tensor;  ///< what forward uses; undefined until the parameters are put on the device

  /// module.weight.dtype, gathered or not.
  DType shown_type() const { return tensor ? tensor.dtype() : type_at_rest.value_or(type); }
};

struct ModuleBuffer {
  std::string name;
  Dims sizes;
  DType type = DType::fp32;
  Tensor tensor;
};

/// How a linear's weight lies: nn.Linear's rows of outputs, or Conv1D's rows of inputs (PEFT's fan_in_fan_out).
enum class WeightLayout : std::uint8_t { out_in, in_out };

class Module : public Pooled {
 public:
  using Hook = std::function<void(Module& module, std::vector<Tensor*>& tensors)>;

  std::string path;  ///< "model.layers.3.self_attn"; the root's is empty
  std::string type;  ///< class name where the lowering knows it ("LlamaDecoderLayer"): what wrap lists name
  std::optional<WeightLayout> linear;  ///< of an nn.Linear, or transformers' Conv1D: how its weight lies
  std::vector<std::shared_ptr<Parameter>> parameters;  ///< its own; a tied parameter is the same object in two modules
  std::vector<ModuleBuffer> buffers;
  std::vector<ModuleBuffer> constants;  ///< tensors that it holds and no wrapper knows of (bitsandbytes' QuantState)
  std::optional<ModuleBuffer> made_from;  ///< the weight that is on the device while parameters and constants are made of it
  std::vector<std::unique_ptr<Module>> children;  ///< in registration order
  std::string adapted_parameter;                  ///< of a lora.ParamWrapper: which of its base layer's parameters has the adapter
  bool adapter_scales = true;                     ///< of one: whether alpha over r differs from 1
  double adapter_dropout = 0;                     ///< of an adapted linear (lora.Linear): rate of the dropout in front of its adapter
  std::vector<Hook> pre_forward;   ///< before forward, with its tensor arguments, which may be replaced (register_forward_pre_hook)
  std::vector<Hook> post_forward;  ///< after forward, with its outputs (register_forward_hook)
  /// What a wrapper does when a parameter of its own is asked for, maybe outside of the module's call; empty: it does not notice.
  std::function<void(const Parameter& parameter)> read_from_outside;
  /// What answers in the place of an nn.Linear that a library replaced (MS-AMP's FP8Linear, torchao's Float8Linear), or of a gated MLP
  /// (axolotl's); usually empty.
  std::function<Tensor(const Tensor& x)> replacement;
  /// Of an attention: what answers in the place of its linears for queries, keys and values (axolotl's apply_qkv); usually empty.
  std::function<std::array<Tensor, 3>(const Tensor& x)> projections;
  std::uint32_t label = 0;

  std::string_view name() const;  ///< last component of the path
  /// The child of that name; made when `make`, else a missing one is an internal error.
  Module& child(std::string_view name, bool make = false);
  Module* find_child(std::string_view name);
  /// The module of that path below this one, or null.
  Module* find(std::string_view relative_path);
  Parameter* find_parameter(std::string_view name);
  /// Its parameter's current tensor; undefined when it has no such parameter (no bias).
  const Tensor& tensor(std::string_view name);
  Tensor& buffer(std::string_view name);
  /// Its constant's tensor; undefined when it has no such constant.
  const Tensor& constant(std::string_view name) const;
  /// Allocates the constants.
  void materialize_constants(Tape& tape);

  /// All parameters in registration order (a module's own before its children's, torch's named_parameters), tied ones once.
  std::vector<std::shared_ptr<Parameter>> all_parameters();
  /// This module and those below it, in the order of torch's modules().
  std::vector<Module*> all_modules();
};

/// The tree of a model's parameters and buffers, not yet on the device, in `type` (parameters; buffers have their own types).
std::unique_ptr<Module> build_modules(const Model& model, DType type, Tape& tape);

/// How a model comes onto the device.
enum class Arrival : std::uint8_t {
  empty,  ///< module.to_empty(device), then tie_weights(): a tied parameter is made twice and its second storage dies
  moved   ///< module.to(device) of a model that is built: a tied parameter is moved once
};
/// Makes the storages in the order of Module._apply: children, own parameters, own buffers.
void materialize(Module& root, Tape& tape, Arrival arrival = Arrival::empty);

/// One call of a module: its pre-hooks run at construction on the arguments, its hooks in done() on the outputs.
///
///     Tensor Mlp::operator()(const Tensor& input) {
///       Tensor x = input;
///       ModuleCall call(module, tape, {&x});
///       …
///       return call.done(y);
///     }
class ModuleCall {
 public:
  ModuleCall(Module& module, Tape& tape, std::vector<Tensor*> arguments);
  Tensor done(Tensor output);
  void done(std::vector<Tensor*> outputs);

 private:
  Module& module_;
  LabelScope label_;
};

}  // namespace plimsoll::program
