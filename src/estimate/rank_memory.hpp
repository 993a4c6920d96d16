// Peak memory of one rank: its step played through the allocator where it can be lowered, else the closed forms.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "estimate/stages.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::estimation {

/// Memory of a rank of pipeline stage `stage`.
RankMemory rank_memory(const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster, const Strategy& resolved,
                       std::optional<StepWork>& work);

/// The program of a rank of that stage; empty where there is no lowering, and why.
std::optional<StepProgram> rank_program(const Model& model, const Strategy& resolved, int stage, std::string& reason);

/// What plays it on that device: what lies outside the allocator is not the allocator's to take.
PlayMemoryOptions play_options(const Cluster& cluster, const Strategy& resolved);

}  // namespace plimsoll::estimation
