// Scripts held against bash itself: what the launcher receives, word by word.
#include "formats/shell/shell.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "foreign_test.hpp"
#include "plimsoll/error.hpp"
#include "random_script.hpp"

namespace plimsoll {
namespace {

std::string bytes_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// What bash tells a torchrun that notes its arguments: their number, then each, behind every one a zero.
std::string told_by_bash(const Folder& folder, const std::string& script) {
  const std::string said = folder.path("said"),
                    prelude = folder.write("prelude", "set -f\ntorchrun() { printf '%s\\0' \"$#\" \"$@\" >>" + said + "; return 0; }\n");
  std::filesystem::remove(said);
  const std::string path = folder.write("s.sh", script), cwd = folder.path("cwd");
  std::filesystem::create_directories(cwd);
  const std::string line = "cd " + cwd + " && env -i LC_ALL=C BASH_ENV=" + prelude + " PATH=/usr/bin:/bin timeout 20 bash -O extglob " +
                           path + " >" + folder.path("out") + " 2>" + folder.path("errors");
  (void)!std::system(line.c_str());
  return bytes_of(said);
}

std::string told_by_reader(const std::string& script) {
  std::string all;
  formats::Surroundings around;
  around.run = [&](const formats::Started& started) {
    if (started.words[0].text != "torchrun") return false;
    all += std::to_string(started.words.size() - 1) + '\0';
    for (std::size_t i = 1; i < started.words.size(); ++i) all += formats::readable(started.words[i].text) + '\0';
    return true;
  };
  formats::Shell("s.sh", around).follow(script);
  return all;
}

// PLIMSOLL_SHELL_SCRIPTS: how many are drawn, where 300 are too few; PLIMSOLL_SHELL_FIRST: from which seed on. Scripts whose variables double without end are refused; few may be.
TEST(Shell, RandomScriptsTellALauncherWhatBashTellsIt) {
  const char *const wanted = std::getenv("PLIMSOLL_SHELL_SCRIPTS"), *const from = std::getenv("PLIMSOLL_SHELL_FIRST");
  const int scripts = wanted ? std::atoi(wanted) : 300, first = from ? std::atoi(from) : 0;
  const Folder folder;
  int refused = 0;
  for (int seed = first; seed < first + scripts; ++seed) {
    const std::string script = RandomScript(static_cast<std::uint32_t>(seed)).draw();
    std::string told;
    try {
      told = told_by_reader(script);
    } catch (const Error& error) {
      ASSERT_TRUE(error.message().find("without end") != std::string::npos || error.message().find("does not end") != std::string::npos)
          << seed << error.what();
      ++refused;
      continue;
    }
    ASSERT_EQ(told, told_by_bash(folder, script)) << "seed " << seed << "\n" << script;
  }
  EXPECT_LE(refused, 1 + scripts / 100);
}

}  // namespace
}  // namespace plimsoll
