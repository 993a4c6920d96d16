// "plimsoll/campaign/1", documented in docs/campaign.md.
#include <nlohmann/json.hpp>

#include "plimsoll/campaign.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Json object_of(const CampaignReport& report) {
  const Band& step = report.step.time.step_seconds;
  Json checkpoint = {{"bytes", report.checkpoint.bytes.count},
                     {"weights_bytes", report.checkpoint.weights.count},
                     {"optimizer_bytes", report.checkpoint.optimizer.count},
                     {"sharded", report.checkpoint.sharded},
                     {"form", report.checkpoint.form}};
  if (report.checkpoint.write) checkpoint["write_seconds"] = report.checkpoint.write->value;
  Json object = {{"schema", "plimsoll/campaign/1"},
                 {"model", report.step.model_name},
                 {"cluster", report.step.cluster_name},
                 {"gpus", report.step.gpus},
                 {"verdict", name_of(report.step.verdict)},
                 {"tokens", report.tokens},
                 {"steps", report.steps},
                 {"step_seconds", {{"low", step.low}, {"expected", step.expected}, {"high", step.high}}},
                 {"training_seconds", report.training.value},
                 {"days", {{"low", report.days.low}, {"expected", report.days.expected}, {"high", report.days.high}}},
                 {"gpu_hours", report.gpu_hours},
                 {"megawatt_hours", report.megawatt_hours},
                 {"board_power", report.step.time.board_power},
                 {"training_flops", {{"6nd", report.flops_6nd}, {"exact", report.flops_exact}}},
                 {"checkpoint", std::move(checkpoint)}};
  if (report.chinchilla_tokens > 0)
    object["chinchilla"] = {{"tokens_for_this_model", report.chinchilla_tokens},
                            {"parameters_for_these_flops", report.optimal_parameters},
                            {"tokens_for_these_flops", report.optimal_tokens},
                            {"loss", report.predicted_loss}};
  if (report.price)
    object["price"] = {{"dollars", report.dollars},  {"dollars_per_gpu_hour", report.price->dollars_per_gpu_hour},
                       {"kind", report.price->kind}, {"provider", report.price->provider},
                       {"date", report.price->date}, {"source", report.price->source}};
  if (report.spot_dollars > 0) object["spot_dollars"] = report.spot_dollars;
  if (report.resilience)
    object["resilience"] = {{"seconds_between_interruptions", report.resilience->between_failures.value},
                            {"young_seconds", report.resilience->young.value},
                            {"daly_seconds", report.resilience->daly.value},
                            {"goodput", report.resilience->goodput}};
  object["notes"] = report.notes;
  return object;
}

}  // namespace

std::string to_json(const CampaignReport& report) { return json_text(object_of(report)); }

std::string to_json(const std::vector<CampaignOffer>& offers) {
  Json campaigns = Json::array();
  for (const CampaignOffer& each : offers) {
    Json entry = {{"on", each.on}};
    if (each.report)
      entry["campaign"] = object_of(*each.report);
    else
      entry["refusal"] = each.refusal;
    campaigns.push_back(std::move(entry));
  }
  return json_text(Json{{"schema", "plimsoll/campaigns/1"}, {"campaigns", std::move(campaigns)}});
}

}  // namespace plimsoll
