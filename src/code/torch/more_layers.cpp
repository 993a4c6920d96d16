// Classes of torch.nn whose forward is a function of torch.nn.functional on what their __init__ was given: convolutions, norms of channels,
// pools, activations, losses; and lists of parameters.
#include <cctype>
#include <utility>

#include "code/torch/layer_state.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

Value or_else(const Value& value, Value otherwise) { return value.is_bound() ? value : std::move(otherwise); }

// ---- convolutions ---------------------------------------------------------------------------------------------------------

/// A number for each dimension of the window, as a tuple.
Value tuple_of(Interpreter& i, const Value& value, int count, std::int64_t otherwise) {
  if (!value.is_bound()) return i.tuple(std::vector<Value>(static_cast<std::size_t>(count), Value::integer(otherwise)));
  if (value.is_integer()) return i.tuple(std::vector<Value>(static_cast<std::size_t>(count), value));
  if (value.as<TextObject>() != nullptr) return value;
  return i.tuple(i.all_of(value));
}

/// nn.Conv1d to 3d, and nn.ConvTranspose1d to 3d, whose arguments stand otherwise and whose weights have the channels turned.
template <int kDimensions, bool kIsTransposed = false>
Value convolution_init(Interpreter& i, Bound& a) {
  constexpr std::size_t kDilation = kIsTransposed ? 9 : 6, kMode = kIsTransposed ? 10 : 9, kType = kIsTransposed ? 12 : 11;
  ModuleState& state = start(a);
  const std::int64_t in = i.whole(a[1], "in_channels"), out = i.whole(a[2], "out_channels"),
                     groups = a.has(7) ? i.whole(a[7], "groups") : 1;
  if (groups <= 0) i.raise("ValueError", "groups must be a positive integer");
  if (in % groups != 0) i.raise("ValueError", "in_channels must be divisible by groups");
  if (out % groups != 0) i.raise("ValueError", "out_channels must be divisible by groups");
  if (a.has(kMode) && i.words(a[kMode], "modes") != "zeros")
    i.unknown("a convolution with padding_mode='" + i.words(a[kMode], "modes") + "'", "zeros");
  const Value window = tuple_of(i, a[3], kDimensions, 1);
  keep(i, a[0], "in_channels", a[1]);
  keep(i, a[0], "out_channels", a[2]);
  keep(i, a[0], "kernel_size", window);
  keep(i, a[0], "stride", tuple_of(i, a[4], kDimensions, 1));
  keep(i, a[0], "padding", tuple_of(i, a[5], kDimensions, 0));
  keep(i, a[0], "dilation", tuple_of(i, a[kDilation], kDimensions, 1));
  if (kIsTransposed) keep(i, a[0], "output_padding", tuple_of(i, a[6], kDimensions, 0));
  keep(i, a[0], "groups", Value::integer(groups));
  std::vector<std::int64_t> sizes{kIsTransposed ? in : out, (kIsTransposed ? out : in) / groups};
  for (const Value& each : i.all_of(window)) sizes.push_back(i.whole(each, "kernel_size"));
  add_parameter(i, state, "weight", true, std::move(sizes), a[kType]);
  add_parameter(i, state, "bias", flag(i, a, 8, true), {out}, a[kType]);
  return Value::none();
}

template <int kDimensions>
Value convolution(Interpreter& i, Bound& a) {
  constexpr const char* kNames[] = {"conv1d", "conv2d", "conv3d"};
  return functional(i, kNames[kDimensions - 1],
                    {a[1], kept(i, a[0], "weight"), kept(i, a[0], "bias"), kept(i, a[0], "stride"), kept(i, a[0], "padding"),
                     kept(i, a[0], "dilation"), kept(i, a[0], "groups")});
}

/// Layers without a rule for their forward: a part of a model that rests has their parameters all the same.
Value without_forward(Interpreter& i, Bound& a) { i.unknown("the forward of '" + i.type_name(a[0]) + "'"); }

/// nn.PReLU: a slope for all channels, or for each.
Value prelu_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  add_parameter(i, state, "weight", true, {a.has(1) ? i.whole(a[1], "num_parameters") : 1}, a[4]);
  return Value::none();
}

/// Parameters of nn.LSTM and nn.GRU (RNNBase.__init__): the rows of all gates behind each other.
template <int kGates>
Value recurrent_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  if (a.has(8) && i.whole(a[8], "proj_size") != 0) i.unknown("a recurrent layer with proj_size");
  const std::int64_t in = i.whole(a[1], "input_size"), hidden = i.whole(a[2], "hidden_size"),
                     layers = a.has(3) ? i.whole(a[3], "num_layers") : 1, rows = kGates * hidden, directions = flag(i, a, 7) ? 2 : 1;
  keep(i, a[0], "input_size", a[1]);
  keep(i, a[0], "hidden_size", a[2]);
  keep(i, a[0], "num_layers", Value::integer(layers));
  keep(i, a[0], "bidirectional", Value::boolean(directions == 2));
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      i.step();
      const std::string ending = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      const bool biased = flag(i, a, 4, true);
      add_parameter(i, state, ("weight_ih" + ending).c_str(), true, {rows, layer == 0 ? in : hidden * directions}, a[10]);
      add_parameter(i, state, ("weight_hh" + ending).c_str(), true, {rows, hidden}, a[10]);
      if (!biased) continue;
      add_parameter(i, state, ("bias_ih" + ending).c_str(), true, {rows}, a[10]);
      add_parameter(i, state, ("bias_hh" + ending).c_str(), true, {rows}, a[10]);
    }
  return Value::none();
}

// ---- norms ------------------------------------------------------------------------------------------------------------------

Value group_norm_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  const std::int64_t groups = i.whole(a[1], "num_groups"), channels = i.whole(a[2], "num_channels");
  if (groups < 1 || channels % groups != 0) i.raise("ValueError", "num_channels must be divisible by num_groups");
  keep(i, a[0], "num_groups", a[1]);
  keep(i, a[0], "num_channels", a[2]);
  keep(i, a[0], "eps", or_else(a[3], Value::real(1e-5)));
  const bool affine = flag(i, a, 4, true);
  add_parameter(i, state, "weight", affine, {channels}, a[6]);
  add_parameter(i, state, "bias", affine, {channels}, a[6]);
  return Value::none();
}

Value group_norm(Interpreter& i, Bound& a) {
  return functional(i, "group_norm",
                    {a[1], kept(i, a[0], "num_groups"), kept(i, a[0], "weight"), kept(i, a[0], "bias"), kept(i, a[0], "eps")});
}

Value batch_norm_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  const std::int64_t channels = i.whole(a[1], "num_features");
  keep(i, a[0], "num_features", a[1]);
  keep(i, a[0], "eps", or_else(a[2], Value::real(1e-5)));
  keep(i, a[0], "momentum", or_else(a[3], Value::real(0.1)));
  keep(i, a[0], "affine", Value::boolean(true));
  keep(i, a[0], "track_running_stats", Value::boolean(true));
  if (!flag(i, a, 4, true) || !flag(i, a, 5, true)) i.unknown("a batch norm without weights, or that does not track statistics");
  add_parameter(i, state, "weight", true, {channels}, a[7]);
  add_parameter(i, state, "bias", true, {channels}, a[7]);
  for (const char* name : {"running_mean", "running_var"})
    state.buffers.push_back({i.symbol(name), torch_of(i).wrap(host_tensor(i, {channels}, a[7], torch_of(i).default_type)), true});
  state.buffers.push_back({i.symbol("num_batches_tracked"), torch_of(i).wrap(host_tensor(i, {}, {}, DType::int64)), true});
  return Value::none();
}

/// In training it counts its batches (num_batches_tracked.add_(1)).
Value batch_norm(Interpreter& i, Bound& a) {
  const Value training = kept(i, a[0], "training");
  if (i.truth(training)) {
    const Value counted = kept(i, a[0], "num_batches_tracked");
    (void)torch_of(i).in_place(Operator::add, counted, Value::integer(1));
  }
  return functional(
      i, "batch_norm",
      {a[1], kept(i, a[0], "running_mean"), kept(i, a[0], "running_var"), kept(i, a[0], "weight"), kept(i, a[0], "bias"), training});
}

// ---- all that calls one function with what it was given --------------------------------------------------------------------------

/// A class of torch.nn: its arguments, kept by their names, are those of the function behind its inputs, in order.
struct Forwarded {
  const char *name, *signature, *function;
  int inputs = 1;
};

constexpr Forwarded kForwarded[] = {
    {"Softplus", "beta=, threshold=", "softplus"},
    {"LogSigmoid", "", "logsigmoid"},
    {"Mish", "inplace=", "mish"},
    {"LeakyReLU", "negative_slope=, inplace=", "leaky_relu"},
    {"ELU", "alpha=, inplace=", "elu"},
    {"Hardtanh", "min_val=, max_val=, inplace=", "hardtanh"},
    {"ReLU6", "inplace=", "relu6"},
    {"ReLU", "inplace=", "relu"},
    {"SiLU", "inplace=", "silu"},
    {"Hardswish", "inplace=", "hardswish"},
    {"Hardsigmoid", "inplace=", "hardsigmoid"},
    {"GLU", "dim=", "glu"},
    {"LogSoftmax", "dim=", "log_softmax"},
    {"AvgPool2d", "kernel_size, stride=, padding=, ceil_mode=, count_include_pad=", "avg_pool2d"},
    {"AvgPool1d", "kernel_size, stride=, padding=, ceil_mode=, count_include_pad=", "avg_pool1d"},
    {"AdaptiveAvgPool1d", "output_size", "adaptive_avg_pool1d"},
    {"AdaptiveAvgPool2d", "output_size", "adaptive_avg_pool2d"},
    {"Upsample", "size=, scale_factor=, mode=, align_corners=, recompute_scale_factor=", "interpolate"},
    {"PixelShuffle", "upscale_factor", "pixel_shuffle"},
    {"PixelUnshuffle", "downscale_factor", "pixel_unshuffle"},
    {"Unfold", "kernel_size, dilation=, padding=, stride=", "unfold"},
    {"NLLLoss", "weight=, ignore_index=, reduction=", "nll_loss", 2},
    {"BCEWithLogitsLoss", "weight=, reduction=, pos_weight=", "binary_cross_entropy_with_logits", 2},
    {"L1Loss", "reduction=", "l1_loss", 2},
    {"SmoothL1Loss", "reduction=, beta=", "smooth_l1_loss", 2},
    {"HuberLoss", "reduction=, delta=", "huber_loss", 2},
    {"KLDivLoss", "reduction=, log_target=", "kl_div", 2},
    {"MSELoss", "reduction=", "mse_loss", 2},
    {"CrossEntropyLoss", "weight=, ignore_index=, reduction=, label_smoothing=", "cross_entropy", 2},
};

/// Names of a signature, without marks.
std::vector<std::string> names_in(std::string_view signature) {
  std::vector<std::string> names;
  std::string name;
  for (const char c : std::string(signature) + ",") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') name += c;
    if (c == ',' && !name.empty()) names.push_back(std::exchange(name, {}));
  }
  return names;
}

void define_forwarded(Interpreter& i, const Forwarded& layer) {
  NamespaceObject& library = i.library("torch.nn");
  const std::string name = std::string("torch.nn.") + layer.name;
  const Held<ClassObject> type = i.native_class(name, {library.attributes.at(i.symbol("Module")).as<ClassObject>()});
  const std::vector<std::string> names = names_in(layer.signature);
  type->attributes.set(
      i.symbol("__init__"),
      i.method(name, *layer.signature == '\0' ? "self" : std::string("self, ") + layer.signature, [names](Interpreter& inner, Bound& a) {
        start(a);
        for (std::size_t at = 0; at < names.size(); ++at)
          keep(inner, a[0], names[at].c_str(), a[at + 1].is_bound() ? a[at + 1] : Value::none());
        return Value::none();
      }));
  const bool pair = layer.inputs == 2;
  type->attributes.set(i.symbol("forward"), i.method(name + ".forward", pair ? "self, input, target" : "self, input",
                                                     [names, function = layer.function, pair](Interpreter& inner, Bound& a) {
                                                       CallArguments arguments{{a[1]}, {}};
                                                       if (pair) arguments.positional.push_back(a[2]);
                                                       for (const std::string& each : names) {
                                                         Value value = kept(inner, a[0], each.c_str());
                                                         if (!value.is_none())
                                                           arguments.keywords.emplace_back(inner.symbol(each), std::move(value));
                                                       }
                                                       return inner.call(
                                                           inner.library("torch.nn.functional").attributes.at(inner.symbol(function)),
                                                           std::move(arguments));
                                                     }));
  library.attributes[i.symbol(layer.name)] = Value(type);
}

// ---- with more of their own --------------------------------------------------------------------------------------------------

Value max_pool_init(Interpreter& i, Bound& a) {
  start(a);
  if (flag(i, a, 5)) i.unknown("a pool that returns its indices");
  keep(i, a[0], "kernel_size", a[1]);
  keep(i, a[0], "stride", a.has(2) ? a[2] : a[1]);
  keep(i, a[0], "padding", or_else(a[3], Value::integer(0)));
  keep(i, a[0], "dilation", or_else(a[4], Value::integer(1)));
  keep(i, a[0], "ceil_mode", or_else(a[6], Value::boolean(false)));
  return Value::none();
}

Value max_pool(Interpreter& i, Bound& a) {
  return functional(i, "max_pool2d",
                    {a[1], kept(i, a[0], "kernel_size"), kept(i, a[0], "stride"), kept(i, a[0], "padding"), kept(i, a[0], "dilation"),
                     kept(i, a[0], "ceil_mode")});
}

/// nn.ConstantPad1d to 3d: as many numbers on each side of as many dimensions, or a number for all; of nn.ZeroPad1d to 3d they are 0.
template <int kDimensions>
Value pad_init(Interpreter& i, Bound& a) {
  start(a);
  keep(i, a[0], "padding", tuple_of(i, a[1], 2 * kDimensions, 0));
  keep(i, a[0], "value", a.values.size() > 2 ? a[2] : Value::real(0));
  return Value::none();
}

Value pad(Interpreter& i, Bound& a) {
  return functional(i, "pad", {a[1], kept(i, a[0], "padding"), i.text("constant"), kept(i, a[0], "value")});
}

Value flatten_init(Interpreter& i, Bound& a) {
  start(a);
  keep(i, a[0], "start_dim", or_else(a[1], Value::integer(1)));
  keep(i, a[0], "end_dim", or_else(a[2], Value::integer(-1)));
  return Value::none();
}

Value flatten(Interpreter& i, Bound& a) {
  return i.call(i.attribute(a[1], i.symbol("flatten")), std::vector<Value>{kept(i, a[0], "start_dim"), kept(i, a[0], "end_dim")});
}

Value parameters_init(Interpreter& i, Bound& a) {
  ModuleState& state = start(a);
  if (a.has(1))
    for (const Value& each : i.all_of(a[1])) {
      if (!Torch::is_tensor(each)) i.unknown("a list of parameters that holds a " + i.type_name(each));
      const bool parameter = each.as<TensorObject>()->parameter != nullptr;
      state.parameters.emplace_back(i.symbol(std::to_string(state.parameters.size())),
                                    parameter ? each : torch_of(i).make_parameter(torch_of(i).tensor(each)));
    }
  return Value::none();
}

std::vector<Value> parameters_of(Interpreter& i, const Value& self) {
  std::vector<Value> values;
  for (const auto& item : torch_of(i).state(self).parameters) values.push_back(item.second);
  return values;
}

Value parameter_at(Interpreter& i, Bound& a) { return i.item(i.list(parameters_of(i, a[0])), a[1]); }
Value parameter_count(Interpreter& i, Bound& a) { return Value::integer(static_cast<std::int64_t>(parameters_of(i, a[0]).size())); }
Value parameter_walk(Interpreter& i, Bound& a) { return Value(i.iterate(i.list(parameters_of(i, a[0])))); }

Value parameter_append(Interpreter& i, Bound& a) {
  ModuleState& state = torch_of(i).state(a[0]);
  if (!Torch::is_tensor(a[1]) || !a[1].as<TensorObject>()->parameter) i.unknown("a list of parameters that holds a " + i.type_name(a[1]));
  state.parameters.emplace_back(i.symbol(std::to_string(state.parameters.size())), a[1]);
  return a[0];
}

struct Method {
  const char *type, *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

constexpr const char* kConvolution =
    "self, in_channels, out_channels, kernel_size, stride=, padding=, dilation=, groups=, bias=, padding_mode=, device=, dtype=";
constexpr const char* kTransposed =
    "self, in_channels, out_channels, kernel_size, stride=, padding=, output_padding=, groups=, bias=, dilation=, padding_mode=, device=, "
    "dtype=";
constexpr const char* kRecurrent =
    "self, input_size, hidden_size, num_layers=, bias=, batch_first=, dropout=, bidirectional=, proj_size=, device=, dtype=";
constexpr const char* kBatchNorm = "self, num_features, eps=, momentum=, affine=, track_running_stats=, device=, dtype=";

constexpr Method kMethods[] = {
    {"Conv1d", "__init__", kConvolution, convolution_init<1>},
    {"Conv1d", "forward", "self, input", convolution<1>},
    {"Conv2d", "__init__", kConvolution, convolution_init<2>},
    {"Conv2d", "forward", "self, input", convolution<2>},
    {"Conv3d", "__init__", kConvolution, convolution_init<3>},
    {"Conv3d", "forward", "self, input", convolution<3>},
    {"ConvTranspose1d", "__init__", kTransposed, convolution_init<1, true>},
    {"ConvTranspose1d", "forward", "self, *args, **kwargs", without_forward},
    {"ConvTranspose2d", "__init__", kTransposed, convolution_init<2, true>},
    {"ConvTranspose2d", "forward", "self, *args, **kwargs", without_forward},
    {"ConvTranspose3d", "__init__", kTransposed, convolution_init<3, true>},
    {"ConvTranspose3d", "forward", "self, *args, **kwargs", without_forward},
    {"LSTM", "__init__", kRecurrent, recurrent_init<4>},
    {"LSTM", "forward", "self, *args, **kwargs", without_forward},
    {"GRU", "__init__", kRecurrent, recurrent_init<3>},
    {"GRU", "forward", "self, *args, **kwargs", without_forward},
    {"PReLU", "__init__", "self, num_parameters=, init=, device=, dtype=", prelu_init},
    {"PReLU", "forward", "self, *args, **kwargs", without_forward},
    {"GroupNorm", "__init__", "self, num_groups, num_channels, eps=, affine=, device=, dtype=", group_norm_init},
    {"GroupNorm", "forward", "self, input", group_norm},
    {"BatchNorm1d", "__init__", kBatchNorm, batch_norm_init},
    {"BatchNorm1d", "forward", "self, input", batch_norm},
    {"BatchNorm2d", "__init__", kBatchNorm, batch_norm_init},
    {"BatchNorm2d", "forward", "self, input", batch_norm},
    {"MaxPool2d", "__init__", "self, kernel_size, stride=, padding=, dilation=, return_indices=, ceil_mode=", max_pool_init},
    {"MaxPool2d", "forward", "self, input", max_pool},
    {"ZeroPad1d", "__init__", "self, padding", pad_init<1>},
    {"ZeroPad1d", "forward", "self, input", pad},
    {"ZeroPad2d", "__init__", "self, padding", pad_init<2>},
    {"ZeroPad2d", "forward", "self, input", pad},
    {"ConstantPad1d", "__init__", "self, padding, value", pad_init<1>},
    {"ConstantPad1d", "forward", "self, input", pad},
    {"ConstantPad2d", "__init__", "self, padding, value", pad_init<2>},
    {"ConstantPad2d", "forward", "self, input", pad},
    {"Flatten", "__init__", "self, start_dim=, end_dim=", flatten_init},
    {"Flatten", "forward", "self, input", flatten},
    {"ParameterList", "__init__", "self, values=", parameters_init},
    {"ParameterList", "__getitem__", "self, index", parameter_at},
    {"ParameterList", "__len__", "self", parameter_count},
    {"ParameterList", "__iter__", "self", parameter_walk},
    {"ParameterList", "append", "self, value", parameter_append},
};

}  // namespace

void define_more_layers(Interpreter& i, Torch&) {
  for (const Forwarded& layer : kForwarded) define_forwarded(i, layer);
  NamespaceObject& library = i.library("torch.nn");
  auto* module = library.attributes.at(i.symbol("Module")).as<ClassObject>();
  for (const Method& method : kMethods) {
    Value& known = library.attributes[i.symbol(method.type)];
    const std::string name = std::string("torch.nn.") + method.type;
    if (!known.is_bound()) known = Value(i.native_class(name, {module}));
    known.as<ClassObject>()->attributes.set(i.symbol(method.name), i.method(name + "." + method.name, method.signature, method.run));
  }
}

}  // namespace plimsoll::code
