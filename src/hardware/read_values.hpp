// Reading sourced numbers from hardware files: {"value": "5.3 TB/s", "provenance": "datasheet", "source": "…"}.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::hardware {

Provenance read_provenance(const JsonValue& value);
MathType math_type(const JsonValue& at, std::string_view name);

Bytes bytes_value(const JsonValue& value);
BytesPerSecond bandwidth_value(const JsonValue& value);
FlopsPerSecond flops_value(const JsonValue& value);
Seconds seconds_value(const JsonValue& value);
Hertz hertz_value(const JsonValue& value);
Watts watts_value(const JsonValue& value);
/// Threads of a compute unit.
std::int64_t threads_value(const JsonValue& value);
/// "256x128".
Tile tile_value(const JsonValue& value);
/// 0 ≤ x ≤ 1.
double share_value(const JsonValue& value);
/// 0.001 ≤ x ≤ 1: an efficiency, by which a rate is multiplied.
double positive_share_value(const JsonValue& value);
/// What is drawn at the boost clock, of the board's power: 0.01 ≤ x ≤ 10.
double board_powers_value(const JsonValue& value);
double pace_value(const JsonValue& value);

/// A sourced number; `read` reads its "value".
template <class T>
Sourced<T> read_sourced(const JsonValue& object, T (*read)(const JsonValue&)) {
  Sourced<T> sourced{read(object["value"]), read_provenance(object["provenance"]), object["source"].text()};
  if (const auto note = object.find("note")) note->mark_read();
  return sourced;
}

/// The same for a member that may be missing: 0 then.
template <class T>
Sourced<T> read_optional(const JsonValue& object, std::string_view key, T (*read)(const JsonValue&)) {
  const auto found = object.find(key);
  return found ? read_sourced(*found, read) : Sourced<T>{};
}

/// The shipped name of the device that a file names, by its name or another of its names. Throws Error where there is none.
std::string device_value(const JsonValue& value);

std::string optional_text(const JsonValue& object, std::string_view key);
std::vector<Accelerator::Source> read_sources(const JsonValue& root);
/// That all of these members are there ("memory.usable"). Throws Error that names all that are not; `kind` is what hardware --template writes.
void require_all(const JsonValue& root, const std::vector<std::string>& paths, const std::string& kind);
/// Every `source` named in the file must be explained in its `sources`, and every key must be known. Throws Error.
void check_complete(const JsonValue& root);

/// The document of a shipped file ("hardware/accelerators/mi300x.json").
JsonDocument shipped_document(const std::string& path);
/// hardware/kernels.json, power_exponent.
double read_power_exponent(const JsonValue& kernels);

Accelerator read_accelerator(const JsonValue& root);
/// The `gemm` of an accelerator's file.
ProductConstants read_products(const JsonValue& object);
/// A cluster file; its accelerator is named in it.
Cluster read_cluster(const JsonValue& root);

/// Fills in the latency tables of the library that `library.name` names. Throws Error when there is none of that name.
void fill_latencies(CollectiveLibrary& library, NodeFabric fabric, const std::string& where);

/// What hardware/networks.json says of a network between nodes ("EFA"); of others the library's own tables hold.
void set_network(CollectiveLibrary& library, const std::string& name);

}  // namespace plimsoll::hardware
