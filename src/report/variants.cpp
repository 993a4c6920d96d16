// One program's settings side by side.
#include "plimsoll/variants.hpp"

#include <fmt/core.h>

#include "plimsoll/printable.hpp"
#include "report/document_parts.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::string words_of(const RehearsedVariant& variant) {
  std::string words;
  for (const auto& [key, value] : variant.settings) words += (words.empty() ? "" : " ") + key + "=" + value;
  return words;
}

bool several_devices(const std::vector<RehearsedVariant>& variants) {
  for (const RehearsedVariant& each : variants)
    if (each.device != variants.front().device) return true;
  return false;
}

std::string verdict_of(const RehearsedVariant& each) {
  return !each.failure.empty() ? "failed" : each.verdict == "does_not_fit" ? "does not fit" : each.verdict;
}

std::string tokens_of(const RehearsedVariant& each) {
  return each.tokens_per_second > 0 ? with_thousands(static_cast<std::int64_t>(each.tokens_per_second)) : "-";
}

std::vector<std::string> row_of(const RehearsedVariant& each, bool device) {
  std::vector<std::string> row;
  if (device) row.push_back(printable(each.device));
  for (const auto& [key, value] : each.settings) row.push_back(value.empty() ? "-" : printable(value));
  const bool seen = each.failure.empty() && !each.ran_out();
  row.insert(row.end(), {seen ? gib_of(each.memory) : "-", each.fits() ? gib_of(each.left()) : "-",
                         seen && each.step > Seconds(0) ? to_string(each.step) : "-", tokens_of(each), verdict_of(each)});
  return row;
}

std::string table_of(const std::vector<RehearsedVariant>& variants, const std::vector<std::size_t>& which) {
  const bool device = several_devices(variants);
  std::vector<std::string> head;
  if (device) head.push_back("on");
  for (const auto& [key, value] : variants.front().settings) head.push_back(printable(key));
  head.insert(head.end(), {"memory", "left", "step", "tokens/s per GPU", ""});
  std::vector<std::vector<std::string>> rows{head};
  for (const std::size_t i : which) rows.push_back(row_of(variants[i], device));
  return columns(rows);
}

std::string answer_of(const std::vector<RehearsedVariant>& variants, const std::vector<std::size_t>& front) {
  if (front.empty()) return "no setting fits";
  const RehearsedVariant& best = variants[front.front()];
  std::string text = fmt::format("fastest that fits: {} on {}, {} a step", printable(words_of(best)), printable(best.device), to_string(best.step));
  if (best.tokens_per_second > 0) text += fmt::format(", {} tokens/s per GPU", tokens_of(best));
  return text + fmt::format("; {:.1f} of {:.1f} GiB", best.memory.gib(), best.capacity.gib());
}

std::vector<std::size_t> all_of(const std::vector<RehearsedVariant>& variants) {
  std::vector<std::size_t> all(variants.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

}  // namespace

std::string to_text(const std::vector<RehearsedVariant>& variants, const TextStyle& style) {
  if (variants.empty()) return {};
  const std::vector<std::size_t> front = front_of(variants);
  std::string text = wrapped("", answer_of(variants, front), style.width);
  if (!front.empty()) text += "  " + variants[front.front()].command + "\n";
  if (style.detail == TextStyle::Detail::brief) return text;
  text += "\n" + table_of(variants, all_of(variants));
  for (const RehearsedVariant& each : variants)
    if (!each.failure.empty()) text += wrapped("  ", fmt::format("{}: {}", printable(words_of(each)), printable(each.failure)), style.width);
  if (front.size() > 1) text += "\nno setting is better than one of these in speed and memory left together\n" + table_of(variants, front);
  return text;
}

std::string to_json(const std::vector<RehearsedVariant>& variants) {
  Json list = Json::array();
  for (const RehearsedVariant& each : variants) {
    Json settings = Json::object();
    for (const auto& [key, value] : each.settings) settings[key] = value;
    Json one{{"settings", std::move(settings)}, {"on", each.device}, {"command", each.command}};
    if (!each.failure.empty()) {
      one["failure"] = each.failure;
    } else {
      one["verdict"] = each.verdict;
      one["capacity_bytes"] = each.capacity.count;
      if (!each.ran_out()) {
        one["device_bytes"] = each.memory.count;
        one["allocated_bytes"] = each.allocated.count;
        one["reserved_bytes"] = each.reserved.count;
      }
      if (each.step > Seconds(0)) one["step_seconds"] = each.step.value;
      if (each.tokens_per_second > 0) one["tokens_per_second_per_gpu"] = each.tokens_per_second;
    }
    list.push_back(std::move(one));
  }
  return json_text(Json{{"schema", "plimsoll/variants/1"}, {"variants", std::move(list)}, {"front", front_of(variants)}});
}

Document document_of(const std::vector<RehearsedVariant>& variants) {
  Document document;
  if (variants.empty()) return document;
  const std::vector<std::size_t> front = front_of(variants);
  document.title = "one program, " + std::to_string(variants.size()) + " settings";
  document.answer = answer_of(variants, front);
  document.verdict = front.empty() ? "does not fit" : "fits";
  Table table{"settings", {{"on", "on"}}, {}};
  for (const auto& [key, value] : variants.front().settings) table.columns.push_back({key, key});
  table.columns.insert(table.columns.end(), {{"memory", "device_bytes"}, {"left", "left_bytes"}, {"step", "step_seconds"},
                                             {"tokens/s per GPU", "tokens_per_second_per_gpu"}, {"verdict", "verdict"}, {"failure", "failure"}});
  for (const RehearsedVariant& each : variants) {
    std::vector<Cell> row{text_cell(each.device)};
    for (const auto& [key, value] : each.settings) row.push_back(text_cell(value));
    const bool seen = each.failure.empty() && !each.ran_out();
    row.insert(row.end(), {seen ? bytes_cell(each.memory) : Cell{}, seen ? bytes_cell(each.left()) : Cell{}, seen ? seconds_cell(each.step) : Cell{},
                           each.tokens_per_second > 0 ? Cell{tokens_of(each), fmt::format("{}", each.tokens_per_second)} : Cell{},
                           text_cell(verdict_of(each)), text_cell(each.failure)});
    table.rows.push_back(std::move(row));
  }
  document.tables.push_back(std::move(table));
  document.text = to_text(variants, {});
  return document;
}

}  // namespace plimsoll
