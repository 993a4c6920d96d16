// Functions of torch that make or join tensors.
#include <algorithm>
#include <cmath>

#include "code/torch/followed.hpp"
#include "plimsoll/error.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

Torch& of(Interpreter& i) { return i.torch(); }

std::vector<Tensor> tensors_of(Interpreter& i, const Value& value) {
  std::vector<Tensor> tensors;
  for (const Value& each : i.all_of(value)) tensors.push_back(of(i).tensor_of(each, "expected"));
  if (tensors.empty()) of(i).wrong_shape("expected a non-empty list of Tensors");
  for (const Tensor& each : tensors) of(i).check_devices({&tensors.front(), &each});
  return tensors;
}

Value cat(Interpreter& i, Bound& a) {
  std::vector<Tensor> tensors = tensors_of(i, a[0]);
  // cat_should_skip_tensor: nothing, in one dimension, fits behind anything.
  const auto is_nothing = [](const Tensor& each) { return each.rank() == 1 && each.elements() == 0; };
  if (!std::all_of(tensors.begin(), tensors.end(), is_nothing)) std::erase_if(tensors, is_nothing);
  const int rank = tensors.front().rank(), dimension = a.has(1) ? of(i).dimension_of(a[1], rank) : 0;
  for (const Tensor& each : tensors) {
    if (each.rank() != rank)
      of(i).wrong_shape("Tensors must have same number of dimensions: got " + std::to_string(rank) + " and " + std::to_string(each.rank()));
    for (int at = 0; at < rank; ++at)
      if (at != dimension && each.size(at) != tensors.front().size(at))
        of(i).wrong_shape("Sizes of tensors must match except in dimension " + std::to_string(dimension) + ". Expected size " +
                          std::to_string(tensors.front().size(at)) + " but got size " + std::to_string(each.size(at)));
  }
  Value result = of(i).wrap(program::cat(tensors, dimension));
  if (tensors.size() == i.all_of(a[0]).size()) follow_joined(of(i), i.all_of(a[0]), dimension, result);
  return result;
}

Value stack(Interpreter& i, Bound& a) {
  const std::vector<Tensor> tensors = tensors_of(i, a[0]);
  of(i).check_rank(tensors.front().rank() + 1);
  for (const Tensor& each : tensors)
    if (each.sizes() != tensors.front().sizes()) of(i).wrong_shape("stack expects each tensor to be equal size");
  const int dimension = a.has(1) ? of(i).dimension_of(a[1], tensors.front().rank() + 1) : 0;
  Value result = of(i).wrap(program::stack(tensors, dimension));
  follow_joined(of(i), i.all_of(a[0]), dimension, result);
  return result;
}

/// The count of torch.arange's numbers and whether they are whole.
Value arange(Interpreter& i, Bound& a) {
  const double first = i.number(a[0], "torch.arange()"), start = a.has(1) ? first : 0,
               end = a.has(1) ? i.number(a[1], "torch.arange()") : first;
  const double step = a.has(2) ? i.number(a[2], "torch.arange()") : 1;
  if (step == 0) of(i).wrong_shape("step must be nonzero");
  const double count = std::ceil((end - start) / step);
  if (!(count >= 0 && count < 0x1p48)) of(i).wrong_shape("upper bound and lower bound inconsistent with step sign");
  const bool whole = a[0].is_integer() && (!a.has(1) || a[1].is_integer()) && (!a.has(2) || a[2].is_integer());
  const DType type = a.has(3) ? of(i).type_of(a[3]) : whole ? DType::int64 : of(i).default_type;
  Value made = of(i).wrap(program::arange(of(i).tape_of(a[4]), static_cast<std::int64_t>(count), type));
  std::vector<double> values;
  constexpr double kMost = 1 << 14;
  for (double at = 0; count <= kMost && at < count; ++at) values.push_back(start + at * step);
  return of(i).follow(std::move(made), values);
}

Tensor filled_like(Interpreter& i, const Dims& sizes, DType type, program::Tape& tape, bool zeros, bool kernel) {
  for (int at = 0; at < sizes.rank(); ++at)
    if (sizes[at] < 0) of(i).wrong_shape("Trying to create tensor with negative dimension " + std::to_string(sizes[at]));
  if (zeros) return program::zeros(tape, sizes, type);
  return kernel ? program::filled(tape, sizes, type) : tape.empty(sizes, type);
}

/// torch.zeros(*sizes), torch.ones, torch.empty, torch.randn. `kNumber`: what it holds; -1: not known.
template <bool kZeros, bool kKernel, int kNumber = -1>
Value made(Interpreter& i, Bound& a) {
  const std::vector<Value> given = a.has(0) ? std::vector<Value>{a[0]} : a.rest;
  Tensor tensor =
      filled_like(i, of(i).sizes_of(given, "sizes"), a.has(1) ? of(i).type_of(a[1]) : of(i).default_type, of(i).tape_of(a[2]), kZeros, kKernel);
  if (a.has(3)) tensor.set_requires_grad(i.truth(a[3]));
  Value result = of(i).wrap(std::move(tensor));
  return kNumber < 0 ? result : of(i).follow_filled(std::move(result), kNumber);
}

Value full(Interpreter& i, Bound& a) {
  const DType own = a[1].is_boolean() ? DType::boolean : a[1].is_integer() ? DType::int64 : of(i).default_type;
  Value made =
      of(i).wrap(filled_like(i, of(i).sizes_of(a[0], "sizes"), a.has(2) ? of(i).type_of(a[2]) : own, of(i).tape_of(a[3]), false, true));
  return a[1].is_number() ? of(i).follow_filled(std::move(made), a[1].as_real()) : made;
}

template <bool kZeros, bool kKernel>
Value made_like(Interpreter& i, Bound& a) {
  const Tensor x = of(i).tensor_of(a[0], "input");
  Tensor made = filled_like(i, x.sizes(), a.has(1) ? of(i).type_of(a[1]) : x.dtype(), a.has(2) ? of(i).tape_of(a[2]) : x.tape(), kZeros, kKernel);
  if (a.has(3)) made.set_requires_grad(i.truth(a[3]));
  Value result = of(i).wrap(std::move(made));
  return kZeros || kKernel ? of(i).follow_filled(std::move(result), kZeros ? 0 : 1) : result;
}

/// Numbers of lists within lists, in order.
void collect_numbers(Interpreter& i, const Value& value, std::vector<double>& values) {
  const Interpreter::Depth deeper(i);
  i.step();
  if (value.is_number()) values.push_back(value.as_real());
  if (const auto* sequence = value.as<SequenceObject>())
    for (const Value& each : sequence->items) collect_numbers(i, each, values);
}

/// torch.tensor(data): numbers, or lists of them.
Value tensor(Interpreter& i, Bound& a) {
  std::vector<std::int64_t> sizes;
  Value inner = a[0];
  DType type = DType::int64;
  while (const auto* sequence = inner.as<SequenceObject>()) {
    sizes.push_back(static_cast<std::int64_t>(sequence->items.size()));
    of(i).check_rank(static_cast<int>(sizes.size()));
    if (sequence->items.empty()) break;
    for (const Value& each : sequence->items)
      if (each.is_real()) type = of(i).default_type;
    const Value next = sequence->items.front();
    inner = next;
  }
  if (Torch::is_tensor(inner) && !inner.same(a[0])) i.unknown("a tensor of what other tensors hold");
  if (Torch::is_tensor(inner)) {  // a copy
    const Value numbers = i.torch().follows(inner) ? i.call(i.attribute(inner, i.symbol("tolist")), std::vector<Value>{}) : Value();
    if (!numbers.is_bound()) i.unknown("a tensor of what another holds", "what the device computes is not followed");
    a.values[0] = numbers;
    if (!a.has(1)) a.values[1] = of(i).type_value(of(i).tensor(inner).dtype());
    return tensor(i, a);
  }
  if (inner.is_real()) type = of(i).default_type;
  if (inner.is_boolean()) type = DType::boolean;
  program::Tape& tape = of(i).tape_of(a[2]);
  Tensor made = tape.empty(of(i).checked(std::move(sizes)), a.has(1) ? of(i).type_of(a[1]) : type);
  if (&tape != &of(i).host()) tape.copy({Copy::Direction::host_to_device, made.bytes()}, tape.stream);
  std::vector<double> values;
  collect_numbers(i, a[0], values);
  return of(i).follow(of(i).wrap(std::move(made)), values);
}

Value outer(Interpreter& i, Bound& a) {
  const Tensor x = of(i).tensor_of(a[0], "input"), y = of(i).tensor_of(a[1], "vec2");
  if (x.rank() != 1 || y.rank() != 1) of(i).wrong_shape("outer: Expected 1-D argument self and vec2");
  of(i).check_devices({&x, &y});
  const Tensor column = program::view(x, {x.size(0), 1});  // at::outer: self.reshape({n, 1}) * vec2
  return of(i).wrap(program::multiply(column, y));
}

Value device(Interpreter& i, Bound& a) {
  std::string name = a[0].is_integer()                   ? "cuda"
                     : a[0].as<TokenObject>() != nullptr ? a[0].as<TokenObject>()->name
                                                         : i.words(a[0], "devices");
  if (name.starts_with("cuda")) name = "cuda";
  return Value(new TokenObject(i.heap(), TokenObject::Kind::device, std::move(name)));
}

constexpr LibraryRow kRows[] = {
    {"cat", "tensors, dim=", cat},
    {"concat", "tensors, dim=", cat},
    {"concatenate", "tensors, dim=", cat},
    {"stack", "tensors, dim=", stack},
    {"arange", "start, end=, step=, *, dtype=, device=, requires_grad=", arange},
    {"Size", "sizes", [](Interpreter& i, Bound& a) { return of(i).size_value(of(i).sizes_of(a[0], "sizes")); }},
    {"full", "size, fill_value, *, dtype=, device=, requires_grad=", full},
    {"zeros_like", "input, *, dtype=, device=, requires_grad=, memory_format=", made_like<true, false>},
    {"ones_like", "input, *, dtype=, device=, requires_grad=, memory_format=", made_like<false, true>},
    {"empty_like", "input, *, dtype=, device=, requires_grad=, memory_format=", made_like<false, false>},
    {"tensor", "data, *, dtype=, device=, requires_grad=", tensor},
    {"device", "type, index=", device},
    {"manual_seed", "seed", [](Interpreter&, Bound&) { return Value::none(); }},
    {"is_tensor", "of", [](Interpreter&, Bound& a) { return Value::boolean(Torch::is_tensor(a[0])); }},
};

}  // namespace

void define_functions(Interpreter& i, Torch& torch) {
  torch.define(Torch::In::both, "outer", "input, vec2", outer);
  NamespaceObject& library = i.library("torch");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("torch.") + row.name, row.signature, row.run);
  const auto sized = [&](const char* name, Value (*run)(Interpreter&, Bound&)) {
    // The sizes stand first and may be many; what follows is named.
    library.attributes[i.symbol(name)] =
        i.native(std::string("torch.") + name, "*sizes, size=, dtype=, device=, requires_grad=, generator=", run);
  };
  sized("zeros", made<true, false, 0>);
  sized("ones", made<false, true, 1>);
  sized("empty", made<false, false>);
  sized("randn", made<false, true>);
  sized("rand", [](Interpreter& inner, Bound& a) {
    Value drawn = made<false, true>(inner, a);
    const Tensor& one = of(inner).tensor(drawn);
    const bool expected = of(inner).expects_draws && one.elements() == 1 && !of(inner).is_on_device(one);
    return expected ? of(inner).follow_filled(std::move(drawn), 0.5) : drawn;
  });
  library.attributes[i.symbol("normal")] =
      i.native("torch.normal", "mean, std, size, *, generator=, dtype=, device=", [](Interpreter& inner, Bound& a) {
        Bound given{{a[2], a[4], a[5], Value()}, {}, {}};
        return made<false, true>(inner, given);
      });
  NamespaceObject& cuda = i.library("torch.cuda");
  cuda.attributes[i.symbol("is_available")] =
      i.native("torch.cuda.is_available", "", [](Interpreter&, Bound&) { return Value::boolean(true); });
  cuda.attributes[i.symbol("device_count")] =
      i.native("torch.cuda.device_count", "", [](Interpreter&, Bound&) { return Value::integer(1); });
}

}  // namespace plimsoll::code
