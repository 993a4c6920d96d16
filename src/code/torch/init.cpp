// torch.nn.init: numbers into tensors of the host, whose shapes stay.
#include "code/torch/torch.hpp"

namespace plimsoll::code {

void define_init(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn.init");
  for (const char* name : {"normal_", "uniform_", "zeros_", "ones_", "constant_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
                           "kaiming_normal_", "trunc_normal_", "orthogonal_"})
    library.attributes[i.symbol(name)] =
        i.native(std::string("torch.nn.init.") + name, "tensor, *args, **kwargs", [](Interpreter& inner, Bound& a) {
          const program::Tensor tensor = inner.torch().tensor_of(a[0], "tensor");
          if (inner.torch().is_on_device(tensor)) inner.unknown("initialisation of a tensor of the device");
          return a[0];
        });
}

}  // namespace plimsoll::code
