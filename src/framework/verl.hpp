#pragma once

#include "framework/resolver.hpp"

namespace plimsoll::framework {

/// Whether verl's workers run a strategy.
bool is_run_by_verl(const Strategy& s);

/// Of a strategy that verl runs: its release, how it shards, which kernels, how answers fill its rows of tokens; before ranks and batch are
/// resolved. Throws Error: rows that hold no sequence; refused: an algorithm with a critic, another framework, no FSDP.
void begin_verl(Resolver& r);

/// The type of its adapters: the weights'.
void complete_adapters_of_verl(Resolver& r);

/// The rest of what its configuration takes by itself: the reference, the engine, the sizes of rows that are scored.
void complete_verl(Resolver& r);

}  // namespace plimsoll::framework
