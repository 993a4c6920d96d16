#include "campaign/checkpoint.hpp"

#include "memory/model_states.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::campaigning {
namespace {

/// Who writes, and in what form: torch.distributed.checkpoint (TorchTitan; Megatron's torch_dist), DeepSpeed's files per rank, nanotron's
/// safetensors per rank, or transformers' Trainer, which gathers the model on one rank.
Checkpoint form_of(const Strategy& s) {
  Checkpoint form;
  const auto sharded = [&](const char* words) {
    form.sharded = true;
    form.form = words;
  };
  switch (engine_of(s)) {
    case Engine::megatron:
      sharded("torch_dist: every rank writes what it alone holds, replicas share the work");
      break;
    case Engine::megatron_fsdp:
    case Engine::fsdp2:
      sharded("torch.distributed.checkpoint: every rank writes its shard");
      break;
    case Engine::deepspeed:
      sharded("DeepSpeed: a file of the model per model-parallel rank, one of the optimizer per rank");
      break;
    case Engine::nanotron:
      sharded("safetensors: every rank of one replica writes its part");
      break;
    case Engine::fsdp1:
      sharded("SHARDED_STATE_DICT: every rank writes its shard");
      break;
    default:
      form.form = "the first rank writes the whole model and the optimizer's states";
  }
  return form;
}

}  // namespace

Checkpoint checkpoint_of(const Model& model, const Strategy& s, double storage) {
  Checkpoint checkpoint = form_of(s);
  const auto parameters = static_cast<double>(model.parameters());
  const double trained = s.lora || s.peft ? static_cast<double>(s.trainable_params) : parameters;
  const std::vector<std::int64_t> large{4096, 4096};
  const double moments =
      static_cast<double>(memory::optimizer_state_bytes(s.optimizer, large, s.state_dtype.value_or(DType::fp32)).count) / (4096.0 * 4096.0);
  const double weights = parameters * static_cast<double>(size_of(s.param_dtype.value_or(DType::fp32)));
  const double optimizer = trained * (moments + (s.master_weights.value_or(false) ? 4 : 0));
  checkpoint.weights = Bytes(static_cast<std::int64_t>(weights));
  checkpoint.optimizer = Bytes(static_cast<std::int64_t>(optimizer));
  checkpoint.bytes = checkpoint.weights + checkpoint.optimizer;
  if (storage > 0) checkpoint.write = Seconds(static_cast<double>(checkpoint.bytes.count) / storage);
  return checkpoint;
}

}  // namespace plimsoll::campaigning
