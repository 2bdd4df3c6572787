// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions, by recorded transcripts and by the rules of the API.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChatTest : public ServerTest {
 protected:
  // NOLINTNEXTLINE(modernize-use-nodiscard): some calls are made for their effect on the engine
  Reply chat(const Json& extra) const { return post("/v1/chat/completions", chat_body(extra)); }

  [[nodiscard]] std::string last_prompt() const {
    return FakeCodec().decode(engine->submitted().back().prompt, false);
  }
};

TEST_F(ChatTest, TheGoldenStreamIsMatchedByteForByte) {
  start();
  const Reply reply = chat({{"rid", "chatcmpl-1"},
                            {"input_ids", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                            {"stream", true},
                            {"stream_options", {{"include_usage", true}}}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream; charset=utf-8");
  EXPECT_EQ(reply.headers.at("cache-control"), "no-cache");
  EXPECT_EQ(reply.headers.at("x-accel-buffering"), "no");
  EXPECT_EQ(
      reply.body,
      R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" there"},"logprobs":null,"finish_reason":null}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","matched_stop":151645}],"usage":null}

data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0},"reasoning_tokens":0}}

data: [DONE]

)");
}

TEST_F(ChatTest, TheFingerprintStaysAsLongAsTheWeights) {
  start();
  const Json first = chat(Json::object()).json()["system_fingerprint"];
  EXPECT_THAT(first.get<std::string>(), ::testing::MatchesRegex("fp_[0-9a-f]{10}"));
  EXPECT_EQ(chat({{"seed", 7}}).json()["system_fingerprint"], first);
  post("/update_weights_from_disk", {{"model_path", "other"}});
  EXPECT_NE(chat(Json::object()).json()["system_fingerprint"], first);
}

TEST_F(ChatTest, WithoutUsageTheKeyIsAbsent) {
  start();
  for (const std::string& event : chat({{"stream", true}}).events()) {
    EXPECT_THAT(event, ::testing::Not(HasSubstr("usage")));
  }
}

TEST_F(ChatTest, RunningUsageIsOnEveryChunk) {
  start();
  const auto events =
      chat({{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}}).events();
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(Json::parse(events[i])["usage"]["completion_tokens"], std::max<size_t>(i, 1)) << i;
  }
}

TEST_F(ChatTest, ThePlainAnswerIsTheStreamPutTogether) {
  start();
  const Reply reply = chat(Json::object());
  EXPECT_EQ(reply.status, 200);
  const Json body = reply.json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello there");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["matched_stop"], 151645);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_TRUE(reply.headers.contains("x-ttft-ms"));
  EXPECT_TRUE(reply.headers.contains("x-cached-tokens"));
}

TEST_F(ChatTest, SeveralAnswersAreSeveralRequests) {
  engine->script = [](const Request& request) {
    return answer_events({"answer ", std::to_string(request.choice_index)});
  };
  start();
  const Json body = chat({{"n", 3}, {"seed", 7}}).json();
  ASSERT_EQ(body["choices"].size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["message"]["content"], fmt::format("answer {}", i));
    EXPECT_EQ(engine->submitted()[i].sampling.seed, 7u);
  }
  const auto prompt_tokens = static_cast<int64_t>(engine->submitted()[0].prompt.size());
  EXPECT_EQ(body["usage"]["prompt_tokens"], prompt_tokens);
  EXPECT_EQ(body["usage"]["completion_tokens"], 9);

  std::vector<std::string> texts(2);
  for (const std::string& event : chat({{"n", 2}, {"stream", true}}).events()) {
    if (event == "[DONE]") continue;
    const Json choice = Json::parse(event)["choices"][0];
    texts[choice["index"].get<size_t>()] += choice["delta"].value("content", "");
  }
  EXPECT_THAT(texts, ElementsAre("answer 0", "answer 1"));
}

TEST_F(ChatTest, UsageCountsTheDraftsOfAllAnswers) {
  engine->script = [](const Request& request) {
    auto events = answer_events({"Hello", " there"});
    // Each event has the counts up to itself.
    for (size_t i = 0; i < events.size(); ++i) {
      const auto steps = static_cast<int64_t>(i) + 1;
      events[i].drafts = {.verify_steps = steps,
                          .accepted_tokens = steps * (request.choice_index + 2),
                          .rejected_tokens = steps};
    }
    return events;
  };
  start();
  const auto expect_details = [](const Json& usage, int64_t accepted, int64_t rejected) {
    const Json& details = usage["completion_tokens_details"];
    EXPECT_EQ(details["accepted_prediction_tokens"], accepted);
    EXPECT_EQ(details["rejected_prediction_tokens"], rejected);
  };
  expect_details(chat(Json::object()).json()["usage"], 6, 3);
  expect_details(chat({{"n", 2}}).json()["usage"], 6 + 9, 3 + 3);
  const auto events =
      chat({{"stream", true}, {"n", 2}, {"stream_options", {{"include_usage", true}}}}).events();
  ASSERT_GE(events.size(), 2u);
  expect_details(Json::parse(events[events.size() - 2])["usage"], 6 + 9, 3 + 3);
  const Json completion = post("/v1/completions", {{"model", "m"}, {"prompt", "Hi"}}).json();
  expect_details(completion["usage"], 6, 3);
}

TEST_F(ChatTest, LogprobsCarryBytesAndEachTokensOwnAlternatives) {
  engine->script = [](const Request&) {
    auto events = answer_events({"h\xc3\xa9"});
    events[0].tokens = {'h', 0xc3, 0xa9};
    events[0].logprobs = {{'h', -0.5f, {{'h', -0.5f}, {'x', -1.5f}}},
                          {0xc3, -0.25f, {{0xc3, -0.25f}}},
                          {0xa9, -std::numeric_limits<float>::infinity(), {}}};
    return events;
  };
  start();
  const Json content =
      chat({{"logprobs", true}, {"top_logprobs", 2}}).json()["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "h");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["top_logprobs"][1]["token"], "x");
  EXPECT_EQ(content[1]["bytes"], Json::array({0xc3}));
  EXPECT_EQ(content[1]["token"], "\xef\xbf\xbd");
  EXPECT_EQ(content[2]["logprob"], -9999.0);
  EXPECT_TRUE(engine->submitted()[0].return_logprobs);
  EXPECT_EQ(engine->submitted()[0].top_logprobs, 2);

  size_t streamed = 0;
  for (const std::string& event : chat({{"logprobs", true}, {"stream", true}}).events()) {
    if (event == "[DONE]") continue;
    const Json logprobs = Json::parse(event)["choices"][0]["logprobs"];
    if (!logprobs.is_null()) streamed += logprobs["content"].size();
  }
  EXPECT_EQ(streamed, 3u);
}

TEST_F(ChatTest, FieldsReachTheEngine) {
  start();
  EXPECT_EQ(chat({{"temperature", 0.5},
                  {"top_p", 0.9},
                  {"top_k", 5},
                  {"min_p", 0.1},
                  {"frequency_penalty", -1},
                  {"presence_penalty", 1},
                  {"repetition_penalty", 1.1},
                  {"logit_bias", {{"17", -100}}},
                  {"stop", {"a", "b"}},
                  {"stop_regex", {"c+d", "e"}},
                  {"stop_token_ids", {3, nullptr, 4}},
                  {"max_tokens", 5},
                  {"max_completion_tokens", 50},
                  {"min_tokens", 2},
                  {"ignore_eos", true},
                  {"no_stop_trim", true},
                  {"skip_special_tokens", false},
                  {"seed", -3}})
                .status,
            200);
  const Request request = engine->submitted().at(0);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_FLOAT_EQ(request.sampling.min_p, 0.1f);
  EXPECT_FLOAT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_FLOAT_EQ(request.sampling.presence_penalty, 1);
  EXPECT_FLOAT_EQ(request.sampling.repetition_penalty, 1.1f);
  EXPECT_THAT(request.sampling.logit_bias, ElementsAre(std::pair<TokenId, float>(17, -100.0f)));
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-3));
  EXPECT_THAT(request.stop.texts, ElementsAre("a", "b"));
  ASSERT_EQ(request.stop.patterns.size(), 2u);
  EXPECT_EQ(request.stop.patterns[0]->text(), "c+d");
  EXPECT_EQ(request.stop.patterns[1]->text(), "e");
  EXPECT_THAT(request.stop.token_ids, ElementsAre(3, 4));
  EXPECT_EQ(request.stop.max_new_tokens, 50);
  EXPECT_EQ(request.stop.min_new_tokens, 2);
  EXPECT_TRUE(request.stop.ignore_eos);
  EXPECT_TRUE(request.stop.keep_stop_text);
  EXPECT_FALSE(request.skip_special_tokens);
}

TEST_F(ChatTest, OmittedFieldsTakeTheModelsDefaults) {
  engine->mutable_model_info().default_sampling.temperature = 0.7f;
  engine->mutable_model_info().default_sampling.top_k = 20;
  start();
  EXPECT_EQ(chat({{"top_k", nullptr}}).status, 200);
  const Request request = engine->submitted().at(0);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.7f);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.stop.max_new_tokens, 32768 - static_cast<int64_t>(request.prompt.size()));
}

TEST_F(ChatTest, MessagesAreBroughtIntoOneShape) {
  start();
  const Json messages = Json::parse(R"([
    {"role": "Developer", "content": "Be kind"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null,
     "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "done"}])");
  EXPECT_EQ(chat({{"messages", messages}}).status, 200);
  EXPECT_EQ(last_prompt(),
            "developer: Be kind|user: a b|assistant: "
            R"([{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}}])"
            "|tool: done|assistant: ");
}

TEST_F(ChatTest, ToolsAreRenderedUnlessTheChoiceIsNone) {
  start();
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(chat({{"tools", tools}}).status, 200);
  EXPECT_THAT(last_prompt(), HasSubstr(R"(tools: [{"type":"function","function":{"name":"f"}}])"));
  EXPECT_EQ(chat({{"tools", tools}, {"tool_choice", "none"}}).status, 200);
  EXPECT_THAT(last_prompt(), ::testing::Not(HasSubstr("tools")));
}

TEST_F(ChatTest, TemplateVariablesAndEffortArePassedOn) {
  start();
  EXPECT_EQ(chat({{"chat_template_kwargs", {{"style", "short"}, {"enable_thinking", true}}},
                  {"reasoning_effort", "none"}})
                .status,
            200);
  EXPECT_THAT(last_prompt(),
              HasSubstr(R"({"style":"short","enable_thinking":true,"thinking":false,)"
                        R"("reasoning_effort":"none"})"));
}

TEST_F(ChatTest, AnUnfinishedAnswerCanBeContinued) {
  start();
  const Json messages = Json::parse(
      R"([{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, t"}])");
  EXPECT_EQ(chat({{"messages", messages}, {"continue_final_message", true}}).status, 200);
  EXPECT_EQ(last_prompt(), "user: Count|assistant: One, t");
  EXPECT_EQ(chat({{"messages", messages}}).status, 200);
  EXPECT_EQ(last_prompt(), "user: Count|assistant: One, t|assistant: ");
}

TEST_F(ChatTest, SaysWhyAMessageCannotBeContinued) {
  start();
  const auto message = [this](const Json& messages) {
    return error_of(chat({{"messages", messages}, {"continue_final_message", true}}))["message"]
        .get<std::string>();
  };
  EXPECT_THAT(message({{{"role", "user"}, {"content", "Hi"}}}),
              HasSubstr("needs an assistant message at the end"));
  EXPECT_THAT(message({{{"role", "assistant"}, {"content", "so"}}}),
              HasSubstr("needs a message before the assistant's"));
}

TEST_F(ChatTest, AnIntegerThatDoesNotFitIsTooLargeOrTooSmall) {
  start();
  const auto message = [this](double max_tokens) {
    return error_of(chat({{"max_tokens", max_tokens}}))["message"].get<std::string>();
  };
  EXPECT_THAT(message(1e30), HasSubstr("that is too large"));
  EXPECT_THAT(message(-1e30), HasSubstr("that is too small"));
}

TEST_F(ChatTest, TokenIdsComeBackOnRequest) {
  start();
  const Json body = chat({{"input_ids", {7, 8}}, {"return_token_ids", true}}).json();
  EXPECT_EQ(body["prompt_token_ids"], Json::array({7, 8}));
  EXPECT_EQ(body["choices"][0]["token_ids"], Json::array({1, 2, 151645}));
}

TEST_F(ChatTest, AStreamIntervalGathersTokens) {
  engine->script = [](const Request&) { return answer_events({"a", "b", "c", "d", "e"}); };
  start();
  std::vector<std::string> texts;
  for (const std::string& event : chat({{"stream", true}, {"stream_interval", 2}}).events()) {
    if (event == "[DONE]") continue;
    const Json delta = Json::parse(event)["choices"][0]["delta"];
    if (!delta.value("content", "").empty()) texts.push_back(delta["content"]);
  }
  EXPECT_THAT(texts, ElementsAre("ab", "cd", "e"));
}

TEST_F(ChatTest, AStopTextIsNamed) {
  engine->script = [](const Request&) { return answer_events({"a"}, stopped_by("END")); };
  start();
  EXPECT_EQ(chat(Json::object()).json()["choices"][0]["matched_stop"], "END");
}

TEST_F(ChatTest, TheContextErrorsSayHowMuchIsNeeded) {
  start();
  const Reply too_much =
      chat({{"input_ids", Json(std::vector<int>(31000, 1))}, {"max_tokens", 9000}});
  EXPECT_EQ(too_much.status, 400);
  Json error = error_of(too_much);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "max_tokens");
  const Reply too_long =
      chat({{"input_ids", Json(std::vector<int>(39000, 1))}, {"max_tokens", 1000}});
  error = error_of(too_long);
  EXPECT_EQ(error["message"],
            "This model's maximum context length is 32768 tokens; the request needs 40000 (39000 "
            "prompt + 1000 output). Shorten the prompt.");
  EXPECT_EQ(error["param"], "input_ids");
  EXPECT_EQ(error_of(chat({{"messages", {{{"role", "user"}, {"content", std::string(39000, 'x')}}}},
                           {"max_tokens", 1000}}))["param"],
            "messages");
  EXPECT_EQ(chat({{"input_ids", Json(std::vector<int>(32000, 1))}, {"max_tokens", 768}}).status,
            200);
  EXPECT_EQ(chat({{"max_tokens", 9223372036854775807}}).status, 400);
}

// A byte is a token here, and "user: " and what asks for the answer are 18 of them.
TEST_F(ChatTest, BeyondTwiceTheContextAPromptIsNotCounted) {
  start();
  const auto error_at = [this](size_t tokens) {
    return error_of(
        chat({{"messages", {{{"role", "user"}, {"content", std::string(tokens - 18, 'x')}}}},
              {"max_tokens", 1000}}));
  };
  EXPECT_EQ(error_at(65536)["message"],
            "This model's maximum context length is 32768 tokens; the request needs 66536 (65536 "
            "prompt + 1000 output). Shorten the prompt.");
  const Json error = error_at(65537);
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["param"], "messages");
  EXPECT_EQ(error["message"],
            "This model's maximum context length is 32768 tokens; the request needs at least 65537 "
            "for its prompt alone. Shorten the prompt.");
  EXPECT_EQ(error_at(1000000), error);
}

TEST_F(ChatTest, AnUnknownModelIsNotFoundWhenNamesAreStrict) {
  options.allow_any_model_name = false;
  start();
  const Reply reply = chat({{"model", "x"}});
  EXPECT_EQ(reply.status, 404);
  EXPECT_EQ(
      reply.json()["error"].dump(),
      R"({"message":"The model `x` does not exist.","type":"not_found_error","param":"model",)"
      R"("code":"model_not_found"})");
  EXPECT_EQ(chat({{"model", "default"}}).json()["model"], "m");
  EXPECT_EQ(chat({{"model", nullptr}}).json()["model"], "m");
}

TEST_F(ChatTest, AnyModelNameIsTakenOtherwiseAndEchoed) {
  start();
  EXPECT_EQ(chat({{"model", "gpt-x"}}).json()["model"], "gpt-x");
}

struct Refusal {
  const char* fields;  // JSON, beside a valid chat
  const char* code;
  const char* param;
};

TEST_F(ChatTest, WrongFieldsAreRefusedByName) {
  start();
  const Refusal refusals[] = {
      {R"({"messages": null})", "missing_required_parameter", "messages"},
      {R"({"messages": []})", "invalid_value", "messages"},
      {R"({"messages": "hi"})", "invalid_type", "messages"},
      {R"({"messages": ["hi"]})", "invalid_type", "messages[0]"},
      {R"({"messages": [{"content": "hi"}]})", "missing_required_parameter", "messages[0].role"},
      {R"({"messages": [{"role": "king", "content": "hi"}]})", "invalid_value", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "missing_required_parameter", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "invalid_type", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
       "unsupported_parameter", "messages[0].content[0]"},
      {R"({"messages": [{"role": 1, "content": "hi"}]})", "invalid_type", "messages[0].role"},
      {R"({"messages": [{"role": "user", "content": [{"type": 1}]}]})", "invalid_type",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "assistant", "content": "so"}], "continue_final_message": true})",
       "invalid_value", "continue_final_message"},
      {R"({"messages": [{"role": "user", "content": [{"type": "smell"}]}]})", "invalid_value",
       "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": "raise"}]})", "invalid_value", "messages"},
      {R"({"temperature": -0.1})", "invalid_value", "temperature"},
      {R"({"temperature": 1e300})", "invalid_value", "temperature"},
      {R"({"temperature": "hot"})", "invalid_type", "temperature"},
      {R"({"top_p": -0.01})", "invalid_value", "top_p"},
      {R"({"top_p": 1.01})", "invalid_value", "top_p"},
      {R"({"min_p": -0.01})", "invalid_value", "min_p"},
      {R"({"top_k": -2})", "invalid_value", "top_k"},
      {R"({"top_k": 1.5})", "invalid_type", "top_k"},
      {R"({"frequency_penalty": 2.1})", "invalid_value", "frequency_penalty"},
      {R"({"presence_penalty": -2.1})", "invalid_value", "presence_penalty"},
      {R"({"repetition_penalty": 0})", "invalid_value", "repetition_penalty"},
      {R"({"repetition_penalty": 1e-38})", "invalid_value", "repetition_penalty"},
      {R"({"max_tokens": 0})", "invalid_value", "max_tokens"},
      {R"({"max_tokens": 1e23})", "invalid_value", "max_tokens"},
      {R"({"max_tokens": true})", "invalid_type", "max_tokens"},
      {R"({"max_completion_tokens": -2})", "invalid_value", "max_completion_tokens"},
      {R"({"min_tokens": 9, "max_tokens": 8})", "invalid_value", "min_tokens"},
      {R"({"n": 0})", "invalid_value", "n"},
      {R"({"n": 129})", "invalid_value", "n"},
      {R"({"stop": ["a", ""]})", "invalid_value", "stop"},
      {R"({"stop": [1]})", "invalid_type", "stop"},
      {R"({"stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"]})",
       "invalid_value", "stop"},
      {R"({"stop_token_ids": [200000]})", "invalid_value", "stop_token_ids"},
      {R"({"seed": "x"})", "invalid_type", "seed"},
      {R"({"seed": 1.5})", "invalid_type", "seed"},
      {R"({"logit_bias": {"x": 1}})", "invalid_logit_bias", "logit_bias"},
      {R"({"logit_bias": {"200000": 1}})", "invalid_logit_bias", "logit_bias"},
      {R"({"logit_bias": {"1": 101}})", "invalid_logit_bias", "logit_bias"},
      {R"({"top_logprobs": 2})", "invalid_value", "top_logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "invalid_value", "top_logprobs"},
      {R"({"logprobs": 5})", "invalid_type", "logprobs"},
      {R"({"stream": "yes"})", "invalid_type", "stream"},
      {R"({"stream_options": []})", "invalid_type", "stream_options"},
      {R"({"rid": "a b"})", "invalid_value", "rid"},
      {R"({"input_ids": [-1]})", "invalid_value", "input_ids"},
      {R"({"input_ids": []})", "invalid_value", "input_ids"},
      {R"({"tools": [{"type": "function"}]})", "invalid_tool", "tools[0]"},
      {R"({"tools": [{"type": "function", "function": {}}]})", "invalid_tool",
       "tools[0].function.name"},
      {R"({"tool_choice": "required"})", "invalid_value", "tool_choice"},
      {R"({"tool_choice": "sometimes"})", "invalid_value", "tool_choice"},
      {R"({"continue_final_message": true})", "invalid_value", "continue_final_message"},
      {R"({"reasoning_effort": "enormous"})", "invalid_value", "reasoning_effort"},
      {R"({"response_format": {"type": "yaml"}})", "invalid_value", "response_format.type"},
      {R"({"response_format": {}})", "missing_required_parameter", "response_format.type"},
      {R"({"response_format": {"type": "json_schema"}})", "missing_required_parameter",
       "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})",
       "invalid_json_schema", "response_format"},
      {R"({"regex": "a**"})", "invalid_value", "regex"},
      {R"({"regex": 5})", "invalid_type", "regex"},
      {R"({"ebnf": "root ::= a"})", "invalid_value", "ebnf"},
      {R"({"regex": "a", "guided_choice": ["b"]})", "invalid_value", "guided_choice"},
      {R"({"guided_choice": []})", "invalid_value", "guided_choice"},
      {R"({"stop_regex": "a**"})", "invalid_value", "stop_regex"},
      {R"({"stop_regex": ["b", "a?"]})", "invalid_value", "stop_regex"},
      {R"({"stop_regex": ["a{600}", "b{600}"]})", "invalid_value", "stop_regex"},
      {R"({"stop_regex": 5})", "invalid_type", "stop_regex"},
      {R"({"lora_path": "x"})", "unsupported_parameter", "lora_path"},
      {R"({"return_hidden_states": true})", "unsupported_parameter", "return_hidden_states"},
      {R"({"functions": [{"name": "f"}]})", "unsupported_parameter", "functions"},
      {R"({"max_thinking_tokens": -1})", "invalid_value", "max_thinking_tokens"},
      {R"({"reasoning": {"max_tokens": "5"}})", "invalid_type", "reasoning.max_tokens"},
      {R"({"custom_params": {"speed": 5}})", "unsupported_parameter", "custom_params.speed"},
  };
  const std::string long_stop = chat_body({{"stop", std::string(4097, 'x')}}).dump();
  EXPECT_EQ(error_of(connect().post_text("/v1/chat/completions", std::string_view(long_stop)))
                .value("param", ""),
            "stop");
  const Json many_ids(std::vector<int>(1025, 1));
  EXPECT_EQ(error_of(chat({{"stop_token_ids", many_ids}})).value("param", ""), "stop_token_ids");
  HttpClient client(server->port());
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.fields);
    const Reply reply = client.post("/v1/chat/completions", chat_body(Json::parse(refusal.fields)));
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error_of(reply).value("code", ""), refusal.code) << reply.body;
    EXPECT_EQ(error_of(reply).value("param", ""), refusal.param) << reply.body;
    EXPECT_EQ(error_of(reply).value("type", ""), "invalid_request_error");
  }
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(ChatTest, HarmlessFieldsAreTaken) {
  start();
  EXPECT_EQ(chat(Json::parse(R"({"store": true, "metadata": {"a": "b"}, "service_tier": "auto",
      "user": "me", "logit_bias": null, "response_format": {"type": "text"}, "lora_path": null,
      "return_hidden_states": false, "priority": 3, "parallel_tool_calls": true, "tools": [],
      "unheard_of": 1, "separate_reasoning": true, "regex": null, "modalities": ["text"]})"))
                .status,
            200);
}

}  // namespace
}  // namespace heddle::server
