// The steps of resolve(), each in one file: what was said, what follows, what the framework takes.
#pragma once

#include <string>

#include "framework/catalogue.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll::framework {

struct Resolver {
  Strategy s;
  const Model& model;
  std::int64_t gpus;  ///< of the cluster
  int gpus_per_node;
  const Accelerator& device;
  Complaints complaints;
  std::int64_t image_positions = 0;  ///< of an image model's sample, by its config; 0: it leaves them open

  void assume(const std::string& what) { s.assumed.push_back(what); }
  const FrameworkProfile& profile() const { return entry_of(s.framework).profile; }
};

void resolve_framework(Resolver& r);
/// The release of the framework as it was said, and what is newer or older than all that was read.
void resolve_releases(Resolver& r);
/// What the releases that were said bring with them, and PyTorch's.
void complete_releases(Resolver& r);
/// Degrees from the number of GPUs, and the data-parallel kind.
void resolve_ranks(Resolver& r);
void resolve_data_parallel(Resolver& r);
/// Layers of every stage, as the framework deals them.
void resolve_stages(Resolver& r);
void resolve_batch(Resolver& r);
void resolve_precision(Resolver& r);
void resolve_optimizer(Resolver& r);
void resolve_kernels(Resolver& r);

/// What no framework can do with this model on these ranks.
void check_shapes(Resolver& r);
/// What this framework cannot do, by its profile's lists.
void check_abilities(Resolver& r);

/// "a, b or c" of printable choices.
template <class List>
std::string either(const List& list) {
  std::string text;
  for (const auto& each : list) text += (text.empty() ? "" : ", ") + std::string(name_of(each));
  return text.empty() ? "none" : text;
}

}  // namespace plimsoll::framework
