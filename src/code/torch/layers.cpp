// Classes of torch.nn: parameters in the order in which they register them, and forward by torch.nn.functional's own functions.
#include <algorithm>

#include "code/torch/layer_state.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

Torch& of(Interpreter& i) { return i.torch(); }
bool is(Interpreter& i, const Value& value, bool otherwise) { return value.is_bound() ? i.truth(value) : otherwise; }

// ---- with parameters -------------------------------------------------------------------------------------------------

Value linear_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  const std::int64_t in = i.whole(a[1], "in_features"), out = i.whole(a[2], "out_features");
  keep(i, a[0], "in_features", a[1]);
  keep(i, a[0], "out_features", a[2]);
  add_parameter(i, state, "weight", true, {out, in}, a[5]);
  add_parameter(i, state, "bias", is(i, a[3], true), {out}, a[5]);
  return Value::none();
}

Value linear(Interpreter& i, Bound& a) { return functional(i, "linear", {a[1], kept(i, a[0], "weight"), kept(i, a[0], "bias")}); }

Value embedding_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  if (a.has(4) || is(i, a[6], false) || is(i, a[7], false)) i.unknown("nn.Embedding with max_norm, scale_grad_by_freq or sparse");
  keep(i, a[0], "num_embeddings", a[1]);
  keep(i, a[0], "embedding_dim", a[2]);
  keep(i, a[0], "padding_idx", a[3].is_bound() ? a[3] : Value::none());
  add_parameter(i, state, "weight", true, {i.whole(a[1], "num_embeddings"), i.whole(a[2], "embedding_dim")}, a[9]);
  if (a.has(10) && i.truth(a[10])) kept(i, a[0], "weight").as<TensorObject>()->parameter->trainable = false;
  return Value::none();
}

Value embedding(Interpreter& i, Bound& a) { return functional(i, "embedding", {a[1], kept(i, a[0], "weight")}); }

template <bool kBias>
Value norm_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  const Dims shape = of(i).sizes_of(a[1], "normalized_shape");
  if (shape.rank() != 1) i.unknown("a norm over several dimensions");
  keep(i, a[0], "normalized_shape", of(i).size_value(shape));
  keep(i, a[0], "eps", a.has(2) ? a[2] : Value::real(1e-5));
  const bool affine = is(i, a[3], true);
  const Value& type = a[kBias ? 6 : 5];
  add_parameter(i, state, "weight", affine, {shape[0]}, type);
  if (kBias) add_parameter(i, state, "bias", affine && is(i, a[4], true), {shape[0]}, type);
  return Value::none();
}

Value layer_norm(Interpreter& i, Bound& a) {
  return functional(i, "layer_norm",
                    {a[1], kept(i, a[0], "normalized_shape"), kept(i, a[0], "weight"), kept(i, a[0], "bias"), kept(i, a[0], "eps")});
}

Value rms_norm(Interpreter& i, Bound& a) {
  return functional(i, "rms_norm", {a[1], kept(i, a[0], "normalized_shape"), kept(i, a[0], "weight"), kept(i, a[0], "eps")});
}

// ---- without parameters ------------------------------------------------------------------------------------------------

Value dropout_init(Interpreter& i, Bound& a) {
  start(a);
  keep(i, a[0], "inplace", Value::boolean(is(i, a[2], false)));
  keep(i, a[0], "p", a[1].is_bound() ? a[1] : Value::real(0.5));
  return Value::none();
}

Value dropout(Interpreter& i, Bound& a) {
  return functional(i, "dropout", {a[1], kept(i, a[0], "p"), kept(i, a[0], "training"), kept(i, a[0], "inplace")});
}

Value plain_init(Interpreter&, Bound& a) {
  start(a);
  return Value::none();
}

/// Code that gives all activations `inplace` waits for the TypeError of those that have none.
Value gelu_init(Interpreter& i, Bound& a) {
  if (!a.keyword_rest.empty())
    i.raise("TypeError", "GELU.__init__() got an unexpected keyword argument '" + i.names().text(a.keyword_rest.front().first) + "'");
  return plain_init(i, a);
}

Value gelu(Interpreter& i, Bound& a) { return functional(i, "gelu", {a[1]}); }
Value tanh(Interpreter& i, Bound& a) { return functional(i, "tanh", {a[1]}); }
Value sigmoid(Interpreter& i, Bound& a) { return functional(i, "sigmoid", {a[1]}); }

Value softmax_init(Interpreter& i, Bound& a) {
  start(a);
  keep(i, a[0], "dim", a[1]);
  return Value::none();
}

Value softmax(Interpreter& i, Bound& a) { return i.call(i.attribute(a[1], i.symbol("softmax")), std::vector<Value>{kept(i, a[0], "dim")}); }

Value identity(Interpreter&, Bound& a) { return a[1]; }

// ---- containers ------------------------------------------------------------------------------------------------------------

void append(Interpreter& i, const Value& self, const Value& module) {
  ModuleState& state = of(i).state(self);
  (void)of(i).state(module);
  state.modules.emplace_back(i.symbol(std::to_string(state.modules.size())), module);
}

Value list_init(Interpreter& i, Bound& a) {
  start(a);
  if (a.has(1))
    for (const Value& each : i.all_of(a[1])) append(i, a[0], each);
  return Value::none();
}

Value sequential_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  if (a.rest.size() == 1)
    if (const auto* named = a.rest.front().as<DictionaryObject>()) {
      for (const auto& entry : named->entries())
        if (entry.key.is_bound()) state.modules.emplace_back(i.symbol(i.words(entry.key, "module names")), entry.value);
      return Value::none();
    }
  for (const Value& each : a.rest) append(i, a[0], each);
  return Value::none();
}

/// Sequential.forward: the name `input` is bound anew by each module's result.
Value sequential(Interpreter& i, Bound& a) {
  Value value = a[1];
  for (const auto& [name, module] : of(i).state(a[0]).modules) value = i.call(module, std::vector<Value>{value});
  return value;
}

std::vector<Value> modules_of(Interpreter& i, const Value& self) {
  std::vector<Value> modules;
  for (const auto& item : of(i).state(self).modules) modules.push_back(item.second);
  return modules;
}

Value list_item(Interpreter& i, Bound& a) {
  const Value modules = i.list(modules_of(i, a[0]));
  Value found = i.item(modules, a[1]);
  if (found.as<SequenceObject>() == nullptr) return found;
  return i.call(Value(static_cast<Object*>(i.class_of(a[0]))), std::vector<Value>{std::move(found)});
}

Value list_append(Interpreter& i, Bound& a) {
  append(i, a[0], a[1]);
  return a[0];
}

Value list_extend(Interpreter& i, Bound& a) {
  for (const Value& each : i.all_of(a[1])) append(i, a[0], each);
  return a[0];
}

Value container_length(Interpreter& i, Bound& a) { return Value::integer(static_cast<std::int64_t>(of(i).state(a[0]).modules.size())); }
Value container_walk(Interpreter& i, Bound& a) { return Value(i.iterate(i.list(modules_of(i, a[0])))); }

Value dictionary_set(Interpreter& i, Bound& a) {
  (void)of(i).state(a[2]);
  i.set_attribute(a[0], i.symbol(i.words(a[1], "module names")), a[2]);
  return Value::none();
}

Value dictionary_update(Interpreter& i, Bound& a) {
  const auto* given = a[1].as<DictionaryObject>();
  if (given == nullptr) i.unknown("nn.ModuleDict of a " + i.type_name(a[1]), "a dict");
  for (const auto& entry : given->entries())
    if (entry.key.is_bound()) {
      (void)of(i).state(entry.value);
      i.set_attribute(a[0], i.symbol(i.words(entry.key, "module names")), entry.value);
    }
  return Value::none();
}

Value dictionary_init(Interpreter& i, Bound& a) {
  start(a);
  return a.has(1) ? dictionary_update(i, a) : Value::none();
}

Value dictionary_item(Interpreter& i, Bound& a) {
  for (const auto& [name, module] : of(i).state(a[0]).modules)
    if (i.names().text(name) == i.words(a[1], "module names")) return module;
  i.raise("KeyError", i.written(a[1]));
}

Value dictionary_contains(Interpreter& i, Bound& a) {
  for (const auto& item : of(i).state(a[0]).modules)
    if (i.names().text(item.first) == i.words(a[1], "module names")) return Value::boolean(true);
  return Value::boolean(false);
}

std::vector<Value> names_of(Interpreter& i, const Value& self) {
  std::vector<Value> names;
  for (const auto& item : of(i).state(self).modules) names.push_back(i.text(i.names().text(item.first)));
  return names;
}

Value dictionary_keys(Interpreter& i, Bound& a) { return i.list(names_of(i, a[0])); }
Value dictionary_values(Interpreter& i, Bound& a) { return i.list(modules_of(i, a[0])); }

Value dictionary_items(Interpreter& i, Bound& a) {
  std::vector<Value> items;
  for (const auto& [name, module] : of(i).state(a[0]).modules) items.push_back(i.tuple({i.text(i.names().text(name)), module}));
  return i.list(std::move(items));
}

Value dictionary_walk(Interpreter& i, Bound& a) { return Value(i.iterate(i.list(names_of(i, a[0])))); }

struct Layer {
  const char *name, *signature;
  Value (*init)(Interpreter&, Bound&);
  const char* forward_signature;
  Value (*forward)(Interpreter&, Bound&);
};

constexpr Layer kLayers[] = {
    {"Linear", "self, in_features, out_features, bias=, device=, dtype=", linear_init, "self, input", linear},
    {"Embedding", "self, num_embeddings, embedding_dim, padding_idx=, max_norm=, norm_type=, scale_grad_by_freq=, sparse=, device=, dtype=, _freeze=",
     embedding_init, "self, input", embedding},
    {"LayerNorm", "self, normalized_shape, eps=, elementwise_affine=, bias=, device=, dtype=", norm_init<true>, "self, input", layer_norm},
    {"RMSNorm", "self, normalized_shape, eps=, elementwise_affine=, device=, dtype=", norm_init<false>, "self, input", rms_norm},
    {"Dropout", "self, p=, inplace=", dropout_init, "self, input", dropout},
    {"GELU", "self, approximate=, **kwargs", gelu_init, "self, input", gelu},
    {"Tanh", "self", plain_init, "self, input", tanh},
    {"Sigmoid", "self", plain_init, "self, input", sigmoid},
    {"Softmax", "self, dim", softmax_init, "self, input", softmax},
    {"Identity", "self, *args, **kwargs", plain_init, "self, input", identity},
    {"Sequential", "self, *args", sequential_init, "self, input", sequential},
    {"ModuleList", "self, modules=", list_init, nullptr, nullptr},
    {"ModuleDict", "self, modules=", dictionary_init, nullptr, nullptr},
};

struct Extra {
  const char *type, *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

constexpr Extra kExtras[] = {
    {"Sequential", "__len__", "self", container_length},
    {"Sequential", "__iter__", "self", container_walk},
    {"Sequential", "__getitem__", "self, index", list_item},
    {"Sequential", "append", "self, module", list_append},
    {"ModuleList", "__len__", "self", container_length},
    {"ModuleList", "__iter__", "self", container_walk},
    {"ModuleList", "__getitem__", "self, index", list_item},
    {"ModuleList", "append", "self, module", list_append},
    {"ModuleList", "extend", "self, modules", list_extend},
    {"ModuleDict", "__len__", "self", container_length},
    {"ModuleDict", "__iter__", "self", dictionary_walk},
    {"ModuleDict", "__getitem__", "self, key", dictionary_item},
    {"ModuleDict", "__setitem__", "self, key, module", dictionary_set},
    {"ModuleDict", "__contains__", "self, key", dictionary_contains},
    {"ModuleDict", "keys", "self", dictionary_keys},
    {"ModuleDict", "values", "self", dictionary_values},
    {"ModuleDict", "items", "self", dictionary_items},
    {"ModuleDict", "update", "self, modules", dictionary_update},
};

}  // namespace

void define_layers(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn");
  auto* module = library.attributes.at(i.symbol("Module")).as<ClassObject>();
  for (const Layer& layer : kLayers) {
    const std::string name = std::string("torch.nn.") + layer.name;
    const Held<ClassObject> type = i.native_class(name, {module});
    type->attributes.set(i.symbol("__init__"), i.method(name, layer.signature, layer.init));
    if (layer.forward != nullptr)
      type->attributes.set(i.symbol("forward"), i.method(name + ".forward", layer.forward_signature, layer.forward));
    for (const Extra& extra : kExtras)
      if (std::string_view(extra.type) == layer.name)
        type->attributes.set(i.symbol(extra.name), i.method(name + "." + extra.name, extra.signature, extra.run));
    library.attributes[i.symbol(layer.name)] = Value(type);
  }
}

}  // namespace plimsoll::code
