#include "program/routine.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/tensor_names.hpp"
#include "program/written_tensor.hpp"

namespace plimsoll::program {

/// Stands for the graph of a pass forward that was called.
class Routine::Call final : public Node {
 public:
  explicit Call(TensorId names) : first(names) {}
  void apply(BackwardCall&) override {
    throw Error(ErrorCode::internal, "a pass that was called goes back as part of another graph", "routine");
  }
  TensorId first;  ///< the name of the pass's first tensor
};

namespace {

Category category_of(const Tensor& tensor) {
  const Storage& storage = *tensor.impl()->storage;
  return storage.resident && storage.part != nullptr ? (*storage.part)[storage.at].category : Category::temporary;
}

bool same(const Instruction& a, const Instruction& b) {
  return a.kind == b.kind && a.stream == b.stream && a.category == b.category && a.id == b.id && a.bytes == b.bytes && a.label == b.label &&
         a.again == b.again;
}

}  // namespace

std::vector<Instruction>& Routine::recording() const {
  StepProgram& program = tape_.program();
  switch (tape_.part()) {
    case Tape::Part::init:
      return program.init;
    case Tape::Part::first_step:
      return program.first_step;
    case Tape::Part::second_step:
      return program.second_step;
    case Tape::Part::step:
      break;
  }
  return program.step;
}

/// What was recorded since. False where it names tensors of others than this pass and the pass forward, whose `births` are named from `forward` on.
bool Routine::read(const Begun& begun, TensorId forward, TensorId births, Pass& pass) const {
  const std::vector<Instruction>& all = recording();
  pass.instructions.assign(all.begin() + static_cast<std::ptrdiff_t>(begun.at), all.end());
  pass.naming.clear();
  pass.births = tape_.take_names(0) - begun.first;
  for (std::uint32_t i = 0; i < pass.instructions.size(); ++i) {
    Instruction& instruction = pass.instructions[i];
    if (!names_a_tensor(instruction)) continue;
    const bool own = instruction.id >= begun.first, of_forward = instruction.id >= forward && instruction.id < forward + births;
    if (!own && !of_forward) return false;
    instruction.id = own ? births + (instruction.id - begun.first) : instruction.id - forward;
    pass.naming.push_back(i);
  }
  return true;
}

/// A tensor that the pass made; `first`: the name of the pass's first, which it names `lowest`. False where it is no such, or the graph holds it too.
bool Routine::read(const Pass& pass, const Tensor& tensor, TensorId first, Form& form) const {
  const TensorImpl& impl = *tensor.impl();
  const Storage& storage = *impl.storage;
  const TensorId lowest = &pass == &backward_ ? forward_.births : 0;
  if (!storage.resident || storage.references != 1 || impl.base || storage.id < first || storage.id >= first + pass.births) return false;
  form = {impl.sizes, impl.strides, impl.dtype, impl.requires_grad, lowest + (storage.id - first), 0};
  const auto allocates = [&](const Instruction& each) { return each.kind == InstructionKind::alloc && each.id == form.name; };
  const auto at = std::find_if(pass.instructions.begin(), pass.instructions.end(), allocates);
  form.at = static_cast<std::size_t>(at - pass.instructions.begin());
  return at != pass.instructions.end();
}

void Routine::begin_forward(const Tensor& input) {
  if (input) input_was_ = category_of(input);
  began_ = begin();
}

void Routine::end_forward(const Tensor& input, const std::vector<Tensor>& made) {
  if (!std::exchange(tried_, true)) {
    forward_known_ = learn_forward(input, made);
  } else if (called_) {
    Pass pass;
    if (!read(began_, began_.first, 0, pass) || pass.births != forward_.births ||
        !std::equal(pass.instructions.begin(), pass.instructions.end(), forward_.instructions.begin(), forward_.instructions.end(), same))
      throw Differs{};
  }
}

bool Routine::learn_forward(const Tensor& input, const std::vector<Tensor>& made) {
  if (!read(began_, began_.first, 0, forward_)) return false;
  constexpr std::uint32_t kHolders = 2;  // the caller and `made`
  for (const Tensor& each : made) {
    made_.emplace_back();
    if (each.impl()->references != kHolders || !read(forward_, each, began_.first, made_.back())) return false;
  }
  if (input) input_becomes_ = category_of(input);
  first_ = began_.first;
  output_ = made.front().impl();
  return true;
}

bool Routine::made(const Tensor& output) { return dynamic_cast<const Call*>(output.impl()->grad_fn.get()) != nullptr; }

void Routine::end_backward(const Tensor& input, const Tensor& output) {
  backward_known_ = learn_backward(input, output);
  if (backward_known_) return;
  if (called_) throw Differs{};
  forward_known_ = false;
}

bool Routine::learn_backward(const Tensor& input, const Tensor& output) {
  if (!read(began_, first_, forward_.births, backward_)) return false;
  if (input && input.grad()) {
    const TensorImpl& gradient = *input.grad().impl();
    if (gradient.references != 1 || !read(backward_, input.grad(), began_.first, gradient_.emplace_back())) return false;
  }
  if (output.impl() != output_ && !read(backward_, output, began_.first, replaced_.emplace_back())) return false;
  return nothing_else_is_left();
}

/// Whether both passes free all that they make but for what the caller holds.
bool Routine::nothing_else_is_left() const {
  std::vector<int> left(forward_.births + backward_.births, 1);
  for (const Pass* pass : {&forward_, &backward_})
    for (const std::uint32_t at : pass->naming)
      if (pass->instructions[at].kind == InstructionKind::free) --left[pass->instructions[at].id];
  const auto leave = [&](const std::vector<Form>& forms, bool may_be_freed) {
    return std::all_of(forms.begin(), forms.end(), [&](const Form& form) {
      const bool freed = left[form.name] == 0;
      left[form.name] = 0;
      return !freed || may_be_freed;
    });
  };
  const bool held = leave({made_.front()}, !replaced_.empty()) && leave({made_.begin() + 1, made_.end()}, false) && leave(gradient_, false) &&
                    leave(replaced_, false);
  return held && std::all_of(left.begin(), left.end(), [](int each) { return each == 0; });
}

/// Instructions [from, to) of a pass, with the names of a call.
void Routine::write(const Pass& pass, std::size_t from, std::size_t to, TensorId forward, TensorId backward) {
  std::vector<Instruction>& all = recording();
  const std::size_t at = all.size();
  const auto begin = pass.instructions.begin();
  all.insert(all.end(), begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
  Instruction* const written = all.data() + at;
  for (auto each = std::lower_bound(pass.naming.begin(), pass.naming.end(), from); each != pass.naming.end() && *each < to; ++each) {
    TensorId& id = written[*each - from].id;
    id = id < forward_.births ? forward + id : backward + (id - forward_.births);
  }
}

/// What the caller holds of a call whose instructions stand from `begin` on.
Tensor Routine::tensor_of(const Pass& pass, const Form& form, std::size_t begin, TensorId name) const {
  const Instruction& birth = pass.instructions[form.at];
  Ref<TensorImpl> impl = written_tensor(tape_, written_storage(tape_, name, birth.bytes, birth.stream, &recording(), begin + form.at), form.sizes,
                                        form.strides, form.type);
  impl->requires_grad = form.requires_grad;
  return Tensor(std::move(impl));
}

std::vector<Tensor> Routine::forward(const Tensor& input) {
  called_ = true;
  const std::size_t begin = tape_.recorded();
  const TensorId first = tape_.take_names(forward_.births);
  write(forward_, 0, forward_.instructions.size(), first, 0);
  if (input && input_becomes_ != input_was_) Tape::categorize(input, input_becomes_);
  NodeRef call(new Call(first));
  tape_.attach(*call, "routine", {&input});
  std::vector<Tensor> made;
  for (const Form& form : made_) made.push_back(tensor_of(forward_, form, begin, first + form.name));
  if (made_.front().requires_grad) Tape::set_history(made.front(), call);
  return made;
}

void Routine::backward(const Tensor& input, Tensor& output) {
  if (!backward_known_) throw Differs{};
  const NodeRef call = output.impl()->grad_fn;
  const TensorId forward = static_cast<const Call&>(*call).first;
  const std::size_t begin = tape_.recorded();
  const TensorId backward = tape_.take_names(backward_.births);
  const auto own = [&](const Form& form, std::size_t from) {
    return tensor_of(backward_, form, from, backward + (form.name - forward_.births));
  };
  const auto lets_go = [&](const Instruction& each) {  // of the output, in whose place something else stands
    return !replaced_.empty() && each.kind == InstructionKind::free && each.id == made_.front().name;
  };
  const std::vector<Instruction>& all = backward_.instructions;
  const auto until = static_cast<std::size_t>(std::find_if(all.begin(), all.end(), lets_go) - all.begin());
  write(backward_, 0, until, forward, backward);
  if (!replaced_.empty()) {
    Tensor replaced = own(replaced_.front(), begin);
    Tape::set_history(replaced, call);
    output = std::move(replaced);
  }
  if (until < all.size()) write(backward_, until + 1, all.size(), forward, backward);
  if (!gradient_.empty()) input.grad() = own(gradient_.front(), begin);
}

}  // namespace plimsoll::program
