#include "search/summary.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "estimate/read_programs.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/schedule.hpp"
#include "search/legality.hpp"

namespace plimsoll::searching {

namespace {

/// Through (few, at_few) and (many, at_many), layers of one chunk.
Line line(double few, double at_few, double many, double at_many) {
  const double slope = (at_many - at_few) / (many - few);
  return {at_few - slope * few, 0, slope};
}

/// Parts of a step that each layer of each micro-batch has, whatever pipelines and shards them.
bool recurs(const std::string& part) {
  return part == "compute" || part == "recompute" || part == "host" || part == "exposed_tensor_parallel" ||
         part == "exposed_context_parallel" || part == "exposed_expert_parallel";
}

constexpr double kOfHost = 0.75;  // of what a step of one micro-batch waits for its host: from one to the next the host gets ahead
constexpr const char* kFillsNoNodes = "the instance fills no whole nodes";
constexpr std::int64_t kShortStep = 8, kLongStep = 16;  // micro-batches of a pipeline's, multiples of their stages
constexpr int kLeastOfOneStage = 2, kLeastMixed = 4;    // layers: the first and the last of an FSDP model behave apart, and so do two kinds
constexpr int kLeastByUnits = 4;  // layers of Megatron-FSDP: its buffers lie for some of them at a time
constexpr std::int64_t kShortAccumulation = 2, kLongAccumulation = 4;
constexpr double kMoreMicroBatches = kLongStep - kShortStep;

/// Bytes of the tensors that the first forward pass of a step makes and its backward pass finds.
double kept_for_backward(const StepProgram& program) {
  std::unordered_map<std::uint32_t, std::int64_t> alive;
  for (const Instruction& each : program.step) {
    if (each.kind == InstructionKind::phase && static_cast<Phase>(each.id) == Phase::backward) break;
    if (each.kind == InstructionKind::alloc) alive[each.id] = each.bytes;
    if (each.kind == InstructionKind::free) alive.erase(each.id);
  }
  return std::accumulate(alive.begin(), alive.end(), 0.0, [](double sum, const auto& tensor) { return sum + static_cast<double>(tensor.second); });
}

/// Through the instances with few and many layers in each of `chunks`; and, where it is known, with few in each of a chunk more.
template <class Sizes>
Line line_by_chunks(int chunks, const Sizes& layers, double few, double many, const std::optional<double>& few_in_more) {
  const double per_layer = (many - few) / (chunks * layers.more());
  const double per_chunk = few_in_more ? *few_in_more - few - per_layer * layers.few : 0;
  return {few - chunks * (per_chunk + per_layer * layers.few), per_chunk, per_layer};
}

}  // namespace

Summarizer::Summarizer(const Space& space, const SearchRequest& request, State& state)
    : space_(space), request_(request), stack_(layer_stack(request.model)), state_(state) {}

Summarizer::Sizes Summarizer::sizes_of(const Row& row, bool pipelined) const {
  const std::int64_t least = pipelined      ? 1
                             : row.by_units ? kLeastByUnits
                             : mixed()      ? kLeastMixed
                                            : kLeastOfOneStage,
                     patterns = (least + stack_->period - 1) / stack_->period;
  const std::int64_t more = patterns * stack_->period;
  return {static_cast<int>(stack_->prefix + more), static_cast<int>(stack_->prefix + 2 * more)};
}

Strategy Summarizer::strategy_of(const Row& row, std::uint64_t setting, const Instance& instance) const {
  Options options = space_.layout_options(row.raw);
  const Options more = space_.setting_options(setting);
  options.insert(options.end(), more.begin(), more.end());
  Strategy s = with_options(request_, options);
  if (s.dp_shard * std::max(1, s.dp_replicate) != instance.ranks) s.dp_shard = s.dp_replicate = s.fsdp_degree = 0;
  s.gpus = 0;
  s.dp = static_cast<int>(instance.ranks);
  s.pp = instance.stages;
  s.vp = instance.chunks;
  if (instance.stages == 1) s.pp_schedule.clear();
  s.pp_layers.assign(instance.stages > 1 ? static_cast<std::size_t>(instance.stages * instance.chunks) : 0, instance.layers);
  s.micro_batch = row.micro_batch;
  s.global_batch = instance.micro_batches * row.micro_batch * instance.ranks;
  s.grad_accum = s.micro_batches = 0;
  return s;
}

Seen Summarizer::see(const Row& row, std::uint64_t setting, const Instance& instance) const {
  std::string key = fmt::format("{} {} {} {} {} {} {}", setting, instance.stages, instance.chunks, instance.layers, instance.micro_batches,
                                instance.ranks, row.micro_batch);
  for (const auto& [name, value] : space_.layout_options(row.raw))
    if (name != "pp" && name != "vp" && name != "dp" && name != "global_batch" && name != "micro_batch") key += " " + name + "=" + value;
  if (auto known = state_.instance(key)) return *std::move(known);
  Seen seen = estimated(row, setting, instance);
  return state_.tell(std::move(key), std::move(seen));
}

Seen Summarizer::estimated(const Row& row, std::uint64_t setting, const Instance& instance) const {
  ++instances_;
  const std::optional<Cluster> cluster = sized(request_.cluster, row.model_ranks * instance.ranks * instance.stages);
  if (!cluster) refuse(kFillsNoNodes);
  const Model model = with_layers(request_.model, *stack_, std::int64_t{instance.stages} * instance.chunks * instance.layers);
  Seen seen;
  const auto keep_account = [&](const StepProgram& program) {
    if (instance.stages == 1 && instance.micro_batches == 1) seen.kept = kept_for_backward(program);
  };
  const Report report = estimation::estimate_and_read(model, *cluster, strategy_of(row, setting, instance), keep_account);
  seen.seconds = report.time.step_seconds.expected;
  seen.played = was_played(report);
  for (const TimePart& part : report.time.breakdown)
    if (recurs(part.name)) seen.of_passes += (part.name == "host" ? kOfHost : 1) * part.seconds.value;
  for (const RankReport& rank : report.ranks) {
    const RankMemory& memory = rank.memory;
    const auto reserved = static_cast<double>(memory.reserved.count);
    seen.allocated.push_back(static_cast<double>(memory.allocated.count));
    seen.persistent.push_back(static_cast<double>(memory.persistent.count));
    seen.cache = std::max(seen.cache, reserved - seen.allocated.back());
    seen.outside = std::max(seen.outside, memory.device.expected - reserved);
  }
  if (instance.stages == 1) return seen;
  const Schedule schedule = make_schedule(row.schedule, instance.stages, static_cast<int>(instance.micro_batches), instance.chunks);
  for (int rank = 0; rank < instance.stages; ++rank) seen.passes.push_back(peak_in_flight(schedule, rank));
  return seen;
}

Summary Summarizer::of_one_stage(const Row& row, std::uint64_t setting) const {
  const auto at = [&](int layers, std::int64_t micro_batches) { return see(row, setting, {1, 1, layers, micro_batches, row.dp}); };
  const auto [few_layers, many_layers] = sizes_of(row, row.pipelined);
  Summary summary;
  summary.known = true;
  const std::int64_t shorter = row.single ? 1 : kShortAccumulation;
  const Seen few = at(few_layers, shorter), many = at(many_layers, shorter);
  summary.played = few.played;
  summary.ranks[0].once = line(few_layers, few.allocated[0], many_layers, many.allocated[0]);
  summary.ranks[0].once.at_none += many.outside;
  summary.cache = std::max(few.cache, many.cache);
  if (row.single) {
    summary.micro_batch = line(few_layers, few.seconds, many_layers, many.seconds);
    return summary;
  }
  const Seen few_longer = at(few_layers, kLongAccumulation), many_longer = at(many_layers, kLongAccumulation);
  constexpr double kMore = kLongAccumulation - kShortAccumulation;
  const double few_each = (few_longer.seconds - few.seconds) / kMore, many_each = (many_longer.seconds - many.seconds) / kMore;
  summary.micro_batch = line(few_layers, few_each, many_layers, many_each);
  summary.step = line(few_layers, few.seconds - kShortAccumulation * few_each, many_layers, many.seconds - kShortAccumulation * many_each);
  return summary;
}

/// What a row's pipelines did: two stages with fewer and more layers, fewer and more micro-batches; four stages; a chunk more in each.
struct Summarizer::Stages {
  Seen few, many, few_longer, many_longer;
  std::optional<Seen> few_of_four, many_of_four;
  std::optional<Seen> more_chunks, more_chunks_longer;
  double per_micro_batch(const Seen& step, const Seen& longer) const { return (longer.seconds - step.seconds) / kMoreMicroBatches; }
};

Summarizer::Stages Summarizer::see_pipeline(const Row& row, std::uint64_t setting) const {
  const auto at = [&](int stages, int chunks, int layers, std::int64_t micro_batches) {
    return see(row, setting, {stages, chunks, layers, micro_batches, row.dp});
  };
  const Sizes layers = sizes_of(row, row.pipelined);
  Stages seen;
  seen.few = at(2, row.chunks, layers.few, kShortStep);
  seen.many = at(2, row.chunks, layers.many, kShortStep);
  seen.few_longer = at(2, row.chunks, layers.few, kLongStep);
  seen.many_longer = at(2, row.chunks, layers.many, kLongStep);
  if (row.long_pipeline) {
    seen.few_of_four = at(4, row.chunks, layers.few, kShortStep);
    seen.many_of_four = at(4, row.chunks, layers.many, kShortStep);
  }
  if (row.more_chunks) {
    seen.more_chunks = at(2, row.chunks + 1, layers.few, kShortStep);
    seen.more_chunks_longer = at(2, row.chunks + 1, layers.few, kLongStep);
  }
  return seen;
}

namespace {

/// A rank's peak with fewer and with more passes held; where they hold as many, it does not grow with them.
struct Grown {
  double once, per_pass;
};
Grown grown(double few_passes, double at_few, double more_passes, double at_more) {
  if (few_passes == more_passes) return {std::max(at_few, at_more), 0};
  const double per_pass = (at_more - at_few) / (more_passes - few_passes);
  return {at_few - per_pass * few_passes, per_pass};
}

}  // namespace

Summary Summarizer::of_pipeline(const Row& row, std::uint64_t setting) const {
  const Stages seen = see_pipeline(row, setting);
  const int chunks = row.chunks;
  Summary summary;
  summary.known = true;
  summary.played = seen.few.played;
  const Sizes layers = sizes_of(row, row.pipelined);
  const auto by_chunks = [&](double few, double many, double few_in_more) {
    return line_by_chunks(chunks, layers, few, many, row.more_chunks ? std::optional(few_in_more) : std::nullopt);
  };
  const double few_each = seen.per_micro_batch(seen.few, seen.few_longer), many_each = seen.per_micro_batch(seen.many, seen.many_longer);
  const double more_each = row.more_chunks ? seen.per_micro_batch(*seen.more_chunks, *seen.more_chunks_longer) : 0;
  const double more_seconds = row.more_chunks ? seen.more_chunks->seconds : 0;
  summary.micro_batch = by_chunks(few_each, many_each, more_each);
  summary.stage = Line{0, 0, summary.micro_batch.per_layer};
  if (row.long_pipeline)
    summary.stage = line(layers.few, (seen.few_of_four->seconds - seen.few.seconds) / 2, layers.many,
                         (seen.many_of_four->seconds - seen.many.seconds) / 2);
  const auto rest = [&](double seconds, double each, int of) { return seconds - kShortStep * each - summary.stage.at(of); };
  summary.step = by_chunks(rest(seen.few.seconds, few_each, layers.few), rest(seen.many.seconds, many_each, layers.many),
                           rest(more_seconds, more_each, layers.few));
  add_memory(row, seen, summary);
  return summary;
}

void Summarizer::add_memory(const Row& row, const Stages& seen, Summary& summary) const {
  const Sizes layers = sizes_of(row, row.pipelined);
  const auto first = [](const Seen& two, const Seen& longer, const std::optional<Seen>& four) {
    const bool by_micro_batches = !four || two.passes[0] != longer.passes[0];  // GPipe holds every one of them
    const Seen& other = by_micro_batches ? longer : *four;
    return grown(two.passes[0], two.allocated[0], other.passes[0], other.allocated[0]);
  };
  const Grown few = first(seen.few, seen.few_longer, seen.few_of_four), many = first(seen.many, seen.many_longer, seen.many_of_four);
  const Line per_pass = line(layers.few, few.per_pass, layers.many, many.per_pass);
  // What is left of an instance without its held passes, by chunks.
  const auto once_of = [&](double few_once, double many_once, double more_once) {
    return line_by_chunks(row.chunks, layers, few_once, many_once, row.more_chunks ? std::optional(more_once) : std::nullopt);
  };
  const auto without_passes = [&](const Seen& of, std::size_t rank) {
    return of.allocated[rank] - of.passes[rank] * per_pass.at(layers.few);
  };
  summary.ranks[0] = {once_of(few.once, many.once, row.more_chunks ? without_passes(*seen.more_chunks, 0) : 0), per_pass};
  summary.ranks[2].once = once_of(seen.few.allocated[1], seen.many.allocated[1], row.more_chunks ? seen.more_chunks->allocated[1] : 0);
  double outside = seen.many.outside;
  summary.cache = std::max({seen.few.cache, seen.many.cache, seen.few_longer.cache, seen.many_longer.cache});
  if (row.long_pipeline) {
    outside = seen.many_of_four->outside;
    summary.cache = std::max({summary.cache, seen.few_of_four->cache, seen.many_of_four->cache});
    const auto inner = [&](const Seen& four, const Grown& of_first) {
      return four.passes[1] != four.passes[2] ? grown(four.passes[2], four.allocated[2], four.passes[1], four.allocated[1])
                                              : Grown{four.allocated[1] - of_first.per_pass * four.passes[1], of_first.per_pass};
    };
    const Grown few_inner = inner(*seen.few_of_four, few), many_inner = inner(*seen.many_of_four, many);
    summary.ranks[1] = {line_by_chunks(row.chunks, layers, few_inner.once, many_inner.once, {}),
                        line(layers.few, few_inner.per_pass, layers.many, many_inner.per_pass)};
  }
  for (RankLine& rank : summary.ranks) rank.once.at_none += outside;
}

Summary Summarizer::summary(const Row& row, std::uint64_t setting) const {
  if (!can()) return {};
  try {
    return row.pipelined ? of_pipeline(row, setting) : of_one_stage(row, setting);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    Summary unknown;
    unknown.refusal = refusal_of(error);
    return unknown;
  }
}

std::optional<Floor> Summarizer::floor_of(const Row& row, std::uint64_t setting, std::int64_t ranks) const {
  constexpr double kOfHead = 0.9;  // of what is no layer's: the rest is the embedding's, which lies on another stage
  const Sizes layers = sizes_of(row, false);
  try {
    const Seen few = see(row, setting, {1, 1, layers.few, 1, ranks}), many = see(row, setting, {1, 1, layers.many, 1, ranks});
    const auto of_layer = [&](double with_few, double with_many) { return std::max(0.0, with_many - with_few) / layers.more(); };
    Floor floor;
    floor.seconds = of_layer(few.of_passes, many.of_passes);
    floor.head = std::max(0.0, kOfHead * (few.of_passes - layers.few * floor.seconds));
    floor.bytes = of_layer(few.allocated[0] - few.persistent[0], many.allocated[0] - many.persistent[0]);
    floor.kept = of_layer(few.kept, many.kept);
    return floor;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return {};
  }
}

Floor Summarizer::floor(const Row& row, std::uint64_t setting) const {
  if (!can()) return {};
  std::optional<Floor> alone;  // nothing holds up the passes of a single rank
  if (!row.undisturbed) alone = floor_of(row, setting, 1);
  if (alone && row.replicated) return *alone;
  Floor floor = floor_of(row, setting, row.dp).value_or(Floor{});
  if (alone && alone->seconds < floor.seconds) floor.seconds = alone->seconds, floor.head = alone->head;
  return floor;
}

std::uint32_t Summarizer::refusal_of(const Error& error) const {
  if (std::string(error.message()) == kFillsNoNodes) return 0;
  const std::string reason = reason_of(error);
  const std::lock_guard lock(numbering_);
  const auto found = std::find(refusals_.begin(), refusals_.end(), reason);
  const auto number = static_cast<std::uint32_t>(found - refusals_.begin()) + 1;
  if (found == refusals_.end()) refusals_.push_back(reason);
  return number;
}

template <class Measure>
Tail Summarizer::unless_refused(const Measure& measure) const {
  try {
    return measure();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    Tail unknown;
    unknown.known = false;
    unknown.refusal = refusal_of(error);
    return unknown;
  }
}

Tail Summarizer::tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const {
  return unless_refused([&] { return measured_tail(tail, row_ranks, setting); });
}

Tail Summarizer::difference(const Row& row, std::uint64_t base, std::uint64_t setting) const {
  return unless_refused([&] { return measured_difference(row, base, setting); });
}

Tail Summarizer::measured_difference(const Row& row, std::uint64_t base, std::uint64_t setting) const {
  const int stages = row.pipelined ? 2 : 1, chunks = row.pipelined ? row.chunks : 1;
  const auto [few, many] = sizes_of(row, row.pipelined);
  const std::int64_t shorter = row.pipelined ? kShortStep : row.single ? 1 : kShortAccumulation;
  const std::int64_t longer = row.single ? shorter : row.pipelined ? kLongStep : kLongAccumulation;
  struct At {
    double step, each;  ///< seconds more
    std::array<double, 3> bytes;
  };
  bool played = true;
  const auto at = [&](int layers) {
    const auto seen = [&](std::uint64_t with, std::int64_t micro_batches) {
      return see(row, with, {stages, chunks, layers, micro_batches, row.dp});
    };
    const Seen before = seen(base, shorter), after = seen(setting, shorter);
    if (after.played && !before.played) refuse("what it is compared with has no program");
    played &= after.played;
    At more{after.seconds - before.seconds, 0, {}};
    if (longer > shorter)
      more.each = (seen(setting, longer).seconds - seen(base, longer).seconds - more.step) / static_cast<double>(longer - shorter);
    more.step -= static_cast<double>(shorter) * more.each;
    for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
      const std::size_t of = rank == 0 ? 0 : before.allocated.size() - 1;
      const double states = after.persistent[of] - before.persistent[of], peak = after.allocated[of] - before.allocated[of];
      // States add up. What else lowers a small instance's peak may lower the plan's; what raises it may not: the plan's may lie elsewhere.
      more.bytes[rank] = states + std::min(0.0, peak - states) + after.outside - before.outside;
    }
    return more;
  };
  const At at_few = at(few), at_many = at(many);
  const auto line = [&](double with_few, double with_many) {
    const double per_layer = (with_many - with_few) / ((many - few) * chunks);
    return Line{with_few - per_layer * few * chunks, 0, per_layer};
  };
  Tail more;
  more.played = played;
  more.step = line(at_few.step, at_many.step);
  more.micro_batch = line(at_few.each, at_many.each);
  for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) more.states[rank] = line(at_few.bytes[rank], at_many.bytes[rank]);
  more.states[1] = {0, 0, more.states[0].per_layer};
  return more;
}

Tail Summarizer::measured_tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const {
  const int stages = tail.pipelined ? 2 : 1, chunks = tail.pipelined ? tail.chunks : 1;
  const auto [few, many] = sizes_of(tail, tail.pipelined);
  const std::int64_t micro_batches = tail.pipelined ? kShortStep : tail.single ? 1 : kShortAccumulation;
  const auto at = [&](int layers, std::int64_t ranks) { return see(tail, setting, {stages, chunks, layers, micro_batches, ranks}); };
  const Seen few_here = at(few, row_ranks), many_here = at(many, row_ranks), few_there = at(few, tail.dp), many_there = at(many, tail.dp);
  Tail more;
  const auto line = [&](double, double at_few, double, double at_many) {
    const double per_layer = (at_many - at_few) / ((many - few) * chunks);
    return Line{at_few - per_layer * few * chunks, 0, per_layer};
  };
  more.step = line(few, few_there.seconds - few_here.seconds, many, many_there.seconds - many_here.seconds);
  const auto states = [&](std::size_t rank) {
    Line bytes =
        line(few, few_there.persistent[rank] - few_here.persistent[rank], many, many_there.persistent[rank] - many_here.persistent[rank]);
    bytes.at_none += many_there.outside - many_here.outside;
    return bytes;
  };
  more.states[0] = states(0);
  more.states[2] = states(few_here.persistent.size() - 1);
  // An inner rank holds layers alone: what one layer more takes.
  more.states[1] = {many_there.outside - many_here.outside, 0, more.states[0].per_layer};
  return more;
}

}  // namespace plimsoll::searching
