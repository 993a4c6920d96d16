// Which values each key may take: as the caller spells them, and those that a search opens by itself.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/search.hpp"
#include "search/layout.hpp"
#include "units/length.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kMostValues = 4096;

/// "a..b" doubles from a, "a..b/s" goes in steps of s.
std::vector<std::string> range(const std::string& text, const std::string& where) {
  const auto dots = text.find(".."), slash = text.find('/', dots);
  const auto low = parse_length(std::string_view(text).substr(0, dots));
  const auto high = parse_length(std::string_view(text).substr(dots + 2, slash == std::string::npos ? slash : slash - dots - 2));
  const auto step = slash == std::string::npos ? std::optional<std::int64_t>(0) : parse_length(std::string_view(text).substr(slash + 1));
  if (!low || !high || !step || *low < 1 || *high < *low || (slash != std::string::npos && *step < 1))
    fail(fmt::format("'{}' is no range", text), where, "low..high doubles from low, low..high/step goes in steps: 1..16, 8..64/8");
  std::vector<std::string> values;
  for (std::int64_t value = *low; value <= *high; value = *step > 0 ? value + *step : 2 * value) {
    if (values.size() == kMostValues) fail(fmt::format("'{}' has more than {} values", text, kMostValues), where, "take larger steps");
    values.push_back(std::to_string(value));
  }
  return values;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
    end = text.find(separator, at);
    parts.push_back(text.substr(at, end == std::string::npos ? end : end - at));
  }
  return parts;
}

// ---- what is opened unless the caller says otherwise -----------------------------------------------------------------

using Values = std::vector<std::string>;

Values numbers(const std::set<std::int64_t>& values) {
  Values texts;
  for (const std::int64_t value : values) texts.push_back(std::to_string(value));
  return texts;
}

/// Divisors of `n`, at most `most`.
std::set<std::int64_t> divisors(std::int64_t n, std::int64_t most) {
  std::set<std::int64_t> found;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) found.insert(d);
  return found;
}

std::int64_t experts_of(const Model& model) {
  std::int64_t experts = 0;
  for (const Block& block : model.blocks)
    if (block.moe) experts = std::max(experts, block.moe->experts);
  return experts;
}

class Opener {
 public:
  explicit Opener(const SearchRequest& request) : request_(request), gpus_(searching::cluster_sizes(request)) {
    for (const SearchAxis& axis : request.axes) said_.insert(axis.key);
    for (const auto& [key, value] : request.base.options) said_.insert(key);
    frameworks();
  }

  std::vector<SearchAxis> all() && {
    if (request_.width == SearchWidth::named) return {};
    degrees();
    batch();
    sharding();
    if (profile([](const FrameworkProfile& p) { return p.sequence_parallel; })) add("sequence_parallel", {"true", "false"}, {});
    recompute();
    if (request_.width == SearchWidth::all) settings();
    return std::move(axes_);
  }

 private:
  bool said(const std::string& key) const { return said_.count(key) > 0; }

  void add(const std::string& key, Values values, const std::set<std::string>& synonyms) {
    if (said(key) || values.size() < 2) return;
    for (const std::string& synonym : synonyms)
      if (said(synonym)) return;
    axes_.push_back({key, std::move(values)});
  }

  /// The frameworks that plans may run under: named by an axis, by the base, or the one that runs all that many ranks can do.
  void frameworks() {
    Values names;
    for (const SearchAxis& axis : request_.axes)
      if (axis.key == "framework") names = axis.values;
    if (names.empty() && !request_.base.framework.empty()) names = {request_.base.framework};
    if (names.empty()) {
      names = {searching::usual_framework(request_)};
      axes_.push_back({"framework", names});
    }
    for (const std::string& name : names) profiles_.push_back(&find_framework(name));
  }

  template <class Has>
  bool profile(Has has) const {
    return std::any_of(profiles_.begin(), profiles_.end(), [&](const FrameworkProfile* p) { return has(*p); });
  }

  /// Divisors of any of the cluster's sizes.
  std::set<std::int64_t> degree(std::int64_t most) const {
    std::set<std::int64_t> values;
    for (const std::int64_t gpus : gpus_) values.merge(divisors(gpus, most));
    return values;
  }

  void degrees() {
    const Model& model = request_.model;
    const std::int64_t layers = std::max<std::int64_t>(1, model.layers);
    const bool wide = request_.width == SearchWidth::all;
    const bool pipelines = profile([](const FrameworkProfile& p) { return !p.schedules.empty(); });
    if (profile([](const FrameworkProfile& p) { return p.tensor; })) {
      std::set<std::int64_t> tp = degree((wide ? 2 : 1) * std::int64_t{request_.cluster.gpus_per_node});
      std::erase_if(tp, [&](std::int64_t d) { return model.heads > 0 && model.heads % d != 0; });
      add("tp", numbers(tp), {});
    }
    if (pipelines) {
      add("pp", numbers(degree(layers + 2)), {});
      std::set<std::int64_t> vp = divisors(layers, wide ? 12 : 6);
      for (const std::int64_t d : divisors(layers + 2, wide ? 12 : 6)) vp.insert(d);
      add("vp", numbers(vp), {"stages_per_rank"});
    }
    constexpr std::int64_t kLong = 16384;  // shorter sequences gain nothing by being cut
    if (profile([](const FrameworkProfile& p) { return p.context; }) && (wide || request_.base.seq_len >= kLong))
      add("cp", numbers(degree(16)), {});
    if (const std::int64_t experts = experts_of(model); experts > 0 && profile([](const FrameworkProfile& p) { return p.expert; })) {
      std::set<std::int64_t> ep = divisors(experts, 256), degrees = degree(256);
      std::erase_if(ep, [&](std::int64_t d) { return degrees.count(d) == 0; });
      add("ep", numbers(ep), {});
    }
  }

  /// Powers of two: micro-batches of a global batch are even ones.
  void batch() {
    const std::int64_t global = request_.base.global_batch, most = global > 0 ? std::min<std::int64_t>(16, global) : 16;
    Values values;
    for (std::int64_t size = 1; size <= most; size *= 2) values.push_back(std::to_string(size));
    add("micro_batch", values, {"local_batch"});
  }

  /// One GPU shares with nobody: where a framework runs without data parallelism, its other ways would be FSDP and the like of one rank.
  void sharding() {
    const bool alone = std::all_of(gpus_.begin(), gpus_.end(), [](std::int64_t gpus) { return gpus == 1; });
    Values kinds;
    for (const FrameworkProfile* each : profiles_) {
      const bool runs_bare =
          each->layer_spec.empty() && std::find(each->kinds.begin(), each->kinds.end(), DataParallel::none) != each->kinds.end();
      const bool none = alone && runs_bare;  // Megatron wraps one rank too
      for (const DataParallel kind : each->kinds)
        if (const std::string name(name_of(kind));
            (kind == DataParallel::none) == none && std::find(kinds.begin(), kinds.end(), name) == kinds.end())
          kinds.push_back(name);
    }
    add("data_parallel", kinds, {"zero", "zero_stage", "fsdp", "fsdp.strategy", "deepspeed.zero_optimization.stage"});
  }

  void recompute() {
    Values kinds;
    const std::pair<Recompute::Kind, const char*> names[] = {{Recompute::Kind::none, "none"},
                                                             {Recompute::Kind::selective, "selective"},
                                                             {Recompute::Kind::operators, "selective-ac-op"},
                                                             {Recompute::Kind::full, "full"}};
    for (const auto& [kind, name] : names)
      if (profile([kind = kind](const FrameworkProfile& p) { return std::count(p.recomputes.begin(), p.recomputes.end(), kind) > 0; }))
        kinds.push_back(name);
    add("recompute", kinds, {"recompute_method", "recompute_num_layers", "recompute_modules"});
    const bool blocks = profile([](const FrameworkProfile& p) { return !p.layer_spec.empty(); });
    if (request_.width != SearchWidth::all || !blocks || request_.model.layers < 2) return;
    Values depths{""};
    for (std::int64_t n = 1; n < request_.model.layers; ++n) depths.push_back(std::to_string(n));
    add(searching::kRecomputedLayers, depths, {"recompute", "recompute_method", "recompute_num_layers"});
  }

  /// Nothing that changes what is trained: precision, optimizer, loss and adapters are axes where the caller names them.
  void settings() {
    if (profile([](const FrameworkProfile& p) { return p.offload_activations || p.name == "deepspeed"; }))
      add("offload", {"none", "optimizer", "activations"}, {"activation_offload"});
    if (profile([](const FrameworkProfile& p) { return p.layer_spec.empty(); })) add("compile", {"false", "true"}, {});
  }

  const SearchRequest& request_;
  std::vector<std::int64_t> gpus_;
  std::set<std::string> said_;
  std::vector<const FrameworkProfile*> profiles_;
  std::vector<SearchAxis> axes_;
};

}  // namespace

std::vector<std::string> parse_axis_values(const std::string& text, const std::string& where) {
  const bool bars = text.find('|') != std::string::npos;
  const bool holds_commas = text.find(':') != std::string::npos || text.find('[') != std::string::npos;
  std::vector<std::string> values;
  for (const std::string& part : bars ? split(text, '|') : holds_commas ? std::vector<std::string>{text} : split(text, ',')) {
    if (part.empty()) fail("an empty value in '" + text + "'", where);
    const auto dots = part.find("..");
    const bool is_range = dots != std::string::npos && dots > 0 && parse_length(std::string_view(part).substr(0, dots));
    const auto length = parse_length(part);
    for (std::string& value : is_range ? range(part, where) : std::vector<std::string>{length ? std::to_string(*length) : part})
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(std::move(value));
    if (values.size() > kMostValues) fail(fmt::format("'{}' has more than {} values", text.substr(0, 60), kMostValues), where);
  }
  return values;
}

std::vector<SearchAxis> open_axes(const SearchRequest& request) { return Opener(request).all(); }

}  // namespace plimsoll
