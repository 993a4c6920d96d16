// Grouped experts (integrations/moe.py): the steps of grouped_mm_experts_forward that read what a router chose, as the tape's operators.
#include "code/transformers/experts.hpp"

#include "code/torch/torch.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::code {

using program::Tensor;

namespace {

Tensor tensor(Interpreter& i, const Value& value, const char* what) { return i.torch().tensor_of(value, what); }

Tensor indices(Interpreter& i, const Value& value, const char* what) {
  Tensor found = tensor(i, value, what);
  if (found.dtype() != DType::int64 || found.rank() != 1) i.raise("TypeError", std::string(what) + " must be int64, of one dimension");
  return found;
}

/// torch.sort(expert_ids): values and their order.
Value sorted_choice(Interpreter& i, Bound& a) {
  program::SortedIntegers sorted = program::sort_integers(indices(i, a[0], "expert_ids"));
  return i.tuple({i.torch().wrap(std::move(sorted.values)), i.torch().wrap(std::move(sorted.order))});
}

/// x[order // among] of rows that several experts get; of one, x[order].
Value chosen_rows(Interpreter& i, Bound& a) {
  const Tensor x = tensor(i, a[0], "rows"), order = indices(i, a[1], "perm");
  if (x.rank() < 1) i.torch().wrong_shape("rows of a number");
  if (!a.has(2)) return i.torch().wrap(program::index_rows(x, order));
  const Tensor tokens = program::elementwise(order.tape(), {&order}, DType::int64);
  return i.torch().wrap(program::index_rows(x, tokens));
}

/// torch.histc(chosen, bins) of int32: how many rows each expert gets.
Value rows_of_experts(Interpreter& i, Bound& a) {
  const Tensor chosen = tensor(i, a[0], "histc_input");
  if (chosen.dtype() != DType::int32 || chosen.rank() != 1) i.raise("TypeError", "histc_input must be int32, of one dimension");
  return i.torch().wrap(program::histogram(chosen, i.whole(a[1], "num_experts")));
}

/// torch.cumsum(counts, dtype=int32): where each expert's rows end.
Value ends_of_groups(Interpreter& i, Bound& a) {
  const Tensor counts = tensor(i, a[0], "tokens_per_expert");
  return i.torch().wrap(program::cumulative_sum(counts, counts.dtype()));
}

Value grouped_product(Interpreter& i, Bound& a) {
  const Tensor x = tensor(i, a[0], "input"), stored = tensor(i, a[1], "weight"), ends = tensor(i, a[2], "offs"),
               bias = i.torch().tensor_or_none(a[3], "bias");
  const bool transposed = i.truth(a[4]);
  if (x.rank() != 2 || stored.rank() != 3) i.torch().wrong_shape("grouped_mm asks for rows and a weight of each group");
  const Tensor weight = transposed ? program::transpose(stored, 1, 2) : stored;
  if (weight.size(2) != x.size(1))
    i.torch().wrong_shape("contraction dimension of mat_a and mat_b must match: " + std::to_string(x.size(1)) + " and " +
                          std::to_string(weight.size(2)));
  const Tensor product = program::grouped_product(x, weight, ends);
  return i.torch().wrap(bias ? program::add_into(product, bias) : product);
}

/// inverse[order] = torch.arange(order.size(0)).
Value inverse_order(Interpreter& i, Bound& a) {
  const Tensor order = indices(i, a[0], "perm");
  const Tensor inverse = program::empty_like(order);
  {
    const Tensor range = program::arange(order.tape(), inverse.size(0));
    program::in_place(inverse, {&range});
  }
  return i.torch().wrap(inverse);
}

constexpr LibraryRow kRows[] = {
    {"sorted_choice", "chosen", sorted_choice},
    {"chosen_rows", "x, order, among=", chosen_rows},
    {"rows_of_experts", "chosen, experts", rows_of_experts},
    {"ends_of_groups", "counts", ends_of_groups},
    {"grouped_product", "x, weight, ends, bias, transposed", grouped_product},
    {"inverse_order", "order", inverse_order},
};

constexpr const char* kText = R"py(
from plimsoll import chosen_rows, ends_of_groups, grouped_product, inverse_order, rows_of_experts, sorted_choice


def grouped_mm_experts_forward(self, hidden_states, top_k_index, top_k_weights):
    num_top_k = top_k_index.size(-1)
    num_tokens = hidden_states.size(0)
    hidden_dim = hidden_states.size(-1)
    sample_weights = top_k_weights.reshape(-1)
    expert_ids = top_k_index.reshape(-1)
    expert_ids_g, perm = sorted_choice(expert_ids)
    selected_hidden_states_g = chosen_rows(hidden_states, perm, num_top_k)
    sample_weights_g = chosen_rows(sample_weights, perm)
    histc_input = expert_ids_g.int()
    tokens_per_expert = rows_of_experts(histc_input, self.num_experts)
    offsets = ends_of_groups(tokens_per_expert)
    selected_weights = self.gate_up_proj if self.has_gate else self.up_proj
    selected_biases = None
    if self.has_bias:
        selected_biases = chosen_rows(self.gate_up_proj_bias if self.has_gate else self.up_proj_bias, expert_ids_g)
    proj_out = grouped_product(selected_hidden_states_g, selected_weights, offsets, selected_biases, self.is_transposed)
    proj_out = self._apply_gate(proj_out) if self.has_gate else self.act_fn(proj_out)
    selected_weights = self.down_proj
    selected_biases = chosen_rows(self.down_proj_bias, expert_ids_g) if self.has_bias else None
    proj_out = grouped_product(proj_out, selected_weights, offsets, selected_biases, self.is_transposed)
    if self.has_post_expert_norm:
        proj_out = self.post_expert_norm(proj_out)
    weighted_out = proj_out * sample_weights_g.unsqueeze(-1)
    inv_perm = inverse_order(perm)
    weighted_out = chosen_rows(weighted_out, inv_perm)
    final_hidden_states = weighted_out.view(num_tokens, num_top_k, hidden_dim).sum(dim=1)
    return final_hidden_states.to(hidden_states.dtype)


class _Experts:
    def get_interface(self, name, default):
        return grouped_mm_experts_forward if name == "grouped_mm" else default

    def get(self, name, default=None):
        return self.get_interface(name, default)

    def __contains__(self, name):
        return name == "grouped_mm"


ALL_EXPERTS_FUNCTIONS = _Experts()
)py";

}  // namespace

void define_experts(Interpreter& i) {
  NamespaceObject& library = i.library("plimsoll");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("plimsoll.") + row.name, row.signature, row.run);
  i.put_over("transformers.integrations.moe", kText);
}

}  // namespace plimsoll::code
