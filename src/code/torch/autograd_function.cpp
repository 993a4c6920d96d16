// torch.autograd.Function: forward and backward in Python, a node of the graph between them (torch/csrc/autograd/python_function.cpp).
#include <algorithm>

#include "code/torch/torch.hpp"
#include "program/python_function.hpp"

namespace plimsoll::code {

using program::BackwardCall;
using program::Tensor;

namespace {

/// What holds while Python's forward or backward runs: no gradient is recorded.
class WithoutGrad {
 public:
  explicit WithoutGrad(Torch& torch) : torch_(torch), before_(torch.grad_enabled()) { torch_.enable_grad(false); }
  ~WithoutGrad() { torch_.enable_grad(before_); }
  WithoutGrad(const WithoutGrad&) = delete;
  WithoutGrad& operator=(const WithoutGrad&) = delete;

 private:
  Torch& torch_;
  bool before_;
};

std::vector<Value> values_of(const Value& result) {
  const auto* several = result.as<SequenceObject>();
  return several != nullptr ? several->items : std::vector<Value>{result};
}

Value save(Interpreter& i, Bound& a) {
  a[0].as<InstanceObject>()->attributes.set(i.symbol("saved_tensors"), i.tuple(a.rest));
  return Value::none();
}

/// What save_for_backward was given, kept by the node; where each is found among what it saves.
std::vector<std::size_t> keep_saved(Interpreter& i, const Value& context, const std::vector<Value>& results, program::PythonFunction& op) {
  const Symbol name = i.symbol("saved_tensors");
  const Value saved = i.attribute_or(context, name);
  if (!saved.is_bound()) return {};
  const std::vector<Value> values = values_of(saved);
  context.as<InstanceObject>()->attributes.erase(name);
  const auto is_result = [&](const Value& value) {
    return std::any_of(results.begin(), results.end(), [&](const Value& result) { return value.same(result); });
  };
  std::vector<std::size_t> places(values.size());
  std::size_t next = 0;
  for (const bool of_results : {false, true})  // a node lists its own results behind all else that it saves
    for (std::size_t at = 0; at < values.size(); ++at) {
      if (is_result(values[at]) != of_results) continue;
      const Tensor tensor = i.torch().tensor_or_none(values[at], "what is saved for backward");
      of_results ? op.save_output(tensor) : op.save_if(tensor.defined(), tensor);
      places[at] = next++;
    }
  return places;
}

struct Applied {
  Value type, context;
  std::vector<std::size_t> places;  ///< of tensors among forward's arguments
  std::vector<std::size_t> saved;   ///< of what was saved among what the node keeps
  std::size_t results = 0;
};

/// Calls backward(ctx, *gradients) and gives each tensor that forward was given what stands in its argument's place.
void run_backward(Interpreter& i, const Applied& applied, BackwardCall& call) {
  const auto& [type, context, places, kept, results] = applied;
  const WithoutGrad frozen(i.torch());
  std::vector<Value> saved;
  for (const std::size_t at : kept) saved.push_back(call.saved(at) ? i.torch().wrap(call.saved(at)) : Value::none());
  context.as<InstanceObject>()->attributes.set(i.symbol("saved_tensors"), i.tuple(std::move(saved)));
  std::vector<Value> arguments{context};
  for (std::size_t at = 0; at < results; ++at) {
    const program::TensorMeta& meta = call.node.outputs[at];
    arguments.push_back(i.torch().wrap(call.grad(at) ? call.grad(at) : program::zeros(call.tape, meta.sizes, meta.type)));
  }
  const Value result = i.call_from_outside(i.attribute(type, i.symbol("backward")), {std::move(arguments), {}});
  context.as<InstanceObject>()->attributes.erase(i.symbol("saved_tensors"));
  const std::vector<Value> gradients = values_of(result);
  for (std::size_t input = 0; input < places.size(); ++input) {
    if (places[input] >= gradients.size()) i.raise("RuntimeError", "function returned an incorrect number of gradients");
    const Value& each = gradients[places[input]];
    if (call.needs(input) && !each.is_none()) call.give(input, i.torch().tensor_of(each, "a gradient"));
  }
  call.drop_gradients();
}

/// Function.apply(*arguments).
Value apply(Interpreter& i, Bound& a) {
  const Value type = a[0];
  std::vector<std::size_t> places;  // of tensors among the arguments
  std::vector<Tensor> inputs;
  for (std::size_t at = 0; at < a.rest.size(); ++at)
    if (Torch::is_tensor(a.rest[at])) {
      places.push_back(at);
      inputs.push_back(i.torch().tensor(a.rest[at]));
    }
  if (inputs.empty()) i.unknown("an autograd.Function without tensors as arguments");
  program::List<const Tensor*> operands;
  for (const Tensor& each : inputs) operands.push_back(&each);
  const Value context(new InstanceObject(
      i.heap(), Held<ClassObject>(i.library("torch.autograd.function").attributes.at(i.symbol("FunctionCtx")).as<ClassObject>())));
  std::vector<Value> needed;
  for (const Value& each : a.rest) needed.push_back(Value::boolean(Torch::is_tensor(each) && i.torch().tensor(each).requires_grad()));
  context.as<InstanceObject>()->attributes.set(i.symbol("needs_input_grad"), i.tuple(std::move(needed)));
  program::PythonFunction op("autograd_function", std::move(operands));
  std::vector<Value> arguments{context};
  arguments.insert(arguments.end(), a.rest.begin(), a.rest.end());
  Value result;
  {
    const WithoutGrad frozen(i.torch());
    result = i.call(i.attribute(type, i.symbol("forward")), std::move(arguments));
  }
  const std::vector<Value> results = values_of(result);
  std::vector<Tensor> made;
  for (const Value& each : results) {
    made.push_back(i.torch().tensor_of(each, "what an autograd.Function returns"));
    for (const Tensor& input : inputs)
      if (input.impl() == made.back().impl()) i.unknown("an autograd.Function that returns its own argument");
  }
  Applied applied{type, context, std::move(places), keep_saved(i, context, results, op), results.size()};
  op.finish_all(made, [&i, applied = std::move(applied)](BackwardCall& call) { run_backward(i, applied, call); });
  for (std::size_t at = 0; at < made.size(); ++at) results[at].as<TensorObject>()->tensor = std::move(made[at]);
  return result;
}

}  // namespace

void define_autograd_function(Interpreter& i, Torch&) {
  const Held<ClassObject> context = i.native_class("torch.autograd.function.FunctionCtx", {i.builtin_class("object")});
  context->attributes.set(i.symbol("save_for_backward"), i.method("save_for_backward", "self, *tensors", save));
  i.library("torch.autograd.function").attributes[i.symbol("FunctionCtx")] = Value(context);
  const Held<ClassObject> type = i.native_class("torch.autograd.Function", {i.builtin_class("object")});
  const Value run = i.native("torch.autograd.Function.apply", "cls, *arguments", apply);
  type->attributes.set(i.symbol("apply"), Value(new WrapperObject(i.heap(), WrapperObject::Kind::class_method, run)));
  i.library("torch.autograd").attributes[i.symbol("Function")] = Value(type);
  i.library("torch.autograd.function").attributes[i.symbol("Function")] = Value(type);
}

}  // namespace plimsoll::code
