// The lines that people type first (first_lines.txt): every one is played, or says why not yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {
namespace {

struct Line {
  std::string text, not_yet;
};

struct Section {
  std::string framework;
  std::vector<Line> lines;
};
void PrintTo(const Section& section, std::ostream* out) { *out << section.framework; }

std::vector<Section> sections() {
  const std::string mark = " # not yet: ";
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/estimate/first_lines.txt");
  std::vector<Section> all;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') continue;
    if (text[0] == '[') {
      all.push_back({text.substr(1, text.size() - 2), {}});
      continue;
    }
    const std::size_t at = text.find(mark);
    all.back().lines.push_back({text.substr(0, at), at == std::string::npos ? std::string() : text.substr(at + mark.size())});
  }
  return all;
}

/// Why the line is not played; empty: it is.
std::string unplayed(const std::string& framework, const std::string& line) {
  std::istringstream words(line);
  std::string model, on, cluster;
  words >> model >> on >> cluster;
  std::vector<std::pair<std::string, std::string>> options{{"framework", framework}};
  for (std::string key, value; words >> key >> value;) options.emplace_back(key.substr(2), value);
  try {
    Strategy strategy;
    set_options(strategy, options);
    const Report report = estimate(load_model(model), parse_cluster(cluster), strategy);
    for (const RankReport& rank : report.ranks)
      if (rank.memory.basis != Basis::played) return "closed form: " + rank.memory.closed_form_because;
    return report.time.basis == Basis::played ? "" : "closed form of its time: " + report.time.closed_form_because;
  } catch (const Error& error) {
    return (error.code() == ErrorCode::refused ? "refused: " : "an error: ") + error.message();
  }
}

class FirstLines : public testing::TestWithParam<Section> {};

TEST_P(FirstLines, ArePlayed) {
  for (const Line& line : GetParam().lines) {
    const std::string why = unplayed(GetParam().framework, line.text);
    if (line.not_yet.empty())
      EXPECT_EQ(why, "") << line.text;
    else
      EXPECT_NE(why, "") << line.text << ": it is played by now, so it needs no mark";
  }
}

INSTANTIATE_TEST_SUITE_P(All, FirstLines, testing::ValuesIn(sections()), [](const testing::TestParamInfo<Section>& each) {
  std::string name = each.param.framework;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

TEST(FirstLinesFile, CoversTheFrameworksAndIsMostlyPlayed) {
  std::size_t lines = 0, open = 0;
  for (const Section& section : sections()) {
    lines += section.lines.size();
    open += static_cast<std::size_t>(
        std::count_if(section.lines.begin(), section.lines.end(), [](const Line& line) { return !line.not_yet.empty(); }));
  }
  EXPECT_GE(sections().size(), 13U);
  EXPECT_GE(lines, 100U);
  EXPECT_LE(open * 4, lines);
}

}  // namespace
}  // namespace plimsoll
