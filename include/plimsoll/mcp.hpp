/// The planner for agents: the Model Context Protocol over standard input and output (modelcontextprotocol.io, revisions 2024-11-05 to
/// 2025-06-18).
#pragma once

#include <optional>
#include <string>

namespace plimsoll {

/// The answer to one message, JSON-RPC 2.0, both a line; nothing where none is expected (a notification). What a tool refuses is its
/// answer, marked as an error; what is no message of the protocol is an error of JSON-RPC. Never throws Error.
std::optional<std::string> answer_mcp(const std::string& message);

}  // namespace plimsoll
