// row_digests write [NAME …]   writes what is held anew (of all, or of those), and tells what moved
// row_digests dump NAME ID     the program of a row, or of drawn strategy ID, as text
// row_digests line ID          the drawn strategy as it could be typed, and why it is not played, if it is not
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "validate/digests/drawn.hpp"
#include "validate/digests/writer.hpp"

namespace {

int run(const std::vector<std::string>& words) {
  using namespace plimsoll::digests;
  if (words.size() == 3 && words[0] == "dump") {
    std::fputs(dump_of(words[1], words[2]).c_str(), stdout);
    return 0;
  }
  if (words.size() == 2 && words[0] == "line") {
    const Drawn line = drawn(std::stoi(words[1]));
    std::printf("%s\n%s\n", line_of(line).c_str(), unplayed(line).c_str());
    return 0;
  }
  if (words.empty() || words[0] != "write") {
    std::fputs("row_digests write [NAME ...] | dump NAME ID | line ID\n", stderr);
    return 2;
  }
  std::vector<std::string> names(words.begin() + 1, words.end());
  if (names.empty()) names = all_names();
  bool good = true;
  for (const std::string& name : names) good = write_held(name) && good;
  return good ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(std::vector<std::string>(words + 1, words + count));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "row_digests: %s\n", error.what());
    return 1;
  }
}
