#include "trace/step_marks.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

namespace plimsoll::trace {
namespace {

/// In lower case, a digit or a run of them as '#'.
std::string without_numbers(const std::string& name) {
  std::string text;
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isdigit(letter) == 0) text += static_cast<char>(std::tolower(letter));
    else if (text.empty() || text.back() != '#') text += '#';
  }
  return text;
}

bool names_a_step(const std::string& name) {
  if (name.find("optim") != std::string::npos) return false;  // a part of one
  for (const char* word : {"step", "iteration", "iter"}) {
    const std::size_t at = name.find(word);
    if (at == std::string::npos) continue;
    const auto is_letter = [&](std::size_t i) { return i < name.size() && std::isalpha(static_cast<unsigned char>(name[i])) != 0; };
    const std::size_t end = at + std::string(word).size();
    if (!is_letter(end) && (at == 0 || !is_letter(at - 1) || name.find("profilerstep") == 0)) return true;
  }
  return false;
}

double length_of(const std::vector<HostMark>& marks) {
  double sum = 0;
  for (const HostMark& mark : marks) sum += mark.end - mark.start;
  return sum / static_cast<double>(marks.size());
}

}  // namespace

void StepMarks::add(HostMark mark) {
  std::string name = without_numbers(mark.name);
  if (mark.end <= mark.start || marks_ >= kMostMarks || !names_a_step(name)) return;
  ++marks_;
  named_[std::move(name)].push_back(std::move(mark));
}

void StepMarks::write(RecordedEvents& events) && {
  const auto longest = std::max_element(named_.begin(), named_.end(), [](const auto& a, const auto& b) { return length_of(a.second) < length_of(b.second); });
  if (longest == named_.end()) return;
  events.steps = std::move(longest->second);
  std::sort(events.steps.begin(), events.steps.end(), [](const HostMark& a, const HostMark& b) { return a.start < b.start; });
  events.host_start = events.steps.front().start;
  for (const HostMark& mark : events.steps) events.host_end = std::max(events.host_end, mark.end);
}

}  // namespace plimsoll::trace
