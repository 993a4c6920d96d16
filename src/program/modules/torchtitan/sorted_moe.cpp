// TorchTitan's mixture of experts from July 2025 to 0.2.2 (torchtitan/models/moe/moe.py, moe/utils.py, distributed/expert_parallel.py).
#include <cmath>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/expert_parallel.hpp"
#include "program/modules/torchtitan/moe.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {

namespace {

/// TOKEN_GROUP_ALIGN_SIZE_M of 16-bit products: rows of an expert come in whole groups of as many.
constexpr std::int64_t kGroup = 8;

/// base[indices] = rows, where `base` is new and takes no gradient.
Tensor put_rows(const Tensor& base, const Tensor& indices, const Tensor& rows) {
  Op op("index_put_", {&rows});
  op.save(indices);
  gather(Gather::Function::scatter, rows.elements(), {&rows, &indices}, {&base});
  Tensor y = base;
  return op.done(y, [sizes = rows.sizes()](BackwardCall& b) {
    Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &b.saved(0)}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

/// torch.gather(x, 0, indices of whole rows).
Tensor gather_whole_rows(const Tensor& x, const Tensor& indices) {
  Op op("gather", {&x});
  op.save(indices);
  op.save(x);  // gather_backward takes it for its sizes
  Tensor y = op.output({indices.size(0), x.size(1)}, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

/// x.scatter_add(0, indices of whole rows, rows), with atomic additions.
Tensor add_rows(const Tensor& x, const Tensor& indices, const Tensor& rows) {
  Op op("scatter_add", {&x, &rows});
  op.save(indices);
  Tensor y = op.output(x.sizes(), x.dtype());
  pointwise(Pointwise::Form::map, {&x}, {&y});
  gather(Gather::Function::scatter, rows.elements(), {&rows}, {&y});
  return op.done(y, [sizes = rows.sizes()](BackwardCall& b) {
    b.give(0, b.grad());
    Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &b.saved(0)}, {&gradient});
    b.give(1, std::move(gradient));
  });
}

/// torch.histc(experts, bins): in the type of what it counts.
Tensor count_experts(const Tensor& experts, std::int64_t bins) {
  const Tensor counts = zeros(experts.tape(), {bins}, experts.dtype());
  gather(Gather::Function::scatter, experts.elements(), {&experts}, {&counts});
  return counts;
}

class SortedMoe final : public TitanMixture {
 public:
  SortedMoe(Module& parent, const MoeSpec& spec, const TitanContext& context)
      : context_(context),
        spec_(spec),
        module_(add_titan_module(parent, "moe", context.tape)),
        experts_(add_titan_module(module_, "experts", context.tape)),
        router_(add_titan_module(module_, "router", context.tape)) {
    if (context.run.tensor_parallel.on())
      refuse("tensor parallelism of TorchTitan's mixtures before 0.3 is not modelled", "releases.torchtitan", "0.3.0");
    if (spec.expert_bias || spec.router_bias)
      refuse("TorchTitan's experts with biases are not modelled before 0.3", "releases.torchtitan", "0.3.0");
    const std::int64_t own = spec.experts / context.run.expert_ranks, inner = spec.expert_intermediate;
    add_titan_parameter(experts_, "w1", {own, inner, spec.hidden});
    add_titan_parameter(experts_, "w2", {own, spec.hidden, inner});
    add_titan_parameter(experts_, "w3", {own, inner, spec.hidden});
    for (auto& parameter : experts_.parameters) parameter->expert = true;
    gate_ = add_titan_linear(router_, "gate", spec.hidden, spec.experts, context.tape);
    if (spec.shared_intermediate > 0)
      shared_.emplace(module_, "shared_experts", spec.hidden, spec.shared_intermediate, context, TitanFeedForward::Input::gathered,
                      TitanFeedForward::Output::summed_outside);
    for (const char* name : {"expert_bias_E", "tokens_per_expert_E"})
      module_.buffers.push_back({.name = name, .sizes = {spec.experts}, .type = DType::fp32, .tensor = {}});
  }

  Tensor operator()(const Tensor& input) const override {
    Tensor x = input;
    ModuleCall call(module_, context_.tape, {&x});
    const Dims sizes = x.sizes();
    x = view(x, {-1, spec_.hidden});
    const Routing routing = route(x);
    in_place(module_.buffer("tokens_per_expert_E"), {&routing.counts});
    const Tensor out = unsorts() ? mixed_in_order(x, routing) : mixed(x, routing);
    return call.done(reshape(out, sizes));
  }

 private:
  struct Routing {
    Tensor scores, experts;  ///< [tokens, top_k]
    Tensor counts;           ///< of each expert's tokens
  };
  /// TokenReorderer.forward.
  struct Sorted {
    Tensor scores, order;  ///< of pairs of token and expert, by expert
    Tensor counts;
  };
  /// Rows as grouped products take them.
  struct Padded {
    Tensor rows, indices, counts;
    Dims before;  ///< sizes of the rows, and a row of zeros behind them
  };

  bool unsorts() const { return context_.run.experts == TitanRun::Experts::unsorted; }

  /// TokenChoiceTopKRouter.forward.
  Routing route(const Tensor& input) const {
    Tensor x = input;
    ModuleCall call(router_, context_.tape, {&x});
    Tensor scores;
    {
      const OutsideOfPolicy outside(context_.tape, false);
      scores = gate_(x);
    }
    {
      const Tensor wide = to(scores, DType::fp32);
      scores = context_.run.router.softmax ? softmax(wide, DType::fp32) : sigmoid(wide);
    }
    Tensor choice = add(scores, module_.buffer("expert_bias_E"));
    if (spec_.groups > 0) choice = scores_within_groups(spec_, choice);
    Routing routing;
    routing.experts = (unsorts() ? unsorted_top_k(choice, spec_.top_k) : top_k(choice, spec_.top_k)).indices;
    routing.scores = gather_last(scores, routing.experts);
    if (context_.run.router.normalized) {
      Tensor denominator;
      {
        const Tensor total = sum(routing.scores, {-1}, true);
        denominator = add_scalar(total);
      }
      routing.scores = divide(routing.scores, denominator);
    }
    routing.scores = multiply_scalar(routing.scores);
    routing.counts = count_experts(routing.experts, spec_.experts);
    call.done({&routing.scores, &routing.experts});
    return routing;
  }

  Sorted sort(const Routing& routing) const {
    Sorted sorted;
    sorted.counts = count_experts(routing.experts, spec_.experts);
    {
      const SortedIntegers all = sort_integers(view(routing.experts, {-1}));
      sorted.order = all.order;
    }
    sorted.scores = index_rows(view(routing.scores, {-1}), sorted.order);
    return sorted;
  }

  /// MoE.forward since November 2025: outputs are put back in the order of tokens, and summed there with their scores.
  Tensor mixed_in_order(const Tensor& x, const Routing& routing) const {
    const Sorted sorted = sort(routing);
    Tensor routed;
    {
      const Tensor tokens = elementwise(context_.tape, {&sorted.order}, DType::int64);  // order // top_k
      routed = index_rows(x, tokens);
    }
    const Tensor outputs = run_experts(routed, sorted.counts);
    Tensor common;
    if (shared_) common = (*shared_)(x);
    Tensor unsorted = zeros(context_.tape, outputs.sizes(), outputs.dtype());
    unsorted = put_rows(unsorted, sorted.order, outputs);
    unsorted = reshape(unsorted, {-1, spec_.top_k, spec_.hidden});
    Tensor summed;
    {
      const Tensor wide = to(unsorted, DType::fp32);
      summed = bmm(reshape(routing.scores, {-1, 1, spec_.top_k}), wide);
    }
    summed = squeeze(to(summed, x.dtype()), 1);
    return shared_ ? add(common, summed) : summed;
  }

  /// The same before: outputs times their scores are added to their tokens.
  Tensor mixed(const Tensor& x, const Routing& routing) const {
    Sorted sorted = sort(routing);
    sorted.order = elementwise(context_.tape, {&sorted.order}, DType::int64);  // order // top_k
    const Tensor routed = gather_whole_rows(x, sorted.order);
    Tensor outputs = run_experts(routed, sorted.counts);
    Tensor out = shared_ ? (*shared_)(x) : zeros(context_.tape, x.sizes(), x.dtype());
    {
      Tensor weighted;
      {
        const Tensor wide = to(outputs, DType::fp32);
        weighted = multiply(wide, reshape(sorted.scores, {-1, 1}));
      }
      outputs = to(weighted, x.dtype());
    }
    out = add_rows(out, sorted.order, outputs);
    return out;
  }

  /// GroupedExperts.forward under ExpertParallel's hooks, or within indices_padding_wrapper.
  Tensor run_experts(const Tensor& routed, const Tensor& counts) const {
    Tensor rows = routed;
    ModuleCall call(experts_, context_.tape, {&rows});
    return call.done(context_.run.expert_ranks > 1 ? run_exchanged(rows, counts) : run_own(rows, counts));
  }

  Tensor run_own(const Tensor& rows, const Tensor& counts) const {
    const Padded padded = pad(rows, counts, 1);
    const Tensor out =
        run_grouped_experts(padded.rows, padded.counts, experts_.tensor("w1"), experts_.tensor("w2"), experts_.tensor("w3"));
    return unpad(out, padded);
  }

  /// ExpertParallel names what the last dispatch took its rows by. Without checkpoints backward keeps the same tensor; with them one of its
  /// size is always alive.
  void keep_indices(const Tensor& indices) const {
    if (context_.run.checkpointing == TitanRun::Checkpointing::none || indices_) return;
    indices_ = context_.tape.empty(indices.sizes(), indices.dtype());
  }

  /// _token_dispatch, the experts, _token_combine.
  Tensor run_exchanged(const Tensor& rows, const Tensor& counts) const {
    const std::int64_t ranks = context_.run.expert_ranks;
    const ExpertParallel group{ranks, true, context_.run.keeps_exchanges};
    Padded padded;
    {
      Tensor global;
      {
        const GradMode no_grad(context_.tape, false);
        global = all_to_all(group, counts);
        for (const Tensor* of : {&counts, static_cast<const Tensor*>(&global)})
          const Tensor splits = sum(view(*of, {ranks, spec_.experts / ranks}), {1}, false);
        context_.tape.read_back();
      }
      const auto received = static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.size(0)) * context_.run.imbalance));
      const Tensor own = all_to_all(group, rows, received);
      padded = pad(own, global, ranks);
    }
    keep_indices(padded.indices);
    // As DTensors over the ranks; their own parts, by nodes of the graph.
    const auto local = [this](const char* name) { return view(experts_.tensor(name), experts_.tensor(name).sizes()); };
    Tensor out;
    {
      const Tensor w1 = local("w1"), w2 = local("w2"), w3 = local("w3");
      out = run_grouped_experts(padded.rows, padded.counts, w1, w2, w3);
    }
    out = unpad(out, padded);
    return all_to_all(group, out, rows.size(0));
  }

  /// _permute.
  Padded pad(const Tensor& x, const Tensor& counts, std::int64_t ranks) const {
    const std::int64_t own = spec_.experts / context_.run.expert_ranks;
    const std::int64_t length = round_up(x.size(0) + own * kGroup, kGroup);
    Padded padded;
    {
      const GradMode no_grad(context_.tape, false);
      permute_indices(padded, counts, ranks, own, length);
    }
    Tensor longer;
    {
      const Tensor none = zeros(context_.tape, {x.size(1)}, x.dtype());
      longer = cat({x, unsqueeze(none, 0)}, 0);
    }
    padded.before = longer.sizes();
    padded.rows = index_rows(longer, padded.indices);
    return padded;
  }

  /// generate_permute_indices.
  void permute_indices(Padded& padded, const Tensor& counts, std::int64_t ranks, std::int64_t own, std::int64_t length) const {
    Tape& tape = context_.tape;
    const auto map = [&](const Tensor& x, DType type) { return elementwise(tape, {&x}, type); };
    Tensor starts, totals;
    {
      const Tensor ends = cumulative_sum(counts, DType::int64);
      starts = elementwise(tape, {&ends, &counts}, DType::int64);
    }
    totals = sum(view(counts, {ranks, own}), {0}, false);
    totals = map(totals, DType::int64);  // at least a group
    {
      Tensor whole = map(totals, DType::int64);  // in whole groups
      for (int i = 0; i < 3; ++i) whole = map(whole, DType::int64);
      padded.counts = to(whole, DType::int32);
    }
    const Tensor offsets = cumulative_sum(padded.counts, DType::int64);
    const Tensor writes = elementwise(tape, {&offsets, &padded.counts}, DType::int64);
    padded.indices = filled(tape, {length}, DType::int32);
    gather(Gather::Function::scatter, length, {&counts, &starts, &writes}, {&padded.indices});
    to(offsets, DType::int32);
  }

  /// _unpermute.
  Tensor unpad(const Tensor& out, const Padded& padded) const {
    const Tensor base = context_.tape.empty(padded.before, out.dtype());
    const Tensor back = put_rows(base, padded.indices, out);
    return slice(back, 0, 0, padded.before[0] - 1);
  }

  TitanContext context_;
  MoeSpec spec_;
  Module& module_;
  Module& experts_;
  Module& router_;
  Linear gate_;
  std::optional<TitanFeedForward> shared_;
  mutable Tensor indices_;
};

}  // namespace

std::unique_ptr<TitanMixture> make_sorted_mixture(Module& parent, const MoeSpec& spec, const TitanContext& context) {
  return std::make_unique<SortedMoe>(parent, spec, context);
}

}  // namespace plimsoll::program
