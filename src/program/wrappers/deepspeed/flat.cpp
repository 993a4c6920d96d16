#include "program/wrappers/deepspeed/flat.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"
#include "program/wrappers/deepspeed/norm.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kReducedTogether = 500'000'000;  // engine.py, MEMORY_OPT_ALLREDUCE_SIZE: elements

std::vector<std::shared_ptr<Parameter>> trained(const std::vector<std::shared_ptr<Parameter>>& parameters) {
  std::vector<std::shared_ptr<Parameter>> slots;
  for (const auto& slot : parameters)
    if (slot->trainable) slots.push_back(slot);
  if (slots.empty()) fail("DeepSpeed needs a parameter that is trained", "lora");
  return slots;
}

std::int64_t elements_of(const std::vector<std::shared_ptr<Parameter>>& slots) {
  std::int64_t elements = 0;
  for (const auto& slot : slots) elements += slot->sizes.product();
  return elements;
}

/// engine.allreduce_and_copy: flattened, reduced in the type of communication, divided by the ranks, and copied back one by one.
void all_reduce_together(Tape& tape, const std::vector<Tensor>& gradients, DType sent, std::int64_t ranks) {
  const Tensor flat = flatten(tape, gradients);
  const Tensor narrow = converted(flat, sent);
  tape.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = narrow.bytes(), .type = sent}, tape.stream);
  if (ranks > 1) in_place(narrow, {&narrow});
  if (sent != flat.dtype()) in_place(flat, {&narrow});
  if (gradients.size() == 1) return;  // flattened as it is
  for (const Tensor& gradient : gradients) tape.copy({Copy::Direction::device_to_device, gradient.bytes()}, tape.stream);
}

/// engine.buffered_allreduce_fallback.
void all_reduce(Tape& tape, const std::vector<Tensor>& gradients, DType sent, std::int64_t ranks) {
  std::vector<Tensor> together;
  std::int64_t elements = 0;
  for (const Tensor& gradient : gradients) {
    together.push_back(gradient);
    elements += gradient.elements();
    if (elements <= kReducedTogether) continue;
    all_reduce_together(tape, together, sent, ranks);
    together.clear();
    elements = 0;
  }
  if (!together.empty()) all_reduce_together(tape, together, sent, ranks);
}

/// runtime.utils.clip_grad_norm_, which clips what no wrapper of DeepSpeed's holds: a norm for each gradient, their mean over the ranks,
/// and every gradient multiplied by what is left of it.
void clip_grad_norm(Tape& tape, const std::vector<std::shared_ptr<Parameter>>& slots) {
  tape.operator_name = "clip_grad_norm";
  const auto next = [&tape](const Tensor& x) { return elementwise(tape, {&x}, x.dtype()); };
  Tensor total;
  {
    std::vector<Tensor> norms;
    for (const auto& slot : slots)
      if (slot->tensor.grad()) norms.push_back(norm_in(slot->tensor.grad(), DType::fp32));
    const Tensor squares = next(flatten(tape, norms));
    total = reduce(squares, {true}, false, DType::fp32);
  }
  total = next(total);  // the root
  {
    const Tensor sum = next(total);
    total = next(sum);  // divided by the ranks
  }
  tape.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = total.bytes(), .type = DType::fp32},
                  tape.stream);
  const auto from_host = [&tape] {
    Tensor number = tape.empty({1}, DType::fp32);
    tape.copy({Copy::Direction::host_to_device, number.bytes()}, tape.stream);
    return number;
  };
  const Tensor limit = from_host();
  Tensor share;
  {
    const Tensor above = next(total);  // total + 1e-6
    share = elementwise(tape, {&limit, &above}, DType::fp32);
  }
  const Tensor one = from_host();
  share = elementwise(tape, {&one, &share}, DType::fp32);
  for (const auto& slot : slots)
    if (slot->tensor.grad()) in_place(slot->tensor.grad(), {&slot->tensor.grad(), &share});
}

}  // namespace

// ---- FP16_Optimizer and FP16_UnfusedOptimizer ------------------------------------------------------------------------------

WholeStates::WholeStates(Tape& tape, const std::vector<std::shared_ptr<Parameter>>& parameters, const DeepSpeedSettings& settings)
    : DeepSpeedOptimizer(tape, settings), slots_(trained(parameters)), type_(slots_.front()->type) {
  flat_ = settings.json.wrapper == "FP16_Optimizer";
  if (type_ == DType::fp32) {
    for (const auto& slot : slots_) masters_.push_back(slot->tensor);
    optimizer_ = make_deepspeed_optimizer(settings_, tape_, masters_);
    return;
  }
  tape_.operator_name = "master weights";
  if (flat_) flatten_weights();
  make_masters();
  optimizer_ = make_deepspeed_optimizer(settings_, tape_, masters_);
  initialize_states();
}

/// Clones side by side; the parameters become views.
void WholeStates::flatten_weights() {
  std::vector<Tensor> clones;
  for (const auto& slot : slots_) clones.push_back(elementwise(tape_, {&slot->tensor}, type_));
  flat_weights_ = flatten(tape_, clones);
  Tape::categorize(flat_weights_, Category::parameter);
  clones.clear();
  for (const auto& slot : slots_) slot->tensor = parameter_on(tape_, flat_weights_, *slot);
}

/// weights.clone().float().
void WholeStates::make_masters() {
  const auto master_of = [&](const Tensor& weights) {
    const Tensor copy = elementwise(tape_, {&weights}, type_);
    Tensor master = elementwise(tape_, {&copy}, DType::fp32);
    Tape::categorize(master, Category::optimizer_state);
    masters_.push_back(std::move(master));
  };
  if (flat_) {
    master_of(flat_weights_.detach());
  } else {
    for (const auto& slot : slots_) master_of(slot->tensor.detach());
  }
}

/// One optimizer.step() on gradients of zero makes the states; FP16_UnfusedOptimizer makes gradients of the weights, too.
void WholeStates::initialize_states() {
  std::vector<Tensor> narrow;
  if (!flat_)
    for (const auto& slot : slots_) narrow.push_back(zeros(tape_, slot->sizes, type_));
  for (const Tensor& master : masters_) master.grad() = zeros(tape_, master.sizes(), DType::fp32);
  optimizer_->step();
  optimizer_->zero_grad();
}

void WholeStates::after_backward() {
  if (!boundary_) return;
  tape_.operator_name = "all-reduce gradients";
  std::vector<Tensor> gradients;
  for (const auto& slot : slots_) {
    Tensor& gradient = slot->tensor.grad();
    if (!gradient) gradient = zeros(tape_, slot->sizes, type_);
    gradients.push_back(gradient);
  }
  all_reduce(tape_, gradients, settings_.json.communication_data_type.value_or(type_), settings_.ranks);
}

void WholeStates::step() {
  tape_.operator_name = "FP16_Optimizer step";
  if (type_ == DType::fp32) {
    if (settings_.clips) clip_grad_norm(tape_, slots_);
    tape_.operator_name = "optimizer step";
    optimizer_->step();
    optimizer_->zero_grad();
    return;
  }
  for (const auto& slot : slots_)
    if (slot->tensor.grad()) check_finite(slot->tensor.grad(), settings_);
  if (flat_) {
    step_flat();
  } else {
    step_unfused();
  }
  optimizer_->step();
  optimizer_->zero_grad();
  for (const auto& slot : slots_) {  // each weight is copied from its master, or its piece of the master
    const std::int64_t elements = slot->sizes.product();
    pointwise(tape_, Pointwise::Form::map, {packed(elements, DType::fp32)}, {packed(elements, type_)});
  }
  for (const auto& slot : slots_) slot->tensor.grad().reset();
}

/// All gradients in fp32, then flattened; only then the 16-bit ones go.
void WholeStates::step_flat() {
  {
    std::vector<Tensor> wide;
    for (const auto& slot : slots_) {
      Tensor gradient = slot->tensor.grad();
      wide.push_back(gradient ? converted(gradient, DType::fp32) : zeros(tape_, slot->sizes, DType::fp32));
    }
    Tensor flat = flatten(tape_, wide);
    Tape::categorize(flat, Category::gradient);
    masters_.front().grad() = tape_.view(flat, masters_.front().sizes(), masters_.front().strides());
  }
  for (const auto& slot : slots_) slot->tensor.grad().reset();
  const Tensor norm = norm_in(masters_.front().grad(), DType::fp32);
  in_place(masters_.front().grad(), {&masters_.front().grad()});
}

/// The norm of the 16-bit gradients in fp32, one parameter at a time; then an fp32 gradient for each.
void WholeStates::step_unfused() {
  Tensor sum;  // get_weight_norm
  for (const auto& slot : slots_) {
    if (!slot->tensor.grad()) continue;
    const Tensor norm = norm_in(slot->tensor.grad(), DType::fp32);
    Tensor next = with_square(sum, norm);
    sum = std::move(next);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Tensor gradient = slots_[i]->tensor.grad();
    Tensor wide = gradient ? elementwise(tape_, {&gradient}, DType::fp32) : zeros(tape_, slots_[i]->sizes, DType::fp32);
    Tape::categorize(wide, Category::gradient);
    masters_[i].grad() = std::move(wide);
  }
  for (const Tensor& master : masters_) in_place(master.grad(), {&master.grad()});  // unscale_and_clip_grads
}

// ---- BF16_Optimizer ----------------------------------------------------------------------------------------------------------

Bf16Optimizer::Bf16Optimizer(Tape& tape, Module& root, const DeepSpeedSettings& settings)
    : DeepSpeedOptimizer(tape, settings), slots_(trained(root.all_parameters())) {
  tape_.operator_name = "master weights";
  const std::int64_t total = elements_of(slots_);
  piece_ = ceil_div(total, 2 * settings_.ranks) * 2;
  {
    std::vector<Tensor> weights;
    for (const auto& slot : slots_) weights.push_back(slot->tensor.detach());
    if (piece_ * settings_.ranks > total) weights.push_back(zeros(tape_, {piece_ * settings_.ranks - total}, DType::bf16));
    flat_weights_ = flatten(tape_, weights);
  }
  Tape::categorize(flat_weights_, Category::parameter);
  for (const auto& slot : slots_) slot->tensor = parameter_on(tape_, flat_weights_, *slot);
  {
    const Tensor copy = tape_.empty({piece_}, DType::bf16);
    pointwise(copy, {&copy});
    master_ = elementwise(tape_, {&copy}, DType::fp32);
  }
  Tape::categorize(master_, Category::optimizer_state);
  gradients_ = zeros(tape_, {piece_ * settings_.ranks}, DType::fp32);
  Tape::categorize(gradients_, Category::gradient);
  optimizer_ = make_deepspeed_optimizer(settings_, tape_, {master_});
}

/// update_hp_grads: every bf16 gradient is added to the fp32 buffer and kept; at the boundary the buffer is reduced in bf16.
void Bf16Optimizer::after_backward() {
  tape_.operator_name = "accumulate gradients";
  for (const auto& slot : slots_) {
    const Tensor gradient = slot->tensor.grad();
    if (!gradient) continue;
    const Tensor wide = elementwise(tape_, {&gradient}, DType::fp32);
    in_place(wide, {&wide, &wide});
    if (!boundary_) in_place(gradient, {});  // zeroed before the next backward
  }
  if (boundary_) all_reduce(tape_, {gradients_}, settings_.json.communication_data_type.value_or(DType::bf16), settings_.ranks);
}

void Bf16Optimizer::step() {
  tape_.operator_name = "BF16_Optimizer step";
  std::vector<Tensor> norms;
  for (const auto& slot : slots_) norms.push_back(norm_in(tape_.view(gradients_, {slot->sizes.product()}, {1}), DType::fp32));
  in_place(gradients_, {&gradients_});
  master_.grad() = tape_.view(gradients_, {piece_}, {1});
  optimizer_->step();
  pointwise(tape_, Pointwise::Form::map, {packed(piece_, DType::fp32)}, {packed(piece_, DType::bf16)});
  tape_.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = flat_weights_.bytes(), .type = DType::bf16},
                   tape_.stream);
  in_place(gradients_, {});
  for (const auto& slot : slots_) slot->tensor.grad().reset();
}

}  // namespace plimsoll::program
