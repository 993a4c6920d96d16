#include "estimate_machines.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/offers.hpp"
#include "plimsoll/power_limit.hpp"
#include "plimsoll/printable.hpp"
#include "price_options.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr const char* kOn = "--on";

/// `any` holds the devices of the user's prices, too.
std::string machines_said(const Arguments& arguments, const PriceList& prices) {
  if (arguments[kOn] != "any") return arguments[kOn];
  std::string machines;
  for (const std::string& node : priced_nodes(prices)) machines += (machines.empty() ? "" : ",") + node;
  return machines;
}

/// Of those whose price is old, a line each.
std::string age_notes(const std::vector<MachineOffer>& offers, const TextStyle& style) {
  std::string notes;
  if (style.detail == TextStyle::Detail::brief) return notes;
  for (const MachineOffer& each : offers)
    if (each.price) notes += age_note(*each.price, "  " + printable(each.on) + ": ");
  return notes;
}

}  // namespace

bool names_machines(const Arguments& arguments) { return arguments.has(kOn) && machines_of(arguments[kOn]) != std::vector{arguments[kOn]}; }

int estimate_machines(const Arguments& arguments, const std::string& format) {
  for (const char* other : {"--against", "--all"})
    if (arguments.has(other)) fail(std::string(other) + " is of one machine", other, "name one machine behind --on");
  const PriceList prices = prices_said(arguments);
  const std::vector<MachineOffer> offers = offers_on(machines_said(arguments, prices), [&](const std::string& machine) {
    const Run run = run_of(arguments.with(kOn, machine), "estimate");
    MachineOffer offer = offer_of(machine, run.cluster, estimate(run.model, run.cluster, run.strategy));
    offer.price = reckoned_price(prices, std::string(board_of(run.cluster.accelerator.name)));
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
