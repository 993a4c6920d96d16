// --on with several machines: one job, which of them to book.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "command.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/offers.hpp"
#include "plimsoll/price_list.hpp"

namespace plimsoll::cli {

/// Whether --on names several machines, or any.
bool names_machines(const Arguments& arguments);

/// The machines that --on names; `any`: a node of every device that has a price, those of the user's list, too.
std::vector<std::string> machines_said(const Arguments& arguments, const PriceList& prices);

/// What is to be run on one machine: where, and what it would do.
struct MachineJob {
  Cluster cluster;
  Report report;
  std::string command;  ///< that estimates it, where it was searched for; else empty
};

/// The job on each machine that the line names, in a table with its prices; an Error that `job` throws is that machine's refusal. Exit code: 0 where one
/// of them holds it. Throws Error: the refusal of the first, where all refuse.
int offer_machines(const Arguments& arguments, const std::string& format, const std::function<MachineJob(const Arguments&)>& job);

}  // namespace plimsoll::cli
