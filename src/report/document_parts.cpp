#include "report/document_parts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "report/answer.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

Bytes whole(double bytes) { return Bytes(static_cast<std::int64_t>(bytes)); }

/// The categories that any rank has, in the order of the first that has them.
std::vector<std::string> categories_of(const Report& report) {
  std::vector<std::string> names;
  for (const RankReport& rank : report.ranks)
    for (const MemoryPart& part : rank.memory.parts)
      if (std::find(names.begin(), names.end(), part.name) == names.end()) names.push_back(part.name);
  return names;
}

Bytes part_of(const RankMemory& memory, const std::string& name) {
  for (const MemoryPart& part : memory.parts)
    if (part.name == name) return part.bytes;
  return {};
}

}  // namespace

Cell text_cell(const std::string& text) { return {text, text}; }
Cell count_cell(std::int64_t count) { return {with_thousands(count), std::to_string(count)}; }
Cell bytes_cell(Bytes bytes) { return {to_string(bytes), std::to_string(bytes.count)}; }
Cell seconds_cell(Seconds seconds) { return {to_string(seconds), fmt::format("{}", seconds.value)}; }
Cell share_cell(double share) { return {fmt::format("{:.1f} %", 100 * share), fmt::format("{:.6g}", share)}; }

Table ranks_table(const Report& report) {
  Table table{"pipeline stages",
              {{"stage", "stage"},
               {"GPUs", "gpus"},
               {"parameters", "parameters"},
               {"allocated", "allocated_bytes"},
               {"reserved", "reserved_bytes"},
               {"device", "device_bytes"},
               {"capacity", "capacity_bytes"}},
              {}};
  const std::vector<std::string> categories = categories_of(report);
  for (const std::string& name : categories) table.columns.push_back({spoken(name), name + "_bytes"});
  for (const RankReport& rank : report.ranks) {
    const RankMemory& memory = rank.memory;
    std::vector<Cell> row{count_cell(rank.stage),         count_cell(rank.count),         count_cell(rank.parameters),
                          bytes_cell(memory.allocated),   bytes_cell(memory.reserved),    bytes_cell(whole(memory.device.expected)),
                          bytes_cell(memory.capacity)};
    for (const std::string& name : categories) row.push_back(bytes_cell(part_of(memory, name)));
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table memory_table(const RankMemory& memory) {
  Table table{"memory per GPU", {{"category", "category"}, {"memory", "bytes"}, {"of capacity", "share"}}, {}};
  const auto add = [&](const std::string& name, Bytes bytes) {
    const double share = memory.capacity > Bytes(0) ? static_cast<double>(bytes.count) / static_cast<double>(memory.capacity.count) : 0;
    table.rows.push_back({text_cell(name), bytes_cell(bytes), share_cell(share)});
  };
  add("device", whole(memory.device.expected));
  for (const MemoryPart& part : memory.parts) add(spoken(part.name), part.bytes);
  return table;
}

Table phases_table(const RankMemory& memory) {
  Table table{"phases of a step, at most",
              {{"phase", "phase"}, {"allocated", "allocated_bytes"}, {"reserved", "reserved_bytes"}, {"engine", "engine_bytes"}, {"device", "device_bytes"}},
              {}};
  for (const PhaseMemory& each : memory.phases)
    table.rows.push_back({text_cell(std::string(name_of(each.phase))), bytes_cell(each.allocated), bytes_cell(each.reserved), bytes_cell(each.engine),
                          bytes_cell(each.device)});
  return table;
}

Table time_table(const TimeReport& time) {
  Table table{"time of a step", {{"part", "part"}, {"time", "seconds"}, {"of the step", "share"}}, {}};
  const double step = time.step_seconds.expected;
  table.rows.push_back({text_cell("step"), seconds_cell(Seconds(step)), share_cell(1)});
  for (const TimePart& part : time.breakdown)
    table.rows.push_back({text_cell(spoken(part.name)), seconds_cell(part.seconds), share_cell(step > 0 ? part.seconds.value / step : 0)});
  return table;
}

Table kernels_table(const TimeReport& time) {
  Table table{"dearest kernels",
              {{"kernel", "kernel"}, {"launched by", "label"}, {"launches", "launches"}, {"time", "seconds"}, {"bound by", "bound_by"}},
              {}};
  for (const DearKernel& each : time.dearest)
    table.rows.push_back(
        {text_cell(each.what), text_cell(each.label), count_cell(each.launches), seconds_cell(each.seconds), text_cell(each.limit)});
  return table;
}

std::vector<Listing> listings_of(const Report& report) {
  std::vector<Listing> listings;
  for (Listing each : {Listing{"advice", report.time.advice}, Listing{"assumptions", report.assumptions}, Listing{"notes", report.notes},
                       Listing{"keys of the config that were not read", report.unread_keys}})
    if (!each.lines.empty()) listings.push_back(std::move(each));
  return listings;
}

Document heading_of(const Report& report) {
  Document document;
  document.title = report.model_name.empty() ? report.cluster_name : report.model_name + " on " + report.cluster_name;
  document.verdict = spoken_verdict(report.verdict);
  document.answer = answer_of(report);
  document.setting = report.strategy;
  document.listings = listings_of(report);
  return document;
}

}  // namespace plimsoll
