#include "modules.hpp"

#include <map>
#include <string>

#include "images.hpp"
#include "machine.hpp"
#include "work.hpp"

namespace plimsoll::device {

struct Module {
  std::map<std::string, std::vector<KeptArgument>> parameters;
  std::map<std::string, const std::string*> kernels;
};

Module* load_module(const void* image) {
  auto* const module = new Module;
  module->parameters = parameters_in(image);
  return module;
}

const void* kernel_of(Module* module, const char* name) {
  const std::string* kernel = nullptr;
  {
    const auto held = lock();
    const std::string*& known = module->kernels[name];
    if (known != nullptr) return known;
    known = kernel = new std::string(name);  // lives as long as the process: its address is the kernel's
  }
  const auto known = module->parameters.find(*kernel);
  known == module->parameters.end() ? register_kernel(kernel, kernel->c_str()) : register_kernel(kernel, kernel->c_str(), known->second);
  return kernel;
}

}  // namespace plimsoll::device
