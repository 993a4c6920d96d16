#include "model/families/encoder_decoder.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

std::string member(const std::string& module, const std::string& child) { return module + "." + child; }

// Queries from the decoder's stream, keys and values from the encoder's output.
int add_cross_attention(BlockBuilder& builder, int from, const LayerPlan& plan, const CrossPlan& cross) {
  const AttentionSpec& spec = cross.spec;
  const std::int64_t width = spec.heads * spec.head_dim;
  const auto project = [&](const std::string& name, int source) {
    Operator op =
        linear(member(cross.attention, name), {.in = spec.hidden, .out = width, .bias = spec.qkv_bias, .parallel = Parallel::column});
    op.side = source == kSideInput;
    return builder.add(std::move(op), {source});
  };
  const int q = project(plan.names.q, from), k = project(plan.names.k, kSideInput), v = project(plan.names.v, kSideInput);
  Operator products = attention(cross.attention, spec);
  products.side = true;
  const int context = builder.add(std::move(products), {q, k, v});
  return builder.linear(member(cross.attention, plan.names.output), context,
                        {.in = width, .out = spec.hidden, .bias = spec.output_bias, .parallel = Parallel::row});
}

}  // namespace

Block cross_layer(const LayerPlan& plan, const CrossPlan& cross, int encoder_output) {
  BlockBuilder builder(Block::Role::decoder, plan.stack, plan.repeat, plan.first);
  const std::int64_t width = plan.attention.hidden;
  const bool pre = plan.placement == NormPlacement::pre;
  // One branch of the residual stream: pre x + f(norm(x)), post norm(x + f(x)).
  const auto branch = [&](int stream, const std::string& norm, const std::string& module, auto add_branch) {
    const int out = add_branch(pre ? builder.norm(norm, stream, plan.norm) : stream);
    const int dropped = builder.dropout(module + ".residual_dropout", out, plan.hidden_dropout, width);
    const int sum = builder.sum(module + ".residual", stream, dropped, width);
    return pre ? sum : builder.norm(norm, sum, plan.norm);
  };
  int x =
      branch(kBlockInput, plan.names.attention_norm, plan.names.attention, [&](int from) { return add_attention(builder, from, plan); });
  x = branch(x, cross.norm, cross.attention, [&](int from) { return add_cross_attention(builder, from, plan, cross); });
  branch(x, plan.names.mlp_norm, plan.names.mlp.empty() ? "mlp" : plan.names.mlp, [&](int from) { return add_mlp(builder, from, plan); });
  Block& block = builder.block();
  block.stream = Block::Stream::second;
  block.side_inputs = {encoder_output};
  block.placement = plan.placement;
  block.norm = plan.norm;
  block.attention = plan.attention;
  block.cross_attention = cross.spec;
  block.mlp = plan.mlp;
  block.hidden_dropout = plan.hidden_dropout;
  return builder.build(plan.registration);
}

LayerPlan sequence_layer(const Model& model, const Config& config, const SequenceStack& stack, NormPlacement placement) {
  const bool decoder = stack.stream == Block::Stream::second;
  const std::int64_t heads = config.dimension(stack.side + "_attention_heads");
  config.require_divisible("d_model", model.hidden_size, stack.side + "_attention_heads", heads);
  LayerPlan plan;
  plan.stack = stack.name() + ".layers";
  plan.repeat = stack.layers;
  plan.placement = placement;
  plan.norm = layer_norm(model.hidden_size);
  plan.attention = bidirectional_attention(model, config.rate_or("attention_dropout", 0.0));
  plan.attention.heads = plan.attention.kv_heads = heads;
  plan.attention.head_dim = model.hidden_size / heads;
  plan.attention.causal = decoder;
  plan.mlp = MlpSpec{.hidden = model.hidden_size,
                     .intermediate = config.dimension(stack.side + "_ffn_dim"),
                     .gated = false,
                     .fused_gate_up = false,
                     .bias = true,
                     .activation = config.activation_or("activation_function", "gelu"),
                     .dropout = config.rate_or("activation_dropout", 0.0)};
  plan.hidden_dropout = config.rate_or("dropout", 0.1);
  plan.names.output = "out_proj";
  plan.names.attention_norm = "self_attn_layer_norm";
  plan.names.mlp = "";
  plan.names.up = "fc1";
  plan.names.activation = "activation_fn";
  plan.names.down = "fc2";
  plan.names.mlp_norm = "final_layer_norm";
  plan.registration = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj", "self_attn_layer_norm"};
  if (decoder)
    for (const char* name :
         {"encoder_attn.k_proj", "encoder_attn.v_proj", "encoder_attn.q_proj", "encoder_attn.out_proj", "encoder_attn_layer_norm"})
      plan.registration.emplace_back(name);
  plan.registration.insert(plan.registration.end(), {"fc1", "fc2", "final_layer_norm"});
  return plan;
}

Model seq2seq_model(const Config& config) {
  Model model = decoder_model(config);
  model.task = Model::Task::seq2seq;
  model.tied_embeddings = config.flag_or("tie_word_embeddings", true);
  return model;
}

void append_shared_embedding(Model& model, const std::string& name, const std::string& tied_to, Block::Stream stream, bool scaled,
                             double dropout) {
  BlockBuilder block(Block::Role::embedding, name);
  Operator table = embedding("", model.vocab_size, model.hidden_size);
  table.parameters.front().tied_to = tied_to;
  int x = block.add(std::move(table), {kBlockInput});
  if (scaled) x = block.scale("embed_scale", x, model.hidden_size);
  block.dropout("dropout", x, dropout, model.hidden_size);
  block.block().stream = stream;
  model.blocks.push_back(block.build());
}

}  // namespace plimsoll::model
