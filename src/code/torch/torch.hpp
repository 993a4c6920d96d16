// torch, as model code sees it: names bound to the tape and its operators. No operator is described here; each is one of program/ops.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "code/interpreter.hpp"
#include "code/torch/module_state.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::code {

/// A row of a library: name, signature (Interpreter::native), what it does.
struct LibraryRow {
  const char *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

class Torch {
 public:
  /// Where the name of an operator stands.
  enum class In : std::uint8_t { tensor, torch, both };

  explicit Torch(Interpreter& interpreter);
  ~Torch();
  Torch(const Torch&) = delete;
  Torch& operator=(const Torch&) = delete;

  // ---- where tensors are ----
  /// The device's tape from now on; before, all tensors are the host's.
  void put_on(program::Tape& device) { device_ = &device; }
  program::Tape& host() { return host_; }
  bool is_on_device(const program::Tensor& tensor) const { return &tensor.tape() == device_; }
  /// The tape of a device= argument; unbound or None: the host's.
  program::Tape& tape_of(const Value& device);
  /// Throws Raised, as PyTorch does, where tensors are on several devices; a number on the host may be anywhere.
  void check_devices(std::initializer_list<const program::Tensor*> tensors);

  // ---- tensors and values (torch.cpp) ----
  static bool is_tensor(const Value& value) { return value.as<TensorObject>() != nullptr; }
  const program::Tensor& tensor(const Value& value) const;
  /// An argument that must be a tensor; undefined where it is None or was not given.
  program::Tensor tensor_or_none(const Value& value, const char* what);
  const program::Tensor& tensor_of(const Value& value, const char* what);
  Value wrap(program::Tensor tensor);
  /// A tensor that is none yet.
  Value placeholder() { return Value(new TensorObject(i_.heap(), {})); }
  /// Throws Error (refused): a tensor of no elements, where one is not modelled.
  void check_filled(const program::Tensor& tensor);
  Value wrap_all(std::vector<program::Tensor> tensors);
  program::Dims sizes_of(const Value& value, const char* what);
  /// Sizes of a call: view(2, 3), view((2, 3)); those in `rest` first.
  program::Dims sizes_of(const std::vector<Value>& rest, const char* what);
  Value size_value(const program::Dims& sizes);
  int dimension_of(const Value& value, int rank);
  DType type_of(const Value& value);
  Value type_value(DType type);
  ClassObject* class_of(const Value& value);
  [[noreturn]] void wrong_shape(const std::string& message) { i_.raise("RuntimeError", message); }
  /// Throws Raised where the two do not broadcast.
  void check_broadcast(const program::Tensor& a, const program::Tensor& b);
  /// Throws Error (refused) where a tensor would get more dimensions or elements than are modelled.
  program::Dims checked(std::vector<std::int64_t> sizes);
  void check_rank(int rank);

  /// A method of tensors, a function of torch, or both.
  void define(In in, const char* name, const char* signature, const Native& run);
  /// What an operator in place has made takes the place of what its target was.
  Value replace(const Value& target, program::Tensor made);
  /// Throws Raised, as PyTorch does, where a leaf would be changed whose gradient is recorded.
  void check_changeable(const program::Tensor& tensor);
  /// Dimensions of a dim= argument, one or several; none where it is None or was not given.
  std::vector<int> dimensions_of(const Value& value, int rank);

  // ---- values that are followed (followed.cpp) ----
  /// What a tensor of one element holds, where that is known. `reads`: the host asks the device for it.
  std::optional<Value> known_number(const Value& value, bool reads);
  /// A tensor whose elements are these, in row-major order; the tensor alone where they are too many to be followed. `view_of`: whose
  /// storage it has.
  /// `dealt`: it follows from a router's choice, of which more are followed.
  Value follow(Value tensor, const std::vector<double>& values, const Value& view_of = {}, bool dealt = false);
  /// What topk and argmax choose of so many classes, dealt round robin as a balanced router deals tokens, where draws are expectations.
  Value deal(Value choices, std::int64_t classes);
  bool is_dealt(const Value& value) const;
  /// Places of what is true, [count, dimensions], and what they are. Throws Error (refused): it is not known; `what` names who asks.
  Value places_of(const Value& mask, const char* what);
  /// A tensor all of whose elements are that number, however many.
  Value follow_filled(Value tensor, double value, const Value& view_of = {});
  /// Throws Error (refused): what the tensor holds is not followed. Else its elements.
  const std::vector<double>& values_of(const Value& tensor, bool reads);
  bool follows(const Value& tensor) const;
  /// The number that all elements of the tensor are, where that is known; of a number itself.
  std::optional<double> uniform(const Value& value) const;

  // ---- operators of Python (operators.cpp) ----
  Value binary(Operator op, const Value& a, const Value& b);
  Value in_place(Operator op, const Value& target, const Value& other);
  Value compared(Operator op, const Value& a, const Value& b);
  Value unary(Operator op, const Value& value);
  program::Tensor matmul(const program::Tensor& a, const program::Tensor& b);
  // ---- indices (indexing.cpp) ----
  Value indexed(const Value& of, const Value& key);
  void set_indexed(const Value& of, const Value& key, const Value& value);
  /// How many elements of a mask are true. Throws Error (refused): it is not known; `what` names who asks.
  std::int64_t truths_in(const Value& mask, const char* what);
  void set_masked(const Value& of, const Value& mask, const Value& value);
  Value rows_of(const Value& of);
  // ---- attributes of tensors (tensor_methods.cpp) ----
  Value tensor_attribute(const Value& of, Symbol name);
  void set_tensor_attribute(const Value& of, Symbol name, const Value& value);
  std::vector<std::string> tensor_attributes() const;
  Value token_attribute(const TokenObject& token, Symbol name);
  // ---- modules (modules.cpp) ----
  Value module_attribute(InstanceObject& instance, Symbol name);
  bool set_module_attribute(InstanceObject& instance, Symbol name, const Value& value);
  bool erase_attribute(InstanceObject& instance, Symbol name);
  std::vector<Symbol> module_names(InstanceObject& instance);
  /// The state of a module; throws Raised where its __init__ was not called.
  ModuleState& state(const Value& module);
  Value make_parameter(program::Tensor tensor, bool trains = true);
  Value call_module(Bound& arguments);
  /// module.compile(): its calls run the graphs that the compiler makes of its forward.
  void compile(const Value& module, CompiledState compiled);
  /// The tensors within tuples, lists, dictionaries and transformers' outputs, in order; parameters are none.
  std::vector<Value> tensors_in(const Value& value);
  /// Calls what wants those of all places, and puts the ones that it has replaced where they stood. `same_values`: what a replaced one holds is
  /// what the tensor held in whose place it is.
  void give_tensors(std::vector<Value*> places, const std::function<void(std::vector<program::Tensor*>&)>& call, bool same_values = false);
  /// Modules below `root`, itself first, as torch's modules().
  std::vector<std::pair<std::string, Value>> all_modules(const Value& root);
  std::vector<std::pair<std::string, Value>> all_parameters(const Value& root);

  /// A function that runs within no_grad or enable_grad.
  Value without_grad(WrapperObject& wrapper, CallArguments arguments);
  /// What both tapes record of gradients.
  void enable_grad(bool yes);
  bool grad_enabled() const { return device_ != nullptr ? device_->grad_enabled : host_.grad_enabled; }
  /// A number that the host draws between 0 and 1 is taken to be its mean (layers that are dropped by a draw).
  bool expects_draws = false;
  /// torch.set_default_dtype: the type of floating tensors that are made without one.
  DType default_type = DType::fp32;

  Interpreter& interpreter() { return i_; }

 private:
  friend class TracedModule;
  friend void define_modules(Interpreter& i, Torch& torch);
  Value binary_result(Operator op, const Value& a, const Value& b);
  Value tensor_of_number(const Value& number);
  Value chosen_by_mask(const program::Tensor& x, int first, const Value& mask);
  Value run_module(const Value& module, CallArguments arguments);
  Value call_equal_layer(program::EqualLayers& equal, std::size_t layer, const Value& module, CallArguments arguments);
  Value call_hooked(program::Module& module, CallArguments arguments, const std::function<Value(CallArguments)>& forward);
  Value finish(program::ModuleCall& call, const program::Module& module, Value result);
  Value run_compiled(const Value& module, const Value& forward, CallArguments arguments);
  program::Tensor only_tensor(const CallArguments& arguments);

  Interpreter& i_;
  program::Tape& host_;
  program::Tape* device_ = nullptr;
  Value before_left_out_;  ///< what the last layer gave that ran before those of equal ones that do not
  std::unordered_map<Symbol, Value> methods_;  ///< of tensors
  Held<ClassObject> tensor_class_, parameter_class_;
};

/// A row of operators: where it stands, name, signature, what it does.
struct OperatorRow {
  Torch::In in;
  const char *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

/// Functions of torch and torch.nn.functional (functions.cpp, functional.cpp), methods of tensors, nn.Module and its classes,
/// torch.nn.init.
void define_functions(Interpreter& i, Torch& torch);
void define_functional(Interpreter& i, Torch& torch);
void define_tensor_methods(Interpreter& i, Torch& torch);
void define_modules(Interpreter& i, Torch& torch);
void define_layers(Interpreter& i, Torch& torch);
void define_contexts(Interpreter& i, Torch& torch);
void define_init(Interpreter& i, Torch& torch);
void define_checkpoint(Interpreter& i, Torch& torch);
void define_math(Interpreter& i, Torch& torch);
void define_choosing(Interpreter& i, Torch& torch);
void define_placing(Interpreter& i, Torch& torch);
void define_losses(Interpreter& i, Torch& torch);
void define_images(Interpreter& i, Torch& torch);
void define_creation(Interpreter& i, Torch& torch);
void define_more_layers(Interpreter& i, Torch& torch);
void define_multihead(Interpreter& i, Torch& torch);
void define_autograd_function(Interpreter& i, Torch& torch);
/// Reads of what tensors hold: item(), tolist().
void define_reads(Interpreter& i, Torch& torch);

}  // namespace plimsoll::code
