/// One job on several machines: which hold it, how fast it goes there, and for how much money.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/campaign.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/text_style.hpp"

namespace plimsoll {

/// The price that is reckoned with where none is given: the cheapest on-demand one listed of a board, else the cheapest of any kind.
std::optional<GpuPrice> reckoned_price(const std::string& device);

/// One machine and what it would do.
struct MachineOffer {
  std::string on;                 ///< as it was asked for: "8xmi300x"
  std::optional<Report> report;   ///< nothing where the job is refused there
  std::string refusal;            ///< why
  std::optional<GpuPrice> price;  ///< of one of its devices; nothing where none is listed
  std::string command;            ///< that estimates it, where it was searched for; else empty

  bool fits() const { return report && report->verdict != Verdict::does_not_fit; }
  /// Tokens (of vision models images) that all devices train on in a second; 0 where the job is refused or not timed.
  double rate() const;
  /// Dollars of a billion tokens, or of a million images, at the step's low, expected and high time; nothing without price or rate.
  std::optional<Band> dollars() const;
};

/// The price, and what it costs, of a report on that cluster.
MachineOffer offer_of(const std::string& on, const Cluster& cluster, Report report);

/// "h100-sxm,8xmi300x": the machines of a list, split at commas; "any": a node of every device that has a price. A path is one machine.
/// Throws Error: one without a name, one that stands there twice, more than a hundred.
std::vector<std::string> machines_of(const std::string& on);

/// The message of the Error that `ask` throws, which is a machine's refusal; empty where it throws none. Internal errors pass.
std::string refusal_of(const std::function<void()>& ask);

/// What `offer` says of each of these machines; the Error that it throws is the machine's refusal, but for internal ones.
std::vector<MachineOffer> offers_on(const std::vector<std::string>& machines, const std::function<MachineOffer(const std::string&)>& offer);

/// A table, fitting ones first told: the fastest, and the cheapest a token. Prices with their provider and date.
std::string to_text(const std::vector<MachineOffer>& offers, const TextStyle& style);
/// "schema": "plimsoll/offers/1".
std::string to_json(const std::vector<MachineOffer>& offers);
Document document_of(const std::vector<MachineOffer>& offers);

}  // namespace plimsoll
