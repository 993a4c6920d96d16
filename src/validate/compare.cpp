#include "validate/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>

#include "estimate/residuals.hpp"
#include "framework/peft.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::validation {
namespace {

constexpr Bytes kUnbounded{std::int64_t{1} << 46};

/// The report of the rank that the row is about; nothing: the worst of all, quantity by quantity.
const RankReport* asked_rank(const Report& report, const Strategy& strategy) {
  if (!strategy.pp_rank) return nullptr;
  const RankReport* found = nullptr;
  for (const RankReport& rank : report.ranks)
    if (rank.stage <= *strategy.pp_rank) found = &rank;
  return found;
}

template <class Read>
double of_rank(const Report& report, const Strategy& strategy, Read read) {
  if (const RankReport* rank = asked_rank(report, strategy)) return read(*rank);
  double most = 0;
  for (const RankReport& rank : report.ranks) most = std::max(most, read(rank));
  return most;
}

std::int64_t total_parameters(const MeasuredRow& row) {
  const std::int64_t learnt = row.strategy.peft ? row.strategy.trainable_params : 0;
  return row.model->parameters() + learnt + (row.strategy.lora ? adapter_parameters(*row.model, *row.strategy.lora) : 0);
}

/// Reserved bytes as the run's trainer reads them.
double predicted_reserved(const Observed& seen, const Report& report, const Strategy& strategy) {
  return of_rank(report, strategy, [&](const RankReport& rank) {
    const RankMemory& memory = rank.memory;
    return static_cast<double>(
        (seen.of_optimizer && memory.optimizer_reserved > Bytes(0) ? memory.optimizer_reserved : memory.reserved).count);
  });
}

bool fits(const Observed& seen, const Report& report, const Strategy& strategy) {
  const RankReport* rank = seen.of_rank ? asked_rank(report, strategy) : nullptr;
  if (!rank) return report.verdict != Verdict::does_not_fit;
  return !rank->memory.out_of_memory && !(rank->memory.margin() < Bytes(0));
}

/// The prediction of one quantity, or nothing for what is not predicted.
std::optional<double> predicted(const Observed& seen, const Report& report, const Strategy& strategy) {
  const std::string& what = seen.quantity;
  auto count = [](Bytes bytes) { return static_cast<double>(bytes.count); };
  if (what == quantity::step_seconds) return report.time.step_seconds.expected;
  if (what == quantity::tokens_per_second) return report.time.tokens_per_second_per_gpu;
  if (what == quantity::fits) return fits(seen, report, strategy) ? 1.0 : 0.0;
  if (what == quantity::rank_parameters)
    return of_rank(report, strategy, [](const RankReport& rank) { return static_cast<double>(rank.parameters); });
  if (what == quantity::allocated) return of_rank(report, strategy, [&](const RankReport& rank) { return count(rank.memory.allocated); });
  if (what == quantity::reserved) return predicted_reserved(seen, report, strategy);
  if (what == quantity::backward_peak)
    return of_rank(report, strategy, [&](const RankReport& rank) { return count(rank.memory.backward_peak); });
  if (what == quantity::device) return of_rank(report, strategy, [](const RankReport& rank) { return rank.memory.device.expected; });
  const RankReport* rank = asked_rank(report, strategy);
  const std::optional<StepWork>& work = (rank ? *rank : report.worst_rank()).work;
  if (what == quantity::launches && work) return static_cast<double>(work->launches);
  if (what == quantity::gemm_flops && work) return work->gemm_flops;
  return std::nullopt;
}

double error_of(const Observed& seen, double value) {
  if (seen.quantity == quantity::fits || seen.value == 0) return value - seen.value;
  return value / seen.value - 1;
}

Comparison& add(RowResult& result, const std::string& source, const MeasuredRow& row, const Observed& seen, double value) {
  return result.comparisons.emplace_back(Comparison{source, row.id, seen.quantity, value, seen.value, value, value, error_of(seen, value),
                                                    seen.lower_bound, {}, Basis::closed_form, {}, {}});
}

/// Whether the rank that is asked about ran out of memory, or any where none is.
bool ran_out(const Report& report, const Strategy& strategy) {
  if (const RankReport* rank = asked_rank(report, strategy)) return rank->memory.out_of_memory;
  return std::any_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) { return rank.memory.out_of_memory; });
}

/// The strategy as it runs; nothing where it does not resolve, as a predictor that stands in for `estimate` may be asked.
std::optional<Strategy> resolved_of(const MeasuredRow& row) {
  try {
    return resolve(row.strategy, *row.model, *row.cluster);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// What two runs share that differ in their strategy alone: model, devices, release, batch, sequence, arithmetic and optimizer.
std::string question_of(const MeasuredRow& row, const Strategy& s) {
  const Model& model = *row.model;
  return fmt::format("{} {} {} {} {} | {} {} | {} {} | {} {} {} | {} {} {} {}", model.architecture, model.parameters(), model.layers,
                     model.heads, model.vocab_size, row.cluster->accelerator.name, s.gpus, s.framework, s.releases.text(),
                     s.global_batch, s.seq_len, static_cast<int>(s.task), static_cast<int>(s.precision), static_cast<int>(s.low_precision),
                     static_cast<int>(s.fp8_scaling), static_cast<int>(s.optimizer));
}

double host_share(const TimeReport& time) {
  for (const TimePart& part : time.breakdown)
    if (part.name == "host") return part.seconds.value / time.step_seconds.expected;
  return 0;
}

void take_band(Comparison& comparison, const Band& band) {
  comparison.low = band.low;
  comparison.high = band.high;
}

/// The band of a prediction: the report's own, or that of the same kind of run around what the row's rank needs.
void take_memory_band(Comparison& comparison, const Report& report, const MeasuredRow& row, const std::optional<Strategy>& resolved) {
  const RankReport* asked = asked_rank(report, row.strategy);
  const RankMemory& memory = (asked ? *asked : report.worst_rank()).memory;
  comparison.basis = memory.basis;
  if (comparison.quantity == quantity::device) take_band(comparison, {memory.device.low, comparison.predicted, memory.device.high});
  if (!resolved || comparison.quantity == quantity::backward_peak) return;
  comparison.kind = estimation::memory_kind(*row.model, *row.cluster, *resolved, memory.basis);
  if (comparison.quantity != quantity::device)
    take_band(comparison, estimation::band_of("bytes", comparison.kind, comparison.predicted));
}

void take_time_band(Comparison& comparison, const Report& report, const MeasuredRow& row, const std::optional<Strategy>& resolved) {
  comparison.basis = report.time.basis;
  comparison.closed_form_because = report.time.closed_form_because;
  const Band& step = report.time.step_seconds;
  const double counted = comparison.predicted * step.expected;  // by a rate, in a step
  const bool whole = comparison.quantity == quantity::step_seconds;
  take_band(comparison, whole ? step : Band{counted / step.high, comparison.predicted, counted / step.low});
  if (!resolved) return;
  comparison.kind = estimation::time_kind(*row.model, *row.cluster, *resolved, report.time.basis, host_share(report.time));
  if (whole) comparison.question = question_of(row, *resolved);
}

/// Compares everything that needs a step. A peak that was measured is predicted without the limit that cut the prediction short.
void compare_step(RowResult& result, const std::string& source, const MeasuredRow& row, const Predictor& predictor) {
  const Report report = predictor(*row.model, *row.cluster, row.strategy);
  std::optional<Report> unbounded;
  const bool memory_measured =
      std::any_of(row.measured.begin(), row.measured.end(), [](const Observed& seen) { return is_memory(seen.quantity); });
  if (memory_measured && ran_out(report, row.strategy)) {
    Cluster cluster = *row.cluster;
    cluster.accelerator.memory_usable.value = kUnbounded;
    unbounded = predictor(*row.model, cluster, row.strategy);
  }
  const std::optional<Strategy> resolved = resolved_of(row);
  for (const Observed& seen : row.measured) {
    if (seen.quantity == quantity::parameters) continue;
    const Report& from = unbounded && is_memory(seen.quantity) ? *unbounded : report;
    const auto value = predicted(seen, from, row.strategy);
    if (!value) continue;
    Comparison& comparison = add(result, source, row, seen, *value);
    if (is_memory(seen.quantity)) take_memory_band(comparison, from, row, resolved);
    if (is_time(seen.quantity)) take_time_band(comparison, from, row, resolved);
  }
}

std::string quantities_of(const MeasuredRow& row) {
  std::string list;
  for (const Observed& seen : row.measured) list += (list.empty() ? "" : ", ") + seen.quantity;
  return list.empty() ? "nothing that plimsoll predicts" : list;
}

/// Whether a module is, or lies within, one that PEFT's list names by the end of its path.
bool named(const std::string& path, const std::vector<std::string>& names) {
  const std::string dotted = "." + path + ".";
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return dotted.find("." + name + ".") != std::string::npos; });
}

/// Parameters of the copies that are trained whole (modules_to_save); what is tied has one copy.
std::int64_t saved_copies(const Model& model, const std::vector<std::string>& modules) {
  std::set<std::string> counted;
  std::int64_t total = 0;
  for (const Block& block : model.blocks) {
    for (const Operator& op : block.operators) {
      for (const ParameterTensor& tensor : op.parameters) {
        const std::string full = full_name(block, 0, tensor);
        if (!named(full.substr(0, full.rfind('.')), modules)) continue;
        if (counted.insert(tensor.tied_to.empty() ? full : tensor.tied_to).second) total += block.repeat * tensor.elements();
      }
    }
  }
  return total;
}

}  // namespace

bool is_time(const std::string& quantity) { return quantity == quantity::step_seconds || quantity == quantity::tokens_per_second; }

bool is_memory(const std::string& quantity) {
  return quantity == quantity::allocated || quantity == quantity::reserved || quantity == quantity::device ||
         quantity == quantity::backward_peak;
}

std::int64_t adapter_parameters(const Model& model, const Lora& lora) {
  const framework::MixtureTargets mixture = framework::mixture_targets(model, lora.targets);
  const std::vector<std::string>& targets = mixture.linears;
  const bool all = targets == std::vector<std::string>{framework::kAllLinear};
  auto adapted = [&](const std::string& name) {
    return all || std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
             const std::size_t at = name.rfind(target);
             return at != std::string::npos && at + target.size() == name.size() && (at == 0 || name[at - 1] == '.');
           });
  };
  std::int64_t total = saved_copies(model, lora.modules_to_save) + framework::mixture_adapter_elements(model, mixture, lora.r);
  for (const Block& block : model.blocks) {
    if (block.role == Block::Role::head) continue;
    for (const Operator& op : block.operators) {
      if (op.kind != OperatorKind::linear || !adapted(op.name)) continue;
      total += block.repeat * (lora.r * (op.in_features + op.out_features) + (lora.dora ? op.out_features : 0));
    }
  }
  return total;
}

RowResult compare_row(const std::string& source, const MeasuredRow& row, const Predictor& predictor) {
  RowResult result;
  if (!row.refused.empty()) return {{}, row.refused};
  for (const Observed& seen : row.measured)
    if (seen.quantity == quantity::parameters) add(result, source, row, seen, static_cast<double>(total_parameters(row)));
  try {
    if (row.cluster) compare_step(result, source, row, predictor);
    if (result.comparisons.empty()) result.refused = "not predicted: " + quantities_of(row);
  } catch (const std::exception& error) {
    result.refused = error.what();
  }
  return result;
}

}  // namespace plimsoll::validation
