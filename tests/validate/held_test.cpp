// Every measured row of the tables in digests/row_files.cpp, and strategies drawn at random: what was held of them still holds
// (tests/validate/README.md). A row that is exact stays exact, an error only shrinks, and a program that says something else is told by the
// first module that does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "validate/digests/drawn.hpp"
#include "validate/digests/row_files.hpp"
#include "validate/digests/writer.hpp"

namespace plimsoll::digests {
namespace {

struct Slice {
  std::string name;
  std::size_t at, of;
};
void PrintTo(const Slice& slice, std::ostream* out) { *out << slice.name << ", every row of " << slice.of << " from " << slice.at; }

std::vector<Slice> slices() {
  std::vector<Slice> all;
  const auto deal = [&](const std::string& name, int count) {
    for (int i = 0; i < count; ++i) all.push_back({name, static_cast<std::size_t>(i), static_cast<std::size_t>(count)});
  };
  for (const RowFile& file : row_files()) deal(file.name, file.slices);
  deal("drawn", kDrawnSlices);
  return all;
}

/// Fails with one sentence for each thing that is not as it is held.
void expect_holds(const Held* held, const Held& now, Figures figures, const std::string& what) {
  if (!held) {
    ADD_FAILURE() << what << " is not written down: ./dev digests writes it";
    return;
  }
  for (const std::string& sentence : what_is_worse(*held, now, figures)) ADD_FAILURE() << what << ": " << sentence;
  for (const std::string& sentence : what_moved(*held, now, figures))
    ADD_FAILURE() << what << ": " << sentence << " (if it should be: ./dev digests writes it down, ./dev digests diff shows it)";
}

class HeldRows : public testing::TestWithParam<Slice> {};

TEST_P(HeldRows, AreAsTheyAreHeld) {
  const Slice& slice = GetParam();
  const HeldFile held(held_path(slice.name));
  if (slice.name == "drawn") {
    for (std::size_t i = slice.at; i < kDrawn; i += slice.of) {
      const Drawn line = drawn(static_cast<int>(i));
      const Held now = predicted(line);
      expect_holds(held.of(now.id), now, Figures::values, now.id + " (" + line_of(line) + ")");
    }
    return;
  }
  const std::vector<HeldRow> rows = rows_of(row_file(slice.name));
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.size(), held.lines().size()) << "./dev digests writes them down";
  for (std::size_t i = slice.at; i < rows.size(); i += slice.of) {
    const Held now = predicted(rows[i]);
    expect_holds(held.of(now.id), now, Figures::errors, slice.name + ", " + now.id);
  }
}

INSTANTIATE_TEST_SUITE_P(All, HeldRows, testing::ValuesIn(slices()), [](const testing::TestParamInfo<Slice>& each) {
  std::string name = each.param.name + (each.param.of == 1 ? "" : "_" + std::to_string(each.param.at + 1));
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// A key that is new in the table is drawn, or somebody says why it is not.
TEST(DrawnStrategies, DrawEveryKeyOfTheTable) {
  for (const StrategyOption& option : strategy_options()) {
    const auto& undrawn = undrawn_keys();
    const bool left_out = std::any_of(undrawn.begin(), undrawn.end(), [&](const auto& key) { return key.first == option.key; });
    EXPECT_NE(left_out, !drawn_values(option).empty()) << option.key << " (" << option.values << ")";
  }
}

// Two dumps differ where the digests do: a step that frees one tensor a line later has another digest, and its module is named.
TEST(ProgramDigests, NameTheFirstModuleThatDiffers) {
  const auto program = [](bool late) {
    StepProgram made;
    made.labels = {"", "layers.0.mlp: linear", "layers.1.mlp: linear", "head: linear"};
    const auto alloc = [&](std::uint32_t id, std::uint32_t label) {
      made.step.push_back({.kind = InstructionKind::alloc, .id = id, .bytes = 512, .label = label});
    };
    const auto free = [&](std::uint32_t id, std::uint32_t label) {
      made.step.push_back({.kind = InstructionKind::free, .id = id, .label = label});
    };
    alloc(0, 1);
    alloc(1, 2);
    if (!late) free(0, 2);
    alloc(2, 3);
    if (late) free(0, 3);
    free(1, 3);
    free(2, 3);
    return made;
  };
  const auto digest = [](const StepProgram& made) {
    ProgramDigest gathered;
    gathered.read(made);
    return gathered.parts();
  };
  const Parts early = digest(program(false)), late = digest(program(true));
  EXPECT_EQ(early.back().names, (std::vector<std::string>{"layers.#.mlp", "head"}));
  EXPECT_TRUE(first_difference(early, digest(program(false))).part.empty());
  const Difference difference = first_difference(early, late);
  EXPECT_EQ(difference.part, "step");
  EXPECT_EQ(difference.label, "'layers.#.mlp'");
  EXPECT_EQ(difference.labels, 2U);
  EXPECT_NE(dump(program(false)), dump(program(true)));
}

// Tensors are told by what they are: other numbers of the same tensors change nothing.
TEST(ProgramDigests, DoNotDependOnNumbers) {
  const auto digest = [](std::uint32_t tensor) {
    StepProgram made;
    made.labels = {"", "norm"};
    made.step = {{.kind = InstructionKind::alloc, .id = tensor, .bytes = 512, .label = 1},
                 {.kind = InstructionKind::free, .id = tensor, .label = 1}};
    ProgramDigest gathered;
    gathered.read(made);
    return gathered.parts().back().whole;
  };
  EXPECT_EQ(digest(3), digest(7));
}

TEST(HeldLines, AreReadAsTheyAreWritten) {
  Held held{"row", Outcome::closed_form, {{"reserved_bytes", -512}}, {}};
  held.parts.back() = {0x12, {0xab, 0xcdef}, {}};
  const std::string line = line_of(held);
  EXPECT_EQ(line, "row\tclosed\treserved_bytes-512\t-\t-\t-\t00000012:00abcdef");
  EXPECT_EQ(line_of(parse_line(line)), line);
  EXPECT_THROW(parse_line("row\tplayed\t-"), std::runtime_error);
}

TEST(HeldLines, ErrorsMayShrinkAndMustBeWrittenDown) {
  const Held held{"row", Outcome::played, {{"reserved_bytes", -512}}, {}};
  Held now = held;
  EXPECT_TRUE(what_moved(held, now, Figures::errors).empty());
  now.figures = {};
  EXPECT_TRUE(what_is_worse(held, now, Figures::errors).empty());
  EXPECT_EQ(what_moved(held, now, Figures::errors), std::vector<std::string>{"reserved_bytes was off by -512, is off by 0"});
  now.figures = {{"reserved_bytes", 1024}, {"allocated_bytes", 512}};
  EXPECT_EQ(what_is_worse(held, now, Figures::errors).size(), 2U);
  now = held;
  now.outcome = Outcome::closed_form;
  EXPECT_EQ(what_is_worse(held, now, Figures::errors), std::vector<std::string>{"was played, is closed"});
}

}  // namespace
}  // namespace plimsoll::digests
