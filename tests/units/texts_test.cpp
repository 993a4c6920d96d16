// Texts that people and files write: switches, names that are printed, and the disk that may be closed.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "plimsoll/error.hpp"
#include "plimsoll/printable.hpp"
#include "units/files.hpp"
#include "units/switches.hpp"

namespace plimsoll {
namespace {

TEST(Switches, SixWordsInAnyCaseAndNoOthers) {
  for (const char* word : {"true", "True", "ON", "yes"}) EXPECT_EQ(switch_of(word), true) << word;
  for (const char* word : {"false", "FALSE", "off", "No"}) EXPECT_EQ(switch_of(word), false) << word;
  for (const char* word : {"", "none", "banana", "truex", "xtrue", "1", "0", "true "}) EXPECT_FALSE(switch_of(word).has_value()) << word;
}

TEST(Printable, NothingCommandsATerminalOrEndsALine) {
  EXPECT_EQ(printable("a\x1b[31mb\n\x7f\tc"), "a?[31mb???c");
  EXPECT_EQ(printable("a\xC2\x9B" "31m"), "a??31m") << "C1, in UTF-8";
  EXPECT_EQ(printable("a\xE2\x80\xA8" "b\xE2\x80\xAE" "c\xE2\x81\xA6"), "a???b???c???") << "a line's end, directions";
  EXPECT_EQ(printable("Ünïcödé 模型"), "Ünïcödé 模型");
}

// A shell takes the word back as the one word that it was, whatever stands in it; but for controls, which become '?'.
TEST(ShellWord, IsOneWordOfAShell) {
  std::mt19937 random(37);
  constexpr std::string_view kLetters = "ab'\"$`\\ \n;&|<>(){}*?#~!%\x1b";
  for (int i = 0; i < 40; ++i) {
    std::string text;
    for (int n = 1 + static_cast<int>(random() % 12); n > 0; --n) text += kLetters[random() % kLetters.size()];
    const std::string command = "/bin/sh -c \"$(cat <<'END'\nprintf %s " + shell_word(text) + "\nEND\n)\"";
    std::FILE* shell = popen(command.c_str(), "r");
    ASSERT_NE(shell, nullptr);
    char heard[256] = {};
    const std::size_t count = std::fread(heard, 1, sizeof heard - 1, shell);
    pclose(shell);
    EXPECT_EQ(std::string(heard, count), printable(text)) << command;
  }
}

TEST(Files, WhatIsReadIsBounded) {
  const std::string path = testing::TempDir() + "plimsoll-files-test.txt";
  std::ofstream(path) << "0123456789";
  EXPECT_EQ(read_text_file(path, 10), "0123456789");
  EXPECT_THROW(read_text_file(path, 9), Error);
  EXPECT_THROW(read_text_file(testing::TempDir(), 9), Error);
  std::remove(path.c_str());
  EXPECT_THROW(read_text_file(path, 10), Error);
}

/// Closed, the disk is empty: what is there is answered as what is not. In a process of its own, for the rest of this one has files.
TEST(FilesDeathTest, ClosedThereAreNone) {
  EXPECT_EXIT(
      {
        const auto told = [](const std::string& path) {
          try {
            return read_text_file(path, 1 << 20);
          } catch (const Error& error) {
            return error.message();
          }
        };
        files::close();
        const bool same = told("/etc/passwd") == told("/nowhere") && told("/etc") == told("/nowhere") && told("-") == told("/nowhere");
        std::exit(same && !files::exists("/etc/passwd") && !files::is_folder("/etc") ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace plimsoll
