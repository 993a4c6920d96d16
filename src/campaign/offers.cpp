// What a job costs on a machine: hardware/prices.json over the rate of its step.
#include "plimsoll/offers.hpp"

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/power_limit.hpp"
#include "plimsoll/price_list.hpp"

namespace plimsoll {
namespace {

constexpr std::size_t kMostMachines = 100;

/// The "16" of "16,384xh100", which is one machine.
bool is_count(const std::string& piece) { return !piece.empty() && piece.find_first_not_of("0123456789 ") == std::string::npos; }

}  // namespace

std::optional<GpuPrice> reckoned_price(const std::string& device) { return reckoned_price(shipped_prices(), device); }

MachineOffer offer_of(const std::string& on, const Cluster& cluster, Report report) {
  return {on, std::move(report), {}, reckoned_price(std::string(board_of(cluster.accelerator.name))), {}};
}

std::string refusal_of(const std::function<void()>& ask) {
  try {
    ask();
    return {};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return error.what();
  }
}

std::vector<MachineOffer> offers_on(const std::vector<std::string>& machines, const std::function<MachineOffer(const std::string&)>& offer) {
  std::vector<MachineOffer> offers;
  for (const std::string& machine : machines) {
    MachineOffer answer;
    std::string refusal = refusal_of([&] { answer = offer(machine); });
    offers.push_back(refusal.empty() ? std::move(answer) : MachineOffer{machine, {}, std::move(refusal), {}, {}});
  }
  return offers;
}

std::vector<std::string> machines_of(const std::string& on) {
  if (on == "any") return priced_nodes(shipped_prices());
  if (on.find('/') != std::string::npos || on.find(',') == std::string::npos) return {on};
  std::vector<std::string> machines;
  for (std::size_t from = 0; from <= on.size();) {
    std::size_t comma = std::min(on.find(',', from), on.size());
    if (comma < on.size() && is_count(on.substr(from, comma - from))) comma = std::min(on.find(',', comma + 1), on.size());
    std::string machine = on.substr(from, comma - from);
    machine.erase(0, std::min(machine.find_first_not_of(' '), machine.size()));
    machine.erase(machine.find_last_not_of(' ') + 1);
    if (machine.empty()) fail("a machine's name is empty", "--on", "8xh100-sxm,8xmi300x");
    if (std::find(machines.begin(), machines.end(), machine) != machines.end()) fail("'" + machine + "' stands in the list twice", "--on");
    machines.push_back(std::move(machine));
    from = comma + 1;
  }
  if (machines.size() > kMostMachines) fail("more than " + std::to_string(kMostMachines) + " machines", "--on");
  return machines;
}

}  // namespace plimsoll
