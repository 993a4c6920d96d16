#include "program/modules/megatron/gpt.hpp"

#include <algorithm>
#include <optional>

#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/modules/megatron/adapters.hpp"
#include "program/modules/megatron/mamba.hpp"
#include "program/modules/megatron/mappings.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/recompute.hpp"
#include "program/modules/megatron/rotary.hpp"
#include "program/modules/megatron/te.hpp"
#include "program/modules/megatron/te_experts.hpp"
#include "program/modules/megatron/vocabulary.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

Module& module_at(Module& root, const std::string& path) {
  Module* module = &root;
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    module = &module->child(std::string_view(path).substr(start, dot - start), true);
    start = dot + 1;
  }
  return *module;
}

}  // namespace

// ---- one layer --------------------------------------------------------------------------------------------------------------

class MegatronChunk::Layer {
 public:
  Layer(MegatronChunk& chunk, Module& module, const Block& block) : chunk_(chunk), module_(module), block_(block) {
    if (block.moe) experts_.emplace(chunk.runtime_, module_.child("mlp"), *block.moe, chunk.config_.experts);
  }

  Tensor operator()(const Tensor& input, const Tensor& rotary) const {
    Tensor x = input;
    ModuleCall call(module_, runtime().tape(), {&x});
    if (block_.mamba) return call.done(mamba_branch(x));
    const Tensor hidden = block_.attention ? attention_branch(x, rotary) : x;
    return call.done(block_.mlp || block_.moe ? mlp_branch(hidden) : hidden);
  }

  Module& module() const { return module_; }

 private:
  MegatronRuntime& runtime() const { return chunk_.runtime_; }
  const MegatronConfig& config() const { return chunk_.config_; }
  LabelScope labelled(const char* part) const { return LabelScope(runtime().tape(), module_.child(part).label); }

  Tensor attention_branch(const Tensor& residual, const Tensor& rotary) const {
    const bool norm_apart = !config().te || config().latent;
    CheckpointWithoutOutput again;
    const Tensor normed = norm_apart ? normed_before("input_layernorm", residual, again) : residual;
    Tensor attended = config().latent ? latent_attention(normed) : attention(normed, rotary);
    again.discard(attended);
    return add_residual(attended, module_.child("self_attention").child("linear_proj").tensor("bias"), residual);
  }

  /// MambaLayer.forward: a mixer, whose input projection norms, and its residual connection.
  Tensor mamba_branch(const Tensor& residual) const {
    Tensor mixed;
    {
      const LabelScope label = labelled("mixer");
      constexpr std::int64_t kModules = 2;  // the mixer and its gated norm
      runtime().called(kModules);
      Module& mixer = module_.child("mixer");
      const Tensor projected = column(residual, mixer.child("in_proj"), {});
      Module& convolution = mixer.child("conv1d");
      const MambaParameters parameters{convolution.tensor("weight"), convolution.tensor("bias"), mixer.tensor("dt_bias"),
                                       mixer.tensor("A_log"),        mixer.tensor("D"),          mixer.child("norm").tensor("weight")};
      const Tensor scanned = mamba_split_scan(contiguous(transpose(projected, 0, 1)), local_mixer(), parameters);
      mixed = row(contiguous(transpose(scanned, 0, 1)), mixer.child("out_proj"));
    }
    return add_residual(mixed, {}, residual);
  }

  /// This rank's heads and groups.
  MambaSpec local_mixer() const {
    MambaSpec local = *block_.mamba;
    local.heads /= runtime().tp();
    local.groups /= runtime().tp();
    return local;
  }

  Tensor mlp_branch(const Tensor& residual) const {
    const bool norm_apart = !config().te || experts_;
    CheckpointWithoutOutput again;
    const Tensor normed = norm_apart ? normed_before("pre_mlp_layernorm", residual, again) : residual;
    const Tensor bias = experts_ ? Tensor() : module_.child("mlp").child("linear_fc2").tensor("bias");
    const Region region = [this](const std::vector<Tensor>& x) { return experts_ ? (*experts_)(x[0]) : mlp(x[0]); };
    const Tensor output = recomputes(config().recompute, experts_ ? "moe" : "mlp")
                              ? checkpoint_reentrant(runtime().tape(), region, {normed})
                              : region({normed});
    again.discard(output);
    return add_residual(output, bias, residual);
  }

  /// bias_dropout_add, compiled or (get_bias_dropout_add without fusion) operator by operator.
  Tensor add_residual(const Tensor& x, const Tensor& bias, const Tensor& residual) const {
    if (config().fuses_dropout) return bias_dropout_add(x, bias, residual, config().hidden_dropout);
    const Tensor biased = bias ? add(x, bias) : x;
    const Tensor dropped = dropout(biased, config().hidden_dropout);
    return add(residual, dropped);
  }

  /// A norm of its own in front of a branch; `again` runs it a second time where it is recomputed.
  Tensor normed_before(const char* name, const Tensor& x, CheckpointWithoutOutput& again) const {
    Module& module = module_.child(name);
    if (!recomputes(config().recompute, "layernorm")) return chunk_.norm(module, x);
    const CheckpointWithoutOutput::Region region = [this, &module](const std::vector<Tensor>& in) {
      return std::vector{chunk_.norm(module, in[0])};
    };
    return again.run(runtime().tape(), region, {x}).front();
  }

  /// MLP.forward without the last bias, which the caller fuses.
  Tensor mlp(const Tensor& x) const {
    const LabelScope label = labelled("mlp");
    runtime().called();
    Module& up = module_.child("mlp").child("linear_fc1");
    Module& down = module_.child("mlp").child("linear_fc2");
    Tensor inner = column(x, up, {});
    const Tensor up_bias = up.tensor("bias");
    Tensor active = activated(inner, up_bias);
    inner = std::move(active);
    return row(inner, down);
  }

  Tensor activated(const Tensor& inner, const Tensor& bias) const {
    if (block_.mlp->gated && !config().fuses_swiglu) return eager_swiglu(inner);
    if (block_.mlp->gated) return bias_swiglu(inner, bias, config().eight_bit_activations);
    return block_.mlp->activation == "relu2" ? squared_relu(inner) : bias_gelu(inner, bias);
  }

  /// ColumnParallelLinear, or TELayerNormColumnParallelLinear; a bias is added at once unless the caller fuses it.
  Tensor column(const Tensor& x, Module& module, const Tensor& bias) const {
    const QuantizationScope recipe(runtime(), module);
    if (config().te) {
      const TeNorm norm{module.tensor("layer_norm_weight"), module.tensor("layer_norm_bias")};
      if (module.find_child("adapter") == nullptr) return te_layernorm_linear(runtime(), x, norm, module.tensor("weight"), bias);
      Tensor normed;
      const Tensor output = te_layernorm_linear(runtime(), x, norm, module.tensor("weight"), bias, &normed);
      return with_adapter(output, normed, module, TeParallel::column);
    }
    runtime().called();  // Transformer Engine's linears count their own
    const bool parallel = runtime().tp() > 1, sequence = runtime().sequence_parallel();
    const Tensor output = megatron_linear(runtime(), x, module.tensor("weight"), bias,
                                          {.gather_input = sequence, .reduce_gradient = parallel && !sequence});
    return with_adapter(output, x, module, TeParallel::column);
  }

  /// RowParallelLinear without its bias, which the caller fuses.
  Tensor row(const Tensor& x, Module& module) const {
    const QuantizationScope recipe(runtime(), module);
    if (config().te) {
      // The core attention saves its output itself.
      const bool shares = runtime().quantization().shares_inputs && module.name() == "linear_proj";
      const Tensor output =
          te_linear(runtime(), x, module.tensor("weight"), {}, TeParallel::row, shares ? TeInput::original : TeInput::cast);
      return with_adapter(output, x, module, TeParallel::row);
    }
    runtime().called();
    const Tensor partial = megatron_linear(runtime(), x, module.tensor("weight"), {}, {});
    const Tensor output =
        runtime().sequence_parallel() ? reduce_scatter_sequence(runtime(), partial) : reduce_over_tensor_parallel(runtime(), partial);
    return with_adapter(output, x, module, TeParallel::row);
  }

  /// The linear's output, and what its adapter adds where it has one.
  Tensor with_adapter(const Tensor& output, const Tensor& x, Module& module, TeParallel beside) const {
    Module* adapter = module.find_child("adapter");
    if (adapter == nullptr) return output;
    return adapted(runtime(), output, x, *adapter, {.beside = beside,
                                                  .parallel = runtime().tp() > 1,
                                                  .sequence = runtime().sequence_parallel(),
                                                  .dropout = config().lora->dropout});
  }

  Tensor attention(const Tensor& x, const Tensor& rotary) const {
    const LabelScope label = labelled("self_attention");
    runtime().called();
    Module& self = module_.child("self_attention");
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t groups = std::max<std::int64_t>(spec.kv_heads / runtime().tp(), 1), each = spec.heads / spec.kv_heads;
    const bool shares_groups = spec.kv_heads < runtime().tp();
    Tensor query, key, value;
    // The tuple of the projections lives as long as the call.
    Tensor mixed = column(x, self.child("linear_qkv"), self.child("linear_qkv").tensor("bias"));
    if (shares_groups) {  // a group's heads lie on several ranks: all of them are gathered, and this rank's group is cut out
      mixed = gather_last_dimension(runtime(), mixed);
      mixed = slice(mixed, -1, 0, mixed.size(-1) / spec.kv_heads);
    }
    const Tensor grouped = view(mixed, {mixed.size(0), mixed.size(1), groups, (each + 2) * spec.head_dim});
    const std::vector<Tensor> parts = split(grouped, {each * spec.head_dim, spec.head_dim, spec.head_dim}, 3);
    Tensor projected = reshape(parts[0], {mixed.size(0), mixed.size(1), groups * each, spec.head_dim}), keys = parts[1];
    if (shares_groups) projected = slice(projected, 2, 0, spec.heads / runtime().tp());
    if (spec.qk_norm == AttentionSpec::QkNorm::per_head) {
      projected = chunk_.norm(self.child("q_layernorm"), projected);
      keys = chunk_.norm(self.child("k_layernorm"), keys);
    }
    query = projected;
    key = keys;
    value = parts[2];
    if (rotary) {
      query = config().fused_rotary ? te_rotary(query, rotary) : rotate(query, rotary);
      key = config().fused_rotary ? te_rotary(key, rotary) : rotate(key, rotary);
    }
    const Tensor output = attend(query, key, value);
    return row(output, self.child("linear_proj"));
  }

  /// MLASelfAttention.forward: queries, keys and values come from narrow projections, norms fused into what widens them.
  Tensor latent_attention(const Tensor& x) const {
    const LabelScope label = labelled("self_attention");
    runtime().called();
    Module& self = module_.child("self_attention");
    const MlaSpec& mla = *block_.attention->mla;
    // A norm's output that is recomputed is saved by nobody else.
    const bool again_here = runtime().quantization().enabled && recomputes(config().recompute, "layernorm");
    const auto down = [&](const char* name) {
      Module& module = self.child(name);
      const QuantizationScope recipe(runtime(), module);
      const Tensor narrow =
          te_linear(runtime(), x, module.tensor("weight"), {}, TeParallel::none, again_here ? TeInput::original : TeInput::cast);
      return with_adapter(narrow, x, module, TeParallel::none);
    };
    const Tensor narrow_query = mla.q_lora_rank > 0 ? down("linear_q_down_proj") : Tensor();
    const Tensor combined = down("linear_kv_down_proj");
    const std::vector<Tensor> parts = split(combined, {mla.kv_lora_rank, mla.qk_rope_head_dim}, -1);
    const Tensor rotary_key = runtime().sequence_parallel() ? gather_sequence(runtime(), parts[1]) : parts[1];
    const CheckpointWithoutOutput::Region widen = [this](const std::vector<Tensor>& in) { return widened(in[0], in[1], in[2]); };
    const std::vector<Tensor> narrow{narrow_query ? narrow_query : x, parts[0], rotary_key};
    CheckpointWithoutOutput again;
    const std::vector<Tensor> qkv =
        recomputes(config().recompute, "mla_up_proj") ? again.run(runtime().tape(), widen, narrow) : widen(narrow);
    const Tensor attended = attend(qkv[0], qkv[1], qkv[2]);
    again.discard(attended);
    return row(attended, self.child("linear_proj"));
  }

  /// qkv_up_proj_and_rope_apply: queries, keys and values from what the narrow projections gave (queries may come from the layer's input).
  std::vector<Tensor> widened(const Tensor& for_query, const Tensor& for_key_value, const Tensor& rotary_key) const {
    Module& self = module_.child("self_attention");
    const MlaSpec& mla = *block_.attention->mla;
    const std::int64_t heads = block_.attention->heads / runtime().tp();
    const auto by_heads = [&](const Tensor& wide, std::int64_t width) { return view(wide, {wide.size(0), wide.size(1), heads, width}); };
    const Tensor wide_query = mla.q_lora_rank > 0 ? column(for_query, self.child("linear_q_up_proj"), {})
                                                  : whole_query(for_query, self.child("linear_q_proj"));
    const Tensor wide = by_heads(column(for_key_value, self.child("linear_kv_up_proj"), {}), mla.qk_nope_head_dim + mla.v_head_dim);
    const Tensor query = by_heads(wide_query, mla.qk_nope_head_dim + mla.qk_rope_head_dim), turning = unsqueeze(rotary_key, -2);
    const Tensor table = latent_table(wide.size(0));
    if (!config().fused_rotary) return turned_apart(query, wide, turning, table);
    const Tensor turned = te_latent_rotary_query(query, table);
    const TeLatent latent = te_latent_rotary_key_value(wide, turning, mla.v_head_dim, table);
    return {turned, latent.key, latent.value};
  }

  Tensor whole_query(const Tensor& x, Module& module) const {
    return with_adapter(te_linear(runtime(), x, module.tensor("weight"), {}, TeParallel::column), x, module, TeParallel::column);
  }

  /// Without apply_rope_fusion: the parts that are turned, taken out, turned by themselves and put beside the others again.
  std::vector<Tensor> turned_apart(const Tensor& wide_query, const Tensor& wide, const Tensor& rotary_key,
                                   const Tensor& frequencies) const {
    const MlaSpec& mla = *block_.attention->mla;
    const std::vector<Tensor> of_query = split(wide_query, {mla.qk_nope_head_dim, mla.qk_rope_head_dim}, -1);
    const std::vector<Tensor> of_wide = split(wide, {mla.qk_nope_head_dim, mla.v_head_dim}, -1);
    const Tensor turned_query = rotate_pairs(of_query[1], frequencies), turned_key = rotate_pairs(rotary_key, frequencies);
    const Tensor query = cat({of_query[0], turned_query}, -1);
    const Tensor of_all_heads = expand(turned_key, {-1, -1, wide.size(2), -1});
    const Tensor key = cat({of_wide[0], of_all_heads}, -1);
    const Tensor value = contiguous(of_wide[1]);
    return {query, key, value};
  }

  /// Each layer's own rotary embedding, made at the first call and kept: cosines and sines for the fused kernels; without them the angles,
  /// of 32 bits, of which every call makes cosines and sines.
  Tensor latent_table(std::int64_t length) const {
    if (!latent_table_) {
      const std::int64_t width = block_.attention->mla->qk_rope_head_dim;
      Tape& tape = runtime().tape();
      latent_table_ = config().fused_rotary ? tape.empty({2, length * runtime().cp(), 1, 1, width}, config().type, Category::parameter)
                                            : tape.empty({length, 1, 1, width}, DType::fp32, Category::parameter);
    }
    return latent_table_;
  }

  /// The core attention, run again in backward where it is recomputed.
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value) const {
    if (!recomputes(config().recompute, "core_attn")) return core_attention(query, key, value);
    return checkpoint_reentrant(runtime().tape(), [this](const std::vector<Tensor>& qkv) { return core_attention(qkv[0], qkv[1], qkv[2]); },
                                {query, key, value});
  }

  Tensor core_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
    if (config().te) {
      TeScores scores{block_.attention->sliding_window.value_or(0), {}, block_.attention->dropout};
      if (block_.attention->sinks) scores.sinks = module_.child("self_attention").child("core_attention").tensor("softmax_offset");
      return te_attention(runtime(), query, key, value, config().attention, scores);
    }
    return config().flash ? flash_attention(query, key, value) : unfused_attention(query, key, value);
  }

  /// torch's scaled_dot_product_attention on contiguous queries, keys and values.
  Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
    runtime().called();
    const auto heads_first = [](const Tensor& x) { return permute(contiguous(x), {1, 2, 0, 3}); };
    const Tensor q = heads_first(query), k = heads_first(key), v = heads_first(value);
    Tensor output = scaled_dot_product_attention(
        q, k, v, {}, {.causal = true, .dropout = block_.attention->dropout, .enable_gqa = q.size(1) != k.size(1)});
    output = permute(output, {2, 0, 1, 3});
    return reshape(output, {output.size(0), output.size(1), -1});
  }

  /// DotProductAttention.forward.
  Tensor unfused_attention(const Tensor& query_in, const Tensor& key_in, const Tensor& value_in) const {
    Tape& tape = runtime().tape();
    constexpr std::int64_t kModules = 3;  // itself, FusedScaleMaskSoftmax, Dropout
    runtime().called(kModules);
    const std::int64_t length = query_in.size(0), batch = query_in.size(1), heads = query_in.size(2), dim = query_in.size(3);
    Tensor query = query_in, key = key_in, value = value_in;
    if (heads != key.size(2)) {
      key = repeat_interleave(key, heads / key.size(2), 2);
      value = repeat_interleave(value, heads / value.size(2), 2);
    }
    query = reshape(query, {length, batch * heads, dim});
    key = view(key, {length, batch * heads, dim});
    runtime().global_buffer({batch * heads, length, length}, query.dtype());
    const Tensor scores = scaled_product(transpose(query, 0, 1), transpose(transpose(key, 0, 1), 1, 2));
    const Tensor each_head = view(scores, {batch, heads, length, length});
    Tensor probabilities = config().fused_softmax ? fused_causal_softmax(each_head) : softmax_in_fp32(tape, each_head);
    probabilities = dropout(probabilities, block_.attention->dropout);
    value = view(value, {length, batch * heads, dim});
    probabilities = view(probabilities, {batch * heads, length, length});
    Tensor context = bmm(probabilities, transpose(value, 0, 1));
    context = view(context, {batch, heads, length, dim});
    context = contiguous(permute(context, {2, 0, 1, 3}));
    return view(context, {length, batch, heads * dim});
  }

  /// FusedScaleMaskSoftmax.forward_torch_softmax with attention_softmax_in_fp32; the causal mask is made anew every time.
  static Tensor softmax_in_fp32(Tape& tape, const Tensor& scores) {
    const std::int64_t length = scores.size(-1);
    Tensor wide = to(scores, DType::fp32);
    Tensor mask;
    {
      Tensor triangle;
      {
        const Tensor ones = zeros(tape, {length, length}, DType::fp32);
        triangle = elementwise(tape, {&ones}, DType::fp32);
      }
      mask = to(triangle, DType::boolean);
    }
    const Tensor masked = masked_fill_into(wide, mask);
    const Tensor probabilities = softmax(masked, DType::fp32);
    return to(probabilities, scores.dtype());
  }

  MegatronChunk& chunk_;
  Module& module_;
  const Block& block_;
  std::optional<MegatronExperts> experts_;
  mutable Tensor latent_table_;
};

// ---- the chunk --------------------------------------------------------------------------------------------------------------

MegatronChunk::MegatronChunk(MegatronRuntime& runtime, const MegatronConfig& config, const ChunkPlan& plan, std::int64_t index)
    : runtime_(runtime), config_(config), plan_(plan), root_(std::make_unique<Module>()) {
  root_->path = config.pipeline > 1 ? "chunk" + std::to_string(index) : "";
  build();
}

MegatronChunk::~MegatronChunk() = default;

void MegatronChunk::build() {
  for (const PlacedParameter& placed : megatron_parameters(config_, plan_, runtime_.tp())) {
    if (placed.birth != PlacedParameter::Birth::device) born_on_host_.push_back(placed.parameter.get());
    if (placed.birth == PlacedParameter::Birth::host) in_final_type_.insert(placed.parameter.get());
    parameters_.push_back(placed.parameter);
    module_at(*root_, placed.path).parameters.push_back(placed.parameter);
  }
  for (Module* module : root_->all_modules()) module->label = runtime_.tape().intern(module->path);
  for (std::int64_t i = 0; i < plan_.layers; ++i) {
    const Block& block = *config_.layers[static_cast<std::size_t>(plan_.first_layer + i)];
    layers_.push_back(std::make_unique<Layer>(*this, module_at(*root_, "decoder.layers." + std::to_string(i)), block));
  }
  if (plan_.head) build_predictions();
  set_recipes();
}

void MegatronChunk::build_predictions() {
  const PredictionConfig& prediction = config_.prediction;
  for (std::int64_t depth = 0; depth < prediction.built(); ++depth) {
    const std::string path = "mtp.layers." + std::to_string(depth);
    Prediction built{module_at(*root_, path), {}};
    for (std::size_t i = 0; i < prediction.layers.size(); ++i) {
      Module& module = module_at(*root_, prediction_layer_path(path, i, prediction.layers.size()));
      built.layers.push_back(std::make_unique<Layer>(*this, module, *prediction.layers[i]));
    }
    predictions_.push_back(std::move(built));
  }
}

/// Modules whose products have a recipe of their own; what a layer holds has the layer's.
void MegatronChunk::set_recipes() {
  for (Module* module : root_->all_modules())
    if (const TeQuantization* own = config_.own_recipe(module->path, -1)) runtime_.set_recipe(*module, *own);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::int64_t layer = plan_.first_layer + static_cast<std::int64_t>(i);
    for (Module* module : layers_[i]->module().all_modules())
      if (const TeQuantization* own = config_.own_recipe(module->path, layer)) runtime_.set_recipe(*module, *own);
  }
}

Tensor MegatronChunk::run(const Layer& layer, const Tensor& hidden, const Tensor& rotary_embedding) const {
  return layer(hidden, rotary_embedding);
}

MegatronFsdpModules MegatronChunk::fsdp_modules() {
  MegatronFsdpModules modules{.root = root_.get(), .layers = {}, .outside = {}};
  for (const auto& layer : layers_) modules.layers.push_back(&layer->module());
  for (const Prediction& prediction : predictions_)
    for (const auto& layer : prediction.layers) modules.layers.push_back(&layer->module());
  std::unordered_set<const Module*> inside;
  for (Module* layer : modules.layers)
    for (const Module* module : layer->all_modules()) inside.insert(module);
  for (Module* module : root_->all_modules())
    if (!module->parameters.empty() && inside.count(module) == 0) modules.outside.push_back(module);
  return modules;
}

Tensor MegatronChunk::norm(Module& module, const Tensor& x) const {
  const ModuleCall call(module, runtime_.tape(), {});
  const Tensor& weight = module.tensor("weight");
  if (config_.te || config_.persistent_norm) return te_norm(x, {weight, module.tensor("bias")});
  return config_.norm.kind == NormSpec::Kind::layer_norm ? layer_norm(x, weight, module.tensor("bias")) : rms_norm(x, weight);
}

/// LanguageModelEmbedding.forward: [b, s] → [s, b, h], cut over the sequence under sequence parallelism.
Tensor MegatronChunk::embed(const MegatronBatch& batch) {
  Module& module = root_->child("embedding");
  ModuleCall call(module, runtime_.tape(), {});
  const bool sequence = runtime_.sequence_parallel(), learned = config_.positions > 0;
  Tensor words, embeddings, places;
  {
    Module& table = module.child("word_embeddings");
    const ModuleCall lookup(table, runtime_.tape(), {});
    words = vocab_parallel_embedding(runtime_, table.tensor("weight"), batch.tokens);
  }
  const bool scatter_early = sequence && !learned;
  if (scatter_early) {
    words = contiguous(transpose(words, 0, 1));  // under one name: what was looked up dies before the scatter
    words = reduce_scatter_sequence(runtime_, words);
  } else {
    words = reduce_over_tensor_parallel(runtime_, words);
  }
  embeddings = words;
  if (learned) {
    Module& table = module.child("position_embeddings");
    const ModuleCall lookup(table, runtime_.tape(), {});
    places = embedding(table.tensor("weight"), batch.positions);
    embeddings = add(words, places);
  }
  if (!scatter_early) {
    embeddings = contiguous(transpose(embeddings, 0, 1));
    if (sequence) embeddings = scatter_sequence(runtime_, embeddings);
  }
  if (sequence) embeddings = clone(embeddings);
  runtime_.called();  // Dropout
  return call.done(dropout(embeddings, config_.hidden_dropout));
}

/// RotaryEmbedding.forward, cached after its first call.
Tensor MegatronChunk::rotary(std::int64_t length) {
  if (config_.rotary == 0) return {};
  runtime_.called();
  if (rotary_table_) return rotary_table_;
  Tape& tape = runtime_.tape();
  const GradMode no_grad(tape, false);
  Tensor table;
  {
    Tensor angles;
    {
      Tensor places;
      {
        const Tensor range = arange(tape, length, DType::fp32);
        places = add_scalar(range);
      }
      angles = tape.empty({length, frequencies_.size(0)}, DType::fp32);
      pointwise(tape, Pointwise::Form::map, {operand(places), operand(frequencies_)}, {operand(angles)});
    }
    table = cat({angles, angles}, -1);
  }
  rotary_table_ = view(table, {length, 1, 1, 2 * frequencies_.size(0)});
  return rotary_table_;
}

/// The layers of TransformerBlock.forward with cpu_offloading: hooks around each, and a commit behind it.
Tensor MegatronChunk::decode_offloaded(Tensor hidden, const Tensor& rotary_embedding) {
  if (!offload_) {
    std::vector<Tensor> own;
    for (const auto& parameter : parameters_) own.push_back(parameter->tensor);
    offload_ = std::make_shared<TeOffload>(runtime_.tape(), layers_.size(), static_cast<std::size_t>(config_.offloaded_layers), own);
  }
  for (const auto& layer : layers_) {
    {
      const SavedTensorHooksScope hooks(runtime_.tape(), offload_);
      hidden = (*layer)(hidden, rotary_embedding);
    }
    hidden = offload_->commit(hidden);
  }
  return hidden;
}

namespace {

/// A checkpoint whose inputs need no gradient would never be run again, and adapters within it never trained: where all else is frozen,
/// TransformerBlock's input is made to need one (maybe_enable_recompute_inputs_grad, Megatron-Bridge 0.3).
Tensor needing_gradient(const Tensor& hidden) {
  if (hidden.requires_grad()) return hidden;
  Tensor leaf = hidden.detach();
  leaf.set_requires_grad(true);
  return leaf;
}

}  // namespace

/// TransformerBlock.forward with its recomputation.
Tensor MegatronChunk::decode(Tensor hidden, const Tensor& rotary_embedding) {
  runtime_.called();
  const Recompute& recompute = config_.recompute;
  const bool full = recompute.kind == Recompute::Kind::full;
  if (full && config_.lora) hidden = needing_gradient(hidden);
  const std::size_t count = layers_.size(), group = static_cast<std::size_t>(std::max(recompute.layers, 1));
  const bool uniform = recompute.method == Recompute::Method::uniform;
  if (full && uniform && count % group != 0)
    refuse("Megatron's uniform recomputation reaches for layers that there are not where recompute_num_layers " + std::to_string(group) +
               " does not divide the " + std::to_string(count) + " layers of a stage",
           "recompute_num_layers");
  if (config_.offloaded_layers > 0) hidden = decode_offloaded(std::move(hidden), rotary_embedding);
  // Layers whose input needs no gradient: with 8-bit products the block's checkpoints begin behind them, for the re-entrant engine.
  std::size_t skipped = 0;
  for (std::size_t first = 0; first < count && config_.offloaded_layers == 0;) {
    const std::size_t last = full && uniform ? first + group : first + 1;
    if (full && !uniform && config_.quantization.enabled && !hidden.requires_grad()) ++skipped;
    if (full && (uniform || (first >= skipped && first < group + skipped))) {
      const Region region = [this, first, last](const std::vector<Tensor>& arguments) {
        Tensor x = arguments[0];
        for (std::size_t i = first; i < last; ++i) x = (*layers_[i])(x, arguments[1]);
        return x;
      };
      hidden = checkpoint_reentrant(runtime_.tape(), region, {hidden, rotary_embedding});
    } else {
      hidden = (*layers_[first])(hidden, rotary_embedding);
    }
    first = last;
  }
  return plan_.head ? norm(root_->child("decoder").child("final_layernorm"), hidden) : hidden;
}

Tensor MegatronChunk::forward(const MegatronBatch& batch) {
  ModuleCall call(*root_, runtime_.tape(), {});
  Tensor hidden = plan_.embedding ? embed(batch) : input_;
  const std::int64_t length = hidden.size(0) * (runtime_.sequence_parallel() ? runtime_.tp() : 1);
  const Tensor table = rotary(length);
  hidden = decode(hidden, table);
  if (!predictions_.empty()) hidden = predict_further(hidden, table, batch);
  return call.done(plan_.head ? loss(hidden, batch.labels) : hidden);
}

}  // namespace plimsoll::program
