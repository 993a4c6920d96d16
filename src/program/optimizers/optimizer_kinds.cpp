#include "program/optimizers/optimizer_kinds.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// A state like each parameter, and the temporaries of the step in lists (foreach) or one that lives until the next parameter's (for loop).
class SquaredGradients : public Optimizer {
 public:
  SquaredGradients(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation)
      : Optimizer(tape, std::move(parameters)), implementation_(implementation), squares_(parameters_.size()) {}

 protected:
  void create(std::size_t i) { squares_[i] = state_of(tape_, parameters_[i].sizes(), parameters_[i].dtype()); }

  /// One list of temporaries, as _foreach_sqrt or _foreach_mul makes it.
  std::vector<Tensor> list(const std::vector<Tensor>& parameters) {
    std::vector<Tensor> made;
    made.reserve(parameters.size());
    for (const Tensor& parameter : parameters) made.push_back(tape_.empty(parameter.sizes(), parameter.dtype()));
    launch_foreach(tape_, parameters, 2, 1, {.made = 1});
    return made;
  }

  void for_loop_step() {
    Tensor root;
    for (const Tensor& parameter : with_gradients()) {
      in_place(parameter, {&parameter, &parameter});  // the squares
      root = elementwise(tape_, {&parameter}, parameter.dtype());
      in_place(root, {&root});
      in_place(parameter, {&parameter, &root});
    }
  }

  OptimizerImpl implementation_;
  std::vector<Tensor> squares_;
};

class Adagrad final : public SquaredGradients {
 public:
  Adagrad(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation)
      : SquaredGradients(tape, std::move(parameters), implementation) {
    tape.operator_name = "adagrad";
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (implementation == OptimizerImpl::fused) steps_.push_back(state_of(tape, {}, DType::fp32));  // on the device only when fused
      create(i);
    }
  }

  void do_step() override {
    tape_.operator_name = "adagrad";
    if (implementation_ == OptimizerImpl::for_loop) return for_loop_step();
    const std::vector<Tensor> parameters = with_gradients();
    launch_foreach(tape_, parameters, 3, 1);  // addcmul
    if (implementation_ == OptimizerImpl::fused) return;
    const std::vector<Tensor> roots = list(parameters);
    launch_foreach(tape_, parameters, 1, 1);  // add
    const std::vector<Tensor> numerators = list(parameters);
    launch_foreach(tape_, parameters, 3, 1);  // addcdiv
  }

 private:
  std::vector<Tensor> steps_;
};

class RmsProp final : public SquaredGradients {
 public:
  using SquaredGradients::SquaredGradients;

  void do_step() override {
    tape_.operator_name = "rmsprop";
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].grad() && !squares_[i]) create(i);
    }
    if (implementation_ == OptimizerImpl::for_loop) return for_loop_step();
    const std::vector<Tensor> parameters = with_gradients();
    launch_foreach(tape_, parameters, 1, 1);  // mul
    launch_foreach(tape_, parameters, 3, 1);  // addcmul
    const std::vector<Tensor> roots = list(parameters);
    launch_foreach(tape_, parameters, 1, 1);  // add
    launch_foreach(tape_, parameters, 3, 1);  // addcdiv
  }
};

class Lion final : public Optimizer {
 public:
  Lion(Tape& tape, std::vector<Tensor> parameters) : Optimizer(tape, std::move(parameters)), moments_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "lion";
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad()) continue;
      if (!moments_[i]) moments_[i] = state_of(tape_, parameter.sizes(), parameter.dtype());
      in_place(parameter, {&parameter});  // weight decay
      Tensor update;
      {
        const Tensor mean = elementwise(tape_, {&moments_[i]}, parameter.dtype());
        in_place(mean, {&mean});
        update = elementwise(tape_, {&mean, &parameter}, parameter.dtype());
      }
      in_place(update, {&update});  // sign
      in_place(parameter, {&parameter, &update});
      in_place(moments_[i], {&moments_[i], &parameter});
    }
  }

 private:
  std::vector<Tensor> moments_;
};

std::vector<Tensor> both(std::vector<Tensor> first, const std::vector<Tensor>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// torch/optim/_muon.py with Nesterov momentum: matrix by matrix.
class Muon final : public Optimizer {
 public:
  Muon(Tape& tape, const std::vector<Tensor>& matrices, std::vector<Tensor> others)
      : Optimizer(tape, both(matrices, others)),
        matrices_(matrices),
        buffers_(matrices.size()),
        others_(make_optimizer(OptimizerKind::adamw, OptimizerImpl::foreach, tape, std::move(others))) {}

  void do_step() override {
    tape_.operator_name = "muon";
    for (std::size_t i = 0; i < matrices_.size(); ++i)
      if (matrices_[i].grad() && !buffers_[i]) buffers_[i] = state_of(tape_, matrices_[i].sizes(), matrices_[i].dtype());
    Tensor update;  // Python's variable lives on until the next matrix's
    for (std::size_t i = 0; i < matrices_.size(); ++i) {
      const Tensor& matrix = matrices_[i];
      if (!matrix.grad()) continue;
      in_place(buffers_[i], {&buffers_[i], &matrix});  // lerp
      update = elementwise(tape_, {&matrix, &buffers_[i]}, matrix.dtype());
      update = orthogonal(update);
      in_place(matrix, {&matrix});
      in_place(matrix, {&matrix, &update});
    }
    update.reset();
    others_->step();
  }

 private:
  static constexpr int kNewtonSchulzSteps = 5;

  /// _zeropower_via_newtonschulz: in bf16 on the matrix or its transpose, whichever is wide.
  Tensor orthogonal(const Tensor& direction) {
    Tensor result = elementwise(tape_, {&direction}, DType::bf16);
    if (result.size(0) > result.size(1)) result = transpose(result, 0, 1);
    {
      Tensor norm = reduce(result, {true, true}, false, DType::bf16);
      norm = elementwise(tape_, {&norm}, DType::bf16);  // clamp
      in_place(result, {&result, &norm});
    }
    Tensor gram, polynomial;
    for (int step = 0; step < kNewtonSchulzSteps; ++step) {
      gram = product(result, transpose(result, 0, 1));  // the gradient, or its transpose, as it lies wide
      polynomial = product(gram, gram, true);
      result = product(polynomial, result, true);
    }
    return result;
  }

  /// a · b, or addmm of it.
  Tensor product(const Tensor& a, const Tensor& b, bool added = false) {
    Tensor made = tape_.empty({a.size(0), b.size(1)}, DType::bf16);
    gemm(tape_, matrix(a), matrix(b), matrix(made), {.accumulates = added});
    return made;
  }

  std::vector<Tensor> matrices_, buffers_;
  std::unique_ptr<Optimizer> others_;
};

/// LoraFAOptimizer.step; the pseudo-inverse of rank × rank numbers is left out.
class LoraFa final : public Optimizer {
 public:
  LoraFa(Tape& tape, std::vector<Tensor> parameters)
      : Optimizer(tape, std::move(parameters)), first_(parameters_.size()), second_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = "lora_fa";
    Tensor projected, denominator;  // Python's variables live on until the next adapter's
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad()) continue;
      if (!first_[i]) {
        first_[i] = state_of(tape_, parameter.sizes(), parameter.dtype());
        second_[i] = state_of(tape_, parameter.sizes(), parameter.dtype());
      }
      projected = project(parameter);
      for (int k = 0; k < 4; ++k) in_place(parameter, {&parameter, &projected});  // both moments
      denominator = elementwise(tape_, {&second_[i]}, parameter.dtype());
      in_place(denominator, {&denominator});
      in_place(parameter, {&parameter, &denominator});
    }
  }

 private:
  /// grad_B @ (A Aᵀ)⁻¹ under autocast to bf16, times a scale, back in the gradient's type.
  Tensor project(const Tensor& parameter) {
    const std::int64_t rank = parameter.size(-1);
    Tensor scaled;
    {
      const Tensor low = elementwise(tape_, {&parameter}, DType::bf16);
      const Tensor product = tape_.empty(parameter.sizes(), DType::bf16);
      gemm(tape_, matrix(low), Matrix{rank, rank, 1, rank, false, DType::bf16}, matrix(product));
      scaled = elementwise(tape_, {&product}, DType::bf16);
    }
    return parameter.dtype() == DType::bf16 ? scaled : elementwise(tape_, {&scaled}, parameter.dtype());
  }

  std::vector<Tensor> first_, second_;
};

/// How one of bitsandbytes' optimizers keeps its states.
struct BitsAndBytes {
  OptimizerKind kind;
  int moments;
  bool eight_bits = false;
  bool paged = false;            ///< large states lie in managed memory
  bool narrow_gradients = true;  ///< there is a kernel for bf16 gradients with fp32 states
};

constexpr BitsAndBytes kBitsAndBytes[] = {
    {OptimizerKind::adamw_bnb, 2},
    {OptimizerKind::paged_adamw, 2, false, true},
    {OptimizerKind::lion_bnb, 1},
    {OptimizerKind::paged_lion, 1, false, true},
    {OptimizerKind::rmsprop_bnb, 1, false, false, false},
    {OptimizerKind::ademamix, 3},
    {OptimizerKind::adam_8bit, 2, true},
    {OptimizerKind::adamw_8bit, 2, true},
    {OptimizerKind::paged_adamw_8bit, 2, true, true},
    {OptimizerKind::lion_8bit, 1, true},
    {OptimizerKind::paged_lion_8bit, 1, true, true},
    {OptimizerKind::rmsprop_8bit, 1, true, false, false},
    {OptimizerKind::adagrad_8bit, 1, true, false, false},
    {OptimizerKind::sgdm_8bit, 1, true, false, false},
    {OptimizerKind::ademamix_8bit, 3, true},
};

const BitsAndBytes* bitsandbytes_of(OptimizerKind kind) {
  for (const BitsAndBytes& entry : kBitsAndBytes)
    if (entry.kind == kind) return &entry;
  return nullptr;
}

/// Optimizer1State, Optimizer2State and AdEMAMix of bitsandbytes: fp32 moments, or with 8 bits a byte per element and moment and an fp32
/// maximum per 256 elements; parameters of fewer than 4,096 elements keep fp32 moments. One kernel per parameter, no temporaries.
class BitsAndBytesOptimizer final : public Optimizer {
 public:
  BitsAndBytesOptimizer(Tape& tape, std::vector<Tensor> parameters, const BitsAndBytes& options)
      : Optimizer(tape, std::move(parameters)), options_(options), states_(parameters_.size()) {}

  void do_step() override {
    tape_.operator_name = options_.eight_bits ? "8bit" : "bitsandbytes";
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& parameter = parameters_[i];
      if (!parameter.grad()) continue;
      if (states_[i].empty()) create(parameter, states_[i]);
      fetch(parameter);
      launch_step(parameter);
    }
  }
  std::int64_t managed_bytes() const override {
    std::int64_t bytes = 0;
    for (const Tensor& parameter : parameters_) bytes += managed_bytes_of(parameter);
    return bytes;
  }
  void fetch_managed() override { fetches_ = true; }

 private:
  static constexpr std::int64_t kLeastQuantized = 4096, kBlock = 256, kMapEntries = 256, kLeastPaged = 100'000;

  DType state_type(const Tensor& parameter) const {
    return options_.eight_bits && parameter.elements() >= kLeastQuantized ? DType::uint8 : DType::fp32;
  }

  std::int64_t managed_bytes_of(const Tensor& parameter) const {
    if (!options_.paged || parameter.elements() < kLeastPaged) return 0;
    return options_.moments * parameter.elements() * size_of(state_type(parameter));
  }

  /// prefetch_state: cudaMemPrefetchAsync on the stream of the step. What it drives out leaves on the link's other direction meanwhile.
  void fetch(const Tensor& parameter) {
    const std::int64_t bytes = fetches_ ? managed_bytes_of(parameter) : 0;
    if (bytes > 0) tape_.copy({.direction = Copy::Direction::host_to_device, .bytes = bytes}, kComputeStream);
  }

  /// Parameter, gradient and moments in one kernel.
  void launch_step(const Tensor& parameter) {
    const std::int64_t elements = parameter.elements();
    const Operand weights{elements, parameter.dtype(), Walk::contiguous}, moment{elements, state_type(parameter), Walk::contiguous};
    MultiTensor kernel{MultiTensor::Function::fused, 1, elements, {}};
    for (int i = 0; i < 2; ++i) kernel.operands.read(weights);
    for (int i = 0; i < options_.moments; ++i) kernel.operands.read(moment);
    kernel.operands.write(weights);
    for (int i = 0; i < options_.moments; ++i) kernel.operands.write(moment);
    tape_.kernel({kernel});
  }

  /// How many moments lie in each of the buffers: AdEMAMix's two averages share one.
  std::vector<int> buffers() const { return options_.moments == 3 ? std::vector<int>{2, 1} : std::vector<int>(options_.moments, 1); }

  void create(const Tensor& parameter, std::vector<Tensor>& states) {
    const std::int64_t elements = parameter.elements();
    const bool quantized = state_type(parameter) == DType::uint8;
    const std::vector<int> moments = buffers();
    while (quantized && maps_.size() < moments.size()) maps_.push_back(state_of(tape_, {kMapEntries}, DType::fp32));
    if (!options_.paged || elements < kLeastPaged) {
      for (const int count : moments) states.push_back(state_of(tape_, {count, elements}, state_type(parameter)));
    }
    for (const int count : moments)
      if (quantized) states.push_back(state_of(tape_, {count, ceil_div(elements, kBlock)}, DType::fp32));
  }

  BitsAndBytes options_;
  bool fetches_ = false;
  std::vector<std::vector<Tensor>> states_;
  std::vector<Tensor> maps_;  ///< the values that a byte stands for, one table per buffer
};

}  // namespace

OptimizerKind with_wide_states(OptimizerKind kind) {
  constexpr std::pair<OptimizerKind, OptimizerKind> kWide[] = {
      {OptimizerKind::adam_8bit, OptimizerKind::adamw_bnb},          {OptimizerKind::adamw_8bit, OptimizerKind::adamw_bnb},
      {OptimizerKind::paged_adamw_8bit, OptimizerKind::paged_adamw}, {OptimizerKind::lion_8bit, OptimizerKind::lion_bnb},
      {OptimizerKind::paged_lion_8bit, OptimizerKind::paged_lion},   {OptimizerKind::rmsprop_8bit, OptimizerKind::rmsprop_bnb},
      {OptimizerKind::ademamix_8bit, OptimizerKind::ademamix}};
  for (const auto& [narrow, wide] : kWide)
    if (narrow == kind) return wide;
  return kind;
}

bool is_bitsandbytes(OptimizerKind kind) { return bitsandbytes_of(kind) != nullptr; }

std::unique_ptr<Optimizer> make_adagrad(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation) {
  return std::make_unique<Adagrad>(tape, std::move(parameters), implementation);
}

std::unique_ptr<Optimizer> make_rmsprop(Tape& tape, std::vector<Tensor> parameters, OptimizerImpl implementation) {
  return std::make_unique<RmsProp>(tape, std::move(parameters), implementation);
}

std::unique_ptr<Optimizer> make_lion(Tape& tape, std::vector<Tensor> parameters) {
  return std::make_unique<Lion>(tape, std::move(parameters));
}

std::unique_ptr<Optimizer> make_muon(Tape& tape, const std::vector<Tensor>& matrices, std::vector<Tensor> others) {
  return std::make_unique<Muon>(tape, matrices, std::move(others));
}

std::unique_ptr<Optimizer> make_lora_fa(Tape& tape, std::vector<Tensor> parameters) {
  for (const Tensor& parameter : parameters)
    if (parameter.rank() != 2) refuse("LoRA-FA of adapters that lie in one flat buffer is not modelled", "optimizer", "adamw");
  return std::make_unique<LoraFa>(tape, std::move(parameters));
}

std::unique_ptr<Optimizer> make_bitsandbytes(OptimizerKind kind, Tape& tape, const std::vector<Tensor>& parameters) {
  const BitsAndBytes* options = bitsandbytes_of(kind);
  if (!options) return nullptr;
  for (const Tensor& parameter : parameters) {
    if (!options->narrow_gradients && parameter.dtype() == DType::bf16)
      refuse("bitsandbytes has no kernel of " + std::string(name_of(kind)) + " for bf16 gradients", "optimizer", "adamw-8bit or lion-8bit");
  }
  return std::make_unique<BitsAndBytesOptimizer>(tape, parameters, *options);
}

}  // namespace plimsoll::program
