/// Catalogue of pipeline schedules: each is a function from (rank, stages, micro-batches, chunks) to an ordered list of slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

/// What a slot computes for one micro-batch on one chunk.
enum class Pass : std::uint8_t {
  forward,
  backward,         ///< input and weight gradients together
  input_gradient,   ///< the half that the previous stage waits for
  weight_gradient,  ///< the half that nobody waits for
};
std::string_view name_of(Pass pass);

struct Slot {
  Pass pass;
  int chunk = 0;  ///< which of the rank's model chunks
  int micro_batch = 0;
  bool with_next = false;  ///< runs together with the next slot (DualPipe: a forward overlapped with a backward)
};

/// Which stage of the model a rank's chunk is.
enum class Placement : std::uint8_t {
  looped,         ///< chunk · p + rank
  v_shape,        ///< two chunks: rank, and 2p−1−rank
  bidirectional,  ///< two copies of the model: rank, and p−1−rank (DualPipe)
};

struct PipelineShape {
  int stages = 1;         ///< p: pipeline ranks
  int micro_batches = 1;  ///< m per step and replica
  int chunks = 1;         ///< v: model chunks per rank
};

/// The slots of every rank.
struct Schedule {
  std::string name;
  PipelineShape shape;
  Placement placement = Placement::looped;
  std::vector<std::vector<Slot>> ranks;

  /// Model stages in all: p·v, or p for bidirectional placement (each stage is held twice).
  int model_stages() const;
  int stage_of(int rank, int chunk) const;
};

/// One entry of the catalogue.
struct ScheduleInfo {
  std::string name;                  ///< "1f1b"
  std::vector<std::string> aliases;  ///< frameworks' names: "1F1B", "PipelineScheduleMulti" …
  std::string summary;
  int default_chunks;  ///< v when none is given
};
const std::vector<ScheduleInfo>& schedules();

/// The catalogue's name of a schedule or alias, case and punctuation ignored. Throws Error with the nearest name.
std::string schedule_name(std::string_view name_or_alias);

/// Builds the schedule. `chunks` 0: the schedule's default. Throws Error (refused) where the framework refuses, with the reason:
/// interleaved needs m divisible by p, DualPipe an even p and m ≥ 2p, … and where p·m·v is absurd.
Schedule make_schedule(std::string_view name, int stages, int micro_batches, int chunks = 0);
/// Why `make_schedule` would refuse; empty when it would not.
std::string schedule_refusal(std::string_view name, int stages, int micro_batches, int chunks = 0);

/// Largest number of (micro-batch, chunk) forwards of which the activations are held at once on that rank; an activation is
/// released by the backward, or by the input gradient when `until_weight` is false.
int peak_in_flight(const Schedule& schedule, int rank, bool until_weight = true);

}  // namespace plimsoll
