// x[…]: torch/csrc/autograd/python_variable_indexing.cpp.
#include <algorithm>

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;

namespace {

/// A bound of a slice within `size`.
std::int64_t clamped(std::int64_t at, std::int64_t size) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); }

}  // namespace

Value Torch::indexed(const Value& of, const Value& key) {
  const auto* several = key.as<SequenceObject>();
  const bool tuple = several != nullptr && !several->is_list();
  const std::vector<Value> keys = tuple ? several->items : std::vector<Value>{key};
  int named = 0;
  for (const Value& each : keys) named += each.is_none() || each.tag() == Value::Tag::ellipsis ? 0 : 1;
  Tensor x = tensor(of);
  if (named > x.rank()) i_.raise("IndexError", "too many indices for tensor of dimension " + std::to_string(x.rank()));
  int at = 0;
  bool same = true;
  const int left = x.rank() - named;
  for (const Value& each : keys) {
    if (each.tag() == Value::Tag::ellipsis) {
      at += left;
      continue;
    }
    if (each.is_none()) {
      check_rank(x.rank() + 1);
      x = program::unsqueeze(x, at++);
      same = false;
      continue;
    }
    if (at >= x.rank()) i_.raise("IndexError", "too many indices for tensor of dimension " + std::to_string(x.rank()));
    const std::int64_t size = x.size(at);
    if (each.is_integer() && !each.is_boolean()) {
      if (each.as_integer() < -size || each.as_integer() >= size)
        i_.raise("IndexError", "index " + std::to_string(each.as_integer()) + " is out of bounds for dimension " + std::to_string(at) +
                                   " with size " + std::to_string(size));
      x = program::select(x, at);
      same = false;
    } else if (const auto* slice = each.as<SliceObject>()) {
      const std::int64_t step = slice->step.is_none() ? 1 : i_.whole(slice->step, "steps");
      const std::int64_t start = slice->start.is_none() ? 0 : clamped(i_.whole(slice->start, "bounds"), size);
      const std::int64_t stop = slice->stop.is_none() ? size : std::max(start, clamped(i_.whole(slice->stop, "bounds"), size));
      if (step == 2 && at == x.rank() - 1 && stop == size) {
        x = program::every_second(x, start);
        same = false;
      } else if (step != 1) {
        i_.unknown("a slice of a tensor with this step", "1, or 2 over all of the last dimension");
      } else if (start != 0 || stop != size || !tuple) {  // within a tuple, applySlice leaves a whole dimension out
        x = program::slice(x, at, start, stop);
        same = false;
      }
      ++at;
    } else if (const auto* list = each.as<SequenceObject>(); list != nullptr && list->items.size() == 1 && list->items[0].is_integer()) {
      const std::int64_t one = list->items[0].as_integer();
      if (one < -size || one >= size)
        i_.raise("IndexError", "index " + std::to_string(one) + " is out of bounds for dimension " + std::to_string(at));
      x = program::index_one(x, at++);
      same = false;
    } else if (is_tensor(each) && keys.size() == 1 && tensor(each).rank() == 1 &&
               (tensor(each).dtype() == DType::int64 || tensor(each).dtype() == DType::int32)) {
      const Tensor rows = tensor(each);
      check_devices({&x, &rows});
      return wrap(x.requires_grad() ? program::index_rows(x, rows) : program::table_rows(x, rows));
    } else {
      i_.unknown("a tensor indexed by a " + i_.type_name(each) + " in this place");
    }
  }
  return wrap(same ? program::alias(x) : x);
}

/// On the host nothing is kept of what tensors hold; on the device it would be a copy into a part.
void Torch::set_indexed(const Value& of, const Value&, const Value&) {
  if (is_on_device(tensor(of))) i_.unknown("an assignment into a part of a tensor");
}

Value Torch::rows_of(const Value& of) {
  const Tensor x = tensor(of);
  if (x.rank() == 0) i_.raise("TypeError", "iteration over a 0-d tensor");
  constexpr std::int64_t kMostRows = 10'000;
  if (x.size(0) > kMostRows) i_.unknown("a loop over the " + std::to_string(x.size(0)) + " rows of a tensor");
  return wrap_all(program::unbind(x, 0));
}

}  // namespace plimsoll::code
