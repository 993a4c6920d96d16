#include "model/graph_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "model/config.hpp"
#include "model/operators/convolution.hpp"
#include "model/operators/operators.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kLargestMap = 1 << 20;  // height, width, kernel

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::int64_t dimension(const JsonValue& object, std::string_view key, std::int64_t most = kLargestDimension) {
  return object[key].integer(1, most);
}

std::int64_t dimension_or(const JsonValue& object, std::string_view key, std::int64_t fallback, std::int64_t least = 1,
                          std::int64_t most = kLargestMap) {
  const auto value = object.find(key);
  return value ? value->integer(least, most) : fallback;
}

bool flag_or(const JsonValue& object, std::string_view key, bool fallback) {
  const auto value = object.find(key);
  return value ? value->boolean() : fallback;
}

// An operator as the file states it, with the shapes that reach it.
struct Stated {
  JsonValue json;
  std::string name;
  std::vector<Shape> inputs;

  [[noreturn]] void mismatch(const std::string& expected) const {
    std::vector<std::string> got;
    for (const Shape& shape : inputs) got.push_back(text_of(shape));
    fail(fmt::format("'{}' expects {}, and is given {}", name, expected, fmt::join(got, " and ")), json.where());
  }
  const Shape& only() const {
    if (inputs.size() != 1) mismatch("one input");
    return inputs.front();
  }
  std::int64_t width() const {
    if (only().size() != 1) mismatch("vectors");
    return only().front();
  }
  FeatureMap map() const {
    if (only().size() != 3) mismatch("a feature map [channels, height, width]");
    return {only()[0], only()[1], only()[2]};
  }
  void require_alike() const {
    if (inputs.size() < 2) mismatch("two inputs or more");
    for (const Shape& shape : inputs)
      if (shape != inputs.front()) mismatch("inputs of one shape");
  }
  Window window(std::int64_t default_stride) const {
    const std::int64_t kernel = dimension(json, "kernel", kLargestMap);
    return {kernel, dimension_or(json, "stride", default_stride ? default_stride : kernel), dimension_or(json, "padding", 0, 0)};
  }
};

// ---- one function per kind of operator ---------------------------------------------------------------------------------

Operator shaped(OperatorKind kind, const Stated& op, const Shape& output) {
  Operator result{};
  result.kind = kind;
  result.name = op.name;
  result.output_per_token = output;
  result.out_features = output.empty() ? 0 : output.front();
  result.in_features = op.inputs.front().empty() ? 0 : op.inputs.front().front();
  return result;
}

Operator read_embedding(const Stated& op) {
  if (!op.only().empty()) op.mismatch("token ids");
  return embedding(op.name, dimension(op.json, "rows"), dimension(op.json, "width"));
}

Operator read_position_embedding(const Stated& op) { return position_embedding(op.name, dimension(op.json, "rows"), op.width()); }

Operator read_linear(const Stated& op) {
  return linear(op.name, {.in = op.width(), .out = dimension(op.json, "out"), .bias = flag_or(op.json, "bias", true)});
}

Operator read_norm(const Stated& op, NormSpec::Kind kind) {
  NormSpec spec;
  spec.kind = kind;
  spec.bias = flag_or(op.json, "bias", kind == NormSpec::Kind::layer_norm);
  spec.width = op.width();
  return norm(op.name, spec);
}

Operator read_attention(const Stated& op) {
  AttentionSpec spec;
  spec.heads = dimension(op.json, "heads");
  spec.kv_heads = dimension_or(op.json, "kv_heads", spec.heads, 1, kLargestDimension);
  spec.causal = flag_or(op.json, "causal", true);
  if (const auto window = op.json.find("window")) spec.sliding_window = window->integer(1, kLargestDimension);
  if (spec.heads % spec.kv_heads != 0)
    fail(fmt::format("'{}': {} heads cannot share {} evenly", op.name, spec.heads, spec.kv_heads), op.json.where());
  if (op.inputs.size() != 3 || op.inputs[0].size() != 1 || op.inputs[1].size() != 1 || op.inputs[1] != op.inputs[2])
    op.mismatch("vectors of queries, keys and values, the last two of one width");
  spec.head_dim = op.inputs[0].front() / spec.heads;
  if (spec.head_dim * spec.heads != op.inputs[0].front() || spec.head_dim * spec.kv_heads != op.inputs[1].front())
    op.mismatch(fmt::format("queries of {} heads and keys of {} heads of one size", spec.heads, spec.kv_heads));
  return attention(op.name, spec);
}

Operator read_convolution(const Stated& op) {
  return convolution(op.name, {op.map(), dimension(op.json, "channels"), op.window(1),
                               dimension_or(op.json, "groups", 1, 1, kLargestDimension), flag_or(op.json, "bias", true)});
}

Operator read_pool(const Stated& op) {
  const auto stated = op.json.find("function");
  const std::string function = stated ? stated->text() : "max";
  if (function == "global") return global_pool(op.name, op.map());
  if (function != "max" && function != "average")
    fail(fmt::format("'{}': unknown pooling \"{}\"", op.name, function), op.json.where(), suggest(function, {"max", "average", "global"}));
  return pool(op.name, op.map(), op.window(0), function);
}

Operator read_activation(const Stated& op) {
  Operator result = shaped(OperatorKind::activation, op, op.only());
  result.function = op.json["function"].text();
  if (!flag_or(op.json, "in_place", false)) return result;
  if (result.function != "relu") fail(fmt::format("'{}': only relu works in place", op.name), op.json.where());
  result.function = "relu_";
  return result;
}

Operator read_reshape(const Stated& op) {
  Shape output;
  for (const auto& size : op.json["shape"].elements()) output.push_back(size.integer(1, kLargestDimension));
  if (product(op.only()) != product(output)) op.mismatch(fmt::format("as many elements as {}", text_of(output)));
  return shaped(OperatorKind::reshape, op, output);
}

Operator read_same_shape(OperatorKind kind, const Stated& op) { return shaped(kind, op, op.only()); }

Operator read_joined(OperatorKind kind, const Stated& op) {
  op.require_alike();
  return shaped(kind, op, op.inputs.front());
}

Operator read_sum(const Stated& op) {
  Operator result = read_joined(OperatorKind::add, op);
  if (flag_or(op.json, "in_place", false)) result.function = "in_place";
  return result;
}

// A dropout of rate 0 answers what it is given.
Operator read_dropout(const Stated& op) {
  const double rate = op.json["rate"].number(0, 1);
  Operator result = read_same_shape(OperatorKind::dropout, op);
  if (rate == 0) result.function = "none";
  return result;
}

struct Kind {
  const char* name;
  Operator (*read)(const Stated&);
};

const Kind kKinds[] = {
    {"activation", read_activation},
    {"add", read_sum},
    {"attention", read_attention},
    {"batch_norm", [](const Stated& op) { return batch_norm(op.name, op.map()); }},
    {"convolution", read_convolution},
    {"cross_entropy", [](const Stated& op) { return (void)op.width(), shaped(OperatorKind::cross_entropy, op, {}); }},
    {"dropout", read_dropout},
    {"embedding", read_embedding},
    {"flatten", [](const Stated& op) { return flatten(op.name, op.map()); }},
    {"layer_norm", [](const Stated& op) { return read_norm(op, NormSpec::Kind::layer_norm); }},
    {"linear", read_linear},
    {"multiply", [](const Stated& op) { return read_joined(OperatorKind::multiply, op); }},
    {"pool", read_pool},
    {"position_embedding", read_position_embedding},
    {"reshape", read_reshape},
    {"rms_norm", [](const Stated& op) { return read_norm(op, NormSpec::Kind::rms_norm); }},
    {"scale", [](const Stated& op) { return read_same_shape(OperatorKind::scale, op); }},
    {"softmax", [](const Stated& op) { return read_same_shape(OperatorKind::softmax, op); }},
};

Operator read_operator(const Stated& op) {
  const JsonValue kind = op.json["kind"];
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& row) { return kind.text() == row.name; });
  if (found != std::end(kKinds)) return found->read(op);
  std::vector<std::string> names;
  for (const Kind& row : kKinds) names.emplace_back(row.name);
  fail(fmt::format("'{}' has the unknown kind \"{}\"", op.name, kind.text().substr(0, 60)), kind.where(), suggest(kind.text(), names));
}

// ---- the operators of one block, in an order that can be executed ------------------------------------------------------

struct Listed {
  std::vector<JsonValue> json;
  std::vector<std::string> names;
  std::vector<std::vector<int>> inputs;  // indices, or kBlockInput
};

// Without "inputs" an operator reads the one listed before it, the first the block's input.
std::vector<int> inputs_of(const JsonValue& op, int index, const std::string& name, const std::map<std::string, int>& by_name) {
  const auto stated = op.find("inputs");
  if (!stated) return {index == 0 ? kBlockInput : index - 1};
  std::vector<int> inputs;
  for (const auto& input : stated->elements()) {
    const auto found = by_name.find(input.text());
    if (found == by_name.end()) {
      std::vector<std::string> names;
      for (const auto& [known, place] : by_name) names.push_back(known);
      fail(fmt::format("'{}' reads '{}', which no operator of its block is called", name, input.text().substr(0, 60)), input.where(),
           suggest(input.text(), names));
    }
    inputs.push_back(found->second);
  }
  if (inputs.empty())
    fail(fmt::format("'{}' reads nothing", name), stated->where(), "without \"inputs\" it reads the operator listed before it");
  return inputs;
}

Listed list_operators(const JsonValue& operators) {
  constexpr std::size_t kMostOperators = 10'000;  // every operator looks for its inputs among the block's edges
  if (operators.size() > kMostOperators)
    fail(fmt::format("a block of {} operators is too large", operators.size()), operators.where(), fmt::format("at most {}", kMostOperators));
  Listed listed;
  std::map<std::string, int> by_name{{"input", kBlockInput}};
  for (const auto& op : operators.elements()) {
    const std::string name = op["name"].text();
    if (name.empty() || !by_name.emplace(name, static_cast<int>(listed.json.size())).second)
      fail(fmt::format("the name '{}' is empty, reserved or taken", name.substr(0, 60)), op["name"].where());
    listed.json.push_back(op);
    listed.names.push_back(name);
  }
  if (listed.json.empty()) fail("a block needs an operator", operators.where());
  for (std::size_t i = 0; i < listed.json.size(); ++i)
    listed.inputs.push_back(inputs_of(listed.json[i], static_cast<int>(i), listed.names[i], by_name));
  return listed;
}

// Some operators wait for each other: walk from one to what it waits for until one comes back.
[[noreturn]] void fail_cycle(const Listed& listed, const std::vector<int>& waiting, const std::string& where) {
  int at = static_cast<int>(std::find_if(waiting.begin(), waiting.end(), [](int count) { return count > 0; }) - waiting.begin());
  std::vector<int> walked;
  while (std::find(walked.begin(), walked.end(), at) == walked.end()) {
    walked.push_back(at);
    for (const int input : listed.inputs[static_cast<std::size_t>(at)])
      if (input >= 0 && waiting[static_cast<std::size_t>(input)] > 0) at = input;
  }
  std::string cycle = listed.names[static_cast<std::size_t>(at)];
  for (auto step = std::find(walked.begin(), walked.end(), at) + 1; step != walked.end(); ++step)
    cycle = listed.names[static_cast<std::size_t>(*step)] + " -> " + cycle;
  fail(fmt::format("operators form a cycle: {} -> {}", listed.names[static_cast<std::size_t>(at)], cycle), where);
}

// Operators behind all they read, else as they are listed. The one that nothing reads is the block's output and comes last.
std::vector<int> execution_order(const Listed& listed, const std::string& where) {
  const std::size_t count = listed.json.size();
  std::vector<std::vector<int>> readers(count);
  std::vector<int> waiting(count, 0), order;
  std::set<int> ready;
  for (std::size_t i = 0; i < count; ++i) {
    for (const int input : listed.inputs[i])
      if (input >= 0) readers[static_cast<std::size_t>(input)].push_back(static_cast<int>(i)), ++waiting[i];
    if (waiting[i] == 0) ready.insert(static_cast<int>(i));
  }
  while (!ready.empty()) {
    order.push_back(*ready.begin());
    ready.erase(ready.begin());
    for (const int reader : readers[static_cast<std::size_t>(order.back())])
      if (--waiting[static_cast<std::size_t>(reader)] == 0) ready.insert(reader);
  }
  if (order.size() != count) fail_cycle(listed, waiting, where);
  std::vector<std::string> outputs;
  for (std::size_t i = 0; i < count; ++i)
    if (readers[i].empty()) outputs.push_back("'" + listed.names[i] + "'");
  if (outputs.size() != 1) fail(fmt::format("a block has one output, and nothing reads {}", fmt::join(outputs, ", ")), where);
  return order;
}

// ---- blocks ------------------------------------------------------------------------------------------------------------

Block read_block(const JsonValue& json, const std::string& name, const Shape& input) {
  Block block;
  block.name = name;
  block.repeat = dimension_or(json, "repeat", 1, 1, kMostLayers);
  block.numbered = block.repeat > 1;
  block.role = block.numbered ? Block::Role::encoder : Block::Role::other;
  const JsonValue operators = json["operators"];
  const Listed listed = list_operators(operators);
  std::vector<int> place(listed.json.size(), 0);
  for (const int index : execution_order(listed, operators.where())) {
    const auto i = static_cast<std::size_t>(index);
    Stated stated{listed.json[i], listed.names[i], {}};
    const int to = static_cast<int>(block.operators.size());
    place[i] = to;
    for (const int from : listed.inputs[i]) {
      const int source = from < 0 ? kBlockInput : place[static_cast<std::size_t>(from)];
      stated.inputs.push_back(source < 0 ? input : block.operators[static_cast<std::size_t>(source)].output_per_token);
      block.edges.push_back({source, to});
    }
    block.operators.push_back(read_operator(stated));
    if (block.operators.back().kind == OperatorKind::embedding) block.role = Block::Role::embedding;
  }
  const Shape& output = block.operators.back().output_per_token;
  if (block.repeat > 1 && output != input)
    fail(fmt::format("block '{}' repeats, so its output {} must have the shape of its input {}", name, text_of(output), text_of(input)),
         json.where());
  return block;
}

// {"image": [3, 32, 32]}, {"tokens": true} or {"vectors": 256}: what one position of the input is.
Shape read_input(const JsonValue& root, Model& model) {
  const JsonValue input = root["input"];
  if (const auto image = input.find("image")) {
    if (image->size() != 3) image->expected("[channels, height, width]");
    model.task = Model::Task::image_classification;
    model.channels = image->at(0).integer(1, kLargestMap);
    model.image_size = image->at(1).integer(1, kLargestMap);
    return {model.channels, model.image_size, image->at(2).integer(1, kLargestMap)};
  }
  model.task = Model::Task::backbone;
  if (const auto vectors = input.find("vectors")) return {vectors->integer(1, kLargestDimension)};
  if (const auto tokens = input.find("tokens"); tokens && tokens->boolean()) return {};
  input.expected("\"image\": [channels, height, width], \"tokens\": true or \"vectors\": width");
}

}  // namespace

Model read_graph(const JsonValue& root, const std::string& name) {
  root.check_printable();
  (void)root[kGraphKey].integer(1, 1);
  Model model;
  model.name = name;
  model.model_type = model.architecture = "graph";
  Shape shape = read_input(root, model);
  const bool image = model.task == Model::Task::image_classification;
  for (const auto& json : root["blocks"].elements()) {
    const auto stated = json.find("name");
    const std::string block_name = stated ? stated->text() : "";
    for (const Block& other : model.blocks)
      if (other.name == block_name) fail(fmt::format("two blocks are called '{}'", block_name.substr(0, 60)), json.where());
    model.blocks.push_back(read_block(json, block_name, shape));
    if (image) model.blocks.back().tokens = 1;
    shape = model.blocks.back().operators.back().output_per_token;
    if (model.blocks.back().numbered) model.layers += model.blocks.back().repeat;
  }
  if (model.blocks.empty()) root["blocks"].expected("a block of operators");
  if (const auto note = root.find("note")) (void)note->text();
  model.unread_keys = root.unread_keys();
  return model;
}

}  // namespace plimsoll::model
