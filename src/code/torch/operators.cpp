// Python's operators on tensors: Tensor.__add__ and its like.
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

bool is_floating(DType type) { return type == DType::fp32 || type == DType::fp64 || type == DType::bf16 || type == DType::fp16; }

/// A number as an operand: whole numbers with a real operand become fp32, in the same kernel.
Tensor widened(const char* name, const Tensor& x) { return program::Op(name, {&x}).elementwise({&x}, DType::fp32); }

}  // namespace

Value Torch::binary(Operator op, const Value& a, const Value& b) {
  if (op == Operator::matrix_multiply) {
    const Tensor left = tensor_of(a, "an operand"), right = tensor_of(b, "an operand");
    return wrap(matmul(left, right));
  }
  if (is_tensor(a) && is_tensor(b)) {
    const Tensor left = tensor(a), right = tensor(b);
    check_devices({&left, &right});
    check_broadcast(left, right);
    switch (op) {
      case Operator::add:
        return wrap(program::add(left, right));
      case Operator::subtract:
        return wrap(program::subtract(left, right));
      case Operator::multiply:
        return wrap(program::multiply(left, right));
      case Operator::divide:
        if (!is_floating(left.dtype()) && !is_floating(right.dtype())) break;
        return wrap(program::divide(left, right));
      case Operator::bit_and:
      case Operator::bit_or:
      case Operator::bit_xor:
        if (is_floating(left.dtype()) || is_floating(right.dtype())) break;
        return wrap(program::compare(left, right, left.dtype()));
      default:
        break;
    }
    i_.unknown("this operator on two tensors");
  }
  const Tensor x = tensor(is_tensor(a) ? a : b);
  const Value& number = is_tensor(a) ? b : a;
  const bool behind = is_tensor(a);
  if (!number.is_number()) i_.raise("TypeError", "unsupported operand type(s): 'Tensor' and '" + i_.type_name(number) + "'");
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
      if (!behind) return wrap(program::raised(x));
      if (widens) return wrap(widened("pow", x));
      if (number.as_real() == 0.5) return wrap(program::square_root(x));
      if (number.as_real() == -0.5 && is_floating(x.dtype())) i_.unknown("a tensor to the power of -0.5", "torch.rsqrt");
      if (number.as_real() != static_cast<double>(static_cast<int>(number.as_real()))) i_.unknown("a tensor to a broken power");
      return wrap(program::power(x, static_cast<int>(number.as_real())));
    default:
      i_.unknown("this operator on a tensor and a number");
  }
}

Value Torch::in_place(Operator op, const Value& target, const Value& other) {
  const Tensor x = tensor(target);
  if (x.is_leaf() && x.requires_grad() && grad_enabled())
    i_.raise("RuntimeError", "a leaf Variable that requires grad is being used in an in-place operation.");
  const auto into = [&](Tensor made) {
    target.as<TensorObject>()->tensor = std::move(made);
    return target;
  };
  if (is_tensor(other)) {
    const Tensor y = tensor(other);
    check_devices({&x, &y});
    check_broadcast(x, y);
    if (program::broadcast_sizes({&x, &y}) != x.sizes()) wrong_shape("output with shape does not match the broadcast shape");
    if (op == Operator::add) return into(program::add_into(x, y));
    if (op == Operator::divide) return into(program::divide_in_place(x, y));
  } else if (other.is_number() && op == Operator::divide && is_floating(x.dtype())) {
    return into(program::divide_scalar_into(x));
  }
  i_.unknown("this operator in place on a tensor", "x = x … is");
}

Value Torch::compared(Operator op, const Value& a, const Value& b) {
  if (is_tensor(a) && is_tensor(b)) {
    const Tensor left = tensor(a), right = tensor(b);
    check_devices({&left, &right});
    check_broadcast(left, right);
    return wrap(program::compare(left, right, DType::boolean));
  }
  const Value& other = is_tensor(a) ? b : a;
  if (!other.is_number()) return Value::boolean(op == Operator::not_equal);
  const Tensor x = tensor(is_tensor(a) ? a : b);
  return wrap(program::compare(x, {}, DType::boolean));
}

Value Torch::unary(Operator op, const Value& value) {
  const Tensor x = tensor(value);
  if (op == Operator::positive) return value;
  if (op == Operator::negative) return wrap(program::negate(x));
  if (op == Operator::invert && !is_floating(x.dtype())) return wrap(program::compare(x, {}, x.dtype()));
  i_.unknown("this operator on a tensor");
}

/// torch.matmul: a product of two matrices, of batches of them, or, where the second is one matrix, of all rows with it.
Tensor Torch::matmul(const Tensor& a, const Tensor& b) {
  check_devices({&a, &b});
  if (a.rank() < 2 || b.rank() < 2) i_.unknown("a product of vectors");
  if (a.size(-1) != b.size(-2))
    wrong_shape("mat1 and mat2 shapes cannot be multiplied (" + std::to_string(a.size(-2)) + "x" + std::to_string(a.size(-1)) + " and " +
                std::to_string(b.size(-2)) + "x" + std::to_string(b.size(-1)) + ")");
  if (a.rank() == 2 && b.rank() == 2) return program::mm(a, b);
  if (a.rank() == b.rank()) {
    for (int i = 0; i < a.rank() - 2; ++i)
      if (a.size(i) != b.size(i) && a.size(i) != 1 && b.size(i) != 1)
        wrong_shape("The size of tensor a (" + std::to_string(a.size(i)) + ") must match the size of tensor b (" +
                    std::to_string(b.size(i)) + ") at non-singleton dimension " + std::to_string(i));
    return program::matmul(a, b);
  }
  i_.unknown("torch.matmul of " + std::to_string(a.rank()) + " and " + std::to_string(b.rank()) + " dimensions",
             "F.linear for a matrix of weights");
}

}  // namespace plimsoll::code
