// SPDX-License-Identifier: Apache-2.0
// Tool calls and reasoning of POST /v1/chat/completions, as clients see them.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

Json file_tool() {
  return Json::parse(R"([{"type": "function", "function": {"name": "write_file", "parameters":
    {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"},
     "mode": {"type": "integer"}}}}}])");
}

class ChatToolsTest : public ServerTest {
 protected:
  // The model says `pieces`, an event each.
  void say(std::vector<std::string> pieces, Finish finish = stopped_by(151645)) {
    engine->script = [pieces = std::move(pieces), finish = std::move(finish)](const Request&) {
      return answer_events(pieces, finish);
    };
  }

  [[nodiscard]] Reply chat(Json extra) const {
    return post("/v1/chat/completions", chat_body(extra));
  }

  [[nodiscard]] Json answer(Json extra) const {
    const Reply reply = chat(std::move(extra));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  // The deltas of the first choice as JSON text, and the finish reasons.
  [[nodiscard]] std::vector<std::string> deltas(Json extra) const {
    extra["stream"] = true;
    std::vector<std::string> result;
    for (const std::string& event : chat(std::move(extra)).events()) {
      if (event == "[DONE]") continue;
      const Json choice = Json::parse(event)["choices"][0];
      result.push_back(choice["delta"].dump());
      if (!choice["finish_reason"].is_null()) result.push_back(choice["finish_reason"]);
    }
    return result;
  }
};

// A recorded answer of a model with one tool call.
TEST_F(ChatToolsTest, TheGoldenToolCallIsMatchedDeltaForDelta) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen3Coder;
  say({"<tool_call>\n<function=write_file>\n<parameter=",
       "path>\n/a.txt\n</parameter>\n<parameter=", "content>\nline 1",
       "\nline 2\n</parameter>\n</function>\n", "</tool_call>"});
  start();
  std::vector<std::string> sent = deltas({{"tools", file_tool()}});
  ASSERT_EQ(sent.size(), 8u);
  const std::string id = Json::parse(sent[1])["tool_calls"][0]["id"];
  EXPECT_THAT(id, MatchesRegex("call_[0-9a-f]{24}"));
  sent[1].replace(sent[1].find(id), id.size(), "call_0123456789abcdef01234567");
  EXPECT_THAT(
      sent,
      ElementsAre(
          R"({"role":"assistant","content":""})",
          R"({"tool_calls":[{"index":0,"id":"call_0123456789abcdef01234567","type":"function","function":{"name":"write_file","arguments":""}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": \"/a.txt\""}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":", \"content\": \"line 1"}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"\\nline 2\""}}]})",
          R"({"tool_calls":[{"index":0,"function":{"arguments":"}"}}]})", "{}", "tool_calls"));
}

TEST_F(ChatToolsTest, AWholeAnswerHasItsCalls) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  say({"Two files. <tool_", "call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"a\"}}",
       "\n</tool_call>\n<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"mode\": 7}}\n",
       "</tool_call>"});
  start();
  const Json choice = answer({{"tools", file_tool()}})["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["matched_stop"], 151645);
  const Json& message = choice["message"];
  EXPECT_EQ(message["content"], "Two files.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "write_file");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"path": "a"})");
  EXPECT_EQ(message["tool_calls"][1]["function"]["arguments"], R"({"mode": 7})");
  EXPECT_NE(message["tool_calls"][0]["id"], message["tool_calls"][1]["id"]);

  const Json one = answer({{"tools", file_tool()}, {"parallel_tool_calls", false}});
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1u);
}

TEST_F(ChatToolsTest, ACallWithoutTextHasNoContent) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  say({R"(<tool_call>{"name": "write_file", "arguments": {}}</tool_call>)"});
  start();
  const Json message = answer({{"tools", file_tool()}})["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_TRUE(message["reasoning_content"].is_null());
}

TEST_F(ChatToolsTest, ACallThatIsCutOffHasTheArgumentsThatCame) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen3Coder;
  const std::string text = "<tool_call>\n<function=write_file>\n<parameter=path>\n/a";
  say({text}, finish_of(FinishReason::kLength));
  start();
  const auto sent = deltas({{"tools", file_tool()}});
  ASSERT_EQ(sent.size(), 5u);
  EXPECT_THAT(sent[2], HasSubstr(R"("arguments":"{\"path\": \"/a")"));
  EXPECT_EQ(sent[4], "length");
  const Json choice = answer({{"tools", file_tool()}})["choices"][0];
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const Json& call = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "write_file");
  EXPECT_EQ(call["arguments"], R"({"path": "/a)");
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(ChatToolsTest, WithoutToolsOrWithChoiceNoneCallsAreText) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  const std::string text = R"(<tool_call>{"name": "write_file", "arguments": {}}</tool_call>)";
  say({text});
  start();
  EXPECT_EQ(answer(Json::object())["choices"][0]["message"]["content"], text);
  const Json none = answer({{"tools", file_tool()}, {"tool_choice", "none"}});
  EXPECT_EQ(none["choices"][0]["message"]["content"], text);
  EXPECT_EQ(none["choices"][0]["finish_reason"], "stop");
}

TEST_F(ChatToolsTest, AModelWithoutAFormatAnswersInText) {
  const std::string text = R"(<tool_call>{"name": "write_file", "arguments": {}}</tool_call>)";
  say({text});
  start();
  EXPECT_EQ(answer({{"tools", file_tool()}})["choices"][0]["message"]["content"], text);
}

TEST_F(ChatToolsTest, ReasoningIsSentApart) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  say({"<think>", "\nHm", "m", "</think>\n\n", "So."});
  start();
  const Json body = answer(Json::object());
  EXPECT_EQ(body["choices"][0]["message"]["reasoning_content"], "Hmm");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "So.");
  EXPECT_EQ(body["usage"]["reasoning_tokens"], 4);
  EXPECT_EQ(body["usage"]["completion_tokens_details"]["reasoning_tokens"], 4);
  EXPECT_THAT(deltas(Json::object()),
              ElementsAre(R"({"role":"assistant","content":""})", R"({"reasoning_content":"Hm"})",
                          R"({"reasoning_content":"m"})", R"({"content":"So."})", "{}", "stop"));
  EXPECT_THAT(deltas({{"stream_reasoning", false}}),
              ElementsAre(R"({"role":"assistant","content":""})", R"({"reasoning_content":"Hmm"})",
                          R"({"content":"So."})", "{}", "stop"));
  const Json whole = answer({{"separate_reasoning", false}});
  EXPECT_EQ(whole["choices"][0]["message"]["content"], "<think>\nHmm</think>\n\nSo.");
  EXPECT_TRUE(whole["choices"][0]["message"]["reasoning_content"].is_null());
}

TEST_F(ChatToolsTest, ThePromptSaysWhereTheAnswerBegins) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  say({"{\"a\": 1}"});
  start();
  const auto message = [this](const std::string& prompt) {
    Json ids = Json::array();
    for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
    return answer({{"input_ids", ids}})["choices"][0]["message"];
  };
  EXPECT_EQ(message("assistant\n<think>\n")["reasoning_content"], "{\"a\": 1}");
  EXPECT_EQ(message("assistant\n<think>\n")["content"], "");
  EXPECT_EQ(message("assistant\n<think>\n\n</think>\n\n")["content"], "{\"a\": 1}");
  EXPECT_EQ(message("assistant\n")["content"], "{\"a\": 1}");

  const Json messages = Json::parse(
      R"([{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "<think>Well"}])");
  const Json continued = answer({{"messages", messages}, {"continue_final_message", true}});
  EXPECT_EQ(continued["choices"][0]["message"]["reasoning_content"], "{\"a\": 1}");
}

TEST_F(ChatToolsTest, GptOssIsReadByItsChannels) {
  options.reasoning_format = parsers::ReasoningFormat::kHarmony;
  options.tool_call_format = parsers::ToolCallFormat::kHarmony;
  say({"<|channel|>", "analysis<|message|>", "Hm", "<|end|>", "<|start|>assistant<|channel|>",
       "commentary to=functions.write_file <|constrain|>json<|message|>", "{\"path\":", "\"a\"}"},
      stopped_by(200012));
  start();
  const Json body = answer({{"tools", file_tool()}});
  const Json& message = body["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "Hm");
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"path":"a"})");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  // Its marks are special tokens, which must not be left out.
  EXPECT_FALSE(engine->submitted().back().skip_special_tokens);
}

TEST_F(ChatToolsTest, SpecialTokensAreLeftOutWhereNoMarkIsOne) {
  options.tool_call_format = parsers::ToolCallFormat::kMistral;
  say({"Hi"});
  start();
  EXPECT_EQ(chat(Json::object()).status, 200);
  EXPECT_TRUE(engine->submitted().back().skip_special_tokens);
  EXPECT_EQ(chat({{"tools", file_tool()}}).status, 200);
  EXPECT_FALSE(engine->submitted().back().skip_special_tokens);
}

TEST_F(ChatToolsTest, LogprobsGoWithTheFirstDeltaOfAnEvent) {
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  engine->script = [](const Request&) {
    auto events = answer_events({"<think>a</think>b", "c"});
    events[0].logprobs = {{.token = 65, .logprob = -1, .top = {}}};
    events[1].logprobs = {{.token = 66, .logprob = -2, .top = {}}};
    return events;
  };
  start();
  std::vector<size_t> counts;
  for (const std::string& event : chat({{"stream", true}, {"logprobs", true}}).events()) {
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    counts.push_back(logprobs.is_null() ? 0 : logprobs["content"].size());
  }
  EXPECT_THAT(counts, ElementsAre(0, 1, 0, 1, 0));  // role, a, b, c, finish
}

TEST_F(ChatToolsTest, ChoicesAreReadApart) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  engine->script = [](const Request& request) {
    return answer_events(
        {request.choice_index == 0
             ? "plain"
             : R"(<tool_call>{"name": "write_file", "arguments": {}}</tool_call>)"});
  };
  start();
  const Json body = answer({{"tools", file_tool()}, {"n", 3}});
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "tool_calls");
  const auto id = [&body](size_t choice) {
    return body["choices"][choice]["message"]["tool_calls"][0]["id"];
  };
  EXPECT_NE(id(1), id(2));
}

TEST_F(ChatToolsTest, ToolsMayBeAllowedByTheChoice) {
  start();
  Json tools = file_tool();
  tools.push_back({{"type", "function"}, {"function", {{"name", "fly"}}}});
  const auto allow = [](const char* mode, const char* name) {
    const Json tool = {{"type", "function"}, {"function", {{"name", name}}}};
    return Json{{"type", "allowed_tools"},
                {"allowed_tools", {{"mode", mode}, {"tools", Json::array({tool})}}}};
  };
  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", allow("auto", "fly")}}).status, 200);
  const std::string prompt = FakeCodec().decode(engine->submitted().back().prompt, false);
  EXPECT_THAT(prompt, HasSubstr("fly"));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("write_file")));
  const Reply unknown = chat({{"tools", tools}, {"tool_choice", allow("auto", "swim")}});
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(error_of(unknown)["param"], "tool_choice");
  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", allow("required", "fly")}}).status, 200);
  EXPECT_TRUE(allows(R"({"name": "fly", "arguments": {}})"));
  EXPECT_FALSE(allows(R"({"name": "write_file", "arguments": {}})"));
}

TEST_F(ChatToolsTest, AForcedCallOfNoToolIsRefusedWithTheRemedy) {
  start();
  const auto error = [this](Json choice) {
    const Reply reply = chat({{"tools", file_tool()}, {"tool_choice", std::move(choice)}});
    EXPECT_EQ(reply.status, 400);
    return error_of(reply);
  };
  const Json unknown = {{"type", "function"}, {"function", {{"name", "fly"}}}};
  EXPECT_EQ(error(unknown)["code"], "invalid_value");
  EXPECT_THAT(error(unknown)["message"].get<std::string>(), HasSubstr("names \"fly\""));
  EXPECT_EQ(error({{"type", "function"}})["code"], "invalid_value");
  EXPECT_EQ(error(5)["code"], "invalid_value");
  EXPECT_TRUE(engine->submitted().empty());
}

// ---- Custom tools, which take one text ----

Json custom_tool(Json more = Json::object()) {
  Json custom = {{"name", "patch"}, {"description", "Edits files."}};
  custom.update(more);
  return {{"type", "custom"}, {"custom", std::move(custom)}};
}

std::string call_of(const std::string& name, const std::string& arguments) {
  return fmt::format("<tool_call>\n{{\"name\": \"{}\", \"arguments\": {}}}\n</tool_call>", name,
                     arguments);
}

TEST_F(ChatToolsTest, ACallOfACustomToolHasOneText) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  Json tools = file_tool();
  tools.push_back(custom_tool());
  start();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"input": "*** Begin\n+ \"x\" \u00e9"})", "*** Begin\n+ \"x\" \u00e9"},
      {R"({"input": ""})", ""},
      {R"({"text": "x"})", R"({"text": "x"})"},
      {R"({"input": 3})", R"({"input": 3})"}};
  for (const auto& [arguments, input] : cases) {
    SCOPED_TRACE(arguments);
    const std::string text =
        call_of("patch", arguments) + "\n" + call_of("write_file", R"({"mode": 7})");
    std::vector<std::string> pieces;
    for (size_t i = 0; i < text.size(); i += 3) pieces.push_back(text.substr(i, 3));
    say(pieces);
    const Json choice = answer({{"tools", tools}})["choices"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    Json calls = choice["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 2u) << choice;
    EXPECT_EQ(calls[0]["type"], "custom");
    EXPECT_EQ(calls[0]["custom"], (Json{{"name", "patch"}, {"input", input}}));
    EXPECT_FALSE(calls[0].contains("function"));
    EXPECT_EQ(calls[1]["type"], "function");
    EXPECT_EQ(calls[1]["function"]["arguments"], R"({"mode": 7})");

    Json streamed = Json::array();
    for (const std::string& event : deltas({{"tools", tools}})) {
      const Json delta = Json::parse(event, nullptr, false);
      if (!delta.is_object()) continue;
      for (const Json& part : delta.value("tool_calls", Json::array())) {
        if (part.contains("id")) streamed.push_back(part);
        const char* const kind = part.contains("custom") ? "custom" : "function";
        const char* const member = part.contains("custom") ? "input" : "arguments";
        if (part.contains("id")) continue;
        Json& whole = streamed[part["index"].get<size_t>()][kind][member];
        whole = whole.get<std::string>() + part[kind][member].get<std::string>();
      }
    }
    for (Json* const list : {&calls, &streamed}) {
      for (Json& call : *list) {
        call.erase("id");
        call.erase("index");
      }
    }
    EXPECT_EQ(streamed, calls);
  }
}

TEST_F(ChatToolsTest, CustomToolsAreChosenAndDescribedAsFunctions) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  say({call_of("patch", R"({"input": "x"})")});
  start();
  const auto prompt = [this](const Json& extra) {
    const Reply reply = chat(extra);
    if (reply.status != 200) return reply.body;
    std::string text;
    const Request request = engine->submitted().back();
    for (const TokenId token : request.prompt) text += static_cast<char>(token);
    return text;
  };
  const Json grammar = {
      {"format", {{"type", "grammar"}, {"grammar", {{"syntax", "regex"}, {"definition", "a+"}}}}}};
  const std::string shown = prompt({{"tools", Json::array({custom_tool(grammar)})}});
  EXPECT_THAT(shown, HasSubstr(R"("name":"patch")"));
  EXPECT_THAT(shown, HasSubstr("Edits files."));
  EXPECT_THAT(shown, HasSubstr("follows this regex grammar"));
  EXPECT_THAT(shown, HasSubstr(R"("required":["input"])"));
  Json tools = file_tool();
  tools.push_back(custom_tool());
  const Json named = {{"type", "custom"}, {"custom", {{"name", "patch"}}}};
  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", named}}).status, 200);
  EXPECT_THAT(prompt({{"tools", tools},
                      {"tool_choice",
                       {{"type", "allowed_tools"},
                        {"allowed_tools", {{"mode", "auto"}, {"tools", Json::array({named})}}}}}}),
              Not(HasSubstr("write_file")));
}

TEST_F(ChatToolsTest, ARefusedToolIsNamedWithItsType) {
  start();
  const auto refusal = [this](const Json& tool) {
    const Reply reply = chat({{"tools", Json::array({tool})}});
    EXPECT_EQ(reply.status, 400) << reply.body;
    return error_of(reply);
  };
  for (const char* const type : {"web_search", "mcp", "namespace", "code_interpreter"}) {
    const Json error = refusal({{"type", type}, {"name", "f"}});
    EXPECT_EQ(error["param"], "tools[0].type");
    EXPECT_THAT(error["message"].get<std::string>(),
                HasSubstr(fmt::format("`tools[0].type` is \"{}\"", type)));
  }
  EXPECT_EQ(refusal({{"type", "custom"}})["param"], "tools[0]");
  EXPECT_EQ(refusal({{"type", "custom"}, {"custom", Json::object()}})["param"],
            "tools[0].custom.name");
  EXPECT_EQ(refusal(custom_tool({{"format", 3}}))["param"], "tools[0].custom.format");
  EXPECT_EQ(refusal(custom_tool({{"description", 3}}))["param"], "tools[0].custom.description");
  EXPECT_EQ(refusal({{"type", "function"}})["param"], "tools[0]");
  EXPECT_EQ(refusal({{"function", {{"name", "f"}}}})["param"], "tools[0]");
  EXPECT_EQ(refusal(3)["param"], "tools[0]");
}

}  // namespace
}  // namespace heddle::server
