// JSON-RPC 2.0 of the Model Context Protocol: what is asked, what is answered.
#include "plimsoll/mcp.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "api/mcp_tools.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "units/json_reader.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kRevisions[] = {"2025-06-18", "2025-03-26", "2024-11-05"};  // the newest first
constexpr int kParseError = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601, kInvalidParams = -32602, kInternalError = -32603,
              kResourceNotFound = -32002;

constexpr const char* kInstructions =
    "plimsoll predicts memory and time of training runs before GPUs are booked. Ask `estimate` whether a run fits and how fast it goes; "
    "`make_it_fit` where it does not; `explain` for why and what would help; `search` for the best strategy on a cluster; "
    "`compare_machines` for which GPUs; `read` for what somebody's configuration files mean; `export` to write a plan as a program's files. "
    "Name the framework and its release when they are known. Every answer lists what it assumed: tell the user. A refusal says what is not "
    "modelled and what is nearest: do not guess in its place.";

/// An error of JSON-RPC, not of a tool.
struct ProtocolError {
  int code;
  std::string message;
};

std::string line_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// ---- resources ---------------------------------------------------------------------------------------------------------

struct Resource {
  const char *uri, *name, *description, *command;
};
constexpr Resource kResources[] = {
    {"plimsoll://models", "models", "the shipped models, with sizes", "models"},
    {"plimsoll://hardware", "hardware", "the shipped accelerators and clusters", "hardware"},
    {"plimsoll://options", "options", "every key of a strategy, its values, what it means", "options"},
};
struct Template {
  const char *front, *name, *description, *command, *key;
};
constexpr Template kTemplates[] = {
    {"plimsoll://models/", "model", "the layers and parameters of a model", "models", "model"},
    {"plimsoll://hardware/", "device", "the file of a device or cluster, each number with its source", "hardware", "name"},
};

Json listed_resources() {
  Json list = Json::array();
  for (const Resource& each : kResources)
    list.push_back({{"uri", each.uri}, {"name", each.name}, {"description", each.description}, {"mimeType", "application/json"}});
  return {{"resources", std::move(list)}};
}

Json listed_templates() {
  Json list = Json::array();
  for (const Template& each : kTemplates)
    list.push_back({{"uriTemplate", std::string(each.front) + "{name}"},
                    {"name", each.name},
                    {"description", each.description},
                    {"mimeType", "application/json"}});
  return {{"resourceTemplates", std::move(list)}};
}

/// The request of the C function that a resource's address stands for.
Json request_of(const std::string& uri) {
  for (const Resource& each : kResources)
    if (uri == each.uri) return {{"command", each.command}};
  for (const Template& each : kTemplates)
    if (uri.rfind(each.front, 0) == 0 && uri.size() > std::string_view(each.front).size())
      return {{"command", each.command}, {each.key, uri.substr(std::string_view(each.front).size())}};
  throw ProtocolError{kResourceNotFound, "there is no resource '" + uri.substr(0, 200) + "'"};
}

Json read_resource(const Json& params) {
  const auto uri = params.find("uri");
  if (uri == params.end() || !uri->is_string()) throw ProtocolError{kInvalidParams, "uri is missing"};
  const Json request = request_of(uri->get<std::string>());
  const std::string text = [&] {
    try {
      return api::called(nlohmann::json::parse(line_of(request)), request["command"].get<std::string>().c_str()).text;
    } catch (const Error& error) {
      throw ProtocolError{kResourceNotFound, error.message()};
    }
  }();
  return {{"contents", Json::array({{{"uri", *uri}, {"mimeType", "application/json"}, {"text", text}}})}};
}

// ---- tools -------------------------------------------------------------------------------------------------------------

Json listed_tools() {
  Json list = Json::array();
  for (const api::Tool& tool : api::tools())
    list.push_back({{"name", tool.name},
                    {"title", tool.title},
                    {"description", tool.description},
                    {"inputSchema", tool.schema},
                    {"annotations", {{"readOnlyHint", true}, {"openWorldHint", false}}}});
  return {{"tools", std::move(list)}};
}

Json said(const std::string& text) { return Json::array({{{"type", "text"}, {"text", text}}}); }

/// A member that the tool does not have is an error: a misspelt one would be passed over.
void check_members(const api::Tool& tool, const nlohmann::json& arguments) {
  std::vector<std::string> known;
  for (const auto& [key, unused] : tool.schema["properties"].items()) known.push_back(key);
  for (const auto& [key, unused] : arguments.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("there is no argument '" + key.substr(0, 60) + "'", tool.name, suggest(key, known));
}

Json call_tool(const Json& params) {
  const auto name = params.find("name");
  if (name == params.end() || !name->is_string()) throw ProtocolError{kInvalidParams, "name is missing"};
  const std::string wanted = name->get<std::string>();
  const auto& all = api::tools();
  const auto tool = std::find_if(all.begin(), all.end(), [&](const api::Tool& each) { return wanted == each.name; });
  if (tool == all.end()) throw ProtocolError{kInvalidParams, "there is no tool '" + wanted.substr(0, 60) + "'"};
  const nlohmann::json arguments =
      params.contains("arguments") ? nlohmann::json::parse(line_of(params["arguments"])) : nlohmann::json::object();
  if (!arguments.is_object()) throw ProtocolError{kInvalidParams, "arguments must be an object"};
  try {
    check_members(*tool, arguments);
    const api::ToolAnswer answer = tool->run(arguments);
    return {{"content", said(answer.text)}, {"structuredContent", answer.structured}, {"isError", false}};
  } catch (const Error& error) {
    return {{"content", said(error.what())}, {"isError", true}};
  }
}

// ---- the protocol ------------------------------------------------------------------------------------------------------

Json initialized(const Json& params) {
  const auto asked = params.find("protocolVersion");
  const auto knows = [&](const char* revision) { return asked != params.end() && asked->is_string() && *asked == revision; };
  const auto* found = std::find_if(std::begin(kRevisions), std::end(kRevisions), knows);
  return {{"protocolVersion", found == std::end(kRevisions) ? kRevisions[0] : *found},
          {"capabilities", {{"tools", Json::object()}, {"resources", Json::object()}}},
          {"serverInfo", {{"name", "plimsoll"}, {"title", "plimsoll"}, {"version", version()}}},
          {"instructions", kInstructions}};
}

Json answered(const std::string& method, const Json& params) {
  if (method == "initialize") return initialized(params);
  if (method == "ping") return Json::object();
  if (method == "tools/list") return listed_tools();
  if (method == "tools/call") return call_tool(params);
  if (method == "resources/list") return listed_resources();
  if (method == "resources/templates/list") return listed_templates();
  if (method == "resources/read") return read_resource(params);
  throw ProtocolError{kMethodNotFound, "there is no method '" + method.substr(0, 60) + "'"};
}

std::string failed(const Json& id, const ProtocolError& error) {
  return line_of({{"jsonrpc", "2.0"}, {"id", id}, {"error", {{"code", error.code}, {"message", error.message}}}});
}

}  // namespace

std::optional<std::string> answer_mcp(const std::string& message) {
  Json request;
  try {
    JsonDocument::parse(message, "message");  // refuses what is too large, too deep or no JSON, with line and column
    request = Json::parse(message);
  } catch (const Error& error) {
    return failed(nullptr, {kParseError, error.what()});
  }
  const bool is_call = request.is_object() && request.contains("method") && request["method"].is_string();
  const Json id = request.is_object() && request.contains("id") ? request["id"] : Json();
  if (request.is_object() && !request.contains("method") && (request.contains("result") || request.contains("error")))
    return {};  // an answer
  if (!is_call) return failed(id, {kInvalidRequest, "a message is an object with a method"});
  if (!request.contains("id")) return {};  // a notification
  const Json params = request.contains("params") ? request["params"] : Json::object();
  if (!params.is_object()) return failed(id, {kInvalidParams, "params must be an object"});
  try {
    return line_of({{"jsonrpc", "2.0"}, {"id", id}, {"result", answered(request["method"].get<std::string>(), params)}});
  } catch (const ProtocolError& error) {
    return failed(id, error);
  } catch (const Error& error) {
    return failed(id, {kInternalError, error.what()});
  } catch (const std::bad_alloc&) {
    return failed(id, {kInternalError, "there is not enough memory for this"});
  } catch (const std::exception& error) {
    return failed(id, {kInternalError, error.what()});
  }
}

}  // namespace plimsoll
