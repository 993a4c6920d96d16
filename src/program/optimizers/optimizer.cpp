#include "program/optimizers/optimizer.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/optimizer_kinds.hpp"
#include "program/optimizers/optimizer_torch.hpp"
#include "program/optimizers/optimizer_torchao.hpp"
#include "program/reduction.hpp"
#include "program/resting.hpp"

namespace plimsoll::program {

Tensor state_of(Tape& tape, const Dims& sizes, DType type) {
  Tensor state = tape.empty(sizes, type, Category::optimizer_state);
  in_place(state, {});
  return state;
}

namespace {

Tensor state_like(const Tensor& parameter, std::optional<DType> type = {}) {
  return state_of(parameter.tape(), parameter.sizes(), type.value_or(parameter.dtype()));
}

/// torch.optim.Adam and AdamW.
class Adam : public Optimizer {
 public:
  Adam(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation, std::optional<DType> state_type)
      : Optimizer(tape, std::move(parameters)),
        implementation_(implementation),
        state_type_(state_type),
        first_(parameters_.size()),
        second_(parameters_.size()),
        steps_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "adam";
    create_states();
    switch (implementation_) {
      case OptimizerImpl::foreach:
        foreach_step();
        break;
      case OptimizerImpl::fused:
        for (const std::vector<Tensor>& group : grouped_by_type(with_gradients()))
          launch_foreach(tape_, steps_on_device(group.front().dtype()), 1, 1);  // _foreach_add_(state_steps, 1)
        launch_foreach(tape_, with_gradients(), 4, 3, {.function = MultiTensor::Function::fused});
        break;
      default:
        for_loop_step();
    }
  }

 private:
  /// Step counts of the parameters of a type.
  std::vector<Tensor> steps_on_device(DType type) const {
    std::vector<Tensor> counts;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (steps_[i] && parameters_[i].dtype() == type) counts.push_back(steps_[i]);
    return counts;
  }

  void create_states() {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad() || first_[i]) continue;
      if (implementation_ == OptimizerImpl::fused) {  // the step count lives on the device only when fused
        steps_[i] = tape_.empty({}, DType::fp32, Category::optimizer_state);
        in_place(steps_[i], {});
      }
      first_[i] = state_like(parameter, state_type_);
      second_[i] = state_like(parameter, state_type_);
    }
  }

  /// _multi_tensor_adam: one list of temporaries, exp_avg_sq_sqrt.
  void foreach_step() {
    const std::vector<Tensor> parameters = with_gradients();
    std::vector<Tensor> roots;
    roots.reserve(parameters.size());
    launch_foreach(tape_, parameters, 1, 1);  // weight decay
    launch_foreach(tape_, parameters, 2, 1);  // lerp
    launch_foreach(tape_, parameters, 1, 1);  // mul
    launch_foreach(tape_, parameters, 3, 1);  // addcmul
    for (const Tensor& parameter : parameters) roots.push_back(tape_.empty(parameter.sizes(), parameter.dtype()));
    launch_foreach(tape_, parameters, 2, 1, {.made = 1});        // sqrt
    launch_foreach(tape_, parameters, 1, 1, {.scalars = true});  // div
    launch_foreach(tape_, parameters, 1, 1);                     // add
    launch_foreach(tape_, parameters, 3, 1, {.scalars = true});  // addcdiv
  }

  /// _single_tensor_adam: (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps), parameter by parameter.
  void for_loop_step() {
    Tensor denominator;  // Python's variable lives on until the next parameter's
    for (const Tensor& parameter : with_gradients()) {
      for (int i = 0; i < 4; ++i) in_place(parameter, {&parameter});  // decay, lerp, mul, addcmul
      Tensor root = elementwise(tape_, {&parameter}, parameter.dtype());
      Tensor scaled = elementwise(tape_, {&root}, parameter.dtype());
      root.reset();
      denominator = std::move(scaled);
      in_place(denominator, {&denominator});
      in_place(parameter, {&parameter, &denominator});
    }
  }

  std::vector<Tensor> states() override {
    std::vector<Tensor> all;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (first_[i]) all.insert(all.end(), {first_[i], second_[i]});
    return all;
  }

  OptimizerImpl implementation_;
  std::optional<DType> state_type_;
  std::vector<Tensor> first_, second_, steps_;
};

/// torch.optim.SGD; momentum buffers are clones of the first gradients.
class Sgd final : public Optimizer {
 public:
  Sgd(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation, bool momentum)
      : Optimizer(tape, std::move(parameters)), implementation_(implementation), momentum_(momentum), buffers_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "sgd";
    if (momentum_) update_buffers();
    if (implementation_ == OptimizerImpl::for_loop) {
      for (const Tensor& parameter : with_gradients()) in_place(parameter, {&parameter, &parameter});
    } else {
      launch_foreach(tape_, with_gradients(), 2, 1);
    }
  }

 private:
  void update_buffers() {
    bool created = false;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].grad() || buffers_[i]) continue;
      buffers_[i] = state_like(parameters_[i]);
      created = true;
    }
    if (created) return;
    if (implementation_ == OptimizerImpl::for_loop) {
      for (const Tensor& parameter : with_gradients()) {
        in_place(parameter, {&parameter});
        in_place(parameter, {&parameter, &parameter});
      }
    } else if (implementation_ == OptimizerImpl::foreach) {  // mul, then add; fused does both in its one kernel
      launch_foreach(tape_, with_gradients(), 1, 1);
      launch_foreach(tape_, with_gradients(), 2, 1);
    }
  }

  OptimizerImpl implementation_;
  bool momentum_;
  std::vector<Tensor> buffers_;
};

/// transformers.Adafactor(scale_parameter=False, relative_step=False): parameter by parameter, in fp32 whatever the weights' type.
class Adafactor final : public Optimizer {
 public:
  Adafactor(Tape& tape, std::vector<Tensor> parameters) : Optimizer(tape, std::move(parameters)), states_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "adafactor";
    Tensor gradient, weights, update;  // Python's variables live on until the next parameter's
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].grad()) update_one(parameters_[i], states_[i], gradient, weights, update);
    }
  }

 private:
  struct State {
    Tensor row, column, full, rms;
  };

  void create(State& state, const Tensor& parameter, const Tensor& gradient) {
    const auto zeroed = [&](const Dims& sizes) { return state_of(tape_, sizes, gradient.dtype()); };
    if (parameter.rank() >= 2) {
      Dims row, column;
      for (int i = 0; i < parameter.rank(); ++i) {
        if (i != parameter.rank() - 1) row.push_back(parameter.size(i));
        if (i != parameter.rank() - 2) column.push_back(parameter.size(i));
      }
      state.row = zeroed(row);
      state.column = zeroed(column);
    } else {
      state.full = zeroed(parameter.sizes());
    }
  }

  /// _rms: norm over everything, divided by the root of the count: a scalar.
  Tensor rms(const Tensor& x) {
    const Tensor norm = reduce(x, std::vector<bool>(static_cast<std::size_t>(x.rank()), true), false, x.dtype());
    return elementwise(tape_, {&norm}, x.dtype());
  }

  /// _approx_sq_grad: the outer product of the factors' inverse roots.
  Tensor approximation(const State& state) {
    Tensor row_factor;
    {
      std::vector<bool> last(static_cast<std::size_t>(state.row.rank()), false);
      last.back() = true;
      const Tensor mean = reduce(state.row, last, true, state.row.dtype());
      row_factor = elementwise(tape_, {&state.row, &mean}, state.row.dtype());
    }
    in_place(row_factor, {&row_factor});
    const Tensor column_factor = elementwise(tape_, {&state.column}, state.column.dtype());
    const Tensor rows = unsqueeze(row_factor, -1), columns = unsqueeze(column_factor, -2);
    return elementwise(tape_, {&rows, &columns}, state.row.dtype());
  }

  void accumulate(const Tensor& into, const Tensor& update, int dimension) {
    std::vector<bool> reduced(static_cast<std::size_t>(update.rank()), false);
    reduced[static_cast<std::size_t>(update.rank() + dimension)] = true;
    in_place(into, {&into});
    const Tensor mean = reduce(update, reduced, false, update.dtype());
    in_place(into, {&into, &mean});
  }

  void clip(const Tensor& update) {
    Tensor scale = rms(update);
    scale = elementwise(tape_, {&scale}, update.dtype());
    in_place(scale, {&scale});
    in_place(update, {&update, &scale});
  }

  void update_one(const Tensor& parameter, State& state, Tensor& gradient, Tensor& weights, Tensor& update) {
    const bool low = parameter.dtype() != DType::fp32;
    gradient = parameter.grad();
    if (low) gradient = to(gradient, DType::fp32);
    if (!state.row && !state.full) create(state, parameter, gradient);
    weights = parameter.detach();
    if (low) weights = to(weights, DType::fp32);
    keep_rms(state, weights);
    {
      const Tensor square = elementwise(tape_, {&gradient}, gradient.dtype());
      update = elementwise(tape_, {&square}, gradient.dtype());
    }
    if (state.row) {
      accumulate(state.row, update, -1);
      accumulate(state.column, update, -2);
      update = approximation(state);
    } else {
      in_place(state.full, {&state.full});
      in_place(state.full, {&state.full, &update});
      update = elementwise(tape_, {&state.full}, state.full.dtype());
    }
    in_place(update, {&update, &gradient});
    clip(update);
    in_place(update, {&update});
    const Tensor negated = elementwise(tape_, {&update}, update.dtype());
    in_place(weights, {&weights, &negated});
    if (low) in_place(parameter, {&weights});
  }

  /// state["RMS"] is a new scalar every step. Its block is kept instead of being given back and taken again, so that a step leaves what it
  /// found.
  void keep_rms(State& state, const Tensor& weights) {
    const Tensor value = rms(weights);
    if (!state.rms) {
      state.rms = value;
      Tape::categorize(value, Category::optimizer_state);
    }
  }

  std::vector<State> states_;
};

}  // namespace

void Optimizer::step() {
  tape_.host(HostWork::optimizer);
  do_step();
}

void Optimizer::zero_grad() {
  tape_.host(HostWork::optimizer);
  for (const Tensor& parameter : parameters_) parameter.grad().reset();
}

std::vector<Tensor> Optimizer::states() { refuse("states of this optimizer that rest on the host between steps are not modelled", "optimizer", "adamw"); }

void Optimizer::rest_states() {
  for (const Tensor& state : states()) rest_storage(state);
}

void Optimizer::fetch_states() {
  for (const Tensor& state : states()) fetch_storage(state, Category::optimizer_state);
}

std::vector<Tensor> Optimizer::with_gradients() const {
  std::vector<Tensor> with;
  with.reserve(parameters_.size());
  for (const Tensor& parameter : parameters_) {
    if (parameter.grad()) with.push_back(parameter);
  }
  return with;
}

std::vector<Tensor> trainable_tensors(Module& root) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : root.all_parameters()) {
    if (parameter->trainable) tensors.push_back(parameter->tensor);
  }
  return tensors;
}

namespace {

/// Bounds of one launch (MultiTensorApply.cuh): so many blocks of a chunk each, and tensors by the number of lists, fewer where each has a
/// number of its own. They fill the kernel's arguments: 4 KB, or 32 KB in PyTorch's builds for CUDA 13 from 2.12 on.
struct LaunchBounds {
  std::int64_t blocks;
  std::array<int, 5> tensors, tensors_with_scalars;
};
constexpr LaunchBounds kSmallArguments{320, {110, 64, 48, 36, 30}, {96, 64, 48, 36, 30}};
constexpr LaunchBounds kLargeArguments{2240, {770, 448, 336, 252, 210}, {672, 448, 336, 252, 210}};

}  // namespace

std::vector<std::vector<Tensor>> grouped_by_type(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<Tensor>> groups;
  for (const Tensor& tensor : tensors) {
    auto own = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.front().dtype() == tensor.dtype(); });
    if (own == groups.end()) own = groups.insert(groups.begin(), std::vector<Tensor>{});
    own->push_back(tensor);
  }
  return groups;
}

void launch_foreach(Tape& tape, const std::vector<Tensor>& tensors, int depth, int written, const Foreach& options) {
  tape.host(HostWork::optimizer_tensor, static_cast<std::int64_t>(tensors.size()));
  for (const std::vector<Tensor>& group : grouped_by_type(tensors)) {
    std::vector<std::int64_t> elements;
    elements.reserve(group.size());
    for (const Tensor& tensor : group) elements.push_back(tensor.elements());
    launch_foreach(tape, elements, group.front().dtype(), depth, written, options);
  }
}

void launch_foreach(Tape& tape, const std::vector<std::int64_t>& elements, DType type, int depth, int written, const Foreach& options) {
  constexpr std::int64_t kChunk = 65536;
  const LaunchBounds& bounds = tape.torch.large_kernel_arguments() ? kLargeArguments : kSmallArguments;
  const int most_tensors = (options.scalars ? bounds.tensors_with_scalars : bounds.tensors)[static_cast<std::size_t>(depth - 1)];
  int held = 0;
  std::int64_t blocks = 0, launched = 0;
  const auto flush = [&] {
    if (blocks > 0) {
      const Operand list{launched, type, Walk::contiguous};
      MultiTensor kernel{options.function, held, launched, {}};
      for (int i = 0; i < depth - options.made; ++i) kernel.operands.read(list);
      const Operand result{launched, options.written_as.value_or(list.type), Walk::contiguous};
      for (int i = 0; i < written; ++i) kernel.operands.write(result);
      tape.kernel({kernel});
    }
    blocks = launched = 0;
  };
  for (std::int64_t left : elements) {
    if (left == 0) continue;
    ++held;
    while (left > 0) {  // as many of its chunks as the launch still takes
      const std::int64_t chunks = std::min(ceil_div(left, kChunk), bounds.blocks - blocks), taken = std::min(left, chunks * kChunk);
      blocks += chunks;
      launched += taken;
      left -= taken;
      if (blocks < bounds.blocks && (left > 0 || held != most_tensors)) continue;
      flush();
      held = left > 0 ? 1 : 0;
    }
  }
  flush();
}

/// Of torch.optim only these have fused=True.
static void refuse_unless_fused(OptimizerKind kind) {
  constexpr OptimizerKind kFused[] = {OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::sgdm,
                                      OptimizerKind::adagrad};
  if (std::find(std::begin(kFused), std::end(kFused), kind) == std::end(kFused))
    refuse("optimizer '" + std::string(name_of(kind)) + "' has no fused implementation", "optimizer_impl", "leave it out");
}

std::unique_ptr<Optimizer> make_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape, std::vector<Tensor> parameters,
                                          std::optional<DType> state_type) {
  if (implementation == OptimizerImpl::fused) refuse_unless_fused(kind);
  if (std::unique_ptr<Optimizer> made = make_torch_optimizer(kind, implementation, tape, parameters)) return made;
  if (std::unique_ptr<Optimizer> made = make_bitsandbytes(kind, tape, parameters)) return made;
  switch (kind) {
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return std::make_unique<Adam>(tape, std::move(parameters), implementation, state_type);
    case OptimizerKind::sgd:
      return std::make_unique<Sgd>(tape, std::move(parameters), implementation, false);
    case OptimizerKind::sgdm:
      return std::make_unique<Sgd>(tape, std::move(parameters), implementation, true);
    case OptimizerKind::adafactor:
      return std::make_unique<Adafactor>(tape, std::move(parameters));
    case OptimizerKind::adagrad:
      return make_adagrad(tape, std::move(parameters), implementation);
    case OptimizerKind::rmsprop:
      return make_rmsprop(tape, std::move(parameters), implementation);
    case OptimizerKind::lion:
      return make_lion(tape, std::move(parameters));
    case OptimizerKind::adamw_torch_8bit:
      return make_torchao_adam(tape, std::move(parameters));
    case OptimizerKind::lora_fa:
      return make_lora_fa(tape, std::move(parameters));
    default:
      refuse("optimizer '" + std::string(name_of(kind)) + "' is not modelled");
  }
}

}  // namespace plimsoll::program
