// torch.autograd.Function: forward and backward in Python, a node of the graph between them (torch/csrc/autograd/python_function.cpp).
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

/// What is saved of a function's own results takes no part in the graph that it is of.
void detach_results(Interpreter& i, const Value& context, const std::vector<Value>& results) {
  const Value saved = i.attribute_or(context, i.symbol("saved_tensors"));
  if (!saved.is_bound()) return;
  std::vector<Value> kept = values_of(saved);
  for (Value& each : kept)
    for (const Value& result : results)
      if (Torch::is_tensor(each) && each.same(result)) {
        each = i.torch().wrap(i.torch().tensor(result).detach());
        break;
      }
  context.as<InstanceObject>()->attributes.set(i.symbol("saved_tensors"), i.tuple(std::move(kept)));
}

/// Calls backward(ctx, *gradients) and gives each tensor that forward was given what stands in its argument's place.
void run_backward(Interpreter& i, const Value& type, const Value& context, const std::vector<std::size_t>& places, std::size_t results,
                  BackwardCall& call) {
  const WithoutGrad frozen(i.torch());
  std::vector<Value> arguments{context};
  for (std::size_t at = 0; at < results; ++at) {
    const program::TensorMeta& meta = call.node.outputs[at];
    arguments.push_back(i.torch().wrap(call.grad(at) ? call.grad(at) : program::zeros(call.tape, meta.sizes, meta.type)));
  }
  const Value result = i.call_from_outside(i.attribute(type, i.symbol("backward")), {std::move(arguments), {}});
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
  detach_results(i, context, results);
  op.finish_all(made, [&i, type, context, places, count = results.size()](BackwardCall& call) {
    run_backward(i, type, context, places, count, call);
  });
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
