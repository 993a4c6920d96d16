#include "program/modules/megatron/parameter_list.hpp"

#include <algorithm>
#include <utility>

namespace plimsoll::program {

std::string prediction_layer_path(const std::string& module, std::size_t index, std::size_t layers) {
  return module + ".mtp_model_layer" + (layers > 1 ? ".layers." + std::to_string(index) : "");
}

namespace {

/// Lists a chunk's parameters.
class ParameterList {
 public:
  ParameterList(const MegatronConfig& config, std::int64_t tensor_parallel) : config_(config), tp_(tensor_parallel) {}

  void embedding() {
    add("embedding.word_embeddings", "weight", {config_.vocabulary / tp_, config_.hidden});
    if (config_.positions > 0) add("embedding.position_embeddings", "weight", {config_.positions, config_.hidden}, Birth::host_fp32);
  }

  /// `in_few_bits`: its primary weights are, where the recipe has such.
  void layer(const std::string& path, const Block& block, bool in_few_bits = true) {
    eight_bits_ = config_.quantization.primary && in_few_bits;
    if (block.mamba) mixer(path + ".mixer.", *block.mamba);
    if (block.attention) attention_branch(path, *block.attention);
    if (!block.mlp && !block.moe) return;
    if (!config_.te || block.moe) norm(path + ".pre_mlp_layernorm", config_.hidden);
    block.moe ? experts(path + ".mlp.", *block.moe) : mlp(path + ".mlp.", *block.mlp);
  }

  void attention_branch(const std::string& path, const AttentionSpec& attention) {
    const std::string self = path + ".self_attention.";
    if (!config_.te || attention.mla) norm(path + ".input_layernorm", config_.hidden);
    attention.mla ? latent_attention(self, attention) : plain_attention(self, attention);
    if (attention.qk_norm == AttentionSpec::QkNorm::per_head) {
      norm(self + "q_layernorm", attention.head_dim);
      norm(self + "k_layernorm", attention.head_dim);
    }
  }

  void final_norm() { norm("decoder.final_layernorm", config_.hidden); }

  /// MultiTokenPredictionLayer.
  void prediction(const std::string& path, const std::vector<const Block*>& layers) {
    eight_bits_ = config_.quantization.primary;
    norm(path + ".enorm", config_.hidden);
    norm(path + ".hnorm", config_.hidden);
    linear(path + ".eh_proj", {config_.hidden / tp_, 2 * config_.hidden}, false);
    for (std::size_t i = 0; i < layers.size(); ++i) layer(prediction_layer_path(path, i, layers.size()), *layers[i]);
    norm(path + ".final_layernorm", config_.hidden);
  }

  void head(bool own_weight) {
    if (own_weight) add("output_layer", "weight", {config_.vocabulary / tp_, config_.hidden});
  }

  std::vector<PlacedParameter> take() { return std::move(list_); }

 private:
  using Birth = PlacedParameter::Birth;

  Parameter& add(const std::string& path, const std::string& name, const Dims& sizes, Birth birth = Birth::device) {
    auto made = std::make_shared<Parameter>(
        Parameter{.name = name, .sizes = sizes, .type = config_.type, .trainable = !config_.lora, .tensor = {}});
    list_.push_back({path, std::move(made), birth});
    return *list_.back().parameter;
  }

  /// Transformer Engine makes its norms on the device, in their final type.
  void norm(const std::string& path, std::int64_t width) {
    const Birth birth = config_.te ? Birth::device : Birth::host_fp32;
    add(path, "weight", {width}, birth);
    if (layer_norm()) add(path, "bias", {width}, birth);
  }

  void linear(const std::string& path, const Dims& sizes, bool bias) {
    Parameter& weight = add(path, "weight", sizes);
    if (eight_bits_) weight.type = DType::fp8;
    if (bias) add(path, "bias", {sizes[0]});
  }

  /// A linear that Transformer Engine fuses with the norm before it.
  void normed_linear(const std::string& path, const Dims& sizes, bool bias) {
    if (config_.te) add(path, "layer_norm_weight", {sizes[1]});
    if (config_.te && layer_norm()) add(path, "layer_norm_bias", {sizes[1]});
    linear(path, sizes, bias);
  }

  /// ParallelLinearAdapter of a linear whose weight on this rank is `sizes`. Beside a column-parallel linear the narrow product is cut
  /// over its outputs, beside a row-parallel one over its inputs; the wide one over its outputs, which beside a linear that every rank has
  /// whole are cut for the adapter alone.
  void adapter(const std::string& parent, const std::string& name, const Dims& sizes, TeParallel beside) {
    adapter(parent, name, sizes, beside, tp_, false);
  }

  void adapter(const std::string& parent, const std::string& name, const Dims& sizes, TeParallel beside, std::int64_t ranks, bool expert) {
    if (std::find(config_.adapted.begin(), config_.adapted.end(), name) == config_.adapted.end()) return;
    const std::int64_t rank = config_.lora->r;
    const Dims in{beside == TeParallel::row ? rank : rank / ranks, sizes[1]},
        out{beside == TeParallel::column ? sizes[0] : sizes[0] / ranks, rank};
    for (const auto& [linear, each] : {std::pair{"linear_in", in}, {"linear_out", out}}) {
      Parameter& made = add(parent + name + ".adapter." + linear, "weight", each);
      made.trainable = true;
      made.expert = expert;
    }
  }

  void plain_attention(const std::string& self, const AttentionSpec& attention) {
    const std::int64_t width = attention.heads * attention.head_dim, kv = attention.kv_heads * attention.head_dim;
    const Dims projection{config_.hidden, width / tp_}, qkv{(width + 2 * kv) / tp_, config_.hidden};
    if (attention.sinks) add(self + "core_attention", "softmax_offset", {attention.heads / tp_}, Birth::host_fp32);
    linear(self + "linear_proj", projection, attention.output_bias);
    adapter(self, "linear_proj", projection, TeParallel::row);
    normed_linear(self + "linear_qkv", qkv, attention.qkv_bias);
    adapter(self, "linear_qkv", qkv, TeParallel::column);
  }

  void latent_attention(const std::string& self, const AttentionSpec& attention) {
    const MlaSpec& mla = *attention.mla;
    const std::int64_t heads = attention.heads / tp_;
    const std::int64_t query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim);
    const Dims projection{config_.hidden, heads * mla.v_head_dim};
    const auto whole = [&](const char* name, const Dims& sizes) {
      linear(self + name, sizes, false);
      adapter(self, name, sizes, TeParallel::none);
    };
    const auto widening = [&](const char* name, const Dims& sizes) {
      normed_linear(self + name, sizes, false);
      adapter(self, name, sizes, TeParallel::column);
    };
    linear(self + "linear_proj", projection, false);
    adapter(self, "linear_proj", projection, TeParallel::row);
    if (mla.q_lora_rank > 0) {
      whole("linear_q_down_proj", {mla.q_lora_rank, config_.hidden});
      widening("linear_q_up_proj", {query, mla.q_lora_rank});
    } else {
      const Dims wide{query, config_.hidden};
      linear(self + "linear_q_proj", wide, false);
      adapter(self, "linear_q_proj", wide, TeParallel::column);
    }
    whole("linear_kv_down_proj", {mla.kv_lora_rank + mla.qk_rope_head_dim, config_.hidden});
    widening("linear_kv_up_proj", {heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank});
  }

  /// MambaMixer: what is cut over the heads or the groups is this rank's.
  void mixer(const std::string& path, const MambaSpec& spec) {
    const std::int64_t heads = spec.heads / tp_, inner = spec.inner() / tp_, convolved = spec.convolved() / tp_;
    for (const char* name : {"dt_bias", "A_log", "D"}) add(path.substr(0, path.size() - 1), name, {heads});
    add(path + "conv1d", "weight", {convolved, 1, spec.kernel});
    add(path + "conv1d", "bias", {convolved});
    normed_linear(path + "in_proj", {spec.projected() / tp_, config_.hidden}, false);
    add(path + "norm", "weight", {inner});
    linear(path + "out_proj", {config_.hidden, inner}, false);
  }

  void mlp(const std::string& path, const MlpSpec& spec) {
    const Dims up{spec.intermediate * (spec.gated ? 2 : 1) / tp_, config_.hidden}, down{config_.hidden, spec.intermediate / tp_};
    normed_linear(path + "linear_fc1", up, spec.bias);
    adapter(path, "linear_fc1", up, TeParallel::column);
    linear(path + "linear_fc2", down, spec.bias);
    adapter(path, "linear_fc2", down, TeParallel::row);
  }

  void experts(const std::string& path, const MoeSpec& spec) {
    const std::vector<ExpertParameter> all = expert_parameters(spec, config_.hidden, tp_, config_.experts);
    Dims weight;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const ExpertParameter& each = all[i];
      if (each.sizes.rank() == 2) weight = each.sizes;
      Parameter& made = add(path + each.path, each.name, each.sizes, each.host ? Birth::host : Birth::device);
      made.expert = each.expert;
      if (eight_bits_ && !each.host && each.sizes.rank() == 2) made.type = DType::fp8;
      if (i + 1 == all.size() || all[i + 1].path != each.path) expert_adapter(path, each, weight);
    }
  }

  /// The adapter behind the last parameter of a linear of experts, one for all that share its products, or of a shared expert.
  void expert_adapter(const std::string& path, const ExpertParameter& last, const Dims& weight) {
    const std::size_t dot = last.path.rfind('.');
    if (dot == std::string::npos) return;
    const std::string name = last.path.substr(dot + 1);
    const bool shared = last.path.rfind("shared_experts", 0) == 0, column = name == "linear_fc1";
    adapter(path + last.path.substr(0, dot + 1), name, weight, column ? TeParallel::column : TeParallel::row,
            shared ? tp_ : config_.experts.expert_tensor_parallel, last.expert);
  }

  bool layer_norm() const { return config_.norm.kind == NormSpec::Kind::layer_norm; }

  const MegatronConfig& config_;
  std::int64_t tp_;
  bool eight_bits_ = false;  ///< weights of linears from here on
  std::vector<PlacedParameter> list_;
};

}  // namespace

std::vector<PlacedParameter> megatron_parameters(const MegatronConfig& config, const ChunkPlan& plan, std::int64_t tensor_parallel) {
  ParameterList list(config, tensor_parallel);
  const PredictionConfig& prediction = config.prediction;
  const bool predicts = plan.head && prediction.depth > 0;
  if (plan.embedding || predicts) list.embedding();
  const std::int64_t tail = static_cast<std::int64_t>(config.layers.size()) - config.sixteen_bit_tail;
  for (std::int64_t i = 0; i < plan.layers; ++i) {
    const std::int64_t layer = plan.first_layer + i;
    list.layer("decoder.layers." + std::to_string(i), *config.layers[static_cast<std::size_t>(layer)], layer < tail);
  }
  if (plan.head) list.final_norm();
  for (std::int64_t i = 0; predicts && i < prediction.built(); ++i) list.prediction("mtp.layers." + std::to_string(i), prediction.layers);
  if (plan.head) list.head(!config.tied || (!plan.embedding && !predicts));
  return list.take();
}

}  // namespace plimsoll::program
