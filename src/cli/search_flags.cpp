#include "search_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

const std::string kGpus = "--gpus";

std::string key_of(const std::string& flag) {
  std::string key = flag.substr(2);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// "2/8" is the third of eight: shards are counted from 0, as the array indices of Slurm and Kubernetes are.
void read_shard(const Arguments& arguments, SearchRequest& request) {
  if (!arguments.has("--shard")) return;
  const std::string& text = arguments["--shard"];
  unsigned long long shard = 0, shards = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%7llu/%7llu%c", &shard, &shards, &rest) != 2 || shards < 1 || shard >= shards ||
      text.find('-') != std::string::npos)
    fail("'" + text + "' is no shard", "--shard", "0/8 is the first of eight, 7/8 the last");
  request.shard = shard;
  request.shards = shards;
}

SearchGoal goal_of(const Arguments& arguments) {
  const std::string& name = arguments["--minimize"];
  if (name.empty() || name == "time") return SearchGoal::time;
  if (name == "gpus") return SearchGoal::gpus;
  if (name == "cost" || name == "dollars") return SearchGoal::cost;  // of one device's hours a dollar buys the same everywhere
  fail("there is no goal '" + name + "'", "--minimize", suggest(name, {"time", "gpus", "cost", "dollars"}));
}

SearchWidth width_of(const Arguments& arguments) {
  const std::string& name = arguments["--open"];
  if (name.empty() || name == "usual") return SearchWidth::usual;
  if (name == "all") return SearchWidth::all;
  fail("there is no width '" + name + "'", "--open", suggest(name, {"usual", "all"}));
}

/// One value is said of all plans; several are an axis.
void read_strategy(const Arguments& arguments, SearchRequest& request) {
  if (arguments.has("--strategy")) request.base = load_strategy(arguments["--strategy"]);
  std::vector<std::pair<std::string, std::string>> said = stated_releases(arguments);
  for (const Option& flag : strategy_flags(kGpus)) {
    if (!arguments.has(flag.name) || flag.kind == Option::words) continue;
    const std::string key = key_of(flag.name), &text = arguments[flag.name];
    const bool any_framework = key == "framework" && text == "any";
    const bool is_list = flag.help.find("list") != std::string::npos || key == "strategy";
    SearchAxis axis{key, is_list         ? std::vector<std::string>{text}
                         : any_framework ? std::vector<std::string>{}
                                         : parse_axis_values(text, flag.name)};
    if (any_framework)
      for (const FrameworkProfile& profile : frameworks())
        if (profile.refused.empty()) axis.values.push_back(profile.name);
    if (axis.values.size() == 1) {
      said.emplace_back(key, axis.values.front());
    } else {
      for (const std::string& value : axis.values) {
        Strategy tried;
        set_option(tried, key, value);  // a wrong value is told before the work
      }
      request.axes.push_back(std::move(axis));
    }
  }
  if (is_foreign(arguments)) said.insert(said.begin(), request.base.options.begin(), request.base.options.end());
  set_options(request.base, said);
}

void read_gpus(const Arguments& arguments, SearchRequest& request) {
  if (!arguments.has(kGpus)) return;
  for (const std::string& value : parse_axis_values(arguments[kGpus], kGpus)) {
    std::int64_t gpus = 0;
    char rest = 0;
    if (std::sscanf(value.c_str(), "%9ld%c", &gpus, &rest) != 1 || gpus < 1)
      fail("'" + value + "' is no number of GPUs", kGpus, "8, 8..1024, or 8,16,24");
    request.gpus.push_back(gpus);
  }
  const std::int64_t most = *std::max_element(request.gpus.begin(), request.gpus.end()), node = request.cluster.gpus_per_node;
  if (most > request.cluster.gpus() && most % node != 0)
    fail(fmt::format("{} GPUs fill no whole nodes of {}", most, node), kGpus, fmt::format("{} do", round_up(most, node)));
  if (most > request.cluster.gpus()) {
    request.cluster.nodes = most / node;
    request.cluster.name = fmt::format("{}x{}x{}", most / node, node, request.cluster.accelerator.name);
    request.cluster_word = request.cluster.name;
  }
  for (const std::int64_t gpus : request.gpus) (void)part_of(request.cluster, gpus);
}

/// The run of other programs' files, its layout open.
SearchRequest foreign_request(const Arguments& arguments) {
  ForeignRun run = foreign_run(arguments);
  run.cluster = with_power_limit(std::move(run.cluster), arguments);
  if (arguments.has("--show-resolved")) print(show_resolved(run) + "\n");
  SearchRequest request;
  request.base = strategy_to_search(run);
  request.model_word = run.model_name;
  request.cluster_word = fmt::format("{}x{}x{}", run.cluster.nodes, run.cluster.gpus_per_node, run.cluster.accelerator.name);
  request.model = std::move(run.model);
  request.cluster = std::move(run.cluster);
  return request;
}

}  // namespace

std::vector<Option> search_flags() {
  std::vector<Option> flags = run_options();
  flags.front().required = false;  // MODEL: the files may say it
  for (Option& option : foreign_options()) flags.push_back(std::move(option));
  flags.insert(flags.end(),
               {{Option::value, kGpus, "sizes of the cluster to try: 8..1024 doubles from 8; else all of --on", false, {}},
                {Option::value,
                 "--open",
                 "usual (degrees, micro-batch, sharding, recomputation), or all: also precision, optimizer, offload, compile, loss, "
                 "numbers of recomputed layers",
                 false,
                 {}},
                {Option::value, "--minimize", "time, gpus (the fewest that fit), cost (GPU-seconds of a step) or dollars (the same; of several machines by their prices)", false, {}},
                {Option::value, "--max-step-seconds", "slower plans do not count", false, {}},
                {Option::value, "--top", "plans to rank exactly, 10 unless told", false, {}},
                {Option::value, "--sample", "look at so many layouts, spread over the space", false, {}},
                {Option::value, "--shard", "i/n: this part of the space, for job arrays; plimsoll merge puts them together", false, {}},
                {Option::value, "--max-estimates", "full estimates at most, 2000 unless told", false, {}},
                {Option::value, "--threads", "threads, as many as cores unless told", false, {}}});
  for (Option& flag : strategy_flags(kGpus)) flags.push_back(std::move(flag));
  return flags;
}

SearchRequest search_request(const Arguments& arguments, const std::string& command) {
  SearchRequest request = is_foreign(arguments) ? foreign_request(arguments) : SearchRequest{};
  if (!is_foreign(arguments)) {
    if (!arguments.has("MODEL"))
      fail("MODEL is missing: what is trained", command, "a shipped model's name, a config.json, or --from FILE");
    request.cluster_word = cluster_name(arguments, command);
    if (arguments.has("--power-limit")) request.cluster_word += "@" + arguments["--power-limit"];
    request.model_word = arguments["MODEL"];
    request.strategy_word = arguments["--strategy"];
    request.model = load_model(request.model_word);
    request.cluster = parse_cluster(request.cluster_word);
  }
  request.width = width_of(arguments);
  request.goal = goal_of(arguments);
  read_shard(arguments, request);
  read_gpus(arguments, request);
  read_strategy(arguments, request);
  request.model = as_task_has_it(std::move(request.model), request.base);
  request.most_step_seconds = arguments.number_or("--max-step-seconds", 0, 1e-9, 1e12);
  request.top = static_cast<std::size_t>(arguments.integer_or("--top", 10, 1, 1000));
  request.sample = static_cast<std::uint64_t>(arguments.integer_or("--sample", 0, 1, 1'000'000'000));
  request.most_estimates = static_cast<std::size_t>(arguments.integer_or("--max-estimates", 2000, 1, 10'000'000));
  request.threads = static_cast<int>(arguments.integer_or("--threads", 0, 1, 1024));
  return request;
}

}  // namespace plimsoll::cli
