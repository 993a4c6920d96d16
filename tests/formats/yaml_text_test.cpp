// YAML as PyYAML reads it, and what its aliases may cost.
#include <gtest/gtest.h>

#include "formats/foreign/node.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

std::string value_of(const std::string& text, const char* path) {
  const Node root = parse_yaml_text(text, "f.yaml");
  const Node* found = root.find(path);
  return found == nullptr ? "nothing" : found->word();
}

std::string error_of(const std::string& text) {
  try {
    (void)parse_yaml_text(text, "f.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

// PyYAML takes the last of two values, OmegaConf raises: equal ones mean the same to both. What a table merges is no value of its own.
TEST(YamlText, AKeyOfTwoValuesIsAnErrorWithBothLines) {
  EXPECT_EQ(error_of("a: 1\nb: 2\na: 3\n"), "f.yaml:3: 'a' has two values, the other in line 1 (keep one)");
  EXPECT_EQ(error_of("t:\n  a: x\n  a: 'null'\n"), "f.yaml:3: 'a' has two values, the other in line 2 (keep one)");
  EXPECT_EQ(error_of("a: [1]\na: [1]\n"), "f.yaml:2: 'a' has two values, the other in line 1 (keep one)");
  EXPECT_EQ(parse_yaml_text("a: 1\nb: 2\na: 1\n", "f.yaml").members.size(), 2U);
  EXPECT_EQ(error_of("x: &x {a: 1}\nt: {<<: *x, a: 2}\n"), "none");
}

// yaml.safe_load and OmegaConf.load raise of a second document, an empty one too; marks around a single one are none.
TEST(YamlText, ASecondDocumentIsAnErrorWithItsLine) {
  const std::string told = "a second document begins here, and programs read one of a file (a file for each)";
  EXPECT_EQ(error_of("a: 1\n---\na: 2\n"), "f.yaml:2: " + told);
  EXPECT_EQ(error_of("---\na: 1\n---\n"), "f.yaml:3: " + told);
  EXPECT_EQ(error_of("# one\n---\na: 1\n...\n"), "none");
}

// yaml-cpp takes the rest of a text for what is quoted where a quote is not closed, so that keys vanish without a word.
TEST(YamlText, AQuoteThatIsNotClosedIsAnError) {
  EXPECT_EQ(error_of("a: 1\nb: \"2\nc: 3\n"), "f.yaml:2: no YAML: the quote that is opened here is not closed");
  EXPECT_EQ(error_of("a: 1\nb: '2\nc: it''s\n"), "f.yaml:2: no YAML: the quote that is opened here is not closed");
  EXPECT_EQ(error_of("ä: [\"x\\\"y\", 'it''s', \"\"]\nb: \"ä\"\n"), "none");
  EXPECT_EQ(value_of("a: \"one\n  two\"\n", "a"), "one two");
}

// "<<" brings what is not said beside it, before it or behind it; of several tables the first that says a key counts.
TEST(YamlText, WhatIsMergedYieldsToWhatIsSaid) {
  const std::string tables = "x: &x {a: 1, b: 1}\ny: &y {a: 2, c: 2}\n";
  EXPECT_EQ(value_of(tables + "t: {<<: *x, a: 9}\n", "t.a"), "9");
  EXPECT_EQ(value_of(tables + "t: {a: 9, <<: *x}\n", "t.a"), "9");
  EXPECT_EQ(value_of(tables + "t: {a: 9, <<: *x}\n", "t.b"), "1");
  EXPECT_EQ(value_of(tables + "t: {<<: [*x, *y]}\n", "t.a"), "1");
  EXPECT_EQ(value_of(tables + "t: {<<: [*x, *y]}\n", "t.c"), "2");
}

// A list of 60,000 that has a name is 120,002 values; its first alias makes 180,003, the second is one too many, and is named.
TEST(YamlText, AliasesAndNamesCountAsTheCopiesThatTheyAre) {
  std::string list = "a: &a [";
  for (int i = 0; i < 60'000; ++i) list += i == 0 ? "1" : ",1";
  EXPECT_EQ(error_of(list + "]\nb: *a\n"), "none");
  EXPECT_EQ(error_of(list + "]\nb: *a\n\nc: *a\n"), "f.yaml:4: more than 200000 values, aliases unfolded");
}

}  // namespace
}  // namespace plimsoll::formats
