// torch.nn.init: numbers into tensors of the host, whose shapes stay.
#include <algorithm>

#include "code/torch/torch.hpp"

namespace plimsoll::code {

namespace {

Value fill(Interpreter& i, Bound& a) {
  if (i.torch().is_on_device(i.torch().tensor_of(a[0], "tensor"))) i.unknown("initialisation of a tensor of the device");
  return a[0];
}

/// _calculate_fan_in_and_fan_out (torch/nn/init.py): the sizes behind the first two are those of a receptive field.
Value fans(Interpreter& i, Bound& a) {
  const program::Tensor tensor = i.torch().tensor_of(a[0], "tensor");
  if (tensor.rank() < 2) i.raise("ValueError", "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions");
  const std::int64_t field = tensor.elements() / std::max<std::int64_t>(tensor.size(0) * tensor.size(1), 1);
  return i.tuple({Value::integer(tensor.size(1) * field), Value::integer(tensor.size(0) * field)});
}

/// reset_parameters() of the layers that have one.
void define_resets(Interpreter& i) {
  for (const char* name : {"Linear", "Bilinear", "Embedding", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d",
                           "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"}) {
    const auto known = i.library("torch.nn").attributes.find(i.symbol(name));
    auto* type = known != i.library("torch.nn").attributes.end() ? known->second.as<ClassObject>() : nullptr;
    if (type != nullptr)
      type->attributes.set(i.symbol("reset_parameters"),
                           i.method(std::string(name) + ".reset_parameters", "self", [](Interpreter&, Bound&) { return Value::none(); }));
  }
}

}  // namespace

void define_init(Interpreter& i, Torch&) {
  define_resets(i);
  NamespaceObject& library = i.library("torch.nn.init");
  for (const char* name : {"normal_", "uniform_", "zeros_", "ones_", "constant_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
                           "kaiming_normal_", "trunc_normal_", "orthogonal_", "eye_", "dirac_", "sparse_"})
    library.attributes[i.symbol(name)] = i.native(std::string("torch.nn.init.") + name, "tensor, *args, **kwargs", fill);
  library.attributes[i.symbol("_calculate_fan_in_and_fan_out")] = i.native("torch.nn.init._calculate_fan_in_and_fan_out", "tensor", fans);
}

}  // namespace plimsoll::code
