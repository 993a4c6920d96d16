// A step of a program beside a step of a trace, kernel by kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/trace.hpp"
#include "trace/align.hpp"

namespace plimsoll {
namespace {

constexpr const char* kCollectives = "collectives";
constexpr const char* kCopies = "copies and sets";
constexpr const char* kNotInProgram = "not in the program";

struct Part {
  trace::Piece piece;
  std::string what, where;
  double seconds = 0;
};

// ---- what both sides can be recognised by ----------------------------------------------------------------------------

std::string key_of(const Product& p) {
  const auto [small, large] = std::minmax(p.m, p.n);  // which operand comes first is the framework's way of writing
  return fmt::format("product {} {} {} {} {}", small, large, p.k, p.batch, name_of(p.a));
}
std::string key_of(const Attention& a) {
  return fmt::format("attention {} {} {} {} {} {}", static_cast<int>(a.part), a.batch, a.heads, a.queries, a.keys, a.head_dim);
}
std::string set_key(std::int64_t bytes) { return fmt::format("set {}", bytes); }
/// What reads nothing sets: as cudaMemsetAsync does.
std::string key_of(const Pointwise& k) {
  return k.operands.reads() == 0 ? set_key(k.operands.bytes_written()) : fmt::format("pointwise {}", k.elements);
}
std::string key_of(const Reduction& k) { return fmt::format("reduction {} {}", k.outputs, k.reduced); }
std::string key_of(const RowWise& k) { return fmt::format("rows {} {} {}", static_cast<int>(k.function), k.rows, k.columns); }
std::string key_of(const Gather& k) { return fmt::format("gather {}", static_cast<int>(k.function)); }
std::string key_of(const MultiTensor& k) { return fmt::format("lists {} {}", static_cast<int>(k.function), k.operands.size()); }
std::string key_of(const Convolution& k) { return fmt::format("convolution {} {} {} {}", static_cast<int>(k.pass), k.batch, k.in, k.out); }
std::string key_of(const Unspecified&) { return {}; }

trace::Piece piece_of(const Kernel& kernel, bool known) {
  return {known ? std::visit([](const auto& work) { return key_of(work); }, kernel.work) : std::string(), std::string(name_of(kernel.kind()))};
}

trace::Piece piece_of(const Copy& copy) {
  return {copy.direction == Copy::Direction::set ? set_key(copy.bytes) : fmt::format("copy {} {}", static_cast<int>(copy.direction), copy.bytes), kCopies};
}

trace::Piece piece_of(const Collective& collective) {
  return {collective.bytes > 0 ? fmt::format("{} {}", name_of(collective.kind), collective.bytes) : std::string(), kCollectives};
}

/// "layers.7.mlp" of "model.layers.7.mlp.down_proj": up to the first number, or the first word.
std::string layer_of(const std::string& label) {
  std::size_t from = 0;
  for (std::size_t dot = label.find('.'); from < label.size(); from = dot + 1, dot = label.find('.', from)) {
    const std::string part = label.substr(from, dot == std::string::npos ? dot : dot - from);
    if (!part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) return label.substr(0, from + part.size());
    if (dot == std::string::npos) break;
  }
  return label.substr(0, label.find('.'));
}

/// "layers.*.mlp": the same place of all layers.
std::string without_numbers(const std::string& label) {
  std::string text;
  bool number = false;
  for (std::size_t i = 0; i < label.size(); ++i) {
    number = std::isdigit(static_cast<unsigned char>(label[i])) != 0 && (number || i == 0 || label[i - 1] == '.');
    if (!number)
      text += label[i];
    else if (text.empty() || text.back() != '*')
      text += '*';
  }
  return text;
}

// ---- both sides ------------------------------------------------------------------------------------------------------

std::vector<Part> parts_of(const StepProgram& program, const Timeline& timeline) {
  std::vector<Part> parts;
  std::vector<plimsoll::Event> events = timeline.events;
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.start < b.start; });
  for (const plimsoll::Event& event : events) {
    const Instruction& instruction = program.step[event.instruction];
    Part part;
    part.where = program.labels[instruction.label];
    part.seconds = (event.end - event.start).value;
    if (instruction.kind == InstructionKind::kernel) {
      const Kernel& kernel = program.kernels[instruction.id];
      part.piece = piece_of(kernel, true);
      part.what = describe(kernel);
    } else if (instruction.kind == InstructionKind::copy) {
      part.piece = piece_of(program.copies[instruction.id]);
      part.what = fmt::format("copy or set of {} B", program.copies[instruction.id].bytes);
    } else if (instruction.kind == InstructionKind::collective) {
      const Collective& collective = program.collectives[instruction.id];
      part.piece = piece_of(collective);
      part.what = fmt::format("{} of {} B", name_of(collective.kind), collective.bytes);
    } else {
      continue;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Part> parts_of(const Trace& trace, const TracedStep& step) {
  std::vector<Part> parts;
  for (std::size_t i = step.begin; i < step.end; ++i) {
    const TracedWork& work = trace.work[i];
    Part part;
    part.where = trace.operations[work.operation].empty() ? trace.names[work.name].substr(0, 60) : trace.operations[work.operation];
    part.seconds = work.seconds;
    switch (work.kind) {
      case TracedWork::Kind::kernel:
        part.piece = piece_of(trace.kernels[work.id], work.shaped);
        part.what = work.shaped ? describe(trace.kernels[work.id]) : trace.names[work.name].substr(0, 80);
        break;
      case TracedWork::Kind::copy:
        part.piece = piece_of(trace.copies[work.id]);
        part.what = fmt::format("copy or set of {} B", trace.copies[work.id].bytes);
        break;
      case TracedWork::Kind::collective:
        part.piece = piece_of(trace.collectives[work.id].what);
        part.what = fmt::format("{} of {} B", name_of(trace.collectives[work.id].what.kind), trace.collectives[work.id].what.bytes);
        break;
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

/// Seconds in which at least one piece of work ran.
double busy(const Trace& trace, const TracedStep& step) {
  double sum = 0, until = -HUGE_VAL;
  for (std::size_t i = step.begin; i < step.end; ++i) {
    const double from = std::max(trace.work[i].start, until), to = trace.work[i].start + trace.work[i].seconds;
    if (to > from) sum += to - from, until = to;
  }
  return sum;
}

/// From one step to the next; of the last one (and of one alone) as long as its marks, or its work, say.
double length_of(const Trace& trace, std::size_t i) {
  const TracedStep& step = trace.steps[i];
  if (i + 1 < trace.steps.size()) return trace.steps[i + 1].host_start - step.host_start;
  double end = 0;
  for (std::size_t j = step.begin; j < step.end; ++j) end = std::max(end, trace.work[j].start + trace.work[j].seconds);
  return std::max(end, step.host_end) - (step.host_end > step.host_start ? step.host_start : trace.work[step.begin].start);
}

/// The step of median length among those with the usual number of pieces: a first step that is recorded half, or one that saves a
/// checkpoint, stands for nothing.
std::size_t median_step(const Trace& trace) {
  std::vector<std::size_t> sizes, order;
  for (const TracedStep& step : trace.steps) sizes.push_back(step.end - step.begin);
  std::vector<std::size_t> sorted = sizes;
  std::sort(sorted.begin(), sorted.end());
  const double usual = static_cast<double>(sorted[sorted.size() / 2]);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (std::abs(static_cast<double>(sizes[i]) - usual) <= usual / 20) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return length_of(trace, a) < length_of(trace, b); });
  return order[order.size() / 2];
}

// ---- the table -------------------------------------------------------------------------------------------------------

class Tables {
 public:
  void add(const Part* predicted, const Part* measured) {
    const Part& first = predicted != nullptr ? *predicted : *measured;
    add_to(classes_[first.piece.kind], first.piece.kind, predicted, measured);
    const std::string layer = predicted != nullptr ? layer_of(predicted->where) : kNotInProgram;
    add_to(layers_[layer], layer, predicted, measured);
    const auto kind = measured == nullptr    ? TraceDifference::Kind::extra
                      : predicted == nullptr ? TraceDifference::Kind::missing
                                             : TraceDifference::Kind::time;
    const std::string where = without_numbers(first.where);
    TraceDifference& difference = differences_[fmt::format("{} {} {}", static_cast<int>(kind), first.what, where)];
    difference.kind = kind;
    difference.what = first.what;
    difference.where = where;
    ++difference.count;
    difference.predicted += predicted != nullptr ? predicted->seconds : 0;
    difference.measured += measured != nullptr ? measured->seconds : 0;
  }

  void give(TraceComparison& comparison) const {
    for (const auto& [name, line] : classes_) comparison.classes.push_back(line);
    for (const auto& [name, line] : layers_) comparison.layers.push_back(line);
    for (const auto& [name, difference] : differences_) comparison.differences.push_back(difference);
    const auto dearer = [](const TraceLine& a, const TraceLine& b) { return a.measured + a.predicted > b.measured + b.predicted; };
    std::stable_sort(comparison.classes.begin(), comparison.classes.end(), dearer);
    std::stable_sort(comparison.layers.begin(), comparison.layers.end(), dearer);
    std::stable_sort(comparison.differences.begin(), comparison.differences.end(),
                     [](const auto& a, const auto& b) { return std::abs(a.predicted - a.measured) > std::abs(b.predicted - b.measured); });
  }

 private:
  static void add_to(TraceLine& line, const std::string& what, const Part* predicted, const Part* measured) {
    line.what = what;
    line.predicted_count += predicted != nullptr ? 1 : 0;
    line.measured_count += measured != nullptr ? 1 : 0;
    line.predicted += predicted != nullptr ? predicted->seconds : 0;
    line.measured += measured != nullptr ? measured->seconds : 0;
  }

  std::map<std::string, TraceLine> classes_, layers_;
  std::map<std::string, TraceDifference> differences_;
};

}  // namespace

TraceComparison compare_trace(const StepProgram& program, const Pricing& pricing, const Trace& trace) {
  const Timeline timeline = play_time(program, pricing);
  const std::size_t which = median_step(trace);
  const TracedStep& step = trace.steps[which];
  const std::vector<Part> predicted = parts_of(program, timeline), measured = parts_of(trace, step);
  std::vector<trace::Piece> a, b;
  for (const Part& part : predicted) a.push_back(part.piece);
  for (const Part& part : measured) b.push_back(part.piece);
  Tables tables;
  std::vector<bool> paired_a(a.size()), paired_b(b.size());
  TraceComparison comparison;
  for (const auto& [i, j] : trace::align(a, b)) {
    tables.add(&predicted[i], &measured[j]);
    paired_a[i] = paired_b[j] = true;
    ++comparison.matched;
  }
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!paired_a[i]) tables.add(&predicted[i], nullptr);
  for (std::size_t j = 0; j < b.size(); ++j)
    if (!paired_b[j]) tables.add(nullptr, &measured[j]);
  tables.give(comparison);
  comparison.step = step.name;
  for (const Part& part : predicted) comparison.predicted_busy += part.seconds;
  comparison.measured_busy = busy(trace, step);
  comparison.predicted_step = timeline.step.value;
  comparison.measured_step = length_of(trace, which);
  comparison.measured_gaps = std::max(0.0, comparison.measured_step - comparison.measured_busy);
  comparison.notes = trace.notes;
  if (trace.steps.size() > 1) comparison.notes.push_back(fmt::format("{} steps in the trace: the median one is compared", trace.steps.size()));
  return comparison;
}

}  // namespace plimsoll
