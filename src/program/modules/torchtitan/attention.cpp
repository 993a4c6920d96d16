#include "program/modules/torchtitan/attention.hpp"

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/modules/tensor_parallel.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// VarlenAttention: the batch's sequences end to end.
Tensor attend_packed(const std::vector<Tensor>& heads) {
  const auto joined = [](const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), -1, x.size(-1)}); };
  const Tensor query = joined(heads[0]), key = joined(heads[1]), value = joined(heads[2]);
  const Tensor out = varlen_attention(query, key, value, heads[0].size(0));
  return view(out, heads[0].sizes());
}

/// The same under sinks: outputs are scaled by sigmoid(log-sum-exp - sink), a learned number per head (apply_attention_sink_rescale).
Tensor attend_with_sinks(const std::vector<Tensor>& heads, const Tensor& sinks) {
  const auto joined = [](const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), -1, x.size(-1)}); };
  const Tensor query = joined(heads[0]), key = joined(heads[1]), value = joined(heads[2]);
  const VarlenOutputs outputs = varlen_attention_with_statistics(query, key, value, heads[0].size(0));
  const Tensor out = view(outputs.output, heads[0].sizes());
  const Tensor statistics = reshape(transpose(outputs.log_sum_exp, 0, 1), {out.size(0), out.size(1), -1});
  Tensor scale;
  {
    const Tensor difference = subtract(statistics, view(sinks, {1, 1, -1}));
    scale = sigmoid(difference);
  }
  scale = unsqueeze(scale, -1);
  const Tensor low = to(scale, out.dtype());
  return multiply(out, low);
}

/// repeat_kv of [batch, length, kv heads, dim].
Tensor repeated(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Tensor wide = expand(unsqueeze(x, 3), {x.size(0), x.size(1), x.size(2), times, x.size(3)});
  return reshape(wide, {x.size(0), x.size(1), x.size(2) * times, x.size(3)});
}

/// The inner attention: query, key and value [batch, length, heads, dim] on the way in, [batch, length, heads, value's dim] on the way out.
Tensor attend(const TitanRun& run, const std::vector<Tensor>& heads) {
  heads[0].tape().host(HostWork::module);
  if (run.attention == TitanRun::Attention::varlen) return attend_packed(heads);
  const std::int64_t group = heads[0].size(2) / heads[1].size(2);
  const bool grouped = run.grouped_attention;
  const Tensor query = transpose(heads[0], 1, 2), key = transpose(grouped ? heads[1] : repeated(heads[1], group), 1, 2),
               value = transpose(grouped ? heads[2] : repeated(heads[2], group), 1, 2);
  if (run.attention == TitanRun::Attention::flex) return contiguous(transpose(flex_attention(query, key, value), 1, 2));
  if (run.attention == TitanRun::Attention::efficient) return contiguous(transpose(efficient_attention(query, key, value), 1, 2));
  if (run.context_ranks > 1) return contiguous(transpose(ring_attention(query, key, value, run.context_ranks), 1, 2));
  const Tensor out = scaled_dot_product_attention(query, key, value, {}, {.causal = true, .enable_gqa = grouped && group > 1});
  return contiguous(transpose(out, 1, 2));
}

/// The input of the projections that tensor parallelism cuts, and what their last product's partial sums become.
Tensor enter(const TensorParallel& tp, const Tensor& x) {
  if (!tp.on()) return x;
  return tp.sequence ? gather_sequence(tp, x) : replicate_input(tp, x);
}
Tensor leave(const TensorParallel& tp, const Tensor& x) {
  if (!tp.on()) return x;
  return tp.sequence ? scatter_sequence(tp, x) : reduce_partial(tp, x);
}

Rope make_rope(Module& attention, const AttentionSpec& spec, const TitanContext& context) {
  const RopeShape shape = shape_of_rope(context.run, spec);
  return context.run.shared_table ? Rope(context.root, shape, context.tape) : add_rope(attention, shape, context.tape);
}

/// GQAttention with a fused or three separate projections.
class GroupedAttention final : public TitanAttention {
 public:
  GroupedAttention(Module& parent, const AttentionSpec& spec, const TitanContext& context)
      : module_(add_titan_module(parent, "attention", context.tape)), context_(context), spec_(spec) {
    const TensorParallel& tp = context.run.tensor_parallel;
    Tape& tape = context.tape;
    if (spec.sinks) add_sinks();
    rope_ = make_rope(module_, spec, context);
    Module& qkv = add_titan_module(module_, "qkv_linear", tape);
    const std::int64_t q = spec.heads * spec.head_dim, kv = spec.kv_heads * spec.head_dim;
    if (context.run.fused_qkv) {
      qkv_ = add_titan_linear(qkv, "wqkv", spec.hidden, tp.share(q + 2 * kv), tape, spec.qkv_bias);
    } else {
      query_ = add_titan_linear(qkv, "wq", spec.hidden, tp.share(q), tape);
      key_ = add_titan_linear(qkv, "wk", spec.hidden, tp.share(kv), tape);
      value_ = add_titan_linear(qkv, "wv", spec.hidden, tp.share(kv), tape);
    }
    output_ = add_titan_linear(module_, "wo", tp.share(q), spec.hidden, tape, spec.output_bias);
    if (spec.qk_norm == AttentionSpec::QkNorm::per_head) {
      query_norm_.emplace(module_, "q_norm", spec.head_dim, context.run.fused_norm, tape);
      key_norm_.emplace(module_, "k_norm", spec.head_dim, context.run.fused_norm, tape);
    }
  }

  Tensor operator()(const Tensor& input, const Tensor& positions) const override {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    x = enter(context_.run.tensor_parallel, x);
    std::vector<Tensor> heads = project(x);
    if (query_norm_) {
      heads[0] = (*query_norm_)(heads[0]);
      heads[1] = (*key_norm_)(heads[1]);
    }
    {
      std::pair<Tensor, Tensor> turned = rope_(heads[0], heads[1], positions);
      heads[0] = std::move(turned.first);
      heads[1] = std::move(turned.second);
    }
    Tensor out = spec_.sinks ? attend_with_sinks(heads, module_.tensor("sinks")) : attend(context_.run, heads);
    out = reshape(out, {x.size(0), x.size(1), -1});
    Tensor result = spec_.output_bias ? project_out(out) : output_(out);
    return call.done(leave(context_.run.tensor_parallel, result));
  }

 private:
  void add_sinks() {
    if (context_.run.attention != TitanRun::Attention::varlen)
      refuse("TorchTitan's attention with sinks is modelled for varlen_attn, its default", "attention", "flash-varlen");
    if (context_.run.tensor_parallel.on()) refuse("tensor parallelism of TorchTitan's gpt-oss is not modelled", "tp", "1");
    add_titan_parameter(module_, "sinks", {spec_.heads});
  }
  /// ScaledBiasRowwiseLinear.forward: the bias over the tensor-parallel ranks.
  Tensor project_out(const Tensor& x) const {
    Module& output = module_.child("wo");
    const Tensor bias = divide_scalar(output.tensor("bias"));
    return linear(x, output.tensor("weight"), bias);
  }
  /// FusedQKVLinear.forward: one product, split by kv group; each part is made contiguous.
  std::vector<Tensor> project(const Tensor& x) const {
    const std::int64_t batch = x.size(0), length = x.size(1), dim = spec_.head_dim;
    if (!context_.run.fused_qkv) {
      return {view(query_(x), {batch, length, -1, dim}), view(key_(x), {batch, length, -1, dim}),
              view(value_(x), {batch, length, -1, dim})};
    }
    constexpr std::int64_t kModules = 2;  // FusedQKVLinear, and the rotary module of its release
    x.tape().host(HostWork::module, kModules);
    const std::int64_t group = spec_.heads / spec_.kv_heads;
    const Tensor product = qkv_(x);
    const std::vector<Tensor> parts = split(view(product, {batch, length, -1, group + 2, dim}), {group, 1, 1}, -2);
    std::vector<Tensor> heads;
    for (const Tensor& part : parts) {
      const Tensor shaped = reshape(part, {batch, length, -1, dim});
      heads.push_back(contiguous(shaped));
    }
    return heads;
  }

  Module& module_;
  TitanContext context_;
  const AttentionSpec& spec_;
  Rope rope_;
  Linear qkv_, query_, key_, value_, output_;
  std::optional<TitanNorm> query_norm_, key_norm_;
};

/// DeepSeek's Attention: queries and keys end in parts that rotate, keys and values come of one narrow product. Tensor parallelism cuts the
/// heads; the narrow products are whole on every rank.
class LatentAttention final : public TitanAttention {
 public:
  LatentAttention(Module& parent, const AttentionSpec& spec, const TitanContext& context)
      : module_(add_titan_module(parent, "attention", context.tape)),
        context_(context),
        mla_(*spec.mla),
        heads_(context.run.tensor_parallel.share(spec.heads)) {
    if (context.run.attention != TitanRun::Attention::flex && context.run.attention != TitanRun::Attention::efficient)
      refuse("flash kernels take equal widths of keys and values, which TorchTitan's latent attention has not", "attention",
             "flex or memory-efficient");
    if (context.run.tensor_parallel.on() && context.run.tensor_parallel.functional)
      refuse("tensor parallelism of TorchTitan's latent attention is modelled for spmd_types", "spmd_backend", "spmd_types");
    Tape& tape = context.tape;
    const std::int64_t rotating = mla_.qk_rope_head_dim, key = mla_.qk_nope_head_dim + rotating;
    if (mla_.q_lora_rank > 0) {
      query_down_ = add_titan_linear(module_, "wq_a", spec.hidden, mla_.q_lora_rank, tape);
      query_norm_.emplace(module_, "q_norm", mla_.q_lora_rank, true, tape);
    }
    query_ = mla_.q_lora_rank > 0 ? add_titan_linear(module_, "wq_b", mla_.q_lora_rank, heads_ * key, tape)
                                  : add_titan_linear(module_, "wq", spec.hidden, heads_ * key, tape);
    latent_ = add_titan_linear(module_, "wkv_a", spec.hidden, mla_.kv_lora_rank + rotating, tape);
    latent_norm_.emplace(module_, "kv_norm", mla_.kv_lora_rank, true, tape);
    key_value_ = add_titan_linear(module_, "wkv_b", mla_.kv_lora_rank, heads_ * (mla_.qk_nope_head_dim + mla_.v_head_dim), tape);
    output_ = add_titan_linear(module_, "wo", heads_ * mla_.v_head_dim, spec.hidden, tape);
    rope_ = make_rope(module_, spec, context);
  }

  /// Names are those of the real module's variables: each holds its storage until it is assigned anew or the call returns.
  Tensor operator()(const Tensor& input, const Tensor& positions) const override {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    x = enter(context_.run.tensor_parallel, x);
    const std::int64_t batch = x.size(0), length = x.size(1);
    Tensor q = project_query(x);
    q = view(q, {batch, length, heads_, -1});
    const auto [q_nope, q_rest] = parts_of(q, mla_.qk_nope_head_dim);
    Tensor q_pe = q_rest, kv, k_pe;
    if (context_.run.shared_table) {  // before 0.3 each is turned as soon as it is there
      q_pe = rope_.turn(q_pe, positions);
      q = cat({q_nope, q_pe}, -1);
    }
    {
      const Tensor product = latent_(x);
      std::tie(kv, k_pe) = parts_of(product, mla_.kv_lora_rank);
    }
    if (context_.run.shared_table) {
      k_pe = rope_.turn(unsqueeze(k_pe, 2), positions);
    } else {
      std::pair<Tensor, Tensor> turned = rope_(q_pe, unsqueeze(k_pe, 2), positions);
      q_pe = std::move(turned.first);
      k_pe = std::move(turned.second);
      q = cat({q_nope, q_pe}, -1);
    }
    kv = expand_latent(kv);
    kv = view(kv, {batch, length, heads_, -1});
    const auto [k_nope, v] = parts_of(kv, mla_.qk_nope_head_dim);
    const Tensor k = cat({k_nope, expand(k_pe, {-1, -1, heads_, -1})}, -1);
    Tensor output = attend(context_.run, {q, k, v});
    output = view(output, {batch, length, -1});
    Tensor result = output_(output);
    return call.done(leave(context_.run.tensor_parallel, result));
  }

 private:
  Tensor project_query(const Tensor& x) const {
    if (!query_norm_) return query_(x);
    const Tensor narrow = query_down_(x);
    const Tensor normed = (*query_norm_)(narrow);
    return query_(normed);
  }
  Tensor expand_latent(const Tensor& latent) const {
    const Tensor normed = (*latent_norm_)(latent);
    return key_value_(normed);
  }
  /// The first `width` of the last dimension, and the rest.
  static std::pair<Tensor, Tensor> parts_of(const Tensor& x, std::int64_t width) {
    std::vector<Tensor> parts = split(x, {width, x.size(-1) - width}, -1);
    return {std::move(parts[0]), std::move(parts[1])};
  }

  Module& module_;
  TitanContext context_;
  const MlaSpec& mla_;
  std::int64_t heads_;
  Rope rope_;
  Linear query_down_, query_, latent_, key_value_, output_;
  std::optional<TitanNorm> query_norm_, latent_norm_;
};

}  // namespace

RopeShape shape_of_rope(const TitanRun& run, const AttentionSpec& spec) {
  RopeShape shape;
  shape.complex = spec.mla || run.complex_rope;
  shape.low = run.shared_table;
  shape.positions = run.positions_given;
  shape.dim = spec.mla ? spec.mla->qk_rope_head_dim : spec.head_dim;
  shape.length = run.length;
  return shape;
}

std::unique_ptr<TitanAttention> make_titan_attention(Module& parent, const AttentionSpec& spec, const TitanContext& context) {
  if (spec.mla) return std::make_unique<LatentAttention>(parent, spec, context);
  return std::make_unique<GroupedAttention>(parent, spec, context);
}

}  // namespace plimsoll::program
