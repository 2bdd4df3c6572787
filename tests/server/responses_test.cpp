// SPDX-License-Identifier: Apache-2.0
// OpenAI's Responses API: the items and fields of a request, the items of its answer.
#include "server/api/responses/responses.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/api/openai/delta_adapter.h"
#include "server/api/responses/responses_answer.h"
#include "server/responses_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Checks the numbers of the events and that each names its type twice.
std::vector<Json> numbered_events(std::string_view stream) {
  std::vector<Json> events;
  for (size_t end; (end = stream.find("\n\n")) != std::string_view::npos;
       stream.remove_prefix(end + 2)) {
    const std::string_view event = stream.substr(0, end);
    const size_t line_end = std::min(event.find('\n'), event.size());
    events.push_back(Json::parse(event.substr(std::min(line_end + 7, event.size())), nullptr,
                                 /*allow_exceptions=*/false));
    EXPECT_EQ("event: " + events.back()["type"].get<std::string>(), event.substr(0, line_end));
    EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
  }
  EXPECT_TRUE(stream.empty());
  return events;
}

std::vector<std::string> names_of(const std::vector<Json>& events) {
  std::vector<std::string> names;
  for (const Json& event : events) names.push_back(event["type"]);
  return names;
}

class ResponsesTest : public ResponsesFixture {};

TEST_F(ResponsesTest, AnswersWithItems) {
  start();
  const Reply reply =
      post("/v1/responses", {{"model", "m"}, {"input", "Hi"}, {"instructions", "Be brief."}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json body = reply.json();
  EXPECT_TRUE(body["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(body["object"], "response");
  EXPECT_EQ(body["status"], "completed");
  ASSERT_EQ(body["output"].size(), 1u);
  EXPECT_EQ(body["output"][0]["type"], "message");
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "Hello there");
  EXPECT_EQ(body["instructions"], "Be brief.");
  // OpenAI's schema of a Response requires these.
  for (const char* name : {"id", "object", "created_at", "error", "incomplete_details",
                           "instructions", "model", "tools", "output", "parallel_tool_calls",
                           "metadata", "tool_choice", "temperature", "top_p"}) {
    EXPECT_TRUE(body.contains(name)) << name;
  }
  EXPECT_EQ(last_prompt(), "system: Be brief.|user: Hi|assistant: ");
}

TEST_F(ResponsesTest, TheStreamTellsEveryItemToItsEnd) {
  start();
  const Reply reply = post("/v1/responses", {{"input", "Hi"}, {"stream", true}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const std::vector<Json> events = numbered_events(reply.body);
  EXPECT_THAT(
      names_of(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[6]["text"], "Hello there");
  EXPECT_EQ(events[4]["item_id"], events[2]["item"]["id"]);
  EXPECT_EQ(events[9]["response"]["output"][0], events[8]["item"]);
  EXPECT_EQ(events[9]["response"]["status"], "completed");
}

TEST_F(ResponsesTest, AnAnswerThatIsCutOffIsIncomplete) {
  engine->script = [](const Request&) {
    return answer_events({"Hel"}, finish_of(FinishReason::kLength));
  };
  start();
  const Json body = post("/v1/responses", {{"input", "Hi"}, {"max_output_tokens", 1}}).json();
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(engine->submitted()[0].stop.max_new_tokens, 1);
}

TEST_F(ResponsesTest, ItemsBecomeTheMessagesOfAChat) {
  start();
  const Json input = {
      {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "a"}}}}},
      {{"type", "reasoning"}, {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"q\":1}"}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "42"}}};
  EXPECT_EQ(post("/v1/responses", {{"input", input}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr("user: a|assistant: "));
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"f","arguments":{"q":1})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: 42|assistant: "));
}

TEST_F(ResponsesTest, ItemsThatOtherToolsLeftAreNoErrors) {
  start();
  const Json input = {
      {{"role", "user"}, {"content", "a"}},
      {{"type", "web_search_call"},
       {"id", "ws_1"},
       {"status", "completed"},
       {"action", {{"type", "search"}, {"query", "loom"}}}},
      {{"type", "mcp_list_tools"}, {"id", "m"}, {"tools", Json::array()}},
      {{"role", "assistant"}, {"content", {{{"type", "output_text"}, {"text", "Found."}}}}},
      {{"type", "custom_tool_call"},
       {"call_id", "c1"},
       {"name", "apply_patch"},
       {"input", "*** x"}},
      {{"type", "custom_tool_call_output"}, {"call_id", "c1"}, {"output", "done"}},
      {{"type", "local_shell_call"}, {"call_id", "c2"}, {"action", {{"command", {"ls"}}}}},
      {{"type", "local_shell_call_output"}, {"call_id", "c2"}, {"output", "a.txt"}},
      {{"type", "function_call"}, {"call_id", "c3"}, {"name", "look"}, {"arguments", "{}"}},
      {{"type", "function_call_output"},
       {"call_id", "c3"},
       {"output", Json::array({{{"type", "input_image"}, {"image_url", "data:x"}}})}}};
  const Reply reply = post("/v1/responses", {{"input", input}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(last_prompt(),
              HasSubstr(R"([web_search_call: {"action":{"type":"search","query":"loom"}}])"
                        "\nFound."));
  EXPECT_THAT(last_prompt(), HasSubstr(R"("name":"apply_patch","arguments":{"input":"*** x"})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: done|"));
  EXPECT_THAT(last_prompt(),
              HasSubstr(R"("name":"local_shell","arguments":{"action":{"command":["ls"]}})"));
  EXPECT_THAT(last_prompt(), HasSubstr("|tool: [input_image]|"));
}

TEST_F(ResponsesTest, ATurnThatEndsWithoutAnAnswerKeepsItsCalls) {
  start();
  const Json note = {{"type", "web_search_call"}, {"action", {{"query", "loom"}}}};
  const Json thought = {{"type", "reasoning"}, {"content", "first"}};
  const Json input = {{{"role", "user"}, {"content", "a"}},
                      thought,
                      note,
                      {{"role", "user"}, {"content", "b"}},
                      {{"role", "assistant"}, {"content", "c"}},
                      {{"role", "user"}, {"content", "d"}},
                      note};
  EXPECT_EQ(post("/v1/responses", {{"input", input}}).status, 200);
  const std::string shown = R"([web_search_call: {"action":{"query":"loom"}}])";
  EXPECT_THAT(last_prompt(), HasSubstr("user: a|assistant: " + shown));
  EXPECT_THAT(last_prompt(), HasSubstr("user: b|assistant: c|user: d|assistant: " + shown));
}

// The line for a call that other servers ran comes before the items that follow the call.
TEST_F(ResponsesTest, LinesForOtherCallsKeepTheirPlace) {
  start();
  const Json asked = {{"role", "user"}, {"content", "a"}};
  const Json said = {{"role", "assistant"}, {"content", "b"}};
  const Json program = {{"type", "program"}, {"id", "p"}, {"code", "c"}};
  const Json result = {{"type", "program_output"}, {"id", "p"}, {"result", "d"}};
  const Json search = {{"type", "web_search_call"}, {"action", "e"}};
  const auto call = [](const char* id) {
    return Json{{"type", "function_call"}, {"call_id", id}, {"name", "f"}, {"arguments", "{}"}};
  };
  const auto output = [](const char* id) {
    return Json{{"type", "function_call_output"}, {"call_id", id}, {"output", id}};
  };
  const std::string noted = R"(assistant: [program: {"code":"c"}])";
  const std::string searched = R"([web_search_call: {"action":"e"}])";

  const struct {
    Json items;
    std::vector<std::string> order;
  } cases[] = {{{asked, program, result, said}, {"user: a|" + noted, "|tool: d|", "assistant: b"}},
               {{asked, said, program, result}, {"assistant: b|" + noted, "|tool: d|"}},
               {{asked, call("c1"), output("c1"), program, result, said},
                {"|tool: c1|" + noted, "|tool: d|", "assistant: b"}},
               {{asked, said, search, call("c1"), output("c1"), said},
                {"assistant: b\n" + searched, R"("name":"f")", "|tool: c1|", "assistant: b"}},
               {{asked, call("c1"), search, call("c2"), output("c1"), output("c2")},
                {"assistant: " + searched, "|tool: c1|tool: c2|"}},
               {{asked, call("c1"), call("c2"), output("c1"), search, output("c2"), said},
                {"|tool: c1|tool: c2|assistant: " + searched + "\nb"}}};

  for (const auto& [items, order] : cases) {
    ASSERT_EQ(post("/v1/responses", {{"input", items}}).status, 200) << items;
    size_t begin = 0;
    for (const std::string& part : order) {
      const size_t place = last_prompt().find(part, begin);
      ASSERT_NE(place, std::string::npos) << part << " is not in its place in " << last_prompt();
      begin = place + part.size() - 1;
    }
  }
}

TEST_F(ResponsesTest, NamesTheFieldAtFault) {
  start();
  const auto param_of = [this](const Json& body) {
    const Reply reply = post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return error_of(reply)["param"];
  };
  EXPECT_EQ(param_of(Json::object()), "input");
  EXPECT_EQ(param_of({{"input", 3}}), "input");
  EXPECT_EQ(param_of({{"input", Json::array()}}), "input");
  EXPECT_EQ(param_of({{"input", Json::array({3})}}), "input[0]");
  EXPECT_EQ(param_of({{"input", {{{"type", "item_reference"}}}}}), "input[0].id");
  EXPECT_EQ(param_of({{"input", {{{"role", "user"}}}}}), "input[0].content");
  EXPECT_EQ(param_of({{"input", "x"}, {"max_output_tokens", 0}}), "max_output_tokens");
  EXPECT_EQ(param_of({{"input", "x"}, {"tools", {{{"type", "function"}}}}}), "tools[0].name");
  EXPECT_EQ(param_of({{"input", "x"}, {"tool_choice", {{"type", "x"}}}}), "tool_choice");
  EXPECT_EQ(param_of({{"input", "x"}, {"temperature", -1}}), "temperature");
  EXPECT_EQ(param_of({{"input", "x"}, {"reasoning", {{"max_tokens", -1}}}}),
            "reasoning.max_tokens");
  EXPECT_EQ(param_of({{"input", "x"}, {"reasoning", {{"effort", "bad"}}}}), "reasoning.effort");
  EXPECT_EQ(param_of({{"input", "x"}, {"metadata", {{"a", 1}}}}), "metadata");
  EXPECT_EQ(param_of({{"input", "x"}, {"background", true}, {"store", false}}), "background");
}

TEST_F(ResponsesTest, RefusesStateThatItDoesNotKeep) {
  start();
  const auto refusal = [this](const Json& more) {
    Json body = {{"input", "x"}};
    body.update(more);
    const Reply reply = post("/v1/responses", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    const Json error = error_of(reply);
    EXPECT_EQ(error["param"], more.begin().key());
    EXPECT_EQ(error["code"], "unsupported_parameter");
    return error["message"].get<std::string>();
  };
  EXPECT_THAT(refusal({{"conversation", "conv_1"}}), HasSubstr("`previous_response_id`"));
  EXPECT_THAT(refusal({{"conversation", {{"id", "conv_1"}}}}), HasSubstr("`input`"));
  EXPECT_THAT(refusal({{"prompt", {{"id", "pmpt_1"}}}}), HasSubstr("`instructions`"));
  const Reply unknown = post("/v1/responses", {{"input", "x"}, {"truncation", "some"}});
  EXPECT_EQ(error_of(unknown)["code"], "invalid_value");
  for (const char* const accepted : {"disabled", "auto"}) {
    const Json body = post("/v1/responses", {{"input", "x"}, {"truncation", accepted}}).json();
    EXPECT_EQ(body["truncation"], "disabled") << "nothing is dropped";
  }
}

TEST_F(ResponsesTest, TheLimitOfTheAnswerHasThreeNames) {
  start();
  for (const char* name : {"max_output_tokens", "max_completion_tokens", "max_tokens"}) {
    EXPECT_EQ(post("/v1/responses", {{"input", "x"}, {name, 7}}).json()["max_output_tokens"], 7);
    EXPECT_EQ(engine->submitted().back().stop.max_new_tokens, 7) << name;
    EXPECT_EQ(error_of(post("/v1/responses", {{"input", "x"}, {name, 0}}))["param"], name);
  }
  const Json all = {
      {"input", "x"}, {"max_tokens", 3}, {"max_completion_tokens", 4}, {"max_output_tokens", 5}};
  EXPECT_EQ(post("/v1/responses", all).json()["max_output_tokens"], 5);
  EXPECT_EQ(engine->submitted().back().stop.max_new_tokens, 5);
}

TEST_F(ResponsesTest, AnErrorOfTheContextNamesTheFieldThatWasSent) {
  engine->mutable_model_info().context_length = 100;
  start();
  for (const char* name : {"max_output_tokens", "max_completion_tokens", "max_tokens"}) {
    const Json error = error_of(post("/v1/responses", {{"input", "x"}, {name, 1000}}));
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], name);
    const Json few =
        error_of(post("/v1/responses", {{"input", "x"}, {name, 3}, {"min_tokens", 4}}));
    EXPECT_EQ(few["message"], fmt::format("`min_tokens` is 4, more than `{}` = 3.", name));
  }
  const Json error = error_of(post("/v1/responses", {{"input", std::string(101, 'x')}}));
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "input");
}

TEST_F(ResponsesTest, ShowsTheLogprobsOfItsText) {
  engine->script = [](const Request& request) {
    EXPECT_TRUE(request.return_logprobs);
    EXPECT_EQ(request.top_logprobs, 2);
    std::vector<RequestEvent> events = answer_events({"He", "y"});
    for (RequestEvent& event : events) {
      for (const TokenId token : event.tokens) {
        event.logprobs.push_back({.token = token, .logprob = -0.5f, .top = {{token, -0.5f}}});
      }
    }
    return events;
  };
  start();
  const Json asked = {{"input", "Hi"}, {"top_logprobs", 2}};
  const Json body = post("/v1/responses", asked).json();
  EXPECT_EQ(body["top_logprobs"], 2);
  const Json logprobs = body["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(logprobs.size(), 2u) << "those of the text, not of the end token: " << body;
  EXPECT_EQ(logprobs[0]["logprob"], -0.5);
  EXPECT_TRUE(logprobs[0].contains("token") && logprobs[0].contains("bytes"));
  EXPECT_EQ(logprobs[0]["top_logprobs"][0]["logprob"], -0.5);

  Json streamed = asked;
  streamed["stream"] = true;
  const std::vector<Json> events = numbered_events(post("/v1/responses", streamed).body);
  ASSERT_EQ(events.size(), 10u);
  EXPECT_EQ(events[4]["logprobs"], Json::array({logprobs[0]}));
  EXPECT_EQ(events[5]["logprobs"], Json::array({logprobs[1]}));
  EXPECT_EQ(events[6]["logprobs"], logprobs) << events[6];
  EXPECT_EQ(events[7]["part"]["logprobs"], logprobs) << events[7];
  EXPECT_EQ(events[9]["response"]["output"][0]["content"][0]["logprobs"], logprobs);
}

TEST_F(ResponsesTest, LogprobsAreAskedForByIncludeToo) {
  engine->script = [](const Request& request) {
    return answer_events({request.return_logprobs ? "with" : "without"});
  };
  engine->mutable_model_info().context_length = int64_t{1} << 20;
  start();
  const auto text_of = [this](const Json& more) {
    Json body = {{"input", "Hi"}};
    body.update(more);
    return post("/v1/responses", body).json()["output"][0]["content"][0]["text"];
  };
  EXPECT_EQ(text_of({{"include", {"message.output_text.logprobs"}}}), "with");
  EXPECT_EQ(text_of({{"include", {"reasoning.encrypted_content"}}, {"top_logprobs", 0}}),
            "without");
  const Reply many = post("/v1/responses", {{"input", "Hi"}, {"top_logprobs", 21}});
  EXPECT_EQ(many.status, 400);
  EXPECT_EQ(error_of(many)["param"], "top_logprobs");
  const Reply long_one = post("/v1/responses", {{"input", "Hi"}, {"top_logprobs", 20}});
  EXPECT_EQ(long_one.status, 400);
  EXPECT_EQ(error_of(long_one)["param"], "max_output_tokens");
}

TEST_F(ResponsesTest, BoundsThePartOfTheRequestThatAResponseRepeats) {
  start();
  Json body = {{"input", "x"}, {"tools", Json::array()}};
  body["tools"].push_back({{"type", "web_search"}, {"x", std::string(kMaxRepeatedBytes, 'x')}});
  const Reply reply = post("/v1/responses", body);
  EXPECT_EQ(reply.status, 413) << reply.body;
  EXPECT_EQ(error_of(reply)["code"], "request_too_large");
}

TEST(WithStateTest, OnlyTheStateOfAResponseChanges) {
  const Json running = {{"id", "r"},        {"status", "in_progress"},
                        {"error", nullptr}, {"incomplete_details", nullptr},
                        {"output", {}},     {"instructions", R"("status":"x","error":1)"}};
  const Json error = {{"message", R"(,"incomplete_details":)"}};
  const std::string failed = with_state(running.dump(), "failed", error);
  Json expected = running;
  expected["status"] = "failed";
  expected["error"] = error;
  EXPECT_EQ(failed, expected.dump());
  expected["status"] = "cancelled";
  expected["error"] = nullptr;
  EXPECT_EQ(with_state(failed, "cancelled"), expected.dump());
}

TEST_F(ResponsesTest, AStreamThatFailsSaysSo) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"Hello"});
    events.back().finish = finish_of(FinishReason::kError, internal_error("secret"));
    return events;
  };
  start();
  const std::vector<Json> events =
      numbered_events(post("/v1/responses", {{"input", "Hi"}, {"stream", true}}).body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "internal_error");
}

TEST(ResponsesAdapterTest, ReasoningTextAndCallsAreItemsOfTheirOwn) {
  ChatAnswerOptions options{{.id = "resp_1", .model = "m"}};
  options.streaming.stream = true;
  const auto adapter = make_responses_adapter(std::move(options), {.request = Json::object()});
  std::string out;
  adapter->event(0, RequestEvent{}, out);
  for (const parsers::AnswerDelta& delta : std::vector<parsers::AnswerDelta>{
           parsers::ReasoningDelta{"Let me"}, parsers::ContentDelta{"So"},
           parsers::ToolCallBegin{0, "call_1", "w"}, parsers::ArgumentsDelta{0, "{\"c\":"},
           parsers::ArgumentsDelta{0, " \"Paris\"}"}, parsers::ToolCallEnd{}}) {
    dynamic_cast<DeltaAdapter&>(*adapter).add(delta, out);
  }
  RequestEvent last;
  last.finish = stopped_by(7);
  adapter->event(0, last, out);
  adapter->end(out);
  const std::vector<Json> events = numbered_events(out);
  EXPECT_THAT(
      names_of(events),
      ElementsAre(
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.content_part.added", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.delta", "response.function_call_arguments.done",
          "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[3]["part"], Json({{"type", "reasoning_text"}, {"text", ""}}));
  EXPECT_EQ(events[6]["part"], Json({{"type", "reasoning_text"}, {"text", "Let me"}}));
  EXPECT_EQ(events[6]["item_id"], events[2]["item"]["id"]);
  EXPECT_EQ(events[14]["output_index"], 2);
  EXPECT_EQ(events[14]["item"]["arguments"], "");
  EXPECT_EQ(events[17]["arguments"], "{\"c\": \"Paris\"}");
  EXPECT_EQ(events[17]["item_id"], events[14]["item"]["id"]);
  const Json& output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 3u);
  EXPECT_EQ(output[0]["content"][0]["text"], "Let me");
  EXPECT_EQ(output[2]["call_id"], "call_1");
}

}  // namespace
}  // namespace heddle::server
