#include "memory/model_states.hpp"

#include <algorithm>
#include <string>

#include "plimsoll/error.hpp"

namespace plimsoll::memory {

// Sources: torch.optim (states take the parameter's type), DeepSpeed's and Megatron's optimizers, Transformer Engine's fp8 weight cache
// (row-wise and transposed copy), MS-AMP's optimization levels.
const std::vector<StateRecipe>& state_recipes() {
  static const std::vector<StateRecipe> recipes = {
      {"fp32", {4}, {4}, {}, {8}, {}},
      {"autocast", {4}, {4}, {}, {8}, {}},
      {"pure 16-bit", {2}, {2}, {}, {4}, {}},
      {"megatron, fp32 gradients", {2}, {4}, {4}, {8}, {}},
      {"megatron, 16-bit gradients", {2}, {2}, {4}, {8}, {}},
      {"megatron distributed optimizer", {2}, {4}, {4, true}, {8, true}, {}},
      {"zero-0", {2}, {2}, {4}, {8}, {}},
      {"zero-1", {2}, {2}, {4, true}, {8, true}, {}},
      {"zero-2", {2}, {2, true}, {4, true}, {8, true}, {}},
      {"zero-3", {2, true}, {2, true}, {4, true}, {8, true}, {}},
      {"fsdp, fp32 shards", {4, true}, {4, true}, {}, {8, true}, {}},
      {"transformer engine fp8, fp32 gradients", {2}, {4}, {4}, {8}, {2}},
      {"fp8 primary weights, distributed optimizer", {1}, {4}, {4, true}, {8, true}, {1}},
      {"ms-amp o1", {2}, {1}, {}, {8}, {}},
      {"ms-amp o2", {2}, {1}, {}, {3}, {}},
      {"ms-amp o3", {1}, {1}, {2, true}, {3, true}, {}},
  };
  return recipes;
}

const StateRecipe& state_recipe(std::string_view name) {
  std::vector<std::string> names;
  for (const StateRecipe& recipe : state_recipes()) {
    if (recipe.name == name) return recipe;
    names.emplace_back(recipe.name);
  }
  fail("no recipe of model states is called \"" + std::string(name) + "\"", {}, suggest(name, names));
}

double bytes_per_parameter(const StateRecipe& recipe, std::int64_t ranks) {
  double sum = 0;
  for (const StateShare& share : {recipe.parameters, recipe.gradients, recipe.master, recipe.moments, recipe.cached})
    sum += share.divided ? share.bytes / static_cast<double>(ranks) : share.bytes;
  return sum;
}

Bytes model_state_bytes(const StateRecipe& recipe, std::int64_t parameters, std::int64_t ranks) {
  Bytes sum;
  for (const StateShare& share : {recipe.parameters, recipe.gradients, recipe.master, recipe.moments, recipe.cached}) {
    const auto bytes = static_cast<std::int64_t>(share.bytes) * parameters;
    sum += Bytes(share.divided ? ceil_div(bytes, ranks) : bytes);
  }
  return sum;
}

namespace {

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (std::int64_t size : shape) elements *= size;
  return elements;
}

// bitsandbytes: a byte per element and an fp32 scale per block of 256; tensors below 4096 elements keep fp32 states.
std::int64_t eight_bit_state(std::int64_t elements) { return elements < 4096 ? 4 * elements : elements + 4 * ceil_div(elements, 256); }

// torchao: as bitsandbytes, but a tensor below 4096 elements, or of no whole blocks of 256, keeps its own type.
std::int64_t torchao_state(std::int64_t elements, std::int64_t own) {
  return elements < 4096 || elements % 256 != 0 ? own * elements : eight_bit_state(elements);
}

// Adafactor without momentum: row and column sums of a matrix (of each matrix of a stack), else one value per element.
std::int64_t adafactor_elements(const std::vector<std::int64_t>& shape) {
  const std::int64_t elements = product(shape);
  if (shape.size() < 2 || elements == 0) return elements;
  return elements / shape.back() + elements / shape[shape.size() - 2];
}

}  // namespace

Bytes optimizer_state_bytes(OptimizerKind optimizer, const std::vector<std::int64_t>& shape, DType type, bool hidden_matrix) {
  const std::int64_t elements = product(shape), one = elements * size_of(type);
  switch (optimizer) {
    case OptimizerKind::sgd:
      return Bytes(0);
    case OptimizerKind::sgdm:
    case OptimizerKind::lion:
    case OptimizerKind::adagrad:
    case OptimizerKind::rmsprop:
    case OptimizerKind::asgd:
      return Bytes(one);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
    case OptimizerKind::lora_fa:
    case OptimizerKind::sophia:
    case OptimizerKind::adadelta:
    case OptimizerKind::adamax:
    case OptimizerKind::nadam:
    case OptimizerKind::radam:
    case OptimizerKind::rprop:
      return Bytes(2 * one);
    case OptimizerKind::lion_bnb:
    case OptimizerKind::paged_lion:
    case OptimizerKind::rmsprop_bnb:
      return Bytes(4 * elements);
    case OptimizerKind::adamw_bnb:
    case OptimizerKind::paged_adamw:
      return Bytes(8 * elements);
    case OptimizerKind::ademamix:
      return Bytes(12 * elements);
    case OptimizerKind::torch_adafactor:
      return Bytes(size_of(type) * adafactor_elements(shape));
    case OptimizerKind::adafactor:
      return Bytes(4 * adafactor_elements(shape));
    case OptimizerKind::adam_8bit:
    case OptimizerKind::adamw_8bit:
    case OptimizerKind::paged_adamw_8bit:
      return Bytes(2 * eight_bit_state(elements));
    case OptimizerKind::ademamix_8bit:
      return Bytes(3 * eight_bit_state(elements));
    case OptimizerKind::paged_lion_8bit:
    case OptimizerKind::rmsprop_8bit:
    case OptimizerKind::adagrad_8bit:
    case OptimizerKind::sgdm_8bit:
    case OptimizerKind::lion_8bit:
      return Bytes(eight_bit_state(elements));
    case OptimizerKind::adamw_torch_8bit:
      return Bytes(2 * torchao_state(elements, size_of(type)));
    case OptimizerKind::muon:
      return Bytes(hidden_matrix && shape.size() == 2 ? one : 2 * one);
    case OptimizerKind::shampoo:
      refuse("the states of Shampoo depend on its block size, which plimsoll does not know");
    case OptimizerKind::automatic:
      break;
  }
  throw Error(ErrorCode::internal, "optimizer states of an optimizer that is not resolved");
}

Bytes fsdp2_forward_transient(std::int64_t elements) { return Bytes(2 * size_of(DType::bf16) * elements); }

Bytes fsdp2_backward_transient(std::int64_t elements, DType reduce_type) {
  return Bytes((3 * size_of(DType::bf16) + size_of(reduce_type)) * elements);
}

Bytes deepspeed_reduce_buckets(std::int64_t reduce_bucket_size, DType type, bool overlap_comm) {
  return Bytes((overlap_comm ? 2 : 1) * reduce_bucket_size * size_of(type));
}

Bytes foreach_adam_temporary(std::int64_t shard_elements, DType state_type) { return Bytes(shard_elements * size_of(state_type)); }

std::int64_t autocast_parameters(const Model& model) {
  const auto cast = [](OperatorKind kind) {
    return kind == OperatorKind::linear || kind == OperatorKind::convolution || kind == OperatorKind::patch_embedding ||
           kind == OperatorKind::experts || kind == OperatorKind::router;
  };
  std::int64_t elements = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      for (const ParameterTensor& parameter : op.parameters)
        if (cast(op.kind)) elements += block.repeat * parameter.elements();
  return elements;
}

Bytes autocast_cache_bytes(const Model& model) { return Bytes(size_of(DType::bf16) * autocast_parameters(model)); }

Nf4Bytes nf4_bytes(std::int64_t elements, bool double_quantised) {
  const std::int64_t blocks = ceil_div(elements, 64);
  if (!double_quantised) return {Bytes(ceil_div(elements, 2)), Bytes(4 * blocks), Bytes(64)};
  return {Bytes(ceil_div(elements, 2)), Bytes(blocks + 4 * ceil_div(blocks, 256)), Bytes(4 + 64 + 1024)};
}

std::int64_t lora_parameters(const std::vector<std::vector<std::int64_t>>& linears, std::int64_t r) {
  std::int64_t sum = 0;
  for (const auto& shape : linears) sum += r * (shape.at(0) + shape.at(1));
  return sum;
}

}  // namespace plimsoll::memory
