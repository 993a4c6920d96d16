#include "estimate_machines.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "plimsoll/offers.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

constexpr const char* kOn = "--on";

}  // namespace

bool names_machines(const Arguments& arguments) { return arguments.has(kOn) && machines_of(arguments[kOn]) != std::vector{arguments[kOn]}; }

int estimate_machines(const Arguments& arguments, const std::string& format) {
  for (const char* other : {"--against", "--all"})
    if (arguments.has(other)) fail(std::string(other) + " is of one machine", other, "name one machine behind --on");
  const std::vector<MachineOffer> offers = offers_on(arguments[kOn], [&](const std::string& machine) {
    const Run run = run_of(arguments.with(kOn, machine), "estimate");
    return offer_of(machine, run.cluster, estimate(run.model, run.cluster, run.strategy));
  });
  const auto answered = [](const MachineOffer& each) { return each.report.has_value(); };
  if (std::none_of(offers.begin(), offers.end(), answered)) fail(offers.front().refusal, {}, {});  // of every machine, the first one's
  const ReportWriters writers{[&](const TextStyle& style) { return to_text(offers, style); },
                              [&] { return to_json(offers); },
                              [&] { return document_of(offers); },
                              {}};
  print_to(arguments, report_in(format, arguments, writers));
  return std::any_of(offers.begin(), offers.end(), [](const MachineOffer& each) { return each.fits(); }) ? kFits : kDoesNotFit;
}

}  // namespace plimsoll::cli
