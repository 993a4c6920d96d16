#include "validate/digests/writer.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <thread>

#include "validate/digests/drawn.hpp"
#include "validate/digests/row_files.hpp"

namespace plimsoll::digests {
namespace {

constexpr const char* kDrawnName = "drawn";

/// Results in the order of their numbers, by as many threads as there are cores.
std::vector<Held> all_of(std::size_t count, const std::function<Held(std::size_t)>& predict) {
  std::vector<Held> results(count);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) results[i] = predict(i);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<Held> predicted_all(const std::string& name) {
  if (name == kDrawnName) return all_of(kDrawn, [](std::size_t i) { return predicted(drawn(static_cast<int>(i))); });
  const std::vector<HeldRow> rows = rows_of(row_file(name));
  return all_of(rows.size(), [&](std::size_t i) { return predicted(rows[i]); });
}

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) text += (text.empty() ? "" : "; ") + sentence;
  return text;
}

/// Rows by what moved in them: the same cause mostly shows at the same place.
class Moves {
 public:
  void add(const std::string& what, const std::string& id) { rows_[what].push_back(id); }
  void tell() const {
    constexpr std::size_t kExamples = 3;
    for (const auto& [what, ids] : rows_) {
      std::string examples;
      for (std::size_t i = 0; i < std::min(ids.size(), kExamples); ++i) examples += (i == 0 ? "" : ", ") + ids[i];
      std::printf("  %zu %s: %s%s\n", ids.size(), what.c_str(), examples.c_str(), ids.size() > kExamples ? " ..." : "");
    }
  }

 private:
  std::map<std::string, std::vector<std::string>> rows_;
};

/// What rows share that moved alike: the figures differ from row to row.
std::string cause_of(const Held& held, const Held& now, Figures figures) {
  if (held.outcome != now.outcome) return joined({what_moved(held, now, figures).front()});
  const Difference difference = first_difference(held.parts, now.parts);
  const std::string errors = held.figures == now.figures  ? ""
                             : figures == Figures::errors ? ", and its errors shrank"
                                                          : ", and its bytes moved";
  if (difference.part.empty()) return "the same program" + errors;
  return difference.part + ", first " + (difference.label.empty() ? "in the order of modules" : "at " + difference.label) + errors;
}

}  // namespace

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const RowFile& file : row_files()) names.emplace_back(file.name);
  names.emplace_back(kDrawnName);
  return names;
}

bool write_held(const std::string& name) {
  const Figures figures = name == kDrawnName ? Figures::values : Figures::errors;
  const HeldFile held(held_path(name));
  std::vector<Held> lines = predicted_all(name);
  Moves moves;
  std::size_t moved = 0, worse = 0;
  for (Held& now : lines) {
    const Held* before = held.of(now.id);
    if (!before) {
      moves.add("new", now.id);
    } else if (const auto sentences = what_is_worse(*before, now, figures); !sentences.empty()) {
      std::printf("  NOT WRITTEN %s: %s\n", now.id.c_str(), joined(sentences).c_str());
      ++worse;
      now = *before;
    } else if (!what_moved(*before, now, figures).empty()) {
      moves.add(cause_of(*before, now, figures), now.id);
      ++moved;
    }
  }
  if (moved + worse > 0 || held.lines().size() != lines.size()) {
    std::printf("%s: %zu of %zu moved\n", name.c_str(), moved, lines.size());
    moves.tell();
  }
  std::fflush(stdout);
  std::ofstream file(held_path(name));
  for (const Held& line : lines) file << line_of(line) << '\n';
  return worse == 0;
}

std::string dump_of(const std::string& name, const std::string& id) {
  if (name == kDrawnName) {
    const Drawn line = drawn(std::stoi(id));
    return line_of(line) + "\n" + dump_of(line);
  }
  for (const HeldRow& row : rows_of(row_file(name)))
    if (row.row.id == id) return dump_of(row);
  throw std::runtime_error("no row " + id + " in " + name);
}

}  // namespace plimsoll::digests
