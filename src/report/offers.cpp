// One job on several machines.
#include "plimsoll/offers.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/printable.hpp"
#include "plimsoll/report.hpp"
#include "report/document_parts.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"
#include "report/price_line.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kHour = 3600, kTokens = 1e9, kImages = 1e6;

double per_device(const Report& report) {
  const TimeReport& time = report.time;
  return time.images_per_second_per_gpu > 0 ? time.images_per_second_per_gpu : time.tokens_per_second_per_gpu;
}

std::string number_of(double dollars) { return dollars < 100 ? fmt::format("{:.2f}", dollars) : fmt::format("{:.0f}", dollars); }
std::string dollars_of(double dollars) { return number_of(dollars) + " $"; }

bool counts_images(const std::vector<MachineOffer>& offers) {
  return std::any_of(offers.begin(), offers.end(),
                     [](const MachineOffer& each) { return each.report && each.report->time.images_per_second_per_gpu > 0; });
}

/// The best of those that fit, by what is less; null: none fits, or none has it.
template <class Less>
const MachineOffer* best_of(const std::vector<MachineOffer>& offers, bool (*has)(const MachineOffer&), Less less) {
  const MachineOffer* best = nullptr;
  for (const MachineOffer& each : offers)
    if (each.fits() && has(each) && (!best || less(each, *best))) best = &each;
  return best;
}

const MachineOffer* fastest_of(const std::vector<MachineOffer>& offers) {
  return best_of(
      offers, [](const MachineOffer& each) { return each.rate() > 0; },
      [](const MachineOffer& a, const MachineOffer& b) { return a.rate() > b.rate(); });
}

const MachineOffer* cheapest_of(const std::vector<MachineOffer>& offers) {
  return best_of(
      offers, [](const MachineOffer& each) { return each.dollars().has_value(); },
      [](const MachineOffer& a, const MachineOffer& b) { return a.dollars()->expected < b.dollars()->expected; });
}

Bytes device_of(const MachineOffer& each) { return Bytes(static_cast<std::int64_t>(each.report->worst_rank().memory.device.expected)); }

/// What is paid for.
std::string unit_of(const std::vector<MachineOffer>& offers) { return counts_images(offers) ? "million images" : "billion tokens"; }

std::string rate_of(double rate) { return rate > 0 ? with_thousands(static_cast<std::int64_t>(rate)) : "-"; }

std::string answer_of(const std::vector<MachineOffer>& offers) {
  const MachineOffer *fastest = fastest_of(offers), *cheapest = cheapest_of(offers);
  if (!fastest) return "it fits none of these machines";
  std::string text =
      fmt::format("fastest: {}, {} {}/s", printable(fastest->on), rate_of(fastest->rate()), counts_images(offers) ? "images" : "tokens");
  if (cheapest)
    text += fmt::format("; cheapest: {}, {} per {}", cheapest == fastest ? "it, too" : printable(cheapest->on),
                        dollars_of(cheapest->dollars()->expected), unit_of(offers));
  return text;
}

/// What the step is on the machine that answers, which says what nobody chose.
std::string step_of(const std::vector<MachineOffer>& offers) {
  const MachineOffer* said = fastest_of(offers);
  for (const MachineOffer& each : offers)
    if (!said && each.report) said = &each;
  return said ? printable(said->on) + ": " + printable(said->report->strategy) : "";
}

std::vector<std::string> row_of(const MachineOffer& each) {
  if (!each.report) return {printable(each.on), "-", "-", "-", "-", "-", "refused"};
  const auto money = each.dollars();
  return {printable(each.on),
          gib_of(device_of(each)),
          each.fits() ? gib_of(each.report->worst_rank().memory.margin()) : "-",
          to_string(Seconds(each.report->time.step_seconds.expected)),
          rate_of(each.rate()),
          money ? fmt::format("{} ({} to {})", number_of(money->expected), number_of(money->low), number_of(money->high)) : "-",
          spoken(name_of(each.report->verdict))};
}

}  // namespace

std::string price_line(const std::string& on, const GpuPrice& price) {
  return fmt::format("{}: {:.2f} $ an hour and GPU, {}, {} ({})", printable(on), price.dollars_per_gpu_hour, printable(price.provider), price.kind, price.date);
}

double MachineOffer::rate() const { return report ? per_device(*report) * static_cast<double>(report->gpus) : 0; }

std::optional<Band> MachineOffer::dollars() const {
  if (!price || !report || per_device(*report) <= 0) return std::nullopt;
  const Band& step = report->time.step_seconds;
  const double counted = report->time.images_per_second_per_gpu > 0 ? kImages : kTokens;
  const double expected = counted / per_device(*report) / kHour * price->dollars_per_gpu_hour;
  return Band{expected * step.low / step.expected, expected, expected * step.high / step.expected};
}

std::string to_text(const std::vector<MachineOffer>& offers, const TextStyle& style) {
  std::string text = wrapped("", answer_of(offers), style.width);
  if (style.detail == TextStyle::Detail::brief) return text;
  text += wrapped("", step_of(offers), style.width);
  std::vector<std::vector<std::string>> rows{
      {"on", "memory", "left", "step", counts_images(offers) ? "images/s" : "tokens/s", "$ per " + unit_of(offers), ""}};
  for (const MachineOffer& each : offers) rows.push_back(row_of(each));
  text += "\n" + columns(rows);
  for (const MachineOffer& each : offers)
    if (!each.report) text += wrapped("  ", fmt::format("{}: {}", printable(each.on), printable(each.refusal)), style.width);
  for (const MachineOffer& each : offers)
    if (!each.command.empty()) text += "  " + each.command + "\n";  // one line: to be copied
  text += "\nlist prices, without contracts, taxes and storage (hardware/prices.json, or --prices)\n";
  for (const MachineOffer& each : offers)
    if (each.report) text += wrapped("  ", each.price ? price_line(each.on, *each.price) : printable(each.on) + ": no price is listed", style.width);
  return text;
}

std::string to_json(const std::vector<MachineOffer>& offers) {
  Json list = Json::array();
  for (const MachineOffer& each : offers) {
    Json one{{"on", each.on}};
    if (!each.report) {
      one["refusal"] = each.refusal;
      list.push_back(std::move(one));
      continue;
    }
    one["report"] = Json::parse(to_json(*each.report));
    if (!each.command.empty()) one["command"] = each.command;
    if (each.price)
      one["price"] = Json{{"dollars_per_gpu_hour", each.price->dollars_per_gpu_hour},
                          {"kind", each.price->kind},
                          {"provider", each.price->provider},
                          {"date", each.price->date},
                          {"source", each.price->source}};
    if (const auto money = each.dollars())
      one[counts_images(offers) ? "dollars_per_million_images" : "dollars_per_billion_tokens"] =
          Json{{"low", money->low}, {"expected", money->expected}, {"high", money->high}};
    list.push_back(std::move(one));
  }
  const MachineOffer *fastest = fastest_of(offers), *cheapest = cheapest_of(offers);
  return json_text(Json{{"schema", "plimsoll/offers/1"},
                        {"machines", std::move(list)},
                        {"fastest", fastest ? Json(fastest->on) : Json()},
                        {"cheapest", cheapest ? Json(cheapest->on) : Json()}});
}

Document document_of(const std::vector<MachineOffer>& offers) {
  Document document;
  document.title = "one job on " + std::to_string(offers.size()) + " machines";
  document.answer = answer_of(offers);
  document.verdict = fastest_of(offers) ? "fits" : "does not fit";
  Table table{"machines",
              {{"on", "on"},
               {"memory", "device_bytes"},
               {"left", "left_bytes"},
               {"step", "step_seconds"},
               {counts_images(offers) ? "images/s" : "tokens/s", "per_second"},
               {"$ per " + unit_of(offers), "dollars"},
               {"verdict", "verdict"},
               {"refusal", "refusal"}},
              {}};
  for (const MachineOffer& each : offers) {
    const std::vector<std::string> shown = row_of(each);
    std::vector<Cell> row{text_cell(each.on)};
    if (each.report) {
      const auto money = each.dollars();
      row.insert(row.end(),
                 {bytes_cell(device_of(each)), bytes_cell(each.report->worst_rank().memory.margin()),
                  seconds_cell(Seconds(each.report->time.step_seconds.expected)), Cell{shown[4], fmt::format("{:.6g}", each.rate())},
                  money ? Cell{shown[5], fmt::format("{:.6g}", money->expected)} : Cell{}});
    } else {
      row.insert(row.end(), 5, Cell{});
    }
    row.push_back(text_cell(shown[6]));
    row.push_back(text_cell(each.refusal));
    table.rows.push_back(std::move(row));
  }
  document.tables.push_back(std::move(table));
  document.text = to_text(offers, {});
  return document;
}

}  // namespace plimsoll
