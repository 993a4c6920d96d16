// torch.nn.MultiheadAttention in training: torch/nn/modules/activation.py and multi_head_attention_forward of torch/nn/functional.py.
#include "code/torch/layer_state.hpp"
#include "program/ops/choosing.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

Value init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  const std::int64_t width = i.whole(a[1], "embed_dim"), heads = i.whole(a[2], "num_heads");
  if (width <= 0 || heads <= 0) i.raise("ValueError", "embed_dim and num_heads must be greater than 0");
  if (width % heads != 0) i.raise("AssertionError", "embed_dim must be divisible by num_heads");
  if (flag(i, a, 5) || flag(i, a, 6)) i.unknown("nn.MultiheadAttention with add_bias_kv or add_zero_attn");
  for (const std::size_t at : {std::size_t{7}, std::size_t{8}})
    if (a.has(at) && i.whole(a[at], "kdim") != width) i.unknown("nn.MultiheadAttention whose keys or values have another width");
  const bool biased = flag(i, a, 4, true);
  add_parameter(i, state, "in_proj_weight", true, {3 * width, width}, a[11]);
  for (const char* name : {"q_proj_weight", "k_proj_weight", "v_proj_weight"}) add_parameter(i, state, name, false, {}, a[11]);
  add_parameter(i, state, "in_proj_bias", biased, {3 * width}, a[11]);
  CallArguments linear{{a[1], a[1]}, {{i.symbol("bias"), Value::boolean(biased)}}};
  if (a.has(11)) linear.keywords.emplace_back(i.symbol("dtype"), a[11]);
  state.modules.emplace_back(i.symbol("out_proj"), i.call(i.library("torch.nn").attributes.at(i.symbol("Linear")), std::move(linear)));
  keep(i, a[0], "embed_dim", a[1]);
  keep(i, a[0], "num_heads", a[2]);
  keep(i, a[0], "dropout", a.has(3) ? a[3] : Value::real(0));
  keep(i, a[0], "batch_first", Value::boolean(flag(i, a, 9)));
  return Value::none();
}

/// _canonical_mask: truths become zeros and minus infinities.
Tensor canonical(const Tensor& mask, DType type) {
  if (!mask || mask.dtype() != DType::boolean) return mask;
  const Tensor made = program::zeros(mask.tape(), mask.sizes(), type);
  program::in_place(made, {&made, &mask});
  return made;
}

/// proj.unflatten(-1, (count, E)).unsqueeze(0).transpose(0, -2).squeeze(-2).contiguous(), by parts.
std::vector<Tensor> parts_of(const Tensor& projection, std::int64_t count) {
  Tensor stacked;
  {
    Dims sizes = projection.sizes();
    sizes[-1] /= count;
    const std::int64_t width = sizes[-1];
    Dims split;
    for (int at = 0; at + 1 < sizes.rank(); ++at) split.push_back(sizes[at]);
    split.push_back(count);
    split.push_back(width);
    const Tensor turned = program::transpose(program::unsqueeze(program::view(projection, split), 0), 0, split.rank() - 1);
    stacked = program::contiguous(program::squeeze(turned, turned.rank() - 2));
  }
  std::vector<Tensor> parts;
  for (std::int64_t at = 0; at < count; ++at) parts.push_back(program::select(stacked, 0));
  return parts;
}

struct Projection {
  Tensor weight, bias;
};

/// _in_projection_packed.
std::vector<Tensor> projected(const Tensor& query, const Tensor& key, const Tensor& value, const Projection& own) {
  const std::int64_t width = query.size(-1);
  if (key.impl() == value.impl() && query.impl() == key.impl()) return parts_of(program::linear(query, own.weight, own.bias), 3);
  if (key.impl() == value.impl()) {
    const std::vector<Tensor> weights = program::split(own.weight, {width, 2 * width}, 0);
    const std::vector<Tensor> biases = own.bias ? program::split(own.bias, {width, 2 * width}, 0) : std::vector<Tensor>(2);
    std::vector<Tensor> made{program::linear(query, weights[0], biases[0])};
    for (Tensor& part : parts_of(program::linear(key, weights[1], biases[1]), 2)) made.push_back(std::move(part));
    return made;
  }
  const std::vector<Tensor> weights = program::chunk(own.weight, 3, 0);
  const std::vector<Tensor> biases = own.bias ? program::chunk(own.bias, 3, 0) : std::vector<Tensor>(3);
  return {program::linear(query, weights[0], biases[0]), program::linear(key, weights[1], biases[1]),
          program::linear(value, weights[2], biases[2])};
}

struct Call {
  std::int64_t batch, heads, width, queries, keys;
  double dropout = 0;
  bool causal = false;
};

/// x [length, batch, width] as [batch · heads, length, width / heads].
Tensor by_heads(const Tensor& x, const Call& call) {
  return program::transpose(program::view(x, {x.size(0), call.batch * call.heads, call.width / call.heads}), 0, 1);
}

/// By products, whose weights are returned.
std::pair<Tensor, Tensor> weighed(std::vector<Tensor> parts, const Tensor& mask, const Call& call, bool averages) {
  Tensor scores;
  {
    const Tensor scaled = program::multiply_scalar(parts[0]);
    const Tensor keys = program::transpose(parts[1], 1, 2);
    if (mask) {
      const Tensor wide = mask.size(0) == 1 ? program::expand(mask, {scaled.size(0), mask.size(1), mask.size(2)}) : mask;
      scores = program::baddbmm(program::autocast_low(wide), program::autocast_low(scaled), program::autocast_low(keys), false);
    } else {
      scores = program::bmm(scaled, keys);
    }
  }
  Tensor weights = program::dropout(program::softmax(scores, scores.dtype()), call.dropout);
  scores.reset();
  Tensor output = program::bmm(weights, parts[2]);
  weights = program::view(weights, {call.batch, call.heads, call.queries, call.keys});
  if (averages) weights = program::mean(weights, 1, false);
  return {program::reshape(program::transpose(output, 0, 1), {call.queries * call.batch, call.width}), weights};
}

/// By scaled_dot_product_attention.
Tensor attended(std::vector<Tensor> parts, const Tensor& mask_in, const Call& call) {
  Tensor mask = mask_in;
  if (mask) mask = mask.size(0) == 1 ? program::unsqueeze(mask, 0) : program::view(mask, {call.batch, call.heads, -1, call.keys});
  const std::int64_t head = call.width / call.heads;
  for (std::size_t at = 0; at < parts.size(); ++at)
    parts[at] = program::view(parts[at], {call.batch, call.heads, at == 0 ? call.queries : call.keys, head});
  const program::AttentionArguments arguments{.causal = call.causal, .dropout = call.dropout};
  const Tensor value = program::autocast_low(parts[2]), key = program::autocast_low(parts[1]), query = program::autocast_low(parts[0]);
  parts.clear();
  const Tensor output = program::scaled_dot_product_attention(query, key, value, mask, arguments);
  return program::reshape(program::permute(output, {2, 0, 1, 3}), {call.batch * call.queries, call.width});
}

/// What multi_head_attention_forward is given, [length, batch, width] each.
struct Given {
  Tensor query, key, value;
  Projection in = {};                 ///< of all three; of separate weights its bias alone
  std::vector<Tensor> separate = {};  ///< weights of queries, keys and values; none: one behind the other in `in`
  Tensor mask = {}, padding = {};
  Call call = {};
  bool weighs = true, averages = true;
  Tensor out_weight = {}, out_bias = {};
};

std::vector<Tensor> projected(const Given& given) {
  if (given.separate.empty()) return projected(given.query, given.key, given.value, given.in);
  const std::vector<Tensor> biases = given.in.bias ? program::chunk(given.in.bias, 3, 0) : std::vector<Tensor>(3);
  return {program::linear(given.query, given.separate[0], biases[0]), program::linear(given.key, given.separate[1], biases[1]),
          program::linear(given.value, given.separate[2], biases[2])};
}

/// multi_head_attention_forward: what it answers, [length, batch, width], and the weights.
std::pair<Tensor, Tensor> attention_of(Torch& torch, Given given) {
  Call& call = given.call;
  if (call.causal && !given.mask) torch.wrong_shape("Need attn_mask if specifying the is_causal hint.");
  Tensor padding = canonical(given.padding, given.query.dtype()), mask = canonical(given.mask, given.query.dtype());
  if (call.causal && !padding && !given.weighs) mask.reset();
  if (padding) call.causal = false;
  std::vector<Tensor> parts = projected(given);
  if (mask) {
    const bool flat = mask.sizes() == Dims{call.queries, call.keys},
               each = mask.sizes() == Dims{call.batch * call.heads, call.queries, call.keys};
    if (!flat && !each) torch.wrong_shape("The shape of the attn_mask is not that of queries by keys.");
    if (flat) mask = program::unsqueeze(mask, 0);
  }
  for (Tensor& part : parts) part = by_heads(part, call);
  if (padding) {
    if (padding.sizes() != Dims{call.batch, call.keys}) torch.wrong_shape("the key_padding_mask's shape is not that of the batch by keys");
    padding = program::reshape(program::expand(program::view(padding, {call.batch, 1, 1, call.keys}), {-1, call.heads, -1, -1}),
                               {call.batch * call.heads, 1, call.keys});
    mask = mask ? program::add(mask, padding) : padding;
  }
  Tensor output, weights;
  if (given.weighs)
    std::tie(output, weights) = weighed(std::move(parts), mask, call, given.averages);
  else
    output = attended(std::move(parts), mask, call);
  output = program::linear(output, given.out_weight, given.out_bias);
  return {program::view(output, {call.queries, call.batch, call.width}), weights};
}

Value answered(Torch& torch, Tensor output, Tensor weights) {
  return torch.interpreter().tuple({torch.wrap(std::move(output)), weights ? torch.wrap(std::move(weights)) : Value::none()});
}

Value forward(Interpreter& i, Bound& a) {
  Torch& torch = torch_of(i);
  const Tensor query = torch.tensor_of(a[1], "query"), key = torch.tensor_of(a[2], "key"), value = torch.tensor_of(a[3], "value");
  torch.check_devices({&query, &key, &value});
  if (query.rank() != 3 || key.rank() != 3 || value.sizes() != key.sizes())
    i.unknown("nn.MultiheadAttention of other than three dimensions", "a batch");
  const bool batch_first = i.truth(kept(i, a[0], "batch_first"));
  Given given{.query = query, .key = key, .value = value};
  if (batch_first) {  // one transposed view where the three are one
    given.query = program::transpose(query, 1, 0);
    given.key = key.impl() == query.impl() ? given.query : program::transpose(key, 1, 0);
    given.value = value.impl() == key.impl() ? given.key : program::transpose(value, 1, 0);
  }
  const std::int64_t width = i.whole(kept(i, a[0], "embed_dim"), "embed_dim");
  if (given.query.size(2) != width || given.key.size(2) != width || given.key.size(1) != given.query.size(1))
    i.raise("AssertionError",
            "was expecting embedding dimension of " + std::to_string(width) + ", but got " + std::to_string(given.query.size(2)));
  given.call = {given.query.size(1), i.whole(kept(i, a[0], "num_heads"), "num_heads"), width, given.query.size(0), given.key.size(0)};
  if (i.truth(kept(i, a[0], "training"))) given.call.dropout = i.number(kept(i, a[0], "dropout"), "dropout");
  given.call.causal = flag(i, a, 8);
  given.weighs = flag(i, a, 5, true);
  given.averages = flag(i, a, 7, true);
  given.mask = torch.tensor_or_none(a[6], "attn_mask");
  given.padding = torch.tensor_or_none(a[4], "key_padding_mask");
  torch.check_devices({&query, &given.mask, &given.padding});
  given.in = {torch.tensor_of(kept(i, a[0], "in_proj_weight"), "in_proj_weight"),
              torch.tensor_or_none(kept(i, a[0], "in_proj_bias"), "in_proj_bias")};
  const Value layer = kept(i, a[0], "out_proj");
  given.out_weight = torch.tensor_of(kept(i, layer, "weight"), "weight");
  given.out_bias = torch.tensor_or_none(kept(i, layer, "bias"), "bias");
  auto [output, weights] = attention_of(torch, std::move(given));
  if (batch_first) output = program::transpose(output, 1, 0);
  return answered(torch, std::move(output), std::move(weights));
}

/// torch.nn.functional.multi_head_attention_forward.
Value attention_function(Interpreter& i, Bound& a) {
  Torch& torch = torch_of(i);
  const auto tensor = [&](std::size_t at) { return torch.tensor_or_none(a[at], "an argument of multi_head_attention_forward"); };
  Given given{.query = torch.tensor_of(a[0], "query"), .key = torch.tensor_of(a[1], "key"), .value = torch.tensor_of(a[2], "value")};
  torch.check_devices({&given.query, &given.key, &given.value});
  if (given.query.rank() != 3 || given.key.rank() != 3 || given.value.sizes() != given.key.sizes())
    i.unknown("multi_head_attention_forward of other than three dimensions", "a batch");
  if (a.has(7) || a.has(8) || flag(i, a, 9) || a.has(21) || a.has(22)) i.unknown("multi_head_attention_forward with keys or values beside those given");
  const std::int64_t width = i.whole(a[3], "embed_dim_to_check"), heads = i.whole(a[4], "num_heads");
  if (given.query.size(2) != width || heads < 1 || width % heads != 0)
    i.raise("AssertionError", "was expecting embedding dimension of " + std::to_string(width) + ", but got " + std::to_string(given.query.size(2)));
  given.call = {given.query.size(1), heads, width, given.query.size(0), given.key.size(0)};
  if (flag(i, a, 13, true)) given.call.dropout = i.number(a[10], "dropout_p");
  given.call.causal = flag(i, a, 24);
  given.padding = tensor(14);
  given.weighs = flag(i, a, 15, true);
  given.mask = tensor(16);
  given.averages = flag(i, a, 23, true);
  given.in = {tensor(5), tensor(6)};
  if (flag(i, a, 17))
    for (const std::size_t at : {18, 19, 20}) given.separate.push_back(torch.tensor_of(a[at], "a projection's weight"));
  else if (!given.in.weight || given.in.weight.sizes() != Dims{3 * width, width})
    torch.wrong_shape("in_proj_weight must be of three projections");
  given.out_weight = torch.tensor_of(a[11], "out_proj_weight");
  given.out_bias = tensor(12);
  auto [output, weights] = attention_of(torch, std::move(given));
  return answered(torch, std::move(output), std::move(weights));
}

}  // namespace

void define_multihead(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn");
  const Held<ClassObject> type =
      i.native_class("torch.nn.MultiheadAttention", {library.attributes.at(i.symbol("Module")).as<ClassObject>()});
  type->attributes.set(i.symbol("__init__"),
                       i.method("torch.nn.MultiheadAttention",
                                "self, embed_dim, num_heads, dropout=, bias=, add_bias_kv=, add_zero_attn=, kdim=, vdim=, "
                                "batch_first=, device=, dtype=",
                                init));
  type->attributes.set(i.symbol("forward"), i.method("torch.nn.MultiheadAttention.forward",
                                                     "self, query, key, value, key_padding_mask=, need_weights=, attn_mask=, "
                                                     "average_attn_weights=, is_causal=",
                                                     forward));
  library.attributes[i.symbol("MultiheadAttention")] = Value(type);
  i.library("torch.nn.functional").attributes[i.symbol("multi_head_attention_forward")] =
      i.native("torch.nn.functional.multi_head_attention_forward",
               "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p, "
               "out_proj_weight, out_proj_bias, training=, key_padding_mask=, need_weights=, attn_mask=, use_separate_proj_weight=, q_proj_weight=, "
               "k_proj_weight=, v_proj_weight=, static_k=, static_v=, average_attn_weights=, is_causal=",
               attention_function);
}

}  // namespace plimsoll::code
