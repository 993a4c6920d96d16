// torch.nn.functional.
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "program/ops/functions.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

Torch& of(Interpreter& i) { return i.torch(); }
Tensor input(Interpreter& i, Bound& a) { return of(i).tensor_of(a[0], "input"); }
bool is(Interpreter& i, const Value& value) { return value.is_bound() && i.truth(value); }

Value linear(Interpreter& i, Bound& a) {
  const Tensor x = input(i, a), weight = of(i).tensor_of(a[1], "weight"), bias = of(i).tensor_or_none(a[2], "bias");
  of(i).check_devices({&x, &weight, &bias});
  if (weight.rank() != 2 || x.rank() < 2 || x.size(-1) != weight.size(1))
    of(i).wrong_shape("mat1 and mat2 shapes cannot be multiplied (" + std::to_string(x.elements() / std::max<std::int64_t>(x.size(-1), 1)) +
                      "x" + std::to_string(x.size(-1)) + " and " + std::to_string(weight.size(-1)) + "x" + std::to_string(weight.size(0)) +
                      ")");
  return of(i).wrap(program::linear(x, weight, bias));
}

Value embedding(Interpreter& i, Bound& a) {
  const Tensor indices = input(i, a), weight = of(i).tensor_of(a[1], "weight");
  of(i).check_devices({&indices, &weight});
  if (indices.dtype() != DType::int64 && indices.dtype() != DType::int32)
    of(i).wrong_shape(
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got another (while checking "
        "arguments for embedding)");
  of(i).check_rank(indices.rank() + 1);
  if (a.has(3) || is(i, a[5]) || is(i, a[6])) i.unknown("an embedding with max_norm, scale_grad_by_freq or sparse");
  return of(i).wrap(program::embedding(weight, indices));
}

void check_normalized(Interpreter& i, const Tensor& x, const Value& shape) {
  const Dims sizes = of(i).sizes_of(shape, "normalized_shape");
  if (sizes.rank() != 1) i.unknown("a norm over several dimensions");
  if (x.rank() < 1 || x.size(-1) != sizes[0])
    of(i).wrong_shape("Given normalized_shape=[" + std::to_string(sizes[0]) + "], expected input with shape [*, " +
                      std::to_string(sizes[0]) + "]");
}

Value layer_norm(Interpreter& i, Bound& a) {
  const Tensor x = input(i, a), weight = of(i).tensor_or_none(a[2], "weight"), bias = of(i).tensor_or_none(a[3], "bias");
  of(i).check_devices({&x, &weight, &bias});
  check_normalized(i, x, a[1]);
  return of(i).wrap(program::layer_norm(x, weight, bias));
}

Value rms_norm(Interpreter& i, Bound& a) {
  const Tensor x = input(i, a), weight = of(i).tensor_or_none(a[2], "weight");
  of(i).check_devices({&x, &weight});
  check_normalized(i, x, a[1]);
  return of(i).wrap(program::rms_norm(x, weight));
}

template <Tensor (*kFunction)(const Tensor&)>
Value activation(Interpreter& i, Bound& a) {
  return of(i).wrap(kFunction(input(i, a)));
}

Value dropout(Interpreter& i, Bound& a) {
  const Tensor x = input(i, a);
  const double rate = a.has(1) ? i.number(a[1], "dropout's p") : 0.5;
  const bool trains = !a[2].is_bound() || i.truth(a[2]);
  if (rate < 0 || rate > 1) i.raise("ValueError", "dropout probability has to be between 0 and 1, but got " + i.written(a[1]));
  if (rate == 0 || !trains) return a[0];
  if (!is(i, a[3])) return of(i).wrap(program::dropout(x, rate));
  if (rate == 1) i.unknown("dropout of everything in place");
  of(i).check_changeable(x);
  return of(i).replace(a[0], program::dropout_in_place(x));
}

/// dropout1d to 3d: whole channels. feature_dropout (Dropout.cpp): a mask of [batch, channels, 1, …] is drawn and scaled, and multiplied.
Value dropout_of_channels(Interpreter& i, Bound& a) {
  const Tensor x = input(i, a);
  const double rate = a.has(1) ? i.number(a[1], "dropout's p") : 0.5;
  const bool trains = !a[2].is_bound() || i.truth(a[2]);
  if (rate < 0 || rate > 1) i.raise("ValueError", "dropout probability has to be between 0 and 1, but got " + i.written(a[1]));
  if (rate == 0 || !trains) return a[0];
  if (x.rank() < 2) of(i).wrong_shape("Feature dropout requires at least 2 dimensions in the input");
  if (rate == 1 || is(i, a[3])) i.unknown("dropout of whole channels in place, or of all of them");
  Dims sizes = x.sizes();
  for (int at = 2; at < sizes.rank(); ++at) sizes[at] = 1;
  const Tensor kept = x.tape().empty(sizes, x.dtype());
  program::in_place(kept, {});
  program::in_place(kept, {&kept});
  return of(i).wrap(program::multiply(x, kept));
}

/// Of [..., heads, length, dim] with all dimensions in front of the heads alike, and one key for all heads where it has one.
bool attention_fits(const Tensor& query, const Tensor& key, const Tensor& value, bool grouped) {
  for (int at = 0; at < query.rank() - 3; ++at)
    if (query.size(at) != key.size(at)) return false;
  for (int at = 0; at < query.rank() - 1; ++at)
    if (key.size(at) != value.size(at)) return false;
  if (query.size(-1) != key.size(-1)) return false;
  if (query.size(-3) == key.size(-3)) return true;
  return grouped ? key.size(-3) > 0 && query.size(-3) % key.size(-3) == 0 : key.size(-3) == 1;
}

Value attention(Interpreter& i, Bound& a) {
  const Tensor query = input(i, a), key = of(i).tensor_of(a[1], "key"), value = of(i).tensor_of(a[2], "value");
  const Tensor mask = of(i).tensor_or_none(a[3], "attn_mask");
  of(i).check_devices({&query, &key, &value, &mask});
  const int rank = query.rank();
  const bool grouped = is(i, a[7]);
  if (rank < 3 || key.rank() != rank || value.rank() != rank || (grouped && rank != 4))
    i.unknown("scaled_dot_product_attention of " + std::to_string(rank) + ", " + std::to_string(key.rank()) + " and " +
              std::to_string(value.rank()) + " dimensions" + (grouped ? " and groups of heads" : ""));
  if (!attention_fits(query, key, value, grouped))
    of(i).wrong_shape("scaled_dot_product_attention: the shapes of query, key and value do not fit");
  program::AttentionArguments arguments;
  arguments.dropout = a.has(4) ? i.number(a[4], "dropout_p") : 0;
  arguments.causal = is(i, a[5]);
  arguments.enable_gqa = grouped;
  if (arguments.causal && mask)
    of(i).wrong_shape("_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
  // autocast's wrapper casts its arguments in the compiler's order, the last one first.
  const Tensor low_value = program::autocast_low(value), low_key = program::autocast_low(key), low_query = program::autocast_low(query);
  return of(i).wrap(program::scaled_dot_product_attention(low_query, low_key, low_value, mask, arguments));
}

constexpr LibraryRow kRows[] = {
    {"linear", "input, weight, bias=", linear},
    {"embedding", "input, weight, padding_idx=, max_norm=, norm_type=, scale_grad_by_freq=, sparse=", embedding},
    {"layer_norm", "input, normalized_shape, weight=, bias=, eps=", layer_norm},
    {"rms_norm", "input, normalized_shape, weight=, eps=", rms_norm},
    {"gelu", "input, approximate=", activation<program::gelu>},
    {"tanh", "input", activation<program::tanh>},
    {"sigmoid", "input", activation<program::sigmoid>},
    {"dropout", "input, p=, training=, inplace=", dropout},
    {"dropout1d", "input, p=, training=, inplace=", dropout_of_channels},
    {"dropout2d", "input, p=, training=, inplace=", dropout_of_channels},
    {"dropout3d", "input, p=, training=, inplace=", dropout_of_channels},
    {"scaled_dot_product_attention", "query, key, value, attn_mask=, dropout_p=, is_causal=, scale=, enable_gqa=", attention},
};

}  // namespace

void define_functional(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn.functional");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("torch.nn.functional.") + row.name, row.signature, row.run);
}

}  // namespace plimsoll::code
