#include "program/modules/adapters/param_wrapper.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/adapters/lora.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// The module becomes the wrapper of one that has all that it had.
void wrap(Module& module, const char* parameter, int rank, const Lora& lora, DType type) {
  const Dims sizes = within_wrappers(module).find_parameter(parameter)->sizes;
  const bool stacked = sizes.rank() == 3;  // [experts, out, in]
  const std::int64_t experts = stacked ? sizes[0] : 1, out = sizes[-2], in = sizes[-1];
  auto base = std::make_unique<Module>();
  base->path = module.path + ".base_layer";
  base->parameters = std::exchange(module.parameters, {});
  base->buffers = std::exchange(module.buffers, {});
  base->children = std::exchange(module.children, {});
  base->adapted_parameter = std::exchange(module.adapted_parameter, parameter);
  module.children.push_back(std::move(base));
  module.adapter_scales = lora.alpha != lora.r;  // gate_up_proj's alpha is twice as large as its rank is
  module.child("lora_dropout", true).child("default", true);
  const auto add = [&](const char* name, const Dims& shape) {
    module.child(name, true).child("default", true).parameters.push_back(trained_parameter("weight", shape, type));
  };
  add("lora_A", {rank * experts, in});
  add("lora_B", {out, rank * experts});
}

}  // namespace

void wrap_parameters(Module& root, const framework::MixtureTargets& targets, const Lora& lora, DType adapter_type) {
  if (!targets.any()) return;
  if (lora.dropout > 0) fail("PEFT stops: lora.ParamWrapper does not work with a dropout", "lora.dropout", "0");
  if (lora.dora) fail("PEFT stops: lora.ParamWrapper does not work with DoRA", "lora.use_dora", "false");
  // target_parameters: "gate.weight", "gate_up_proj" and "down_proj", of whichever module has one (BaseTuner._inject_parameters).
  bool found = false;
  for (Module* module : root.all_modules()) {
    const auto has = [&](const char* parameter) { return within_wrappers(*module).find_parameter(parameter) != nullptr; };
    const bool router = targets.router && module->name() == "gate" && has("weight"), gate_up = targets.gate_up && has("gate_up_proj"),
               down = targets.down && has("down_proj");
    if (router) wrap(*module, "weight", lora.r, lora, adapter_type);
    if (gate_up) wrap(*module, "gate_up_proj", 2 * lora.r, lora, adapter_type);
    if (down) wrap(*module, "down_proj", lora.r, lora, adapter_type);
    found = found || router || gate_up || down;
  }
  if (!found) fail("no parameter of a router or of stacked experts was found that a target names", "lora.target_modules", "list attention's linears");
}

Module& within_wrappers(Module& module) {
  Module* inner = &module;
  while (!inner->adapted_parameter.empty()) inner = &inner->child("base_layer");
  return *inner;
}

WrappedParameters::WrappedParameters(Module& outermost, Tape& tape) : module_(within_wrappers(outermost)) {
  for (Module* wrapper = &outermost; wrapper != &module_; wrapper = &wrapper->child("base_layer")) {
    tape.host(HostWork::module);
    Proxy proxy{wrapper, {}, {}, {}, {}};
    const Tensor &a = wrapper->child("lora_A").child("default").tensor("weight"),
                 &b = wrapper->child("lora_B").child("default").tensor("weight");
    const Tensor& weight = module_.tensor(wrapper->adapted_parameter);
    if (weight.rank() == 3) {
      const std::int64_t experts = weight.size(0);
      const Tensor rows = reshape(a, {experts, -1, a.size(-1)}), columns = permute(reshape(b, {b.size(0), -1, experts}), {2, 0, 1});
      proxy.lhs = to(columns, weight.dtype());
      proxy.rhs = to(rows, weight.dtype());
    } else {
      Tensor product = mm(b, a);
      product = multiply_scalar(product);
      proxy.delta = to(product, weight.dtype());
    }
    // ParametrizationList computes it once to see that neither type nor shape differ.
    parametrized(proxy);
    proxies_.push_back(std::move(proxy));
  }
}

Tensor WrappedParameters::parametrized(const Proxy& proxy) const {
  const Tensor& weight = module_.tensor(proxy.wrapper->adapted_parameter);
  if (proxy.delta) return add(weight, proxy.delta);
  return baddbmm(weight, proxy.lhs, proxy.rhs, proxy.wrapper->adapter_scales);
}

bool WrappedParameters::adapts(const std::string& name) const {
  return std::any_of(proxies_.begin(), proxies_.end(), [&](const Proxy& proxy) { return proxy.wrapper->adapted_parameter == name; });
}

Tensor WrappedParameters::operator()(const char* name) {
  for (Proxy& proxy : proxies_) {
    if (proxy.wrapper->adapted_parameter != name) continue;
    if (!proxy.weight) proxy.weight = parametrized(proxy);
    return proxy.weight;
  }
  return module_.tensor(name);
}

}  // namespace plimsoll::program
