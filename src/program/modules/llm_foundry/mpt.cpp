#include "program/modules/llm_foundry/mpt.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

// ---- attention --------------------------------------------------------------------------------------------------------------

Attention attention_of(AttentionLibrary library, Attention::Part part, const Tensor& query) {
  Attention attention = attention_over(library, query, query, query, HeadsOrder::batch_length_heads);
  attention.part = part;
  attention.causal = true;
  return attention;
}

/// FlashAttnFunc on [batch, length, heads, dim], whose rows are padded to whole blocks of 128 in the statistics; dQ is added up in fp32.
Tensor flash_attention(AttentionLibrary library, const Tensor& query, const Tensor& key, const Tensor& value) {
  constexpr std::int64_t kRows = 128;
  PythonFunction op("FlashAttnFunc", {&query, &key, &value});
  const Dims rows{query.size(0), query.size(2), round_up(query.size(1), kRows)};
  Tensor output = op.output(query.sizes(), query.dtype());
  const Tensor statistics = op.output(rows, DType::fp32);
  op.tape().kernel({attention_of(library, Attention::Part::forward, query)});
  for (const Tensor* kept : {&query, &key, &value}) op.save(*kept);
  op.save_output(output);
  op.save_output(statistics);
  return op.done(output, [library, rows](BackwardCall& b) {
    const Tensor& saved = b.saved(0);
    const Tensor gradient = contiguous(b.grad());
    Tensor dq = b.tape.empty(saved.sizes(), saved.dtype()), dk = b.tape.empty(saved.sizes(), saved.dtype()),
           dv = b.tape.empty(saved.sizes(), saved.dtype());
    {
      const Tensor delta = b.tape.empty(rows, DType::fp32, Category::workspace);
      const Tensor sum = zeros(b.tape, saved.sizes(), DType::fp32);
      for (const Attention::Part part : {Attention::Part::delta, Attention::Part::backward, Attention::Part::convert})
        b.tape.kernel({attention_of(library, part, saved)});
    }
    b.give(0, std::move(dq));
    b.give(1, std::move(dk));
    b.give(2, std::move(dv));
  });
}

/// unpad_input: where the tokens are (the host reads how many, and the longest sequence), then their rows (IndexFirstAxis).
Tensor unpadded(const Tensor& x, const Tensor& mask) {
  Tape& tape = x.tape();
  const std::int64_t tokens = x.size(0) * x.size(1);
  Tensor places;
  {
    const Tensor lengths = tape.empty({x.size(0)}, DType::int32);
    reduce(lengths, mask, Reduction::Axis::inner);
    places = tape.empty({tokens}, DType::int64);
    gather(Gather::Function::scan, tokens, {&mask}, {&places});  // nonzero
    tape.synchronize();
    const Tensor longest = tape.empty({}, DType::int32);
    reduce(longest, lengths, Reduction::Axis::all);
    tape.synchronize();
    const Tensor ends = cumulative_sum(lengths, DType::int32);
  }
  PythonFunction op("IndexFirstAxis", {&x});
  op.save(places);
  Tensor rows = op.output({1, tokens, x.size(2), x.size(3)}, x.dtype());
  gather(Gather::Function::index, rows.elements(), {&x, &places}, {&rows});
  return op.done(rows, [sizes = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, sizes, b.grad().dtype());
    gather(Gather::Function::scatter, gradient.elements(), {&b.grad(), &b.saved(0)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

/// pad_input (IndexPutFirstAxis).
Tensor padded(const Tensor& rows, const Dims& sizes) {
  PythonFunction op("IndexPutFirstAxis", {&rows});
  Tensor whole = zeros(op.tape(), sizes, rows.dtype());
  gather(Gather::Function::scatter, whole.elements(), {&rows}, {&whole});
  return op.done(whole, [packed_sizes = rows.sizes()](BackwardCall& b) {
    Tensor gradient = b.tape.empty(packed_sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&b.grad()}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

/// flash_attn_fn: every sequence counts as padded, whether it is or not. The kernel sees the sequences one behind the other; what it works
/// on is the same.
Tensor packed_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor mask = filled(query.tape(), {query.size(0), query.size(1)}, DType::boolean);
  const auto packed_rows = [&](const Tensor& x) { return view(unpadded(x, mask), x.sizes()); };
  const Tensor q = packed_rows(query), k = packed_rows(key), v = packed_rows(value);
  const Tensor output = flash_attention(packaged_flash(query.tape().device), q, k, v);
  return padded(output, query.sizes());
}

// ---- the network ------------------------------------------------------------------------------------------------------------

/// What an MPT's modules are called: with learned positions and biases the tensors are GPT-2's, with ALiBi and without biases they are those
/// of transformers' MPT.
struct MptNames {
  const char *blocks, *first_norm, *qkv, *output, *second_norm, *mlp, *up, *down, *last_norm;
};
constexpr MptNames kLearned{"h", "ln_1", "c_attn", "c_proj", "ln_2", "mlp", "c_fc", "c_proj", "ln_f"};
constexpr MptNames kAlibi{"blocks", "norm_1", "Wqkv", "out_proj", "norm_2", "ffn", "up_proj", "down_proj", "norm_f"};

/// LPLayerNorm: in the autocast type.
Tensor low_precision_norm(Module& module, const Tensor& x) {
  Tape& tape = x.tape();
  const DType type = tape.autocast.type;
  Tensor input = x;
  ModuleCall call(module, tape, {&input});
  const AutocastScope off(tape, false, type);
  const Tensor own_bias = module.tensor("bias");
  const Tensor low = to(input, type), weight = to(module.tensor("weight"), type), bias = own_bias ? to(own_bias, type) : Tensor();
  return call.done(layer_norm(low, weight, bias));
}

class FoundryBlock {
 public:
  FoundryBlock(Module& module, const Block& block, const MptNames& names, const FoundryOptions& options, Tape& tape)
      : module_(module),
        names_(names),
        attention_(module.child("attn")),
        mlp_(module.child(names.mlp)),
        spec_(*block.attention),
        options_(options),
        tape_(tape) {
    run_.checkpointing = options.recomputes ? RunOptions::Checkpointing::non_reentrant : RunOptions::Checkpointing::none;
  }

  Tensor operator()(const Tensor& input) const {
    return run_layer(module_, tape_, run_, input, [this](const Tensor& x) { return forward(x); });
  }

 private:
  Tensor forward(const Tensor& input) const {
    Tensor x = input;
    const Tensor a = low_precision_norm(module_.child(names_.first_norm), x);
    const Tensor b = attend(a);
    x = add(x, b);
    const Tensor m = low_precision_norm(module_.child(names_.second_norm), x);
    const Tensor n = feed_forward(m);
    return add(x, n);
  }

  /// MultiheadAttention.forward.
  Tensor attend(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(attention_, tape_, {&x});
    const std::int64_t batch = x.size(0), length = x.size(1), width = spec_.heads * spec_.head_dim;
    const Tensor qkv = Linear(attention_.child(names_.qkv), tape_)(x);
    const std::vector<Tensor> parts = split(qkv, {width, width, width}, 2);
    const auto heads = [&](const Tensor& part) { return view(part, {batch, length, spec_.heads, spec_.head_dim}); };
    const Tensor query = heads(parts[0]), key = heads(parts[1]), value = heads(parts[2]);
    const Tensor context = options_.attention == AttentionLibrary::triton ? flash_attention(options_.attention, query, key, value)
                                                                          : packed_attention(query, key, value);
    return call.done(Linear(attention_.child(names_.output), tape_)(view(context, {batch, length, width})));
  }

  Tensor feed_forward(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(mlp_, tape_, {&x});
    const Tensor up = Linear(mlp_.child(names_.up), tape_)(x);
    const Tensor active = gelu(up);
    return call.done(Linear(mlp_.child(names_.down), tape_)(active));
  }

  Module& module_;
  const MptNames& names_;
  Module& attention_;
  Module& mlp_;
  const AttentionSpec& spec_;
  FoundryOptions options_;
  Tape& tape_;
  RunOptions run_;
};

/// flash_attn.losses.cross_entropy: the losses of all rows in fp32.
Tensor fused_cross_entropy(const Tensor& logits, const Tensor& labels) {
  PythonFunction op("SoftmaxCrossEntropyLossFn", {&logits});
  const std::int64_t rows = logits.size(0), columns = logits.size(1);
  Tensor losses = op.output({rows}, DType::fp32);
  const Tensor log_sums = op.output({rows}, DType::fp32);
  row_wise(RowWise::Function::cross_entropy, rows, columns, {&logits, &labels}, {&losses, &log_sums});
  op.save(logits);
  op.save(labels);
  op.save_output(log_sums);
  return op.done(losses, [](BackwardCall& b) {
    const Tensor& saved = b.saved(0);
    Tensor gradient = empty_like(saved);
    row_wise(RowWise::Function::cross_entropy, saved.size(0), saved.size(1), {&saved, &b.saved(1), &b.saved(2)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor rows(const Tensor& logits) { return view(logits, {-1, logits.size(-1)}); }

/// Every token's label is the next token: rolled by one, the last column ignored.
Tensor shifted(const Tensor& tokens) {
  const Tensor targets = clone(tokens);
  in_place(slice(targets, 1, targets.size(1) - 1, targets.size(1)), {});
  return view(targets, {-1});
}

/// Composer's Trainer, _eval_train_metrics: LanguageCrossEntropy and LanguagePerplexity, each with a cross entropy of its own.
void update_metrics(Tape& tape, const Tensor& logits, const Batch& batch, DType type) {
  constexpr int kMetrics = 2;
  const GradMode no_grad(tape, false);
  const AutocastScope autocast(tape, true, type);
  tape.operator_name = "metrics";
  const Tensor labels = shifted(batch.labels);
  for (int metric = 0; metric < kMetrics; ++metric) {
    const Tensor loss = cross_entropy(rows(logits), labels);
    const Tensor counted = elementwise(tape, {&labels}, DType::boolean);
    const Tensor items = sum(counted, {}, false);
    in_place(items, {&items});
    in_place(loss, {&loss});
  }
}

/// ComposerHFCausalLM.
class FoundryTransformer final : public Network {
 public:
  FoundryTransformer(const Model& model, RunOptions options, DType type, Module& root, Tape& tape) : tape_(tape), type_(type) {
    options.held = outputs_;
    network_ = make_network(model, options, root, tape);
  }

  Tensor loss(const Batch& batch) override {
    const AutocastScope autocast(tape_, true, type_);
    return network_->loss(batch);
  }

  void after_backward(const Batch& batch) override {
    if (!outputs_->empty()) update_metrics(tape_, outputs_->front(), batch, type_);
    outputs_->clear();
  }

 private:
  Tape& tape_;
  DType type_;
  std::shared_ptr<std::vector<Tensor>> outputs_ = std::make_shared<std::vector<Tensor>>();  ///< State.outputs
  std::unique_ptr<Network> network_;
};

class FoundryMpt final : public Network {
 public:
  FoundryMpt(const Model& model, const FoundryOptions& options, Module& root, Tape& tape)
      : tape_(tape), options_(options), has_alibi_(model.model_type == "mpt"), heads_(model.heads), root_(root), base_(root.child("transformer")) {
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::decoder) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i)
        blocks_.emplace_back(base_.child(names_.blocks).child(std::to_string(block.first + i)), block, names_, options_, tape);
    }
  }

  Tensor loss(const Batch& batch) override {
    const AutocastScope autocast(tape_, true, options_.type);
    outputs_ = forward(batch.input_ids);
    tape_.operator_name = "loss";
    const Tensor labels = shifted(batch.labels);
    const Tensor losses = fused_cross_entropy(rows(outputs_), labels);
    const Tensor total = sum(losses, {}, false);
    const Tensor counted = elementwise(tape_, {&labels}, DType::int64);
    const Tensor count = sum(counted, {}, false);
    return divide(total, count);
  }

  void after_backward(const Batch& batch) override {
    update_metrics(tape_, outputs_, batch, options_.type);
    outputs_.reset();
  }

 private:
  Tensor forward(const Tensor& ids) {
    Tensor input = ids;
    ModuleCall call(root_, tape_, {&input});
    Tensor hidden = Embedding(base_.child("wte"), tape_)(input), slopes;
    if (has_alibi_) {
      slopes = alibi(ids.size(1));
    } else {
      const Tensor places = view(arange(tape_, ids.size(1)), {1, ids.size(1)});
      const Tensor positions = Embedding(base_.child("wpe"), tape_)(places);
      hidden = add(hidden, positions);
    }
    for (const FoundryBlock& block : blocks_) {
      Tensor next = block(hidden);
      hidden = std::move(next);
    }
    hidden = low_precision_norm(base_.child(names_.last_norm), hidden);
    return call.done(linear(hidden, base_.child("wte").tensor("weight")));
  }

  /// What the kernels add to the scores: flash-attention takes the heads' slopes, made in each forward pass; Triton a row of every head,
  /// made once (MPTModel.attn_bias).
  Tensor alibi(std::int64_t length) {
    if (options_.attention != AttentionLibrary::triton) return alibi_slopes(tape_, heads_);
    if (!rows_of_heads_) rows_of_heads_ = tape_.empty({1, heads_, 1, length}, options_.type);
    return rows_of_heads_;
  }

  Tape& tape_;
  FoundryOptions options_;
  bool has_alibi_;
  const MptNames& names_ = has_alibi_ ? kAlibi : kLearned;
  std::int64_t heads_;
  Tensor rows_of_heads_;
  Module& root_;
  Module& base_;
  std::vector<FoundryBlock> blocks_;
  /// State.outputs. Composer drops them behind the next forward pass: beside new ones for a moment, as their gradient is soon after.
  Tensor outputs_;
};

/// attn_config.clip_qkv.
bool clips(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(),
                     [](const Block& block) { return block.attention && block.attention->clip > 0; });
}

}  // namespace

bool is_foundry_mpt(const Model& model) {
  return model.task == Model::Task::causal_lm && (model.model_type == "gpt2" || model.model_type == "mpt");
}

std::unique_ptr<Network> make_foundry_transformer(const Model& model, const RunOptions& options, DType type, Module& root, Tape& tape) {
  return std::make_unique<FoundryTransformer>(model, options, type, root, tape);
}

std::unique_ptr<Module> foundry_modules(const Model& model, Tape& tape) {
  if (!is_foundry_mpt(model) || !model.tied_embeddings) refuse("llm-foundry's MPT is modelled with a tied head", "model");
  if (clips(model)) refuse("MPT with clip_qkv is not modelled under llm-foundry", "model");
  std::unique_ptr<Module> root = build_modules(model, DType::fp32, tape);
  auto& children = root->children;
  children.erase(std::remove_if(children.begin(), children.end(), [](const auto& child) { return child->name() == "lm_head"; }),
                 children.end());
  for (Module* module : root->all_modules()) {
    if (module->name().rfind("c_", 0) != 0) continue;  // gpt2's linears are [in, out]
    for (const auto& parameter : module->parameters)
      if (parameter->sizes.rank() == 2) std::swap(parameter->sizes[0], parameter->sizes[1]);
  }
  return root;
}

std::unique_ptr<Network> make_foundry_mpt(const Model& model, const FoundryOptions& options, Module& root, Tape& tape) {
  return std::make_unique<FoundryMpt>(model, options, root, tape);
}

}  // namespace plimsoll::program
