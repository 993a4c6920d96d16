#include <cmath>

#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr double kMost = 1e30, kGib = 1073741824.0;

const std::vector<std::string>& measured_names() {
  static const std::vector<std::string> names = {
      "parameters", "rank_parameters", "step_time_s", "tokens_per_s_per_gpu", "peak_allocated_bytes", "peak_reserved_bytes",
      "peak_allocated_gib", "peak_reserved_gib", "peak_mem_gib", "peak_mem_kind", "oom", "cumulative_peak_bytes", "reserved_is_lower_bound",
      "launches", "gemm_flops",
      // Known, and not compared.
      "trainable_parameters", "local_parameters", "allocated_at", "attention_kernels", "buffers", "collectives", "cpu_mem_gib",
      "device_mean_mib",
      "first_step_allocated_bytes", "flops_convention", "gemm_flops_by_type", "gemm_shapes", "gemms", "hfu", "host_pinned_bytes",
      "host_pinned_requested_bytes", "init_peak_allocated_bytes", "kernels", "layers", "mfu", "multi_tensor_kernels", "num_alloc_retries",
      "oom_at", "oom_phase", "peak_phase", "persistent_buffers", "persistent_bytes", "reserved_mem_avg_gib", "reserved_mem_p99_gib",
      "samples_per_s", "tflops_per_gpu", "tied_head", "token_embedding"};
  return names;
}

class Reading {
 public:
  Reading(const JsonValue& row, std::vector<Observed>& list) : row_(row), measured_(row["measured"]), list_(list) {}

  bool has(const char* key) const { return measured_.has(key) && !measured_[key].is_null(); }
  double number(const char* key) const { return measured_[key].number(0, kMost); }
  void take(const char* quantity, const char* key, double scale = 1) {
    if (has(key)) list_.push_back({quantity, number(key) * scale, false});
  }

  /// A whole step where the row allows it, else the rate. Samples of any length up to `seq_len` take a time that no one length tells.
  void take_time() {
    if (row_.has("training") && row_["training"].has("average_tokens_per_sample")) return;
    if (has("step_time_s")) return take(quantity::step_seconds, "step_time_s");
    if (!has("tokens_per_s_per_gpu")) return;
    const double rate = number("tokens_per_s_per_gpu");
    const bool whole = row_.has("training") && row_["training"].has("global_batch") && row_["training"].has("seq_len") && rate > 0;
    if (!whole) return take(quantity::tokens_per_second, "tokens_per_s_per_gpu");
    const double tokens = row_["training"]["global_batch"].number(1, kMost) * row_["training"]["seq_len"].number(1, kMost);
    list_.push_back({quantity::step_seconds, tokens / (rate * row_["hardware"]["gpus"].number(1, kMost)), false});
  }

  void take_memory() {
    const bool lower = has("reserved_is_lower_bound") && measured_["reserved_is_lower_bound"].boolean();
    take(quantity::allocated, "peak_allocated_bytes");
    const std::size_t before = list_.size();
    take(quantity::reserved, "peak_reserved_bytes");
    if (!has("peak_reserved_bytes")) take(quantity::reserved, "peak_reserved_gib", kGib);
    if (list_.size() > before) list_.back().lower_bound = lower;
    if (has("peak_mem_gib")) take_named_peak();
  }

  void take_fits() {
    if (!has("oom")) return;
    Observed& seen = list_.emplace_back(Observed{quantity::fits, measured_["oom"].boolean() ? 0.0 : 1.0});
    seen.of_rank = row_.has("training") && row_["training"].has("pp_rank");
  }

  void take_backward() {
    if (!has("cumulative_peak_bytes")) return;
    const JsonValue peaks = measured_["cumulative_peak_bytes"];
    if (peaks.has("backward")) list_.push_back({quantity::backward_peak, peaks["backward"].number(0, kMost), false});
  }

 private:
  /// `peak_mem_gib` is what `peak_mem_kind` says; unspecified is compared with reserved.
  void take_named_peak() {
    const std::string kind = has("peak_mem_kind") ? measured_["peak_mem_kind"].text() : "unspecified";
    if (kind == "allocated")
      take_once(quantity::allocated);
    else if (kind == "device")
      take_once(quantity::device);
    else if (kind == "reserved" || kind == "unspecified")
      take_once(quantity::reserved);
    else
      measured_["peak_mem_kind"].expected("allocated, reserved, device or unspecified");
  }
  void take_once(const char* quantity) {
    for (const auto& each : list_)
      if (each.quantity == quantity) return;
    take(quantity, "peak_mem_gib", kGib);
  }

  const JsonValue& row_;
  JsonValue measured_;
  std::vector<Observed>& list_;
};

}  // namespace

std::vector<Observed> read_measurements(const JsonValue& row, std::vector<std::string>& unread) {
  if (!row["measured"].is_object()) row["measured"].expected("an object");
  check_keys(row["measured"], measured_names(), unread, "measured.");
  std::vector<Observed> list;
  Reading reading(row, list);
  reading.take(quantity::parameters, "parameters");
  reading.take(quantity::rank_parameters, "rank_parameters");
  reading.take_time();
  reading.take_memory();
  reading.take_backward();
  reading.take_fits();
  reading.take(quantity::launches, "launches");
  reading.take(quantity::gemm_flops, "gemm_flops");
  return list;
}

}  // namespace plimsoll::formats
