#include "trace/operator_shapes.hpp"

#include <algorithm>
#include <charconv>

namespace plimsoll::trace {
namespace {

bool has_strides(const TensorShape& shape) { return shape.strides.size() == shape.sizes.size(); }

std::vector<std::int64_t> whole_numbers(std::string_view list) {
  std::vector<std::int64_t> numbers;
  for (std::size_t at = 0; at < list.size();) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(list.data() + at, list.data() + list.size(), value);
    if (error == std::errc()) {
      numbers.push_back(value);
      at = static_cast<std::size_t>(end - list.data());
    } else {
      ++at;
    }
  }
  return numbers;
}

/// aten's names end in "_" when the first tensor is written in place.
bool in_place(const Operator& op) { return !op.name.empty() && op.name.back() == '_'; }

}  // namespace

bool is_transposed(const TensorShape& matrix) {
  const std::size_t rank = matrix.sizes.size();
  if (!has_strides(matrix) || rank < 2) return false;
  return matrix.strides[rank - 1] != 1 && matrix.strides[rank - 2] == 1;
}

std::int64_t leading(const TensorShape& matrix) {
  const std::size_t rank = matrix.sizes.size();
  if (!has_strides(matrix) || rank < 2) return rank == 0 ? 1 : matrix.sizes.back();
  return matrix.strides[is_transposed(matrix) ? rank - 1 : rank - 2];
}

void exchange_last_two(TensorShape& matrix) {
  for (auto* list : {&matrix.sizes, &matrix.strides})
    if (list->size() >= 2) std::swap((*list)[list->size() - 1], (*list)[list->size() - 2]);
}

std::optional<bool> flag_of(const Operator& op, AttentionLibrary) {
  std::vector<bool> flags;
  for (const std::string& constant : op.constants)
    if (constant == "True" || constant == "False") flags.push_back(constant == "True");
  if (flags.empty()) return {};
  // _scaled_dot_product_*(q, k, v, [bias, compute_log_sumexp,] dropout, is_causal, [return_debug_mask]) and their backwards: of two flags the
  // first is compute_log_sumexp, or the last return_debug_mask
  const bool debug_last = op.name.find("flash") != std::string::npos && op.name.find("backward") == std::string::npos;
  return debug_last ? flags.front() : flags.back();
}

std::optional<std::vector<std::size_t>> reduced_dimensions(const Operator& op) {
  const std::size_t rank = op.inputs[0].sizes.size();
  std::vector<std::size_t> dimensions;
  if (op.inputs.size() == 1 || op.name == "aten::all" || op.name == "aten::any") {
    for (std::size_t i = 0; i < rank; ++i) dimensions.push_back(i);
    return op.inputs.size() == 1 ? std::optional(dimensions) : std::nullopt;
  }
  if (op.constants.size() < 2) return {};
  for (const std::int64_t each : whole_numbers(op.constants[1])) {
    const std::int64_t dimension = each < 0 ? each + static_cast<std::int64_t>(rank) : each;
    if (dimension < 0 || dimension >= static_cast<std::int64_t>(rank)) return {};
    dimensions.push_back(static_cast<std::size_t>(dimension));
  }
  if (dimensions.empty())
    for (std::size_t i = 0; i < rank; ++i) dimensions.push_back(i);
  return dimensions;
}

PointwiseShapes pointwise_shapes(const Operator& op) {
  PointwiseShapes shapes;
  const bool writes_first = op.name == "aten::copy_" || op.name == "aten::fill_" || op.name == "aten::zero_";
  std::vector<std::int64_t> out;
  bool first = true;
  for (const TensorShape& each : op.inputs) {
    if (!each.type) continue;
    if (each.sizes.empty() && !first) continue;  // a scalar of the host
    for (std::size_t i = 0; i < each.sizes.size(); ++i) {
      if (out.size() < each.sizes.size()) out.insert(out.begin(), each.sizes.size() - out.size(), 1);
      std::int64_t& size = out[out.size() - each.sizes.size() + i];
      size = std::max(size, each.sizes[i]);
    }
    if (!(first && writes_first)) shapes.reads.push_back(each);
    first = false;
    if (in_place(op) && shapes.elements == 0) shapes.elements = each.elements();
  }
  const bool any = !first;
  if (shapes.elements == 0 && any) shapes.elements = TensorShape{{}, out, {}}.elements();
  return shapes;
}

Walk walk_of(const TensorShape& shape, std::int64_t elements) {
  bool repeats = shape.elements() < elements, in_order = true;
  std::int64_t distance = 1;
  for (std::size_t i = shape.sizes.size(); has_strides(shape) && i-- > 0;) {
    if (shape.sizes[i] == 1) continue;
    repeats = repeats || shape.strides[i] == 0;
    in_order = in_order && shape.strides[i] == distance;
    distance *= shape.sizes[i];
  }
  return repeats ? Walk::broadcast : in_order ? Walk::contiguous : Walk::strided;
}

}  // namespace plimsoll::trace
