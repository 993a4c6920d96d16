#include "program/ops/einsum.hpp"

#include <algorithm>

#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// x with its dimensions in the order of `order`, 1 where it has none of them.
Tensor arranged(const Tensor& x_in, const std::string& labels, const std::string& order) {
  Tensor x = x_in;
  Dims permutation;
  int added = 0;
  for (const char label : order) {
    const std::size_t at = labels.find(label);
    if (at != std::string::npos) {
      permutation.push_back(static_cast<std::int64_t>(at));
    } else {
      x = unsqueeze(x, x.rank());
      permutation.push_back(static_cast<std::int64_t>(labels.size()) + added++);
    }
  }
  return permute(x, permutation);
}

struct Roles {
  std::vector<int> both, left, right, summed;
};

Dims joined(std::initializer_list<const std::vector<int>*> lists) {
  Dims all;
  for (const std::vector<int>* list : lists)
    for (const int each : *list) all.push_back(each);
  return all;
}

std::int64_t size_of_all(const Tensor& x, const std::vector<int>& dimensions) {
  std::int64_t size = 1;
  for (const int each : dimensions) size *= x.size(each);
  return size;
}

/// sumproduct_pair: permuted, reshaped to a batch of matrices, multiplied, and back.
Tensor contracted(Tensor left, Tensor right, int kept) {
  Roles roles;
  for (int i = 0; i < left.rank(); ++i) {
    const bool in_left = left.size(i) != 1, in_right = right.size(i) != 1;
    if (i >= kept) {
      roles.summed.push_back(i);
      if (in_left && !in_right) left = sum(left, {i}, true);
      if (in_right && !in_left) right = sum(right, {i}, true);
    } else if (in_left && in_right) {
      roles.both.push_back(i);
    } else {
      (in_left ? roles.left : roles.right).push_back(i);
    }
  }
  if (roles.summed.empty()) return multiply(left, right);
  const std::int64_t batch = size_of_all(left, roles.both), rows = size_of_all(left, roles.left), inner = size_of_all(left, roles.summed),
                     columns = size_of_all(right, roles.right);
  Dims sizes, back = left.sizes();
  int next = 0;
  for (const auto* list : {&roles.both, &roles.left, &roles.summed, &roles.right})
    for (const int each : *list) {
      sizes.push_back(list == &roles.summed ? 1 : (list == &roles.right ? right : left).size(each));
      back[each] = next++;
    }
  left = reshape(permute(left, joined({&roles.both, &roles.left, &roles.summed, &roles.right})), {batch, rows, inner});
  right = reshape(permute(right, joined({&roles.both, &roles.summed, &roles.right, &roles.left})), {batch, inner, columns});
  const Tensor result = permute(view(bmm(left, right), sizes), back);
  Dims out;
  for (int i = 0; i < kept; ++i) out.push_back(result.size(i));
  return view(result, out);
}

}  // namespace

Tensor einsum(const std::vector<std::string>& labels, const std::string& out, const std::vector<Tensor>& operands) {
  std::string order = out;
  for (const std::string& each : labels)
    for (const char label : each)
      if (order.find(label) == std::string::npos) order += label;
  std::vector<Tensor> arranged_operands;
  for (std::size_t i = 0; i < operands.size(); ++i) arranged_operands.push_back(arranged(autocast_low(operands[i]), labels[i], order));
  const int kept = static_cast<int>(out.size());
  if (operands.size() == 2) {
    const Tensor right = std::move(arranged_operands.back());
    arranged_operands.pop_back();
    return contracted(std::move(arranged_operands.front()), right, kept);
  }
  std::vector<int> summed;
  for (int i = kept; i < static_cast<int>(order.size()); ++i) summed.push_back(i);
  return summed.empty() ? arranged_operands.front() : sum(arranged_operands.front(), summed, false);
}

}  // namespace plimsoll::program
