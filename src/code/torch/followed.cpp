// What small tensors hold, followed on the host: positions, schedules, grids. Numbers that the host made (arange, linspace, torch.tensor of
// numbers) and what follows from them by arithmetic, comparisons, sums and views; all else is not known.
#include "code/torch/followed.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

#include "code/torch/arguments.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;
using Numbers = std::vector<double>;

namespace {

constexpr std::int64_t kMostFollowed = 1 << 14, kMostDealt = 1 << 20;

std::int64_t most_followed(bool dealt) { return dealt ? kMostDealt : kMostFollowed; }

double typed(double value, DType type) {
  if (type == DType::boolean) return value != 0 ? 1 : 0;
  if (type == DType::fp32) return static_cast<double>(static_cast<float>(value));
  return is_floating(type) ? value : std::trunc(value);
}

/// Elements of a tensor of these sizes, broadcast from one of `own` sizes.
Numbers broadcast(const Numbers& values, const Dims& own, const Dims& sizes) {
  Numbers made;
  const std::int64_t count = sizes.product();
  made.reserve(static_cast<std::size_t>(count));
  for (std::int64_t at = 0; at < count; ++at) {
    std::int64_t rest = at, from = 0, stride = 1;
    for (int i = 1; i <= sizes.rank(); ++i) {
      const std::int64_t index = rest % sizes[-i];
      rest /= sizes[-i];
      if (i > own.rank()) continue;
      if (own[-i] != 1) from += index * stride;
      stride *= own[-i];
    }
    made.push_back(values[static_cast<std::size_t>(from)]);
  }
  return made;
}

double computed(Operator op, double a, double b, bool whole) {
  switch (op) {
    case Operator::add:
      return a + b;
    case Operator::subtract:
      return a - b;
    case Operator::multiply:
      return a * b;
    case Operator::divide:
      return a / b;
    case Operator::floor_divide:
      return std::floor(a / b);
    case Operator::modulo:
      return a - std::floor(a / b) * b;
    case Operator::power:
      return std::pow(a, b);
    case Operator::equal:
      return a == b ? 1 : 0;
    case Operator::not_equal:
      return a != b ? 1 : 0;
    case Operator::less:
      return a < b ? 1 : 0;
    case Operator::greater:
      return a > b ? 1 : 0;
    case Operator::less_equal:
      return a <= b ? 1 : 0;
    case Operator::greater_equal:
      return a >= b ? 1 : 0;
    case Operator::bit_and:
      return whole ? static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b)) : 0;
    case Operator::bit_or:
      return whole ? static_cast<double>(static_cast<std::int64_t>(a) | static_cast<std::int64_t>(b)) : 0;
    default:
      return std::nan("");
  }
}

bool is_followed_operator(Operator op) { return !std::isnan(computed(op, 1, 1, true)); }

}  // namespace

bool Torch::follows(const Value& value) const {
  const auto* object = value.as<TensorObject>();
  if (object == nullptr || !object->followed || *object->followed->changed) return false;
  return static_cast<std::int64_t>(object->followed->values.size()) == object->current().elements();
}

std::optional<double> Torch::uniform(const Value& value) const {
  if (value.is_number()) return value.as_real();
  const auto* object = value.as<TensorObject>();
  if (object == nullptr || !object->followed || *object->followed->changed) return std::nullopt;
  const Numbers& values = object->followed->values;
  if (values.empty()) return object->followed->uniform;
  const bool one = std::all_of(values.begin(), values.end(), [&](double each) { return each == values.front(); });
  return one ? std::optional(values.front()) : std::nullopt;
}

bool Torch::is_dealt(const Value& value) const {
  const auto* object = value.as<TensorObject>();
  return object != nullptr && object->followed && object->followed->dealt;
}

Value Torch::deal(Value choices, std::int64_t classes) {
  const Tensor& x = tensor(choices);
  if (!expects_draws || x.elements() > kMostDealt || classes < 1) return choices;
  Numbers values;
  for (std::int64_t at = 0; at < x.elements(); ++at) values.push_back(static_cast<double>(at % classes));
  return follow(std::move(choices), values, {}, true);
}

Value Torch::follow(Value tensor_value, const Numbers& values, const Value& view_of, bool dealt) {
  auto* object = tensor_value.as<TensorObject>();
  const Tensor& x = object->current();
  if (static_cast<std::int64_t>(values.size()) > most_followed(dealt) || static_cast<std::int64_t>(values.size()) != x.elements())
    return tensor_value;
  constexpr std::int64_t kPerStep = 8, kDealtPerStep = 256;
  i_.step(static_cast<std::int64_t>(values.size()) / (dealt ? kDealtPerStep : kPerStep) + 1);
  auto followed = std::make_shared<Followed>();
  followed->changed = view_of.is_bound() ? view_of.as<TensorObject>()->followed->changed : std::make_shared<bool>(false);
  followed->dealt = dealt;
  followed->values.reserve(values.size());
  for (const double each : values) {
    if (std::isnan(each) || (!is_floating(x.dtype()) && std::abs(each) > 0x1p52)) return tensor_value;
    followed->values.push_back(typed(each, x.dtype()));
  }
  object->followed = std::move(followed);
  return tensor_value;
}

Value Torch::follow_filled(Value tensor_value, double value, const Value& view_of) {
  auto* object = tensor_value.as<TensorObject>();
  const std::int64_t count = object->current().elements();
  if (count <= kMostFollowed) return follow(std::move(tensor_value), Numbers(static_cast<std::size_t>(count), value), view_of);
  auto followed = std::make_shared<Followed>();
  followed->changed = view_of.is_bound() ? view_of.as<TensorObject>()->followed->changed : std::make_shared<bool>(false);
  followed->uniform = typed(value, object->current().dtype());
  object->followed = std::move(followed);
  return tensor_value;
}

const Numbers& Torch::values_of(const Value& value, bool reads) {
  if (!follows(value)) i_.unknown("what a tensor holds, read by the host,", "what the device computes is not followed");
  const Tensor& x = tensor(value);
  if (reads && is_on_device(x)) {
    x.tape().copy({.direction = Copy::Direction::device_to_host, .bytes = x.bytes()}, x.tape().stream);
    x.tape().read_back();
  }
  return value.as<TensorObject>()->followed->values;
}

namespace {

Value number_of(double value, DType type) {
  if (type == DType::boolean) return Value::boolean(value != 0);
  return is_floating(type) ? Value::real(value) : Value::integer(static_cast<std::int64_t>(value));
}

Value nested(Interpreter& i, const Numbers& values, const Dims& sizes, DType type, int dimension, std::int64_t& at) {
  if (dimension == sizes.rank()) return number_of(values[static_cast<std::size_t>(at++)], type);
  std::vector<Value> items;
  for (std::int64_t index = 0; index < sizes[dimension]; ++index) items.push_back(nested(i, values, sizes, type, dimension + 1, at));
  return i.list(std::move(items));
}

Value to_list(Interpreter& i, Bound& a) {
  const Numbers& values = torch_of(i).values_of(a[0], true);
  const Tensor& x = input_of(i, a);
  i.step(static_cast<std::int64_t>(values.size()));
  std::int64_t at = 0;
  return nested(i, values, x.sizes(), x.dtype(), 0, at);
}

Value item(Interpreter& i, Bound& a) {
  const Tensor& x = input_of(i, a);
  if (x.elements() != 1)
    i.raise("RuntimeError", "a Tensor with " + std::to_string(x.elements()) + " elements cannot be converted to Scalar");
  return number_of(torch_of(i).values_of(a[0], true).front(), x.dtype());
}

Value nonzero(Interpreter& i, Bound& a) {
  const Value places = torch_of(i).places_of(a[0], "nonzero(): which elements are not zero");
  return flag(i, a, 1) ? i.tuple(i.all_of(i.call(i.attribute(places, i.symbol("unbind")), std::vector<Value>{Value::integer(1)}))) : places;
}

Value unknown_read(Interpreter& i, Bound&) {
  i.unknown("what a tensor holds, read by the host,", "what the device computes is not followed");
}

}  // namespace

std::optional<Value> Torch::known_number(const Value& value, bool reads) {
  if (!follows(value) || tensor(value).elements() != 1) return std::nullopt;
  return number_of(values_of(value, reads).front(), tensor(value).dtype());
}

void define_reads(Interpreter&, Torch& torch) {
  torch.define(Torch::In::tensor, "item", "input", item);
  torch.define(Torch::In::tensor, "tolist", "input", to_list);
  torch.define(Torch::In::tensor, "numpy", "input", unknown_read);
  torch.define(Torch::In::both, "nonzero", "input, *, as_tuple=", nonzero);
}

Value Torch::places_of(const Value& mask, const char* what) {
  const std::int64_t count = truths_in(mask, what);
  const Tensor x = tensor(mask);
  Numbers places;
  const Numbers truths = follows(mask) ? values_of(mask, false) : Numbers(static_cast<std::size_t>(count > 0 ? x.elements() : 0), 1);
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(truths.size()); ++at) {
    if (truths[static_cast<std::size_t>(at)] == 0) continue;
    std::int64_t stride = x.elements(), rest = at;
    for (int dimension = 0; dimension < x.rank(); ++dimension) {
      stride /= x.size(dimension);
      places.push_back(static_cast<double>(rest / stride));
      rest %= stride;
    }
  }
  return follow(wrap(program::transpose(program::nonzero(x, count), 0, 1)), places, {}, is_dealt(mask));
}

/// The tensors' elements behind each other in one dimension.
void follow_joined(Torch& torch, const std::vector<Value>& parts, int dimension, const Value& result) {
  if (!std::all_of(parts.begin(), parts.end(), [&](const Value& part) { return torch.follows(part); })) return;
  const Tensor& made = torch.tensor(result);
  if (made.elements() > kMostFollowed || made.elements() == 0) return;
  std::int64_t outer = 1;
  for (int at = 0; at < dimension; ++at) outer *= made.size(at);
  Numbers values;
  for (std::int64_t o = 0; o < outer; ++o)
    for (const Value& part : parts) {
      const Numbers& own = torch.values_of(part, false);
      const auto width = static_cast<std::ptrdiff_t>(own.size()) / outer;
      values.insert(values.end(), own.begin() + o * width, own.begin() + (o + 1) * width);
    }
  (void)torch.follow(result, values);
}

void follow_masked(Torch& torch, const Value& of, const Value& mask, double number, const Value& result) {
  if (!torch.follows(of) || !torch.follows(mask)) {
    const std::optional<double> own = torch.uniform(of), all = torch.uniform(mask);
    if (own && all) (void)torch.follow_filled(result, *all != 0 ? number : *own);
    return;
  }
  const Dims sizes = torch.tensor(result).sizes();
  Numbers values = torch.values_of(of, false);
  const Numbers truths = broadcast(torch.values_of(mask, false), torch.tensor(mask).sizes(), sizes);
  for (std::size_t at = 0; at < values.size(); ++at)
    if (truths[at] != 0) values[at] = number;
  (void)torch.follow(result, values);
}

void follow_chosen(Torch& torch, const Value& condition, const Value& a, const Value& b, const Value& result) {
  if (const std::optional<double> all = torch.uniform(condition)) {
    if (const std::optional<double> number = torch.uniform(*all != 0 ? a : b)) (void)torch.follow_filled(result, *number);
    return;
  }
  const Tensor& made = torch.tensor(result);
  const auto known = [&](const Value& side) { return side.is_number() || torch.follows(side); };
  if (!torch.follows(condition) || !known(a) || !known(b) || made.elements() > kMostFollowed) return;
  const auto spread = [&](const Value& side) {
    return side.is_number() ? Numbers(static_cast<std::size_t>(made.elements()), side.as_real())
                            : broadcast(torch.values_of(side, false), torch.tensor(side).sizes(), made.sizes());
  };
  const Numbers truths = spread(condition), yes = spread(a), no = spread(b);
  Numbers values;
  for (std::size_t at = 0; at < truths.size(); ++at) values.push_back(truths[at] != 0 ? yes[at] : no[at]);
  (void)torch.follow(result, values);
}

void follow_clamped(Torch& torch, const Value& of, const Value& least, const Value& most, const Value& result) {
  const auto bounded = [&](double number) {
    if (least.is_number()) number = std::max(number, least.as_real());
    return most.is_number() ? std::min(number, most.as_real()) : number;
  };
  if (const std::optional<double> number = torch.uniform(of)) return (void)torch.follow_filled(result, bounded(*number));
  if (!torch.follows(of)) return;
  Numbers values = torch.values_of(of, false);
  std::transform(values.begin(), values.end(), values.begin(), bounded);
  (void)torch.follow(result, values, {}, torch.is_dealt(of));
}

void follow_scattered(Torch& torch, const Value& of, const Value& indices, double number, const Value& result) {
  const bool dealt = torch.is_dealt(indices);
  if (!torch.follows(indices) || !torch.uniform(of)) return;
  const Tensor made = torch.tensor(result), places = torch.tensor(indices);
  if (made.elements() > most_followed(dealt) || made.rank() < 1) return;
  for (int at = 0; at + 1 < made.rank(); ++at)
    if (made.size(at) != places.size(at)) return;
  Numbers values(static_cast<std::size_t>(made.elements()), *torch.uniform(of));
  const Numbers& chosen = torch.values_of(indices, false);
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    const std::int64_t row = static_cast<std::int64_t>(at) / places.size(-1), column = static_cast<std::int64_t>(chosen[at]);
    if (column < 0 || column >= made.size(-1)) return;
    values[static_cast<std::size_t>(row * made.size(-1) + column)] = number;
  }
  (void)torch.follow(result, values, {}, dealt);
}

void follow_classes(Torch& torch, const Value& indices, std::int64_t classes, const Value& result) {
  const bool dealt = torch.is_dealt(indices);
  if (!torch.follows(indices) || torch.tensor(result).elements() > most_followed(dealt)) return;
  const Numbers& chosen = torch.values_of(indices, false);
  Numbers values(chosen.size() * static_cast<std::size_t>(classes), 0);
  for (std::size_t at = 0; at < chosen.size(); ++at) {
    if (chosen[at] < 0 || chosen[at] >= static_cast<double>(classes)) return;
    values[at * static_cast<std::size_t>(classes) + static_cast<std::size_t>(chosen[at])] = 1;
  }
  (void)torch.follow(result, values, {}, dealt);
}

void follow_padded(Torch& torch, const Value& of, const Dims& before, double constant, const Value& result) {
  if (!torch.follows(of)) return;
  const Dims sizes = torch.tensor(of).sizes(), made = torch.tensor(result).sizes();
  if (made.product() > kMostFollowed) return;
  const Numbers& own = torch.values_of(of, false);
  Numbers values;
  for (std::int64_t at = 0; at < made.product(); ++at) {
    std::int64_t rest = at, from = 0, stride = 1;
    bool inside = true;
    for (int i = made.rank() - 1; i >= 0; --i) {
      const std::int64_t index = rest % made[i] - before[i];
      rest /= made[i];
      inside = inside && index >= 0 && index < sizes[i];
      from += index * stride;
      stride *= sizes[i];
    }
    values.push_back(inside ? own[static_cast<std::size_t>(from)] : constant);
  }
  (void)torch.follow(result, values);
}

// ---- what follows from what is followed ------------------------------------------------------------------------------

void follow_binary(Torch& torch, Operator op, const Value& a, const Value& b, const Value& result) {
  if (!is_followed_operator(op)) return;
  const Tensor& made = torch.tensor(result);
  const auto known = [&](const Value& side) { return side.is_number() || torch.follows(side); };
  const bool dealt = torch.is_dealt(a) || torch.is_dealt(b);
  if (!known(a) || !known(b) || made.elements() > most_followed(dealt)) {
    const std::optional<double> left = torch.uniform(a), right = torch.uniform(b);
    if (left && right) (void)torch.follow_filled(result, computed(op, *left, *right, !is_floating(made.dtype())));
    return;
  }
  const auto spread = [&](const Value& side) {
    return side.is_number() ? Numbers(static_cast<std::size_t>(made.elements()), side.as_real())
                            : broadcast(torch.values_of(side, false), torch.tensor(side).sizes(), made.sizes());
  };
  const Numbers left = spread(a), right = spread(b);
  Numbers values;
  for (std::size_t at = 0; at < left.size(); ++at) values.push_back(computed(op, left[at], right[at], !is_floating(made.dtype())));
  (void)torch.follow(result, values, {}, dealt);
}

namespace {

using Rule = std::function<std::optional<Numbers>(Interpreter&, const Bound&, const Numbers&, const Tensor& x, const Tensor& made)>;

std::optional<Numbers> same(Interpreter&, const Bound&, const Numbers& values, const Tensor&, const Tensor&) { return values; }

/// One function of each element.
Rule each(double (*function)(double)) {
  return [function](Interpreter&, const Bound&, const Numbers& values, const Tensor&, const Tensor&) {
    Numbers made;
    for (const double value : values) made.push_back(function(value));
    return std::optional<Numbers>(std::move(made));
  };
}

/// A reduction over all elements, over one dimension, or over several.
Rule folded(double start, double (*function)(double, double)) {
  return [=](Interpreter& i, const Bound& a, const Numbers& values, const Tensor& x, const Tensor&) -> std::optional<Numbers> {
    if (values.empty()) return std::nullopt;
    if (!a.has(1)) {
      double sum = start;
      for (const double value : values) sum = function(sum, value);
      return Numbers{sum};
    }
    if (!a[1].is_integer()) {
      const std::vector<int> dimensions = i.torch().dimensions_of(a[1], x.rank());
      Numbers made(1, start);
      for (int at = 0; at < x.rank(); ++at)
        if (std::find(dimensions.begin(), dimensions.end(), at) == dimensions.end())
          made.insert(made.end(), made.size() * static_cast<std::size_t>(x.size(at) - 1), start);
      for (std::int64_t at = 0; at < x.elements(); ++at) {
        std::int64_t stride = x.elements(), rest = at, place = 0;
        for (int dimension = 0; dimension < x.rank(); ++dimension) {
          stride /= x.size(dimension);
          if (std::find(dimensions.begin(), dimensions.end(), dimension) == dimensions.end()) place = place * x.size(dimension) + rest / stride;
          rest %= stride;
        }
        double& sum = made[static_cast<std::size_t>(place)];
        sum = function(sum, values[static_cast<std::size_t>(at)]);
      }
      return made;
    }
    const int dimension = i.torch().dimension_of(a[1], x.rank());
    std::int64_t inner = 1;
    for (int at = dimension + 1; at < x.rank(); ++at) inner *= x.size(at);
    const std::int64_t size = x.size(dimension), outer = x.elements() / (size * inner);
    Numbers made;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t n = 0; n < inner; ++n) {
        double sum = start;
        for (std::int64_t at = 0; at < size; ++at) sum = function(sum, values[static_cast<std::size_t>((o * size + at) * inner + n)]);
        made.push_back(sum);
      }
    return made;
  };
}

std::optional<Numbers> running(Interpreter& i, const Bound& a, const Numbers& values, const Tensor& x, const Tensor&) {
  const int dimension = i.torch().dimension_of(a[1], x.rank());
  std::int64_t inner = 1;
  for (int at = dimension + 1; at < x.rank(); ++at) inner *= x.size(at);
  Numbers made = values;
  for (std::int64_t at = 0; at < x.elements(); ++at)
    if (at / inner % x.size(dimension) != 0) made[static_cast<std::size_t>(at)] += made[static_cast<std::size_t>(at - inner)];
  return made;
}

std::optional<Numbers> expanded(Interpreter&, const Bound&, const Numbers& values, const Tensor& x, const Tensor& made) {
  return broadcast(values, x.sizes(), made.sizes());
}

/// Elements [start, start + count) of a dimension.
Numbers part_of(const Numbers& values, const Dims& sizes, int dimension, std::int64_t start, std::int64_t count) {
  std::int64_t inner = 1, outer = 1;
  for (int at = dimension + 1; at < sizes.rank(); ++at) inner *= sizes[at];
  for (int at = 0; at < dimension; ++at) outer *= sizes[at];
  Numbers made;
  for (std::int64_t o = 0; o < outer; ++o) {
    const auto first = static_cast<std::ptrdiff_t>((o * sizes[dimension] + start) * inner);
    made.insert(made.end(), values.begin() + first, values.begin() + first + static_cast<std::ptrdiff_t>(count * inner));
  }
  return made;
}

/// split(), chunk(): parts that lie one behind the other in the dimension that the argument names.
void follow_parts(Torch& torch, const Bound& a, const Value& given, const Value& result) {
  const auto* parts = result.as<SequenceObject>();
  if (parts == nullptr || !torch.follows(given)) return;
  const Dims sizes = torch.tensor(given).sizes();
  const int dimension = a.has(2) ? torch.dimension_of(a[2], sizes.rank()) : 0;
  const Numbers& values = torch.values_of(given, false);
  std::int64_t start = 0;
  for (const Value& part : parts->items) {
    const std::int64_t count = torch.tensor(part).size(dimension);
    (void)torch.follow(part, part_of(values, sizes, dimension, start, count), given);
    start += count;
  }
}

/// Elements in the order of a view's dimensions, whose steps in the original are these.
Numbers viewed(const Numbers& values, const Dims& strides, const Tensor& made) {
  Numbers result;
  for (std::int64_t at = 0; at < made.elements(); ++at) {
    std::int64_t rest = at, from = 0;
    for (int dimension = made.rank() - 1; dimension >= 0; --dimension) {
      from += rest % made.size(dimension) * strides[dimension];
      rest /= made.size(dimension);
    }
    result.push_back(values[static_cast<std::size_t>(from)]);
  }
  return result;
}

std::optional<Numbers> transposed(Interpreter& i, const Bound& a, const Numbers& values, const Tensor& x, const Tensor& made) {
  const int rank = x.rank(), first = a.values.size() > 2 ? i.torch().dimension_of(a[1], rank) : 0,
            second = a.values.size() > 2 ? i.torch().dimension_of(a[2], rank) : 1;
  if (rank < 2) return std::nullopt;
  Dims strides = program::contiguous_strides(x.sizes());
  std::swap(strides[first], strides[second]);
  return viewed(values, strides, made);
}

std::optional<Numbers> permuted(Interpreter& i, const Bound& a, const Numbers& values, const Tensor& x, const Tensor& made) {
  const bool listed = a.rest.size() == 1 && !a.rest.front().is_integer();
  const std::vector<Value> order = a.values.size() > 1 ? i.all_of(a[1]) : listed ? i.all_of(a.rest.front()) : a.rest;
  const Dims own = program::contiguous_strides(x.sizes());
  Dims strides;
  for (const Value& each : order) strides.push_back(own[i.torch().dimension_of(each, x.rank())]);
  return viewed(values, strides, made);
}

/// What a function makes of elements that are all one number, where each of its own is then one: `count` of them make one.
using OfUniform = double (*)(double number, double count);
double stays(double number, double) { return number; }
double summed(double number, double count) { return number * count; }

struct Named {
  const char* name;
  Rule rule;
  bool is_view = false;
  OfUniform of_uniform = nullptr;
};

const std::vector<Named>& rules() {
  static const std::vector<Named> kRules{
      {"view", same, true, stays},
      {"reshape", same, true, stays},
      {"flatten", same, true, stays},
      {"unsqueeze", same, true, stays},
      {"squeeze", same, true, stays},
      {"contiguous", same, false, stays},
      {"clone", same, false, stays},
      {"detach", same, true, stays},
      {"transpose", transposed, true, stays},
      {"t", transposed, true, stays},
      {"permute", permuted, true, stays},
      {"expand", expanded, true, stays},
      {"expand_as", expanded, true, stays},
      {"to", same, false, stays},
      {"long", same, false, stays},
      {"int", same, false, stays},
      {"float", same, false, stays},
      {"double", same, false, stays},
      {"bool", same, false, stays},
      {"cpu", same, false, stays},
      {"cuda", same, false, stays},
      {"type_as", same, false, stays},
      {"floor", each([](double v) { return std::floor(v); })},
      {"ceil", each([](double v) { return std::ceil(v); })},
      {"round", each([](double v) { return std::nearbyint(v); })},
      {"abs", each([](double v) { return std::abs(v); })},
      {"neg", each([](double v) { return -v; })},
      {"exp", each([](double v) { return std::exp(v); })},
      {"log", each([](double v) { return std::log(v); })},
      {"sqrt", each([](double v) { return std::sqrt(v); })},
      {"sum", folded(0, [](double a, double b) { return a + b; }), false, summed},
      {"prod", folded(1, [](double a, double b) { return a * b; })},
      {"amax", folded(-HUGE_VAL, [](double a, double b) { return std::max(a, b); }), false, stays},
      {"amin", folded(HUGE_VAL, [](double a, double b) { return std::min(a, b); }), false, stays},
      {"any", folded(0, [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }), false, stays},
      {"all", folded(1, [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }), false, stays},
      {"cumsum", running},
  };
  return kRules;
}

}  // namespace

std::int64_t ids_below(Torch& torch, const Value& value) {
  if (value.is_integer()) return value.as_integer() < 0 ? 0 : value.as_integer() + 1;
  const auto* object = value.as<TensorObject>();
  if (object == nullptr || is_floating(object->current().dtype())) return 0;
  if (object->ids_below > 0) return object->ids_below;
  if (!torch.follows(value) || object->followed->values.empty()) return 0;
  const auto [least, most] = std::minmax_element(object->followed->values.begin(), object->followed->values.end());
  return *least < 0 ? 0 : static_cast<std::int64_t>(*most) + 1;
}

void follow_compared_ids(Torch& torch, Operator op, const Value& a, const Value& b, const Value& result) {
  const bool behind = Torch::is_tensor(a);
  const Value& number = behind ? b : a;
  const auto* ids = (behind ? a : b).as<TensorObject>();
  if (ids == nullptr || ids->ids_below == 0 || !number.is_number()) return;
  const double least = 0, most = static_cast<double>(ids->ids_below - 1), other = number.as_real();
  const auto tell = [&](bool all) { (void)torch.follow_filled(result, all ? 1 : 0); };
  const bool less = op == Operator::less || op == Operator::less_equal, greater = op == Operator::greater || op == Operator::greater_equal;
  if (op == Operator::equal || op == Operator::not_equal) return tell(op == Operator::not_equal);
  if (!less && !greater) return;
  const bool holds_equal = op == Operator::less_equal || op == Operator::greater_equal;
  const bool below = less == behind;  // ids < number, or number > ids
  const auto compared = [&](double id) { return below ? (holds_equal ? id <= other : id < other) : (holds_equal ? id >= other : id > other); };
  if (compared(least) == compared(most)) tell(compared(least));
}

namespace {

/// What hands on ids as they are, in another form.
bool keeps_ids(std::string_view name) {
  constexpr std::string_view kNames[] = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous", "clone", "detach", "expand",
                                         "to", "long", "int", "cpu", "cuda", "max", "min", "amax", "amin", "transpose", "roll", "flip", "gather"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Native with_ids(std::string_view name, const Native& run) {
  if (!keeps_ids(name)) return run;
  return [run](Interpreter& i, Bound& a) {
    const auto* given = a[0].as<TensorObject>();
    const std::int64_t below = given != nullptr ? given->ids_below : 0;
    Value result = run(i, a);
    if (auto* made = result.as<TensorObject>(); made != nullptr && below > 0 && !is_floating(made->current().dtype())) made->ids_below = below;
    return result;
  };
}

}  // namespace

Native with_following(std::string_view name, const Native& run_in) {
  const Native run = with_ids(name, run_in);
  if (name == "split" || name == "split_with_sizes" || name == "chunk")
    return [run](Interpreter& i, Bound& a) {
      const Value given = a[0];
      Value result = run(i, a);
      follow_parts(i.torch(), a, given, result);
      return result;
    };
  const std::string_view wanted = name == "max" ? "amax" : name == "min" ? "amin" : name;
  const bool extreme = wanted != name;  // of all elements alone: with a dimension it is a pair
  const auto& all = rules();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Named& each) { return wanted == each.name; });
  if (found == all.end()) return run;
  return [run, rule = &*found, extreme](Interpreter& i, Bound& a) {
    const Value given = a[0];
    Value result = run(i, a);
    Torch& torch = i.torch();
    if (result.same(given) || !Torch::is_tensor(result)) return result;
    if (extreme && a.has(1)) return result;  // max(dim) and max(other)
    const Tensor x = torch.tensor(given), made = torch.tensor(result);
    const bool dealt = torch.is_dealt(given);
    if (!torch.follows(given) || made.elements() > most_followed(dealt)) {
      const std::optional<double> number = rule->of_uniform != nullptr ? torch.uniform(given) : std::nullopt;
      if (!number || made.elements() == 0) return result;
      const double count = static_cast<double>(x.elements()) / static_cast<double>(made.elements());
      return torch.follow_filled(std::move(result), rule->of_uniform(*number, count), rule->is_view ? given : Value());
    }
    const std::optional<Numbers> values = rule->rule(i, a, torch.values_of(given, false), x, made);
    if (!values) return result;
    return torch.follow(std::move(result), *values, rule->is_view ? given : Value(), dealt);
  };
}

}  // namespace plimsoll::code
