// SPDX-License-Identifier: Apache-2.0
// Anthropic's Messages API and Ollama's, over the same engine as chat completions.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsers/answer_delta.h"
#include "parsers/formats.h"
#include "server/api/anthropic/anthropic_answer.h"
#include "server/api/openai/delta_adapter.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The data of the events of a stream that has an "event:" line for each. The names agree.
std::vector<Json> typed_events(const std::string& stream) {
  std::vector<Json> events;
  std::string_view rest = stream;
  for (size_t end; (end = rest.find("\n\n")) != std::string_view::npos;
       rest.remove_prefix(end + 2)) {
    const std::string_view event = rest.substr(0, end);
    const size_t line_end = event.find('\n');
    if (!event.starts_with("event: ") || line_end == std::string_view::npos) {
      ADD_FAILURE() << "no event line: " << event;
      continue;
    }
    EXPECT_TRUE(event.substr(line_end + 1).starts_with("data: "));
    events.push_back(Json::parse(event.substr(line_end + 7), nullptr, false));
    EXPECT_EQ(events.back()["type"], event.substr(7, line_end - 7));
  }
  EXPECT_TRUE(rest.empty());
  return events;
}

std::vector<std::string> types_of_events(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

Json messages_body(const Json& extra = Json::object()) {
  Json body = {{"model", "m"},
               {"max_tokens", 16},
               {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  body.update(extra);
  return body;
}

class MessagesTest : public ServerTest {
 protected:
  // The prompt that the model gets, as text.
  [[nodiscard]] std::string prompt_of(const Json& body) {
    const size_t before = engine->submitted().size();
    const Reply reply = post("/v1/messages", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    const std::vector<Request> requests = engine->submitted();
    if (requests.size() != before + 1) return "";
    std::string text;
    for (const TokenId token : requests.back().prompt) text += static_cast<char>(token);
    return text;
  }

  [[nodiscard]] std::string message_of_error(const Json& body) {
    const Reply reply = post("/v1/messages", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json error = reply.json();
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_EQ(error["request_id"], reply.headers.at("x-request-id"));
    return error["error"]["message"];
  }
};

TEST_F(MessagesTest, AnswersInBlocks) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello", " there"});
    events.back().cached_tokens = 4;
    events.back().completion_tokens = 3;
    return events;
  };
  start();
  const Reply reply = post("/v1/messages", messages_body());
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json body = reply.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(body["id"], reply.headers.at("x-request-id"));
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["role"], "assistant");
  EXPECT_EQ(body["content"], Json::array({{{"type", "text"}, {"text", "Hello there"}}}));
  EXPECT_EQ(body["stop_reason"], "end_turn");
  EXPECT_EQ(body["stop_sequence"], nullptr);
  EXPECT_EQ(body["usage"]["input_tokens"], std::string("user: Hi|assistant: ").size() - 4);
  EXPECT_EQ(body["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(body["usage"]["output_tokens"], 3);
  EXPECT_EQ(engine->submitted()[0].stop.max_new_tokens, 16);
}

TEST_F(MessagesTest, StreamsTheSameText) {
  start();
  const Reply reply = post("/v1/messages", messages_body({{"stream", true}}));
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.complete);
  const std::vector<Json> events = typed_events(reply.body);
  EXPECT_THAT(
      types_of_events(events),
      ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                  "content_block_delta", "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["content"], Json::array());
  EXPECT_EQ(events[2]["index"], 0);
  EXPECT_EQ(events[3]["delta"], Json({{"type", "text_delta"}, {"text", "Hello"}}));
  EXPECT_EQ(events[4]["delta"]["text"], " there");
  EXPECT_EQ(events[6]["delta"]["stop_reason"], "end_turn");
}

TEST_F(MessagesTest, SaysWhyTheAnswerEnded) {
  start();
  const auto reason = [this](Finish finish) {
    engine->script = [finish](const Request&) { return answer_events({"x"}, finish); };
    const Json body = post("/v1/messages", messages_body({{"stop_sequences", {"END"}}})).json();
    return std::pair(body["stop_reason"], body["stop_sequence"]);
  };
  EXPECT_EQ(reason(stopped_by("END")), (std::pair<Json, Json>("stop_sequence", "END")));
  EXPECT_EQ(reason(finish_of(FinishReason::kLength)),
            (std::pair<Json, Json>("max_tokens", nullptr)));
  EXPECT_THAT(engine->submitted().back().stop.texts, ElementsAre("END"));
}

TEST_F(MessagesTest, BlocksBecomeTheMessagesOfAChat) {
  start();
  EXPECT_EQ(prompt_of(messages_body({{"system", "Be brief."}})),
            "system: Be brief.|user: Hi|assistant: ");
  const Json blocks = {
      {{"role", "user"},
       {"content",
        {{{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}},
         {{"type", "text"}, {"text", "b"}}}}},
      {{"role", "assistant"},
       {"content",
        {{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "s"}},
         {{"type", "redacted_thinking"}, {"data", "x"}},
         {{"type", "text"}, {"text", "c"}},
         {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", {{"q", 1}}}}}}},
      {{"role", "user"},
       {"content",
        {{{"type", "text"}, {"text", "and"}},
         {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "42"}}}}}};
  const std::string prompt = prompt_of(messages_body({{"messages", blocks}}));
  EXPECT_THAT(prompt, HasSubstr("user: a\nb|assistant: c"));
  EXPECT_THAT(prompt, HasSubstr(R"("name":"f","arguments":{"q":1})"));
  EXPECT_THAT(prompt, HasSubstr("|tool: 42|user: and|assistant: "));
}

TEST_F(MessagesTest, BlocksOfAnthropicsOwnToolsAreText) {
  start();
  const Json blocks = {
      {{"role", "assistant"},
       {"content",
        {{{"type", "server_tool_use"},
          {"id", "s1"},
          {"name", "web_search"},
          {"input", {{"query", "loom"}}}},
         {{"type", "web_search_tool_result"},
          {"tool_use_id", "s1"},
          {"content", Json::array({{{"type", "web_search_result"},
                                    {"title", "Heddle"},
                                    {"encrypted_content", "secret"}}})}},
         {{"type", "text"}, {"text", "Found."}}}}},
      {{"role", "user"},
       {"content", Json::array({{{"type", "tool_result"},
                                 {"tool_use_id", "t1"},
                                 {"content",
                                  {{{"type", "text"}, {"text", "A picture:"}},
                                   {{"type", "image"},
                                    {"source", {{"type", "base64"}, {"data", "iVBO"}}}}}}}})}}};
  const std::string prompt = prompt_of(messages_body({{"messages", blocks}}));
  EXPECT_THAT(prompt,
              HasSubstr(R"([server_tool_use: {"name":"web_search","input":{"query":"loom"}}])"));
  EXPECT_THAT(prompt, HasSubstr(R"("title":"Heddle")"));
  EXPECT_THAT(prompt, HasSubstr("Found.|tool: A picture:\n[image]|"));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("iVBO")));
}

TEST_F(MessagesTest, TheFormatOfTheOutputIsKeptTo) {
  start();
  const Json schema = {{"type", "object"}};
  const auto form_of = [&](const Json& extra) {
    EXPECT_EQ(post("/v1/messages", messages_body(extra)).status, 200);
    return engine->submitted().back().constraint;
  };
  EXPECT_EQ(form_of(Json::object()), nullptr);
  const Json format = {{"type", "json_schema"}, {"schema", schema}};
  EXPECT_NE(form_of({{"output_config", {{"format", format}, {"effort", "low"}}}}), nullptr);
  EXPECT_NE(form_of({{"output_format", format}}), nullptr);
  EXPECT_THAT(message_of_error(messages_body({{"output_config", {{"format", {{"type", "x"}}}}}})),
              HasSubstr("`output_config.format.type` must be json_schema"));
}

TEST_F(MessagesTest, TheEffortReachesTheTemplateAndSwitchesNoReasoning) {
  start();
  const auto variables = [&](const Json& extra) {
    const std::string prompt = prompt_of(messages_body(extra));
    const size_t begin = prompt.find("variables: ");
    return begin == std::string::npos
               ? Json()
               : Json::parse(prompt.substr(begin + 11, prompt.rfind('|') - begin - 11));
  };
  const Json effort = {{"effort", "max"}};
  EXPECT_EQ(variables({{"output_config", effort}}), Json({{"reasoning_effort", "max"}}));
  const Json off = variables({{"output_config", effort}, {"thinking", {{"type", "disabled"}}}});
  EXPECT_EQ(off["reasoning_effort"], "max");
  EXPECT_EQ(off["enable_thinking"], false);
  EXPECT_EQ(variables({{"output_config", effort},
                       {"chat_template_kwargs", {{"reasoning_effort", "low"}}}}),
            Json({{"reasoning_effort", "low"}}));
  EXPECT_THAT(message_of_error(messages_body({{"output_config", {{"effort", "huge"}}}})),
              HasSubstr("`output_config.effort` is \"huge\"; it must be one of none, minimal"));
}

TEST_F(MessagesTest, ToolsAreShownAndThoseOfOtherServersLeftOut) {
  start();
  const Json tools = {{{"name", "f"}, {"input_schema", {{"type", "object"}}}},
                      {{"type", "web_search_20250305"}, {"name", "web_search"}}};
  const std::string prompt = prompt_of(messages_body({{"tools", tools}}));
  EXPECT_THAT(prompt, HasSubstr(R"("function":{"name":"f","parameters":{"type":"object"}})"));
  EXPECT_THAT(prompt, ::testing::Not(HasSubstr("web_search")));
}

TEST_F(MessagesTest, AStrictToolIsHeldToItsSchema) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  start();
  Json tool = {{"name", "f"}, {"input_schema", {{"type", "object"}}}};
  for (const bool strict : {false, true}) {
    tool["strict"] = strict;
    ASSERT_EQ(post("/v1/messages", messages_body({{"tools", {tool}}})).status, 200);
    EXPECT_EQ(engine->submitted().back().constraint != nullptr, strict);
  }
  tool["strict"] = "yes";
  EXPECT_THAT(message_of_error(messages_body({{"tools", {tool}}})), HasSubstr("strict"));
}

TEST_F(MessagesTest, ThinkingIsSwitchedInTheTemplate) {
  start();
  EXPECT_THAT(prompt_of(messages_body({{"thinking", {{"type", "disabled"}}}})),
              HasSubstr(R"("enable_thinking":false)"));
  EXPECT_THAT(
      prompt_of(messages_body({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}})),
      HasSubstr(R"("enable_thinking":true)"));
}

TEST_F(MessagesTest, AToolCallIsABlock) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  options.reasoning_format = parsers::ReasoningFormat::kThink;
  engine->script = [](const Request&) {
    return answer_events({"<think>Hm", "</think>\n\nSo<tool_",
                          "call>\n{\"name\": \"w\", \"arguments\": {\"c\": \"Paris\"}}\n",
                          "</tool_call>"});
  };
  start();
  const Json tools = {{{"name", "w"}, {"input_schema", {{"type", "object"}}}}};
  const Json body = post("/v1/messages", messages_body({{"tools", tools}})).json();
  EXPECT_EQ(body["stop_reason"], "tool_use") << body;
  ASSERT_EQ(body["content"].size(), 3u) << body;
  EXPECT_EQ(body["content"][0]["thinking"], "Hm");
  EXPECT_EQ(body["content"][1]["text"], "So");
  EXPECT_EQ(body["content"][2]["name"], "w");
  EXPECT_EQ(body["content"][2]["input"], Json({{"c", "Paris"}}));

  const Json items =
      post("/v1/responses", {{"input", "Hi"}, {"tools", {{{"type", "function"}, {"name", "w"}}}}})
          .json()["output"];
  ASSERT_EQ(items.size(), 3u) << items;
  EXPECT_EQ(items[0]["content"][0]["text"], "Hm");
  EXPECT_EQ(items[2]["name"], "w");
  EXPECT_EQ(Json::parse(items[2]["arguments"].get<std::string>()), Json({{"c", "Paris"}}));

  const Json message =
      post("/api/chat",
           chat_body({{"stream", false},
                      {"tools", {{{"type", "function"}, {"function", {{"name", "w"}}}}}}}))
          .json()["message"];
  EXPECT_EQ(message["thinking"], "Hm");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], Json({{"c", "Paris"}}));
}

TEST_F(MessagesTest, NamesTheFaultInTheFormOfTheApi) {
  start();
  Json body = messages_body();
  body.erase("max_tokens");
  EXPECT_THAT(message_of_error(body), HasSubstr("`max_tokens` is required"));
  EXPECT_THAT(message_of_error(messages_body({{"max_tokens", 0}})), HasSubstr("max_tokens"));
  EXPECT_THAT(message_of_error(messages_body({{"messages", Json::array()}})), HasSubstr("empty"));
  EXPECT_THAT(message_of_error(messages_body({{"messages", "x"}})), HasSubstr("a list"));
  EXPECT_THAT(message_of_error(messages_body({{"system", 3}})), HasSubstr("`system`"));
  EXPECT_THAT(message_of_error(messages_body({{"tool_choice", {{"type", "some"}}}})),
              HasSubstr("auto, any, tool or none"));
  EXPECT_THAT(message_of_error(messages_body({{"thinking", {{"type", "maybe"}}}})),
              HasSubstr("enabled, disabled or adaptive"));
  EXPECT_THAT(message_of_error(messages_body({{"tools", {{{"name", "f"}}}}})),
              HasSubstr("`tools[0].input_schema` is required"));
  const auto with_block = [](const Json& block, const char* role = "user") {
    return messages_body({{"messages", {{{"role", role}, {"content", Json::array({block})}}}}});
  };
  EXPECT_THAT(message_of_error(with_block(3)), HasSubstr("messages[0].content[0]"));
  EXPECT_THAT(message_of_error(with_block({{"type", "image"}})), HasSubstr("text only"));
  EXPECT_THAT(message_of_error(with_block({{"type", "tool_use"}})), HasSubstr("no such block"));
  EXPECT_THAT(message_of_error(with_block({{"type", "text"}, {"text", 1}})),
              HasSubstr("messages[0].content[0].text"));
  EXPECT_THAT(message_of_error(with_block({{"type", "text"}, {"text", "x"}}, "wizard")),
              HasSubstr("must be user or assistant"));
}

TEST_F(MessagesTest, ErrorsHaveTheTypesThatClientsKnow) {
  options.api_key = "user-key";
  listen();
  const auto type_of = [this](std::string_view key) {
    const Reply reply = HttpClient(server->port())
                            .call("POST", "/v1/messages", messages_body().dump(),
                                  fmt::format("x-api-key: {}\r\n", key));
    return std::pair(reply.status, reply.json()["error"]["type"].get<std::string>());
  };
  EXPECT_EQ(type_of("wrong"), std::pair(401, std::string("authentication_error")));
  EXPECT_EQ(type_of("user-key"), std::pair(529, std::string("overloaded_error"))) << "loading";
  engine->set_refuse([](const Request&) { return internal_error("secret"); });
  serve();
  EXPECT_EQ(type_of("user-key"), std::pair(500, std::string("api_error")));
}

TEST_F(MessagesTest, AStreamThatFailsEndsWithAnError) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello"});
    events.back().finish = finish_of(FinishReason::kError, internal_error("secret"));
    return events;
  };
  start();
  const Reply reply = post("/v1/messages", messages_body({{"stream", true}}));
  const std::vector<Json> events = typed_events(reply.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "error");
  EXPECT_EQ(events.back()["error"]["type"], "api_error");
}

TEST_F(MessagesTest, TokensOfAPromptAreCountedWithoutTheEngine) {
  start();
  Json body = messages_body();
  body.erase("max_tokens");
  const Reply reply = post("/v1/messages/count_tokens", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json(), Json({{"input_tokens", std::string("user: Hi|assistant: ").size()}}));
  EXPECT_TRUE(engine->submitted().empty());
}

// Reasoning, text and a call, as the parsers tell them.
const std::vector<parsers::AnswerDelta>& recorded_deltas() {
  static const std::vector<parsers::AnswerDelta> deltas = {
      parsers::ReasoningDelta{"Let me"},        parsers::ContentDelta{"So"},
      parsers::ToolCallBegin{0, "call_1", "w"}, parsers::ArgumentsDelta{0, "{\"c\": "},
      parsers::ArgumentsDelta{0, "\"Paris\"}"}, parsers::ToolCallEnd{}};
  return deltas;
}

std::string stream_of(ApiAdapter& adapter) {
  std::string out;
  adapter.event(0, RequestEvent{}, out);
  for (const parsers::AnswerDelta& delta : recorded_deltas()) {
    dynamic_cast<DeltaAdapter&>(adapter).add(delta, out);
  }
  RequestEvent last;
  last.finish = stopped_by(7);
  adapter.event(0, last, out);
  adapter.end(out);
  return out;
}

std::string body_of(ApiAdapter& adapter) {
  std::string out;
  static_cast<void>(stream_of(adapter));
  adapter.body().write_all(out);
  return out;
}

TEST(MessagesAdapterTest, ReasoningTextAndCallsAreBlocksOfTheirOwn) {
  ChatAnswerOptions options{{.id = "msg_1", .model = "m"}};
  const Json body = Json::parse(body_of(*make_messages_adapter(options)));
  EXPECT_EQ(
      body["content"],
      Json(
          {{{"type", "thinking"}, {"thinking", "Let me"}, {"signature", ""}},
           {{"type", "text"}, {"text", "So"}},
           {{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "w"}, {"input", {{"c", "Paris"}}}}}));
  EXPECT_EQ(body["stop_reason"], "tool_use");

  options.streaming.stream = true;
  const std::vector<Json> events = typed_events(stream_of(*make_messages_adapter(options)));
  EXPECT_THAT(types_of_events(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_stop", "content_block_start",
                          "content_block_delta", "content_block_stop", "content_block_start",
                          "content_block_delta", "content_block_delta", "content_block_stop",
                          "message_delta", "message_stop"));
  EXPECT_EQ(events[2]["content_block"]["type"], "thinking");
  EXPECT_EQ(events[4]["delta"], Json({{"type", "signature_delta"}, {"signature", ""}}));
  EXPECT_EQ(events[6]["index"], 1);
  EXPECT_EQ(
      events[9]["content_block"],
      Json({{"type", "tool_use"}, {"id", "toolu_1"}, {"name", "w"}, {"input", Json::object()}}));
  EXPECT_EQ(events[11]["delta"],
            Json({{"type", "input_json_delta"}, {"partial_json", "\"Paris\"}"}}));
  EXPECT_EQ(events[13]["delta"]["stop_reason"], "tool_use");
}

class OllamaTest : public ServerTest {
 protected:
  static std::vector<Json> lines_of(const Reply& reply) {
    std::vector<Json> lines;
    std::string_view rest = reply.body;
    for (size_t end; (end = rest.find('\n')) != std::string_view::npos;
         rest.remove_prefix(end + 1)) {
      lines.push_back(Json::parse(rest.substr(0, end), nullptr, false));
    }
    EXPECT_TRUE(rest.empty());
    return lines;
  }
};

TEST_F(OllamaTest, AChatIsStreamedInLinesUnlessItSaysOtherwise) {
  start();
  const Reply reply = post("/api/chat", chat_body());
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.headers.at("content-type"), "application/x-ndjson");
  const std::vector<Json> lines = lines_of(reply);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["message"], Json({{"role", "assistant"}, {"content", "Hello"}}));
  EXPECT_EQ(lines[0]["done"], false);
  EXPECT_EQ(lines[0]["created_at"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(lines[1]["message"]["content"], " there");
  EXPECT_EQ(lines[2]["done"], true);
  EXPECT_EQ(lines[2]["done_reason"], "stop");
  EXPECT_TRUE(lines[2]["eval_duration"].is_number_integer());

  const Json whole = post("/api/chat", chat_body({{"stream", false}})).json();
  EXPECT_EQ(whole["message"]["content"], "Hello there");
  EXPECT_EQ(whole["done"], true);
}

TEST_F(OllamaTest, ACallThatIsCutIsLeftOutStreamedOrWhole) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  engine->script = [](const Request&) {
    return answer_events({"So: <tool_call>\n{\"name\": \"f\", \"argum", "ents\": {\"a"},
                         finish_of(FinishReason::kLength));
  };
  start();
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const Json whole = post("/api/chat", chat_body({{"tools", tools}, {"stream", false}})).json();
  EXPECT_EQ(whole["message"]["content"], "So:");
  EXPECT_FALSE(whole["message"].contains("tool_calls"));
  std::string streamed;
  for (const Json& line : lines_of(post("/api/chat", chat_body({{"tools", tools}})))) {
    EXPECT_FALSE(line["message"].contains("tool_calls"));
    streamed += line["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(whole["message"]["content"], streamed);
}

TEST_F(OllamaTest, ShowsTheLogprobsOfItsContent) {
  engine->script = [](const Request& request) {
    std::vector<RequestEvent> events = answer_events({"He", "y"});
    for (RequestEvent& event : events) {
      if (!request.return_logprobs) continue;
      for (const TokenId token : event.tokens) {
        event.logprobs.push_back({.token = token, .logprob = -0.5f, .top = {{token, -0.5f}}});
      }
    }
    return events;
  };
  start();
  for (const char* path : {"/api/chat", "/api/generate"}) {
    Json body = {{"prompt", "Hi"}, {"logprobs", true}, {"top_logprobs", 2}};
    if (std::string_view(path) == "/api/chat") body = chat_body(body);
    std::vector<Json> streamed;
    for (const Json& line : lines_of(post(path, body))) {
      if (line.contains("logprobs")) streamed.push_back(line["logprobs"]);
    }
    EXPECT_EQ(engine->submitted().back().top_logprobs, 2);
    ASSERT_EQ(streamed.size(), 2u) << path;
    body["stream"] = false;
    const Json whole = post(path, body).json()["logprobs"];
    ASSERT_EQ(whole.size(), 2u) << "those of the content, not of the end token";
    EXPECT_EQ(streamed[0], Json::array({whole[0]}));
    EXPECT_EQ(streamed[1], Json::array({whole[1]}));
    EXPECT_EQ(whole[0]["logprob"], -0.5);
    EXPECT_EQ(whole[0]["top_logprobs"][0]["token"], whole[0]["token"]);
    body["logprobs"] = false;
    const Reply without = post(path, body);
    EXPECT_EQ(without.status, 200) << "the alternatives are not asked for either: " << without.body;
    EXPECT_FALSE(without.json().contains("logprobs"));
  }
}

TEST_F(OllamaTest, CallsHaveAnIdAndAnIndex) {
  options.tool_call_format = parsers::ToolCallFormat::kQwen;
  engine->script = [](const Request&) {
    return answer_events({"<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
                          "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"});
  };
  start();
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  Json calls = post("/api/chat", chat_body({{"tools", tools}, {"stream", false}}))
                   .json()["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  for (const Json& line : lines_of(post("/api/chat", chat_body({{"tools", tools}})))) {
    if (!line.contains("message") || !line["message"].contains("tool_calls")) continue;
    for (const Json& call : line["message"]["tool_calls"]) calls.push_back(call);
  }
  ASSERT_EQ(calls.size(), 4u);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i]["function"]["index"], i % 2);
    EXPECT_FALSE(calls[i]["id"].get<std::string>().empty());
  }
}

TEST_F(OllamaTest, OptionsAreTheSamplingFields) {
  start();
  const Json sampling = {
      {"temperature", 0.5},    {"top_k", 0},      {"num_predict", 7}, {"seed", 3},
      {"repeat_penalty", 1.5}, {"stop", {"END"}}, {"num_ctx", 4096}};
  EXPECT_EQ(post("/api/chat", chat_body({{"options", sampling}})).status, 200);
  EXPECT_EQ(post("/api/chat", chat_body({{"options", {{"num_predict", -1}}}})).status, 200);
  const std::vector<Request> requests = engine->submitted();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].sampling.temperature, 0.5f);
  EXPECT_EQ(requests[0].sampling.top_k, -1);
  EXPECT_EQ(requests[0].sampling.seed, 3u);
  EXPECT_EQ(requests[0].sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(requests[0].stop.max_new_tokens, 7);
  EXPECT_THAT(requests[0].stop.texts, ElementsAre("END"));
  EXPECT_GT(requests[1].stop.max_new_tokens, 30000);
}

TEST_F(OllamaTest, GenerateAppliesTheTemplateUnlessItIsRaw) {
  start();
  const Json whole =
      post("/api/generate",
           {{"model", "m"}, {"prompt", "Hi"}, {"system", "Be brief."}, {"stream", false}})
          .json();
  EXPECT_EQ(whole["response"], "Hello there");
  EXPECT_EQ(post("/api/generate", {{"model", "m"}, {"prompt", "Hi"}, {"raw", true}}).status, 200);
  const std::vector<Request> requests = engine->submitted();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].prompt.size(),
            std::string("system: Be brief.|user: Hi|assistant: ").size());
  EXPECT_THAT(requests[1].prompt, ElementsAre('H', 'i'));
}

TEST_F(OllamaTest, GenerateFillsTheGapBeforeASuffix) {
  start();
  const Json body = {{"model", "m"}, {"prompt", "a"}, {"suffix", "z"}, {"stream", false}};
  EXPECT_THAT(post("/api/generate", body).json()["error"].get<std::string>(),
              HasSubstr("`suffix` is not supported"));
  EXPECT_EQ(post("/api/show", {{"model", "m"}}).body.find("insert"), std::string::npos);
  codec_gate->fills_gaps = true;
  EXPECT_EQ(post("/api/generate", body).json()["response"], "Hello there");
  EXPECT_THAT(engine->submitted().at(0).prompt, ElementsAre(1, 'a', 2, 'z', 3));
  EXPECT_NE(post("/api/show", {{"model", "m"}}).body.find("insert"), std::string::npos);
}

TEST_F(OllamaTest, WithoutAPromptTheModelIsSaidToBeThere) {
  start();
  const Json body = post("/api/generate", {{"model", "m"}}).json();
  EXPECT_EQ(body["done_reason"], "load");
  EXPECT_EQ(post("/api/chat", {{"model", "m"}}).json()["done"], true);
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(OllamaTest, ErrorsAreOneText) {
  start();
  const Reply reply = post("/api/chat", {{"model", "m"}, {"messages", "x"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json().size(), 1u);
  EXPECT_TRUE(reply.json()["error"].is_string());
  for (const Json& wrong : {Json{{"format", 3}}, Json{{"think", 3}}, Json{{"options", 3}},
                            Json{{"options", {{"num_predict", "x"}}}}, Json{{"images", {"x"}}}}) {
    Json body = {{"model", "m"}, {"prompt", "Hi"}};
    body.update(wrong);
    EXPECT_EQ(post("/api/generate", body).status, 400) << wrong;
  }
  EXPECT_EQ(post("/api/pull", {{"model", "m"}}).status, 501);
  const Json level = post("/api/generate", {{"prompt", "Hi"}, {"think", "bad"}}).json();
  EXPECT_THAT(level["error"].get<std::string>(), HasSubstr("`think` is \"bad\"; it must be true"));
  EXPECT_EQ(post("/api/generate", {{"prompt", "Hi"}, {"think", "high"}}).status, 200);
}

TEST_F(OllamaTest, RoutesOfOneAnswerRefuseToGiveMore) {
  start();
  const std::pair<const char*, Json> calls[] = {{"/api/chat", chat_body()},
                                                {"/api/generate", {{"prompt", "Hi"}}},
                                                {"/v1/messages", messages_body()},
                                                {"/v1/responses", {{"input", "Hi"}}}};
  for (const auto& [path, body] : calls) {
    for (const int64_t num_answers : {0, 2}) {
      Json several = body;
      several["n"] = num_answers;
      const Reply reply = post(path, several);
      EXPECT_EQ(reply.status, 400) << path << reply.body;
      EXPECT_THAT(reply.body, HasSubstr(fmt::format("`n` is {};", num_answers))) << path;
      EXPECT_THAT(reply.body, HasSubstr("/v1/chat/completions has `n`")) << path;
    }
    Json one = body;
    one["n"] = 1;
    EXPECT_EQ(post(path, one).status, 200) << path;
  }
}

TEST_F(OllamaTest, AStreamThatFailsEndsWithAnError) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello"});
    events.back().finish = finish_of(FinishReason::kError, internal_error("secret"));
    return events;
  };
  start();
  const std::vector<Json> lines = lines_of(post("/api/chat", chat_body()));
  ASSERT_FALSE(lines.empty());
  EXPECT_TRUE(lines.back()["error"].is_string());
}

TEST_F(OllamaTest, ModelsAreListedAndShown) {
  options.version = "1.2.3";
  engine->mutable_memory_plan().weights_bytes = 1000;
  engine->mutable_memory_plan().mapped_weights_bytes = 500;
  engine->mutable_model_info().device = "NVIDIA H100";
  start();
  EXPECT_EQ(get("/api/version").json()["version"], "0.13.4") << "clients ask for a minimum";
  EXPECT_EQ(get("/version").json()["version"], "1.2.3") << "as vLLM names it";
  const Json listed = get("/api/tags").json()["models"][0];
  EXPECT_EQ(listed["name"], "m");
  EXPECT_EQ(listed["size"], 1500) << "bytes";
  EXPECT_EQ(listed["digest"].get<std::string>().size(), 64u);
  const Json running = get("/api/ps").json()["models"][0];
  EXPECT_EQ(running["model"], "m");
  EXPECT_EQ(running["digest"], listed["digest"]);
  EXPECT_EQ(running["size_vram"], 1500);
  EXPECT_GT(running["expires_at"], "2100");
  const Json shown = post("/api/show", {{"model", "m"}}).json();
  EXPECT_EQ(shown["model_info"]["FakeForCausalLM.context_length"], 32768);
  EXPECT_EQ(get("/").body, "Ollama is running");
}

TEST_F(OllamaTest, FilesOfOllamasOwnKindAreNamedAsTheyNameThemselves) {
  ModelInfo& model = engine->mutable_model_info();
  model.dtype = "bfloat16";
  model.file_format = "gguf";
  model.family = "qwen3next";
  model.quantization = "Q4_K_M";
  start();
  for (const Json& details : {get("/api/tags").json()["models"][0]["details"],
                              post("/api/show", {{"model", "m"}}).json()["details"]}) {
    EXPECT_EQ(details["format"], "gguf");
    EXPECT_EQ(details["family"], "qwen3next");
    EXPECT_EQ(details["families"], Json::array({"qwen3next"}));
    EXPECT_EQ(details["quantization_level"], "Q4_K_M");
  }
  const Json facts = post("/api/show", {{"model", "m"}}).json()["model_info"];
  EXPECT_EQ(facts["general.architecture"], "qwen3next");
  EXPECT_EQ(facts["qwen3next.context_length"], 32768);
}

TEST_F(OllamaTest, UnservedRoutesSaySo) {
  start();
  for (const char* path : {"/v1/embeddings", "/pooling", "/api/embed"}) {
    const Reply reply = post(path, Json::object());
    EXPECT_EQ(reply.status, 501) << path;
    if (!std::string_view(path).starts_with("/api/")) {
      EXPECT_EQ(error_of(reply)["code"], "not_supported") << path;
    }
  }
}

TEST_F(OllamaTest, SageMakersRouteTakesEveryBody) {
  start();
  EXPECT_EQ(post("/invocations", chat_body()).json()["object"], "chat.completion");
  EXPECT_EQ(post("/invocations", {{"prompt", "x"}}).json()["object"], "text_completion");
  EXPECT_EQ(post("/invocations", {{"text", "x"}}).json()["text"], "Hello there");
  EXPECT_EQ(post("/invocations", {{"messages", 3}}).status, 400);
}

}  // namespace
}  // namespace heddle::server
