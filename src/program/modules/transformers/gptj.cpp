// GPTJForCausalLM and CodeGenForCausalLM: parallel branches behind one norm, rotation by a table that every layer holds, scores in fp32.
#include "plimsoll/error.hpp"
#include "program/modules/transformers/decoder_stack.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/modules/transformers/plain_mlp.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

class GptjBlock {
 public:
  GptjBlock(Module& module, Tape& tape, const RunOptions& options, const Block& block)
      : module_(module),
        attention_(module.child("attn")),
        tape_(tape),
        options_(options),
        block_(block),
        norm_(module.child("ln_1"), tape, block.norm),
        output_(attention_.child("out_proj"), tape),
        mlp_(module.child("mlp"), tape, block.mlp->activation, "fc_in", "fc_out") {
    for (const ModuleBuffer& table : attention_.buffers) {
      if (table.name == "embed_positions" && table.sizes[1] != block.attention->rotary_dim)
        refuse("a rotation without rotary_dim is not modelled", module.path);
    }
    if (block.attention->fused_qkv) {
      q_ = Linear(attention_.child("qkv_proj"), tape);
      return;
    }
    q_ = Linear(attention_.child("q_proj"), tape);
    k_ = Linear(attention_.child("k_proj"), tape);
    v_ = Linear(attention_.child("v_proj"), tape);
  }

  Tensor operator()(const Tensor& input, const Tensor& mask, const Tensor& positions, const std::weak_ptr<Tensor>& outputs) const {
    return run_layer_of_tuples(module_, tape_, options_, input, outputs, [this, mask, positions](const Tensor& x, Tensor& probabilities) {
      return forward(x, mask, positions, probabilities);
    });
  }

 private:
  Tensor forward(const Tensor& input, const Tensor& mask, const Tensor& positions, Tensor& probabilities) const {
    const Tensor hidden = norm_(input);
    const Tensor attended = attend_all(hidden, mask, positions, probabilities);
    Tensor fed = mlp_(hidden);
    fed = dropout(fed, block_.hidden_dropout);
    const Tensor sum = add(attended, fed);
    return add(sum, input);
  }

  Tensor attend_all(const Tensor& input, const Tensor& mask, const Tensor& positions, Tensor& probabilities) const {
    Tensor hidden = input;
    ModuleCall call(attention_, tape_, {&hidden});
    Tensor fused, query, key, value;
    project(hidden, fused, query, key, value);
    std::vector<Tensor> frame;  // what the tables were gathered with
    const Tensor table = sines_and_cosines(positions, key.dtype(), frame);
    const std::int64_t half = table.size(-1) / 2, turning = block_.attention->rotary_dim, dim = block_.attention->head_dim;
    const Tensor sine = slice(table, -1, 0, half), cosine = slice(table, -1, half, 2 * half);
    const Tensor key_rest = slice(key, 3, turning, dim), query_rest = slice(query, 3, turning, dim);
    const Tensor key_part = turn(slice(key, 3, 0, turning), sine, cosine), query_part = turn(slice(query, 3, 0, turning), sine, cosine);
    key = cat({key_part, key_rest}, -1);
    query = cat({query_part, query_rest}, -1);
    key = permute(key, {0, 2, 1, 3});
    query = permute(query, {0, 2, 1, 3});
    Tensor output = attend_in_fp32(query, key, value, mask, probabilities);
    output = contiguous(permute(output, {0, 2, 1, 3}));
    output = view(output, {output.size(0), output.size(1), -1});
    output = output_(output);
    output = dropout(output, block_.hidden_dropout);
    return call.done(output);
  }

  /// Queries and keys [batch, length, heads, head_dim], values with heads in front. CodeGen's projection is cut into four parts of q, v and
  /// k.
  void project(const Tensor& hidden, Tensor& fused, Tensor& query, Tensor& key, Tensor& value) const {
    const std::int64_t batch = hidden.size(0), length = hidden.size(1), dim = block_.attention->head_dim, heads = block_.attention->heads;
    if (block_.attention->fused_qkv) {
      constexpr std::int64_t kParts = 4;
      fused = q_(hidden);
      const std::int64_t width = dim * heads / kParts;
      const std::vector<Tensor> parts = split(view(fused, {batch, length, kParts, -1}), {width, width, width}, -1);
      const auto split_heads = [&](const Tensor& x) {
        return reshape(view(x, {batch, length, kParts, heads / kParts, dim}), {batch, length, heads, dim});
      };
      query = split_heads(parts[0]);
      key = split_heads(parts[2]);
      value = split_heads(parts[1]);
    } else {
      query = q_(hidden);
      key = k_(hidden);
      value = v_(hidden);
      for (Tensor* x : {&query, &key, &value}) *x = view(*x, {batch, length, heads, dim});
    }
    value = permute(value, {0, 2, 1, 3});
  }

  /// GPT-J copies the table and the positions before it gathers, and casts; CodeGen indexes.
  Tensor sines_and_cosines(const Tensor& positions, DType type, std::vector<Tensor>& frame) const {
    const Tensor& table = attention_.buffer("embed_positions");
    if (block_.attention->fused_qkv) return gather_rows(table, positions);
    const Tensor repeated = empty_like(table);
    copy_into(repeated, table);
    const Tensor indices = tape_.empty({1, positions.size(1), table.size(1)}, DType::int64);
    copy_into(indices, expand(unsqueeze(positions, -1), {-1, -1, table.size(1)}));
    frame = {repeated, indices};
    const Tensor gathered = gather_rows(repeated, positions);
    return to(gathered, type);
  }

  /// apply_rotary_pos_emb, whose tables have every value twice in a row.
  static Tensor turn(const Tensor& x, const Tensor& sine, const Tensor& cosine) {
    const auto twice = [](const Tensor& table) { return unsqueeze(cat({table, table}, -1), 2); };
    const Tensor sines = twice(sine), cosines = twice(cosine);
    return rotate(x, cosines, sines, true);
  }

  Tensor attend_in_fp32(const Tensor& low_query, const Tensor& low_key, const Tensor& value, const Tensor& mask,
                        Tensor& probabilities) const {
    const Tensor query = to(low_query, DType::fp32), key = to(low_key, DType::fp32);
    Tensor weights = matmul(query, transpose(key, -1, -2));
    const bool masked_first = block_.attention->fused_qkv;
    if (!masked_first) weights = divide_scalar(weights);
    if (mask) weights = add(weights, mask);
    if (masked_first) weights = divide_scalar(weights);
    weights = softmax(weights, weights.dtype());
    weights = to(weights, value.dtype());
    weights = dropout(weights, block_.attention->dropout);
    probabilities = weights;
    return matmul(weights, value);
  }

  Module& module_;
  Module& attention_;
  Tape& tape_;
  const RunOptions& options_;
  const Block& block_;
  Norm norm_;
  Linear q_, k_, v_, output_;
  PlainMlp mlp_;
};

class Gptj final : public DecoderStack<GptjBlock> {
 public:
  Gptj(const Model& model, const RunOptions& options, Module& root, Tape& tape)
      : DecoderStack(model, options, root, tape, {"transformer", "wte", "h", "ln_f"}) {
    if (options.attention != RunOptions::Attention::eager)
      fail("sdpa attention does not exist for " + model.model_type, {}, "use eager attention");
  }

 private:
  Tensor decode(const Tensor& input) override {
    Tensor ids = input;
    ModuleCall call(base_, tape_, {&ids});
    const Tensor embeddings = embed(ids);
    const Tensor positions = position_ids(tape_, ids.size(1));
    find_packed_sequences(tape_);
    const Tensor mask = causal_mask(tape_, options_, embeddings, std::nullopt);
    Tensor hidden = dropout(embeddings, embedding_dropout_);
    std::shared_ptr<Tensor> outputs;
    hidden = run_holding_tuples(hidden, outputs, [&](const GptjBlock& block, const Tensor& x, const std::weak_ptr<Tensor>& held) {
      return block(x, mask, positions, held);
    });
    hidden = (*norm_)(hidden);
    hidden = view(hidden, {-1, hidden.size(1), hidden.size(2)});
    return call.done(hidden);
  }
};

}  // namespace

std::unique_ptr<Network> make_gptj(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<Gptj>(model, options, root, tape);
}

}  // namespace plimsoll::program
