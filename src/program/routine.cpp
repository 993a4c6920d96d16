#include "program/routine.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/written_tensor.hpp"

namespace plimsoll::program {

/// Stands for the graph of a pass forward that was called.
class Routine::Call final : public Node {
 public:
  void apply(BackwardCall&) override {
    throw Error(ErrorCode::internal, "a pass that was called goes back as part of another graph", "routine");
  }
  std::vector<TensorId> first;  ///< by pass so far: the name of its first tensor
  std::vector<Tensor> shared;   ///< by what was made: what the graph holds of it
};

namespace {

/// Stands for the operator that runs a pass back: the engine labels by it what it does between two nodes.
constexpr char kCaller[] = "";

Category category_of(const Tensor& tensor) {
  const Storage& storage = *tensor.impl()->storage;
  return storage.resident && storage.part != nullptr ? (*storage.part)[storage.at].category : Category::temporary;
}

bool names_a_tensor(const Instruction& each) {
  return each.kind == InstructionKind::alloc || each.kind == InstructionKind::free || each.kind == InstructionKind::record_stream;
}

bool has_label(const Instruction& each) {
  return each.kind == InstructionKind::alloc || each.kind == InstructionKind::kernel || each.kind == InstructionKind::collective ||
         each.kind == InstructionKind::copy;
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

void Routine::begin() {
  began_at_ = tape_.recorded();
  began_with_ = tape_.take_names(0);
}

/// The pass back has run: what its caller's operator did is labelled so.
Routine::Pass Routine::end_of_back() {
  const char* const last = std::exchange(tape_.operator_name, caller_);
  Pass pass;
  std::vector<Instruction>& all = recording();
  for (std::size_t i = began_at_; i < all.size(); ++i) {
    if (!has_label(all[i]) || all[i].label != stand_in_) continue;
    all[i].label = tape_.label();
    pass.of_caller.push_back(static_cast<std::uint32_t>(i - began_at_));
  }
  if (last != kCaller) tape_.operator_name = pass.operator_name = last;
  return pass;
}

/// What was recorded since, as the pass behind those that are known. False where it names tensors of others.
bool Routine::read(Pass& pass) const {
  const std::vector<Instruction>& all = recording();
  pass.instructions.assign(all.begin() + static_cast<std::ptrdiff_t>(began_at_), all.end());
  pass.births = tape_.take_names(0) - began_with_;
  pass.first = began_with_;
  for (const std::uint32_t each : pass.of_caller) pass.instructions[each].label = 0;
  const auto born_in = [](TensorId id) { return [id](const Pass& known) { return id >= known.first && id < known.first + known.births; }; };
  for (std::uint32_t i = 0; i < pass.instructions.size(); ++i) {
    Instruction& instruction = pass.instructions[i];
    if (!names_a_tensor(instruction)) continue;
    const auto of = instruction.id >= began_with_ ? passes_.end() : std::find_if(passes_.begin(), passes_.end(), born_in(instruction.id));
    if (of == passes_.end() && instruction.id < began_with_) return false;
    instruction.id -= of == passes_.end() ? began_with_ : of->first;
    pass.naming.push_back({i, static_cast<std::uint32_t>(of - passes_.begin())});
  }
  return true;
}

/// A tensor that the pass behind those that are known made, and which the caller holds by `holders` references. Nothing where it is no such.
std::optional<Routine::Form> Routine::read(const Pass& pass, const Tensor& tensor, std::uint32_t holders) const {
  const TensorImpl& impl = *tensor.impl();
  const Storage& storage = *impl.storage;
  if (!storage.resident || storage.id < pass.first || storage.id >= pass.first + pass.births) return {};
  const std::uint32_t own = impl.base && impl.base->references == 1 ? 2 : 1;  // a view holds its base
  const bool shared = impl.references > holders || storage.references > own;
  Form form{impl.sizes, impl.strides, impl.dtype, impl.requires_grad, shared, static_cast<std::uint32_t>(passes_.size()), storage.id - pass.first, 0};
  const auto allocates = [&](const Named& named) {
    return named.pass == form.pass && pass.instructions[named.at].kind == InstructionKind::alloc && pass.instructions[named.at].id == form.id;
  };
  const auto named = std::find_if(pass.naming.begin(), pass.naming.end(), allocates);
  if (named == pass.naming.end()) return {};
  form.at = named->at;
  return form;
}

void Routine::begin_forward(const Tensor& input) {
  if (input) input_was_ = category_of(input);
  begin();
}

void Routine::end_forward(const Tensor& input, const std::vector<Tensor>& made) {
  Pass pass;
  pass.operator_name = tape_.operator_name;
  if (!std::exchange(tried_, true)) {
    known_ = learn_forward(std::move(pass), input, made);
  } else if (called_) {
    std::vector<Pass> known;
    known.swap(passes_);
    const bool alone = read(pass);
    passes_.swap(known);
    const Pass& forward = passes_.front();
    if (!alone || pass.births != forward.births ||
        !std::equal(pass.instructions.begin(), pass.instructions.end(), forward.instructions.begin(), forward.instructions.end(), same))
      throw Differs{};
  }
}

bool Routine::learn_forward(Pass pass, const Tensor& input, const std::vector<Tensor>& made) {
  if (!read(pass)) return false;
  constexpr std::uint32_t kHolders = 2;  // the caller and `made`
  for (const Tensor& each : made) {
    const std::optional<Form> form = read(pass, each, kHolders);
    if (!form) return false;
    made_.push_back(*form);
  }
  if (input) input_becomes_ = category_of(input);
  passes_.push_back(std::move(pass));
  const auto shared = [](const Form& form) { return form.shared; };
  return backs_ > 0 || (std::none_of(made_.begin(), made_.end(), shared) && nothing_else_is_left());
}

NodeRef Routine::call_of(const Tensor& output) {
  const NodeRef& node = output.impl()->grad_fn;
  return dynamic_cast<const Call*>(node.get()) != nullptr ? node : NodeRef();
}

void Routine::begin_backward(const Tensor& input, const Tensor& output) {
  had_gradient_ = input && input.grad();
  output_ = output.impl();
  begin();
  caller_ = std::exchange(tape_.operator_name, kCaller);
  stand_in_ = tape_.label();
}

void Routine::end_backward(const Tensor& input, const Tensor& output) {
  known_ = learn_backward(end_of_back(), input, output);
  if (!known_ && called_) throw Differs{};
}

bool Routine::learn_backward(Pass pass, const Tensor& input, const Tensor& output) {
  if (!read(pass)) return false;
  const auto take = [&](const Tensor& tensor, std::optional<Form>& form) {
    form = read(pass, tensor, 1);
    return form && !form->shared;
  };
  if (input && input.grad() && !had_gradient_ && !take(input.grad(), gradient_)) return false;
  if (output.impl() != output_) {
    replaced_ = read(pass, output, 1);
    if (!replaced_) return false;
  }
  passes_.push_back(std::move(pass));
  return passes_.size() < 1 + backs_ || nothing_else_is_left();
}

/// Whether the passes free all that they make but for what the caller holds. Of that they may free what the graph holds too, which the
/// caller let go before, and the output where something else came into its place.
bool Routine::nothing_else_is_left() {
  std::vector<std::vector<std::uint32_t>> freed;  // by pass and tensor: the place behind the instruction, or 0
  for (const Pass& pass : passes_) freed.emplace_back(pass.births);
  std::vector<std::vector<std::uint32_t>> in = freed;
  for (std::uint32_t k = 0; k < passes_.size(); ++k)
    for (const Named& named : passes_[k].naming) {
      const Instruction& instruction = passes_[k].instructions[named.at];
      if (instruction.kind != InstructionKind::free) continue;
      freed[named.pass][instruction.id] = named.at + 1;
      in[named.pass][instruction.id] = k;
    }
  const auto is_freed = [&](const Form& form) { return freed[form.pass][form.id] != 0; };
  for (std::size_t i = 0; i < made_.size(); ++i) {
    const Form& form = made_[i];
    std::uint32_t& place = freed[form.pass][form.id];
    if (place != 0 && !form.shared && !(i == 0 && replaced_)) return false;
    if (place != 0) drops_.push_back({in[form.pass][form.id], place - 1, i});
    place = 1;
  }
  std::sort(drops_.begin(), drops_.end(), [](const Drop& a, const Drop& b) { return a.at < b.at; });
  for (const std::optional<Form>* form : {&gradient_, &replaced_}) {
    if (!*form) continue;
    if (is_freed(**form)) return false;
    freed[(*form)->pass][(*form)->id] = 1;
  }
  return std::all_of(freed.begin(), freed.end(), [](const auto& of_pass) { return std::count(of_pass.begin(), of_pass.end(), 0U) == 0; });
}

/// Instructions [from, to) of a pass, with the names of a call.
void Routine::write(const Call& call, std::uint32_t number, std::size_t from, std::size_t to) {
  const Pass& pass = passes_[number];
  std::vector<Instruction>& all = recording();
  const std::size_t at = all.size();
  const auto begin = pass.instructions.begin();
  all.insert(all.end(), begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to));
  Instruction* const written = all.data() + at;
  const auto before = [](const Named& named, std::size_t place) { return named.at < place; };
  for (auto named = std::lower_bound(pass.naming.begin(), pass.naming.end(), from, before); named != pass.naming.end() && named->at < to; ++named)
    written[named->at - from].id += call.first[named->pass];
  for (auto each = std::lower_bound(pass.of_caller.begin(), pass.of_caller.end(), from); each != pass.of_caller.end() && *each < to; ++each)
    written[*each - from].label = tape_.label();
}

/// What the caller holds of a call whose instructions of that pass stand from `begin` on.
Tensor Routine::tensor_of(const Call& call, const Form& form, std::size_t begin) const {
  const Instruction& birth = passes_[form.pass].instructions[form.at];
  const TensorId name = call.first[form.pass] + form.id;
  Ref<TensorImpl> impl = written_tensor(tape_, written_storage(tape_, name, birth.bytes, birth.stream, &recording(), begin + form.at), form.sizes,
                                        form.strides, form.type);
  impl->requires_grad = form.requires_grad;
  return Tensor(std::move(impl));
}

std::vector<Tensor> Routine::forward(const Tensor& input) {
  called_ = true;
  const std::size_t begin = tape_.recorded();
  auto* const call = new Call;
  const NodeRef node(call);
  call->first.push_back(tape_.take_names(passes_.front().births));
  write(*call, 0, 0, passes_.front().instructions.size());
  if (input && input_becomes_ != input_was_) Tape::categorize(input, input_becomes_);
  tape_.attach(*call, "routine", {&input});
  std::vector<Tensor> made;
  for (const Form& form : made_) {
    made.push_back(tensor_of(*call, form, begin));
    call->shared.push_back(form.shared ? made.back().detach() : Tensor());
  }
  if (made_.front().requires_grad) Tape::set_history(made.front(), node);
  if (passes_.front().operator_name) tape_.operator_name = passes_.front().operator_name;
  return made;
}

void Routine::backward(const NodeRef& node, const Tensor& input, Tensor& output) {
  auto& call = static_cast<Call&>(*node);
  const auto number = static_cast<std::uint32_t>(call.first.size());
  if (!known_ || number >= passes_.size()) throw Differs{};
  const Pass& pass = passes_[number];
  const std::size_t begin = tape_.recorded();
  call.first.push_back(tape_.take_names(pass.births));
  std::size_t written = 0;
  bool replaces = replaced_ && replaced_->pass == number;
  const auto replace = [&] {
    Tensor replaced = tensor_of(call, *replaced_, begin);
    Tape::set_history(replaced, node);
    output = std::move(replaced);
    replaces = false;
  };
  for (const Drop& drop : drops_) {
    if (drop.pass != number) continue;
    write(call, number, written, drop.at);
    written = drop.at + std::size_t{1};
    call.shared[drop.made].reset();
    if (drop.made == 0 && replaces) replace();
    if (tape_.recorded() != begin + written) throw Differs{};  // something else holds it
  }
  write(call, number, written, pass.instructions.size());
  if (replaces) replace();
  if (gradient_ && gradient_->pass == number) input.grad() = tensor_of(call, *gradient_, begin);
  if (number == backs_) call.shared.clear();
  if (pass.operator_name) tape_.operator_name = pass.operator_name;
}

}  // namespace plimsoll::program
