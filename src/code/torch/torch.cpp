#include "code/torch/torch.hpp"

#include <algorithm>

#include "code/torch/followed.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

struct TypeName {
  const char* name;
  DType type;
};

constexpr TypeName kTypes[] = {{"float32", DType::fp32}, {"float", DType::fp32},  {"float64", DType::fp64},  {"double", DType::fp64},
                               {"float16", DType::fp16}, {"half", DType::fp16},   {"bfloat16", DType::bf16}, {"int64", DType::int64},
                               {"long", DType::int64},   {"int32", DType::int32}, {"int", DType::int32},     {"bool", DType::boolean},
                               {"uint8", DType::uint8},  {"int8", DType::int8}};

}  // namespace

Torch::Torch(Interpreter& interpreter) : i_(interpreter), host_(interpreter.host_tape()) {
  NamespaceObject& library = i_.library("torch");
  for (const TypeName& each : kTypes) library.attributes[i_.symbol(each.name)] = type_value(each.type);
  library.attributes[i_.symbol("__version__")] = i_.text("2.15.0");
  for (const char* format : {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"})
    library.attributes[i_.symbol(format)] = Value(new TokenObject(i_.heap(), TokenObject::Kind::other, std::string("torch.") + format));
  tensor_class_ = i_.native_class("torch.Tensor", {i_.builtin_class("object")});
  tensor_class_->holds = [](const Value& value) { return is_tensor(value); };
  parameter_class_ = i_.native_class("torch.nn.Parameter", {tensor_class_.get()});
  parameter_class_->holds = [](const Value& value) { return is_tensor(value) && value.as<TensorObject>()->parameter != nullptr; };
  parameter_class_->constructor = i_.native("torch.nn.Parameter", "data=, requires_grad=", [this](Interpreter&, Bound& a) {
    return make_parameter(tensor_of(a[0], "a parameter's data"), !a[1].is_bound() || i_.truth(a[1]));
  });
  tensor_class_->constructor = i_.native("torch.Tensor", "*data", [this](Interpreter& i, Bound& a) {
    // Sizes are an empty tensor of the default type; a list is what it holds, and a tensor itself.
    if (a.rest.size() == 1 && is_tensor(a.rest.front())) return a.rest.front();
    const bool sizes = std::all_of(a.rest.begin(), a.rest.end(), [](const Value& each) { return each.is_integer(); });
    if (!sizes && a.rest.size() != 1) i.unknown("torch.Tensor of such arguments");
    CallArguments arguments{a.rest, {}};
    if (!sizes) arguments.keywords.emplace_back(i.symbol("dtype"), type_value(default_type));
    return i.call(i.library("torch").attributes.at(i.symbol(sizes ? "empty" : "tensor")), std::move(arguments));
  });
  for (const char* name : {"Tensor", "FloatTensor"}) library.attributes[i_.symbol(name)] = Value(tensor_class_);
  for (const auto& [name, type] : {std::pair{"LongTensor", DType::int64}, std::pair{"IntTensor", DType::int32}, std::pair{"BoolTensor", DType::boolean}})
    library.attributes[i_.symbol(name)] = i_.native(std::string("torch.") + name, "data", [this, type = type](Interpreter& i, Bound& a) {
      return i.call(i.library("torch").attributes.at(i.symbol("tensor")), CallArguments{{a[0]}, {{i.symbol("dtype"), type_value(type)}}});
    });
  i_.library("torch.nn").attributes[i_.symbol("Parameter")] = Value(parameter_class_);
  i_.library("torch.nn.parameter").attributes[i_.symbol("Parameter")] = Value(parameter_class_);
  define_functions(i_, *this);
  define_functional(i_, *this);
  define_tensor_methods(i_, *this);
  define_modules(i_, *this);
  define_layers(i_, *this);
  define_math(i_, *this);
  define_choosing(i_, *this);
  define_placing(i_, *this);
  define_losses(i_, *this);
  define_images(i_, *this);
  define_creation(i_, *this);
  define_reads(i_, *this);
  define_more_layers(i_, *this);
  define_multihead(i_, *this);
  define_contexts(i_, *this);
  define_init(i_, *this);
  define_checkpoint(i_, *this);
  define_autograd_function(i_, *this);
}

Torch::~Torch() = default;

void Torch::define(In in, const char* name, const char* signature, const Native& run_in) {
  const Native run = with_following(name, run_in);
  if (in != In::torch) {
    const Value method = i_.method(std::string("Tensor.") + name, signature, run);
    methods_[i_.symbol(name)] = method;
    tensor_class_->attributes.set(i_.symbol(name), method);
  }
  if (in != In::tensor) i_.library("torch").attributes[i_.symbol(name)] = i_.native(std::string("torch.") + name, signature, run);
}

std::vector<int> Torch::dimensions_of(const Value& value, int rank) {
  std::vector<int> dimensions;
  if (!value.is_bound() || value.is_none()) return dimensions;
  if (value.is_integer()) return {dimension_of(value, rank)};
  for (const Value& each : i_.all_of(value)) dimensions.push_back(dimension_of(each, rank));
  return dimensions;
}

program::Tape& Torch::tape_of(const Value& device) {
  if (!device.is_bound() || device.is_none()) return host_;
  std::string name;
  if (const auto* token = device.as<TokenObject>()) name = token->name;
  if (const auto* words = device.as<TextObject>()) name = words->text;
  if (device.is_integer()) name = "cuda";
  if (name == "cpu" || name == "meta") return host_;
  if (name.starts_with("cuda")) return device_ != nullptr ? *device_ : host_;  // while the model is built, it is still to be moved
  i_.unknown("the device '" + (name.empty() ? i_.type_name(device) : name) + "'", "cuda, cpu or meta");
}

void Torch::check_devices(std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* each : tensors) {
    if (!each->defined() || (each->rank() == 0 && !is_on_device(*each))) continue;
    if (first == nullptr) first = each;
    if (&first->tape() != &each->tape())
      i_.raise("RuntimeError", "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!");
  }
}

const Tensor& Torch::tensor(const Value& value) const { return value.as<TensorObject>()->current(); }

const Tensor& Torch::tensor_of(const Value& value, const char* what) {
  if (!is_tensor(value)) i_.raise("TypeError", std::string(what) + " must be Tensor, not " + i_.type_name(value));
  return tensor(value);
}

Tensor Torch::tensor_or_none(const Value& value, const char* what) {
  return value.is_bound() && !value.is_none() ? tensor_of(value, what) : Tensor();
}

void Torch::check_filled(const Tensor& tensor) {
  if (tensor.elements() == 0) i_.unknown("a tensor without elements");
}

Value Torch::wrap(Tensor tensor) {
  constexpr std::int64_t kSteps = 20;  // what an operator's record takes is bounded with the steps
  i_.step(kSteps);
  return Value(new TensorObject(i_.heap(), std::move(tensor)));
}

Value Torch::wrap_all(std::vector<Tensor> tensors) {
  std::vector<Value> values;
  values.reserve(tensors.size());
  for (Tensor& each : tensors) values.push_back(wrap(std::move(each)));
  return i_.tuple(std::move(values));
}

void Torch::check_rank(int rank) {
  if (rank > Dims::kMost) i_.unknown("a tensor of more than " + std::to_string(Dims::kMost) + " dimensions");
}

Dims Torch::checked(std::vector<std::int64_t> sizes) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 50;
  if (sizes.size() > static_cast<std::size_t>(Dims::kMost)) check_rank(static_cast<int>(std::min<std::size_t>(sizes.size(), 1'000)));
  Dims made;
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    if (size < -1) wrong_shape("Trying to create tensor with negative dimension " + std::to_string(size));
    if (size > 0 && (__builtin_mul_overflow(product, size, &product) || product > kMostElements))
      i_.unknown("a tensor of more than 2^50 elements");
    made.push_back(size);
  }
  return made;
}

Dims Torch::sizes_of(const Value& value, const char* what) {
  std::vector<std::int64_t> sizes;
  if (value.is_integer())
    sizes.push_back(value.as_integer());
  else
    for (const Value& each : i_.all_of(value)) sizes.push_back(i_.whole(each, what));
  return checked(std::move(sizes));
}

Dims Torch::sizes_of(const std::vector<Value>& rest, const char* what) {
  if (rest.size() == 1 && !rest.front().is_integer()) return sizes_of(rest.front(), what);
  std::vector<std::int64_t> sizes;
  for (const Value& each : rest) sizes.push_back(i_.whole(each, what));
  return checked(std::move(sizes));
}

Value Torch::size_value(const Dims& sizes) {
  std::vector<Value> items;
  for (int i = 0; i < sizes.rank(); ++i) items.push_back(Value::integer(sizes[i]));
  return i_.sequence(SequenceObject::Kind::size, std::move(items));
}

int Torch::dimension_of(const Value& value, int rank) {
  const std::int64_t given = i_.whole(value, "dimensions");
  if (given < -rank || given >= rank)
    i_.raise("IndexError", "Dimension out of range (expected to be in range of [" + std::to_string(-rank) + ", " +
                               std::to_string(rank - 1) + "], but got " + std::to_string(given) + ")");
  return static_cast<int>(given < 0 ? given + rank : given);
}

DType Torch::type_of(const Value& value) {
  // Python's own types are types of tensors, too (python_arg_parser.cpp, toScalarType).
  for (const auto& [name, type] : {std::pair{"float", DType::fp64}, std::pair{"int", DType::int64}, std::pair{"bool", DType::boolean}})
    if (value.as<ClassObject>() != nullptr && value.as<ClassObject>() == i_.builtin_class(name)) return type;
  const auto* token = value.as<TokenObject>();
  if (token == nullptr || token->kind != TokenObject::Kind::dtype)
    i_.raise("TypeError", "dtype must be torch.dtype, not " + i_.type_name(value));
  return static_cast<DType>(token->number);
}

Value Torch::type_value(DType type) {
  const auto found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeName& each) { return each.type == type; });
  return Value(new TokenObject(i_.heap(), TokenObject::Kind::dtype, found == std::end(kTypes) ? std::string(name_of(type)) : found->name,
                               static_cast<int>(type)));
}

ClassObject* Torch::class_of(const Value& value) {
  return value.as<TensorObject>()->parameter ? parameter_class_.get() : tensor_class_.get();
}

void Torch::check_broadcast(const Tensor& a, const Tensor& b) {
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i)
    if (a.size(-i) != b.size(-i) && a.size(-i) != 1 && b.size(-i) != 1)
      wrong_shape("The size of tensor a (" + std::to_string(a.size(-i)) + ") must match the size of tensor b (" +
                  std::to_string(b.size(-i)) + ") at non-singleton dimension " + std::to_string(std::max(a.rank(), b.rank()) - i));
}

void Torch::enable_grad(bool yes) {
  host_.grad_enabled = yes;
  if (device_ != nullptr) device_->grad_enabled = yes;
}

Value Torch::without_grad(WrapperObject& wrapper, CallArguments arguments) {
  const bool before = grad_enabled();
  enable_grad(wrapper.enables_grad);
  struct Leave {
    Torch& torch;
    bool before;
    ~Leave() { torch.enable_grad(before); }
  } const leave{*this, before};
  return i_.call(wrapper.inner, std::move(arguments));
}

}  // namespace plimsoll::code
