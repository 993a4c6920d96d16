// The catalogue of pipeline schedules: one row each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "plimsoll/error.hpp"
#include "schedule/slots.hpp"

namespace plimsoll {
namespace {

/// Largest number of slots that a schedule may have in all: what an absurd shape would ask for is refused before it is allocated.
constexpr std::int64_t kMostSlots = 20'000'000;

using Order = std::vector<Slot> (*)(int rank, const PipelineShape& shape);
/// Why the schedule is not defined for that shape; empty when it is.
using Check = std::string (*)(const PipelineShape& shape);

std::string any_shape(const PipelineShape& shape) {
  return shape.chunks == 1 ? std::string() : fmt::format("it has one model chunk per rank, not {}", shape.chunks);
}

std::string one_stage(const PipelineShape& shape) {
  return shape.stages == 1 && shape.chunks == 1 ? std::string() : "without a pipeline there is one stage and one chunk";
}

std::string interleaved_shape(const PipelineShape& shape) {
  if (shape.chunks < 2) return "it needs at least 2 model chunks per rank";
  if (shape.stages < 2) return "it needs at least 2 pipeline stages";
  if (shape.micro_batches % shape.stages != 0)
    return fmt::format("the number of micro-batches ({}) must be a multiple of the pipeline size ({})", shape.micro_batches, shape.stages);
  return {};
}

std::string interleaved_zero_bubble_shape(const PipelineShape& shape) {
  if (shape.chunks < 2) return "it needs at least 2 model chunks per rank";
  const int rounds = std::max(1, shape.micro_batches / shape.stages);
  if (shape.micro_batches % rounds != 0)
    return fmt::format("the number of micro-batches ({}) must be a multiple of the number of rounds ({})", shape.micro_batches, rounds);
  return {};
}

std::string v_shape(const PipelineShape& shape) {
  return shape.chunks == 2 ? std::string() : fmt::format("its V has exactly 2 model chunks per rank, not {}", shape.chunks);
}

std::string dualpipe_shape(const PipelineShape& shape) {
  if (shape.chunks != 2) return fmt::format("a rank holds exactly 2 stages, one per direction, not {}", shape.chunks);
  if (shape.stages % 2 != 0) return fmt::format("the pipeline size ({}) must be even", shape.stages);
  if (shape.micro_batches % 2 != 0) return fmt::format("the number of micro-batches ({}) must be even", shape.micro_batches);
  if (shape.micro_batches < 2 * shape.stages)
    return fmt::format("the number of micro-batches ({}) must be at least twice the pipeline size ({})", shape.micro_batches, shape.stages);
  return {};
}

std::string dualpipe_v_shape(const PipelineShape& shape) {
  if (const auto reason = v_shape(shape); !reason.empty()) return reason;
  if (shape.micro_batches < 2 * shape.stages)
    return fmt::format("the number of micro-batches ({}) must be at least twice the pipeline size ({})", shape.micro_batches, shape.stages);
  return {};
}

/// Every rank's order follows from all ranks' passes.
std::string controllable_memory_shape(const PipelineShape& shape) {
  constexpr int kMostStages = 64;
  if (const auto reason = v_shape(shape); !reason.empty()) return reason;
  if (shape.stages < 2) return "it needs at least 2 pipeline stages";
  return shape.stages > kMostStages ? fmt::format("{} stages are more than the {} that it is laid out for", shape.stages, kMostStages) : "";
}

struct Entry {
  ScheduleInfo info;
  Placement placement;
  Order order;
  Check check;
};

const std::array<Entry, 12>& entries() {
  using namespace schedule;
  static const std::array<Entry, 12> kEntries{{
      {{"none", {"no-pipeline"}, "one stage: forward and backward of each micro-batch in turn", 1},
       Placement::looped,
       one_forward_one_backward,
       one_stage},
      {{"gpipe", {"ScheduleGPipe", "fill-drain"}, "all forwards, then all backwards", 1}, Placement::looped, gpipe, any_shape},
      {{"1f1b", {"Schedule1F1B", "pipedream-flush", "one-forward-one-backward"}, "one forward, one backward: at most p in flight", 1},
       Placement::looped,
       one_forward_one_backward,
       any_shape},
      {{"interleaved-1f1b", {"ScheduleInterleaved1F1B", "interleaved", "vpp"}, "v chunks per rank: 1/v of the bubble", 2},
       Placement::looped,
       interleaved,
       interleaved_shape},
      {{"zb-h1", {"zero-bubble-h1", "zbh1"}, "weight gradients fill the cool-down; memory of 1F1B", 1},
       Placement::looped,
       zb_h1,
       any_shape},
      {{"zb-h2", {"zero-bubble-h2", "zbh2"}, "no bubble with 2p-1 in flight", 1}, Placement::looped, zb_h2, any_shape},
      {{"zbv", {"ScheduleZBVZeroBubble", "zbvzerobubble", "zb-v"}, "two chunks in a V: no bubble at the memory of 1F1B", 2},
       Placement::v_shape,
       zb_v,
       v_shape},
      {{"v-half", {"vhalf"}, "two chunks in a V: half the memory of 1F1B", 2}, Placement::v_shape, v_half, controllable_memory_shape},
      {{"v-min", {"vmin"}, "two chunks in a V: a third of the memory of 1F1B", 2}, Placement::v_shape, v_min, controllable_memory_shape},
      {{"interleaved-zero-bubble", {"ScheduleInterleavedZeroBubble", "interleavedzerobubble"}, "interleaved with split backwards", 2},
       Placement::looped,
       interleaved_zero_bubble,
       interleaved_zero_bubble_shape},
      {{"dualpipe", {}, "both directions at once, two copies of the model", 2}, Placement::bidirectional, dualpipe, dualpipe_shape},
      {{"dualpipev", {"ScheduleDualPipeV", "dualpipe-v", "cut-in-half"}, "DualPipe folded into a V: one copy", 2},
       Placement::v_shape,
       dualpipe_v,
       dualpipe_v_shape},
  }};
  return kEntries;
}

/// Letters and digits only, in lower case: frameworks differ in case and hyphens.
std::string letters(std::string_view text) {
  std::string kept;
  for (char c : text)
    if (std::isalnum(static_cast<unsigned char>(c))) kept += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return kept;
}

const Entry& entry_of(std::string_view name_or_alias) {
  const std::string wanted = letters(name_or_alias.substr(0, 80));
  std::vector<std::string> known;
  for (const auto& entry : entries()) {
    known.push_back(entry.info.name);
    if (letters(entry.info.name) == wanted) return entry;
    for (const auto& alias : entry.info.aliases)
      if (letters(alias) == wanted) return entry;
  }
  const std::string shown(name_or_alias.substr(0, 80));
  fail("unknown pipeline schedule '" + shown + "'", {}, suggest(shown, known));
}

std::string refusal_of(const Entry& entry, const PipelineShape& shape) {
  if (shape.stages < 1 || shape.micro_batches < 1 || shape.chunks < 1)
    return fmt::format("{} stages, {} micro-batches and {} chunks are no pipeline", shape.stages, shape.micro_batches, shape.chunks);
  const double slots = 3.0 * shape.stages * static_cast<double>(std::max(shape.micro_batches, 2 * shape.stages)) * shape.chunks;
  if (slots > static_cast<double>(kMostSlots))
    return fmt::format("{} stages x {} micro-batches x {} chunks are too many slots to play", shape.stages, shape.micro_batches,
                       shape.chunks);
  return entry.check(shape);
}

PipelineShape shape_of(const Entry& entry, int stages, int micro_batches, int chunks) {
  return {stages, micro_batches, chunks > 0 ? chunks : entry.info.default_chunks};
}

}  // namespace

std::string_view name_of(Pass pass) {
  constexpr std::array<std::string_view, 4> kNames{"forward", "backward", "input_gradient", "weight_gradient"};
  return kNames[static_cast<std::size_t>(pass)];
}

int Schedule::model_stages() const { return placement == Placement::bidirectional ? shape.stages : shape.stages * shape.chunks; }

int Schedule::stage_of(int rank, int chunk) const {
  switch (placement) {
    case Placement::v_shape:
      return chunk == 0 ? rank : 2 * shape.stages - 1 - rank;
    case Placement::bidirectional:
      return chunk == 0 ? rank : shape.stages - 1 - rank;
    case Placement::looped:
      break;
  }
  return chunk * shape.stages + rank;
}

const std::vector<ScheduleInfo>& schedules() {
  static const std::vector<ScheduleInfo> kInfos = [] {
    std::vector<ScheduleInfo> infos;
    for (const auto& entry : entries()) infos.push_back(entry.info);
    return infos;
  }();
  return kInfos;
}

std::string schedule_name(std::string_view name_or_alias) { return entry_of(name_or_alias).info.name; }

std::string schedule_refusal(std::string_view name, int stages, int micro_batches, int chunks) {
  const Entry& entry = entry_of(name);
  return refusal_of(entry, shape_of(entry, stages, micro_batches, chunks));
}

Schedule make_schedule(std::string_view name, int stages, int micro_batches, int chunks) {
  const Entry& entry = entry_of(name);
  const PipelineShape shape = shape_of(entry, stages, micro_batches, chunks);
  if (const auto reason = refusal_of(entry, shape); !reason.empty()) refuse("schedule " + entry.info.name + ": " + reason);
  Schedule schedule{entry.info.name, shape, entry.placement, {}};
  for (int rank = 0; rank < stages; ++rank) schedule.ranks.push_back(entry.order(rank, shape));
  return schedule;
}

int peak_in_flight(const Schedule& schedule, int rank, bool until_weight) {
  int alive = 0, peak = 0;
  for (const Slot& slot : schedule.ranks.at(static_cast<std::size_t>(rank))) {
    const Pass releasing = until_weight ? Pass::weight_gradient : Pass::input_gradient;
    if (slot.pass == Pass::forward) peak = std::max(peak, ++alive);
    if (slot.pass == Pass::backward || slot.pass == releasing) --alive;
  }
  return peak;
}

}  // namespace plimsoll
