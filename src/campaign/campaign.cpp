// From a step to a run.
#include "plimsoll/campaign.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "campaign/checkpoint.hpp"
#include "campaign/prices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/offers.hpp"
#include "plimsoll/power_limit.hpp"

namespace plimsoll {
namespace {

using namespace campaigning;

constexpr double kHour = 3600, kDay = 86400;
constexpr double kTokensPerParameter = 20;  // Hoffmann 2022 (Chinchilla), table 3: 1.5 to 2.2e1 for each parameter at every size

/// L(N, D) = E + A / N^α + B / D^β, Hoffmann 2022, equation 10 and its fit.
double hoffmann_loss(double parameters, double tokens) {
  return 1.69 + 406.4 / std::pow(parameters, 0.34) + 410.7 / std::pow(tokens, 0.28);
}

double tokens_of(const CampaignRequest& request) {
  if (request.tokens > 0 && request.epochs > 0) fail("tokens and epochs both say how long the run is", "campaign", "leave one of them out");
  if (request.tokens > 0) return request.tokens;
  if (request.epochs > 0 && request.dataset_tokens > 0) return request.epochs * request.dataset_tokens;
  if (request.epochs > 0) fail("epochs of how many tokens?", "campaign", "add --dataset-tokens 100B");
  fail("how long is the run?", "campaign", "add --tokens 15T, or --epochs 3 --dataset-tokens 100B");
}

/// The model's own forward and backward pass, causal pairs exactly: backward is twice the forward.
double exact_flops(const Model& model, const Strategy& s, double tokens) {
  const flops::Lengths lengths{s.seq_len, s.tgt_len > 0 ? s.tgt_len : s.text_tokens};
  return 3 * flops::forward(model, lengths) / static_cast<double>(s.seq_len) * tokens;
}

/// Hoffmann's law is of language models that learn all of their weights from the run's own tokens.
void add_scaling_laws(const Model& model, const Strategy& resolved, CampaignReport& report) {
  const auto parameters = static_cast<double>(model.active_parameters());
  report.flops_6nd = 6 * parameters * report.tokens;
  if (model.task != Model::Task::causal_lm || resolved.lora || resolved.peft) return;
  report.chinchilla_tokens = kTokensPerParameter * parameters;
  report.optimal_parameters = std::sqrt(report.flops_6nd / (6 * kTokensPerParameter));
  report.optimal_tokens = kTokensPerParameter * report.optimal_parameters;
  report.predicted_loss = hoffmann_loss(parameters, report.tokens);
}

void add_price(const Cluster& cluster, const CampaignRequest& request, CampaignReport& report) {
  if (request.dollars_per_gpu_hour > 0) {
    report.price = GpuPrice{request.dollars_per_gpu_hour, "as given", "", "", ""};
  } else {
    report.price = reckoned_price(std::string(board_of(cluster.accelerator.name)));
  }
  if (report.price) report.dollars = report.gpu_hours * report.price->dollars_per_gpu_hour;
}

/// Failures of the devices, of which more GPUs have more, and a provider's taking back of spot instances.
Seconds between_interruptions(const CampaignRequest& request, std::int64_t gpus, double reclaims_per_hour) {
  const double each = request.gpu_hours_between_failures > 0 ? request.gpu_hours_between_failures : published_gpu_hours_between_failures();
  return Seconds(kHour / (static_cast<double>(gpus) / each + reclaims_per_hour));
}

Resilience resilience_of(Seconds write, Seconds restart, Seconds between) {
  Resilience resilience{between, young_interval(write, between), daly_interval(write, between), 1};
  resilience.goodput = goodput(resilience.daly, write, restart, between);
  return resilience;
}

void add_notes(const CampaignRequest& request, const Strategy& s, CampaignReport& report) {
  if (!report.price) report.notes.push_back("no list price of this device is known: --price-per-gpu-hour says it");
  if (!report.resilience)
    report.notes.push_back("no time for checkpoints and failures: --storage-bandwidth says what the file system writes");
  if (request.gpu_hours_between_failures == 0 && report.resilience)
    report.notes.push_back("failures as in Llama 3's run: one in 50,676 GPU-hours; --gpu-hours-between-failures says yours");
  if (s.lora || s.peft) report.notes.push_back("6ND and Hoffmann's laws are of training from scratch, not of adapters");
  report.notes.push_back(
      fmt::format("at another batch size than {}: Adam's learning rate goes with the square root of it (Malladi 2022), SGD's with the "
                  "batch itself (Goyal 2017), "
                  "up to the critical batch, where the noise of the gradient is as large as the gradient (McCandlish 2018)",
                  s.global_batch));
}

}  // namespace

CampaignReport campaign(const Model& model, const Cluster& cluster, const Strategy& strategy, const CampaignRequest& request) {
  CampaignReport report;
  report.tokens = tokens_of(request);
  report.step = estimate(model, cluster, strategy);
  const Strategy resolved = resolve(strategy, model, cluster);
  const Band& step = report.step.time.step_seconds;
  report.steps = std::ceil(report.tokens / (static_cast<double>(resolved.global_batch) * static_cast<double>(resolved.seq_len)));
  report.training = Seconds(report.steps * step.expected);
  report.checkpoint = checkpoint_of(model, resolved, request.storage_bytes_per_second);
  double share = 1;
  if (report.checkpoint.write) {
    report.resilience =
        resilience_of(*report.checkpoint.write, Seconds(request.restart_seconds), between_interruptions(request, report.step.gpus, 0));
    share = report.resilience->goodput;
  }
  const auto days = [&](double seconds) { return report.steps * seconds / share / kDay; };
  report.days = {days(step.low), days(step.expected), days(step.high)};
  const auto gpus = static_cast<double>(report.step.gpus);
  report.gpu_hours = report.days.expected * 24 * gpus;
  add_price(cluster, request, report);
  if (request.spot_dollars_per_gpu_hour > 0 && report.checkpoint.write) {
    const Seconds between = between_interruptions(request, report.step.gpus, request.interruptions_per_hour);
    const double spot = resilience_of(*report.checkpoint.write, Seconds(request.restart_seconds), between).goodput;
    report.spot_dollars = report.training.value / spot / kHour * gpus * request.spot_dollars_per_gpu_hour;
  }
  report.megawatt_hours = report.gpu_hours * report.step.time.board_power * cluster.accelerator.power.value.value * request.power_usage_effectiveness / 1e6;
  report.flops_exact = exact_flops(model, resolved, report.tokens);
  add_scaling_laws(model, resolved, report);
  add_notes(request, resolved, report);
  return report;
}

double parse_tokens(const std::string& text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const auto is = [&](const char* upper, const char* lower) { return unit == upper || unit == lower; };
  const double scale = unit.empty() ? 1 : is("K", "k") ? 1e3 : is("M", "m") ? 1e6 : is("B", "b") ? 1e9 : is("T", "t") ? 1e12 : 0;
  if (error != std::errc() || scale == 0 || !(value > 0) || !(value * scale <= 1e20))
    fail("'" + text + "' is no number of tokens", where, "300B, 15T, 2.5e9");
  return value * scale;
}

}  // namespace plimsoll
