#include "program/modules/network_source.hpp"

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::program {

const NetworkSource* network_source(const Model& model) { return dynamic_cast<const NetworkSource*>(model.source.get()); }

void refuse_beside_source(const NetworkSource& source, const Strategy& s) {
  const bool own = !source.is_of_transformers();
  const auto require = [](bool modelled, const std::string& what, const std::string& key, const std::string& instead) {
    if (!modelled) refuse(what + " is not modelled of a model that is read from code", key, instead);
  };
  require(s.framework == "transformers", "the training loop of '" + s.framework + "'", "framework",
          "transformers, whose loop on one device and under DDP is plain PyTorch's");
  require(s.data_parallel == DataParallel::none || s.data_parallel == DataParallel::ddp || s.data_parallel == DataParallel::fsdp2,
          "'" + std::string(name_of(s.data_parallel)) + "'", "data_parallel", "none, ddp or fsdp2");
  require(s.compile == Strategy::Compile::no, "torch.compile", "compile", "none");
  const bool recomputes = s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::automatic;
  require(!recomputes || !own, "recomputation by the framework", "recompute", "none");
  const bool as_it_is = s.attention == AttentionKernel::automatic || s.attention == AttentionKernel::sdpa;
  require(as_it_is || !own, "another attention than the code's own", "attention", "leave it out");
  require(as_it_is || s.attention == AttentionKernel::eager, "attention by other kernels than PyTorch's own", "attention", "sdpa or eager");
  require(!s.lora && !s.peft, "an adapter", "lora", "leave it out");
  require(s.base_weights == BaseWeights::as_trained, "quantised weights", "base_weights", "leave it out");
  require(s.low_precision != LowPrecision::fp8, "8-bit linears", "fp8", "leave it out");
  require(s.optimizer != OptimizerKind::muon, "Muon, which asks which weights are hidden ones,", "optimizer", "adamw");
  require(!s.liger_kernel, "Liger", "liger_kernel", "leave it out");
}

Arrival arrival_of(const Model& model, bool prepared_by_accelerate) {
  const NetworkSource* const source = network_source(model);
  return prepared_by_accelerate || (source != nullptr && !source->is_of_transformers()) ? Arrival::moved : Arrival::empty;
}

}  // namespace plimsoll::program
