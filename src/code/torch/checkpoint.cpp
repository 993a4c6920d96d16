// torch.utils.checkpoint.checkpoint: the tape's own, over a function of the text.
#include "program/checkpoint.hpp"

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

using program::Tensor;

namespace {

/// A function of the text as a region: its tensor arguments are the region's, all else stays as it was given.
class Region {
 public:
  Region(Interpreter& interpreter, Bound& a) : i_(interpreter), function_(a[0]), positional_(a.rest), keywords_(a.keyword_rest) {}

  std::vector<Tensor> arguments() const {
    std::vector<Tensor> tensors;
    for (const Value& each : positional_)
      if (Torch::is_tensor(each)) tensors.push_back(i_.torch().tensor(each));
    return tensors;
  }

  std::vector<Tensor> operator()(const std::vector<Tensor>& tensors) {
    CallArguments arguments{positional_, keywords_};
    std::size_t next = 0;
    for (Value& each : arguments.positional)
      if (Torch::is_tensor(each)) each = i_.torch().wrap(tensors[next++]);
    const bool again = std::exchange(ran_, true);
    if (!again) {
      // What the caller still holds is not held once more while the region runs first.
      for (Value& each : positional_)
        if (Torch::is_tensor(each)) each = i_.torch().placeholder();
    }
    // In backward nobody of the text stands around it who could catch what Python raises.
    const Value result = again ? i_.call_from_outside(function_, std::move(arguments)) : i_.call(function_, std::move(arguments));
    is_tuple_ = result.as<SequenceObject>() != nullptr;
    const std::vector<Value> values = is_tuple_ ? result.as<SequenceObject>()->items : std::vector<Value>{result};
    std::vector<Tensor> results;
    for (const Value& each : values) results.push_back(i_.torch().tensor_or_none(each, "what a checkpointed function returns"));
    return results;
  }

  bool is_tuple() const { return is_tuple_; }

 private:
  Interpreter& i_;
  Value function_;
  std::vector<Value> positional_;
  std::vector<std::pair<Symbol, Value>> keywords_;
  bool ran_ = false, is_tuple_ = false;
};

Value checkpoint(Interpreter& i, Bound& a) {
  const bool reentrant = !a.has(1) || i.truth(a[1]);
  if (reentrant && !a.keyword_rest.empty())
    i.raise("ValueError", "Unexpected keyword arguments: " + i.names().text(a.keyword_rest.front().first));
  const auto region = std::make_shared<Region>(i, a);
  const std::vector<Tensor> arguments = region->arguments();
  if (arguments.empty()) i.unknown("a checkpoint of a function without tensors as arguments");
  program::Tape& tape = arguments.front().tape();
  const program::TupleRegion run = [region](const std::vector<Tensor>& tensors) { return (*region)(tensors); };
  std::vector<Tensor> results = reentrant ? program::checkpoint_reentrant(tape, run, arguments) : program::checkpoint(tape, run, arguments);
  std::vector<Value> values;
  for (Tensor& each : results) values.push_back(each ? i.torch().wrap(std::move(each)) : Value::none());
  return region->is_tuple() ? i.tuple(std::move(values)) : values.front();
}

}  // namespace

void define_checkpoint(Interpreter& i, Torch&) {
  i.library("torch.utils.checkpoint").attributes[i.symbol("checkpoint")] =
      i.native("torch.utils.checkpoint.checkpoint",
               "function, *args, use_reentrant=, preserve_rng_state=, determinism_check=, debug=, **kwargs", checkpoint);
}

}  // namespace plimsoll::code
