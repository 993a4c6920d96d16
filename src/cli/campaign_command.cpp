// campaign: a whole run, in days, money, energy, checkpoints and failures.
#include <algorithm>

#include "machines.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/power_limit.hpp"
#include "price_options.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

CampaignRequest request_of(const Arguments& arguments) {
  CampaignRequest request;
  if (arguments.has("--tokens")) request.tokens = parse_tokens(arguments["--tokens"], "--tokens");
  if (arguments.has("--dataset-tokens")) request.dataset_tokens = parse_tokens(arguments["--dataset-tokens"], "--dataset-tokens");
  request.epochs = arguments.number_or("--epochs", 0, 1e-6, 1e9);
  request.dollars_per_gpu_hour = arguments.number_or("--price-per-gpu-hour", 0, 1e-6, 1e6);
  request.spot_dollars_per_gpu_hour = arguments.number_or("--spot-price-per-gpu-hour", 0, 1e-6, 1e6);
  request.interruptions_per_hour = arguments.number_or("--spot-interruptions-per-hour", 0, 0, 1e6);
  request.gpu_hours_between_failures = arguments.number_or("--gpu-hours-between-failures", 0, 1e-3, 1e12);
  request.restart_seconds = arguments.number_or("--restart-seconds", request.restart_seconds, 0, 1e7);
  request.power_usage_effectiveness = arguments.number_or("--pue", 1, 1, 10);
  if (arguments.has("--storage-bandwidth")) request.storage_bytes_per_second = parse_bytes_per_second(arguments["--storage-bandwidth"]).value;
  if (request.spot_dollars_per_gpu_hour > 0 && request.storage_bytes_per_second == 0)
    fail("spot instances need checkpoints, and their time is not known", "--spot-price-per-gpu-hour", "add --storage-bandwidth '100 GB/s'");
  return request;
}

/// The price of the user's own list, where there is one.
std::optional<GpuPrice> price_said(const Arguments& arguments, const Cluster& cluster) {
  if (!arguments.has(kPrices)) return std::nullopt;
  if (arguments.has("--price-per-gpu-hour")) fail("the price is said twice", kPrices, "leave --price-per-gpu-hour or --prices out");
  return reckoned_price(prices_said(arguments), std::string(board_of(cluster.accelerator.name)));
}

/// The run on one machine, with the price that is reckoned with.
CampaignReport run_on(const Arguments& arguments, CampaignRequest request) {
  const Cluster cluster = cluster_of(arguments, "campaign");
  const std::optional<GpuPrice> price = price_said(arguments, cluster);
  if (price) request.dollars_per_gpu_hour = price->dollars_per_gpu_hour;
  const Strategy strategy = strategy_of(arguments);
  CampaignReport report = campaign(as_task_has_it(load_model(arguments["MODEL"]), strategy), cluster, strategy, request);
  if (price) report.price = price;  // and who asks it
  return report;
}

/// A line for each machine whose price is old.
std::string age_notes(const std::vector<CampaignOffer>& offers) {
  std::string notes;
  for (const CampaignOffer& each : offers)
    if (each.report) notes += age_note_of(each.on, each.report->price);
  return notes;
}

/// The same run on each machine of --on.
int run_on_machines(const Arguments& arguments, const CampaignRequest& request) {
  std::vector<CampaignOffer> offers;
  for (const std::string& machine : machines_said(arguments, prices_said(arguments))) {
    CampaignOffer& offer = offers.emplace_back(CampaignOffer{machine, {}, {}});
    offer.refusal = refusal_of([&] { offer.report = run_on(arguments.with("--on", machine), request); });
  }
  const auto answered = [](const CampaignOffer& each) { return each.report.has_value(); };
  if (std::none_of(offers.begin(), offers.end(), answered)) fail(offers.front().refusal, {}, {});  // of every machine, the first one's
  print_to(arguments, arguments.has("--json") ? to_json(offers) : to_text(offers) + age_notes(offers));
  return std::any_of(offers.begin(), offers.end(), [&](const CampaignOffer& each) { return answered(each) && each.report->step.verdict != Verdict::does_not_fit; }) ? kFits : kDoesNotFit;
}

int run_campaign(const Arguments& arguments) {
  const CampaignRequest request = request_of(arguments);
  if (names_machines(arguments)) return run_on_machines(arguments, request);
  const CampaignReport report = run_on(arguments, request);
  print_to(arguments, arguments.has("--json") ? to_json(report) : to_text(report) + (report.price ? age_note(*report.price, "note: ") : ""));
  return report.step.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command campaign_command() {
  Command command{"campaign",
                  "a whole training run: days, money, energy, checkpoints, failures",
                  "  plimsoll campaign llama-3.1-8b --on 32x8xh100-sxm --fsdp full --micro-batch 1 --global-batch 1024 --seq 8192 --tokens 15T\n"
                  "  plimsoll campaign gpt2-xl --on 8xmi300x --micro-batch 8 --epochs 3 --dataset-tokens 10B --storage-bandwidth '20 GB/s' --json",
                  run_options(),
                  run_campaign,
                  {}};
  command.options.insert(command.options.end(),
                         {{Option::value, "--tokens", "of the whole run: 300B, 15T", false, {}},
                          {Option::value, "--epochs", "times through --dataset-tokens, instead", false, {}},
                          {Option::value, "--dataset-tokens", "tokens of an epoch", false, {}},
                          {Option::value, "--price-per-gpu-hour", "dollars; else the cheapest on-demand price in hardware/prices.json, or --prices", false, {}},
                          prices_option(),
                          {Option::value, "--storage-bandwidth", "what the file system writes, all ranks together: '100 GB/s'", false, {}},
                          {Option::value, "--gpu-hours-between-failures", "of one GPU; else as in Llama 3's run", false, {}},
                          {Option::value, "--restart-seconds", "from a failure to the next step, 600 unless told", false, {}},
                          {Option::value, "--spot-price-per-gpu-hour", "dollars of a spot instance", false, {}},
                          {Option::value, "--spot-interruptions-per-hour", "how often the provider takes some of them back", false, {}},
                          {Option::value, "--pue", "power of the data centre over that of the machines, 1 unless told", false, {}},
                          {Option::flag, "--json", "print one plimsoll/campaign/1 object", false, {}},
                          {Option::value, "-o", "write to this file", false, {}}});
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
