#include "program/modules/megatron/legacy.hpp"

#include <algorithm>
#include <numeric>

#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/modules/megatron/mappings.hpp"
#include "program/modules/megatron/vocabulary.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

void check_layer(const Block& block) {
  const auto no = [&](bool unknown, const char* what) {
    if (unknown) refuse(std::string(what) + " is not modelled for Megatron-DeepSpeed", block.name);
  };
  no(!block.attention || !block.mlp || block.moe.has_value() || block.cross_attention.has_value(), "this kind of layer");
  no(block.placement != NormPlacement::pre || block.norm.kind != NormSpec::Kind::layer_norm, "this norm");
  const AttentionSpec& attention = *block.attention;
  no(attention.positions != Positions::learned && attention.positions != Positions::alibi, "this position embedding");
  no(attention.kv_heads != attention.heads || attention.mla || attention.qk_norm != AttentionSpec::QkNorm::none, "this attention");
  no(!attention.qkv_bias || !attention.output_bias || !block.mlp->bias, "a linear without a bias");
  const bool gelu = block.mlp->activation.find("gelu") != std::string::npos;
  no(block.mlp->gated || !gelu, "an MLP other than gelu");
}

void check_strategy(const Strategy& s) {
  const auto no = [](bool unknown, const char* what, const char* key) {
    if (unknown) refuse(std::string(what) + " is not modelled for Megatron-DeepSpeed", key);
  };
  no(s.precision != Precision::mixed_bf16 && s.precision != Precision::mixed_fp16, "a precision other than bf16 and fp16", "precision");
  no(s.data_parallel == DataParallel::zero3 || s.data_parallel == DataParallel::none, "this way of data parallelism", "data_parallel");
  no(s.attention != AttentionKernel::unfused, "an attention other than the unfused one", "attention");
  no(s.sequence_parallel.value_or(false), "sequence parallelism", "sequence_parallel");
  no(s.cp > 1 || s.ep > 1 || s.vp > 1, "context, expert or interleaved pipeline parallelism", "cp");
  no(s.offload.any(), "offloading", "offload");
  no(s.lora.has_value(), "fine-tuning with adapters", "lora");
  no(s.recompute.kind == Recompute::Kind::full && s.recompute.layers > 1, "a checkpoint of more than one layer", "recompute");
  no(!has_fused_softmax(s.seq_len, *s.param_dtype), "a sequence that the fused softmax does not take", "seq_len");
}

}  // namespace

LegacyStagePlan legacy_stage_plan(const Model& model, const Strategy& strategy, int pipeline_rank) {
  check_strategy(strategy);
  if (model.task != Model::Task::causal_lm || !model.tied_embeddings)
    refuse("GPTModelPipe is a causal decoder with tied embeddings; others are not modelled for Megatron-DeepSpeed", "model");
  LegacyStagePlan plan{.hidden = model.hidden_size, .heads = model.heads, .head_dim = model.head_dim, .inner = model.intermediate_size};
  plan.vocabulary = round_up(model.vocab_size, static_cast<std::int64_t>(strategy.megatron.make_vocab_size_divisible_by) * strategy.tp);
  if (plan.heads % strategy.tp != 0) refuse("tensor-parallel ranks that do not divide the heads", "tp");
  for (const Block& block : model.blocks) {
    if (block.role == Block::Role::embedding) {
      const auto parameters = block.parameter_list();
      plan.embedding_norm = std::any_of(parameters.begin(), parameters.end(),
                                        [](const ParameterTensor* each) { return each->name.find("layernorm") != std::string::npos; });
    }
    if (block.role != Block::Role::decoder) continue;
    check_layer(block);
    if (block.attention->positions == Positions::learned) plan.positions = model.max_positions;
    plan.hidden_dropout = block.hidden_dropout;
    plan.attention_dropout = block.attention->dropout;
  }
  plan.type = *strategy.param_dtype;
  plan.micro_batch = strategy.micro_batch;
  plan.length = strategy.seq_len;
  plan.recompute = strategy.recompute.kind == Recompute::Kind::full;
  plan.layers = strategy.pp_layers.empty() ? model.layers : strategy.pp_layers[static_cast<std::size_t>(pipeline_rank)];
  plan.embedding = pipeline_rank == 0;
  plan.head = pipeline_rank == strategy.pp - 1;
  return plan;
}

// ---- one layer --------------------------------------------------------------------------------------------------------------

class LegacyStage::Layer {
 public:
  Layer(LegacyStage& stage, Module& module) : stage_(stage), module_(module) {
    const LegacyStagePlan& plan = stage.plan_;
    if (plan.positions == 0) {  // _build_alibi_tensor, one per layer
      Tape& tape = stage.runtime_.tape();
      const LabelScope label(tape, module.label);
      alibi_ = tape.empty({plan.micro_batch * heads(), 1, plan.length}, plan.type, Category::parameter);
    }
  }

  /// ParallelTransformerLayer.forward.
  Tensor operator()(const Tensor& hidden) const {
    const LabelScope label(runtime().tape(), module_.label);
    runtime().called();
    const double p = stage_.plan_.hidden_dropout;
    Tensor normed = norm("input_layernorm", hidden);
    Tensor attended = attention(normed);
    const Tensor branch = bias_dropout_add(attended, module_.child("self_attention").child("dense").tensor("bias"), hidden, p);
    Tensor second = norm("post_attention_layernorm", branch);
    normed = std::move(second);
    const Tensor output = mlp(normed);
    return bias_dropout_add(output, module_.child("mlp").child("dense_4h_to_h").tensor("bias"), branch, p);
  }

 private:
  MegatronRuntime& runtime() const { return stage_.runtime_; }
  std::int64_t heads() const { return stage_.plan_.heads / stage_.runtime_.tp(); }

  Tensor norm(const char* name, const Tensor& x) const {
    Module& module = module_.child(name);
    const LabelScope label(runtime().tape(), module.label);
    runtime().called();
    return layer_norm(x, module.tensor("weight"), module.tensor("bias"));
  }

  /// RowParallelLinear without its bias.
  Tensor row(const Tensor& x, Module& module) const {
    runtime().called();
    const Tensor partial = linear(x, module.tensor("weight"));
    return stage_.reduced(partial);
  }

  Tensor mlp(const Tensor& x) const {
    Module& module = module_.child("mlp");
    const LabelScope label(runtime().tape(), module.label);
    constexpr std::int64_t kModules = 2;  // ParallelMLP and its first linear
    runtime().called(kModules);
    Module& up = module.child("dense_h_to_4h");
    const Tensor copied = stage_.copied(x);
    Tensor inner = linear(copied, up.tensor("weight"));
    Tensor active = bias_gelu(inner, up.tensor("bias"));
    inner = std::move(active);
    return row(inner, module.child("dense_4h_to_h"));
  }

  /// ParallelAttention.forward; every variable lives to its end.
  Tensor attention(const Tensor& x) const {
    Module& self = module_.child("self_attention");
    const LabelScope label(runtime().tape(), self.label);
    Tape& tape = runtime().tape();
    constexpr std::int64_t kModules = 4;  // ParallelAttention, its first linear, FusedScaleMaskSoftmax, Dropout
    runtime().called(kModules);
    const std::int64_t length = x.size(0), batch = x.size(1), dim = stage_.plan_.head_dim, rows = batch * heads();
    Module& projection = self.child("query_key_value");
    const Tensor copied = stage_.copied(x);
    const Tensor mixed = linear(copied, projection.tensor("weight"), projection.tensor("bias"));
    const std::vector<Tensor> parts = chunk(view(mixed, {length, batch, heads(), 3 * dim}), 3, -1);
    const Tensor query = view(parts[0], {length, rows, dim}), key = view(parts[1], {length, rows, dim});
    Tensor scores;
    {
      const Tensor buffer = alibi_ ? alibi_ : tape.empty({rows, length, length}, mixed.dtype());
      scores = scaled_product(transpose(query, 0, 1), transpose(transpose(key, 0, 1), 1, 2));
    }
    Tensor probabilities = fused_causal_softmax(view(scores, {batch, heads(), length, length}));
    probabilities = dropout(probabilities, stage_.plan_.attention_dropout);
    const Tensor value = view(parts[2], {length, rows, dim});
    probabilities = view(probabilities, {rows, length, length});
    Tensor context = bmm(probabilities, transpose(value, 0, 1));
    context = view(context, {batch, heads(), length, dim});
    context = contiguous(permute(context, {2, 0, 1, 3}));
    context = view(context, {length, batch, heads() * dim});
    return row(context, self.child("dense"));
  }

  LegacyStage& stage_;
  Module& module_;
  Tensor alibi_;
};

// ---- the stage --------------------------------------------------------------------------------------------------------------

LegacyStage::LegacyStage(MegatronRuntime& runtime, const LegacyStagePlan& plan)
    : runtime_(runtime), plan_(plan), collectives_(runtime.tape().add_stream("collectives")) {
  const Dims table{plan.vocabulary / runtime.tp(), plan.hidden};
  if (plan.embedding || plan.head) make("embed.word_embeddings", "weight", table, true);
  if (plan.embedding && plan.embedding_norm) add_norm("embed.word_embeddings.norm");
  if ((plan.embedding || plan.head) && plan.positions > 0) make("embed.position_embeddings", "weight", {plan.positions, plan.hidden}, true);
  for (std::int64_t i = 0; i < plan.layers; ++i) add_layer(i);
  if (plan.head) add_norm("final_layernorm");
  for (Module* module : root_.all_modules()) module->label = runtime.tape().intern(module->path);
  for (std::int64_t i = 0; i < plan.layers; ++i)
    layers_.push_back(std::make_unique<Layer>(*this, root_.child("layers").child(std::to_string(i))));
}

LegacyStage::~LegacyStage() = default;

std::shared_ptr<Parameter> LegacyStage::make(const std::string& path, const std::string& name, const Dims& sizes, bool decays) {
  Module* module = &root_;
  for (std::size_t start = 0; start < path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    module = &module->child(std::string_view(path).substr(start, dot - start), true);
    start = dot + 1;
  }
  Tape& tape = runtime_.tape();
  const LabelScope label(tape, tape.intern(module->path));
  auto made = std::make_shared<Parameter>(Parameter{.name = name, .sizes = sizes, .type = plan_.type, .tensor = {}});
  made->tensor = tape.parameter(sizes, plan_.type, true);
  module->parameters.push_back(made);
  (decays ? decaying_ : others_).push_back(made);
  return made;
}

void LegacyStage::add_norm(const std::string& path) {
  make(path, "weight", {plan_.hidden}, false);
  make(path, "bias", {plan_.hidden}, false);
}

void LegacyStage::add_linear(const std::string& path, const Dims& sizes) {
  make(path, "weight", sizes, true);
  make(path, "bias", {sizes[0]}, false);
}

void LegacyStage::add_layer(std::int64_t index) {
  const std::string path = "layers." + std::to_string(index);
  const std::int64_t width = plan_.heads * plan_.head_dim / runtime_.tp(), inner = plan_.inner / runtime_.tp();
  add_norm(path + ".input_layernorm");
  add_linear(path + ".self_attention.query_key_value", {3 * width, plan_.hidden});
  add_linear(path + ".self_attention.dense", {plan_.hidden, width});
  add_norm(path + ".post_attention_layernorm");
  add_linear(path + ".mlp.dense_h_to_4h", {inner, plan_.hidden});
  add_linear(path + ".mlp.dense_4h_to_h", {plan_.hidden, inner});
}

std::vector<std::vector<std::shared_ptr<Parameter>>> LegacyStage::parameter_groups() const { return {decaying_, others_}; }

/// copy_to_tensor_model_parallel_region: the same tensor; its gradient is summed in place over the ranks.
Tensor LegacyStage::copied(const Tensor& x) {
  if (runtime_.tp() == 1) return x;
  PythonFunction op("copy_to_tensor_parallel", {&x});
  Tensor same = x.detach();
  return op.done(same, [this](BackwardCall& b) {
    runtime_.collective(CollectiveKind::all_reduce, b.grad().bytes(), b.grad().dtype());
    b.tape.record_stream(b.grad(), collectives_);
    b.give(0, b.grad());
  });
}

/// reduce_from_tensor_model_parallel_region.
Tensor LegacyStage::reduced(const Tensor& partial) {
  Tensor sum = reduce_over_tensor_parallel(runtime_, partial);
  if (runtime_.tp() > 1) runtime_.tape().record_stream(sum, collectives_);
  return sum;
}

/// EmbeddingPipe.forward and the change of layout behind it: [b, s] → [s, b, h].
Tensor LegacyStage::embed(const Tensor& tokens, const Tensor& positions) {
  Module& module = root_.child("embed");
  const LabelScope label(runtime_.tape(), module.label);
  Module& words = module.child("word_embeddings");
  constexpr std::int64_t kModules = 3;  // EmbeddingPipe, its table of words, Dropout
  runtime_.called(kModules);
  runtime_.tape().wait(kComputeStream, collectives_);  // the host asks whether any id is out of range
  runtime_.tape().synchronize();
  Tensor embeddings = vocab_parallel_embedding(runtime_, words.tensor("weight"), tokens);
  embeddings = reduced(embeddings);
  if (Module* norm = words.find_child("norm")) {
    runtime_.called();
    embeddings = layer_norm(embeddings, norm->tensor("weight"), norm->tensor("bias"));
  }
  if (plan_.positions > 0) {
    runtime_.called();
    const Tensor places = embedding(module.child("position_embeddings").tensor("weight"), positions);
    embeddings = add(embeddings, places);
  }
  embeddings = dropout(embeddings, plan_.hidden_dropout);
  return contiguous(transpose(embeddings, 0, 1));
}

/// parallel_lm_logits behind the final norm, and float16_to_fp32.
Tensor LegacyStage::logits(const Tensor& hidden) {
  Tensor x = contiguous(transpose(hidden, 0, 1));
  runtime_.called();
  Module& norm = root_.child("final_layernorm");
  x = layer_norm(x, norm.tensor("weight"), norm.tensor("bias"));
  const LabelScope label(runtime_.tape(), root_.child("embed").label);
  x = copied(x);
  x = linear(x, root_.child("embed").child("word_embeddings").tensor("weight"));
  return to(x, DType::fp32);
}

Tensor LegacyStage::forward(const Tensor& input, const Tensor& positions) {
  runtime_.called();  // PipelineModule
  Tensor x = plan_.embedding ? embed(input, positions) : input;
  for (const auto& layer : layers_) {
    const Region region = [&layer](const std::vector<Tensor>& arguments) { return (*layer)(arguments[0]); };
    Tensor y = plan_.recompute ? checkpoint_reentrant(runtime_.tape(), region, {x}) : (*layer)(x);
    x = std::move(y);
  }
  return plan_.head ? logits(x) : x;
}

Tensor LegacyStage::loss(const Tensor& logits, const Tensor& labels, const Tensor& mask) {
  runtime_.tape().phase(Phase::loss);
  const LabelScope label(runtime_.tape(), runtime_.tape().intern("loss"));
  const Tensor losses = vocab_parallel_cross_entropy(runtime_, logits, labels);
  const Tensor count = sum(mask, {}, false), weighted = multiply(view(losses, {-1}), view(mask, {-1}));
  const Tensor total = sum(weighted, {}, false);
  return divide(total, count);
}

}  // namespace plimsoll::program
