// Python's operators on tensors: Tensor.__add__ and its like.
#include "code/torch/arguments.hpp"
#include "code/torch/followed.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

/// A number as an operand: whole numbers with a real operand become fp32, in the same kernel.
Tensor widened(const char* name, const Tensor& x) { return program::Op(name, {&x}).elementwise({&x}, DType::fp32); }

// ---- at::matmul of unequal ranks (LinearAlgebra.cpp) ----

/// should_fold: the wider tensor as one matrix of rows, with a copy where that spares a factor its gradient of each batch.
bool folds(const Tensor& a, const Tensor& b) {
  const bool left_wider = a.rank() > b.rank();
  const Tensor& wide = left_wider ? a : b;
  const Tensor& narrow = left_wider ? b : a;
  if (narrow.rank() != 2) return false;
  if (narrow.requires_grad()) return true;
  if (!left_wider) return false;
  for (int i = 0; i + 2 < wide.rank(); ++i)
    if (wide.strides()[i] != wide.strides()[i + 1] * wide.size(i + 1)) return false;
  return true;
}

Tensor folded_product(const Tensor& a, const Tensor& b) {
  const bool turned = b.rank() > a.rank();
  const Tensor wide = turned ? program::transpose(b, b.rank() - 2, b.rank() - 1) : a, narrow = turned ? program::transpose(a, 0, 1) : b;
  Dims sizes = wide.sizes();
  sizes[-1] = narrow.size(1);
  const Tensor product = program::unsafe_view(program::mm(program::reshape(wide, {-1, wide.size(-1)}), narrow), sizes);
  return turned ? program::contiguous(program::transpose(product, product.rank() - 2, product.rank() - 1)) : product;
}

/// All batches, the narrower factor expanded to them.
Tensor batched_product(const Tensor& a, const Tensor& b) {
  const Tensor& narrow = a.rank() < b.rank() ? a : b;
  const Tensor& wide = a.rank() < b.rank() ? b : a;
  Dims sizes;
  for (int i = 0; i < wide.rank() - 2; ++i) sizes.push_back(wide.size(i));
  sizes.push_back(narrow.size(-2));
  sizes.push_back(narrow.size(-1));
  const Tensor expanded = program::expand(narrow, sizes);
  return a.rank() < b.rank() ? program::matmul(expanded, b) : program::matmul(a, expanded);
}

}  // namespace

/// A number as the tensor that a function of torch takes it for: one of the host.
Value Torch::tensor_of_number(const Value& number) {
  if (!number.is_number()) i_.raise("TypeError", "an operand must be Tensor, not " + i_.type_name(number));
  const DType type = number.is_real() ? default_type : number.is_boolean() ? DType::boolean : DType::int64;
  return follow(wrap(host_.empty({}, type)), {number.as_real()});
}

Value Torch::binary(Operator op, const Value& a, const Value& b) {
  if (!is_tensor(a) && !is_tensor(b)) return binary(op, tensor_of_number(a), b);
  Value result = binary_result(op, a, b);
  follow_binary(*this, op, a, b, result);
  return result;
}

namespace {

/// Whether a kernel takes an operand for a number (TensorIterator::is_cpu_scalar): one of the host without dimensions, beside a tensor of
/// the device, in what opmath_gpu_kernel_with_scalars computes.
bool is_number_of_kernel(const Torch& torch, Operator op, const Tensor& operand, const Tensor& beside) {
  const bool arithmetic = op == Operator::add || op == Operator::subtract || op == Operator::multiply || op == Operator::divide;
  return arithmetic && operand.rank() == 0 && !torch.is_on_device(operand) && torch.is_on_device(beside) && !operand.requires_grad() &&
         operand.dtype() != DType::complex64;
}

Value number_like(const Tensor& operand) { return is_floating(operand.dtype()) ? Value::real(1) : Value::integer(1); }

}  // namespace

Value Torch::binary_result(Operator op, const Value& a, const Value& b) {
  if (op == Operator::matrix_multiply) {
    const Tensor left = tensor_of(a, "an operand"), right = tensor_of(b, "an operand");
    return wrap(matmul(left, right));
  }
  if (is_tensor(a) && is_tensor(b)) {
    const Tensor left = tensor(a), right = tensor(b);
    check_devices({&left, &right});
    check_broadcast(left, right);
    if (is_number_of_kernel(*this, op, right, left)) return binary_result(op, a, number_like(right));
    if (is_number_of_kernel(*this, op, left, right)) return binary_result(op, number_like(left), b);
    if (left.dtype() == DType::complex64 || right.dtype() == DType::complex64) {
      if (op != Operator::multiply || left.dtype() != right.dtype()) i_.unknown("this operator on complex numbers", "a product of two");
      return wrap(program::multiply_complex(left, right));
    }
    switch (op) {
      case Operator::add:
        return wrap(program::add(left, right));
      case Operator::subtract:
        return wrap(program::subtract(left, right));
      case Operator::multiply:
        return wrap(program::multiply(left, right));
      case Operator::divide:
        if (!is_floating(left.dtype()) && !is_floating(right.dtype()))
          return wrap(program::Op("div", {&left, &right}).elementwise({&left, &right}, DType::fp32));
        return wrap(program::divide(left, right));
      case Operator::power:
        if (left.requires_grad() || right.requires_grad()) i_.unknown("a power by a tensor's exponents of what takes a gradient");
        return wrap(program::compare(left, right, program::common_type(left, right)));
      case Operator::modulo:
        if (right.requires_grad()) i_.unknown("a remainder by what takes a gradient");
        return wrap(program::remainder(left, right));
      case Operator::floor_divide:
        return wrap(program::floor_quotient(left, right, program::common_type(left, right)));
      case Operator::bit_and:
      case Operator::bit_or:
      case Operator::bit_xor:
        if (is_floating(left.dtype()) || is_floating(right.dtype())) break;
        return wrap(program::compare(left, right, program::common_type(left, right)));
      default:
        break;
    }
    i_.unknown("this operator on two tensors");
  }
  const Tensor x = tensor(is_tensor(a) ? a : b);
  const Value& number = is_tensor(a) ? b : a;
  const bool behind = is_tensor(a);
  if (!number.is_number()) i_.raise("TypeError", "unsupported operand type(s): 'Tensor' and '" + i_.type_name(number) + "'");
  if (x.dtype() == DType::complex64) {
    if (op != Operator::multiply || x.requires_grad()) i_.unknown("this operator on complex numbers", "a product");
    return wrap(program::compare(x, {}, DType::complex64));
  }
  const bool widens = !is_floating(x.dtype()) && (number.is_real() || op == Operator::divide);
  switch (op) {
    case Operator::add:
      return wrap(widens ? widened("add", x) : program::add_scalar(x));
    case Operator::subtract:
      if (widens) return wrap(widened("sub", x));
      return wrap(behind ? program::add_scalar(x) : program::negate(x));  // number - x is rsub: one kernel, whose gradient is negated
    case Operator::multiply:
      return wrap(widens ? widened("mul", x) : program::multiply_scalar(x));
    case Operator::divide: {
      if (behind) return wrap(widens ? widened("div", x) : program::divide_scalar(x));
      const Tensor inverse = widens ? widened("reciprocal", x) : program::reciprocal(x);  // Tensor.__rtruediv__: x.reciprocal() * number
      return wrap(program::multiply_scalar(inverse));
    }
    case Operator::power:
      if (!behind) return wrap(program::raised(x, !number.is_real()));
      if (widens) return wrap(widened("pow", x));
      return wrap(program::power_of(x, number.as_real()));
    case Operator::modulo:
      if (!behind) i_.unknown("the remainder of a number by a tensor");
      return wrap(widens ? widened("remainder", x) : program::remainder(x, {}));
    case Operator::floor_divide:
      if (!behind) i_.unknown("a number divided by a tensor and rounded");
      return wrap(program::floor_quotient(x, {}, number.is_real() && !is_floating(x.dtype()) ? DType::fp32 : x.dtype()));
    case Operator::bit_and:
    case Operator::bit_or:
    case Operator::bit_xor:
      if (is_floating(x.dtype()) || number.is_real()) break;
      return wrap(program::compare(x, {}, x.dtype() == DType::boolean && !number.is_boolean() ? DType::int64 : x.dtype()));
    default:
      break;
  }
  i_.unknown("this operator on a tensor and a number");
}

void Torch::check_changeable(const Tensor& x) {
  if (x.is_leaf() && x.requires_grad() && grad_enabled())
    i_.raise("RuntimeError", "a leaf Variable that requires grad is being used in an in-place operation.");
}

Value Torch::replace(const Value& target, Tensor made) {
  auto& object = *target.as<TensorObject>();
  if (object.followed) *object.followed->changed = true;
  object.ids_below = 0;
  object.tensor = std::move(made);
  return target;
}

Value Torch::in_place(Operator op, const Value& target, const Value& other) {
  const Tensor x = tensor(target);
  check_changeable(x);
  const bool whole = !is_floating(x.dtype());
  if (is_tensor(other)) {
    const Tensor y = tensor(other);
    check_devices({&x, &y});
    check_broadcast(x, y);
    if (program::broadcast_sizes({&x, &y}) != x.sizes()) wrong_shape("output with shape does not match the broadcast shape");
    const bool bits = op == Operator::bit_and || op == Operator::bit_or || op == Operator::bit_xor;
    if (bits && whole && !is_floating(y.dtype())) {
      program::in_place(x, {&x, &y});
      return replace(target, x);
    }
    if (op == Operator::add) return replace(target, program::add_into(x, y));
    if (op == Operator::subtract) return replace(target, program::subtract_in_place(x, y));
    if (op == Operator::multiply) return replace(target, program::multiply_in_place(x, y));
    if (op == Operator::divide && !whole) return replace(target, program::divide_in_place(x, y));
  } else if (other.is_number() && (!whole || (!other.is_real() && op != Operator::divide))) {
    if (op == Operator::divide) return replace(target, program::divide_scalar_into(x));
    if (op == Operator::multiply) return replace(target, program::multiply_in_place(x, {}));
    if (op == Operator::add || op == Operator::subtract) return replace(target, program::subtract_in_place(x, {}));
  }
  i_.unknown("this operator in place on a tensor", "x = x … is");
}

Value Torch::compared(Operator op, const Value& a, const Value& b) {
  if (!is_tensor(a) && !is_tensor(b)) return compared(op, tensor_of_number(a), b);
  if (!is_tensor(a) || !is_tensor(b)) {
    const Value& other = is_tensor(a) ? b : a;
    if (!other.is_number()) return Value::boolean(op == Operator::not_equal);
  }
  Value result;
  if (is_tensor(a) && is_tensor(b)) {
    const Tensor left = tensor(a), right = tensor(b);
    check_devices({&left, &right});
    check_broadcast(left, right);
    result = wrap(program::compare(left, right, DType::boolean));
  } else {
    result = wrap(program::compare(tensor(is_tensor(a) ? a : b), {}, DType::boolean));
  }
  follow_binary(*this, op, a, b, result);
  follow_compared_ids(*this, op, a, b, result);
  return result;
}

Value Torch::unary(Operator op, const Value& value) {
  const Tensor x = tensor(value);
  if (op == Operator::positive) return value;
  if (op == Operator::negative) {
    Value result = wrap(program::negate(x));
    follow_binary(*this, Operator::subtract, Value::integer(0), value, result);
    return result;
  }
  if (op == Operator::invert && !is_floating(x.dtype())) {
    Value result = wrap(program::compare(x, {}, x.dtype()));
    if (x.dtype() == DType::boolean) follow_binary(*this, Operator::equal, value, Value::integer(0), result);
    return result;
  }
  i_.unknown("this operator on a tensor");
}

/// torch.matmul: a product of two matrices, of batches of them, or, where the second is one matrix, of all rows with it.
Tensor Torch::matmul(const Tensor& a_in, const Tensor& b_in) {
  check_devices({&a_in, &b_in});
  if (a_in.rank() < 2 || b_in.rank() < 2) i_.unknown("a product of vectors");
  if (a_in.size(-1) != b_in.size(-2))
    wrong_shape("mat1 and mat2 shapes cannot be multiplied (" + std::to_string(a_in.size(-2)) + "x" + std::to_string(a_in.size(-1)) +
                " and " + std::to_string(b_in.size(-2)) + "x" + std::to_string(b_in.size(-1)) + ")");
  for (int i = 3; i <= std::min(a_in.rank(), b_in.rank()); ++i)
    if (a_in.size(-i) != b_in.size(-i) && a_in.size(-i) != 1 && b_in.size(-i) != 1)
      wrong_shape("The size of tensor a (" + std::to_string(a_in.size(-i)) + ") must match the size of tensor b (" +
                  std::to_string(b_in.size(-i)) + ") at non-singleton dimension " + std::to_string(std::max(a_in.rank(), b_in.rank()) - i));
  if (a_in.rank() == 2 && b_in.rank() == 2) return program::mm(a_in, b_in);
  if (a_in.rank() == b_in.rank()) return program::matmul(a_in, b_in);
  const Tensor b = program::autocast_low(b_in), a = program::autocast_low(a_in);
  return folds(a, b) ? folded_product(a, b) : batched_product(a, b);
}

}  // namespace plimsoll::code
