// Image classification of vit, deit and dinov2.
#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class VitLayer {
 public:
  VitLayer(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attention")),
        tape_(tape),
        options_(options),
        block_(block),
        before_(either(module, "layernorm_before", "norm1"), tape, block.norm),
        after_(either(module, "layernorm_after", "norm2"), tape, block.norm),
        q_(attention_.child("q_proj"), tape),
        k_(attention_.child("k_proj"), tape),
        v_(attention_.child("v_proj"), tape),
        output_(attention_.child("o_proj"), tape),
        up_(either(module.child("mlp"), "fc1", "up_proj"), tape),
        down_(either(module.child("mlp"), "fc2", "down_proj"), tape) {
    if (block.mlp->gated) gate_.emplace(module.child("mlp").child("gate_proj"), tape);
  }

  Tensor operator()(const Tensor& input) const {
    return run_layer(module_, tape_, options_, input, [this](const Tensor& x) {
      if (!options_.compiled_blocks) return forward(x);
      const auto make = [&](Module& twin, Tape& tape, const RunOptions& eager) -> LayerForward {
        const auto layer = std::make_shared<VitLayer>(twin, tape, eager, block_);
        return [layer](const std::vector<Tensor>& given) { return layer->forward(given[0]); };
      };
      return run_compiled_layer(module_, options_, &block_, {x}, make);
    });
  }

 private:
  Tensor forward(const Tensor& input) const {
    Tensor probabilities;  // the second of the attention's results lives until the layer returns
    Tensor residual = input;
    Tensor hidden = before_(input);
    hidden = attend_all(hidden, probabilities);
    hidden = scaled("layer_scale1", hidden);
    hidden = dropout(hidden, block_.hidden_dropout);
    hidden = add(hidden, residual);
    residual = hidden;
    hidden = after_(hidden);
    hidden = feed_forward(hidden);
    hidden = scaled("layer_scale2", hidden);
    hidden = dropout(hidden, block_.hidden_dropout);
    return add(hidden, residual);
  }

  static Module& either(Module& module, const char* name, const char* other) {
    Module* found = module.find_child(name);
    return found ? *found : module.child(other);
  }

  /// dinov2: a branch times a learned vector.
  Tensor scaled(const char* name, const Tensor& branch) const {
    Module* scale = module_.find_child(name);
    return scale ? multiply(branch, scale->tensor("lambda1")) : branch;
  }

  Tensor feed_forward(const Tensor& input) const {
    if (gate_) {
      Tensor gate = (*gate_)(input);
      gate = activate(block_.mlp->activation, gate);
      {
        const Tensor up = up_(input);
        gate = multiply(gate, up);
      }
      return down_(gate);
    }
    Tensor hidden = up_(input);
    hidden = activate(block_.mlp->activation, hidden);
    return down_(hidden);
  }

  Tensor attend_all(const Tensor& input, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    const AttentionSpec& spec = *block_.attention;
    const std::int64_t batch = hidden.size(0), length = hidden.size(1);
    const auto heads = [&](const Tensor& x) { return transpose(view(x, {batch, length, -1, spec.head_dim}), 1, 2); };
    const Tensor query = heads(q_(hidden)), key = heads(k_(hidden)), value = heads(v_(hidden));
    Tensor output = attend(query, key, value, {},
                           {.kind = options_.attention,
                            .causal = false,
                            .dropout = spec.dropout,
                            .weights = &probabilities,
                            .softmax_in_fp32 = !module_.find_child("layer_scale1")});  // dinov2: in the scores' type
    output = contiguous(reshape(output, {batch, length, -1}));
    output = output_(output);
    return call.done(output);
  }

  Module& module_;
  Module& attention_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm before_, after_;
  Linear q_, k_, v_, output_, up_, down_;
  std::optional<Linear> gate_;
};

class Vit final : public Network {
 public:
  Vit(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : tape_(tape),
        options_(options),
        model_(model),
        root_(root),
        base_(root.child(model.model_type)),
        embeddings_(base_.child("embeddings")) {
    if (model.task != Model::Task::image_classification || !root.find_child("classifier"))
      refuse("the head of " + model.architecture + " is not modelled for training");
    for (const Block& block : model.blocks) {
      if (block.role == Block::Role::final_norm) norm_.emplace(base_.child("layernorm"), tape, block.norm);
      if (block.role != Block::Role::encoder) continue;
      for (std::int64_t i = 0; i < block.repeat; ++i) {
        layers_.emplace_back(stack().child(std::to_string(block.first + i)), tape_, options_.of_layer(block.first + i), block);
      }
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor pixels = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&pixels, &labels});
    const Tensor hidden = encode(pixels);
    Tensor logits = Linear(root_.child("classifier"), tape_)(summary(hidden));
    tape_.phase(Phase::loss);
    Tensor loss = cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
    call.done({&loss, &logits});
    hold(options_, {logits});
    return loss;
  }

 private:
  /// The layers: under "layers", in dinov2 under "encoder.layer".
  Module& stack() {
    Module* encoder = base_.find_child("encoder");
    return encoder ? encoder->child("layer") : base_.child("layers");
  }

  /// What the classifier reads: the class token, in dinov2 beside the mean of the patches.
  Tensor summary(const Tensor& hidden) const {
    Tensor first = select(hidden, 1);
    if (model_.model_type != "dinov2") return first;
    const Tensor patches = mean(slice(hidden, 1, 1, hidden.size(1)), 1, false);
    return cat({first, patches}, 1);
  }

  Tensor encode(const Tensor& input) {
    Tensor pixels = input;
    ModuleCall call(base_, tape_, {&pixels});
    Tensor hidden = embed(pixels);
    const Tensor embeddings = hidden;  // embedding_output lives as long as the encoder runs
    for (const VitLayer& layer : layers_) hidden = layer(hidden);
    hidden = (*norm_)(hidden);
    return call.done(hidden);
  }

  Tensor embed(const Tensor& input) {
    Tensor pixels = input;
    ModuleCall call(embeddings_, tape_, {&pixels});
    Module& projection = embeddings_.child("patch_embeddings").child("projection");
    Tensor hidden;
    {
      const LabelScope label(tape_, projection.label);
      hidden = convolution(pixels, projection.tensor("weight"), projection.tensor("bias"), {.stride = model_.patch_size});
    }
    hidden = transpose(view(hidden, {hidden.size(0), hidden.size(1), -1}), 1, 2);
    if (options_.hidden_requires_grad && !hidden.requires_grad()) hidden.set_requires_grad(true);
    {
      std::vector<Tensor> parts;
      for (const char* name : {"cls_token", "distillation_token"}) {
        const Tensor& token = embeddings_.tensor(name);
        if (token) parts.push_back(expand(token, {hidden.size(0), -1, -1}));
      }
      parts.push_back(hidden);
      hidden = cat(parts, 1);
    }
    hidden = add(hidden, embeddings_.tensor("position_embeddings"));
    hidden = dropout(hidden, model_.embedding_dropout);
    return call.done(hidden);
  }

  Tape& tape_;
  RunOptions options_;
  const Model& model_;
  Module& root_;
  Module& base_;
  Module& embeddings_;
  std::optional<Norm> norm_;
  std::vector<VitLayer> layers_;
};

}  // namespace

std::unique_ptr<Network> make_vit(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Vit>(model, options, root, tape);
}

}  // namespace plimsoll::program
