#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::string error_text(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : std::string("-");
}

std::string bytes_row(const char* what, Bytes predicted, Bytes replayed) {
  return fmt::format(
      "  {:<20}{:>16}{:>16}  {}\n", what, to_string(predicted), to_string(replayed),
      predicted == replayed ? "equal" : error_text(static_cast<double>(predicted.count), static_cast<double>(replayed.count)));
}

/// A setting's text as JSON: numbers and truth values as such.
Json value_of(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_discarded() || parsed.is_string() ? Json(text) : parsed;
}

/// A row is written with the whole names of keys.
std::string whole_name(const std::string& key) {
  if (key == "seq") return "seq_len";
  if (key == "zero") return "zero_stage";
  return key == "schedule" ? "pp_schedule" : key;
}

/// "fsdp.reduce_dtype" goes into an object.
void set(Json& object, const std::string& key, const std::string& value) {
  const std::size_t dot = key.find('.');
  if (dot == std::string::npos)
    object[key] = value_of(value);
  else
    set(object[key.substr(0, dot)], key.substr(dot + 1), value);
}

}  // namespace

std::string to_text(const Replay& replay) {
  std::string text = fmt::format("{} ({}), {} kernels, {} steady steps{}\n", replay.device.name, replay.device.backend, replay.kernels(),
                                 replay.steps, replay.ranks > 1 ? fmt::format(", {} processes", replay.ranks) : "");
  text += fmt::format("  {:<20}{:>8}{:>13}{:>13}{:>10}{:>11}{:>11}\n", "kernels of a step", "count", "predicted", "measured", "error",
                      "GFLOP", "GB moved");
  double predicted = 0, measured = 0;
  for (const ReplayLine& line : replay.lines) {
    text += fmt::format("  {:<20}{:>8}{:>13}{:>13}{:>10}{:>11.3f}{:>11.3f}\n", line.what, line.count, to_string(Seconds(line.predicted_now)),
                        to_string(Seconds(line.measured)), error_text(line.predicted_now, line.measured), line.done_flops / 1e9,
                        line.done_bytes / 1e9);
    predicted += line.predicted_now;
    measured += line.measured;
  }
  text += fmt::format("  {:<20}{:>8}{:>13}{:>13}{:>10}\n", "their sum", "", to_string(Seconds(predicted)), to_string(Seconds(measured)),
                      error_text(predicted, measured));
  text +=
      fmt::format("  {:<20}{:>8}{:>13}{:>13}{:>10}  (spread {:.1f} %)\n", "step", "", to_string(Seconds(replay.predicted_now)),
                  to_string(Seconds(replay.measured_step)), error_text(replay.predicted_now, replay.measured_step), 100 * replay.spread);
  if (replay.slowdown)
    text += fmt::format(
        "  predicted at the clock of this replay: products took {:.2f} times as long as in the calibration, memory {:.2f}\n"
        "  {:<20}{:>8}{:>13}{:>13}{:>10}\n",
        replay.slowdown->product, replay.slowdown->stream, "  calibrated clock", "", to_string(Seconds(replay.predicted_step)),
        to_string(Seconds(replay.measured_step)), error_text(replay.predicted_step, replay.measured_step));
  constexpr double kShownShare = 0.005;
  if (replay.taken > kShownShare)
    text += fmt::format("  other work had a processor for {:.1f} % of the time, which is not counted as the step's\n", 100 * replay.taken);
  text += fmt::format("  {:<20}{:>16}{:>16}\n", "memory", "predicted", "replayed");
  text += bytes_row("allocated, peak", replay.predicted_allocated, replay.replayed_allocated);
  text += bytes_row("reserved, peak", replay.predicted_reserved, replay.replayed_reserved);
  text += fmt::format("  {:<20}{:>16}{:>16}\n", "got from the driver", "", to_string(replay.driver_peak));
  for (const std::string& note : replay.notes) text += "  note: " + note + "\n";
  return text;
}

std::string replay_row(const Replay& replay, const std::string& model, const std::string& config, const std::string& on,
                       const std::vector<std::pair<std::string, std::string>>& settings) {
  Json training = Json::object();
  for (const auto& [key, value] : settings) set(training, whole_name(key), value);
  Json row{{"id", "replay-" + model},
           {"source", {{"title", "plimsoll replay"}, {"where", replay.device.name}, {"version_or_date", replay.device.library}}}};
  row["model"] = config.empty() ? Json{{"name", model}} : Json{{"name", model}, {"config", Json::parse(config)}};
  row["hardware"] = {{"gpu", on}, {"gpus", replay.ranks}, {"gpus_per_node", replay.ranks}};
  row["training"] = training;
  row["measured"] = {{"step_time_s", replay.measured_step},
                     {"peak_allocated_bytes", replay.replayed_allocated.count},
                     {"peak_reserved_bytes", replay.replayed_reserved.count}};
  return Json::array({row}).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
