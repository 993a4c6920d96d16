// How far predictions of one kind of run have been from measured runs.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::estimation {

/// What kind of run a prediction is of, in words by which hardware/residuals.json tells how far measured runs lay from theirs: "framework"
/// (Report::framework), "place" (one device, one node, many nodes), "network" (dense, mixture), "device" (measured: its kernels were timed
/// for its file; published), "arithmetic" (of products: 32, 16, 8, 4 bits), "training" (whole, adapters), "basis" (played, closed form),
/// and of times "host" (waited for, ahead).
using RunKind = std::map<std::string, std::string>;

/// The kind of a run's memory.
RunKind memory_kind(const Model& model, const Cluster& cluster, const Strategy& resolved, Basis basis);
/// The kind of its time: `host` is the share of a step that its devices wait for the host.
RunKind time_kind(const Model& model, const Cluster& cluster, const Strategy& resolved, Basis basis, double host);

/// `expected` with the band in which nine in ten measured runs of this kind lay whose source had no part in it (hardware/residuals.json,
/// the first entry whose words are all the kind's). `quantity`: "bytes" of a rank's memory, or "step_seconds".
Band band_of(std::string_view quantity, const RunKind& kind, double expected);

/// How far the steps of two plans of one model on one cluster must be predicted apart, as a share of the shorter, for nine in ten such
/// pairs of measured runs to have come out in that order; 0 where hardware/residuals.json has no pairs.
double decisive_difference(std::string_view framework);

}  // namespace plimsoll::estimation
