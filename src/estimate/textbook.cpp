#include "plimsoll/error.hpp"
#include "plimsoll/formula.hpp"

namespace plimsoll {
namespace {

void require_positive(std::int64_t value, const char* what) {
  if (value < 1) fail(std::string(what) + " must be at least 1, not " + std::to_string(value));
}

}  // namespace

std::array<double, 4> zero_model_states(double parameters, std::int64_t gpus, const StateBytes& bytes) {
  require_positive(gpus, "the number of GPUs");
  const double n = static_cast<double>(gpus);
  const auto [p, g, o] = bytes;
  return {parameters * (p + g + o), parameters * (p + g + o / n), parameters * (p + (g + o) / n), parameters * ((p + g + o) / n)};
}

Seconds ring_all_reduce(double bytes, std::int64_t ranks, BytesPerSecond bandwidth, Seconds step_latency) {
  return 2 * ring_all_gather(bytes, ranks, bandwidth, step_latency);
}

Seconds ring_all_gather(double bytes, std::int64_t ranks, BytesPerSecond bandwidth, Seconds step_latency) {
  require_positive(ranks, "the number of ranks");
  const double steps = static_cast<double>(ranks - 1);
  return Seconds(steps / static_cast<double>(ranks) * bytes / bandwidth.value) + steps * step_latency;
}

double bubble_fraction(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
  require_positive(stages, "the number of stages");
  require_positive(micro_batches, "the number of micro-batches");
  require_positive(chunks, "the number of chunks per rank");
  const double fill = static_cast<double>(stages - 1);
  return fill / (static_cast<double>(micro_batches) * static_cast<double>(chunks) + fill);
}

}  // namespace plimsoll
