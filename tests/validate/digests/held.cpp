#include "validate/digests/held.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace plimsoll::digests {
namespace {

constexpr std::array<const char*, 5> kOutcomes = {"played", "closed", "refused", "impossible", "defect"};
constexpr const char* kNothing = "-";

std::string name_of(Outcome outcome) { return kOutcomes[static_cast<std::size_t>(outcome)]; }

std::string text_of(const std::map<std::string, std::int64_t>& figures) {
  std::string text;
  for (const auto& [name, value] : figures) text += fmt::format("{}{}{:+}", text.empty() ? "" : " ", name, value);
  return text.empty() ? kNothing : text;
}

std::string text_of(const PartDigest& part) {
  if (part.empty()) return kNothing;
  std::string text = fmt::format("{:08x}:", part.whole);
  for (const std::uint16_t label : part.labels) text += fmt::format("{:04x}", label);
  return text;
}

[[noreturn]] void not_a_line(const std::string& line) { throw std::runtime_error("no line of a file of digests: " + line); }

std::uint32_t hexadecimal(const std::string& text, const std::string& line) {
  if (text.empty() || text.find_first_not_of("0123456789abcdef") != std::string::npos) not_a_line(line);
  return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

PartDigest parse_part(const std::string& text, const std::string& line) {
  constexpr std::size_t kWhole = 8, kLabel = 4;
  PartDigest part;
  if (text == kNothing) return part;
  if (text.size() <= kWhole || text[kWhole] != ':' || (text.size() - kWhole - 1) % kLabel != 0) not_a_line(line);
  part.whole = hexadecimal(text.substr(0, kWhole), line);
  for (std::size_t at = kWhole + 1; at < text.size(); at += kLabel)
    part.labels.push_back(static_cast<std::uint16_t>(hexadecimal(text.substr(at, kLabel), line)));
  return part;
}

std::map<std::string, std::int64_t> parse_figures(const std::string& text, const std::string& line) {
  std::map<std::string, std::int64_t> figures;
  if (text == kNothing) return figures;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find_first_of("+-");
    if (sign == std::string::npos || sign + 1 == word.size()) not_a_line(line);
    figures[word.substr(0, sign)] = std::stoll(word.substr(sign));
  }
  return figures;
}

std::int64_t figure(const Held& held, const std::string& name) {
  const auto found = held.figures.find(name);
  return found == held.figures.end() ? 0 : found->second;
}

/// The figures of either, by name: what is held, what is now.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> both(const Held& held, const Held& now) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> figures;
  for (const Held* one : {&held, &now})
    for (const auto& each : one->figures) figures[each.first] = {figure(held, each.first), figure(now, each.first)};
  return figures;
}

bool grew(std::int64_t held, std::int64_t now) { return std::abs(now) > std::abs(held); }

}  // namespace

Outcome outcome_of(const Report& report) {
  const auto is_played = [](const RankReport& rank) { return rank.memory.basis == Basis::played; };
  return std::all_of(report.ranks.begin(), report.ranks.end(), is_played) ? Outcome::played : Outcome::closed_form;
}

Outcome outcome_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::refused:
      return Outcome::refused;
    case ErrorCode::bad_input:
      return Outcome::impossible;
    case ErrorCode::internal:
      break;
  }
  return Outcome::defect;
}

std::string line_of(const Held& held) {
  std::string line = fmt::format("{}\t{}\t{}", held.id, name_of(held.outcome), text_of(held.figures));
  for (const PartDigest& part : held.parts) line += '\t' + text_of(part);
  return line;
}

Held parse_line(const std::string& line) {
  constexpr std::size_t kBefore = 3;
  std::vector<std::string> columns;
  std::istringstream text(line);
  for (std::string column; std::getline(text, column, '\t');) columns.push_back(column);
  if (columns.size() != kBefore + kParts) not_a_line(line);
  const auto* const outcome = std::find(kOutcomes.begin(), kOutcomes.end(), columns[1]);
  if (outcome == kOutcomes.end()) not_a_line(line);
  Held held{columns[0], static_cast<Outcome>(outcome - kOutcomes.begin()), parse_figures(columns[2], line), {}};
  for (std::size_t part = 0; part < kParts; ++part) held.parts[part] = parse_part(columns[kBefore + part], line);
  return held;
}

HeldFile::HeldFile(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines_.push_back(parse_line(line));
    index_[lines_.back().id] = lines_.size() - 1;
  }
}

const Held* HeldFile::of(const std::string& id) const {
  const auto found = index_.find(id);
  return found == index_.end() ? nullptr : &lines_[found->second];
}

Difference first_difference(const Parts& held, const Parts& now) {
  for (std::size_t at = 0; at < kParts; ++at) {
    const PartDigest &before = held[at], &after = now[at];
    if (before.whole == after.whole && before.labels == after.labels) continue;
    Difference difference{kPartNames[at], {}, 0};
    const std::size_t most = std::max(before.labels.size(), after.labels.size());
    for (std::size_t label = 0; label < most; ++label) {
      const bool alike = label < before.labels.size() && label < after.labels.size() && before.labels[label] == after.labels[label];
      if (alike) continue;
      if (difference.labels++ > 0) continue;
      difference.label = label < after.names.size() ? "'" + after.names[label] + "'" : "one that is no more";
    }
    return difference;
  }
  return {};
}

std::vector<std::string> what_is_worse(const Held& held, const Held& now, Figures figures) {
  std::vector<std::string> worse;
  if (figures == Figures::values) return worse;
  if (now.outcome > held.outcome) worse.push_back(fmt::format("was {}, is {}", name_of(held.outcome), name_of(now.outcome)));
  for (const auto& [name, values] : both(held, now))
    if (grew(values.first, values.second))
      worse.push_back(fmt::format("{} was off by {}, is off by {}", name, values.first, values.second));
  return worse;
}

std::vector<std::string> what_moved(const Held& held, const Held& now, Figures figures) {
  std::vector<std::string> moved;
  const bool errors = figures == Figures::errors;
  if (errors ? now.outcome < held.outcome : now.outcome != held.outcome)
    moved.push_back(fmt::format("was {}, is {}", name_of(held.outcome), name_of(now.outcome)));
  for (const auto& [name, values] : both(held, now)) {
    if (values.first == values.second || (errors && grew(values.first, values.second))) continue;
    const char* off = errors ? "off by " : "";
    moved.push_back(fmt::format("{} was {}{}, is {}{}", name, off, values.first, off, values.second));
  }
  const Difference difference = first_difference(held.parts, now.parts);
  if (difference.part.empty()) return moved;
  const std::string where = difference.label.empty() ? "every module does the same, in another order among them"
                                                     : fmt::format("first at {}, of {} modules", difference.label, difference.labels);
  moved.push_back(fmt::format("{}: {}", difference.part, where));
  return moved;
}

}  // namespace plimsoll::digests
