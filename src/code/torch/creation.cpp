// What makes tensors beside functions.cpp: linspace, eye, random ones, new_zeros and its like, meshgrid; and einsum.
#include <algorithm>
#include <cctype>
#include <map>

#include "code/torch/arguments.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/einsum.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;
using In = Torch::In;

namespace {

constexpr double kMostNumbers = 0x1p48;

Value linspace(Interpreter& i, Bound& a) {
  const double start = i.number(a[0], "start"), end = i.number(a[1], "end");
  const std::int64_t steps = i.whole(a[2], "steps");
  if (steps < 0 || static_cast<double>(steps) > kMostNumbers) torch_of(i).wrong_shape("number of steps must be non-negative");
  const Value made =
      torch_of(i).wrap(program::arange(torch_of(i).tape_of(a[4]), steps, a.has(3) ? torch_of(i).type_of(a[3]) : torch_of(i).default_type));
  std::vector<double> values;
  constexpr std::int64_t kMost = 1 << 14;
  if (steps > kMost) return made;
  // RangeFactories: from the start in the first half, from the end in the second, in the type of the result.
  const auto step = static_cast<float>((end - start) / static_cast<double>(std::max<std::int64_t>(steps - 1, 1)));
  for (std::int64_t at = 0; at < steps; ++at)
    values.push_back(at < steps / 2 ? static_cast<float>(start) + step * static_cast<float>(at)
                                    : static_cast<float>(end) - step * static_cast<float>(steps - at - 1));
  return torch_of(i).follow(made, values);
}

Value eye(Interpreter& i, Bound& a) {
  const std::int64_t rows = i.whole(a[0], "n"), columns = a.has(1) ? i.whole(a[1], "m") : rows;
  const Dims sizes = torch_of(i).checked({rows, columns});
  Tensor made = program::zeros(torch_of(i).tape_of(a[3]), sizes, a.has(2) ? torch_of(i).type_of(a[2]) : torch_of(i).default_type);
  const Tensor diagonal = made.tape().view(made, {std::min(rows, columns)}, {columns + 1});
  program::in_place(diagonal, {});
  return torch_of(i).wrap(std::move(made));
}

Tensor random(Interpreter& i, program::Tape& tape, const Dims& sizes, DType type) {
  for (int at = 0; at < sizes.rank(); ++at)
    if (sizes[at] < 0) torch_of(i).wrong_shape("Trying to create tensor with negative dimension " + std::to_string(sizes[at]));
  return program::filled(tape, sizes, type);
}

/// randint(high, size), randint(low, high, size).
Value randint(Interpreter& i, Bound& a) {
  std::vector<Value> given = a.rest;
  if (a.has(0)) given.push_back(a[0]);
  if (given.size() < 2) i.raise("TypeError", "randint() received an invalid combination of arguments");
  return torch_of(i).wrap(random(i, torch_of(i).tape_of(a[2]), torch_of(i).sizes_of(given.back(), "sizes"),
                                 a.has(1) ? torch_of(i).type_of(a[1]) : DType::int64));
}

Value random_like(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(
      random(i, a.has(2) ? torch_of(i).tape_of(a[2]) : x.tape(), x.sizes(), a.has(1) ? torch_of(i).type_of(a[1]) : x.dtype()));
}

Value full_like(Interpreter& i, Bound& a) {
  a.values = {a[0], a[2], a[3]};  // the value stands before the type
  return random_like(i, a);
}

Value bernoulli(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(program::compare(x.detach(), {}, x.dtype()));
}

enum class New : std::uint8_t { empty, zeros, filled };

template <New kNew>
Value made_new(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  std::vector<Value> given = a.rest;
  if (a.has(3)) given = {a[3]};
  const Dims sizes = torch_of(i).sizes_of(given, "sizes");
  program::Tape& tape = a.has(2) ? torch_of(i).tape_of(a[2]) : x.tape();
  const DType type = a.has(1) ? torch_of(i).type_of(a[1]) : x.dtype();
  for (int at = 0; at < sizes.rank(); ++at)
    if (sizes[at] < 0) torch_of(i).wrong_shape("Trying to create tensor with negative dimension " + std::to_string(sizes[at]));
  if (kNew == New::empty) return torch_of(i).wrap(tape.empty(sizes, type));
  if (kNew == New::zeros) return torch_of(i).follow_filled(torch_of(i).wrap(program::zeros(tape, sizes, type)), 0);
  return torch_of(i).follow_filled(torch_of(i).wrap(program::filled(tape, sizes, type)), 1);
}

Value new_full(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  return torch_of(i).wrap(random(i, a.has(4) ? torch_of(i).tape_of(a[4]) : x.tape(), torch_of(i).sizes_of(a[1], "sizes"),
                                 a.has(3) ? torch_of(i).type_of(a[3]) : x.dtype()));
}

/// meshgrid: views expanded to the sizes of all; with "xy" the first two change places before and behind.
Value meshgrid(Interpreter& i, Bound& a) {
  const bool one = a.rest.size() == 1 && !Torch::is_tensor(a.rest.front());
  const std::vector<Value> given = one ? i.all_of(a.rest.front()) : a.rest;
  if (given.empty()) torch_of(i).wrong_shape("meshgrid expects a non-empty TensorList");
  const bool swapped = a.has(0) && i.words(a[0], "indexing") == "xy" && given.size() > 1;
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> shape;
  torch_of(i).check_rank(static_cast<int>(std::min<std::size_t>(given.size(), 100)));
  for (const Value& each : given) {
    tensors.push_back(torch_of(i).tensor_of(each, "a grid's side"));
    if (tensors.back().rank() > 1) torch_of(i).wrong_shape("torch.meshgrid: Expected 0D or 1D tensors");
  }
  if (swapped) std::swap(tensors[0], tensors[1]);
  for (const Tensor& each : tensors) shape.push_back(each.elements());
  const Dims sizes = torch_of(i).checked(shape);
  std::vector<Tensor> grids;
  for (std::size_t at = 0; at < tensors.size(); ++at) {
    Dims own;
    for (std::size_t other = 0; other < tensors.size(); ++other) own.push_back(other == at ? sizes[static_cast<int>(at)] : 1);
    Tensor grid = program::expand(program::view(tensors[at], own), sizes);
    grids.push_back(swapped ? program::transpose(grid, 0, 1) : std::move(grid));
  }
  if (swapped) std::swap(grids[0], grids[1]);
  return torch_of(i).wrap_all(std::move(grids));
}

/// What stands for the dimensions of an ellipsis, counted from the last: no letter.
std::string ellipsis_labels(int dimensions) {
  std::string labels;
  for (int at = dimensions; at > 0; --at) labels += static_cast<char>(at);
  return labels;
}

/// The letters of an equation's operands, an ellipsis as labels of its own; throws where they are no letters, or not as many as its
/// dimensions. `widest`: the dimensions of the largest ellipsis.
std::vector<std::string> labels_of(Interpreter& i, const std::string& text, const std::vector<Tensor>& operands, int& widest) {
  std::vector<std::string> labels{""};
  constexpr char kEllipsis = '.';
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool ellipsis = text.compare(at, 3, "...") == 0;
    if (ellipsis) at += 2;
    if (c == ',')
      labels.emplace_back();
    else if (ellipsis || std::isalpha(static_cast<unsigned char>(c)) != 0)
      labels.back() += c;
    else if (c != ' ')
      i.unknown("an equation of einsum with '" + std::string(1, c) + "'", "letters, one per dimension");
  }
  if (labels.size() != operands.size())
    torch_of(i).wrong_shape("einsum(): more operands were provided than specified in the equation, or fewer");
  for (std::size_t at = 0; at < operands.size(); ++at) {
    const std::size_t place = labels[at].find(kEllipsis);
    if (place == std::string::npos) continue;
    const int dimensions = std::max(operands[at].rank() - static_cast<int>(labels[at].size()) + 1, 0);
    labels[at].replace(place, 1, ellipsis_labels(dimensions));
    widest = std::max(widest, dimensions);
  }
  for (std::size_t at = 0; at < operands.size(); ++at) {
    if (static_cast<int>(labels[at].size()) != operands[at].rank())
      torch_of(i).wrong_shape("einsum(): the number of subscripts in the equation (" + std::to_string(labels[at].size()) +
                              ") does not match the number of dimensions (" + std::to_string(operands[at].rank()) + ") for operand " +
                              std::to_string(at));
    for (const char c : labels[at])
      if (std::count(labels[at].begin(), labels[at].end(), c) > 1) i.unknown("einsum over a diagonal");
  }
  return labels;
}

Value einsum(Interpreter& i, Bound& a) {
  const std::string& equation = i.words(a[0], "equations");
  std::vector<Value> given = a.rest;
  if (given.size() == 1 && !Torch::is_tensor(given.front())) given = i.all_of(given.front());
  std::vector<Tensor> operands;
  for (const Value& each : given) operands.push_back(torch_of(i).tensor_of(each, "an operand"));
  if (operands.empty() || operands.size() > 2) i.unknown("einsum of " + std::to_string(operands.size()) + " tensors", "one or two");
  for (const Tensor& each : operands) torch_of(i).check_devices({&operands.front(), &each});
  const std::size_t arrow = equation.find("->");
  int widest = 0;
  const std::vector<std::string> labels = labels_of(i, equation.substr(0, arrow), operands, widest);
  std::string out;
  std::map<char, std::int64_t> sizes;
  std::map<char, int> uses;
  for (std::size_t at = 0; at < operands.size(); ++at)
    for (std::size_t dimension = 0; dimension < labels[at].size(); ++dimension) {
      const std::int64_t size = operands[at].size(static_cast<int>(dimension));
      const auto [known, fresh] = sizes.emplace(labels[at][dimension], size);
      ++uses[labels[at][dimension]];
      if (!fresh && known->second != size && known->second != 1 && size != 1)
        torch_of(i).wrong_shape("einsum(): subscript " + std::string(1, labels[at][dimension]) +
                                " has sizes that do not broadcast: " + std::to_string(known->second) + " and " + std::to_string(size));
      known->second = std::max(known->second, size);
    }
  if (arrow != std::string::npos) {
    std::string result = equation.substr(arrow + 2);
    if (const std::size_t place = result.find("..."); place != std::string::npos) result.replace(place, 3, ellipsis_labels(widest));
    for (const char c : result) {
      if (c == ' ') continue;
      if (!sizes.contains(c) || out.find(c) != std::string::npos)
        torch_of(i).wrong_shape("einsum(): output subscript " + std::string(1, c) +
                                " does not appear in the equation for any input operand");
      out += c;
    }
  } else {
    out = ellipsis_labels(widest);
    for (const auto& [label, count] : uses)
      if (count == 1 && std::isalpha(static_cast<unsigned char>(label)) != 0) out += label;  // in alphabetical order, capitals first
  }
  torch_of(i).check_rank(static_cast<int>(sizes.size()));
  return torch_of(i).wrap(program::einsum(labels, out, operands));
}

/// torch.as_tensor, torch.scalar_tensor: a tensor itself, or as torch.tensor.
Value as_tensor(Interpreter& i, Bound& a) {
  if (!Torch::is_tensor(a[0])) {
    CallArguments arguments{{a[0]}, {}};
    for (const auto& [at, name] : {std::pair{1, "dtype"}, std::pair{2, "device"}})
      if (a.has(static_cast<std::size_t>(at))) arguments.keywords.emplace_back(i.symbol(name), a[static_cast<std::size_t>(at)]);
    return i.call(i.library("torch").attributes.at(i.symbol("tensor")), std::move(arguments));
  }
  CallArguments arguments;
  for (std::size_t at : {std::size_t{1}, std::size_t{2}})
    if (a.has(at)) arguments.positional.push_back(a[at]);
  return arguments.positional.empty() ? a[0] : i.call(i.attribute(a[0], i.symbol("to")), std::move(arguments));
}

Value baddbmm(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), left = torch_of(i).tensor_of(a[1], "batch1"), right = torch_of(i).tensor_of(a[2], "batch2");
  torch_of(i).check_devices({&x, &left, &right});
  const bool fits = left.rank() == 3 && right.rank() == 3 && left.size(0) == right.size(0) && left.size(2) == right.size(1);
  if (!fits) torch_of(i).wrong_shape("batch1 and batch2 must be 3D tensors that fit");
  const double alpha = a.has(4) ? i.number(a[4], "alpha") : 1;
  if (a.has(3) && i.number(a[3], "beta") != 1) i.unknown("baddbmm with a beta");
  const Dims sizes{left.size(0), left.size(1), right.size(2)};
  if (x.rank() > 3)
    torch_of(i).wrong_shape("expand(): the number of sizes provided must be greater or equal to the number of dimensions in the tensor");
  for (int at = 1; at <= x.rank(); ++at)
    if (x.size(-at) != 1 && x.size(-at) != sizes[-at]) torch_of(i).wrong_shape("baddbmm: the input does not broadcast to the product");
  return torch_of(i).wrap(
      program::baddbmm(program::autocast_low(x), program::autocast_low(left), program::autocast_low(right), alpha != 1));
}

/// addmm(bias, x, weight) of a bias along the rows, as transformers' Conv1D has it.
Value addmm(Interpreter& i, Bound& a) {
  const Tensor bias = input_of(i, a), x = torch_of(i).tensor_of(a[1], "mat1"), weight = torch_of(i).tensor_of(a[2], "mat2");
  torch_of(i).check_devices({&bias, &x, &weight});
  if (x.rank() != 2 || weight.rank() != 2 || x.size(1) != weight.size(0))
    torch_of(i).wrong_shape("mat1 and mat2 shapes cannot be multiplied");
  const bool scaled = (a.has(3) && i.number(a[3], "beta") != 1) || (a.has(4) && i.number(a[4], "alpha") != 1);
  if (scaled || bias.sizes() != Dims{weight.size(1)}) i.unknown("addmm with factors, or of another than a bias along the rows");
  return torch_of(i).wrap(program::addmm(bias, x, weight));
}

/// torch.unique of what is followed: how many numbers there are hangs on what they are.
Value unique(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (!torch_of(i).follows(a[0]) || torch_of(i).is_on_device(x)) i.unknown("torch.unique of numbers that are not followed");
  if (flag(i, a, 2)) i.unknown("torch.unique with return_inverse", "return_counts");
  std::map<double, std::int64_t> counts;
  for (const double number : torch_of(i).values_of(a[0], true)) ++counts[number];
  const bool whole = x.dtype() == DType::int64 || x.dtype() == DType::int32;
  std::vector<Value> different, times;
  for (const auto& [number, count] : counts) {
    different.push_back(whole ? Value::integer(static_cast<std::int64_t>(number)) : Value::real(number));
    times.push_back(Value::integer(count));
  }
  const auto tensor = [&](std::vector<Value> items, DType type) {
    CallArguments call{{i.list(std::move(items))}, {{i.symbol("dtype"), torch_of(i).type_value(type)}}};
    return i.call(i.library("torch").attributes.at(i.symbol("tensor")), std::move(call));
  };
  Value found = tensor(std::move(different), x.dtype());
  return flag(i, a, 3) ? i.tuple({std::move(found), tensor(std::move(times), DType::int64)}) : found;
}

constexpr const char* kNewSignature = "input, *sizes, dtype=, device=, size=, requires_grad=";

constexpr OperatorRow kRows[] = {
    {In::torch, "linspace", "start, end, steps, *, dtype=, device=", linspace},
    {In::torch, "eye", "n, m=, *, dtype=, device=", eye},
    {In::torch, "randint", "*bounds, size=, dtype=, device=, generator=", randint},
    {In::torch, "randn_like", "input, *, dtype=, device=", random_like},
    {In::torch, "rand_like", "input, *, dtype=, device=", random_like},
    {In::torch, "full_like", "input, fill_value, *, dtype=, device=", full_like},
    {In::both, "bernoulli", "input, *, generator=", bernoulli},
    {In::tensor, "new_empty", kNewSignature, made_new<New::empty>},
    {In::tensor, "new_zeros", kNewSignature, made_new<New::zeros>},
    {In::tensor, "new_ones", kNewSignature, made_new<New::filled>},
    {In::tensor, "new_full", "input, size, fill_value, *, dtype=, device=", new_full},
    {In::torch, "unique", "input, sorted=, return_inverse=, return_counts=", unique},
    {In::torch, "meshgrid", "*tensors, indexing=", meshgrid},
    {In::torch, "einsum", "equation, *operands", einsum},
    {In::torch, "as_tensor", "data, dtype=, device=", as_tensor},
    {In::torch, "scalar_tensor", "data, *, dtype=, device=", as_tensor},
    {In::both, "baddbmm", "input, batch1, batch2, *, beta=, alpha=", baddbmm},
    {In::both, "addmm", "input, mat1, mat2, *, beta=, alpha=", addmm},
};

}  // namespace

void define_creation(Interpreter&, Torch& torch) {
  for (const OperatorRow& row : kRows) torch.define(row.in, row.name, row.signature, row.run);
}

}  // namespace plimsoll::code
