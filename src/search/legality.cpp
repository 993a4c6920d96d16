#include "search/legality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <optional>

#include "plimsoll/error.hpp"
#include "plimsoll/schedule.hpp"

namespace plimsoll::searching {
namespace {

constexpr std::uint64_t kMostLayouts = 20'000'000, kMostJudged = 250'000;
constexpr std::int64_t kSteadyMicroBatches = 8;  // with fewer a pipeline of two stages may hold fewer than two passes
constexpr const char* kIndivisible = "the GPUs are no multiple of tp · pp · cp";
constexpr const char* kDouble = "says the same as another plan";

/// A layout that says what resolve() takes back: one stage in chunks, a sequence cut by one rank.
bool says_in_vain(const Space& space, std::uint64_t raw, const Strategy& resolved) {
  if (space.digit(raw, "vp", resolved.vp) != resolved.vp) return true;
  for (const auto& [key, value] : space.layout_options(raw))
    if (key == "sequence_parallel" && (value == "true") != resolved.sequence_parallel.value_or(false)) return true;
  return false;
}

/// What of a layout may make a setting illegal: whose code and engine, and which ways of parallelism are at work.
std::string kind_of(const Strategy& s) {
  return fmt::format("{} {} {}{}{}{}{}{}{} {} {}", s.framework, static_cast<int>(s.data_parallel), s.tp > 1, s.pp > 1, s.cp > 1, s.ep > 1,
                     s.vp > 1, s.dp > 1, s.sequence_parallel.value_or(false), s.pp_schedule, s.micro_batches > 1);
}

bool replicates_under_megatron(const Strategy& s) {
  const bool replicated = s.data_parallel == DataParallel::ddp || s.data_parallel == DataParallel::megatron_distopt;
  return replicated && engine_of(s) == Engine::megatron;
}

/// Whether Megatron's stages do as those of small instances: one of them, or interleaved chunks of as many layers each.
bool has_equal_stages(const Strategy& s) {
  const bool alike = std::adjacent_find(s.pp_layers.begin(), s.pp_layers.end(), std::not_equal_to<>()) == s.pp_layers.end();
  return replicates_under_megatron(s) && (s.pp == 1 || (s.vp > 1 && alike));
}

/// Data-parallel ranks of the instances that stand for a layout: as many as fill a node, so that pipeline neighbours are as far apart.
std::int64_t instance_ranks(const Strategy& s, const Cluster& cluster) {
  if (!reduces_behind_the_passes(s)) return s.dp;
  const std::int64_t model_ranks = std::int64_t{s.tp} * s.cp, experts = std::int64_t{s.ep} * s.etp;
  std::int64_t ranks = std::max<std::int64_t>(2, cluster.gpus_per_node / model_ranks);
  while (ranks < s.dp && model_ranks * ranks % experts != 0) ++ranks;
  return std::min<std::int64_t>(ranks, s.dp);
}

/// Stages of one chunk, those of all ranks, are as fast as the fullest of them. `layers`: by stage, chunk by chunk.
void count_waves(const std::vector<int>& layers, std::size_t stages, Layout& layout) {
  const auto fullest = [](auto begin, auto end) { return static_cast<double>(*std::max_element(begin, end)); };
  auto chunk = layers.begin();
  for (; layers.end() - chunk > static_cast<std::ptrdiff_t>(stages); chunk += static_cast<std::ptrdiff_t>(stages))
    layout.waves += fullest(chunk, chunk + static_cast<std::ptrdiff_t>(stages));
  layout.last_wave = fullest(chunk, layers.end() - 1);
  layout.head_chunk = layers.back();
}

/// Layers of each rank, and how full those between the first and the last are. V-shaped placements deal chunks back and forth.
void count_layers(const Strategy& s, const Model& model, Layout& layout) {
  layout.first = layout.inner = layout.last = layout.usual = layout.others = static_cast<double>(model.layers);
  if (s.pp == 1 || s.pp_layers.empty()) return;
  const auto stages = static_cast<std::size_t>(s.pp);
  const bool v_shaped = s.pp_schedule == "zbv" || s.pp_schedule == "v-half" || s.pp_schedule == "v-min" || s.pp_schedule == "dualpipev";
  std::vector<double> ranks(stages, 0);
  for (std::size_t i = 0; i < s.pp_layers.size(); ++i)
    ranks[v_shaped && i >= stages ? 2 * stages - 1 - i : i % stages] += static_cast<double>(s.pp_layers[i]) / s.vp;
  layout.first = ranks.front();
  layout.last = ranks.back();
  layout.inner = *std::max_element(stages > 2 ? ranks.begin() + 1 : ranks.begin(), ranks.end() - 1);
  const double but_last = std::accumulate(ranks.begin(), ranks.end() - 1, 0.0), fullest = *std::max_element(ranks.begin(), ranks.end());
  layout.usual = but_last / static_cast<double>(stages - 1);
  layout.others = (but_last + layout.last - fullest) / static_cast<double>(stages - 1);
  if (s.vp > 1 && !v_shaped) count_waves(s.pp_layers, stages, layout);
}

void count_in_flight(const Strategy& s, Layout& layout) {
  const auto micro_batches = static_cast<int>(std::min<std::int64_t>(s.micro_batches_per_run(), std::int64_t{4} * s.pp * s.vp));
  const Schedule schedule = make_schedule(s.pp_schedule, s.pp, micro_batches, s.vp);
  layout.in_flight = peak_in_flight(schedule, 0);
  layout.inner_in_flight = peak_in_flight(schedule, 1);
}

/// One layout judged.
struct Judged {
  Layout layout;
  Row row, tail;                        ///< tail: with the layout's own data-parallel ranks
  std::string kind, row_key, tail_key;  ///< tail_key empty: its row is of its own data-parallel ranks
  std::string states_key, head_key;
  std::string complaint, reason;
};

class Judge {
 public:
  Judge(const Space& space, const SearchRequest& request) : space_(space), request_(request) {
    for (const std::int64_t size : cluster_sizes(request)) clusters_.emplace(size, part_of(request.cluster, size));
  }

  Judged judge(std::uint64_t raw) const {
    Judged judged;
    judged.layout.raw = raw;
    judged.layout.gpus = space_.gpus_of(raw);
    try {
      const Cluster& cluster = clusters_.at(judged.layout.gpus);
      const Strategy resolved = resolve(with_options(request_, space_.layout_options(raw)), request_.model, cluster);
      if (says_in_vain(space_, raw, resolved)) judged.reason = judged.complaint = kDouble;
      if (judged.reason.empty()) describe(resolved, cluster, judged);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      judged.reason = reason_of(error);
      judged.complaint = error.message();
    }
    return judged;
  }

  bool legal(std::uint64_t layout, std::uint64_t setting, std::string& reason, std::string& complaint) const {
    try {
      Options options = space_.layout_options(layout);
      const Options more = space_.setting_options(setting);
      options.insert(options.end(), more.begin(), more.end());
      (void)resolve(with_options(request_, options), request_.model, clusters_.at(space_.gpus_of(layout)));
      return true;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      reason = reason_of(error);
      complaint = error.message();
      return false;
    }
  }

 private:
  void describe(const Strategy& s, const Cluster& cluster, Judged& judged) const {
    Layout& layout = judged.layout;
    layout.micro_batches = s.micro_batches;
    layout.tokens = s.global_batch * s.sequences_per_sample() * std::max<std::int64_t>(1, s.seq_len);
    layout.stages = s.pp;
    layout.chunks = s.vp;
    count_layers(s, request_.model, layout);
    if (s.pp > 1) count_in_flight(s, layout);
    layout.equal = has_equal_stages(s);
    layout.fills = s.pp_schedule == "1f1b" || s.pp_schedule == "gpipe" || s.pp_schedule == "interleaved-1f1b";
    judged.kind = kind_of(s);
    // Interleaved chunks are alike: two and three of them tell of any number.
    const bool any_chunks =
        s.vp > 1 && schedule_refusal(s.pp_schedule, 2, 8, 2).empty() && schedule_refusal(s.pp_schedule, 2, 8, 3).empty();
    Row row{layout.raw,
            s.micro_batch,
            instance_ranks(s, cluster),
            std::int64_t{s.tp} * s.cp,
            any_chunks ? 2 : s.vp,
            any_chunks,
            s.pp_schedule,
            s.pp > 1,
            s.micro_batches == 1,
            s.pp > 2 || s.micro_batches < kSteadyMicroBatches,
            reduces_behind_the_passes(s),
            s.data_parallel == DataParallel::megatron_fsdp,
            replicates_under_megatron(s)};
    judged.row = judged.tail = row;
    judged.tail.dp = s.dp;
    const std::string how = fmt::format("{} {} {}", row.pipelined, row.single, s.pp_schedule);
    judged.row_key = fmt::format("{} {} {}", how, row.dp, row.chunks) + layout_without(row, {});
    if (row.dp != s.dp) judged.tail_key = fmt::format("{} {} {}", how, s.dp, row.chunks) + layout_without(row, {"micro_batch"});
    judged.states_key = fmt::format("{} {} {}", how, s.dp, row.chunks) + layout_without(row, {"micro_batch", "sequence_parallel"});
    judged.head_key = how + layout_without(row, {"data_parallel", "dp_shard", "dp_replicate", "fsdp_degree", "zero", "zero_stage", "fsdp"});
  }

  /// What a layout says beyond the sizes that its summaries go by, and beyond `left_out`.
  std::string layout_without(const Row& row, const std::vector<std::string_view>& left_out) const {
    static const std::vector<std::string_view> sizes{"pp", "dp", "global_batch", "grad_accum", "micro_batches_per_step", "vp"};
    const auto among = [](const std::vector<std::string_view>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    std::string said;
    for (const auto& [name, value] : space_.layout_options(row.raw))
      if (!among(sizes, name) && !among(left_out, name)) said += " " + name + "=" + value;
    return said;
  }

  const Space& space_;
  const SearchRequest& request_;
  std::unordered_map<std::int64_t, Cluster> clusters_;
};

void reject(Layouts& layouts, const std::string& reason, std::uint64_t count, const std::string& example) {
  SearchRejection& rejection = layouts.rejected[reason];
  rejection.count += count;
  if (rejection.example.empty() || (!example.empty() && example < rejection.example)) rejection.example = example;
}

/// Layouts of this shard, or a sample of them, whose degrees divide their GPUs.
std::vector<std::uint64_t> candidates_of(const Space& space, const SearchRequest& request, Layouts& layouts) {
  const std::uint64_t all = space.layouts(), wanted = request.sample > 0 ? std::min(request.sample, all) : all;
  if (wanted > kMostLayouts)
    refuse(fmt::format("the space has {:.3g} layouts, and {:.3g} can be looked at", static_cast<double>(all),
                       static_cast<double>(kMostLayouts)),
           {}, "pin some axes to one value, or --sample some of them");
  std::uint64_t stride =
      wanted == all ? 1 : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(0.6180339887 * static_cast<double>(all)));
  while (std::gcd(stride, all) != 1) ++stride;  // visits every layout once, well spread
  std::vector<std::uint64_t> candidates;
  std::uint64_t indivisible = 0;
  const std::uint64_t shards = std::max<std::uint64_t>(1, request.shards);
  std::uint64_t raw = all - stride % all;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    raw = (raw + stride) % all;
    if (i % shards != request.shard) continue;
    std::int64_t ranks = 1;
    for (const auto& [key, otherwise] :
         {std::pair<const char*, int>{"tp", request.base.tp}, {"pp", request.base.pp}, {"cp", request.base.cp}})
      ranks *= std::max<std::int64_t>(1, space.digit(raw, key, otherwise));
    if (space.gpus_of(raw) % ranks != 0) {
      ++indivisible;
      continue;
    }
    candidates.push_back(raw);
    if (candidates.size() > kMostJudged)
      refuse(fmt::format("more than {} layouts divide the GPUs", kMostJudged), {}, "pin some axes to one value, or --sample some of them");
  }
  if (indivisible > 0) reject(layouts, kIndivisible, indivisible * space.settings() * space.depths(), {});
  return candidates;
}

/// Numbers the rows in the order of the layouts, whatever thread judged them.
class Numbering {
 public:
  std::uint32_t of(const std::string& key, const Row& row, std::vector<Row>& rows) {
    const auto [found, fresh] = numbers_.emplace(key, static_cast<std::uint32_t>(rows.size()));
    if (fresh) rows.push_back(row);
    rows[found->second].long_pipeline |= row.long_pipeline;
    return found->second;
  }
  /// The same, with the smallest micro-batch of them.
  std::uint32_t of_smallest(const std::string& key, const Row& row, std::vector<Row>& rows) {
    const std::uint32_t number = of(key, row, rows);
    if (row.micro_batch < rows[number].micro_batch) rows[number] = row;
    return number;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

}  // namespace

bool reduces_behind_the_passes(const Strategy& s) {
  return replicates_under_megatron(s) && !s.megatron.overlap_grad_reduce.value_or(true) &&
         !s.megatron.overlap_param_gather.value_or(true) && s.dp_replicate <= 1;
}

std::string reason_of(const Error& error) {
  const auto is = [](int (*kind)(int), char letter) { return kind(static_cast<unsigned char>(letter)) != 0; };
  const std::string& text = error.message();
  std::string reason;
  for (std::size_t i = 0; i < text.size();) {
    if (text.compare(i, 2, ": ") == 0 || text.compare(i, 2, "; ") == 0) break;
    std::size_t end = i;
    while (end < text.size() && is(std::isalnum, text[end])) ++end;
    const bool number = end > i && std::all_of(text.begin() + i, text.begin() + end, [&](char letter) { return is(std::isdigit, letter); });
    reason += number ? "…" : text.substr(i, std::max<std::size_t>(end - i, 1));
    i = std::max(end, i + 1);
  }
  return reason;
}

Layouts find_layouts(const Space& space, const SearchRequest& request, Watch& watch) {
  Layouts layouts;
  const Judge judge(space, request);
  const std::vector<std::uint64_t> candidates = candidates_of(space, request, layouts);
  std::vector<Judged> judged(candidates.size());
  parallel_for(candidates.size(), threads_of(request), watch, "layouts",
               [&](std::uint64_t i, int) { judged[i] = judge.judge(candidates[i]); });
  Numbering rows, tails, states, heads;
  std::unordered_map<std::string, std::uint32_t> kinds;
  const std::uint64_t points = space.settings() * space.depths();
  for (Judged& each : judged) {
    if (each.kind.empty()) {
      if (!each.reason.empty()) reject(layouts, each.reason, points, each.complaint);
      continue;
    }
    each.layout.row = rows.of(each.row_key, each.row, layouts.rows);
    each.layout.tail = each.tail_key.empty() ? 0 : 1 + tails.of(each.tail_key, each.tail, layouts.tails);
    each.layout.states = states.of_smallest(each.states_key, each.tail, layouts.states);
    each.layout.head = heads.of(each.head_key, each.row, layouts.heads);
    const auto [found, fresh] = kinds.emplace(each.kind, static_cast<std::uint32_t>(kinds.size()));
    if (fresh) layouts.of_kind.push_back(each.layout.raw);
    each.layout.kind = found->second;
    layouts.legal.push_back(each.layout);
  }
  layouts.settings.assign(kinds.size(), std::vector<char>(space.settings(), 0));
  std::vector<std::uint64_t> layouts_of_kind(kinds.size(), 0);
  for (const Layout& layout : layouts.legal) ++layouts_of_kind[layout.kind];
  std::mutex counting;
  parallel_for(kinds.size() * space.settings(), threads_of(request), watch, "settings", [&](std::uint64_t i, int) {
    const std::uint64_t kind = i / space.settings(), setting = i % space.settings();
    std::string reason, complaint;
    layouts.settings[kind][setting] = judge.legal(layouts.of_kind[kind], setting, reason, complaint);
    if (layouts.settings[kind][setting]) return;
    const std::lock_guard lock(counting);
    reject(layouts, reason, layouts_of_kind[kind] * space.depths(), complaint);
  });
  return layouts;
}

}  // namespace plimsoll::searching
