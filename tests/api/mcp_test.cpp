// The planner for agents: messages of the Model Context Protocol, and what comes back.
#include "plimsoll/mcp.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace plimsoll {
namespace {

using Json = nlohmann::json;

Json asked(const Json& message) {
  const auto answer = answer_mcp(message.dump());
  if (!answer) return nullptr;
  EXPECT_EQ(answer->find('\n'), std::string::npos) << "a message is a line";
  return Json::parse(*answer);
}

Json called(const std::string& method, const Json& params = Json::object()) {
  return asked({{"jsonrpc", "2.0"}, {"id", 7}, {"method", method}, {"params", params}});
}

Json tool(const std::string& name, const Json& arguments) {
  return called("tools/call", {{"name", name}, {"arguments", arguments}})["result"];
}

const Json kGpt2 = {{"model", "gpt2"}, {"on", "1xh100-sxm"}, {"options", {{"micro_batch", "8"}, {"seq", "1024"}}}};

TEST(Mcp, TheRevisionThatIsAskedForIsSpokenElseTheNewest) {
  for (const char* revision : {"2024-11-05", "2025-03-26", "2025-06-18"})
    EXPECT_EQ(called("initialize", {{"protocolVersion", revision}})["result"]["protocolVersion"], revision);
  const Json answer = called("initialize", {{"protocolVersion", "2031-01-01"}});
  EXPECT_EQ(answer["result"]["protocolVersion"], "2025-06-18");
  EXPECT_EQ(answer["id"], 7);
  EXPECT_TRUE(answer["result"]["capabilities"].contains("tools"));
  EXPECT_TRUE(answer["result"]["capabilities"].contains("resources"));
}

TEST(Mcp, NotificationsAndAnswersAreNotAnswered) {
  EXPECT_TRUE(asked({{"jsonrpc", "2.0"}, {"method", "notifications/initialized"}}).is_null());
  EXPECT_TRUE(asked({{"jsonrpc", "2.0"}, {"id", 1}, {"result", Json::object()}}).is_null());
}

TEST(Mcp, EveryToolSaysItsArguments) {
  const Json tools = called("tools/list")["result"]["tools"];
  ASSERT_GE(tools.size(), 7U);
  for (const Json& each : tools) {
    EXPECT_FALSE(each["description"].get<std::string>().empty());
    EXPECT_EQ(each["inputSchema"]["type"], "object");
    for (const auto& [key, member] : each["inputSchema"]["properties"].items())
      EXPECT_TRUE(member.contains("description")) << each["name"] << " " << key;
  }
}

TEST(Mcp, AnEstimateIsATextAndAnObject) {
  const Json result = tool("estimate", kGpt2);
  EXPECT_EQ(result["isError"], false);
  EXPECT_EQ(result["content"][0]["text"].get<std::string>().rfind("fits: gpt2", 0), 0U);
  EXPECT_EQ(result["structuredContent"]["schema"], "plimsoll/estimate/1");
}

TEST(Mcp, ToolsAnswerOfOneRun) {
  EXPECT_EQ(tool("explain", kGpt2)["structuredContent"]["schema"], "plimsoll/explain/1");
  EXPECT_EQ(tool("make_it_fit", kGpt2)["content"][0]["text"], "it fits as it is");
  const Json large = {{"model", "llama-3.1-8b"}, {"on", "8xh100-sxm"}, {"options", {{"fsdp", "full"}, {"seq", "8192"}}}};
  EXPECT_TRUE(tool("make_it_fit", large)["structuredContent"]["change"].contains("flag"));
  const Json machines = tool("compare_machines", {{"model", "gpt2"}, {"machines", "1xh100-sxm,8xmi300x"}, {"options", {{"seq", "128"}}}});
  EXPECT_EQ(machines["structuredContent"]["machines"].size(), 2U);
  const Json files = tool("export", {{"model", "llama-3.1-8b"},
                                     {"on", "8xh100-sxm"},
                                     {"to", "torchtitan"},
                                     {"options", {{"framework", "torchtitan"}, {"fsdp", "full"}}}});
  EXPECT_EQ(files["isError"], false) << files.dump();
  const Json read = tool("read", {{"launch", {"torchrun", "--nproc-per-node", "8", "train.py"}}, {"model", "gpt2"}});
  EXPECT_TRUE(read.contains("isError"));
}

TEST(Mcp, ARefusalIsTheToolsAnswer) {
  const Json wrong = tool("estimate", {{"model", "gpt3"}, {"on", "1xh100-sxm"}});
  EXPECT_EQ(wrong["isError"], true);
  EXPECT_NE(wrong["content"][0]["text"].get<std::string>().find("gpt3"), std::string::npos);
  const Json misspelt = tool("estimate", {{"model", "gpt2"}, {"on", "1xh100-sxm"}, {"option", Json::object()}});
  EXPECT_NE(misspelt["content"][0]["text"].get<std::string>().find("'options'"), std::string::npos) << "no argument is passed over";
}

TEST(Mcp, ResourcesAreListsAndSheets) {
  for (const Json& each : called("resources/list")["result"]["resources"]) {
    const Json read = called("resources/read", {{"uri", each["uri"]}});
    EXPECT_TRUE(Json::accept(read["result"]["contents"][0]["text"].get<std::string>())) << each["uri"];
  }
  const Json sheet = called("resources/read", {{"uri", "plimsoll://hardware/mi300x"}});
  EXPECT_NE(sheet["result"]["contents"][0]["text"].get<std::string>().find("MI300X"), std::string::npos);
  EXPECT_EQ(called("resources/read", {{"uri", "plimsoll://hardware/mi30x"}})["error"]["code"], -32002);
  EXPECT_EQ(called("resources/read", {{"uri", "file:///etc/passwd"}})["error"]["code"], -32002);
}

TEST(Mcp, WhatIsNoMessageIsAnErrorOfTheProtocol) {
  for (const auto& [text, code] :
       {std::pair("{", -32700), std::pair("[]", -32600), std::pair("3", -32600), std::pair(R"({"id":1,"method":3})", -32600),
        std::pair(R"({"id":1,"method":"tools/cal"})", -32601), std::pair(R"({"id":1,"method":"tools/call","params":[]})", -32602),
        std::pair(R"({"id":1,"method":"tools/call","params":{"name":"rm"}})", -32602)}) {
    const auto answer = answer_mcp(text);
    ASSERT_TRUE(answer) << text;
    EXPECT_EQ(Json::parse(*answer)["error"]["code"], code) << text;
  }
  const std::string deep(200'000, '[');
  EXPECT_EQ(Json::parse(*answer_mcp(deep))["error"]["code"], -32700);
}

}  // namespace
}  // namespace plimsoll
