// Methods and attributes of tensors; most are functions of torch too.
#include <algorithm>

#include "code/torch/arguments.hpp"
#include "plimsoll/error.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;
using In = Torch::In;

namespace {

Torch& of(Interpreter& i) { return i.torch(); }
const Tensor& self(Interpreter& i, Bound& a) { return i.torch().tensor_of(a[0], "input"); }

// ---- shapes ---------------------------------------------------------------------------------------------------------

std::string listed(const Dims& sizes) {
  std::string text;
  for (int i = 0; i < sizes.rank(); ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return "[" + text + "]";
}

/// Throws Raised where a view of these sizes, one of which may be -1, does not hold as many elements.
void check_elements(Interpreter& i, const Tensor& x, const Dims& sizes) {
  std::int64_t known = 1;
  int inferred = 0;
  for (int at = 0; at < sizes.rank(); ++at) (sizes[at] == -1 ? static_cast<void>(++inferred) : static_cast<void>(known *= sizes[at]));
  const bool fits = inferred > 1 ? false : inferred == 1 ? known > 0 && x.elements() % known == 0 : known == x.elements();
  if (!fits) of(i).wrong_shape("shape '" + listed(sizes) + "' is invalid for input of size " + std::to_string(x.elements()));
}

/// Whether a view of these sizes exists without a copy.
bool has_view(const Tensor& x, Dims sizes) {
  if (x.is_contiguous()) return true;
  std::int64_t known = 1;
  int inferred = -1;
  for (int i = 0; i < sizes.rank(); ++i) (sizes[i] < 0 ? static_cast<void>(inferred = i) : static_cast<void>(known *= sizes[i]));
  if (inferred >= 0) sizes[inferred] = x.elements() / std::max<std::int64_t>(known, 1);
  return program::can_view(x, sizes);
}

Value view(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  if (a.rest.size() == 1 && a.rest.front().as<TokenObject>() != nullptr) i.unknown("a view as another type");
  const Dims sizes = of(i).sizes_of(a.rest, "sizes");
  check_elements(i, x, sizes);
  if (!has_view(x, sizes))
    of(i).wrong_shape(
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous subspaces). "
        "Use "
        ".reshape(...) instead.");
  return of(i).wrap(program::view(x, sizes));
}

Value reshape(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  if (a.values.size() > 1 && a.has(1)) a.rest = {a[1]};
  const Dims sizes = of(i).sizes_of(a.rest, "sizes");
  check_elements(i, x, sizes);
  return of(i).wrap(program::reshape(x, sizes));
}

/// view_as(other), reshape_as(other).
template <Value (*kFunction)(Interpreter&, Bound&)>
Value as_other(Interpreter& i, Bound& a) {
  a.rest = {of(i).size_value(of(i).tensor_of(a[1], "other").sizes())};
  a.values.resize(1);
  return kFunction(i, a);
}

Value transpose(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  return of(i).wrap(program::transpose(x, of(i).dimension_of(a[1], x.rank()), of(i).dimension_of(a[2], x.rank())));
}

Value permuted(Interpreter& i, const Tensor& x, const std::vector<Value>& order) {
  Dims sizes;
  std::vector<bool> seen(static_cast<std::size_t>(x.rank()), false);
  for (const Value& each : order) {
    const int dimension = of(i).dimension_of(each, x.rank());
    if (seen[static_cast<std::size_t>(dimension)]) of(i).wrong_shape("permute(dims): duplicate dims are not allowed.");
    seen[static_cast<std::size_t>(dimension)] = true;
    sizes.push_back(dimension);
  }
  if (sizes.rank() != x.rank())
    of(i).wrong_shape(
        "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions");
  return of(i).wrap(program::permute(x, sizes));
}

Value permute(Interpreter& i, Bound& a) {
  const bool listed = a.rest.size() == 1 && !a.rest.front().is_integer();
  return permuted(i, self(i, a), listed ? i.all_of(a.rest.front()) : a.rest);
}

Value turned(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  if (x.rank() != 2) i.unknown("t() of " + std::to_string(x.rank()) + " dimensions");
  return of(i).wrap(program::transpose(x, 0, 1));
}

Value unsqueeze(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  of(i).check_rank(x.rank() + 1);
  return of(i).wrap(program::unsqueeze(x, of(i).dimension_of(a[1], x.rank() + 1)));
}

Value squeeze(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  std::vector<int> dimensions = of(i).dimensions_of(a[1], x.rank());
  if (!a.has(1))
    for (int at = 0; at < x.rank(); ++at) dimensions.push_back(at);
  std::erase_if(dimensions, [&](int dimension) { return x.size(dimension) != 1; });
  if (dimensions.empty()) return a[0];
  std::sort(dimensions.rbegin(), dimensions.rend());
  Tensor made = x;
  for (const int dimension : dimensions) made = program::squeeze(made, dimension);
  return of(i).wrap(std::move(made));
}

Value expanded(Interpreter& i, const Tensor& x, const Dims& sizes) {
  const int added = sizes.rank() - x.rank();
  if (added < 0)
    of(i).wrong_shape("expand(): the number of sizes provided must be greater or equal to the number of dimensions in the tensor");
  for (int at = 0; at < sizes.rank(); ++at) {
    const std::int64_t own = at < added ? 1 : x.size(at - added);
    if (sizes[at] != own && own != 1 && sizes[at] != -1)
      of(i).wrong_shape("The expanded size of the tensor (" + std::to_string(sizes[at]) + ") must match the existing size (" +
                        std::to_string(own) + ") at non-singleton dimension " + std::to_string(at));
    if (sizes[at] == -1 && at < added)
      of(i).wrong_shape("The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension");
  }
  return of(i).wrap(program::expand(x, sizes));
}

Value expand(Interpreter& i, Bound& a) { return expanded(i, self(i, a), of(i).sizes_of(a.rest, "sizes")); }
Value expand_as(Interpreter& i, Bound& a) { return expanded(i, self(i, a), of(i).tensor_of(a[1], "other").sizes()); }

Value flatten(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  const int rank = std::max(x.rank(), 1), first = a.has(1) ? of(i).dimension_of(a[1], rank) : 0,
            last = a.has(2) ? of(i).dimension_of(a[2], rank) : rank - 1;
  if (first > last) of(i).wrong_shape("flatten() has invalid args: start_dim cannot come after end_dim");
  if (first == last) return a[0];
  Dims sizes;
  std::int64_t joined = 1;
  for (int at = 0; at < x.rank(); ++at) {
    if (at < first || at > last) sizes.push_back(x.size(at));
    if (at >= first && at <= last) joined *= x.size(at);
    if (at == last) sizes.push_back(joined);
  }
  return of(i).wrap(program::reshape(x, sizes));
}

Value unflatten(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  const int dimension = of(i).dimension_of(a[1], x.rank());
  std::vector<std::int64_t> sizes;
  for (int at = 0; at < x.rank(); ++at) {
    if (at != dimension) sizes.push_back(x.size(at));
    if (at == dimension)
      for (const Value& each : i.all_of(a[2])) sizes.push_back(i.whole(each, "sizes"));
  }
  const Dims made = of(i).checked(std::move(sizes));
  check_elements(i, x, made);
  return of(i).wrap(program::view(x, made));
}

Value split(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  const int dimension = a.has(2) ? of(i).dimension_of(a[2], x.rank()) : 0;
  const std::int64_t size = x.size(dimension);
  std::vector<std::int64_t> sizes;
  std::int64_t total = 0;
  constexpr std::int64_t kMostParts = 10'000;
  if (a[1].is_integer()) {
    const std::int64_t each = a[1].as_integer();
    if (each <= 0) of(i).wrong_shape("split expects split_size be non-negative");
    if (size / each > kMostParts) i.unknown("a split into more than 10,000 parts");
    for (; total < size; total += each) sizes.push_back(std::min(each, size - total));
    total = size;
  } else {
    for (const Value& each : i.all_of(a[1])) {
      sizes.push_back(i.whole(each, "sizes"));
      total += std::clamp<std::int64_t>(sizes.back(), 0, size + 1);
      if (sizes.back() < 0 || sizes.size() > kMostParts)
        of(i).wrong_shape("split_with_sizes expects split_sizes have only non-negative entries");
    }
  }
  if (total != size)
    of(i).wrong_shape("split_with_sizes expects split_sizes to sum exactly to " + std::to_string(size) +
                      " (input tensor's size at dimension " + std::to_string(dimension) + "), but got other split_sizes");
  return of(i).wrap_all(program::split(x, sizes, dimension));
}

Value chunk(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  const std::int64_t count = i.whole(a[1], "chunks");
  if (count < 1 || count > 10'000) of(i).wrong_shape("chunk expects `chunks` to be greater than 0");
  return of(i).wrap_all(program::chunk(x, static_cast<int>(count), a.has(2) ? of(i).dimension_of(a[2], x.rank()) : 0));
}

Value unbind(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  const int dimension = a.has(1) ? of(i).dimension_of(a[1], x.rank()) : 0;
  if (x.size(dimension) > 10'000) i.unknown("unbind() into more than 10,000 parts");
  return of(i).wrap_all(program::unbind(x, dimension));
}

Value size(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  return a.has(1) ? Value::integer(x.size(of(i).dimension_of(a[1], x.rank()))) : of(i).size_value(x.sizes());
}

Value stride(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  if (a.has(1)) return Value::integer(x.strides()[of(i).dimension_of(a[1], x.rank())]);
  std::vector<Value> steps;
  for (int at = 0; at < x.rank(); ++at) steps.push_back(Value::integer(x.strides()[at]));
  return i.tuple(std::move(steps));
}

// ---- types and devices ---------------------------------------------------------------------------------------------------

Value cast(Interpreter& i, const Value& value, DType type) {
  const Tensor x = of(i).tensor_of(value, "input");
  return x.dtype() == type ? value : of(i).wrap(program::to(x, type));
}

template <DType kType>
Value cast_to(Interpreter& i, Bound& a) {
  return cast(i, a[0], kType);
}

/// type(dtype), which is to(dtype); the names of types that it takes as text are those of 2017.
Value typed_as(Interpreter& i, Bound& a) {
  if (!a.has(1)) i.unknown("a tensor's type as text");
  return cast(i, a[0], of(i).type_of(a[1]));
}

Value moved(Interpreter& i, const Value& value, program::Tape& tape) {
  const Tensor x = of(i).tensor_of(value, "input");
  if (&x.tape() == &tape) return value;
  if (of(i).is_on_device(x)) i.unknown("a copy of a tensor to the host", "what the device computes is not followed");
  Tensor made = tape.empty(x.sizes(), x.dtype());
  made.set_requires_grad(x.requires_grad());
  tape.copy({Copy::Direction::host_to_device, made.bytes()}, tape.stream);
  return of(i).wrap(std::move(made));
}

/// Whether memory_format= asks for a row-major result; unbound and torch.preserve_format ask for none.
bool asks_row_major(Interpreter& i, const Value& format) {
  if (!format.is_bound() || format.is_none()) return false;
  const auto* token = format.as<TokenObject>();
  if (token != nullptr && token->name == "torch.preserve_format") return false;
  if (token == nullptr || token->name != "torch.contiguous_format") i.unknown("memory_format=" + i.written(format), "torch.contiguous_format");
  return true;
}

/// to(dtype), to(device), to(device, dtype), to(other).
Value to(Interpreter& i, Bound& a) {
  Value value = a[0];
  const bool row_major = asks_row_major(i, a[4]);
  std::vector<Value> wanted = a.rest;
  for (std::size_t at : {std::size_t{1}, std::size_t{2}})
    if (a.has(at)) wanted.push_back(a[at]);
  Value type;
  for (const Value& each : wanted) {
    const auto* token = each.as<TokenObject>();
    if (Torch::is_tensor(each)) {
      const Tensor other = of(i).tensor(each);
      value = moved(i, value, other.tape());
      type = of(i).type_value(other.dtype());
    } else if (token != nullptr && token->kind == TokenObject::Kind::dtype) {
      type = each;
    } else {
      value = moved(i, value, of(i).tape_of(each));
    }
  }
  if (!type.is_bound()) return value;
  const DType wanted_type = of(i).type_of(type);
  // What has the type stays as it lies: suggest_memory_format() of strides that are not channels last is contiguous_format (to_will_alias).
  const Tensor x = of(i).tensor_of(value, "input");
  if (!row_major || x.dtype() == wanted_type) return cast(i, value, wanted_type);
  return of(i).wrap(program::to_row_major(x, wanted_type));
}

Value type_as(Interpreter& i, Bound& a) {
  const Tensor other = of(i).tensor_of(a[1], "other");
  return cast(i, moved(i, a[0], other.tape()), other.dtype());
}

// ---- arithmetic --------------------------------------------------------------------------------------------------------------

template <Tensor (*kFunction)(const Tensor&)>
Value unary(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  if (!is_floating(x.dtype())) {  // negation and the absolute stay whole, all else becomes fp32 in the same kernel
    const bool stays = kFunction == program::negate || kFunction == program::absolute;
    return of(i).wrap(program::Op("map", {&x}).elementwise({&x}, stays ? x.dtype() : DType::fp32));
  }
  return of(i).wrap(kFunction(x));
}

template <Operator kOperator>
Value binary(Interpreter& i, Bound& a) {
  return of(i).binary(kOperator, a[0], a[1]);
}

template <Operator kOperator>
Value compared(Interpreter& i, Bound& a) {
  return of(i).compared(kOperator, a[0], a[1]);
}

template <Operator kOperator>
Value changed(Interpreter& i, Bound& a) {
  return of(i).in_place(kOperator, a[0], a[1]);
}

/// add(other, alpha=), sub(other, alpha=): a factor in the same kernel, which multiplies the other's gradient.
template <Operator kOperator>
Value scaled_sum(Interpreter& i, Bound& a) {
  if (a.has(2) && i.number(a[2], "alpha") != 1 && Torch::is_tensor(a[1])) {
    if (of(i).tensor(a[1]).requires_grad()) i.unknown("alpha= of a tensor that takes a gradient");
  }
  return of(i).binary(kOperator, a[0], a[1]);
}

Value power(Interpreter& i, Bound& a) { return of(i).binary(Operator::power, a[0], a[1]); }
Value square(Interpreter& i, Bound& a) { return of(i).binary(Operator::power, a[0], Value::integer(2)); }

Value matmul(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a), y = of(i).tensor_of(a[1], "other");
  return of(i).wrap(of(i).matmul(x, y));
}

Value batched(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a), y = of(i).tensor_of(a[1], "mat2");
  if (x.rank() != 3 || y.rank() != 3 || x.size(0) != y.size(0) || x.size(2) != y.size(1))
    of(i).wrong_shape("batch1 must be a 3D tensor, and both must fit");
  return of(i).wrap(program::bmm(x, y));
}

Value detach(Interpreter& i, Bound& a) { return of(i).wrap(self(i, a).detach()); }

Value contiguous(Interpreter& i, Bound& a) {
  if (a[1].is_bound() && !asks_row_major(i, a[1])) return a[0];
  return self(i, a).is_contiguous() ? a[0] : of(i).wrap(program::contiguous(self(i, a)));
}

Value clone(Interpreter& i, Bound& a) {
  const Tensor x = self(i, a);
  // Of strided elements clone(contiguous_format) is what contiguous() does.
  return of(i).wrap(asks_row_major(i, a[1]) && !x.is_contiguous() ? program::contiguous(x) : program::clone(x));
}

Value require_grad(Interpreter& i, Bound& a) {
  of(i).set_tensor_attribute(a[0], i.symbol("requires_grad"), Value::boolean(!a[1].is_bound() || i.truth(a[1])));
  return a[0];
}

Value number_of(Interpreter& i, Bound& a) { return Value::integer(self(i, a).elements()); }
Value rank_of(Interpreter& i, Bound& a) { return Value::integer(self(i, a).rank()); }
Value is_contiguous(Interpreter& i, Bound& a) { return Value::boolean(self(i, a).is_contiguous()); }
Value floating(Interpreter& i, Bound& a) { return Value::boolean(is_floating(self(i, a).dtype())); }
Value element_size(Interpreter& i, Bound& a) { return Value::integer(size_of(self(i, a).dtype())); }

constexpr OperatorRow kRows[] = {
    {In::tensor, "view", "input, *sizes", view},
    {In::tensor, "reshape", "input, *sizes, shape=", reshape},
    {In::torch, "reshape", "input, shape", reshape},
    {In::tensor, "view_as", "input, other", as_other<view>},
    {In::tensor, "reshape_as", "input, other", as_other<reshape>},
    {In::both, "transpose", "input, dim0, dim1", transpose},
    {In::both, "swapaxes", "input, axis0, axis1", transpose},
    {In::tensor, "permute", "input, *dims", permute},
    {In::torch, "permute", "input, dims", [](Interpreter& i, Bound& a) { return permuted(i, self(i, a), i.all_of(a[1])); }},
    {In::both, "t", "input", turned},
    {In::both, "unsqueeze", "input, dim", unsqueeze},
    {In::both, "squeeze", "input, dim=", squeeze},
    {In::tensor, "expand", "input, *sizes", expand},
    {In::tensor, "broadcast_to", "input, *size", expand},
    {In::torch, "broadcast_to", "input, size",
     [](Interpreter& i, Bound& a) { return expanded(i, self(i, a), of(i).sizes_of(a[1], "size")); }},
    {In::tensor, "expand_as", "input, other", expand_as},
    {In::both, "flatten", "input, start_dim=, end_dim=", flatten},
    {In::both, "unflatten", "input, dim, sizes", unflatten},
    {In::both, "split", "input, split_size_or_sections, dim=", split},
    {In::tensor, "split", "input, split_size, dim=", split},
    {In::both, "split_with_sizes", "input, split_sizes, dim=", split},
    {In::both, "chunk", "input, chunks, dim=", chunk},
    {In::both, "unbind", "input, dim=", unbind},
    {In::tensor, "size", "input, dim=", size},
    {In::tensor, "stride", "input, dim=", stride},
    {In::tensor, "dim", "input", rank_of},
    {In::tensor, "numel", "input", number_of},
    {In::torch, "numel", "input", number_of},
    {In::tensor, "nelement", "input", number_of},
    {In::tensor, "is_contiguous", "input", is_contiguous},
    {In::both, "is_floating_point", "input", floating},
    {In::tensor, "element_size", "input", element_size},
    {In::tensor, "float", "input", cast_to<DType::fp32>},
    {In::tensor, "double", "input", cast_to<DType::fp64>},
    {In::tensor, "half", "input", cast_to<DType::fp16>},
    {In::tensor, "bfloat16", "input", cast_to<DType::bf16>},
    {In::tensor, "long", "input", cast_to<DType::int64>},
    {In::tensor, "int", "input", cast_to<DType::int32>},
    {In::tensor, "bool", "input", cast_to<DType::boolean>},
    {In::tensor, "to", "input, *wanted, device=, dtype=, non_blocking=, memory_format=", to},
    {In::tensor, "cuda", "input", [](Interpreter& i, Bound& a) { return moved(i, a[0], of(i).tape_of(i.text("cuda"))); }},
    {In::tensor, "cpu", "input", [](Interpreter& i, Bound& a) { return moved(i, a[0], of(i).host()); }},
    {In::tensor, "type", "input, dtype=", typed_as},
    {In::tensor, "type_as", "input, other", type_as},
    {In::both, "add", "input, other, *, alpha=", scaled_sum<Operator::add>},
    {In::both, "sub", "input, other, *, alpha=", scaled_sum<Operator::subtract>},
    {In::both, "mul", "input, other", binary<Operator::multiply>},
    {In::tensor, "add_", "input, other", changed<Operator::add>},
    {In::tensor, "div_", "input, other", changed<Operator::divide>},
    {In::both, "eq", "input, other", compared<Operator::equal>},
    {In::both, "ne", "input, other", compared<Operator::not_equal>},
    {In::both, "lt", "input, other", compared<Operator::less>},
    {In::both, "gt", "input, other", compared<Operator::greater>},
    {In::both, "le", "input, other", compared<Operator::less_equal>},
    {In::both, "ge", "input, other", compared<Operator::greater_equal>},
    {In::both, "not_equal", "input, other", compared<Operator::not_equal>},
    {In::both, "less", "input, other", compared<Operator::less>},
    {In::both, "less_equal", "input, other", compared<Operator::less_equal>},
    {In::both, "greater", "input, other", compared<Operator::greater>},
    {In::both, "greater_equal", "input, other", compared<Operator::greater_equal>},
    {In::both, "neg", "input", unary<program::negate>},
    {In::both, "pow", "input, exponent", power},
    {In::both, "square", "input", square},
    {In::both, "sqrt", "input", unary<program::square_root>},
    {In::both, "rsqrt", "input", unary<program::rsqrt>},
    {In::both, "exp", "input", unary<program::exponential>},
    {In::both, "log", "input", unary<program::logarithm>},
    {In::both, "abs", "input", unary<program::absolute>},
    {In::both, "reciprocal", "input", unary<program::reciprocal>},
    {In::both, "tanh", "input", unary<program::tanh>},
    {In::both, "sigmoid", "input", unary<program::sigmoid>},
    {In::both, "relu", "input", unary<program::relu>},
    {In::both, "tril", "input, diagonal=", [](Interpreter& i, Bound& a) { return of(i).wrap(program::triangle(self(i, a))); }},
    {In::both, "triu", "input, diagonal=", [](Interpreter& i, Bound& a) { return of(i).wrap(program::triangle(self(i, a))); }},
    {In::both, "matmul", "input, other", matmul},
    {In::both, "mm", "input, mat2", matmul},
    {In::both, "bmm", "input, mat2", batched},
    {In::tensor, "contiguous", "input, memory_format=", contiguous},
    {In::both, "clone", "input, *, memory_format=", clone},
    {In::both, "detach", "input", detach},
    {In::tensor, "requires_grad_", "input, requires_grad=", require_grad},
};

}  // namespace

void define_tensor_methods(Interpreter&, Torch& torch) {
  for (const OperatorRow& row : kRows) torch.define(row.in, row.name, row.signature, row.run);
}

Value Torch::tensor_attribute(const Value& of_value, Symbol name) {
  const auto method = methods_.find(name);
  if (method != methods_.end()) return Value(new BoundMethodObject(i_.heap(), of_value, method->second));
  const std::string& wanted = i_.names().text(name);
  const Tensor x = tensor(of_value);
  if (wanted == "shape") return size_value(x.sizes());
  if (wanted == "dtype") return type_value(x.dtype());
  if (wanted == "ndim") return Value::integer(x.rank());
  if (wanted == "device") return Value(new TokenObject(i_.heap(), TokenObject::Kind::device, is_on_device(x) ? "cuda" : "cpu"));
  if (wanted == "is_cuda") return Value::boolean(is_on_device(x));
  if (wanted == "requires_grad") return Value::boolean(x.requires_grad());
  if (wanted == "grad") return Value::none();
  if (wanted == "data") return wrap(x.detach());
  if (wanted == "T" && x.rank() == 2) return wrap(program::transpose(x, 0, 1));
  if (wanted == "mT" && x.rank() >= 2) return wrap(program::transpose(x, x.rank() - 2, x.rank() - 1));
  return {};
}

void Torch::set_tensor_attribute(const Value& of_value, Symbol name, const Value& value) {
  auto& object = *of_value.as<TensorObject>();
  const std::string& wanted = i_.names().text(name);
  if (wanted == "requires_grad") {
    object.tensor.set_requires_grad(i_.truth(value));
    if (object.parameter) object.parameter->trainable = i_.truth(value);
    return;
  }
  const bool on_host = !is_on_device(object.current());
  if (wanted == "data" && on_host) {
    const Tensor data = tensor_of(value, "data");
    const bool trains = object.tensor.requires_grad();
    object.tensor = data.detach();
    object.tensor.set_requires_grad(trains);
    if (object.parameter) {
      object.parameter->sizes = data.sizes();
      object.parameter->type = data.dtype();
    }
    return;
  }
  // A mark of one's own on a weight (weight.NO_DECAY = True) changes nothing here.
  if (on_host && object.parameter) return;
  i_.unknown("setting a tensor's '" + wanted + "'");
}

std::vector<std::string> Torch::tensor_attributes() const {
  std::vector<std::string> names{"shape", "dtype", "ndim", "device", "requires_grad", "data", "T", "mT"};
  for (const auto& [name, value] : methods_) names.push_back(i_.names().text(name));
  return names;
}

Value Torch::token_attribute(const TokenObject& token, Symbol name) {
  const std::string& wanted = i_.names().text(name);
  if (token.kind == TokenObject::Kind::device && wanted == "type") return i_.text(token.name.substr(0, token.name.find(':')));
  if (token.kind == TokenObject::Kind::device && wanted == "index") return Value::integer(0);
  if (token.kind == TokenObject::Kind::dtype && wanted == "itemsize") return Value::integer(size_of(static_cast<DType>(token.number)));
  if (token.kind == TokenObject::Kind::dtype && wanted == "is_floating_point")
    return Value::boolean(is_floating(static_cast<DType>(token.number)));
  return {};
}

}  // namespace plimsoll::code
