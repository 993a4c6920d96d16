#include "search/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "plimsoll/error.hpp"

namespace plimsoll {

Cluster part_of(const Cluster& cluster, std::int64_t gpus) {
  if (gpus < 1 || gpus > cluster.gpus())
    fail(fmt::format("{} GPUs of {}, which has {}", gpus, cluster.name, cluster.gpus()), "gpus", "name a larger cluster");
  if (gpus == cluster.gpus()) return cluster;
  auto part = searching::sized(cluster, gpus);
  if (!part)
    fail(fmt::format("{} GPUs fill no whole nodes of {}", gpus, cluster.gpus_per_node), "gpus",
         fmt::format("{} do", round_up(gpus, cluster.gpus_per_node)));
  return *std::move(part);
}

namespace searching {
namespace {

/// Keys that say which rank computes what: legality depends on their numbers. Of all others only the values matter.
bool is_layout_key(const std::string& key) {
  static const std::set<std::string> keys = {
      "gpus", "framework", "tp", "pp", "vp", "stages_per_rank", "cp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "fsdp_degree",
      "data_parallel", "zero", "zero_stage", "fsdp", "fsdp.strategy", "fsdp.shard", "fsdp.replicate", "sequence_parallel", "micro_batch",
      "global_batch", "local_batch", "grad_accum", "micro_batches_per_step", "seq", "seq_len", "tgt_len", "schedule", "pp_schedule"};
  return keys.count(key) > 0;
}

std::uint64_t radix(const std::vector<SearchAxis>& axes, std::size_t begin, std::size_t end) {
  constexpr double kMostNumbered = 4e18;
  double product = 1;
  std::uint64_t exact = 1;
  for (std::size_t i = begin; i < end; ++i) {
    product *= static_cast<double>(axes[i].values.size());
    if (product > kMostNumbered) refuse(fmt::format("the space has more than {:.0e} points", kMostNumbered), {}, "pin some axes to one value");
    exact *= axes[i].values.size();
  }
  return exact;
}

}  // namespace

std::optional<Cluster> sized(const Cluster& cluster, std::int64_t gpus) {
  const std::int64_t node = cluster.gpus_per_node;
  if (gpus > node && gpus % node != 0) return {};
  Cluster part = cluster;
  part.nodes = gpus <= node ? 1 : gpus / node;
  part.gpus_per_node = static_cast<int>(std::min(gpus, node));
  part.name = part.nodes == 1 ? fmt::format("{}x{}", gpus, cluster.accelerator.name)
                              : fmt::format("{}x{}x{}", part.nodes, part.gpus_per_node, cluster.accelerator.name);
  return part;
}

std::vector<std::int64_t> cluster_sizes(const SearchRequest& request) {
  std::set<std::int64_t> sizes(request.gpus.begin(), request.gpus.end());
  if (sizes.empty()) sizes.insert(request.cluster.gpus());
  return {sizes.begin(), sizes.end()};
}

std::string usual_framework(const SearchRequest& request) {
  const Model& model = request.model;
  const bool language = model.task == Model::Task::causal_lm;
  if (cluster_sizes(request).back() == 1 || !language) return model.task == Model::Task::diffusion ? "diffusers" : "transformers";
  return "megatron-core";
}

Space::Space(const SearchRequest& request) : sizes_(cluster_sizes(request)) {
  std::vector<SearchAxis> settings, depth;
  SearchAxis sizes{"gpus", {}};
  for (const std::int64_t size : sizes_) sizes.values.push_back(std::to_string(size));
  axes_.push_back(sizes);
  std::vector<SearchAxis> all = request.axes;
  const std::vector<SearchAxis> open = open_axes(request);
  all.insert(all.end(), open.begin(), open.end());
  for (const SearchAxis& axis : all) {
    if (axis.key == "gpus") continue;
    const bool numbers_depth = axis.key == kRecomputedLayers && axis.values.front().empty();
    (numbers_depth ? depth : is_layout_key(axis.key) ? axes_ : settings).push_back(axis);
  }
  layout_axes_ = axes_.size();
  depth_axes_ = depth.size();
  axes_.insert(axes_.end(), settings.begin(), settings.end());
  axes_.insert(axes_.end(), depth.begin(), depth.end());
  (void)radix(axes_, 0, axes_.size());
  layouts_ = radix(axes_, 0, layout_axes_);
  settings_ = radix(axes_, layout_axes_, axes_.size() - depth_axes_);
  depths_ = radix(axes_, axes_.size() - depth_axes_, axes_.size());
  constexpr std::uint64_t kMostSettings = 100'000;
  if (settings_ > kMostSettings)
    refuse(fmt::format("{} combinations of settings for every layout", settings_), {}, "pin precision, optimizer, offload, compile or loss");
  if (depth_axes_ > 0)
    for (const std::string& value : axes_.back().values) depth_values_.push_back(value.empty() ? 0 : std::stoi(value));
  for (std::uint64_t setting = 0; setting < settings_; ++setting) {
    bool full = request.base.recompute.kind == Recompute::Kind::full;
    for (const auto& [key, value] : setting_options(setting)) full = key == "recompute" ? value == "full" : full;
    full_.push_back(full);
  }
}

Options Space::decode(std::uint64_t digits, std::size_t begin, std::size_t end) const {
  Options options;
  for (std::size_t i = end; i-- > begin;) {
    const auto& values = axes_[i].values;
    const std::string& value = values[digits % values.size()];
    digits /= values.size();
    if (!value.empty() && axes_[i].key != "gpus") options.emplace_back(axes_[i].key, value);
  }
  std::reverse(options.begin(), options.end());
  return options;
}

Options Space::depth_options(std::uint64_t depth) const {
  if (recomputed_layers(depth) == 0) return {};
  return {{"recompute_method", "block"}, {kRecomputedLayers, std::to_string(recomputed_layers(depth))}};
}

Options Space::options(std::uint64_t index) const {
  Options all = layout_options(layout_of(index));
  for (const Options& more : {setting_options(setting_of(index)), depth_options(depth_of(index))}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::int64_t Space::gpus_of(std::uint64_t layout) const { return digit(layout, "gpus", sizes_.back()); }

std::int64_t Space::digit(std::uint64_t layout, std::string_view key, std::int64_t otherwise) const {
  for (std::size_t i = layout_axes_; i-- > 0;) {
    const auto& values = axes_[i].values;
    const std::string& value = values[layout % values.size()];
    layout /= values.size();
    if (axes_[i].key != key) continue;
    std::int64_t number = otherwise;
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
  }
  return otherwise;
}

std::uint64_t Space::with_smaller_micro_batch(std::uint64_t layout) const {
  std::uint64_t weight = 1;
  for (std::size_t i = layout_axes_; i-- > 0;) {
    const auto& values = axes_[i].values;
    const std::uint64_t digit = layout / weight % values.size();
    if (axes_[i].key == "micro_batch") {
      const std::int64_t own = std::stoll(values[digit]);
      std::uint64_t best = digit;
      for (std::uint64_t other = 0; other < values.size(); ++other) {
        const std::int64_t size = std::stoll(values[other]);
        if (size < own && (best == digit || size > std::stoll(values[best]))) best = other;
      }
      return layout + weight * best - weight * digit;
    }
    weight *= values.size();
  }
  return layout;
}

bool was_played(const Report& report) {
  return report.time.basis == Basis::played &&
         std::all_of(report.ranks.begin(), report.ranks.end(), [](const RankReport& rank) { return rank.memory.basis == Basis::played; });
}

Strategy with_options(const SearchRequest& request, const Options& options) {
  Strategy strategy = request.base;
  Options all = strategy.options;
  all.insert(all.end(), options.begin(), options.end());
  set_options(strategy, all);
  return strategy;
}

}  // namespace searching

bool free_batch(const SearchRequest& request) {
  bool says_batch = request.base.global_batch > 0, several = false;
  for (const SearchAxis& axis : request.axes) {
    const bool of_tokens = axis.key == "global_batch" || axis.key == "seq" || axis.key == "seq_len" || axis.key == "tgt_len";
    says_batch |= axis.key == "global_batch";
    several |= of_tokens && axis.values.size() > 1;
  }
  return several || !says_batch;
}

std::string command_of(const SearchRequest& request, const SearchPlan& plan) {
  const auto word = [](const std::string& text) { return text.find_first_of(" *[]{}\"$|") == std::string::npos ? text : "'" + text + "'"; };
  const bool whole = plan.gpus == request.cluster.gpus();
  const std::string cluster = whole && !request.cluster_word.empty() ? request.cluster_word : part_of(request.cluster, plan.gpus).name;
  std::string line = fmt::format("plimsoll estimate {} --on {}", word(request.model_word.empty() ? request.model.name : request.model_word), word(cluster));
  if (!request.strategy_word.empty()) line += " --strategy " + word(request.strategy_word);
  searching::Options options = request.base.options;
  options.insert(options.end(), plan.options.begin(), plan.options.end());
  for (auto [key, value] : options) {
    std::replace(key.begin(), key.end(), '_', '-');
    line += fmt::format(" --{} {}", key, word(value));
  }
  return line;
}

Strategy strategy_of(const SearchRequest& request, const SearchPlan& plan) { return searching::with_options(request, plan.options); }

}  // namespace plimsoll
