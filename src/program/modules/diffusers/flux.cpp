// FluxTransformer2DModel of diffusers 0.42: double blocks of two streams, then single blocks of both as one sequence.
#include "plimsoll/error.hpp"
#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// get_1d_rotary_pos_embed of one axis of positions [tokens], in fp64: cosines and sines, every one twice, [tokens, width] in fp32.
RotaryTables axis_tables(const Tensor& positions, std::int64_t width) {
  Tape& tape = positions.tape();
  const auto map = [&](const Tensor& x) { return elementwise(tape, {&x}, x.dtype()); };
  Tensor frequencies;
  {
    Tensor exponents;
    {
      const Tensor numbers = arange(tape, width / 2, DType::fp64);
      exponents = map(numbers);
    }
    Tensor powers = tape.empty(exponents.sizes(), DType::fp64);  // theta ** exponents: theta becomes a filled tensor on the device
    {
      const Tensor base = filled(tape, {}, DType::fp64);
      in_place(powers, {&base, &exponents});
    }
    exponents.reset();
    Tensor quotients;
    {
      const Tensor reciprocals = map(powers);
      quotients = map(reciprocals);
    }
    powers.reset();
    frequencies = map(quotients);
  }
  frequencies = multiply(unsqueeze(positions, 1), frequencies);
  const auto doubled = [&](Tensor values) {
    Tensor twice = tape.empty({values.size(0), width}, DType::fp64);  // repeat_interleave: a copy of an expanded view
    in_place(twice, {&values});
    values.reset();
    return to(twice, DType::fp32);
  };
  RotaryTables tables;
  tables.cosine = doubled(cosine(frequencies));
  tables.sine = doubled(sine(frequencies));
  return tables;
}

/// FluxPosEmbed of positions [tokens, axes].
RotaryTables position_tables(const Tensor& ids, const std::vector<std::int64_t>& axes) {
  const GradMode no_grad(ids.tape(), false);
  const Tensor positions = to(ids, DType::fp32);
  std::vector<Tensor> cosines, sines;
  for (std::int64_t width : axes) {
    RotaryTables axis = axis_tables(select(positions, 1), width);
    cosines.push_back(std::move(axis.cosine));
    sines.push_back(std::move(axis.sine));
  }
  RotaryTables tables;
  tables.cosine = cat(cosines, -1);
  tables.sine = cat(sines, -1);
  return tables;
}

/// apply_rotary_emb of neighbours, x [batch, length, heads, head_dim].
Tensor apply_rotary(const Tensor& x, const RotaryTables& tables) {
  const auto along_length = [](const Tensor& table) { return unsqueeze(unsqueeze(table, 0), 2); };
  const Tensor cosine = along_length(tables.cosine), sine = along_length(tables.sine);
  Tensor rotated;
  const std::vector<Tensor> pair = unbind(reshape(x, {x.size(0), x.size(1), x.size(2), -1, 2}), -1);
  {
    const Tensor negative = negate(pair[1]);
    rotated = reshape(stack({negative, pair[0]}, -1), x.sizes());
  }
  const auto turned = [](const Tensor& part, const Tensor& table) {
    const Tensor wide = to(part, DType::fp32);
    return multiply(wide, table);
  };
  Tensor sum;
  {
    const Tensor straight = turned(x, cosine);
    const Tensor across = turned(rotated, sine);
    sum = add(straight, across);
  }
  return to(sum, x.dtype());
}

/// What a block is called with: both streams, the conditioning vector, the tables of rotary positions.
struct BlockInputs {
  explicit BlockInputs(const std::vector<Tensor>& arguments)
      : image(arguments[0]), text(arguments[1]), condition(arguments[2]), tables{arguments[3], arguments[4]} {}
  std::vector<Tensor*> all() { return {&image, &text, &condition, &tables.cosine, &tables.sine}; }
  Tensor image, text, condition;
  RotaryTables tables;
};

/// FluxAttention with FluxAttnProcessor.
class FluxAttention {
 public:
  FluxAttention(Module& module, Tape& tape, std::int64_t head_dim) : module_(&module), tape_(&tape), head_dim_(head_dim) {}

  /// Of one stream: no projection out.
  Tensor single(const Tensor& input, const RotaryTables& tables) const {
    Tensor hidden = input;
    ModuleCall call(*module_, *tape_, {&hidden});
    Heads heads = project(hidden, "to_q", "to_k", "to_v");
    norm(heads, "norm_q", "norm_k");
    return call.done(attend(heads, tables));
  }

  /// Of both: image queries stand behind the text's; answers both parts, projected.
  TokenStreams joint(const Tensor& image_in, const Tensor& text_in, const RotaryTables& tables) const {
    Tensor image = image_in, text = text_in;
    ModuleCall call(*module_, *tape_, {&image, &text});
    Heads heads = project(image, "to_q", "to_k", "to_v");
    Heads added = project(text, "add_q_proj", "add_k_proj", "add_v_proj");
    norm(heads, "norm_q", "norm_k");
    norm(added, "norm_added_q", "norm_added_k");
    heads.query = cat({added.query, heads.query}, 1);
    heads.key = cat({added.key, heads.key}, 1);
    heads.value = cat({added.value, heads.value}, 1);
    const Tensor hidden = attend(heads, tables);
    std::vector<Tensor> parts = split(hidden, {text.size(1), hidden.size(1) - text.size(1)}, 1);
    TokenStreams out;
    out.image = project_out(parts[1], module_->child("to_out").child("0"));
    out.text = project_out(parts[0], module_->child("to_add_out"));
    call.done({&out.image, &out.text});
    return out;
  }

 private:
  struct Heads {
    Tensor query, key, value;
  };

  Heads project(const Tensor& x, const char* q, const char* k, const char* v) const {
    const auto dense = [&](const char* name) { return Linear(module_->child(name), *tape_)(x); };
    Heads heads;
    heads.query = dense(q);
    heads.key = dense(k);
    heads.value = dense(v);
    for (Tensor* part : {&heads.query, &heads.key, &heads.value}) *part = split_heads(*part, head_dim_);
    return heads;
  }

  void norm(Heads& heads, const char* q, const char* k) const {
    const auto normed = [&](const Tensor& input, const char* name) {
      Tensor x = input;
      Module& module = module_->child(name);
      ModuleCall call(module, *tape_, {&x});
      return call.done(rms_norm(x, module.tensor("weight")));
    };
    heads.query = normed(heads.query, q);
    heads.key = normed(heads.key, k);
  }

  /// Rotary positions and the attention proper: [batch, length, width].
  static Tensor attend(Heads& heads, const RotaryTables& tables) {
    heads.query = apply_rotary(heads.query, tables);
    heads.key = apply_rotary(heads.key, tables);
    const Tensor hidden = dispatch_attention(heads.query, heads.key, heads.value);
    return to(reshape(hidden, {hidden.size(0), hidden.size(1), -1}), heads.query.dtype());
  }

  Tensor project_out(const Tensor& part, Module& linear) const {
    const Tensor packed = contiguous(part);
    return Linear(linear, *tape_)(packed);
  }

  Module* module_;
  Tape* tape_;
  std::int64_t head_dim_;
};

/// fp16 activations are kept within its range.
Tensor clipped(Tensor x) { return x.dtype() == DType::fp16 ? clamp(x) : x; }

class FluxDoubleBlock {
 public:
  FluxDoubleBlock(Module& module, Tape& tape, std::int64_t head_dim)
      : module_(module), tape_(tape), attention_(module.child("attn"), tape, head_dim) {
    module.type = "FluxTransformerBlock";
  }

  TokenStreams operator()(const std::vector<Tensor>& arguments) const {
    BlockInputs in(arguments);
    ModuleCall call(module_, tape_, in.all());
    Modulated image = zero_norm("norm1", in.image, in.condition);
    Modulated text = zero_norm("norm1_context", in.text, in.condition);
    const TokenStreams attended = attention_.joint(image.normed, text.normed, in.tables);
    Frame frame;  // names that live until the block returns
    TokenStreams out;
    {
      const Tensor hidden = feed(in.image, image, attended.image, "ff", frame.image);
      frame.image.branch = gated(image.vectors[5], frame.image.branch);
      out.image = add(hidden, frame.image.branch);
    }
    {
      const Tensor hidden = feed(in.text, text, attended.text, "ff_context", frame.text);
      const Tensor branch = gated(text.vectors[5], frame.text.branch);
      out.text = add(hidden, branch);
    }
    out.text = clipped(std::move(out.text));
    call.done({&out.text, &out.image});
    return out;
  }

 private:
  struct Modulated {
    Tensor normed;
    std::vector<Tensor> vectors;  ///< shift, scale and gate of the attention, then of the MLP
  };
  struct Names {
    Tensor attended, branch;
  };
  struct Frame {
    Names image, text;
  };

  /// AdaLayerNormZero.
  Modulated zero_norm(const char* name, const Tensor& input, const Tensor& condition) const {
    Module& norm = module_.child(name);
    Tensor x = input, vector = condition;
    ModuleCall call(norm, tape_, {&x, &vector});
    Modulated out;
    out.vectors = modulation(norm, tape_, vector, 6);
    out.normed = call.done(modulated(layer_norm(x, {}, {}), out.vectors[1], out.vectors[0]));
    return out;
  }

  /// Behind the attention, until the MLP's branch: the stream that the branch is added to.
  Tensor feed(const Tensor& input, Modulated& by, const Tensor& context, const char* mlp, Names& names) const {
    names.attended = gated(by.vectors[2], context);
    Tensor hidden = add(input, names.attended);
    by.normed = layer_norm(hidden, {}, {});
    by.normed = modulated(by.normed, by.vectors[4], by.vectors[3]);
    names.branch = feed_forward(module_.child(mlp), tape_, by.normed);
    return hidden;
  }

  Module& module_;
  Tape& tape_;
  FluxAttention attention_;
};

class FluxSingleBlock {
 public:
  FluxSingleBlock(Module& module, Tape& tape, std::int64_t head_dim)
      : module_(module), tape_(tape), attention_(module.child("attn"), tape, head_dim) {
    module.type = "FluxSingleTransformerBlock";
  }

  TokenStreams operator()(const std::vector<Tensor>& arguments) const {
    BlockInputs in(arguments);
    ModuleCall call(module_, tape_, in.all());
    const std::int64_t text_tokens = in.text.size(1);
    Tensor hidden = cat({in.text, in.image}, 1);
    const Tensor residual = hidden;
    Tensor gate;
    const Tensor normed = single_norm(hidden, in.condition, gate);
    Tensor inner;
    {
      const Tensor up = Linear(module_.child("proj_mlp"), tape_)(normed);
      inner = gelu(up);
    }
    const Tensor attended = attention_.single(normed, in.tables);
    hidden = cat({attended, inner}, 2);
    gate = unsqueeze(gate, 1);
    {
      const Tensor projected = Linear(module_.child("proj_out"), tape_)(hidden);
      hidden = multiply(gate, projected);
    }
    hidden = add(residual, hidden);
    hidden = clipped(std::move(hidden));
    TokenStreams out;
    out.text = slice(hidden, 1, 0, text_tokens);
    out.image = slice(hidden, 1, text_tokens, hidden.size(1));
    call.done({&out.text, &out.image});
    return out;
  }

 private:
  /// AdaLayerNormZeroSingle.
  Tensor single_norm(const Tensor& input, const Tensor& condition, Tensor& gate) const {
    Module& norm = module_.child("norm");
    Tensor x = input, vector = condition;
    ModuleCall call(norm, tape_, {&x, &vector});
    const std::vector<Tensor> vectors = modulation(norm, tape_, vector, 3);
    gate = vectors[2];
    return call.done(modulated(layer_norm(x, {}, {}), vectors[1], vectors[0]));
  }

  Module& module_;
  Tape& tape_;
  FluxAttention attention_;
};

class Flux final : public DiffusionNetwork {
 public:
  Flux(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DiffusionNetwork(model, options, root, tape),
        doubles_(stack<FluxDoubleBlock>("transformer_blocks")),
        singles_(stack<FluxSingleBlock>("single_transformer_blocks")) {
    for (const Block& block : model.blocks) {
      if (block.role != Block::Role::rotary) continue;
      for (const Operator& axis : block.operators) axes_.push_back(axis.head_dim);
    }
  }

 protected:
  Tensor predict(const Batch& batch) override {
    Tensor image = batch.input_ids, text = batch.conditions[0], pooled = batch.conditions[1], timestep = batch.conditions[2],
           guidance = batch.conditions[3], image_ids = batch.conditions[4], text_ids = batch.conditions[5];
    ModuleCall call(root_, tape_, {&image, &text, &pooled, &timestep, &guidance, &image_ids, &text_ids});
    TokenStreams streams;
    streams.image = Linear(root_.child("x_embedder"), tape_)(image);
    const Tensor time = thousandfold(timestep, streams.image.dtype());
    const Tensor guide = guidance ? thousandfold(guidance, streams.image.dtype()) : Tensor();
    const Tensor condition = combined_condition(root_.child("time_text_embed"), tape_, time, guide, pooled);
    streams.text = Linear(root_.child("context_embedder"), tape_)(text);
    const Tensor ids = cat({text_ids, image_ids}, 0);
    const RotaryTables tables = position_tables(ids, axes_);
    const auto through = [&](const auto& blocks) {
      for (const auto& block : blocks)
        streams = run_block(tape_, options_, {streams.image, streams.text, condition, tables.cosine, tables.sine},
                            [&block](const std::vector<Tensor>& arguments) { return block(arguments); });
    };
    through(doubles_);
    through(singles_);
    streams.image = continuous_norm(root_.child("norm_out"), tape_, streams.image, condition);
    return call.done(Linear(root_.child("proj_out"), tape_)(streams.image));
  }

 private:
  static Tensor thousandfold(const Tensor& x, DType type) {
    const Tensor cast = to(x, type);
    return multiply_scalar(cast);
  }

  std::vector<std::int64_t> axes_;
  std::vector<FluxDoubleBlock> doubles_;
  std::vector<FluxSingleBlock> singles_;
};

}  // namespace

std::unique_ptr<Network> make_flux(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Flux>(model, options, root, tape);
}

}  // namespace plimsoll::program
