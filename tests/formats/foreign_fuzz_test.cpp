// The projects' samples, mutated: whatever comes of it is a run or a message, never a crash, a hang or memory without bound.
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// One change of a text: bytes flipped, a piece cut out, doubled or moved, what hostile files have put in.
std::string mutated(std::string text, std::mt19937& random) {
  static const char* const kPieces[] = {"\t",   "\r\n",   "${",       "$((",   "))",
                                        "$(",   "`",      "\"",       "'",     "[",
                                        "]",    "{",      "}",        ": ",    "*a",
                                        "&a ",  "<<: *a", "-1",       "1e308", "99999999999999999999",
                                        "nan",  "null",   "\xFF\xFE", "\0x",   "auto",
                                        "true", "=",      "--",       "\n",    "\\\n",
                                        ";;",   "#",      "0",        "%s",    "!!python/object:os.system"};
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random() % n); };
  const std::size_t at = below(text.size() + 1), length = below(40);
  switch (random() % 5) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, length);
      break;
    case 2:
      text.insert(at, text.substr(below(text.size()), length));
      break;
    case 3:
      text.insert(at, kPieces[below(std::size(kPieces))]);
      break;
    default:
      text.resize(at);
  }
  return text;
}

TEST(ForeignFuzz, MutatedSamplesCostARunOrAMessage) {
  const Folder folder;
  std::mt19937 random(20261123);
  int read = 0, refused = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sample(""))) {
    if (!entry.is_regular_file() || entry.path().filename() == "SOURCES.md") continue;
    const std::string original = text_of(entry.path());
    for (int round = 0; round < 60; ++round) {
      std::string text = original;
      const unsigned changes = 1 + random() % 4;
      for (unsigned i = 0; i < changes; ++i) text = mutated(std::move(text), random);
      try {
        (void)read_foreign({folder.write(entry.path().filename().string(), text)}, {"gpt2", "8xh100-sxm", {}});
        ++read;
      } catch (const Error& error) {
        EXPECT_FALSE(error.message().empty());
        EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace plimsoll
