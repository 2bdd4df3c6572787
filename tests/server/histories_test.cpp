// SPDX-License-Identifier: Apache-2.0
// Conversations as clients send them back, in every API: what a model or another server wrote is no
// error, and what a request has and the server does not use is logged.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/responses_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json said_by(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

class HistoriesTest : public ResponsesFixture {
 protected:
  // The prompt of a call; its error, if it has one.
  [[nodiscard]] std::string prompt_of(std::string_view path, const Json& body) const {
    const size_t before = engine->submitted().size();
    const Reply reply = post(path, body);
    return reply.status == 200 && engine->submitted().size() > before ? last_prompt() : reply.body;
  }

  [[nodiscard]] std::string chat_prompt(const Json& messages) const {
    return prompt_of(kChat, {{"messages", messages}});
  }

  [[nodiscard]] std::string input_prompt(const Json& input) const {
    return prompt_of("/v1/responses", {{"input", input}});
  }

  [[nodiscard]] std::string messages_prompt(const Json& body) const {
    Json whole = {{"max_tokens", 5}, {"messages", Json::array({said_by("user", "Hi")})}};
    whole.update(body);
    return prompt_of("/v1/messages", whole);
  }

  // The prompt of a last message with this block.
  [[nodiscard]] std::string block_prompt(const Json& block, const char* role = "user") const {
    return messages_prompt(
        {{"messages", {said_by("user", "Hi"), said_by(role, Json::array({block}))}}});
  }

  // The lines of the log that `calls` causes.
  template <typename Calls>
  static std::string log_of(Calls calls) {
    set_log_level(LogLevel::kWarning);
    ::testing::internal::CaptureStderr();
    calls();
    set_log_level(LogLevel::kError);
    return ::testing::internal::GetCapturedStderr();
  }
};

size_t count_of(std::string_view text, std::string_view wanted) {
  size_t count = 0;
  for (size_t i = 0; (i = text.find(wanted, i)) != std::string_view::npos; i += wanted.size()) {
    ++count;
  }
  return count;
}

// ---- Chat ----

TEST_F(HistoriesTest, BrokenArgumentsOfACallEndNoConversation) {
  start();
  for (const Json& arguments :
       {Json(R"({"city": "cut of)"), Json(R"(["a"])"), Json("Paris"), Json("{}}"), Json(""),
        Json(nullptr), Json(3), Json::array({1}), Json({{"a", 1}})}) {
    SCOPED_TRACE(arguments.dump());
    const Json call = {{"id", "c"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    Json asked = said_by("assistant", nullptr);
    asked["tool_calls"] = Json::array({call});
    Json result = said_by("tool", "done");
    result["tool_call_id"] = "c";
    EXPECT_THAT(chat_prompt({said_by("user", "x"), asked, result}), HasSubstr("|tool: done|"));
    if (arguments.is_string()) {
      const Json item = {
          {"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", arguments}};
      const Json output = {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "done"}};
      EXPECT_THAT(input_prompt({said_by("user", "x"), item, output}), HasSubstr("|tool: done|"));
    }
    const Json block = {{"type", "tool_use"}, {"id", "c"}, {"name", "f"}, {"input", arguments}};
    EXPECT_THAT(block_prompt(block, "assistant"), HasSubstr(R"("name":"f")"));
    asked["tool_calls"][0].erase("id");
    EXPECT_THAT(prompt_of("/api/chat",
                          {{"messages", {said_by("user", "x"), asked, said_by("tool", "done")}}}),
                HasSubstr(R"("name":"f")"));
  }
}

TEST_F(HistoriesTest, EveryPartOfAChatsDescriptionIsRead) {
  start();
  const auto with = [this](const Json& part, const char* role) {
    return chat_prompt({said_by("user", "x"), said_by(role, Json::array({part})),
                        said_by("assistant", "a"), said_by("user", "y")});
  };
  EXPECT_THAT(with({{"type", "refusal"}, {"refusal", "I can't"}}, "assistant"),
              HasSubstr("assistant: I can't|"));
  EXPECT_THAT(with({{"type", "thinking"}, {"thinking", "hm"}}, "assistant"),
              HasSubstr("assistant: (hm)|"));
  EXPECT_THAT(with({{"type", "output_text"}, {"text", "ab"}}, "assistant"),
              HasSubstr("assistant: ab|"));
  EXPECT_THAT(with("plain", "user"), HasSubstr("user: plain|"));
  EXPECT_THAT(with({{"type", "image_url"}, {"image_url", {{"url", "x"}}}}, "assistant"),
              HasSubstr("assistant: [image_url]|"))
      << "a model wrote it";
  for (const char* const type : {"image_url", "input_audio", "video_url"}) {
    EXPECT_THAT(with({{"type", type}}, "user"), HasSubstr(fmt::format("user: [{}]|", type)))
        << "it was asked earlier";
    EXPECT_THAT(chat_prompt(Json::array({said_by("user", Json::array({{{"type", type}}}))})),
                HasSubstr(std::string("a part of type ") + type));
  }
  const std::string log = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(with({{"type", "hologram"}, {"depth", "deep"}}, "user"),
                  HasSubstr(R"(user: [hologram: {"depth":"deep"}]|)"));
    }
  });
  EXPECT_EQ(count_of(log, "type of a part `hologram`"), 1U) << log;
  EXPECT_THAT(chat_prompt(Json::array({said_by("user", Json::array({{{"type", "hologram"}}}))})),
              HasSubstr(R"(`messages[0].content[0].type` is \"hologram\"; it must be \"text\")"))
      << "what is asked now, and not a history";
  Json refused = said_by("assistant", nullptr);
  refused["refusal"] = "No.";
  EXPECT_THAT(chat_prompt({said_by("user", "x"), refused, said_by("user", "y")}),
              HasSubstr("assistant: No.|"));
}

TEST_F(HistoriesTest, CallsBeforeToolsHadIdsAreRead) {
  start();
  const Json messages = Json::parse(R"([
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
    {"role": "function", "name": "f", "content": "done"}])");
  const std::string prompt = chat_prompt(messages);
  EXPECT_THAT(prompt, HasSubstr(R"("name":"f","arguments":{"a":1})"));
  EXPECT_THAT(prompt, HasSubstr("|tool: done|"));
  const Json custom = Json::parse(R"([
    {"role": "user", "content": "x"},
    {"role": "assistant", "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "patch", "input": "*** x"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "done"}])");
  EXPECT_THAT(chat_prompt(custom), HasSubstr(R"("name":"patch","arguments":{"input":"*** x"})"));
}

TEST_F(HistoriesTest, DocumentsThatAreTextAreText) {
  start();
  const auto chat_file = [this](const Json& file) {
    return chat_prompt(
        Json::array({said_by("user", Json::array({{{"type", "file"}, {"file", file}},
                                                  {{"type", "text"}, {"text", "Sum up."}}}))}));
  };
  // "naïve text"
  EXPECT_THAT(chat_file({{"file_data", "data:text/plain;base64,bmHDr3ZlIHRleHQ="},
                         {"filename", "notes.txt"}}),
              HasSubstr("user: notes.txt:\nnaïve text Sum up.|"));
  EXPECT_THAT(chat_file({{"file_data", "bmHDr3ZlIHRleHQ="}, {"filename", "notes.md"}}),
              HasSubstr("naïve text"));
  EXPECT_THAT(chat_file({{"file_data", "data:text/csv,a%2Cb"}}), HasSubstr("user: a,b Sum"));
  EXPECT_THAT(chat_file({{"file_data", "data:application/json;charset=utf-8;base64,eyJhIjoxfQ"}}),
              HasSubstr(R"({"a":1})"));
  EXPECT_THAT(chat_file({{"file_data", "data:application/pdf;base64,JVBERi0="}}),
              HasSubstr("application/pdf"));
  EXPECT_THAT(chat_file({{"file_data", "JVBERi0="}, {"filename", "a.PDF"}}),
              HasSubstr("application/pdf"));
  EXPECT_THAT(chat_file({{"file_data", "data:text/plain;base64,&&&"}}), HasSubstr("is not base64"));
  EXPECT_THAT(chat_file({{"file_data", "data:text/plain;base64,/w=="}}),
              HasSubstr("is not text in UTF-8"));
  EXPECT_THAT(chat_file({{"file_id", "file_1"}}), HasSubstr("There is no file `file_1`"));
  EXPECT_THAT(chat_file(Json::object()), HasSubstr("file_data"));

  const auto input_file = [this](Json file) {
    file["type"] = "input_file";
    return input_prompt(Json::array({said_by("user", Json::array({file}))}));
  };
  EXPECT_THAT(input_file({{"file_data", "data:text/plain;base64,bmHDr3ZlIHRleHQ="},
                          {"filename", "notes.txt"}}),
              HasSubstr("user: notes.txt:\nnaïve text|"));
  EXPECT_THAT(input_file({{"file_url", "https://example.com/a.txt"}}), HasSubstr("a URL"));

  EXPECT_THAT(
      block_prompt(
          {{"type", "document"},
           {"title", "T"},
           {"context", "C"},
           {"source", {{"type", "text"}, {"media_type", "text/plain"}, {"data", "the text"}}}}),
      HasSubstr("T\nC\nthe text|"));
  EXPECT_THAT(
      block_prompt(
          {{"type", "document"},
           {"source",
            {{"type", "base64"}, {"media_type", "text/plain"}, {"data", "bmHDr3ZlIHRleHQ="}}}}),
      HasSubstr("naïve text|"));
  EXPECT_THAT(
      block_prompt(
          {{"type", "document"},
           {"source",
            {{"type", "content"},
             {"content",
              {{{"type", "text"}, {"text", "one"}}, {{"type", "text"}, {"text", "two"}}}}}}}),
      HasSubstr("one\ntwo|"));
  EXPECT_THAT(block_prompt({{"type", "search_result"},
                            {"title", "T"},
                            {"source", "https://example.com"},
                            {"content", Json::array({{{"type", "text"}, {"text", "found"}}})}}),
              HasSubstr("T\nhttps://example.com\nfound|"));
  EXPECT_THAT(block_prompt({{"type", "document"},
                            {"source", {{"type", "base64"}, {"media_type", "application/pdf"}}}}),
              HasSubstr("application/pdf"));
  EXPECT_THAT(block_prompt({{"type", "document"}, {"source", {{"type", "url"}, {"url", "x"}}}}),
              HasSubstr("a URL"));
  const Json inner = {{"type", "document"}, {"source", {{"type", "text"}, {"data", "of a tool"}}}};
  EXPECT_THAT(
      block_prompt(
          {{"type", "tool_result"}, {"tool_use_id", "t"}, {"content", Json::array({inner})}}),
      HasSubstr("tool: of a tool|"));
}

// ---- Responses ----

// One of each kind that OpenAI's description has, and of Codex'.
std::vector<Json> items_of_every_kind() {
  const Json items = Json::parse(R"([
    {"type": "message", "role": "user", "content": "w0"},
    {"type": "message", "role": "assistant", "id": "m", "status": "completed", "phase": "final_answer",
     "content": [{"type": "output_text", "text": "w1", "annotations": [], "logprobs": []}]},
    {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "w2"}]},
    {"type": "file_search_call", "id": "i", "status": "completed", "queries": ["w3"], "results": null},
    {"type": "computer_call", "id": "i", "call_id": "c1", "pending_safety_checks": [], "status": "completed",
     "action": {"type": "type", "text": "w4"}},
    {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "image_url": "x"}},
    {"type": "web_search_call", "id": "i", "status": "completed", "action": {"type": "search", "query": "w5"}},
    {"type": "function_call", "call_id": "c2", "name": "w6", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c2", "output": "w7"},
    {"type": "function_call_output", "output": [{"type": "input_text", "text": "w8"}]},
    {"type": "tool_search_call", "call_id": "c3", "execution": "client", "arguments": {"q": "w9"}},
    {"type": "tool_search_output", "call_id": "c3", "execution": "client", "tools": [{"type": "function", "name": "w10"}]},
    {"type": "tool_search_output", "tools": [{"type": "function", "name": "w11"}]},
    {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "w12"}]},
    {"type": "reasoning", "id": "i", "summary": [{"type": "summary_text", "text": "w13"}], "encrypted_content": "secret"},
    {"type": "message", "role": "assistant", "content": "w14"},
    {"type": "reasoning", "id": "i", "summary": [], "content": [{"type": "reasoning_text", "text": "w15"}]},
    {"type": "message", "role": "assistant", "content": "w16"},
    {"type": "compaction", "encrypted_content": "secret"},
    {"type": "image_generation_call", "id": "i", "status": "completed", "result": "secret"},
    {"type": "code_interpreter_call", "id": "i", "status": "completed", "container_id": "k", "code": "w17", "outputs": null},
    {"type": "local_shell_call", "id": "i", "call_id": "c4", "action": {"type": "exec", "command": ["w18"]}, "status": "completed"},
    {"type": "local_shell_call_output", "id": "c4", "output": "w19"},
    {"type": "shell_call", "call_id": "c5", "action": {"commands": ["w20"]}},
    {"type": "shell_call_output", "call_id": "c5", "output": [{"stdout": "w21", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    {"type": "apply_patch_call", "call_id": "c6", "status": "completed", "operation": {"type": "delete_file", "path": "w22"}},
    {"type": "apply_patch_call_output", "call_id": "c6", "status": "completed"},
    {"type": "mcp_list_tools", "id": "i", "server_label": "l", "tools": []},
    {"type": "mcp_approval_request", "id": "i", "server_label": "l", "name": "n", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "i", "approve": true},
    {"type": "mcp_call", "id": "i", "server_label": "l", "name": "w23", "arguments": "{}", "output": "w24"},
    {"type": "custom_tool_call", "call_id": "c7", "name": "w25", "input": "w26"},
    {"type": "custom_tool_call_output", "call_id": "c7", "output": "w27"},
    {"type": "compaction_trigger"},
    {"type": "program", "id": "i", "call_id": "c8", "code": "w28", "fingerprint": "secret"},
    {"type": "program_output", "id": "i", "call_id": "c8", "result": "w29", "status": "completed"},
    {"type": "agent_message", "author": "a", "content": [{"type": "input_text", "text": "w30"}]},
    {"type": "context_compaction", "encrypted_content": "secret"},
    {"type": "ghost_snapshot", "ghost_commit": {"id": "secret"}}])");
  return {items.begin(), items.end()};
}

TEST_F(HistoriesTest, EveryKindOfItemIsTakenShownOrPassedOver) {
  start();
  Json all = Json::array();
  const std::string log = log_of([&] {
    for (const Json& item : items_of_every_kind()) {
      SCOPED_TRACE(item.dump());
      all.push_back(item);
      const Reply reply = post("/v1/responses", {{"input", {said_by("user", "x"), item}}});
      EXPECT_EQ(reply.status, 200) << reply.body;
    }
  });
  EXPECT_EQ(log, "") << "all of them are known";
  const std::string prompt = input_prompt(all);
  for (int i = 0; i <= 30; ++i) EXPECT_THAT(prompt, HasSubstr(fmt::format("w{}", i)));
  EXPECT_THAT(prompt, Not(HasSubstr("secret")));
  EXPECT_THAT(prompt, HasSubstr("assistant: w14(w13)|")) << "a summary where there is no text";
  EXPECT_THAT(prompt, HasSubstr("tool: completed|"));
  EXPECT_THAT(prompt, HasSubstr("tool: [computer_screenshot]|"));
}

TEST_F(HistoriesTest, AnUnknownKindOfItemIsLoggedOnce) {
  start();
  const Json items = {said_by("user", "x"),
                      {{"type", "telepathy"}, {"id", "t"}, {"idea", "w1"}},
                      said_by("user", "y")};
  const std::string log = log_of([&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(input_prompt(items), HasSubstr(R"(assistant: [telepathy: {"idea":"w1"}])"));
    }
  });
  EXPECT_EQ(count_of(log, "/v1/responses: the type of an item `telepathy` is not used"), 1U) << log;
}

// The least value that a schema of OpenAI's description allows, roughly.
Json least_value(const Json& schemas, const Json& schema, int depth) {
  if (depth > 12 || !schema.is_object()) return nullptr;
  if (schema.contains("$ref")) {
    const auto name = schema["$ref"].get<std::string>();
    return least_value(schemas, schemas[name.substr(name.rfind('/') + 1)], depth + 1);
  }
  if (schema.contains("enum")) return schema["enum"][0];
  if (schema.contains("const")) return schema["const"];
  for (const char* const several : {"oneOf", "anyOf"}) {
    if (schema.contains(several)) return least_value(schemas, schema[several][0], depth + 1);
  }
  Json value = Json::object();
  if (schema.contains("allOf")) {
    for (const Json& part : schema["allOf"]) {
      const Json more = least_value(schemas, part, depth + 1);
      if (more.is_object()) value.update(more);
    }
    return value;
  }
  const std::string type = schema.value("type", "object");
  if (type == "string") return "text";
  if (type == "array") return Json::array();
  if (type == "integer" || type == "number") return 1;
  if (type == "boolean") return true;
  for (const Json& name : schema.value("required", Json::array())) {
    const auto key = name.get<std::string>();
    const Json& properties = schema["properties"];
    if (properties.contains(key)) value[key] = least_value(schemas, properties[key], depth + 1);
  }
  return value;
}

void collect_items(const Json& schemas, const std::string& name, std::set<std::string>& found) {
  const Json& schema = schemas[name];
  bool is_choice = false;
  for (const char* const several : {"oneOf", "anyOf"}) {
    for (const Json& option : schema.value(several, Json::array())) {
      if (!option.contains("$ref")) continue;
      is_choice = true;
      const auto reference = option["$ref"].get<std::string>();
      collect_items(schemas, reference.substr(reference.rfind('/') + 1), found);
    }
  }
  if (!is_choice) found.insert(name);
}

TEST_F(HistoriesTest, EveryItemOfOpenAisDescriptionIsTaken) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/openapi/openai-openapi.json");
  std::ifstream file(path);
  const Json schemas = Json::parse(file)["components"]["schemas"];
  std::set<std::string> kinds;
  for (const char* const name : {"InputItem", "ItemResource", "OutputItem"}) {
    collect_items(schemas, name, kinds);
  }
  EXPECT_GT(kinds.size(), 30U);
  start();
  const std::string log = log_of([&] {
    for (const std::string& kind : kinds) {
      const Json item = least_value(schemas, schemas[kind], 0);
      if (!item.contains("type") || item["type"] == "item_reference") continue;
      const Reply reply = post("/v1/responses", {{"input", {said_by("user", "x"), item}}});
      EXPECT_EQ(reply.status, 200) << kind << item.dump() << reply.body;
    }
  });
  EXPECT_EQ(log, "");
}

TEST_F(HistoriesTest, AnAssistantsMessageWithoutContentIsEmpty) {
  start();
  Json absent = said_by("assistant", nullptr);
  absent.erase("content");
  for (const Json& message : {said_by("assistant", nullptr), absent, said_by("assistant", "")}) {
    SCOPED_TRACE(message.dump());
    EXPECT_THAT(input_prompt({said_by("user", "a"), message, said_by("user", "b")}),
                HasSubstr("user: a|assistant: |user: b|"));
  }
  EXPECT_THAT(input_prompt(Json::array({said_by("user", nullptr)})), HasSubstr("input[0].content"));
}

TEST_F(HistoriesTest, AReferenceMayComeWithoutItsType) {
  start();
  const Json answer = post("/v1/responses", {{"input", "Hi"}}).json();
  const Json reference = {{"id", answer["output"].back()["id"]}};
  EXPECT_THAT(input_prompt({said_by("user", "a"), reference, said_by("user", "b")}),
              HasSubstr("user: a|assistant: Hello there|user: b|"));
}

// ---- Messages ----

TEST_F(HistoriesTest, TheBillingHeaderOfClaudeCodeIsLeftOut) {
  start();
  const auto system_of = [](const char* version) {
    return Json::array({{{"type", "text"},
                         {"text", fmt::format("x-anthropic-billing-header: cc_version={}; "
                                              "cc_entrypoint=cli; cch=0f1;",
                                              version)}},
                        {{"type", "text"}, {"text", "You are a tool."}},
                        {{"type", "text"}, {"text", "Rules."}}});
  };
  const std::string expected = "system: You are a tool.\nRules.|user: Hi|assistant: ";
  EXPECT_EQ(messages_prompt({{"system", system_of("2.1.1")}}), expected);
  EXPECT_EQ(messages_prompt({{"system", system_of("2.1.2")}}), expected);
  EXPECT_EQ(
      messages_prompt({{"system", "x-anthropic-billing-header: a=b;\nYou are a tool.\nRules."}}),
      expected);
  EXPECT_EQ(messages_prompt({{"system", Json::array({system_of("1")[0]})}}),
            "user: Hi|assistant: ");
  EXPECT_EQ(
      messages_prompt({{"messages", {said_by("system", system_of("1")), said_by("user", "Hi")}}}),
      expected);
  const auto count = [this](const Json& system) {
    const Json body = {{"system", system}, {"messages", Json::array({said_by("user", "Hi")})}};
    return post("/v1/messages/count_tokens", body).json()["input_tokens"];
  };
  Json without = system_of("1");
  without.erase(0);
  EXPECT_EQ(count(system_of("2.1.100000")), count(without));
}

TEST_F(HistoriesTest, BlocksOfEveryKindAreTakenOrRefusedByName) {
  start();
  const Json blocks = Json::parse(R"([
    {"type": "text", "text": "w0", "citations": []}, {"type": "thinking", "thinking": "w1", "signature": "s"},
    {"type": "redacted_thinking", "data": "secret"}, {"type": "tool_use", "id": "t", "name": "w2", "input": {}},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "w3"}},
    {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result", "title": "w4", "encrypted_content": "secret"}]},
    {"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {"type": "web_fetch_result", "url": "w5"}},
    {"type": "code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "w6"}},
    {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {"stdout": "w7"}},
    {"type": "mcp_tool_use", "id": "m", "name": "w8", "server_name": "x", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "m", "content": [{"type": "text", "text": "w9"}]},
    {"type": "container_upload", "file_id": "secret"},
    {"type": "compaction", "content": "w10"}, {"type": "image", "source": {}}])");
  const std::string log = log_of([&] {
    const std::string prompt = messages_prompt(
        {{"messages", {said_by("user", "x"), said_by("assistant", blocks), said_by("user", "y")}}});
    for (int i = 0; i <= 10; ++i) EXPECT_THAT(prompt, HasSubstr(fmt::format("w{}", i)));
    EXPECT_THAT(prompt, Not(HasSubstr("secret")));
    EXPECT_THAT(prompt, HasSubstr("[image]"));
  });
  EXPECT_EQ(log, "");
  EXPECT_THAT(block_prompt({{"type", "image"}, {"source", Json::object()}}),
              HasSubstr("a block of type image"));
  const std::string unknown = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(block_prompt({{"type", "smell"}, {"note", "w11"}}), HasSubstr("w11"));
    }
  });
  EXPECT_EQ(count_of(unknown, "the type of a block `smell`"), 1U) << unknown;
}

// ---- Ollama ----

TEST_F(HistoriesTest, OllamasResultsHaveTheNameOfTheirTool) {
  start();
  const Json messages = Json::parse(R"([
    {"role": "user", "content": "x"},
    {"role": "assistant", "thinking": "hm", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
    {"role": "tool", "tool_name": "f", "content": "done"}])");
  EXPECT_THAT(
      prompt_of("/api/chat", {{"messages", messages}}),
      HasSubstr(
          R"(assistant: (hm)[{"function":{"name":"f","arguments":{"a":1}},"type":"function"}]|tool: done|)"));
}

// ---- Fields that are not used ----

TEST_F(HistoriesTest, AFieldThatIsNotUsedIsLoggedOnce) {
  start();
  const std::string log = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(post(kChat, chat_body({{"grammar", "root ::= x"},
                                       {"chat_template", "{{ 1 }}"},
                                       {"temprature", 1},
                                       {"temperature", 1},
                                       {"max_tokens", 3},
                                       {"stop", "x"},
                                       {"user", "u"}}))
                    .status,
                200);
      EXPECT_EQ(post("/v1/responses", {{"input", "x"}, {"stream_option", 1}}).status, 200);
      EXPECT_EQ(post("/v1/messages", {{"max_tokens", 2},
                                      {"messages", Json::array({said_by("user", "x")})},
                                      {"context_managment", Json::object()}})
                    .status,
                200);
      EXPECT_EQ(post("/api/chat", {{"messages", Json::array({said_by("user", "x")})},
                                   {"stream", false},
                                   {"options", {{"num_ctx", 10}, {"top_k", 3}}}})
                    .status,
                200);
    }
  });
  EXPECT_EQ(count_of(log, "is not used"), 6U) << log;
  for (const char* const line :
       {"/v1/chat/completions: the field `grammar` is not used", "the field `chat_template`",
        "the field `temprature`", "/v1/responses: the field `stream_option`",
        "/v1/messages: the field `context_managment`", "/api/chat: the option `num_ctx`"}) {
    EXPECT_EQ(count_of(log, line), 1U) << line << "\n" << log;
  }
}

TEST_F(HistoriesTest, AFieldThatIsNotUsedIsLoggedForEveryRoute) {
  start();
  const auto with_odd = [](Json body) {
    body["odd"] = 1;
    return body;
  };
  const Json one = Json::array({said_by("user", "x")});
  const std::vector<std::pair<const char*, Json>> calls = {
      {kChat, {{"messages", one}}},
      {"/v1/completions", {{"prompt", "x"}}},
      {"/v1/responses", {{"input", "x"}}},
      {"/v1/messages", {{"messages", one}, {"max_tokens", 2}}},
      {"/api/chat", {{"messages", one}, {"stream", false}}},
      {"/api/generate", {{"prompt", "x"}, {"stream", false}}},
      {"/generate", {{"text", "x"}, {"sampling_params", {{"strange", 1}}}}}};
  const std::string log = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      for (const auto& [path, body] : calls) {
        const Reply reply = post(path, with_odd(body));
        EXPECT_EQ(reply.status, 200) << path << reply.body;
      }
    }
  });
  for (const auto& [path, body] : calls) {
    EXPECT_EQ(count_of(log, fmt::format(" {}: the field `odd` is not used", path)), 1U) << log;
  }
  EXPECT_EQ(count_of(log, "/generate: the field `sampling_params.strange` is not used"), 1U) << log;
  EXPECT_EQ(count_of(log, "is not used"), calls.size() + 1)
      << "and what they know is no such field";
}

TEST_F(HistoriesTest, AToolOfATypeThatIsNotServedIsLoggedOnce) {
  start();
  const std::string log = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      const Json searches = Json::array({{{"type", "web_search"}}});
      EXPECT_EQ(post("/v1/responses", {{"input", "x"}, {"tools", searches}}).status, 200);
      const Json fetches = Json::array({{{"type", "web_fetch_20250910"}, {"name", "web_fetch"}}});
      EXPECT_THAT(messages_prompt({{"tools", fetches}}), HasSubstr("user: Hi"));
      const Json shells = Json::array({{{"type", "bash_20250124"}, {"name", "bash"}},
                                       {{"type", "text_editor_20250728"}, {"name", "edit"}}});
      EXPECT_THAT(messages_prompt({{"tools", shells}}), HasSubstr("user: Hi"));
    }
  });
  for (const char* const type : {"bash_20250124", "text_editor_20250728"}) {
    const std::string line =
        fmt::format("tool type `{}` is not used: tools without a schema", type);
    EXPECT_EQ(count_of(log, line), 1U) << log;
  }
  EXPECT_EQ(count_of(log, "/v1/responses: the tool type `web_search` is not used"), 1U) << log;
  EXPECT_EQ(count_of(log, "/v1/messages: the tool type `web_fetch_20250910`"), 1U) << log;
}

TEST_F(HistoriesTest, FieldsWithinFieldsThatAreNotUsedAreLoggedOnce) {
  start();
  const Json one = Json::array({said_by("user", "x")});
  const Json space = {{"type", "namespace"},
                      {"name", "n"},
                      {"tools",
                       {{{"type", "function"}, {"name", "f"}, {"parameters", Json::object()}},
                        {{"type", "computer"}, {"name", "c"}}}}};
  const std::string log = log_of([&] {
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(post("/v1/messages", {{"messages", one},
                                      {"max_tokens", 2},
                                      {"service_tier", "auto"},
                                      {"container", "c"},
                                      {"output_config", {{"effort", "low"}, {"task_budget", 9}}},
                                      {"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}})
                    .status,
                200);
      EXPECT_EQ(post("/v1/responses", {{"input", "x"},
                                       {"tools", {space}},
                                       {"include", {"reasoning.encrypted_content"}},
                                       {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
                                       {"text", {{"verbosity", "low"}}}})
                    .status,
                200);
      EXPECT_EQ(post(kChat, chat_body({{"reasoning", {{"effort", "low"}, {"exclude", true}}},
                                       {"stream_options", {{"include_obfuscation", false}}}}))
                    .status,
                200);
    }
  });
  for (const char* const line :
       {"/v1/messages: the field `service_tier`", "the field `container`",
        "the field `output_config.task_budget`", "the field `thinking.display`",
        "/v1/responses: the field `reasoning.summary`", "the field `text.verbosity`",
        "the value of `include` `reasoning.encrypted_content`", "the tool type `computer`",
        "/v1/chat/completions: the field `reasoning.exclude`",
        "the field `stream_options.include_obfuscation`"}) {
    EXPECT_EQ(count_of(log, line), 1U) << line << "\n" << log;
  }
  EXPECT_EQ(count_of(log, "is not used"), 10U) << log;
}

TEST_F(HistoriesTest, ToolsThatReachNoPromptAreLogged) {
  codec_gate->hides_tools = true;
  start();
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "now"}}])");
  const std::string log = log_of([&] {
    for (const Json& choice : {Json("none"), Json("auto"), Json("auto"), Json("required")}) {
      EXPECT_EQ(post(kChat, chat_body({{"tools", tools}, {"tool_choice", choice}})).status, 200);
    }
    EXPECT_EQ(post("/v1/responses",
                   {{"input", "x"}, {"tools", {{{"type", "function"}, {"name", "now"}}}}})
                  .status,
              200);
  });
  EXPECT_EQ(count_of(log,
                     "/v1/chat/completions: the field `tools` is not used: the chat template "
                     "shows no tools"),
            1U)
      << log;
  EXPECT_EQ(count_of(log, "/v1/responses: the field `tools` is not used"), 1U) << log;
  EXPECT_EQ(count_of(log, "is not used"), 2U) << log;
}

TEST_F(HistoriesTest, NamesInTheLogAreBounded) {
  start();
  Json body = chat_body();
  for (int i = 0; i < 1000; ++i) body[fmt::format("unknown{}", i)] = i;
  body[std::string(10000, 'x') + "\n"] = 1;
  const std::string log = log_of([&] { EXPECT_EQ(post(kChat, body).status, 200); });
  EXPECT_EQ(count_of(log, "is not used"), 256U);
  EXPECT_EQ(count_of(log, "are not logged"), 1U);
}

}  // namespace
}  // namespace heddle::server
