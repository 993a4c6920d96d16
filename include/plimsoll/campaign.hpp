/// A whole training run: from a step to days, money, energy, checkpoints and failures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// A list price of one device for one hour (hardware/prices.json).
struct GpuPrice {
  double dollars_per_gpu_hour = 0;
  std::string kind, provider, date, source;  ///< kind: "on-demand", "reserved", "spot"
};
/// Of that device, the cheapest first; empty where none is listed.
std::vector<GpuPrice> prices_of(const std::string& device);

/// What is asked of a run. Numbers that are 0 are not said.
struct CampaignRequest {
  double tokens = 0;                     ///< of the whole run; must be given, or epochs and dataset_tokens
  double epochs = 0, dataset_tokens = 0;
  double dollars_per_gpu_hour = 0;       ///< 0: the cheapest on-demand price listed
  double gpu_hours_between_failures = 0; ///< 0: as published of Llama 3's run (hardware/prices.json)
  double restart_seconds = 600;          ///< from a failure to the first new step: detection, scheduling, loading
  double storage_bytes_per_second = 0;   ///< of the file system, all writers together; 0: not known, and checkpoints have no time
  double interruptions_per_hour = 0;     ///< of spot instances, of the whole job: beside failures
  double spot_dollars_per_gpu_hour = 0;
  double power_usage_effectiveness = 1.0;  ///< of the data centre: its power over the machines'
};

/// A checkpoint as the framework writes it: weights as stored, the optimizer's copy of them, its moments.
struct Checkpoint {
  Bytes bytes;              ///< of all files
  Bytes weights, optimizer; ///< the two add up to `bytes`
  bool sharded = false;     ///< every rank writes its share; else one rank writes all of it
  std::string form;         ///< "torch_dist, every rank its shard"
  std::optional<Seconds> write;  ///< where the file system's bandwidth is known
};

/// Intervals between checkpoints and what is left of the time for training.
struct Resilience {
  Seconds between_failures;      ///< of the whole job
  Seconds young, daly;           ///< the intervals that lose least (Young 1974; Daly 2006)
  double goodput = 1;            ///< share of the time that trains, with Daly's interval
};

struct CampaignReport {
  Report step;
  double tokens = 0, steps = 0;
  Seconds training;                  ///< without interruptions
  Band days;                         ///< with them, and with the band of a step
  double gpu_hours = 0;              ///< with them
  std::optional<GpuPrice> price;
  double dollars = 0;                ///< 0 where no price is known
  double spot_dollars = 0;           ///< where a spot price was given
  double megawatt_hours = 0;         ///< of the devices at the power that a step draws on average, and the data centre around them
  double flops_6nd = 0;              ///< 6 · active parameters · tokens
  double flops_exact = 0;            ///< by the model's own operators
  double chinchilla_tokens = 0;      ///< 20 for each parameter (Hoffmann 2022); 0: no language model that trains all of its weights
  double optimal_parameters = 0;     ///< that 6ND of this run would train best: √(C / 120)
  double optimal_tokens = 0;
  double predicted_loss = 0;         ///< Hoffmann's fit of MassiveText
  Checkpoint checkpoint;
  std::optional<Resilience> resilience;  ///< where a checkpoint's time is known
  std::vector<std::string> notes;
};

/// Young's interval √(2δM) between checkpoints that take `write`, with `between_failures` M.
Seconds young_interval(Seconds write, Seconds between_failures);
/// Daly's higher-order one; M where checkpoints take longer than twice that.
Seconds daly_interval(Seconds write, Seconds between_failures);
/// Share of the time that trains: τ over the expected time for τ of work, M·e^(R/M)·(e^((τ+δ)/M) − 1) (Daly 2006).
double goodput(Seconds interval, Seconds write, Seconds restart, Seconds between_failures);

/// The run on one of several machines.
struct CampaignOffer {
  std::string on;                        ///< as it was asked for: "8x8xmi300x"
  std::optional<CampaignReport> report;  ///< nothing where it is refused there
  std::string refusal;                   ///< why
};

/// Throws Error as estimate does, and where the length of the run is not said.
CampaignReport campaign(const Model& model, const Cluster& cluster, const Strategy& strategy, const CampaignRequest& request);

std::string to_text(const CampaignReport& report);
/// One object "plimsoll/campaign/1" (docs/campaign.md).
std::string to_json(const CampaignReport& report);
/// The fastest and the cheapest that fit, and a table of all.
std::string to_text(const std::vector<CampaignOffer>& offers);
/// One object "plimsoll/campaigns/1".
std::string to_json(const std::vector<CampaignOffer>& offers);

/// "15T", "300B", "2.5e9": tokens. Throws Error.
double parse_tokens(const std::string& text, const std::string& where);

}  // namespace plimsoll
