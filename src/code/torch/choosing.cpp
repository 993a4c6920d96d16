// where, extremes and their places, sums, norms, softmax: what chooses or reduces.
#include "program/ops/choosing.hpp"

#include "code/torch/arguments.hpp"
#include "code/torch/followed.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"
#include "program/ops/triangular.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;
using In = Torch::In;

namespace {

DType type_of_number(const Value& number, DType beside) {
  if (number.is_real() && !is_floating(beside)) return DType::fp32;
  return beside;
}

Value where(Interpreter& i, Bound& a) {
  const Tensor condition = input_of(i, a);
  if (!a.has(1) && !a.has(2)) {
    const Value places = torch_of(i).places_of(a[0], "torch.where with a condition alone");
    return i.tuple(i.all_of(i.call(i.attribute(places, i.symbol("unbind")), std::vector<Value>{Value::integer(1)})));
  }
  if (!a.has(1) || !a.has(2)) i.raise("TypeError", "where() received an invalid combination of arguments");
  const Tensor left = Torch::is_tensor(a[1]) ? torch_of(i).tensor(a[1]) : Tensor(),
               right = Torch::is_tensor(a[2]) ? torch_of(i).tensor(a[2]) : Tensor();
  torch_of(i).check_devices({&condition, &left, &right});
  for (const Tensor* side : {&left, &right})
    if (*side) torch_of(i).check_broadcast(condition, *side);
  if (left && right) torch_of(i).check_broadcast(left, right);
  const bool real = a[1].is_real() || a[2].is_real(), truths = a[1].is_boolean() && a[2].is_boolean();
  const DType number = left && right   ? DType::fp32
                       : left || right ? type_of_number(left ? a[2] : a[1], (left ? left : right).dtype())
                       : real          ? torch_of(i).default_type  // two numbers: of the type that both have
                       : truths        ? DType::boolean
                                       : DType::int64;
  Value made = torch_of(i).wrap(program::where(condition, left, right, number));
  follow_chosen(torch_of(i), a[0], a[1], a[2], made);
  return made;
}

/// x.where(condition, other).
Value where_of(Interpreter& i, Bound& a) {
  std::swap(a.values[0], a.values[1]);
  return where(i, a);
}

void check_mask(Interpreter& i, const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != DType::boolean) torch_of(i).wrong_shape("masked_fill_ only supports boolean masks");
  torch_of(i).check_devices({&x, &mask});
  torch_of(i).check_broadcast(x, mask);
}

Value masked_fill(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), mask = torch_of(i).tensor_of(a[1], "mask");
  check_mask(i, x, mask);
  const Tensor value = Torch::is_tensor(a[2]) ? torch_of(i).tensor(a[2]) : Tensor();
  if (value && value.rank() != 0)
    torch_of(i).wrong_shape("masked_fill_ only supports a 0-dimensional value tensor, but got tensor with " + std::to_string(value.rank()) +
                            " dimension(s).");
  const bool plain = !value && program::broadcast_sizes({&x, &mask}) == x.sizes();
  Value made = torch_of(i).wrap(plain ? program::masked_fill(x, mask) : program::masked_fill_by(x, mask, value));
  if (plain && a[2].is_number()) follow_masked(torch_of(i), a[0], a[1], a[2].as_real(), made);
  return made;
}

Value masked_fill_into(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), mask = torch_of(i).tensor_of(a[1], "mask");
  check_mask(i, x, mask);
  if (Torch::is_tensor(a[2])) i.unknown("masked_fill_ with a tensor's value");
  torch_of(i).check_changeable(x);
  const std::int64_t before = ids_below(torch_of(i), a[0]), filling = ids_below(torch_of(i), a[2]);
  Value result = torch_of(i).replace(a[0], program::masked_fill_into(x, mask));
  if (before > 0 && filling > 0) result.as<TensorObject>()->ids_below = std::max(before, filling);
  return result;
}

Value clamp(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!a.has(1) && !a.has(2)) torch_of(i).wrong_shape("torch.clamp: At least one of 'min' or 'max' must not be None");
  if (!Torch::is_tensor(a[1]) && !Torch::is_tensor(a[2])) {
    Value made = torch_of(i).wrap(a.has(1) && a.has(2) ? program::clamp(x) : program::clamp_one_side(x));
    follow_clamped(torch_of(i), a[0], a[1], a[2], made);
    return made;
  }
  const auto bound = [&](std::size_t at) -> Tensor {
    if (!a.has(at)) return {};
    if (!Torch::is_tensor(a[at])) i.unknown("clamp() between a number and a tensor");
    const Tensor& given = torch_of(i).tensor(a[at]);
    if (given.requires_grad()) i.unknown("clamp() to bounds that take a gradient");
    torch_of(i).check_devices({&x, &given});
    torch_of(i).check_broadcast(x, given);
    return given;
  };
  return torch_of(i).wrap(program::clamp_between(x, bound(1), bound(2)));
}

template <std::size_t kMost>
Value clamp_side(Interpreter& i, Bound& a) {
  a.values.resize(3);
  if (kMost == 1) std::swap(a.values[1], a.values[2]);
  return clamp(i, a);
}

/// amax, amin.
Value extreme(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(program::extreme(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 2)));
}

Value named_pair(Interpreter& i, Tensor values, Tensor indices) {
  Value pair = torch_of(i).wrap_all({std::move(values), std::move(indices)});
  pair.as<SequenceObject>()->is_pair_of_values = true;
  return pair;
}

/// max(), max(other), max(dim, keepdim).
Value largest(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!a.has(1)) return torch_of(i).wrap(program::extreme_of_all(x));
  if (Torch::is_tensor(a[1])) {
    const Tensor other = torch_of(i).tensor(a[1]);
    torch_of(i).check_devices({&x, &other});
    torch_of(i).check_broadcast(x, other);
    return torch_of(i).wrap(program::larger_of(x, other));
  }
  program::TopK found = program::extreme_with_place(x, torch_of(i).dimension_of(a[1], x.rank()), flag(i, a, 2));
  return named_pair(i, std::move(found.values), std::move(found.indices));
}

Value place(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimension = dimension_at(i, a, 1, x.rank(), -1);
  Value made = torch_of(i).wrap(program::place_of_extreme(x, dimension, flag(i, a, 2)));
  return dimension >= 0 && dimension == x.rank() - 1 ? torch_of(i).deal(std::move(made), x.size(-1)) : made;
}

Value truths(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(program::reduced_to(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 2), DType::boolean));
}

Tensor typed(Interpreter& i, const Tensor& x, const Value& type) {
  return type.is_bound() && !type.is_none() ? program::to(x, torch_of(i).type_of(type)) : x;
}

Value mean(Interpreter& i, Bound& a) {
  const Tensor x = typed(i, input_of(i, a), a[3]);
  if (!is_floating(x.dtype()))
    torch_of(i).wrong_shape("mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype.");
  return torch_of(i).wrap(program::mean(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 2)));
}

Value sum(Interpreter& i, Bound& a) {
  const Tensor given = input_of(i, a);
  const bool to_fp32 = a.has(3) && torch_of(i).type_of(a[3]) == DType::fp32 && size_of(given.dtype()) == 2;
  const Tensor x = to_fp32 ? given : typed(i, given, a[3]);
  const std::vector<int> dimensions = torch_of(i).dimensions_of(a[1], x.rank());
  if (to_fp32) return torch_of(i).wrap(program::sum_in_fp32(x, dimensions, flag(i, a, 2)));
  if (is_floating(x.dtype())) return torch_of(i).wrap(program::sum(x, dimensions, flag(i, a, 2)));
  return torch_of(i).wrap(program::reduced_to(x, dimensions, flag(i, a, 2), DType::int64));
}

Value product(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.requires_grad()) i.unknown("prod() of what takes a gradient", "its backward reads what the tensor holds");
  return torch_of(i).wrap(
      program::reduced_to(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 2), is_floating(x.dtype()) ? x.dtype() : DType::int64));
}

Value cumprod(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.requires_grad()) i.unknown("cumprod() of what takes a gradient", "its backward reads what the tensor holds");
  if (x.rank() == 0) i.unknown("cumprod() of a number");
  const DType own = is_floating(x.dtype()) ? x.dtype() : DType::int64;
  return torch_of(i).wrap(program::running_sum(x, torch_of(i).dimension_of(a[1], x.rank()), a.has(2) ? torch_of(i).type_of(a[2]) : own));
}

Value cumsum(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const bool low = x.dtype() == DType::bf16 || x.dtype() == DType::fp16;
  const DType own = is_floating(x.dtype()) ? (x.tape().autocast.enabled && low ? DType::fp32 : x.dtype()) : DType::int64;
  if (x.rank() == 0) i.unknown("cumsum() of a number");
  return torch_of(i).wrap(program::running_sum(x, torch_of(i).dimension_of(a[1], x.rank()), a.has(2) ? torch_of(i).type_of(a[2]) : own));
}

template <bool kLogarithm>
Value softmax(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!is_floating(x.dtype())) i.unknown("softmax of whole numbers");
  if (!a.has(1)) i.unknown("softmax without its dimension", "dim=-1");
  const bool low = x.dtype() == DType::bf16 || x.dtype() == DType::fp16;
  const DType own = kLogarithm && x.tape().autocast.enabled && low ? DType::fp32 : x.dtype();
  return torch_of(i).wrap(
      program::softmax_over(x, torch_of(i).dimension_of(a[1], x.rank()), a.has(2) ? torch_of(i).type_of(a[2]) : own, kLogarithm));
}

/// norm(p, dim, keepdim), linalg.vector_norm(ord, dim, keepdim): the square's alone.
Value norm(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const auto* words = a[1].as<TextObject>();
  if (a.has(1) && !(words != nullptr && words->text == "fro") && !(a[1].is_number() && a[1].as_real() == 2))
    i.unknown("a norm of another kind than the Euclidean", "p=2");
  return torch_of(i).wrap(program::norm_of(x, torch_of(i).dimensions_of(a[2], x.rank()), flag(i, a, 3)));
}

/// torch._weight_norm(v, g, dim).
Value weight_norm(Interpreter& i, Bound& a) {
  const Tensor v = input_of(i, a), g = torch_of(i).tensor_of(a[1], "g");
  torch_of(i).check_devices({&v, &g});
  const int dimension = dimension_at(i, a, 2, v.rank(), 0);
  if (dimension != 0 && dimension != v.rank() - 1) i.unknown("a weight's norm over another dimension than the first or the last");
  if (v.dtype() == DType::fp16) i.unknown("a weight's norm in fp16");
  return torch_of(i).wrap(program::weight_norm(v, g));
}

/// F.normalize: input / input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input).
Value normalized(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (a.has(1) && i.number(a[1], "p") != 2) i.unknown("normalize() with another p than 2");
  if (x.rank() < 1) i.unknown("normalize() of a number");
  const int dimension = a.has(2) ? torch_of(i).dimension_of(a[2], x.rank()) : std::min(1, x.rank() - 1);
  const Tensor wide = program::expand(program::clamp_one_side(program::norm_of(x, {dimension}, true)), x.sizes());
  return torch_of(i).wrap(program::divide(x, wide));
}

template <bool kRoot>
Value variance(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(program::variance(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 4), kRoot));
}

Value log_sum_exp(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(program::log_sum_exp(x, torch_of(i).dimensions_of(a[1], x.rank()), flag(i, a, 2)));
}

Value top(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const std::int64_t k = i.whole(a[1], "k");
  if (x.rank() < 1 || dimension_at(i, a, 2, x.rank(), x.rank() - 1) != x.rank() - 1) i.unknown("topk over another than the last dimension");
  if (k < 1 || k > x.size(-1)) torch_of(i).wrong_shape("selected index k out of range");
  program::TopK found = flag(i, a, 4, true) ? program::top_k(x, k) : program::unsorted_top_k(x, k);
  const Value pair = named_pair(i, std::move(found.values), std::move(found.indices));
  (void)torch_of(i).deal(pair.as<SequenceObject>()->items[1], x.size(-1));
  return pair;
}

Value sorted(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  constexpr std::int64_t kOneBlock = 4096;  // Sort.cu
  if (x.rank() < 1 || dimension_at(i, a, 1, x.rank(), x.rank() - 1) != x.rank() - 1) i.unknown("sort over another than the last dimension");
  if (x.size(-1) > kOneBlock && x.rank() == 1 && x.dtype() == DType::int64) {
    program::SortedIntegers all = program::sort_integers(x);
    return named_pair(i, std::move(all.values), std::move(all.order));
  }
  if (x.size(-1) > kOneBlock) i.unknown("a sort of more than 4,096 numbers");
  program::TopK found = program::sorted_rows(x);
  return named_pair(i, std::move(found.values), std::move(found.indices));
}

Value sorted_order(Interpreter& i, Bound& a) {
  const Value both = sorted(i, a);
  return both.as<SequenceObject>()->items[1];
}

Value solve_triangular(Interpreter& i, Bound& a) {
  const Tensor system = torch_of(i).tensor_of(a[0], "A"), sides = torch_of(i).tensor_of(a[1], "B");
  torch_of(i).check_devices({&system, &sides});
  if (!flag(i, a, 3, true)) i.unknown("solve_triangular() from the right", "left=True");
  if (system.rank() < 2 || system.size(-1) != system.size(-2)) torch_of(i).wrong_shape("linalg.solve_triangular: A must be batches of square matrices");
  if ((system.dtype() != DType::fp32 && system.dtype() != DType::fp64) || sides.dtype() != system.dtype())
    i.raise("NotImplementedError", "\"triangular_solve_cuda\" is implemented of matrices of one type, in 32 or 64 bits");
  bool fits = system.rank() == sides.rank() && sides.size(-2) == system.size(-1);
  for (int at = 0; fits && at + 2 < system.rank(); ++at) fits = system.size(at) == sides.size(at);
  if (!fits) i.unknown("solve_triangular() of batches that are broadcast", "A [*, n, n] and B [*, n, m]");
  return torch_of(i).wrap(program::solve_triangular(system, sides));
}

Value softmax_backward(Interpreter& i, Bound& a) {
  const Tensor gradient = torch_of(i).tensor_of(a[0], "grad_output"), result = torch_of(i).tensor_of(a[1], "output");
  torch_of(i).check_devices({&gradient, &result});
  if (gradient.sizes() != result.sizes()) torch_of(i).wrong_shape("grad_output and output must be of one shape");
  if (gradient.requires_grad() && torch_of(i).grad_enabled()) i.unknown("a gradient of _softmax_backward_data");
  return torch_of(i).wrap(program::softmax_gradient(gradient, result, torch_of(i).dimension_of(a[2], result.rank()), torch_of(i).type_of(a[3])));
}

constexpr OperatorRow kRows[] = {
    {In::torch, "_softmax_backward_data", "grad_output, output, dim, input_dtype", softmax_backward},
    {In::torch, "where", "condition, input=, other=", where},
    {In::tensor, "where", "input, condition, other", where_of},
    {In::both, "masked_fill", "input, mask, value", masked_fill},
    {In::tensor, "masked_fill_", "input, mask, value", masked_fill_into},
    {In::both, "clamp", "input, min=, max=", clamp},
    {In::both, "clip", "input, min=, max=", clamp},
    {In::both, "clamp_min", "input, min", clamp_side<0>},
    {In::both, "clamp_max", "input, max", clamp_side<1>},
    {In::both, "amax", "input, dim=, keepdim=", extreme},
    {In::both, "amin", "input, dim=, keepdim=", extreme},
    {In::both, "max", "input, dim=, keepdim=", largest},
    {In::both, "min", "input, dim=, keepdim=", largest},
    {In::both, "argmax", "input, dim=, keepdim=", place},
    {In::both, "argmin", "input, dim=, keepdim=", place},
    {In::both, "any", "input, dim=, keepdim=", truths},
    {In::both, "all", "input, dim=, keepdim=", truths},
    {In::both, "mean", "input, dim=, keepdim=, *, dtype=", mean},
    {In::both, "sum", "input, dim=, keepdim=, *, dtype=", sum},
    {In::both, "prod", "input, dim=, keepdim=", product},
    {In::both, "cumprod", "input, dim, *, dtype=", cumprod},
    {In::both, "cumsum", "input, dim, *, dtype=", cumsum},
    {In::both, "softmax", "input, dim=, dtype=", softmax<false>},
    {In::both, "log_softmax", "input, dim=, dtype=", softmax<true>},
    {In::torch, "_weight_norm", "v, g, dim=", weight_norm},
    {In::both, "norm", "input, p=, dim=, keepdim=", norm},
    {In::both, "var", "input, dim=, unbiased=, correction=, keepdim=", variance<false>},
    {In::both, "std", "input, dim=, unbiased=, correction=, keepdim=", variance<true>},
    {In::both, "logsumexp", "input, dim, keepdim=", log_sum_exp},
    {In::both, "topk", "input, k, dim=, largest=, sorted=", top},
    {In::both, "sort", "input, dim=, descending=, stable=", sorted},
    {In::both, "argsort", "input, dim=, descending=, stable=", sorted_order},
};

}  // namespace

void define_choosing(Interpreter& i, Torch& torch) {
  for (const OperatorRow& row : kRows) torch.define(row.in, row.name, row.signature, row.run);
  NamespaceObject& library = i.library("torch");
  NamespaceObject& functional = i.library("torch.nn.functional");
  for (const char* name : {"softmax", "log_softmax"}) functional.attributes[i.symbol(name)] = library.attributes.at(i.symbol(name));
  functional.attributes[i.symbol("normalize")] = i.native("torch.nn.functional.normalize", "input, p=, dim=, eps=", normalized);
  i.library("torch.linalg").attributes[i.symbol("vector_norm")] = i.native("torch.linalg.vector_norm", "input, ord=, dim=, keepdim=", norm);
  i.library("torch.linalg").attributes[i.symbol("solve_triangular")] =
      i.native("torch.linalg.solve_triangular", "A, B, *, upper, left=, unitriangular=", solve_triangular);
  i.library("torch.linalg").attributes[i.symbol("norm")] = i.native("torch.linalg.norm", "input, ord=, dim=, keepdim=", norm);
}

}  // namespace plimsoll::code
