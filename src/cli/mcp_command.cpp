// mcp: the planner for agents, over standard input and output.
#include <iostream>
#include <string>

#include "command.hpp"
#include "plimsoll/mcp.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::size_t kLongest = 8 << 20;  // bytes of a message

/// A line of standard input, without its end; false at the end of all. Of a longer one than kLongest the rest is passed over, and it is no
/// JSON.
bool read_line(std::string& line) {
  line.clear();
  bool any = false;
  for (int c; (c = std::cin.get()) != EOF;) {
    any = true;
    if (c == '\n') return true;
    if (line.size() < kLongest) line.push_back(static_cast<char>(c));
  }
  return any;
}

int run_mcp(const Arguments&) {
  std::ios::sync_with_stdio(false);
  for (std::string line; read_line(line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (const auto answer = answer_mcp(line)) print(*answer + "\n");
  }
  return kFits;
}

}  // namespace

Command mcp_command() {
  return {"mcp",
          "the planner for agents: Model Context Protocol over stdin and stdout",
          "  claude mcp add plimsoll -- plimsoll mcp\n"
          "  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}' | plimsoll mcp",
          {},
          run_mcp,
          {}};
}

}  // namespace plimsoll::cli
