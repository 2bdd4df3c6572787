// SPDX-License-Identifier: Apache-2.0
// Custom tools and namespaces of the Responses API: in the prompt, in answers and in histories; and
// the order of an answer's items.
#include "server/api/responses/response_tools.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/formats.h"
#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class ResponseToolsTest : public ResponsesFixture {
 protected:
  ResponseToolsTest() {
    options.tool_call_format = parsers::ToolCallFormat::kQwen;
    options.reasoning_format = parsers::ReasoningFormat::kThink;
  }

  // A tool of each kind.
  static Json tools() {
    return {{{"type", "function"},
             {"name", "now"},
             {"parameters", {{"type", "object"}, {"properties", Json::object()}}}},
            {{"type", "web_search"}},
            {{"type", "custom"},
             {"name", "apply_patch"},
             {"description", "Edits files."},
             {"format", {{"type", "grammar"}, {"syntax", "lark"}, {"definition", "start: \"x\""}}}},
            {{"type", "namespace"},
             {"name", "mcp__fs"},
             {"description", "Files of the project."},
             {"tools",
              {{{"type", "function"},
                {"name", "read"},
                {"description", "Reads one."},
                {"parameters", {{"type", "object"}}}},
               {{"type", "custom"}, {"name", "write"}}}}}};
  }

  static std::string call_text(const std::string& name, const Json& arguments) {
    return "<tool_call>\n" + Json{{"name", name}, {"arguments", arguments}}.dump() +
           "\n</tool_call>";
  }

  void answer_with(const std::string& text) {
    engine->script = [text](const Request&) {
      std::vector<std::string> pieces;
      for (size_t i = 0; i < text.size(); i += 5) pieces.push_back(text.substr(i, 5));
      return answer_events(pieces);
    };
  }

  // The message about tools that a request is refused with; "" if it is not.
  [[nodiscard]] std::string refusal_of(const Json& tools) const {
    const Reply reply = post("/v1/responses", {{"input", "Hi"}, {"tools", tools}});
    return reply.status == 400 ? error_of(reply)["message"].get<std::string>() : "";
  }

  // The items of an answer, which are the same streamed and whole; `types` gets those of the
  // stream's events.
  Json output_of(Json body, std::vector<std::string>* types = nullptr) {
    body["input"] = "Hi";
    const Reply whole = post("/v1/responses", body);
    EXPECT_EQ(whole.status, 200) << whole.body;
    body["stream"] = true;
    const Reply stream = post("/v1/responses", body);
    Json last;
    std::string_view rest = stream.body;
    for (size_t end; (end = rest.find("\n\n")) != std::string_view::npos;
         rest.remove_prefix(end + 2)) {
      last = Json::parse(rest.substr(rest.find('\n') + 7, end - rest.find('\n') - 7));
      const auto type = last["type"].get<std::string>();
      if (types != nullptr && (types->empty() || types->back() != type)) types->push_back(type);
    }
    Json output = whole.json()["output"];
    Json streamed = last["response"]["output"];
    for (Json* const items : {&output, &streamed}) {
      for (Json& item : *items) {
        item.erase("id");
        item.erase("call_id");
      }
    }
    EXPECT_EQ(output, streamed);
    return output;
  }
};

TEST_F(ResponseToolsTest, EveryToolIsAFunctionInThePrompt) {
  start();
  const Json body = {{"input", "Hi"}, {"tools", tools()}};
  const Reply reply = post("/v1/responses", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["tools"], tools()) << "as they were sent";
  const std::string prompt = last_prompt();
  EXPECT_THAT(prompt, HasSubstr(R"("name":"now")"));
  EXPECT_THAT(prompt, HasSubstr(R"("name":"apply_patch","description":"Edits files.\n\n)"
                                R"(The input follows this lark grammar:\nstart: \"x\"")"));
  EXPECT_THAT(prompt, HasSubstr(R"("required":["input"])"));
  EXPECT_THAT(prompt, HasSubstr(R"("name":"mcp__fs__read","description":"Files of the )"
                                R"(project.\n\nReads one.")"));
  EXPECT_THAT(prompt, HasSubstr(R"("name":"mcp__fs__write")"));
  EXPECT_THAT(prompt, Not(HasSubstr("web_search")));
}

TEST_F(ResponseToolsTest, CallsComeBackAsTheClientKnowsItsTools) {
  answer_with(call_text("mcp__fs__read", {{"path", "a.txt"}}) + "\n" +
              call_text("apply_patch", {{"input", "*** Begin\n\"x\""}}) + "\n" +
              call_text("mcp__fs__write", {{"input", "b"}}) + "\n" +
              call_text("now", Json::object()));
  start();
  std::vector<std::string> types;
  const Json output = output_of({{"tools", tools()}}, &types);
  ASSERT_EQ(output.size(), 4u) << output;
  EXPECT_EQ(output[0], Json({{"type", "function_call"},
                             {"name", "read"},
                             {"namespace", "mcp__fs"},
                             {"arguments", R"({"path":"a.txt"})"},
                             {"status", "completed"}}));
  EXPECT_EQ(output[1], Json({{"type", "custom_tool_call"},
                             {"name", "apply_patch"},
                             {"input", "*** Begin\n\"x\""},
                             {"status", "completed"}}));
  EXPECT_EQ(output[2]["type"], "custom_tool_call");
  EXPECT_EQ(output[2]["name"], "write");
  EXPECT_EQ(output[2]["namespace"], "mcp__fs");
  EXPECT_EQ(output[2]["input"], "b");
  EXPECT_EQ(output[3]["name"], "now");
  EXPECT_FALSE(output[3].contains("namespace"));
  types.resize(12);
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done",
                          "response.output_item.added", "response.custom_tool_call_input.delta",
                          "response.custom_tool_call_input.done", "response.output_item.done",
                          "response.output_item.added", "response.custom_tool_call_input.delta"));
}

TEST_F(ResponseToolsTest, ACustomCallOfAnotherFormIsShownAsItIs) {
  answer_with(call_text("apply_patch", {{"patch", "a"}}));
  start();
  EXPECT_EQ(output_of({{"tools", tools()}})[0]["input"], R"({"patch":"a"})");
}

TEST_F(ResponseToolsTest, HistoriesNameToolsAsThePromptDoes) {
  start();
  const Json input = {{{"role", "user"}, {"content", "a"}},
                      {{"type", "function_call"},
                       {"call_id", "c1"},
                       {"namespace", "mcp__fs"},
                       {"name", "read"},
                       {"arguments", "{}"}},
                      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "text"}},
                      {{"type", "custom_tool_call"},
                       {"call_id", "c2"},
                       {"namespace", "mcp__fs"},
                       {"name", "write"},
                       {"input", "b\n"}},
                      {{"type", "custom_tool_call_output"}, {"call_id", "c2"}, {"output", "ok"}}};
  const Reply reply = post("/v1/responses", {{"input", input}, {"tools", tools()}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"mcp__fs__read","arguments":{})"));
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"mcp__fs__write","arguments":{"input":"b\n"})"));
}

TEST_F(ResponseToolsTest, GoingOnByIdGivesThePromptOfTheItemsSentAgain) {
  answer_with(call_text("mcp__fs__read", {{"path", "a.txt"}}) + "\n" +
              call_text("apply_patch", {{"input", "x"}}));
  start();
  const Json body = {{"input", "Hi"}, {"tools", tools()}};
  const Json first = post("/v1/responses", body).json();
  Json outputs = Json::array();
  for (const Json& item : first["output"]) {
    outputs.push_back({{"type", item["type"].get<std::string>() + "_output"},
                       {"call_id", item["call_id"]},
                       {"output", "done"}});
  }
  Json by_id = body;
  by_id["input"] = outputs;
  by_id["previous_response_id"] = first["id"];
  ASSERT_EQ(post("/v1/responses", by_id).status, 200);
  const std::string prompt = last_prompt();
  Json again = body;
  again["input"] = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  for (const Json& list : {first["output"], outputs}) {
    for (const Json& item : list) again["input"].push_back(item);
  }
  ASSERT_EQ(post("/v1/responses", again).status, 200);
  EXPECT_EQ(last_prompt(), prompt);
  EXPECT_THAT(prompt, HasSubstr(R"("name":"mcp__fs__read")"));
  EXPECT_THAT(prompt, HasSubstr(R"("arguments":{"input":"x"})"));
}

TEST_F(ResponseToolsTest, AChoiceNamesAToolOfAnyKind) {
  start();
  const auto tools_after = [this](const Json& choice) {
    const Reply reply =
        post("/v1/responses", {{"input", "Hi"}, {"tools", tools()}, {"tool_choice", choice}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return last_prompt();
  };
  for (const auto& [choice, name] : std::vector<std::pair<Json, std::string>>{
           {{{"type", "function"}, {"name", "now"}}, "now"},
           {{{"type", "custom"}, {"name", "apply_patch"}}, "apply_patch"},
           {{{"type", "function"}, {"name", "read"}, {"namespace", "mcp__fs"}}, "mcp__fs__read"},
           {{{"type", "custom"}, {"name", "write"}}, "mcp__fs__write"}}) {
    static_cast<void>(tools_after(choice));
    EXPECT_NE(form_after("<tool_call>\n{\"name\": \"" + name + "\""), nullptr) << choice;
    EXPECT_EQ(form_after("<tool_call>\n{\"name\": \"other\""), nullptr) << choice;
  }
  const Json allowed = {{"type", "allowed_tools"},
                        {"mode", "auto"},
                        {"tools",
                         {{{"type", "custom"}, {"name", "apply_patch"}},
                          {{"type", "namespace"}, {"name", "mcp__fs"}},
                          {{"type", "image_generation"}}}}};
  const std::string prompt = tools_after(allowed);
  EXPECT_THAT(prompt, HasSubstr(R"("name":"apply_patch")"));
  EXPECT_THAT(prompt, HasSubstr(R"("name":"mcp__fs__write")"));
  EXPECT_THAT(prompt, Not(HasSubstr(R"("name":"now")")));
  const Reply unknown = post(
      "/v1/responses",
      {{"input", "Hi"}, {"tools", tools()}, {"tool_choice", {{"type", "custom"}, {"name", "x"}}}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_THAT(error_of(unknown)["message"].get<std::string>(), HasSubstr("names \"x\""));
}

TEST_F(ResponseToolsTest, TextAndCallsKeepTheirOrder) {
  answer_with("<think>Hm</think>First." + call_text("now", Json::object()) + "Then." +
              call_text("now", Json::object()));
  start();
  const Json output = output_of({{"tools", tools()}});
  std::vector<std::string> shown;
  for (const Json& item : output) {
    const bool is_call = item["type"] == "function_call";
    shown.push_back(is_call ? item["name"].get<std::string>()
                            : item["content"][0]["text"].get<std::string>());
    EXPECT_EQ(item["status"], "completed");
  }
  EXPECT_THAT(shown, ElementsAre("Hm", "First.", "now", "Then.", "now"));

  const Json chat_tools = {{{"name", "now"}, {"input_schema", {{"type", "object"}}}}};
  Json body = {{"max_tokens", 99},
               {"tools", chat_tools},
               {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  const Json message = post("/v1/messages", body).json();
  std::vector<std::string> types;
  for (const Json& block : message["content"]) types.push_back(block["type"]);
  EXPECT_THAT(types, ElementsAre("thinking", "text", "tool_use", "text", "tool_use"));
  EXPECT_EQ(message["content"][3]["text"], "Then.");
  EXPECT_EQ(message["stop_reason"], "tool_use");
}

TEST_F(ResponseToolsTest, AWrongToolIsNamedByItsPlace) {
  start();
  const auto param_of = [this](const Json& tool) {
    const Reply reply = post("/v1/responses", {{"input", "Hi"}, {"tools", {tool}}});
    EXPECT_EQ(reply.status, 400) << reply.body;
    return error_of(reply)["param"].get<std::string>();
  };
  EXPECT_EQ(param_of({{"type", "custom"}}), "tools[0].name");
  EXPECT_EQ(param_of({{"type", "namespace"}, {"name", "n"}}), "tools[0].tools");
  EXPECT_EQ(param_of({{"type", "namespace"}, {"tools", Json::array()}}), "tools[0].name");
  EXPECT_EQ(param_of({{"type", "namespace"}, {"name", "n"}, {"tools", {3}}}), "tools[0].tools[0]");
  EXPECT_EQ(param_of({{"type", "custom"}, {"name", "c"}, {"format", {{"definition", 3}}}}),
            "tools[0].format.definition");
}

TEST_F(ResponseToolsTest, TokensOfAPromptAreCountedWithItsTools) {
  start();
  const Json body = {{"input", "Hi"}, {"instructions", "Be brief."}, {"tools", tools()}};
  ASSERT_EQ(post("/v1/responses", body).status, 200);
  const Json counted = post("/v1/responses/input_tokens", body).json();
  EXPECT_EQ(counted, Json({{"object", "response.input_tokens"},
                           {"input_tokens", engine->submitted().back().prompt.size()}}));
  EXPECT_EQ(engine->submitted().size(), 1u);
  EXPECT_EQ(post("/v1/responses/input_tokens", Json::object()).status, 400);
  EXPECT_EQ(post("/v1/responses/compact", body).status, 501);
}

TEST_F(ResponseToolsTest, NoTwoToolsHaveOneNameInThePrompt) {
  start();
  const auto function = [](const char* name) { return Json{{"type", "function"}, {"name", name}}; };
  const auto custom = [](const char* name) { return Json{{"type", "custom"}, {"name", name}}; };
  const auto space = [](const char* name, const Json& tool) {
    return Json{{"type", "namespace"}, {"name", name}, {"tools", Json::array({tool})}};
  };
  EXPECT_EQ(
      refusal_of({function("n__f"), space("n", function("f"))}),
      "`tools[0]` and `tools[1].tools[0]` are both \"n__f\" in the prompt; rename one of them.");
  EXPECT_THAT(refusal_of({space("n", function("f")), function("n__f")}), HasSubstr("n__f"));
  EXPECT_THAT(refusal_of({space("n__", function("f")), space("n", function("f"))}),
              HasSubstr("n__f"));
  EXPECT_THAT(refusal_of({space("a", function("b__c")), space("a__b", function("c"))}),
              HasSubstr("a__b__c"));
  EXPECT_THAT(refusal_of({space("n", custom("f")), function("n__f")}), HasSubstr("n__f"));
  EXPECT_THAT(refusal_of({function("f"), custom("f")}), HasSubstr("\"f\""));
  EXPECT_EQ(refusal_of({function("f"), space("n", function("f")), function("g")}), "");
  EXPECT_EQ(refusal_of({function("f"), function("f")}), "") << "the same tool twice";
}

}  // namespace
}  // namespace heddle::server
