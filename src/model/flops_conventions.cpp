// The conventions by which frameworks count model FLOPs, each as its source codes it.
#include <algorithm>
#include <cmath>

#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"

namespace plimsoll::flops {
namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

bool is_attending(const Block& block) { return is_layer(block) && block.attention.has_value(); }

// Σ over the model's layers, repeats counted.
template <class PerLayer>
double over_layers(const Model& model, PerLayer per_layer) {
  double total = 0;
  for (const Block& block : model.blocks)
    if (is_attending(block)) total += as_double(block.repeat) * per_layer(block);
  return total;
}

// The last kind of layer: what an MTP module repeats.
const Block& last_layer(const Model& model) {
  const auto found = std::find_if(model.blocks.rbegin(), model.blocks.rend(), is_attending);
  if (found == model.blocks.rend()) refuse("this FLOPs convention counts attention layers, and '" + model.name + "' has none");
  return *found;
}

// The one shape of layer that the conventions of uniform models assume; a model of several shapes counts as its last.
const AttentionSpec& attention_of(const Model& model) { return *last_layer(model).attention; }

// d_qk + d_v of one head.
double qk_plus_v(const AttentionSpec& attention) {
  if (attention.mla) return as_double(attention.mla->qk_nope_head_dim + attention.mla->qk_rope_head_dim + attention.mla->v_head_dim);
  return 2 * as_double(attention.head_dim);
}

// Width of the feed-forward layer that a token passes: its own, or top-k experts and the shared one.
struct FeedForward {
  double routed = 0, shared = 0, matrices = 2;
};

FeedForward feed_forward(const Block& block) {
  if (block.moe)
    return {as_double(block.moe->expert_intermediate * block.moe->top_k), as_double(block.moe->shared_intermediate),
            block.moe->gated ? 3.0 : 2.0};
  if (block.mlp) return {as_double(block.mlp->intermediate), 0, block.mlp->gated ? 3.0 : 2.0};
  return {};
}

// Input embedding parameters, 0 when the head uses the same storage.
double untied_embedding(const Model& model) {
  if (model.tied_embeddings) return 0;
  double total = 0;
  for (const Block& block : model.blocks)
    for (const Operator& op : block.operators)
      if (op.kind == OperatorKind::embedding || op.kind == OperatorKind::position_embedding)
        for (const ParameterTensor& tensor : op.parameters)
          total += tensor.tied_to.empty() ? as_double(tensor.elements() * block.repeat) : 0;
  return total;
}

// Σ L·a·(d_qk + d_v)·s of all layers.
double full_attention(const Model& model, double s) {
  return over_layers(model, [&](const Block& block) { return as_double(block.attention->heads) * qk_plus_v(*block.attention) * s; });
}

// Keys that a query sees on average: s/2, or W − W(W−1)/(2s) within a window.
double mean_causal_context(const AttentionSpec& attention, double s) {
  if (!attention.causal) return s;
  if (!attention.sliding_window || as_double(*attention.sliding_window) >= s) return s / 2;
  const double w = as_double(*attention.sliding_window);
  if (attention.chunked) return w / 2;
  return w - w * (w - 1) / (2 * s);
}

// Multiply-adds of one layer's attention per token.
double megatron_attention(const AttentionSpec& attention, double s) {
  const double h = as_double(attention.hidden), a = as_double(attention.heads), context = mean_causal_context(attention, s);
  if (attention.mla) {
    const MlaSpec& mla = *attention.mla;
    const double qk = as_double(mla.qk_nope_head_dim), rope = as_double(mla.qk_rope_head_dim), v = as_double(mla.v_head_dim);
    const double q_lora = as_double(mla.q_lora_rank), kv_lora = as_double(mla.kv_lora_rank);
    const double query = mla.q_lora_rank ? q_lora * (h + a * (qk + rope) + 1) : h * a * (qk + rope);
    return query + kv_lora * (h + a * (qk + v) + 1) + h * rope + a * v * h + context * a * (qk + rope) + context * a * v;
  }
  const double q = a * as_double(attention.head_dim), kv = as_double(attention.kv_heads * attention.head_dim);
  return h * (q + 2 * kv) + q * h + 2 * q * context;
}

double megatron_layer(const Block& block, double s) {
  const FeedForward ffn = feed_forward(block);
  const double h = as_double(block.attention->hidden);
  return megatron_attention(*block.attention, s) + h * ffn.matrices * (ffn.routed + ffn.shared);
}

}  // namespace

double six_n(const Model& model, const Setting&) { return 6 * as_double(model.active_parameters()); }

double torchtitan(const Model& model, const Setting& setting) {
  return 6 * (as_double(model.active_parameters()) - untied_embedding(model)) + 6 * full_attention(model, as_double(setting.sequence));
}

double palm(const Model& model, const Setting& setting) {
  return 6 * as_double(model.active_parameters()) + 6 * full_attention(model, as_double(setting.sequence));
}

double megatron(const Model& model, const Setting& setting) {
  const double s = as_double(setting.sequence), h = as_double(model.hidden_size), mtp = as_double(setting.mtp_layers);
  const double vocab = as_double(setting.padded_vocab ? setting.padded_vocab : model.vocab_size);
  const double layers = over_layers(model, [&](const Block& block) { return megatron_layer(block, s); });
  const double mtp_modules = mtp * (megatron_layer(last_layer(model), s) + 3 * h + 2 * h * h);
  return 6 * (layers + mtp_modules + h * vocab * (mtp + 1));
}

double megatron_until_2025(const Model& model, const Setting& setting) {
  const double s = as_double(setting.sequence), vocab = as_double(setting.padded_vocab ? setting.padded_vocab : model.vocab_size);
  const double layers = over_layers(model, [&](const Block& block) {
    const AttentionSpec& attention = *block.attention;
    const FeedForward ffn = feed_forward(block);
    const double h = as_double(attention.hidden), q = as_double(attention.heads * attention.head_dim);
    const double kv_share = as_double(attention.kv_heads) / as_double(attention.heads);
    return 12 * h * h * ((1 + kv_share + s / h) * (q / h) + (ffn.routed + ffn.shared) / h * (ffn.matrices / 2));
  });
  return layers + 6 * as_double(model.hidden_size) * vocab;
}

double megatron_2021(const Model& model, const Setting& setting) {
  const double s = as_double(setting.sequence), vocab = as_double(setting.padded_vocab ? setting.padded_vocab : model.vocab_size);
  const double h = as_double(model.hidden_size), layers = as_double(model.layers);
  const double passes = setting.recompute ? 96 : 72;
  return passes * layers * h * h * (1 + s / (6 * h) + 6 * vocab / (passes * layers * h));
}

double llm_foundry(const Model& model, const Setting& setting) {
  const double linear = 2 * as_double(model.active_parameters());
  const double attention = 4 * as_double(model.layers) * as_double(model.hidden_size) * as_double(setting.sequence);
  return setting.recompute ? 4 * linear + 5 * attention : 3 * (linear + attention);
}

double nanotron(const Model& model, const Setting& setting) {
  const double s = as_double(setting.sequence);
  const double layers = over_layers(model, [&](const Block& block) {
    const AttentionSpec& attention = *block.attention;
    const FeedForward ffn = feed_forward(block);
    const double h = as_double(attention.hidden), q = as_double(attention.heads * attention.head_dim);
    const double kv = as_double(attention.kv_heads * attention.head_dim);
    return 2 * h * (q + 2 * kv) + 4 * q * s + 2 * q * h + 2 * ffn.matrices * h * (ffn.routed + ffn.shared);
  });
  return 3 * (layers + 2 * as_double(model.hidden_size) * as_double(model.vocab_size));
}

double llama_factory(const Model& model, const Setting& setting) {
  const AttentionSpec& attention = attention_of(model);
  const Block& layer = last_layer(model);
  const double h = as_double(model.hidden_size), kv_share = as_double(attention.kv_heads) / as_double(attention.heads);
  const double f = as_double(layer.moe ? layer.moe->expert_intermediate : layer.mlp ? layer.mlp->intermediate : 0);
  const double layers = as_double(model.layers) * (6 * h * f + 2 * h * h * (2 + 2 * kv_share) + 4 * h * as_double(setting.sequence));
  const double head = h * as_double(model.vocab_size) * (model.tied_embeddings ? 1 : 2);
  return (setting.recompute ? 4 : 3) * layers + 3 * head;
}

double eleutherai(const Model& model, const Setting& setting) {
  const AttentionSpec& attention = attention_of(model);
  const FeedForward ffn = feed_forward(last_layer(model));
  const double h = as_double(model.hidden_size), layers = as_double(model.layers);
  const double kv_share = as_double(attention.kv_heads) / as_double(attention.heads);
  const double per_layer =
      2 * (1 + 2 * kv_share) * h * h + 4 * h * as_double(setting.sequence) + 2 * h * h + 2 * ffn.matrices * (ffn.routed + ffn.shared) * h;
  return (setting.recompute ? 4 : 3) * layers * per_layer + 4 * h + 2 * h * as_double(model.vocab_size);
}

double exact(const Model& model, const Setting& setting) {
  return 3 * forward(model, {setting.sequence, 0}, Mask::causal_exact) / as_double(std::max<std::int64_t>(1, setting.sequence));
}

bool conventions_apply(const Model& model) {
  return (model.task == Model::Task::causal_lm || model.task == Model::Task::masked_lm) && model.vocab_size > 0 &&
         std::any_of(model.blocks.begin(), model.blocks.end(), is_attending) &&
         std::none_of(model.blocks.begin(), model.blocks.end(), [](const Block& block) { return block.mamba.has_value(); });
}

const std::vector<Convention>& conventions() {
  static const std::vector<Convention> table = {
      {"megatron", "Megatron-LM main, num_floating_point_operations", megatron},
      {"torchtitan", "torchtitan models/utils.py", torchtitan},
      {"palm", "Chowdhery et al. 2022, appendix B", palm},
      {"6n", "Kaplan et al. 2020", six_n},
      {"megatron-2025", "Megatron-LM until mid-2025, training.py", megatron_until_2025},
      {"megatron-2021", "Narayanan et al. 2021", megatron_2021},
      {"llm-foundry", "llm-foundry scripts/train/benchmarking", llm_foundry},
      {"nanotron", "nanotron get_flops", nanotron},
      {"llama-factory", "LLaMA-Factory cal_mfu.py", llama_factory},
      {"eleutherai", "EleutherAI cookbook calc_transformer_flops.py", eleutherai},
      {"exact", "sum over operators, causal pairs counted exactly", exact},
  };
  return table;
}

const Convention& convention(std::string_view name) {
  const auto& table = conventions();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Convention& row) { return row.name == name; });
  if (found != table.end()) return *found;
  std::vector<std::string> names;
  for (const Convention& row : table) names.emplace_back(row.name);
  fail("unknown FLOPs convention '" + std::string(name) + "'", {}, suggest(name, names));
}

}  // namespace plimsoll::flops
