#include "program/frameworks/torchtitan/init.hpp"

#include <algorithm>
#include <string_view>

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

/// trunc_normal_'s check of the drawn values: two masks and their union, of which any() looks at the whole weight. What tensor-parallel ranks
/// hold is gathered first where they hold columns, and put side by side.
void check_outliers(Tape& tape, std::int64_t local, std::int64_t gathered, std::int64_t whole, bool columns = false) {
  const auto mask = [&](std::int64_t elements) { return tape.empty({elements}, DType::boolean); };
  Tensor either;
  {
    const Tensor below = mask(local), above = mask(local);
    either = mask(local);
  }
  if (gathered == local && whole == local) return;
  Tensor of_group = gathered == whole ? Tensor() : mask(gathered);
  if (columns) of_group = mask(gathered);
  const Tensor all = mask(whole);
}

/// A fused projection: query, key and value are drawn whole, put together and cut.
void draw_fused(Tape& tape, const Parameter& weight, const AttentionSizes& sizes, std::int64_t ranks, std::int64_t shard_elements,
                bool truncated) {
  const std::int64_t in = weight.sizes[1];
  const Tensor query = tape.empty({sizes.query, in}, DType::fp32), key = tape.empty({sizes.key, in}, DType::fp32),
               value = tape.empty({sizes.key, in}, DType::fp32);
  if (truncated)
    for (const Tensor* drawn : {&query, &key, &value}) check_outliers(tape, drawn->elements(), drawn->elements(), drawn->elements());
  const Tensor together = tape.empty({sizes.query + 2 * sizes.key, in}, DType::fp32);
  const Tensor of_rank = ranks > 1 ? tape.empty(weight.sizes, DType::fp32) : Tensor();
  const Tensor shard = tape.empty({shard_elements}, DType::fp32);
}

/// A weight is drawn in its shard; norms are set to ones.
void draw_weight(Tape& tape, const TitanDecoder& decoder, std::string_view module, const Parameter& weight,
                 const Fsdp2Mesh& mesh) {
  if (weight.sizes.rank() < 2) return;
  const std::int64_t ranks = decoder.run().tensor_parallel.degree;
  const std::int64_t local = mesh.own_rows(weight.sizes[0]) * (weight.sizes.product() / weight.sizes[0]);
  if (module == "wqkv") return draw_fused(tape, weight, decoder.attention_sizes(), ranks, local, decoder.run().truncated_init);
  if (!decoder.run().truncated_init) return;
  const std::int64_t whole = weight.sizes.product() * ranks;
  const bool columns = module == "wo" || module == "w2";  // cut by columns: gathered over the ranks first
  check_outliers(tape, local, ranks == 1 ? whole : columns ? local * ranks : whole / ranks, whole, columns && ranks > 1);
}

}  // namespace

void initialize_weights(Tape& tape, TitanDecoder& decoder, const Fsdp2Mesh& mesh, bool on_host) {
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
    for (const auto& parameter : module->parameters) draw_weight(tape, decoder, name, *parameter, mesh);
  }
}

}  // namespace plimsoll::program
