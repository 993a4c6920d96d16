#include "machines.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/power_limit.hpp"
#include "price_options.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr const char* kOn = "--on";

/// Of those whose price is old, a line each.
std::string age_notes(const std::vector<MachineOffer>& offers, const TextStyle& style) {
  std::string notes;
  if (style.detail == TextStyle::Detail::brief) return notes;
  for (const MachineOffer& each : offers) notes += age_note_of(each.on, each.price);
  return notes;
}

}  // namespace

bool names_machines(const Arguments& arguments) { return arguments.has(kOn) && machines_of(arguments[kOn]) != std::vector{arguments[kOn]}; }

std::vector<std::string> machines_said(const Arguments& arguments, const PriceList& prices) {
  return arguments[kOn] == "any" ? priced_nodes(prices) : machines_of(arguments[kOn]);
}

int offer_machines(const Arguments& arguments, const std::string& format, const std::function<MachineJob(const Arguments&)>& job) {
  const PriceList prices = prices_said(arguments);
  const std::vector<MachineOffer> offers = offers_on(machines_said(arguments, prices), [&](const std::string& machine) {
    MachineJob there = job(arguments.with(kOn, machine));
    MachineOffer offer = offer_of(machine, there.cluster, std::move(there.report));
    offer.price = reckoned_price(prices, std::string(board_of(there.cluster.accelerator.name)));
    offer.command = std::move(there.command);
    return offer;
  });
  const auto answered = [](const MachineOffer& each) { return each.report.has_value(); };
  if (std::none_of(offers.begin(), offers.end(), answered)) fail(offers.front().refusal, {}, {});  // of every machine, the first one's
  const ReportWriters writers{[&](const TextStyle& style) { return to_text(offers, style) + age_notes(offers, style); },
                              [&] { return to_json(offers); },
                              [&] { return document_of(offers); },
                              {}};
  print_to(arguments, report_in(format, arguments, writers));
  return std::any_of(offers.begin(), offers.end(), [](const MachineOffer& each) { return each.fits(); }) ? kFits : kDoesNotFit;
}

}  // namespace plimsoll::cli
