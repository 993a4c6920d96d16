// What a person reads of a whole run.
#include <fmt/format.h>

#include <cmath>

#include "plimsoll/campaign.hpp"
#include "report/layout.hpp"
#include "report/price_line.hpp"

namespace plimsoll {
namespace {

std::string amount(double value) {
  const std::pair<double, const char*> units[] = {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& [size, unit] : units)
    if (value >= size) return fmt::format("{:.4g}{}", value / size, unit);
  return fmt::format("{:.4g}", value);
}

std::string money(double dollars) {
  return dollars >= 1e4 ? "$" + with_thousands(static_cast<std::int64_t>(dollars)) : fmt::format("${:.2f}", dollars);
}

std::string duration(Seconds seconds) {
  if (seconds.value >= 2 * 86400) return fmt::format("{:.1f} days", seconds.value / 86400);
  if (seconds.value >= 2 * 3600) return fmt::format("{:.1f} hours", seconds.value / 3600);
  if (seconds.value >= 120) return fmt::format("{:.1f} minutes", seconds.value / 60);
  return to_string(seconds);
}

std::string energy(double megawatt_hours) {
  return megawatt_hours < 1 ? fmt::format("{:.4g} kWh", 1000 * megawatt_hours) : fmt::format("{:.4g} MWh", megawatt_hours);
}

std::string line(const char* what, const std::string& value) { return wrapped(fmt::format("  {:<22}", what), value); }

std::string price_of(const CampaignReport& report) {
  const GpuPrice& price = *report.price;
  std::string text = fmt::format("{} at ${:.4g} per GPU-hour", money(report.dollars), price.dollars_per_gpu_hour);
  if (!price.provider.empty()) text += fmt::format(" ({}, {}, {})", printable(price.provider), price.kind, price.date);
  return text;
}

std::string days_of(double days) { return duration(Seconds(days * 86400)); }

std::string in_days(const Band& days) { return fmt::format("{} ({} to {})", days_of(days.expected), days_of(days.low), days_of(days.high)); }

/// The best of those that fit; null: none does.
template <class Less>
const CampaignOffer* best_of(const std::vector<CampaignOffer>& offers, Less less) {
  const CampaignOffer* best = nullptr;
  for (const CampaignOffer& each : offers)
    if (each.report && each.report->step.verdict != Verdict::does_not_fit && (!best || less(*each.report, *best->report))) best = &each;
  return best;
}

const CampaignOffer* fastest_of(const std::vector<CampaignOffer>& offers) {
  return best_of(offers, [](const CampaignReport& a, const CampaignReport& b) { return a.days.expected < b.days.expected; });
}

std::string answer_of(const std::vector<CampaignOffer>& offers) {
  const CampaignOffer* fastest = fastest_of(offers);
  if (!fastest) return "it fits none of these machines";
  const auto priced = [](const CampaignReport& report) { return report.price ? report.dollars : HUGE_VAL; };
  const CampaignOffer* cheapest = best_of(offers, [&](const CampaignReport& a, const CampaignReport& b) { return priced(a) < priced(b); });
  std::string text = fmt::format("fastest: {}, {}", printable(fastest->on), days_of(fastest->report->days.expected));
  if (cheapest->report->price) text += fmt::format("; cheapest: {}, {}", cheapest == fastest ? "it, too" : printable(cheapest->on), money(cheapest->report->dollars));
  return text;
}

std::vector<std::string> row_of(const CampaignOffer& each) {
  if (!each.report) return {printable(each.on), "-", "-", "-", "-", "refused"};
  const CampaignReport& run = *each.report;
  return {printable(each.on), in_days(run.days), with_thousands(static_cast<std::int64_t>(run.gpu_hours)), run.price ? money(run.dollars) : "-", energy(run.megawatt_hours),
          spoken(name_of(run.step.verdict))};
}

}  // namespace

std::string to_text(const std::vector<CampaignOffer>& offers) {
  std::vector<std::vector<std::string>> rows{{"on", "time", "GPU-hours", "money", "energy", ""}};
  for (const CampaignOffer& each : offers) rows.push_back(row_of(each));
  std::string text = wrapped("", answer_of(offers));
  if (const CampaignOffer* fastest = fastest_of(offers)) text += wrapped("", printable(fastest->on) + ": " + printable(fastest->report->step.strategy));
  text += "\n" + columns(rows);
  for (const CampaignOffer& each : offers)
    if (!each.report) text += wrapped("  ", printable(each.on) + ": " + printable(each.refusal));
  for (const CampaignOffer& each : offers)
    if (each.report && each.report->price && !each.report->price->provider.empty()) text += wrapped("  ", price_line(each.on, *each.report->price));
  return text;
}

std::string to_text(const CampaignReport& report) {
  const Report& step = report.step;
  std::string text = wrapped(
      "", fmt::format("{} on {} GPU{} ({}): {} tokens in {} steps of {}", printable(step.model_name), with_thousands(step.gpus),
                      step.gpus == 1 ? "" : "s", printable(step.cluster_name), amount(report.tokens),
                      with_thousands(static_cast<std::int64_t>(report.steps)), to_string(Seconds(step.time.step_seconds.expected))));
  text += wrapped("", printable(step.strategy));
  if (step.verdict == Verdict::does_not_fit) text += wrapped("", "the step does not fit: what follows is of a run that cannot be");
  text += "\n" + line("time", in_days(report.days));
  text += line("GPU-hours", report.gpu_hours < 100 ? fmt::format("{:.3g}", report.gpu_hours)
                                                   : with_thousands(static_cast<std::int64_t>(report.gpu_hours)));
  if (report.price) text += line("money", price_of(report));
  if (report.spot_dollars > 0) text += line("money on spot", money(report.spot_dollars));
  text += line("energy", energy(report.megawatt_hours) + (step.time.board_power < 1 ? fmt::format(" of the devices, which draw {:.0f} % of their boards' power", 100 * step.time.board_power)
                                                                                    : " of the devices at their boards' power"));
  text += line("training FLOPs", fmt::format("{:.4g} by 6ND, {:.4g} by the model's operators", report.flops_6nd, report.flops_exact));
  if (report.chinchilla_tokens > 0)
    text += line(
        "Chinchilla",
        fmt::format("{} tokens would be 20 for each parameter; 6ND of this run would train {} parameters on {} tokens best; Hoffmann's fit "
                    "gives a loss of {:.3f} on MassiveText",
                    amount(report.chinchilla_tokens), amount(report.optimal_parameters), amount(report.optimal_tokens),
                    report.predicted_loss));
  text +=
      line("checkpoint", fmt::format("{} (weights {}, optimizer {}); {}", to_string(report.checkpoint.bytes),
                                     to_string(report.checkpoint.weights), to_string(report.checkpoint.optimizer), report.checkpoint.form));
  if (report.checkpoint.write) text += line("written in", duration(*report.checkpoint.write));
  if (report.resilience) {
    text += line("an interruption every", duration(report.resilience->between_failures));
    text += line("checkpoint every",
                 fmt::format("{} (Daly; Young: {})", duration(report.resilience->daly), duration(report.resilience->young)));
    text += line("goodput", fmt::format("{:.1f} % of the time trains", 100 * report.resilience->goodput));
  }
  for (const std::string& note : report.notes) text += wrapped("note: ", note);
  return text;
}

}  // namespace plimsoll
