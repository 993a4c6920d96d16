#include "program/optimizers/optimizer_torch.hpp"

#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

using Tensors = std::vector<Tensor>;

/// States like the parameter, made in the first step; then the step over lists or parameter by parameter. In the loop Python's variables
/// live on until the next parameter's take their names.
class PerParameter : public Optimizer {
 public:
  PerParameter(const char* name, Tape& tape, Tensors parameters, bool loops)
      : Optimizer(tape, std::move(parameters)), name_(name), loops_(loops), states_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = name_;
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].grad() && states_[i].empty()) create(parameters_[i], states_[i]);
    if (loops_)
      for_loop_step();
    else
      foreach_step(with_gradients());
  }

 protected:
  virtual void create(const Tensor& parameter, Tensors& states) {
    for (int i = 0; i < 2; ++i) states.push_back(state(parameter.sizes(), parameter.dtype()));
  }
  virtual void foreach_step(const Tensors& parameters) = 0;
  virtual void for_loop_step() = 0;

  Tensor state(const Dims& sizes, DType type) { return state_of(tape_, sizes, type); }

  /// A list of temporaries like `like`, made by one foreach operator over `depth` lists.
  Tensors list(const Tensors& like, int depth) {
    Tensors made;
    made.reserve(like.size());
    for (const Tensor& tensor : like) made.push_back(tape_.empty(tensor.sizes(), tensor.dtype()));
    launch_foreach(tape_, like, depth, 1, {.made = 1});
    return made;
  }
  /// A foreach operator in place over `depth` lists.
  void update(const Tensors& tensors, int depth) { launch_foreach(tape_, tensors, depth, 1); }

  /// A new tensor of one elementwise kernel.
  Tensor made_from(std::initializer_list<const Tensor*> inputs, const Tensor& like) { return elementwise(tape_, inputs, like.dtype()); }

  const char* name_;
  bool loops_;
  std::vector<Tensors> states_;
};

class NAdam final : public PerParameter {
 public:
  NAdam(Tape& tape, Tensors parameters, bool loops) : PerParameter("nadam", tape, std::move(parameters), loops) {}

 protected:
  void foreach_step(const Tensors& parameters) override {
    update(parameters, 2);  // lerp
    update(parameters, 1);  // mul
    update(parameters, 3);  // addcmul
    const Tensors roots = list(parameters, 2);
    update(roots, 1);                                         // div
    update(roots, 1);                                         // add
    for (int i = 0; i < 2; ++i) update(parameters, 3);        // addcdiv with the gradient, with the moment
  }

  void for_loop_step() override {
    Tensor denominator;
    for (const Tensor& parameter : with_gradients()) {
      for (int i = 0; i < 3; ++i) in_place(parameter, {&parameter});  // lerp, mul, addcmul
      Tensor corrected = made_from({&parameter}, parameter);
      Tensor root = made_from({&corrected}, parameter);
      corrected.reset();
      denominator = std::move(root);
      in_place(denominator, {&denominator});
      for (int i = 0; i < 2; ++i) in_place(parameter, {&parameter, &denominator});
    }
  }
};

class RAdam final : public PerParameter {
 public:
  RAdam(Tape& tape, Tensors parameters, bool loops) : PerParameter("radam", tape, std::move(parameters), loops) {}

 protected:
  void foreach_step(const Tensors& parameters) override {
    update(parameters, 2);  // lerp
    update(parameters, 1);  // mul
    update(parameters, 3);  // addcmul
    const Tensors buffer = list(parameters, 2);
    for (int i = 0; i < 4; ++i) update(buffer, 1);  // add, div, reciprocal, add
    update(parameters, 3);                          // addcmul
  }

  /// The average is too short to be rectified in the first five steps; every step but the first is recorded as one beyond them.
  void for_loop_step() override {
    const bool rectifies = std::exchange(began_, true);
    Tensor corrected;
    for (const Tensor& parameter : with_gradients()) {
      for (int i = 0; i < 3; ++i) in_place(parameter, {&parameter});
      corrected = made_from({&parameter}, parameter);
      Tensor scaled = made_from({&corrected}, parameter);
      if (!rectifies) {
        in_place(parameter, {&parameter, &scaled});
        continue;
      }
      const Tensor rate = adaptive_rate(parameter);
      const Tensor moved = made_from({&scaled, &rate}, parameter);
      scaled.reset();
      const Tensor rectified = made_from({&moved}, parameter);
      in_place(parameter, {&parameter, &rectified});
    }
  }

 private:
  /// _compute_adaptive_lr: number / tensor is tensor.reciprocal() * number.
  Tensor adaptive_rate(const Tensor& parameter) {
    const Tensor root = made_from({&parameter}, parameter);
    in_place(root, {&root});
    const Tensor inverse = made_from({&root}, parameter);
    return made_from({&inverse}, parameter);
  }

  bool began_ = false;
};

class Adamax final : public PerParameter {
 public:
  Adamax(Tape& tape, Tensors parameters, bool loops) : PerParameter("adamax", tape, std::move(parameters), loops) {}

 protected:
  void foreach_step(const Tensors& parameters) override {
    update(parameters, 2);  // lerp
    update(parameters, 1);  // mul
    const Tensors magnitudes = list(parameters, 2);
    update(magnitudes, 1);  // add
    update(magnitudes, 2);  // maximum
    update(parameters, 3);  // addcdiv
  }

  void for_loop_step() override {
    for (const Tensor& parameter : with_gradients()) {
      for (int i = 0; i < 2; ++i) in_place(parameter, {&parameter});  // lerp, mul
      {
        const Tensor magnitude = made_from({&parameter}, parameter);
        in_place(magnitude, {&magnitude});
        in_place(parameter, {&parameter, &magnitude});
      }
      in_place(parameter, {&parameter, &parameter});
    }
  }
};

class Adadelta final : public PerParameter {
 public:
  Adadelta(Tape& tape, Tensors parameters, bool loops) : PerParameter("adadelta", tape, std::move(parameters), loops) {}

 protected:
  void foreach_step(const Tensors& parameters) override {
    update(parameters, 1);  // mul
    update(parameters, 3);  // addcmul
    const Tensors deviations = list(parameters, 2);
    update(deviations, 1);  // sqrt
    const Tensors deltas = list(parameters, 2);
    update(deltas, 1);      // sqrt
    update(deltas, 2);      // div
    update(deltas, 2);      // mul
    update(parameters, 1);  // mul
    update(parameters, 3);  // addcmul
    update(parameters, 2);  // add
  }

  void for_loop_step() override {
    Tensor deviation, delta;
    for (const Tensor& parameter : with_gradients()) {
      for (int i = 0; i < 2; ++i) in_place(parameter, {&parameter});  // mul, addcmul
      deviation = made_from({&parameter}, parameter);
      in_place(deviation, {&deviation});
      delta = made_from({&parameter}, parameter);
      for (int i = 0; i < 3; ++i) in_place(delta, {&delta, &deviation});  // sqrt, div, mul
      for (int i = 0; i < 3; ++i) in_place(parameter, {&parameter, &delta});
    }
  }
};

/// torch.optim.ASGD: the average is a copy for the first million steps (t0).
class Asgd final : public PerParameter {
 public:
  Asgd(Tape& tape, Tensors parameters, bool loops) : PerParameter("asgd", tape, std::move(parameters), loops) {}

 protected:
  /// Step, rate and weight of the average are scalars on the device.
  void create(const Tensor& parameter, Tensors& states) override {
    states.push_back(state({}, DType::fp32));
    {
      const Tensor rate = scalar();
      states.push_back(state({}, DType::fp32));
    }
    states.push_back(state({}, DType::fp32));
    states.push_back(state(parameter.sizes(), parameter.dtype()));
  }

  void foreach_step(const Tensors& parameters) override {
    update(parameters, 1);  // step counts
    {
      const Tensors moved = list(parameters, 3);
      for (const Tensor& parameter : parameters) in_place(parameter, {&parameter, &parameter});  // addcmul_ by a scalar of the device
    }
    {
      const Tensors distances = list(parameters, 3);
      for (const Tensor& parameter : parameters) in_place(parameter, {&parameter, &parameter});
    }
    Tensors rates, weights;
    for (std::size_t i = 0; i < parameters.size(); ++i) rates.push_back(new_rate());
    for (std::size_t i = 0; i < parameters.size(); ++i) weights.push_back(scalar());
    update(rates, 2);
    update(weights, 2);
  }

  void for_loop_step() override {
    for (const Tensor& parameter : with_gradients())
      for (int i = 0; i < 6; ++i) in_place(parameter, {&parameter});  // step, decay, update, average, rate, weight
  }

 private:
  Tensor scalar() {
    Tensor made = tape_.empty({}, DType::fp32);
    in_place(made, {});
    return made;
  }

  /// lr / (1 + λ lr step) ** α of a step count on the device.
  Tensor new_rate() {
    Tensor rate = scalar();
    for (int i = 0; i < 4; ++i) {  // + 1, ** α, reciprocal, * lr
      const Tensor next = elementwise(tape_, {&rate}, DType::fp32);
      rate = next;
    }
    return rate;
  }
};

class Rprop final : public PerParameter {
 public:
  Rprop(Tape& tape, Tensors parameters, bool loops) : PerParameter("rprop", tape, std::move(parameters), loops) {}

 protected:
  void foreach_step(const Tensors& parameters) override {
    Tensors signs = list(parameters, 3);
    update(parameters, 2);  // copy
    update(signs, 1);       // sign
    for (const Tensor& sign : signs) choose(sign);
    update(signs, 2);
    for (const Tensor& parameter : parameters) in_place(parameter, {&parameter});  // clamp
    for (std::size_t i = 0; i < signs.size(); ++i) {
      const Tensor zero = zeros(tape_, {}, signs[i].dtype());
      const Tensor falls = elementwise(tape_, {&signs[i]}, DType::boolean);
      const Tensor kept = made_from({&falls, &signs[i]}, signs[i]);
      in_place(parameters[i], {&kept});
    }
    const Tensor last = signs.back();  // Python's loop variable `sign`
    signs.clear();
    Tensors directions;
    for (const Tensor& parameter : parameters) directions.push_back(made_from({&parameter}, parameter));
    update(parameters, 3);
  }

  void for_loop_step() override {
    Tensor sign, gradient;
    for (const Tensor& parameter : with_gradients()) {
      gradient = parameter.grad();
      Tensor product = made_from({&parameter, &gradient}, parameter);
      Tensor next = made_from({&product}, parameter);
      product.reset();
      sign = std::move(next);
      choose(sign);
      for (int i = 0; i < 2; ++i) in_place(parameter, {&parameter, &sign});  // mul, clamp
      gradient = made_from({&gradient}, parameter);
      where_true(sign, gradient);
      {
        const Tensor direction = made_from({&gradient}, parameter);
        in_place(parameter, {&parameter, &direction});
      }
      in_place(parameter, {&gradient});
    }
  }

 private:
  /// target[comparison of sign] = number: masked_fill_.
  void where_true(const Tensor& sign, const Tensor& target) {
    const Tensor mask = elementwise(tape_, {&sign}, DType::boolean);
    in_place(target, {&mask});
  }
  void choose(const Tensor& sign) {
    for (int i = 0; i < 3; ++i) where_true(sign, sign);
  }
};

/// torch.optim.Adafactor: factors of a matrix's squares by row and column, one value per element of all else.
class TorchAdafactor final : public PerParameter {
 public:
  TorchAdafactor(Tape& tape, Tensors parameters, bool loops) : PerParameter("adafactor", tape, std::move(parameters), loops) {}

 protected:
  void create(const Tensor& parameter, Tensors& states) override {
    const DType type = parameter.grad().dtype();
    if (parameter.rank() < 2) return states.push_back(state(parameter.sizes(), type));
    Dims row = parameter.sizes(), column = parameter.sizes();
    row[-1] = column[-2] = 1;
    states.push_back(state(row, type));
    states.push_back(state(column, type));
  }

  void for_loop_step() override {
    Tensor row_mean, column_mean, squares, estimate, change;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad()) continue;
      norm(parameter);
      in_place(parameter, {&parameter});  // weight decay
      if (parameter.rank() >= 2) {
        row_mean = mean_of_squares(parameter.grad(), -1);
        in_place(states_[i][0], {&row_mean});
        column_mean = mean_of_squares(parameter.grad(), -2);
        in_place(states_[i][1], {&column_mean});
        estimate = outer_product(states_[i][0], states_[i][1]);
        const Tensor mean = mean_of_rows(states_[i][0]);
        in_place(mean, {&mean});
        in_place(estimate, {&estimate, &mean});
      } else {
        squares = made_from({&parameter}, parameter);
        in_place(states_[i][0], {&squares});
        estimate = clone(states_[i][0]);
      }
      for (int k = 0; k < 2; ++k) in_place(estimate, {&estimate});  // clamp, rsqrt
      change = estimate;
      in_place(change, {&change, &parameter});
      norm(change);
      in_place(parameter, {&parameter, &change});
    }
  }

  /// Matrices are one group and vectors another, whichever comes first in the list; Python's names outlive the group.
  void foreach_step(const Tensors& parameters) override {
    if (parameters.empty()) return;
    Tensors changes;
    const bool matrices_first = parameters.front().rank() >= 2;
    for (const bool matrices : {matrices_first, !matrices_first}) {
      std::vector<std::size_t> group;
      for (std::size_t i = 0; i < parameters_.size(); ++i)
        if (parameters_[i].grad() && (parameters_[i].rank() >= 2) == matrices) group.push_back(i);
      if (!group.empty()) update_group(group, matrices, changes);
    }
  }

 private:
  Tensor norm(const Tensor& x) { return reduce(x, std::vector<bool>(static_cast<std::size_t>(x.rank()), true), false, x.dtype()); }

  /// vector_norm over one dimension, squared and divided in place.
  Tensor mean_of_squares(const Tensor& gradient, int dimension) {
    const Tensor norms = norm_over(gradient, dimension);
    for (int i = 0; i < 2; ++i) in_place(norms, {&norms});
    return norms;
  }
  Tensor norm_over(const Tensor& x, int dimension) {
    std::vector<bool> reduced(static_cast<std::size_t>(x.rank()), false);
    reduced[static_cast<std::size_t>(x.rank() + dimension)] = true;
    return reduce(x, reduced, true, x.dtype());
  }
  Tensor mean_of_rows(const Tensor& row) { return norm_over(row, -2); }

  Tensor outer_product(const Tensor& row, const Tensor& column) { return matmul(row.detach(), column.detach()); }

  void update_group(const std::vector<std::size_t>& group, bool matrices, Tensors& changes) {
    Tensors parameters, gradients;
    for (const std::size_t i : group) {
      parameters.push_back(parameters_[i]);
      gradients.push_back(parameters_[i].grad());
    }
    for (const Tensor& parameter : parameters) norm(parameter);
    update(parameters, 1);  // weight decay
    Tensors estimates = matrices ? factored(group, gradients) : elementwise_estimates(group, gradients);
    update(estimates, 1);  // clamp
    update(estimates, 1);  // rsqrt
    update(estimates, 2);  // mul
    changes = std::move(estimates);
    for (const Tensor& change : changes) norm(change);
    update(changes, 1);     // mul
    update(parameters, 2);  // add
  }

  Tensors factored(const std::vector<std::size_t>& group, const Tensors& gradients) {
    for (const int dimension : {-1, -2}) {
      Tensors means;
      for (const Tensor& gradient : gradients) means.push_back(norm_over(gradient, dimension));
      update(means, 2);
      update(means, 1);
      update(means, 2);  // lerp
    }
    Tensors estimates, means;
    for (const std::size_t i : group) estimates.push_back(outer_product(states_[i][0], states_[i][1]));
    for (const std::size_t i : group) means.push_back(mean_of_rows(states_[i][0]));
    update(means, 1);
    update(estimates, 2);
    return estimates;
  }

  Tensors elementwise_estimates(const std::vector<std::size_t>& group, const Tensors& gradients) {
    {
      const Tensors squares = list(gradients, 3);
      update(squares, 2);  // lerp
    }
    Tensors estimates;
    for (const std::size_t i : group) estimates.push_back(clone(states_[i][0]));
    return estimates;
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_torch_optimizer(OptimizerKind kind, OptimizerImpl implementation, Tape& tape,
                                                const std::vector<Tensor>& parameters) {
  const bool loops = implementation == OptimizerImpl::for_loop;
  switch (kind) {
    case OptimizerKind::nadam:
      return std::make_unique<NAdam>(tape, parameters, loops);
    case OptimizerKind::radam:
      return std::make_unique<RAdam>(tape, parameters, loops);
    case OptimizerKind::adamax:
      return std::make_unique<Adamax>(tape, parameters, loops);
    case OptimizerKind::adadelta:
      return std::make_unique<Adadelta>(tape, parameters, loops);
    case OptimizerKind::asgd:
      return std::make_unique<Asgd>(tape, parameters, loops);
    case OptimizerKind::rprop:
      return std::make_unique<Rprop>(tape, parameters, loops);
    case OptimizerKind::torch_adafactor:
      return std::make_unique<TorchAdafactor>(tape, parameters, implementation != OptimizerImpl::foreach);
    default:
      return nullptr;
  }
}

}  // namespace plimsoll::program
