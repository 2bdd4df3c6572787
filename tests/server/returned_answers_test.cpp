// SPDX-License-Identifier: Apache-2.0
// A client sends the model's last answer back with its next request. The new prompt must begin with
// the tokens of the previous prompt and answer, so that the prefix cache is reused.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/scripted_fixture.h"
#include "support/exposition.h"

namespace heddle::server {
namespace {

// A template that writes an assistant's message as the model writes its answers. `key` is the token
// by which the scripted model knows what to play.
constexpr std::string_view kTemplate =
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' %}{{ key or 'A' }}"
    "{%- if m.reasoning_content %}{{ '<think>\\n' + m.reasoning_content.strip('\\n') + "
    "'\\n</think>\\n\\n' }}{% endif %}{%- endif %}{{ m.content }}"
    "{%- for t in m.tool_calls or [] %}{{ '\\n' if m.content or not loop.first else '' }}"
    "{{ '<tool_call>\\n{\"name\": \"' + t.function.name + '\", \"arguments\": ' }}"
    "{{ t.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{%- endfor %}"
    "{{ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + (key or 'A') }}{% endif %}";

class ReturnedAnswersTest : public ScriptedFixture {
 protected:
  // The pieces of the answer are tokens in prompts, too, as with a model's own vocabulary.
  void play(const std::vector<std::string>& pieces) {
    std::string& script = model.scripts["A"];
    script.clear();
    for (const std::string& piece : pieces) script += piece;
    model.added_tokens = pieces;
    model.chat_template = kTemplate;
    options.tool_call_format = parsers::ToolCallFormat::kQwen;
    options.reasoning_format = parsers::ReasoningFormat::kThink;
    start_scripted();
  }

  [[nodiscard]] double cached_tokens() const {
    return testing::parse_exposition(get("/metrics").body).value("heddle_cached_tokens_total");
  }

  // The tokens that `body` reuses: as many as the turn before had, but for those of its last page.
  void expect_reuse(std::string_view path, const Json& body, const ScriptedAnswer& before) const {
    // Answered between two steps, so that the sequence of the turn before is in the cache by now.
    ASSERT_EQ(get("/inspect").status, 200);
    const double cached = cached_tokens();
    const Reply reply = connect().post_text(path, dump_exact_json(body));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_GT(before.completion_tokens, 40);
    EXPECT_GE(cached_tokens() - cached,
              static_cast<double>(before.prompt_tokens + before.completion_tokens - 1 - 16))
        << body.dump();
  }
};

// `count` words that each are a token of their own.
std::vector<std::string> words(std::string_view stem, int count) {
  std::vector<std::string> list;
  for (int i = 0; i < count; ++i) list.push_back(fmt::format(" {}{:02}", stem, i));
  return list;
}

std::vector<std::string> joined(std::vector<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Reasoning, a text and a call. Of `arguments` each is a token.
std::vector<std::string> answer_with_call(const std::vector<std::string>& arguments) {
  return joined({{"<think>", "\nWell,"},
                 words("reason", 30),
                 {"\n</think>", "\n\n", "Let me look."},
                 words("look", 30),
                 {"\n<tool_call>\n", "{\"name\": \"get_weather\", \"arguments\": "},
                 arguments,
                 {"}\n</tool_call>"}});
}

// As a model may spell them, and as no JSON library does.
const std::vector<std::string> kOwnSpelling = {"{\"city\":", "  \"Z\\u00fcrich\"",
                                               ",\"days\" : 3.0", " }"};
// As Python's library does, which clients that send objects leave to the server.
const std::vector<std::string> kPlainSpelling = {"{\"city\": ", "\"Zürich\"", ", \"days\": 3}"};

Json weather_tools() {
  return Json::array({scripted_tool(
      "get_weather", {{"city", {{"type", "string"}}}, {"days", {{"type", "number"}}}})});
}

TEST_F(ReturnedAnswersTest, AChatReusesAnAnswerThatComesBack) {
  play(answer_with_call(kOwnSpelling));
  ScriptedQuestion question{.script = "Hello", .tools = weather_tools()};
  Json body = body_of(question);
  const Reply reply = post(kChat, body);
  const ScriptedAnswer first = read_answer(question.api, false, reply);
  ASSERT_EQ(first.calls.size(), 1U) << reply.body;
  const Json message = reply.json()["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"],
            "{\"city\":  \"Z\\u00fcrich\",\"days\" : 3.0 }");
  body["messages"].push_back(message);
  body["messages"].push_back(
      {{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "cold"}});
  expect_reuse(kChat, body, first);
}

TEST_F(ReturnedAnswersTest, AResponseReusesItemsThatComeBack) {
  play(answer_with_call(kOwnSpelling));
  ScriptedQuestion question{
      .api = ScriptedApi::kResponses, .script = "Hello", .tools = weather_tools()};
  Json body = body_of(question);
  const Reply reply = post("/v1/responses", body);
  const ScriptedAnswer first = read_answer(question.api, false, reply);
  ASSERT_EQ(first.calls.size(), 1U) << reply.body;
  const Json output = reply.json()["output"];
  const Json result = {
      {"type", "function_call_output"}, {"call_id", output.back()["call_id"]}, {"output", "cold"}};
  Json items = Json::array({{{"role", "user"}, {"content", "Hello"}}});
  for (const Json& item : output) items.push_back(item);
  items.push_back(result);
  body["input"] = items;
  expect_reuse("/v1/responses", body, first);
  body["input"] = Json::array({result});
  body["previous_response_id"] = reply.json()["id"];
  expect_reuse("/v1/responses", body, first);
}

TEST_F(ReturnedAnswersTest, AMessageReusesBlocksThatComeBack) {
  play(answer_with_call(kPlainSpelling));
  ScriptedQuestion question{
      .api = ScriptedApi::kMessages, .script = "Hello", .tools = weather_tools()};
  Json body = body_of(question);
  const Reply reply = post("/v1/messages", body);
  const ScriptedAnswer first = read_answer(question.api, false, reply);
  ASSERT_EQ(first.calls.size(), 1U) << reply.body;
  const Json content = reply.json()["content"];
  body["messages"].push_back({{"role", "assistant"}, {"content", content}});
  body["messages"].push_back({{"role", "user"},
                              {"content", Json::array({{{"type", "tool_result"},
                                                        {"tool_use_id", content.back()["id"]},
                                                        {"content", "cold"}}})}});
  expect_reuse("/v1/messages", body, first);
}

// Numbers that no type of a JSON library holds come back in objects, digit for digit.
TEST_F(ReturnedAnswersTest, NumbersOfAnySizeComeBackInObjects) {
  const std::string digits = "123456789012345678901234567890";
  play(answer_with_call({"{\"city\": ", "\"Rome\", \"days\": ", digits, ", \"ids\": [",
                         "18446744073709551615, -9223372036854775809, 1.0, 0.1]", "}"}));
  for (const ScriptedApi api : kScriptedApis) {
    SCOPED_TRACE(path_of(api));
    ScriptedQuestion question{.api = api,
                              .script = fmt::format("Hello {}", static_cast<int>(api)),
                              .tools = weather_tools()};
    Json body = body_of(question);
    const Reply reply = post(path_of(api), body);
    const ScriptedAnswer first = read_answer(api, false, reply);
    ASSERT_EQ(first.calls.size(), 1U) << reply.body;
    EXPECT_NE(first.calls[0].arguments.find("\"days\":" + digits + ","), std::string::npos)
        << reply.body;
    const Json arguments = parse_exact_json(first.calls[0].arguments).value();
    const Json answer = parse_exact_json(reply.body).value();
    switch (api) {
      case ScriptedApi::kChatCompletions: {
        Json message = answer["choices"][0]["message"];
        message["tool_calls"][0]["function"]["arguments"] = arguments;  // as some clients send it
        body["messages"].push_back(message);
        break;
      }
      case ScriptedApi::kResponses:
        body["input"] = Json::array({{{"role", "user"}, {"content", question.script}}});
        for (const Json& item : answer["output"]) body["input"].push_back(item);
        break;
      case ScriptedApi::kMessages:
        body["messages"].push_back({{"role", "assistant"}, {"content", answer["content"]}});
        break;
      case ScriptedApi::kOllama:
        body["messages"].push_back(answer["message"]);
        break;
    }
    Json& history = body[api == ScriptedApi::kResponses ? "input" : "messages"];
    history.push_back({{"role", "user"}, {"content", "Go on."}});
    expect_reuse(path_of(api), body, first);
  }
}

TEST_F(ReturnedAnswersTest, AnOllamaChatReusesAMessageThatComesBack) {
  play(answer_with_call(kPlainSpelling));
  ScriptedQuestion question{
      .api = ScriptedApi::kOllama, .script = "Hello", .tools = weather_tools()};
  Json body = body_of(question);
  const Reply reply = post("/api/chat", body);
  const ScriptedAnswer first = read_answer(question.api, false, reply);
  ASSERT_EQ(first.calls.size(), 1U) << reply.body;
  body["messages"].push_back(reply.json()["message"]);
  body["messages"].push_back({{"role", "tool"}, {"tool_name", "get_weather"}, {"content", "cold"}});
  expect_reuse("/api/chat", body, first);
}

TEST_F(ReturnedAnswersTest, ACallThatWasCutOffComesBackAsItIs) {
  play(answer_with_call(kOwnSpelling));
  ScriptedQuestion question{.script = "Hello", .tools = weather_tools(), .max_tokens = 69};
  Json body = body_of(question);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const ScriptedAnswer cut = read_answer(question.api, true, post(kChat, body));
  ASSERT_EQ(cut.finish, "length");
  ASSERT_EQ(cut.calls.size(), 1U) << cut.body;
  body["messages"].push_back(
      {{"role", "assistant"},
       {"content", cut.text},
       {"reasoning_content", cut.reasoning},
       {"tool_calls",
        {{{"id", "call_1"},
          {"type", "function"},
          {"function", {{"name", cut.calls[0].name}, {"arguments", cut.calls[0].arguments}}}}}}});
  body["messages"].push_back({{"role", "user"}, {"content", "Go on."}});
  expect_reuse(kChat, body, cut);
}

TEST_F(ReturnedAnswersTest, ATextKeepsItsWhiteSpace) {
  play(joined({words("text", 25), {"\n\n  indented\t", "   \n", "\n\n\n"}, words("more", 25)}));
  for (const ScriptedApi api : kScriptedApis) {
    ScriptedQuestion question{.api = api, .script = fmt::format("Hello {}", static_cast<int>(api))};
    Json body = body_of(question);
    const Reply reply = post(path_of(api), body);
    const ScriptedAnswer first = read_answer(api, false, reply);
    ASSERT_EQ(first.status, 200) << reply.body;
    const Json answer = reply.json();
    const Json next = {{"role", "user"}, {"content", "More"}};
    if (api == ScriptedApi::kResponses) {
      body["input"] = Json::array({{{"role", "user"}, {"content", question.script}}});
      for (const Json& item : answer["output"]) body["input"].push_back(item);
      body["input"].push_back(next);
    } else {
      body["messages"].push_back(api == ScriptedApi::kChatCompletions
                                     ? answer["choices"][0]["message"]
                                 : api == ScriptedApi::kOllama
                                     ? answer["message"]
                                     : Json{{"role", "assistant"}, {"content", answer["content"]}});
      body["messages"].push_back(next);
    }
    SCOPED_TRACE(path_of(api));
    expect_reuse(path_of(api), body, first);
  }
}

TEST_F(ReturnedAnswersTest, AnotherBillingHeaderLeavesThePrefixInTheCache) {
  play(words("text", 50));
  const auto body_with = [](const char* header) {
    return Json{{"max_tokens", 60},
                {"system",
                 {{{"type", "text"}, {"text", header}},
                  {{"type", "text"}, {"text", std::string(400, 's')}}}},
                {"messages", Json::array({{{"role", "user"}, {"content", "Hello"}}})}};
  };
  const auto ask_with = [&](const char* header) {
    return read_answer(ScriptedApi::kMessages, false, post("/v1/messages", body_with(header)));
  };
  const ScriptedAnswer first = ask_with("x-anthropic-billing-header: cc_version=2.1.1; cch=00000;");
  const ScriptedAnswer second =
      ask_with("x-anthropic-billing-header: cc_version=2.2.0; cch=a1b2c;");
  EXPECT_EQ(second.prompt_tokens, first.prompt_tokens);
  EXPECT_GE(second.cached_tokens, first.prompt_tokens - 17);
}

}  // namespace
}  // namespace heddle::server
