// From a class of a text to a Model.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "code/network.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "units/real.hpp"

namespace plimsoll {

namespace code {

namespace {

/// "3", "B", "8S", "T"; none where it is no size.
std::optional<Size> parse_size(std::string_view text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  static constexpr std::pair<std::string_view, Size::Of> kNames[] = {
      {"B", Size::Of::batch}, {"√S", Size::Of::side}, {"S", Size::Of::sequence}, {"T", Size::Of::target}};
  Size size;
  for (const auto& [name, of] : kNames) {
    if (!text.ends_with(name)) continue;
    size.of = of;
    text.remove_suffix(name.size());
    break;
  }
  if (text.empty() && size.of != Size::Of::one) return size;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size.count);
  if (error != std::errc() || end != text.data() + text.size() || size.count <= 0 || size.count >= kMost) return std::nullopt;
  return size;
}

/// The number behind "=", cut off; none where there is none.
std::optional<double> cut_filling(std::string& text, const std::string& whole) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos) return std::nullopt;
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = real_from_chars(text.data() + equals + 1, last, number);
  if (error != std::errc() || end != last)
    fail("'" + text.substr(equals + 1) + "' is no number", "--input " + whole, "what all of its elements are, such as mask:int64[B,S]=1");
  text.resize(equals);
  return number;
}

}  // namespace

Input parse_input(const std::string& whole) {
  static constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"int64", DType::int64},   {"int32", DType::int32},  {"float32", DType::fp32}, {"float16", DType::fp16},
      {"bfloat16", DType::bf16}, {"bool", DType::boolean}, {"float", DType::fp32}};
  Input input;
  std::string text = whole;
  input.filled = cut_filling(text, whole);
  const std::size_t colon = text.find(':'), open = text.find('[', colon == std::string::npos ? 0 : colon);
  if (colon == std::string::npos || colon == 0 || open == std::string::npos || text.back() != ']')
    fail("'" + text + "' is no input", "--input", "NAME:TYPE[SIZES], such as idx:int64[B,S]");
  input.name = text.substr(0, colon);
  const std::string type = text.substr(colon + 1, open - colon - 1);
  const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& each) { return each.first == type; });
  if (known == std::end(kTypes)) {
    std::vector<std::string> names;
    for (const auto& each : kTypes) names.emplace_back(each.first);
    fail("there is no type '" + type + "' of inputs", "--input " + whole, suggest(type, names));
  }
  input.type = known->second;
  input.in_parameter_type = type == "float";
  std::string_view sizes = std::string_view(text).substr(open + 1, text.size() - open - 2);
  while (!sizes.empty()) {
    const std::size_t comma = std::min(sizes.find(','), sizes.size());
    const std::string_view word = sizes.substr(0, comma);
    sizes.remove_prefix(std::min(comma + 1, sizes.size()));
    const std::optional<Size> size = parse_size(word);
    if (!size)
      fail("'" + std::string(word) + "' is no size", "--input " + whole,
           "B, the micro-batch, S, the sequence length, or a number, which may stand before them (8S)");
    input.sizes.push_back(*size);
    if (input.sizes.size() > static_cast<std::size_t>(program::Dims::kMost)) fail("has too many dimensions", "--input " + whole);
  }
  return input;
}

std::vector<Input> parse_inputs(const std::vector<std::string>& texts) {
  std::vector<Input> inputs;
  for (const std::string& text : texts) inputs.push_back(parse_input(text));
  return inputs;
}

std::vector<Input> told_inputs(Interpreter& i, const Value& told) {
  std::vector<Input> inputs;
  if (!told.is_none())
    for (const Value& each : told.as<SequenceObject>()->items) inputs.push_back(parse_input(i.words(each, "inputs")));
  return inputs;
}

bool any_of_size(const std::vector<Input>& inputs, Size::Of of) {
  return std::any_of(inputs.begin(), inputs.end(), [of](const Input& input) {
    return std::any_of(input.sizes.begin(), input.sizes.end(), [of](const Size& size) { return size.of == of; });
  });
}

namespace {

OperatorKind kind_of(const std::string& type) {
  static constexpr std::pair<std::string_view, OperatorKind> kKinds[] = {{"torch.nn.Embedding", OperatorKind::embedding},
                                                                         {"torch.nn.LayerNorm", OperatorKind::layer_norm},
                                                                         {"torch.nn.RMSNorm", OperatorKind::rms_norm}};
  for (const auto& [name, kind] : kKinds)
    if (type == name) return kind;
  return OperatorKind::scale;
}

/// A module's own parameters as an operator; of no module with parameters: none.
void add_operator(Block& block, BuiltModule& built, const std::string& path, const Value& module,
                  std::unordered_map<const Object*, std::string>& known) {
  Interpreter& interpreter = built.interpreter();
  plimsoll::Operator op{};
  op.name = path;
  const ClassObject& own = *module.as<InstanceObject>()->type;
  for (const ClassObject* type : own.order)
    if (op.kind = kind_of(type->name); op.kind != OperatorKind::scale) break;
  const std::optional<program::WeightLayout> layout = built.linear_layout(own);
  if (layout) op.kind = OperatorKind::linear;
  const bool turned = layout == program::WeightLayout::in_out;
  for (const auto& [name, value] : interpreter.torch().state(module).parameters) {
    if (value.is_none()) continue;
    const program::Parameter& slot = *value.as<TensorObject>()->parameter;
    ParameterTensor tensor{};
    tensor.name = (path.empty() ? "" : path + ".") + interpreter.names().text(name);
    for (int i = 0; i < slot.sizes.rank(); ++i) tensor.shape.push_back(slot.sizes[i]);
    tensor.trainable = slot.trainable;
    if (slot.type != DType::fp32) tensor.type = slot.type;
    const auto [first, fresh] = known.emplace(value.object(), tensor.name);
    if (!fresh) tensor.tied_to = first->second;
    op.parameters.push_back(std::move(tensor));
  }
  if (op.kind == OperatorKind::linear && !op.parameters.empty() && op.parameters.front().shape.size() == 2) {
    op.out_features = op.parameters.front().shape[turned ? 1 : 0];
    op.in_features = op.parameters.front().shape[turned ? 0 : 1];
    op.flops_per_token = 2.0 * static_cast<double>(op.in_features) * static_cast<double>(op.out_features);
  }
  if (!op.parameters.empty()) block.operators.push_back(std::move(op));
}

}  // namespace

Block BuiltModule::block() {
  Block made;
  std::unordered_map<const Object*, std::string> known;
  for (const auto& [path, module] : interpreter_->torch().all_modules(module_)) add_operator(made, *this, path, module, known);
  return made;
}

}  // namespace code

std::vector<std::pair<std::string, std::string>> parse_code_arguments(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> arguments;
  std::string piece;
  int open = 0;
  char quote = '\0';
  const auto flush = [&] {
    const std::size_t equals = piece.find('=');
    if (equals == std::string::npos || equals == 0) fail("'" + piece + "' is no NAME=VALUE", "--args", "such as n_layer=12,n_embd=768");
    arguments.emplace_back(piece.substr(0, equals), piece.substr(equals + 1));
    piece.clear();
  };
  for (const char c : text) {
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++open;
    } else if (c == ')' || c == ']') {
      --open;
    } else if (c == ',' && open == 0) {
      flush();
      continue;
    }
    piece += c;
  }
  if (!piece.empty() || arguments.empty()) flush();
  return arguments;
}

Model model_of_code(const CodeModel& code) {
  std::vector<code::Input> inputs = code::parse_inputs(code.inputs);
  if (inputs.empty()) fail("what forward is given is not told", "--input", "such as --input idx:int64[B,S] --input targets:int64[B,S]");
  Model model;
  model.name = code.where + ":" + code.class_name;
  model.model_type = "code";
  model.architecture = code.class_name;
  if (code::any_of_size(inputs, code::Size::Of::target)) fail("T is the target of a model of two halves", "--input", "S, or a number");
  if (!code::any_of_size(inputs, code::Size::Of::sequence) && !code::any_of_size(inputs, code::Size::Of::side)) model.max_positions = 1;
  model.blocks.push_back(code::build_class(code)->block());
  model.assumed.push_back(
      "loop: loss = model(inputs), backward, optimizer.step(), zero_grad(); nothing of what forward returns but the loss outlives it");
  model.source = code::make_source({[code](const program::RunOptions&, DType) { return code::build_class(code); }, std::move(inputs)});
  return model;
}

}  // namespace plimsoll
