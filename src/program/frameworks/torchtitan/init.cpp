#include "program/frameworks/torchtitan/init.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "program/op.hpp"

namespace plimsoll::program {

namespace {

/// MoE._init_self_buffers: new counters beside the old ones, the tokens' first.
void renew_counters(Tape& tape, std::vector<ModuleBuffer>& counters) {
  for (auto counter = counters.rbegin(); counter != counters.rend(); ++counter)
    counter->tensor = tape.empty(counter->sizes, counter->type, Category::parameter);
}

/// RoPE._init_self_buffers: the table is made again beside the old one.
void renew_table(Tape& tape, ModuleBuffer& table) {
  const std::int64_t length = table.sizes[0];
  const bool complex = table.type == DType::complex64;
  const std::int64_t angles = complex ? table.sizes[1] : table.sizes[1] / 4;
  Tensor renewed;
  {
    const Tensor positions = tape.empty({length}, complex ? DType::int64 : DType::fp32);
    const Tensor products = tape.empty({length, angles}, DType::fp32);
    if (complex) {
      const Tensor ones = tape.empty({length, angles}, DType::fp32);
      renewed = tape.empty(table.sizes, table.type, Category::parameter);
    } else {
      const Tensor both = tape.empty({length, 2 * angles}, DType::fp32);
      const Tensor cosine = tape.empty({length, 2 * angles}, DType::fp32), sine = tape.empty({length, 2 * angles}, DType::fp32);
      renewed = tape.empty(table.sizes, table.type, Category::parameter);
    }
  }
  table.tensor = std::move(renewed);
}

/// DTensor puts a mask together that ranks hold parts of, one dimension of the mesh after the other.
struct Gather {
  std::int64_t elements;      ///< behind it
  bool side_by_side = false;  ///< what is cut along another dimension than the first arrives rank by rank, and is copied into place
};

/// trunc_normal_'s check of the drawn values: two masks and their union, of which any() looks at the whole weight.
void check_outliers(Tape& tape, std::int64_t local, const std::vector<Gather>& gathers) {
  const auto mask = [&](std::int64_t elements) { return tape.empty({elements}, DType::boolean); };
  Tensor either;
  {
    const Tensor below = mask(local), above = mask(local);
    either = mask(local);
  }
  Tensor gathered;
  std::int64_t elements = local;
  for (const Gather& gather : gathers) {
    if (gather.elements == elements) continue;  // a dimension of one rank
    elements = gather.elements;
    gathered = mask(elements);
    if (gather.side_by_side) gathered = mask(elements);
  }
}

/// A fused projection: query, key and value are drawn whole, put together and cut.
void draw_fused(Tape& tape, const Parameter& weight, const AttentionSizes& sizes, std::int64_t ranks, std::int64_t shard_elements,
                bool truncated) {
  const std::int64_t in = weight.sizes[1];
  const Tensor query = tape.empty({sizes.query, in}, DType::fp32), key = tape.empty({sizes.key, in}, DType::fp32),
               value = tape.empty({sizes.key, in}, DType::fp32);
  if (truncated)
    for (const Tensor* drawn : {&query, &key, &value}) check_outliers(tape, drawn->elements(), {});
  const Tensor together = tape.empty({sizes.query + 2 * sizes.key, in}, DType::fp32);
  const Tensor of_rank = ranks > 1 ? tape.empty(weight.sizes, DType::fp32) : Tensor();
  const Tensor shard = shard_elements < weight.sizes.product() ? tape.empty({shard_elements}, DType::fp32) : Tensor();
}

/// A weight is drawn in its shard; norms are set to ones.
void draw_weight(Tape& tape, const TitanDecoder& decoder, std::string_view module, const Parameter& weight, const Fsdp2Placement& place) {
  if (weight.sizes.rank() < 2) return;
  const TitanRun& run = decoder.run();
  const std::int64_t ranks = run.tensor_parallel.degree;
  Dims shard = weight.sizes;
  shard[place.dimension] = place.mesh.own_rows(shard[place.dimension]);
  const std::int64_t local = shard.product(), held = weight.sizes.product();
  if (module == "wqkv" && run.fused_draw) return draw_fused(tape, weight, decoder.attention_sizes(), ranks, local, run.truncated_init);
  if (!run.truncated_init) return;
  if (weight.expert && run.expert_ranks > 1) return check_outliers(tape, local, {{held, place.dimension != 0}, {held * run.expert_ranks}});
  const bool columns = module == "wo" || module == "w2" || weight.expert;  // cut over the tensor-parallel ranks by columns
  const std::vector<Gather> by_columns{{local * ranks, ranks > 1}, {held * ranks}}, by_rows{{held}, {held * ranks}};
  check_outliers(tape, local, columns ? by_columns : by_rows);
}

}  // namespace

void initialize_weights(Tape& tape, TitanDecoder& decoder, const Fsdp2Options& sharding, bool on_host) {
  for (Module* module : decoder.root().all_modules()) {
    const LabelScope label(tape, module->label);
    tape.operator_name = "init_states";
    const std::string_view name = module->name();
    if (name == "moe") {
      renew_counters(tape, module->buffers);
      continue;
    }
    for (ModuleBuffer& buffer : module->buffers) renew_table(tape, buffer);
    if (on_host || name == "tok_embeddings") continue;
    for (const auto& parameter : module->parameters) draw_weight(tape, decoder, name, *parameter, sharding.placement_of(*parameter));
  }
}

}  // namespace plimsoll::program
