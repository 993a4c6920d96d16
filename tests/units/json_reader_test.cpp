#include "units/json_reader.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// The error that `action` throws, as one line; fails the test when it throws none.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_input);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

std::string parse_error(const std::string& text, const JsonLimits& limits = {}) {
  return error_of([&] { (void)JsonDocument::parse(text, "f.json", limits); });
}

TEST(JsonReader, ReadsTypedValues) {
  const auto document = JsonDocument::parse(R"({"a": 3, "b": 2.5, "c": true, "d": "text", "e": [1, 2], "f": null})", "f.json");
  const JsonValue root = document.root();
  EXPECT_EQ(root["a"].integer(0, 10), 3);
  EXPECT_EQ(root["a"].number(0, 10), 3.0);
  EXPECT_EQ(root["b"].number(0, 10), 2.5);
  EXPECT_TRUE(root["c"].boolean());
  EXPECT_EQ(root["d"].text(), "text");
  EXPECT_EQ(root["e"].at(1).integer(0, 10), 2);
  EXPECT_TRUE(root["f"].is_null());
  EXPECT_FALSE(root.find("g"));
}

TEST(JsonReader, NamesThePlaceAndWhatItExpected) {
  const auto document = JsonDocument::parse(R"({"a": {"b/c": [0, "x"]}, "n": 4096.0, "layers": -1})", "f.json");
  const JsonValue root = document.root();
  EXPECT_EQ(error_of([&] { root["a"]["b/c"].at(1).integer(0, 9); }), "f.json#/a/b~1c/1: expected an integer from 0 to 9, found \"x\"");
  EXPECT_EQ(error_of([&] { root["n"].integer(0, 9999); }), "f.json#/n: expected an integer from 0 to 9999, found 4096");
  EXPECT_EQ(error_of([&] { root["layers"].integer(1, 9); }), "f.json#/layers: expected an integer from 1 to 9, found -1");
  EXPECT_EQ(error_of([&] { root["layer"].integer(1, 9); }), "f.json: the key \"layer\" is missing (is \"layers\" meant to be it?)");
}

TEST(JsonReader, ReportsWhatNothingRead) {
  const auto document = JsonDocument::parse(R"({"a": 1, "b": {"c": 1, "d": 2}, "e": {"f": 1}})", "f.json");
  const JsonValue root = document.root();
  (void)root["b"]["c"];
  EXPECT_EQ(root.unread_keys(), (std::vector<std::string>{"a", "b/d", "e"}));
  root["e"].mark_read();
  EXPECT_EQ(root.unread_keys(), (std::vector<std::string>{"a", "b/d"}));
}

// A table that the library keeps is read by all threads at once: what a read notes, and the index that a large object gets when it is first
// asked, are told from one another by no thread (the sanitizer of threads says so where they are not atomic).
TEST(JsonReader, ADocumentIsReadByManyThreads) {
  std::string text = "{";
  constexpr int kMembers = 200;
  for (int i = 0; i < kMembers; ++i) text += (i == 0 ? "\"" : ", \"") + std::to_string(i) + "\": " + std::to_string(i);
  const auto document = JsonDocument::parse(text + "}", "f.json");
  std::vector<std::int64_t> sums(4);
  std::vector<std::thread> threads;
  for (std::int64_t& sum : sums)
    threads.emplace_back([&] {
      for (int i = 0; i < kMembers; ++i) sum += document.root()[std::to_string(i)].integer(0, kMembers);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, kMembers * (kMembers - 1) / 2));
  EXPECT_TRUE(document.root().unread_keys().empty());
}

TEST(JsonReader, RefusesDamagedText) {
  EXPECT_EQ(parse_error("{\"a\": 1,\n \"b\": "), "f.json:2:6: the JSON text ends too early");
  EXPECT_EQ(parse_error(""), "f.json:1:1: the JSON text ends too early");
  EXPECT_EQ(parse_error(R"({"a": 1, "a": 2})"), "f.json: the key \"a\" is given twice");
  EXPECT_EQ(parse_error(R"({"a": NaN})"), "f.json:1:7: NaN and Infinity are no JSON numbers");
  EXPECT_NE(parse_error(R"({"a": -Infinity})").find("NaN and Infinity"), std::string::npos);
  EXPECT_NE(parse_error(R"({"a": 1e999})").find("beyond a double"), std::string::npos);
  EXPECT_NE(parse_error("{\"a\": \"\xff\xfe\"}").find("no valid JSON"), std::string::npos);
  EXPECT_NE(parse_error(R"({"a": 1} x)").find("no valid JSON"), std::string::npos);
  EXPECT_NE(parse_error(R"({'a': 1})").find("no valid JSON"), std::string::npos);
}

TEST(JsonReader, AnIntegerBeyond63BitsIsNoInteger) {
  const auto document = JsonDocument::parse("[18446744073709551615, 9223372036854775807]", "f.json");
  EXPECT_FALSE(document.root().at(0).is_integer());
  EXPECT_EQ(document.root().at(1).integer(0, INT64_MAX), INT64_MAX);
}

TEST(JsonReader, BoundsWhatATextMayCost) {
  EXPECT_NE(parse_error(std::string(100000, '[')).find("nested more than 64 deep"), std::string::npos);
  EXPECT_NE(parse_error("[1, 2, 3, 4]", {.values = 4}).find("more than 4 values"), std::string::npos);
  EXPECT_NE(parse_error("[1, 2, 3, 4]", {.text_bytes = 5}).find("too large"), std::string::npos);
}

// Printed, they would command a terminal, or begin a line that looks like one of ours: U+0085 is a new line too.
TEST(JsonReader, NamesTheTextThatHasControlCharacters) {
  const auto checked = [](const std::string& text) {
    return error_of([&] { JsonDocument::parse(text, "f.json").root().check_printable(); });
  };
  EXPECT_NO_THROW(JsonDocument::parse(R"({"a": ["plain é ─", 1]})", "f.json").root().check_printable());
  EXPECT_NE(checked(R"({"a": ["x", "\u001b[31m"]})").find("f.json#/a/1"), std::string::npos);
  EXPECT_NE(checked(R"({"a": {"b\nc": 1}})").find("control characters"), std::string::npos);
  EXPECT_NE(checked(R"(["\u0085"])").find("control characters"), std::string::npos);
}

TEST(JsonReader, RefusesAFileByItsSizeBeforeReadingIt) {
  const auto path = std::filesystem::temp_directory_path() / "plimsoll_json_reader_large.json";
  { std::ofstream(path) << "{"; }
  std::filesystem::resize_file(path, std::uintmax_t{200} << 20);  // sparse: nothing is written
  const std::string error = error_of([&] { (void)JsonDocument::read_file(path.string()); });
  std::filesystem::remove(path);
  EXPECT_NE(error.find("a file of 200.0 MiB is too large (at most 16.0 MiB)"), std::string::npos) << error;
}

TEST(JsonReader, RefusesAFolderAndAMissingFile) {
  EXPECT_NE(error_of([] { (void)JsonDocument::read_file("/"); }).find("no regular file"), std::string::npos);
  EXPECT_NE(error_of([] { (void)JsonDocument::read_file("/no/such.json"); }).find("no such file"), std::string::npos);
}

// Every prefix of a valid text and every text with one byte changed is read or refused, never more.
TEST(JsonReader, SurvivesEveryCutAndEveryByte) {
  const std::string text = R"({"a": [1, -2.5e3, true, null, "x\u00e9\n"], "b": {"c": {}}})";
  for (std::size_t cut = 0; cut < text.size(); ++cut) EXPECT_THROW((void)JsonDocument::parse(text.substr(0, cut), "f"), Error) << cut;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = text;
      changed[i] = static_cast<char>(byte);
      try {
        (void)JsonDocument::parse(changed, "f").root().unread_keys();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_input);
      }
    }
}

}  // namespace
}  // namespace plimsoll
