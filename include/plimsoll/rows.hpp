/// Measured runs: what was trained on what, and what was seen. docs/rows.md describes the format of the files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// Quantities that a run can measure and plimsoll predicts, by their names in files and reports.
namespace quantity {
inline constexpr const char* parameters = "parameters";
inline constexpr const char* rank_parameters = "rank_parameters";  ///< of the pipeline rank asked about
inline constexpr const char* step_seconds = "step_seconds";
inline constexpr const char* tokens_per_second = "tokens_per_second_per_gpu";
inline constexpr const char* allocated = "allocated_bytes";
inline constexpr const char* reserved = "reserved_bytes";
inline constexpr const char* device = "device_bytes";
inline constexpr const char* backward_peak = "backward_peak_bytes";
inline constexpr const char* fits = "fits";  ///< 1 or 0
inline constexpr const char* launches = "launches";
inline constexpr const char* gemm_flops = "gemm_flops";
}  // namespace quantity

struct Observed {
  std::string quantity;
  double value = 0;
  bool lower_bound = false;   ///< the true value is at least this (reserved bytes where frees depend on the device's lag)
  bool of_optimizer = false;  ///< of reserved bytes: the trainer resets its peaks before the optimizer's step
  bool of_rank = false;       ///< of fits: the row says pp_rank, so the outcome is that pipeline rank's
};

/// One measured run, read. A row that cannot be used says why in `refused` and nothing else of it counts.
struct MeasuredRow {
  std::string id, title;
  std::string refused;
  std::shared_ptr<const Model> model;
  std::optional<Cluster> cluster;  ///< empty: the row is about the model alone
  Strategy strategy;
  std::vector<Observed> measured;
  std::vector<std::string> assumed;      ///< what the row's author assumed
  std::vector<std::string> unread_keys;  ///< keys that nothing read
};

/// Reads the text of a file of rows. One bad row is refused and never stops the others; a text that is no JSON array throws Error.
std::vector<MeasuredRow> parse_rows(const std::string& json, const std::string& where);
/// Reads a file of rows. Throws Error also when it cannot be read.
std::vector<MeasuredRow> load_rows(const std::string& path);

}  // namespace plimsoll
