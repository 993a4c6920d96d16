// x[…] and x[…] = y: torch/csrc/autograd/python_variable_indexing.cpp.
#include <algorithm>
#include <optional>
#include <utility>

#include "code/torch/arguments.hpp"
#include "code/torch/followed.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/placing.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

/// A bound of a slice within `size`.
std::int64_t clamped(std::int64_t at, std::int64_t size) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); }

/// What x[key] holds of numbers in row-major order, by whole numbers and slices alone.
std::optional<std::vector<double>> indexed_numbers(Interpreter& i, const std::vector<double>& values, const Dims& sizes, const Value& key) {
  const auto* several = key.as<SequenceObject>();
  if (several != nullptr && several->is_list()) return std::nullopt;
  const std::vector<Value> keys = several != nullptr ? several->items : std::vector<Value>{key};
  int named = 0, at = 0;
  for (const Value& each : keys) named += each.is_none() || each.tag() == Value::Tag::ellipsis ? 0 : 1;
  std::vector<std::int64_t> chosen{0};  // of the dimensions so far: where the elements start, in units of what is behind
  const auto take = [&](std::int64_t start, std::int64_t stop, std::int64_t step) {
    std::vector<std::int64_t> next;
    for (const std::int64_t outer : chosen)
      for (std::int64_t index = start; index < stop; index += step) next.push_back(outer * sizes[at] + index);
    chosen = std::move(next);
    ++at;
  };
  for (const Value& each : keys) {
    if (each.is_none()) continue;
    if (each.tag() == Value::Tag::ellipsis) {
      for (int skipped = sizes.rank() - named; skipped > 0; --skipped) take(0, sizes[at], 1);
    } else if (each.is_integer() && !each.is_boolean()) {
      const std::int64_t index = each.as_integer() < 0 ? each.as_integer() + sizes[at] : each.as_integer();
      take(index, index + 1, 1);
    } else if (const auto* slice = each.as<SliceObject>()) {
      const std::int64_t size = sizes[at];
      take(slice->start.is_none() ? 0 : clamped(i.whole(slice->start, "bounds"), size),
           slice->stop.is_none() ? size : clamped(i.whole(slice->stop, "bounds"), size),
           slice->step.is_none() ? 1 : i.whole(slice->step, "steps"));
    } else {
      return std::nullopt;
    }
  }
  while (at < sizes.rank()) take(0, sizes[at], 1);
  std::vector<double> made;
  for (const std::int64_t place : chosen) made.push_back(values[static_cast<std::size_t>(place)]);
  return made;
}

bool is_indices(const Tensor& x) { return x.dtype() == DType::int64 || x.dtype() == DType::int32; }

/// What applies views one key after the other (applySlicing), and keeps the tensors of indices for the end.
class Keys {
 public:
  Keys(Interpreter& i, Tensor x, const Value& key) : i_(i), x_(std::move(x)) {
    const auto* several = key.as<SequenceObject>();
    const bool tuple = several != nullptr && !several->is_list();
    const std::vector<Value> keys = tuple ? several->items : std::vector<Value>{key};
    in_tuple_ = tuple;
    int named = 0;
    for (const Value& each : keys)
      named += each.is_none() || each.tag() == Value::Tag::ellipsis ? 0 : Torch::is_tensor(each) ? dimensions_of(torch().tensor(each)) : 1;
    if (named > x_.rank()) too_many();
    left_ = x_.rank() - named;
    for (const Value& each : keys) apply(each);
  }

  Tensor& seen() { return x_; }
  bool same() const { return same_; }
  const std::vector<Tensor>& indices() const { return indices_; }
  int first() const { return first_; }
  const Tensor& mask() const { return mask_; }
  const Value& mask_value() const { return mask_value_; }

 private:
  Torch& torch() { return i_.torch(); }
  [[noreturn]] void too_many() { i_.raise("IndexError", "too many indices for tensor of dimension " + std::to_string(x_.rank())); }
  static int dimensions_of(const Tensor& index) { return index.dtype() == DType::boolean ? index.rank() : 1; }

  void apply(const Value& key) {
    if (key.tag() == Value::Tag::ellipsis) {
      at_ += left_;
    } else if (key.is_none()) {
      torch().check_rank(x_.rank() + 1);
      x_ = program::unsqueeze(x_, at_++);
      same_ = false;
    } else if (at_ >= x_.rank()) {
      too_many();
    } else if (key.is_integer() && !key.is_boolean()) {
      select(key.as_integer());
    } else if (const auto* slice = key.as<SliceObject>()) {
      cut(*slice);
    } else if (const auto* list = key.as<SequenceObject>(); list != nullptr && list->items.size() == 1 && list->items[0].is_integer()) {
      check_bounds(list->items[0].as_integer());
      x_ = program::index_one(x_, at_++);
      same_ = false;
    } else if (Torch::is_tensor(key)) {
      collect(key);
    } else {
      i_.unknown("a tensor indexed by a " + i_.type_name(key) + " in this place");
    }
  }

  void check_bounds(std::int64_t index) {
    if (index < -x_.size(at_) || index >= x_.size(at_))
      i_.raise("IndexError", "index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(at_) + " with size " +
                                 std::to_string(x_.size(at_)));
  }

  void select(std::int64_t index) {
    check_bounds(index);
    x_ = program::select(x_, at_, index < 0 ? index + x_.size(at_) : index);
    same_ = false;
  }

  void cut(const SliceObject& slice) {
    const std::int64_t size = x_.size(at_);
    const auto bound = [&](const Value& value, std::int64_t otherwise) {
      return value.is_none() ? otherwise : clamped(i_.whole(value, "bounds"), size);
    };
    const std::int64_t step = slice.step.is_none() ? 1 : i_.whole(slice.step, "steps");
    if (step < 1) i_.raise("ValueError", "step must be greater than zero");
    const std::int64_t start = bound(slice.start, 0), stop = std::max(start, bound(slice.stop, size));
    if (step != 1) {
      x_ = program::stepped(x_, at_, start, stop, step);
      same_ = false;
    } else if (start != 0 || stop != size || !in_tuple_) {  // within a tuple, applySlice leaves a whole dimension out
      x_ = program::slice(x_, at_, start, stop);
      same_ = false;
    }
    ++at_;
  }

  void collect(const Value& key) {
    Tensor index = torch().tensor(key);
    if (torch().is_on_device(x_) && !torch().is_on_device(index)) {  // indices of the host are copied to where the tensor is
      Tensor there = x_.tape().empty(index.sizes(), index.dtype());
      x_.tape().copy({Copy::Direction::host_to_device, there.bytes()}, x_.tape().stream);
      index = std::move(there);
    }
    torch().check_devices({&x_, &index});
    if (index.dtype() == DType::boolean) {
      if (index.rank() == 0 || mask_ || !indices_.empty()) i_.unknown("a mask beside other indices of tensors, or of no dimensions");
      for (int at = 0; at < index.rank(); ++at)
        if (index.size(at) != x_.size(at_ + at))
          i_.raise("IndexError", "The shape of the mask does not match the shape of the indexed tensor at index " + std::to_string(at));
      mask_ = index;
      mask_value_ = key;
      first_ = at_;
      at_ += index.rank();
      return;
    }
    if (!is_indices(index)) i_.raise("IndexError", "tensors used as indices must be long, int, byte or bool tensors");
    if (mask_ || (!indices_.empty() && first_ + static_cast<int>(indices_.size()) != at_))
      i_.unknown("tensors of indices that stand apart, or beside a mask");
    if (indices_.empty()) first_ = at_;
    indices_.push_back(index);
    ++at_;
  }

  Interpreter& i_;
  Tensor x_, mask_;
  Value mask_value_;
  bool in_tuple_ = false, same_ = true;
  int at_ = 0, left_ = 0, first_ = 0;
  std::vector<Tensor> indices_;
};

}  // namespace

Value Torch::indexed(const Value& of, const Value& key) {
  Keys keys(i_, tensor(of), key);
  Tensor& x = keys.seen();
  if (keys.mask()) return chosen_by_mask(x, keys.first(), keys.mask_value());
  const std::vector<Tensor>& indices = keys.indices();
  if (indices.empty()) {
    Value result = wrap(keys.same() ? program::alias(x) : x);
    result.as<TensorObject>()->ids_below = of.as<TensorObject>()->ids_below;
    if (!follows(of)) {
      const std::optional<double> number = uniform(of);
      return number ? follow_filled(std::move(result), *number, of) : result;
    }
    const auto numbers = indexed_numbers(i_, values_of(of, false), tensor(of).sizes(), key);
    return numbers ? follow(std::move(result), *numbers, of) : result;
  }
  const int rank = x.rank() - static_cast<int>(indices.size());
  int widest = 0;
  for (const Tensor& each : indices) {
    check_broadcast(indices.front(), each);
    widest = std::max(widest, each.rank());
  }
  check_rank(rank + widest);
  Value result = wrap(program::indexed_by(x, keys.first(), indices));
  if (follows(of) && is_tensor(key) && follows(key)) {  // rows of what is known
    const std::vector<double>&values = values_of(of, false), &rows = values_of(key, false);
    const std::int64_t count = tensor(of).size(0), width = tensor(of).elements() / count;
    std::vector<double> made;
    for (const double row : rows) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>((row < 0 ? static_cast<std::int64_t>(row) + count : static_cast<std::int64_t>(row)) * width);
      if (row < -static_cast<double>(count) || row >= static_cast<double>(count)) i_.raise("IndexError", "index out of range in self");
      made.insert(made.end(), first, first + static_cast<std::ptrdiff_t>(width));
    }
    return follow(std::move(result), made, {}, is_dealt(of) || is_dealt(key));
  }
  const std::optional<double> number = uniform(of);
  return number ? follow_filled(std::move(result), *number) : result;
}

/// x[mask] where it is known how many elements of the mask are true: expandTensors makes indices of it (nonzero, one for each dimension).
Value Torch::chosen_by_mask(const Tensor& x, int first, const Value& mask) {
  const Value places = places_of(mask, "a tensor indexed by a mask: how many elements are true");
  return wrap(program::indexed_by(x, first, program::unbind(tensor(places), 1)));
}

/// On the host nothing is kept of what tensors hold; on the device it is a copy into a part, or a filling of it.
void Torch::set_indexed(const Value& of, const Value& key, const Value& value) {
  auto& object = *of.as<TensorObject>();
  const std::int64_t before = ids_below(*this, of), given_ids = ids_below(*this, value);
  struct KeepIds {  // ids into which ids are written
    TensorObject& object;
    std::int64_t below;
    ~KeepIds() { object.ids_below = below; }
  } const keep_ids{object, before > 0 && given_ids > 0 ? std::max(before, given_ids) : 0};
  // What a mask of no truths names is nothing: all stays as it is known.
  const bool names_nothing = is_tensor(key) && tensor(key).dtype() == DType::boolean && uniform(key) == 0;
  struct KeepKnown {
    TensorObject& object;
    std::shared_ptr<const Followed> known;
    ~KeepKnown() {
      if (known) object.followed = known;
    }
  } const keep_known{object, names_nothing ? std::exchange(object.followed, nullptr) : nullptr};
  if (object.followed) *object.followed->changed = true;
  const Tensor x = tensor(of);
  if (!is_on_device(x)) return;
  check_changeable(x);
  if (!value.is_number() && !is_tensor(value)) i_.raise("TypeError", "can't assign a " + i_.type_name(value) + " to a torch tensor");
  Keys keys(i_, x.detach(), key);
  if (!keys.indices().empty()) i_.unknown("an assignment to what tensors of indices name");
  if (keys.mask()) {
    if (keys.first() != 0 || keys.seen().sizes() != x.sizes()) i_.unknown("an assignment to what a mask names, in this place");
    if (is_tensor(value)) return set_masked(of, key, value);
    Tensor mask = keys.mask();
    while (mask.rank() < x.rank()) mask = program::unsqueeze(mask, mask.rank());
    (void)replace(of, program::assign_masked(x, mask));
    return;
  }
  const Tensor& part = keys.seen();
  const Tensor given = is_tensor(value) ? tensor(value) : Tensor();
  if (given) {
    check_broadcast(part, given);
    if (given.rank() > part.rank()) i_.unknown("an assignment of a tensor of more dimensions than its place");
    check_devices({&x, &given});
  }
  (void)replace(of, program::assign_part(x, part, given));
}

std::int64_t Torch::truths_in(const Value& mask, const char* what) {
  if (const std::optional<double> all = uniform(mask)) return *all != 0 ? tensor(mask).elements() : 0;
  if (!follows(mask)) i_.unknown(what, "what the device computes is not followed");
  const std::vector<double>& truths = values_of(mask, false);
  return std::count_if(truths.begin(), truths.end(), [](double each) { return each != 0; });
}

/// x[mask] = values, where it is known how many elements of the mask are true.
void Torch::set_masked(const Value& of, const Value& mask_value, const Value& value) {
  const Value& mask = mask_value.as<SequenceObject>() != nullptr ? mask_value.as<SequenceObject>()->items.front() : mask_value;
  const Tensor x = tensor(of), given = tensor(value);
  const std::int64_t count = truths_in(mask, "an assignment of a tensor to what a mask names");
  Dims place{count};
  for (int at = tensor(mask).rank(); at < x.rank(); ++at) place.push_back(x.size(at));
  bool fits = given.rank() <= place.rank();
  for (int at = 1; fits && at <= given.rank(); ++at) fits = given.size(-at) == 1 || given.size(-at) == place[-at];
  if (!fits) wrong_shape("shape mismatch: value tensor cannot be broadcast to indexing result");
  if (given.dtype() != x.dtype()) wrong_shape("Index put requires the source and destination dtypes match");
  check_devices({&x, &given});
  (void)replace(of, program::assign_masked_by(x, tensor(mask), place, given));
}

Value Torch::rows_of(const Value& of) {
  const Tensor x = tensor(of);
  if (x.rank() == 0) i_.raise("TypeError", "iteration over a 0-d tensor");
  constexpr std::int64_t kMostRows = 10'000;
  if (x.size(0) > kMostRows) i_.unknown("a loop over the " + std::to_string(x.size(0)) + " rows of a tensor");
  if (x.size(0) == 0) return i_.tuple({});
  if (!follows(of)) return wrap_all(program::unbind(x, 0));
  std::vector<Value> rows;
  const std::vector<double>& values = values_of(of, false);
  const auto width = static_cast<std::ptrdiff_t>(x.elements() / x.size(0));
  std::ptrdiff_t at = 0;
  for (Tensor& row : program::unbind(x, 0)) {
    rows.push_back(follow(wrap(std::move(row)), std::vector<double>(values.begin() + at, values.begin() + at + width), of));
    at += width;
  }
  return i_.tuple(std::move(rows));
}

}  // namespace plimsoll::code
