// torch.compile of modules of the text: what their forward does is traced once, on a tape of its own, and runs as the compiler's graphs
// from then on (program/inductor/module_graphs.hpp).
#include <algorithm>
#include <memory>
#include <utility>

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "program/inductor/module_graphs.hpp"
#include "program/modules/transformers/compiled_layer.hpp"

namespace plimsoll::code {

using program::Tensor;

/// While it lives the module's tensors, and those of the modules below it, are another tree's on another tape.
class TracedModule {
 public:
  TracedModule(Torch& torch, const Value& module, program::Module& twin, program::Tape& tape)
      : torch_(torch), device_before_(std::exchange(torch.device_, &tape)) {
    for (const auto& [path, value] : torch.all_modules(module)) {
      ModuleState& state = torch.state(value);
      program::Module* const other = path.empty() ? &twin : twin.find(path);
      if (other == nullptr) throw Error(ErrorCode::internal, "the traced tree has no module '" + path + "'");
      States before{&state, state.module, state.buffers, {}};
      state.module = other;
      std::size_t next = 0;
      for (const auto& item : state.parameters) {
        if (item.second.is_none()) continue;
        auto* const parameter = item.second.as<TensorObject>();
        before.parameters.emplace_back(parameter, std::exchange(parameter->parameter, other->parameters.at(next++)));
      }
      next = 0;
      for (ModuleState::Buffer& buffer : state.buffers)
        if (!buffer.value.is_none()) buffer.value = torch.wrap(other->buffers.at(next++).tensor);
      before_.push_back(std::move(before));
    }
  }
  ~TracedModule() {
    torch_.device_ = device_before_;
    for (States& before : before_) {
      before.state->module = before.module;
      before.state->buffers = std::move(before.buffers);
      for (auto& [parameter, slot] : before.parameters) parameter->parameter = std::move(slot);
    }
  }
  TracedModule(const TracedModule&) = delete;
  TracedModule& operator=(const TracedModule&) = delete;

 private:
  struct States {
    ModuleState* state;
    program::Module* module;
    std::vector<ModuleState::Buffer> buffers;
    std::vector<std::pair<TensorObject*, std::shared_ptr<program::Parameter>>> parameters;
  };
  Torch& torch_;
  program::Tape* const device_before_;
  std::vector<States> before_;
};

namespace {

std::vector<Value*> places_in(CallArguments& arguments) {
  std::vector<Value*> places;
  for (Value& each : arguments.positional) places.push_back(&each);
  for (auto& item : arguments.keywords) places.push_back(&item.second);
  return places;
}

/// Hooks of modules within a compiled one would cut its graph.
void refuse_wrapped_parts(program::Module& module) {
  for (program::Module* part : module.all_modules())
    if (part != &module && !(part->pre_forward.empty() && part->post_forward.empty()))
      refuse("compiled modules whose parts are wrapped on their own are not modelled", part->path, "wrap whole blocks");
}

/// The tensor that a traced forward gives, alone or with nothing beside it in a tuple.
Tensor result_of(Interpreter& i, const Value& answer) {
  const std::vector<Value> tensors = i.torch().tensors_in(answer);
  if (tensors.size() != 1)
    refuse("torch.compile of a module that gives " + std::to_string(tensors.size()) + " tensors is not modelled", "compile", "false");
  return i.torch().tensor(tensors.front());
}

}  // namespace

void Torch::compile(const Value& module, CompiledState compiled) {
  state(module).compiled = std::make_unique<CompiledState>(std::move(compiled));
}

Value Torch::run_compiled(const Value& module, const Value& forward, CallArguments arguments) {
  ModuleState& own = state(module);
  CompiledState& compiled = *own.compiled;
  refuse_wrapped_parts(*own.module);
  std::vector<Tensor> given;
  give_tensors(places_in(arguments), [&](std::vector<Tensor*>& tensors) {
    for (const Tensor* tensor : tensors) given.push_back(*tensor);
  });
  const auto hidden = std::find_if(given.begin(), given.end(), [](const Tensor& tensor) {
    return tensor.dtype() == DType::fp32 || tensor.dtype() == DType::bf16 || tensor.dtype() == DType::fp16;
  });
  if (hidden == given.end()) i_.unknown("a compiled module that is given no floating tensor");
  program::check_compiled_layer(*own.module, *hidden);
  const auto traced = [&](const std::vector<Tensor>& tensors) {
    CallArguments on_twin = arguments;
    const auto put = [&](std::vector<Tensor*>& places) {
      for (std::size_t at = 0; at < places.size(); ++at) *places[at] = tensors[at];
    };
    give_tensors(places_in(on_twin), put, true);
    Value answer = i_.call(forward, std::move(on_twin));
    const Tensor result = result_of(i_, answer);
    give_tensors({&answer}, [](std::vector<Tensor*>& places) { *places.front() = {}; });  // its frame alone: tensors die with the trace's tape
    compiled.answer = std::move(answer);
    return result;
  };
  const program::inductor::CompiledForward layer{
      .name = "compiled_layer",
      .kind = module.object(),
      .checkpointed = compiled.checkpointed,
      .make = [&](program::Module& twin, program::Tape& tape) -> program::inductor::CompiledForward::Eager {
        return [traced, bound = std::make_shared<TracedModule>(*this, module, twin, tape)](const std::vector<Tensor>& tensors) {
          return std::vector<Tensor>{traced(tensors)};
        };
      }};
  Tensor result = compiled.graphs->run(layer, *own.module, given).front();
  Value answer = compiled.answer;
  give_tensors({&answer}, [&](std::vector<Tensor*>& places) { *places.front() = std::move(result); });
  return answer;
}

}  // namespace plimsoll::code
