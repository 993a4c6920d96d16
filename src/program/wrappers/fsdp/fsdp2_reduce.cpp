// Reducing a group's gradients.
#include <map>
#include <optional>
#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/fsdp/fsdp2_group.hpp"
#include "program/wrappers/launch_tables.hpp"

namespace plimsoll::program {

/// _set_unsharded_grad_dtypes: within a backward whose gradients are reduced they stay as autograd gives them; gradients that are kept are
/// cast, and later ones arrive in the type of the reduction.
void Fsdp2Group::defer_widening(bool yes) {
  for (ShardedParameter& parameter : parameters) {
    if (!parameter.gathered) continue;
    const DType wide = owner_.options_.reduce_dtype.value_or(parameter.slot->type);
    if (size_of(wide) <= size_of(compute_type(parameter))) continue;
    Tensor& gradient = parameter.gathered.grad();
    std::optional<DType>& arriving = parameter.gathered.impl()->grad_dtype;
    bool& anything = parameter.gathered.impl()->any_grad_dtype;
    if (yes) {
      if (gradient || reduce_gradients) arriving.reset(), anything = tape().torch.fsdp_reduces_gradients_as_they_come();
      continue;
    }
    anything = false;
    if (gradient && gradient.dtype() != wide) gradient = elementwise(tape(), {&gradient}, wide);
    if (gradient) Tape::categorize(gradient, Category::gradient);
    arriving = wide;
  }
}

/// _default_reduce_scatter_input_fn: gradients cut along another dimension than the first are put in the order of the ranks.
void Fsdp2Group::cut_gradients(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients) {
  if (mesh.shard == 1) return;
  Tensor before;  // Python's loop variable holds the gradient that was replaced
  for (auto& [parameter, gradient] : gradients) {
    if (parameter->dimension == 0) continue;
    before = gradient;
    gradient = tape().empty(before.sizes(), before.dtype());
    in_place(gradient, {&before});
  }
}

/// What one launch of chunk_cat puts side by side: gradients of one type (fsdp::chunk_cat_mixed_dtype).
struct GradientCopy {
  std::int64_t elements = 0;
  std::vector<std::int64_t> chunk_bytes;
};

/// foreach_reduce: the gradients side by side in the type of the reduction, reduce-scattered, and all-reduced over the replicas (HSDP).
void Fsdp2Group::reduce(std::vector<std::pair<ShardedParameter*, Tensor>>& gradients) {
  const DType type = owner_.options_.reduce_dtype.value_or(gradients.front().second.dtype());
  std::int64_t shard_elements = 0;
  std::map<DType, GradientCopy> copies;
  for (const auto& [parameter, gradient] : gradients) {
    shard_elements += parameter->shard_elements;
    GradientCopy& copy = copies[gradient.dtype()];
    copy.elements += gradient.elements();
    copy.chunk_bytes.push_back(parameter->shard_elements * size_of(type));
  }
  tape().operator_name = "fsdp::chunk_cat";
  Tensor input = tape().empty({shard_elements * mesh.shard}, type, Category::communication_buffer);
  for (const auto& [from, copy] : copies) {
    const Tensor table = mesh.shard > 1 ? chunk_cat_table(tape(), copy.chunk_bytes) : Tensor();
    multi_tensor(tape(), MultiTensor::Function::copy, static_cast<std::int64_t>(copy.chunk_bytes.size()), copy.elements, {from}, {type});
  }
  std::vector<std::pair<ShardedParameter*, Tensor>> owners;
  for (auto& [parameter, gradient] : gradients) owners.emplace_back(parameter, Tensor());
  while (!gradients.empty()) gradients.pop_back();  // list.clear() lets its last item go first
  tape().wait(owner_.reduce_stream_, kComputeStream);

  const StreamScope scope(tape(), owner_.reduce_stream_);
  Tensor output = tape().empty({shard_elements}, type, Category::gradient);
  tape().collective({.kind = CollectiveKind::reduce_scatter, .group = mesh.group, .bytes = input.bytes(), .type = type},
                    owner_.reduce_stream_);
  StreamId post_stream = owner_.reduce_stream_;
  if (mesh.replicate > 1) {
    post_stream = owner_.replicate_stream_;
    tape().wait(post_stream, owner_.reduce_stream_);
    tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = output.bytes(), .type = type},
                      post_stream);
    reduce_output_kept_ = output;
  }
  const StreamScope post(tape(), post_stream);
  accumulate_shards(owners, output);
  owner_.reduce_states_.push_back({std::move(input)});
}

/// The reduced buffer becomes the shards' gradients (views, or a cast copy), or is added to those of earlier micro-batches.
void Fsdp2Group::accumulate_shards(const std::vector<std::pair<ShardedParameter*, Tensor>>& owners, const Tensor& reduced) {
  const DType type = owners.front().first->slot->type;
  Tensor output = reduced.dtype() == type ? reduced : elementwise(tape(), {&reduced}, type);
  Tape::categorize(output, Category::gradient);
  for (const auto& [parameter, unused] : owners) {
    if (owner_.options_.offload_to_host) {
      tape().copy({Copy::Direction::device_to_host, parameter->shard_sizes.product() * size_of(type)}, tape().stream);
      continue;
    }
    Tensor view = tape().view(output, parameter->shard_sizes, contiguous_strides(parameter->shard_sizes));
    Tensor& gradient = parameter->shard.grad();
    if (gradient) {
      in_place(gradient, {&gradient, &view});
    } else {
      gradient = std::move(view);
    }
  }
}

}  // namespace plimsoll::program
