// The projects' samples, mutated: whatever comes of it is a run or a message, never a crash, a hang or memory without bound.
#include <gtest/gtest.h>

#include <algorithm>
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

/// The folders of samples: one per format.
std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(sample("")))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::filesystem::path> samples_of(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(sample(name))) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

class ForeignFuzz : public testing::TestWithParam<std::string> {};

/// What is read must be settled or refused as any run is; an estimate of it would cost too much here.
bool is_read(const std::string& path) {
  try {
    const ForeignRun run = read_foreign({path}, {"gpt2", "8xh100-sxm", {}});
    EXPECT_FALSE(show_resolved(run).empty());
    return true;
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    EXPECT_LT(error.message().size(), 4000u);
    EXPECT_NE(error.code(), ErrorCode::internal) << error.what();
    return false;
  }
}

TEST_P(ForeignFuzz, MutatedSamplesCostARunOrAMessage) {
  constexpr int kMutations = 2000;  // of a format
  const Folder folder;
  std::mt19937 random(20261123);
  const std::vector<std::filesystem::path> paths = samples_of(GetParam());
  int refused = 0;
  for (int round = 0; round < kMutations; ++round) {
    const std::filesystem::path& path = paths[static_cast<std::size_t>(round) % paths.size()];
    std::string text = text_of(path);
    for (unsigned change = 0, changes = 1 + random() % 4; change < changes; ++change) text = mutated(std::move(text), random);
    refused += is_read(folder.write(path.filename().string(), text)) ? 0 : 1;
    ASSERT_FALSE(HasFailure()) << path << " after " << round << " mutations:\n" << text;
  }
  EXPECT_GT(refused, kMutations / 100);  // something was broken
}

INSTANTIATE_TEST_SUITE_P(OfEveryFormat, ForeignFuzz, testing::ValuesIn(folders()), [](const auto& one) {
  std::string name = one.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// Every format that is read has at least five samples; models and strategies are tested by their own rooms, shell lines are in most
/// folders.
TEST(ForeignSamples, EveryFormatHasFive) {
  for (const std::string& format : foreign_formats()) {
    if (format == "config" || format == "strategy" || format == "shell" || format == "kubernetes") continue;
    ASSERT_TRUE(std::filesystem::is_directory(sample(format))) << format;
    EXPECT_GE(samples_of(format).size(), 5u) << format;
  }
}

}  // namespace
}  // namespace plimsoll
