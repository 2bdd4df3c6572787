// SPDX-License-Identifier: Apache-2.0
// POST /v1/completions, /generate, /tokenize and /detokenize.
#include "server/server_fixture.h"
#include "support/allocation_count.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompletionsTest : public ServerTest {};

class GenerateTest : public ServerTest {};

Json logprob_script_body() { return {{"prompt", "p"}, {"logprobs", 2}, {"max_tokens", 4}}; }

std::vector<RequestEvent> logprob_events(const Request&) {
  auto events = answer_events({"ab"});
  events[0].tokens = {'a', 'b'};
  events[0].logprobs = {{'a', -0.5f, {{'a', -0.5f}, {'z', -1.0f}}}, {'b', -0.25f, {{'b', -0.25f}}}};
  return events;
}

TEST_F(CompletionsTest, APromptIsAnswered) {
  start();
  const Json body = post("/v1/completions", {{"model", "m"}, {"prompt", "Once"}}).json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "Hello there");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(engine->submitted().at(0).stop.max_new_tokens, 16);
}

TEST_F(CompletionsTest, ListsAreAnsweredPromptByPrompt) {
  engine->script = [](const Request& request) {
    return answer_events({fmt::format("{}/{}", request.prompt.size(), request.choice_index)});
  };
  start();
  const Json texts = post("/v1/completions", {{"prompt", {"a", "bb"}}, {"n", 2}}).json();
  ASSERT_EQ(texts["choices"].size(), 4u);
  EXPECT_EQ(texts["choices"][0]["text"], "1/0");
  EXPECT_EQ(texts["choices"][1]["text"], "1/1");
  EXPECT_EQ(texts["choices"][2]["text"], "2/0");
  EXPECT_EQ(texts["choices"][3]["index"], 3);
  EXPECT_EQ(texts["usage"]["prompt_tokens"], 3);
  const Json ids = post("/v1/completions", {{"prompt", Json::parse("[[1,2,3],[4]]")}}).json();
  EXPECT_EQ(ids["choices"][0]["text"], "3/0");
  EXPECT_EQ(ids["choices"][1]["text"], "1/0");
  EXPECT_EQ(post("/v1/completions", {{"prompt", {5, 6}}}).json()["choices"][0]["text"], "2/0");
}

TEST_F(CompletionsTest, EchoPutsThePromptFirst) {
  start();
  EXPECT_EQ(
      post("/v1/completions", {{"prompt", "Hi. "}, {"echo", true}}).json()["choices"][0]["text"],
      "Hi. Hello there");
  EXPECT_EQ(post("/v1/completions", {{"prompt", {'a', 'b'}}, {"echo", true}})
                .json()["choices"][0]["text"],
            "abHello there");
  std::string streamed;
  for (const std::string& event :
       post("/v1/completions", {{"prompt", "Hi. "}, {"echo", true}, {"stream", true}}).events()) {
    if (event != "[DONE]") streamed += Json::parse(event)["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(streamed, "Hi. Hello there");
}

TEST_F(CompletionsTest, LogprobsHaveOffsetsInCharacters) {
  engine->script = logprob_events;
  start();
  const Json logprobs =
      post("/v1/completions", logprob_script_body()).json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"a", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json::array({-0.5, -0.25}));
  EXPECT_EQ(logprobs["top_logprobs"][0], (Json{{"a", -0.5}, {"z", -1.0}}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 1}));
  EXPECT_EQ(engine->submitted().at(0).top_logprobs, 2);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "p"}, {"logprobs", 0}}).status, 200);
  EXPECT_TRUE(engine->submitted().at(1).return_logprobs);
}

TEST_F(CompletionsTest, PartsOfCharactersAreShownByTheirBytes) {
  engine->script = [](const Request&) {
    auto events = answer_events({"\xe2\x82\xac"});
    events[0].tokens = {0xe2, 0x82, 0xac};
    for (const TokenId token : events[0].tokens) {
      events[0].logprobs.push_back(
          {token, -0.5f, {{token, -0.5f}, {0xe2, -1.0f}, {0xf0, -2.0f}, {'a', -3.0f}}});
    }
    return events;
  };
  start();
  const Json logprobs =
      post("/v1/completions", {{"prompt", "p"}, {"logprobs", 4}}).json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({R"(bytes:\xe2)", R"(bytes:\x82)", R"(bytes:\xac)"}));
  EXPECT_EQ(
      logprobs["top_logprobs"][1],
      (Json{
          {R"(bytes:\x82)", -0.5}, {R"(bytes:\xe2)", -1.0}, {R"(bytes:\xf0)", -2.0}, {"a", -3.0}}));
  EXPECT_EQ(logprobs["top_logprobs"][0],
            (Json{{R"(bytes:\xe2)", -0.5}, {R"(bytes:\xf0)", -2.0}, {"a", -3.0}}))
      << "of one token listed twice, the likelier entry";
}

TEST_F(CompletionsTest, TooManyAnswersAreRefusedBeforeTheirPromptsAreCopied) {
  if (!testing::PeakMemory::supported()) GTEST_SKIP() << "allocations are not counted here";
  engine->max_call_size = 100;
  start();
  const std::string prompt(30000, 'p');
  const std::pair<const char*, Json> calls[] = {
      {"/v1/completions", {{"prompt", prompt}, {"n", 128}}},
      {"/v1/chat/completions", chat_body({{"input_ids", Json(30000, 5)}, {"n", 128}})},
      {"/generate", {{"text", prompt}, {"sampling_params", {{"n", 128}}}}}};
  for (const auto& [path, body] : calls) {
    const testing::PeakMemory peak;
    const Reply reply = post(path, body);
    EXPECT_LE(peak.bytes(), 64 * 30000) << path << ": 128 prompts would be 128 * 4 * 30000";
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_THAT(error_of(reply).value("param", ""), ::testing::EndsWith("n")) << path;
  }
  EXPECT_EQ(post("/v1/completions", {{"prompt", Json(101, "a")}}).status, 400);
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(CompletionsTest, TheBestOfMoreAnswersAreShown) {
  engine->script = [](const Request& request) {
    EXPECT_TRUE(request.return_logprobs);
    const int32_t choice = request.choice_index;
    std::vector<RequestEvent> events = answer_events({fmt::format("answer {}", choice), "."});
    // Means: -3, -1, -2, -1.
    constexpr float kLogprobs[] = {-3, -1, -2, -1};
    for (RequestEvent& event : events) {
      for (const TokenId token : event.tokens) {
        event.logprobs.push_back({token, kLogprobs[choice], {}});
      }
    }
    return events;
  };
  start();
  const Json body =
      post("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 3}, {"best_of", 4}}).json();
  std::vector<std::string> texts;
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    EXPECT_TRUE(choice["logprobs"].is_null()) << "they were not requested";
    texts.push_back(choice["text"]);
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("answer 1.", "answer 3.", "answer 2.", "answer 1.",
                                            "answer 3.", "answer 2."));
  EXPECT_EQ(body["usage"]["completion_tokens"], 2 * 4 * 3) << "all were drawn";
}

TEST_F(CompletionsTest, AStreamEndsWithUsageAndDone) {
  start();
  const auto events =
      post("/v1/completions",
           {{"prompt", "p"}, {"stream", true}, {"stream_options", {{"include_usage", true}}}})
          .events();
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(Json::parse(events[0])["choices"][0]["text"], "Hello");
  EXPECT_EQ(Json::parse(events[0])["usage"], nullptr);
  EXPECT_EQ(Json::parse(events[2])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(Json::parse(events[3])["usage"]["total_tokens"], 4);
  EXPECT_EQ(events[4], "[DONE]");
}

TEST_F(CompletionsTest, AServerMayAllowFewerLogprobsAndOtherStopTexts) {
  options.answers.max_logprobs = 2;
  options.answers.max_stop = 20;
  start();
  const auto status_of = [this](const char* path, Json body, const Json& more, const char* param) {
    body.update(more);
    const Reply reply = post(path, body);
    if (reply.status == 400) {
      EXPECT_EQ(error_of(reply)["param"], param) << reply.body;
    }
    return reply.status;
  };
  const Json prompt = {{"prompt", "a"}};
  EXPECT_EQ(status_of("/v1/completions", prompt, {{"logprobs", 2}}, ""), 200);
  EXPECT_EQ(status_of("/v1/completions", prompt, {{"logprobs", 3}}, "logprobs"), 400);
  EXPECT_EQ(status_of("/v1/chat/completions", chat_body(),
                      {{"logprobs", true}, {"top_logprobs", 3}}, "top_logprobs"),
            400);
  EXPECT_EQ(status_of("/generate", {{"text", "a"}},
                      {{"return_logprob", true}, {"top_logprobs_num", 3}}, "top_logprobs_num"),
            400);
  const auto stops = [](size_t count) {
    return Json{{"stop", std::vector<std::string>(count, "x")}};
  };
  EXPECT_EQ(status_of("/v1/completions", prompt, stops(20), ""), 200);
  EXPECT_EQ(status_of("/v1/completions", prompt, stops(21), "stop"), 400);
  EXPECT_EQ(status_of("/generate", {{"text", "a"}}, {{"sampling_params", stops(21)}},
                      "sampling_params.stop"),
            400);
}

TEST_F(CompletionsTest, WrongFieldsAreRefusedByName) {
  start();
  const std::pair<Json, const char*> refusals[] = {
      {{{"model", "m"}}, "prompt"},
      {{{"prompt", Json::array()}}, "prompt"},
      {{{"prompt", ""}}, "prompt"},
      {{{"prompt", 5}}, "prompt"},
      {{{"prompt", {"a", 5}}}, "prompt"},
      {{{"prompt", {1, 200000}}}, "prompt"},
      {{{"prompt", "a"}, {"suffix", "b"}}, "suffix"},
      {{{"prompt", "a"}, {"allowed_token_ids", {1}}}, "allowed_token_ids"},
      {{{"prompt", "a"}, {"bad_words", {"x"}}}, "bad_words"},
      {{{"prompt", "a"}, {"n", 2}, {"best_of", 1}}, "best_of"},
      {{{"prompt", "a"}, {"best_of", 2}, {"stream", true}}, "best_of"},
      {{{"prompt", "a"}, {"logprobs", 21}}, "logprobs"},
      {{{"prompt", Json(std::vector<std::string>(100, "a"))}, {"n", 128}}, "n"},
      {{{"prompt", Json(std::vector<std::string>(1025, "a"))}}, "prompt"},
  };
  for (const auto& [body, param] : refusals) {
    const Reply reply = post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(error_of(reply).value("param", ""), param) << reply.body;
  }
}

TEST_F(GenerateTest, ATextIsAnswered) {
  start();
  const Json body =
      post("/generate",
           {{"text", "abc"}, {"rid", "r"}, {"sampling_params", {{"max_new_tokens", 8}}}})
          .json();
  EXPECT_EQ(body["text"], "Hello there");
  EXPECT_EQ(body["output_ids"], Json::array({1, 2, 151645}));
  EXPECT_EQ(body["meta_info"]["id"], "r");
  EXPECT_EQ(body["meta_info"]["finish_reason"].dump(), R"({"type":"stop","matched":151645})");
  EXPECT_EQ(body["meta_info"]["prompt_tokens"], 3);
  EXPECT_EQ(body["meta_info"]["completion_tokens"], 3);
  EXPECT_TRUE(body["meta_info"].contains("e2e_latency"));
  EXPECT_EQ(body["meta_info"]["total_retractions"], 0);
  EXPECT_EQ(engine->submitted().at(0).stop.max_new_tokens, 8);
}

TEST_F(GenerateTest, TheGoldenStreamIsCumulative) {
  engine->script = [](const Request&) {
    auto events = answer_events({"He", "llo"}, finish_of(FinishReason::kLength));
    events[1].finish = events[2].finish;
    events.pop_back();
    return events;
  };
  start();
  const auto events = post("/generate", {{"text", "p"}, {"rid", "r"}, {"stream", true}}).events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(events[0],
              ::testing::StartsWith(
                  R"({"text":"He","output_ids":[1],"meta_info":{"id":"r","finish_reason":null,)"));
  EXPECT_THAT(
      events[1],
      ::testing::StartsWith(
          R"({"text":"Hello","output_ids":[1,2],"meta_info":{"id":"r","finish_reason":{"type":"length","length":2},)"));
  EXPECT_EQ(events[2], "[DONE]");
}

TEST_F(GenerateTest, BatchesAndSeveralAnswersAreLists) {
  start();
  const Json batch = post("/generate", {{"text", {"a", "b"}}, {"rid", "r"}}).json();
  ASSERT_TRUE(batch.is_array());
  EXPECT_EQ(batch[0]["meta_info"]["id"], "r_0");
  EXPECT_EQ(batch[1]["meta_info"]["id"], "r_1");
  const Json several =
      post("/generate", {{"input_ids", {1, 2}}, {"sampling_params", {{"n", 3}}}}).json();
  EXPECT_EQ(several.size(), 3u);
  const Json each = post("/generate", Json::parse(R"({"text": ["a", "b"], "rid": ["x", "y"],
      "sampling_params": [{"max_new_tokens": 1}, {"max_new_tokens": 2}], "return_logprob": [true, false]})"))
                        .json();
  EXPECT_EQ(each[1]["meta_info"]["id"], "y");
  EXPECT_TRUE(each[0]["meta_info"].contains("output_token_logprobs"));
  EXPECT_FALSE(each[1]["meta_info"].contains("output_token_logprobs"));
  std::set<int> indices;
  for (const std::string& event :
       post("/generate", {{"text", {"a", "b"}}, {"stream", true}}).events()) {
    if (event != "[DONE]") indices.insert(Json::parse(event)["index"].get<int>());
  }
  EXPECT_THAT(indices, ElementsAre(0, 1));
}

TEST_F(GenerateTest, ReportsDraftsInMetaInfo) {
  start();
  const auto meta_with = [this](const DraftReport& drafts) {
    engine->script = [drafts](const Request&) {
      auto events = answer_events({"ab"});
      for (RequestEvent& event : events) event.drafts = drafts;
      return events;
    };
    return post("/generate", {{"text", "p"}}).json()["meta_info"];
  };
  const Json meta = meta_with({.verify_steps = 4, .accepted_tokens = 6, .rejected_tokens = 2});
  EXPECT_EQ(meta["spec_verify_ct"], 4);
  EXPECT_EQ(meta["spec_accept_token_num"], 6);
  EXPECT_EQ(meta["spec_draft_token_num"], 8);
  EXPECT_EQ(meta["spec_accept_length"], 2.5);
  EXPECT_EQ(meta["spec_accept_rate"], 0.75);
  const Json none = meta_with({});
  EXPECT_EQ(none["spec_accept_length"], 1.0);
  EXPECT_EQ(none["spec_accept_rate"], 0.0);
}

TEST_F(GenerateTest, LogprobsAreTriples) {
  engine->script = logprob_events;
  start();
  const Json meta = post("/generate", {{"text", "p"},
                                       {"return_logprob", true},
                                       {"top_logprobs_num", 2},
                                       {"return_text_in_logprobs", true}})
                        .json()["meta_info"];
  EXPECT_EQ(meta["output_token_logprobs"].dump(), R"([[-0.5,97,"a"],[-0.25,98,"b"]])");
  EXPECT_EQ(meta["output_top_logprobs"][0].dump(), R"([[-0.5,97,"a"],[-1.0,122,"z"]])");
  EXPECT_EQ(meta["input_token_logprobs"], Json::array());
}

TEST_F(GenerateTest, WrongFieldsAreRefusedByName) {
  start();
  const std::pair<const char*, const char*> refusals[] = {
      {R"({})", "text"},
      {R"({"text": "a", "input_ids": [1]})", "text"},
      {R"({"text": 5})", "text"},
      {R"({"input_ids": "a"})", "input_ids"},
      {R"({"text": "a", "sampling_params": 5})", "sampling_params"},
      {R"({"text": ["a", "b"], "sampling_params": [{}]})", "sampling_params"},
      {R"({"text": "a", "sampling_params": {"temperature": -1}})", "sampling_params.temperature"},
      {R"({"text": "a", "sampling_params": {"max_new_tokens": -2}})",
       "sampling_params.max_new_tokens"},
      {R"({"text": "a", "sampling_params": {"max_new_tokens": 40000}})",
       "sampling_params.max_new_tokens"},
      {R"({"text": "a", "sampling_params": {"json_schema": "{"}})", "sampling_params.json_schema"},
      {R"({"text": "a", "return_logprob": true, "logprob_start_len": 2})", "logprob_start_len"},
      {R"({"text": "a", "image_data": "x"})", "image_data"},
      {R"({"text": "a", "sampling_params": {"bad_words": ["x"]}})", "sampling_params.bad_words"},
      {R"({"text": "a", "rid": "no good"})", "rid"},
      {R"({"text": ["a", "b"], "rid": ["x"]})", "rid"},
  };
  for (const auto& [body, param] : refusals) {
    const Reply reply = connect().post_text("/generate", std::string_view(body));
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(error_of(reply).value("param", ""), param) << reply.body;
  }
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"sampling_params", {{"max_new_tokens", 0}}}}).status,
            200);
}

// A byte is a token here and the context has 32768.
TEST_F(CompletionsTest, APromptOfAListThatIsTooLongIsNamedAndEndsTheReading) {
  start();
  const std::string too_long(32769, 'x');
  const std::pair<Reply, const char*> refusals[] = {
      {post("/v1/completions", {{"prompt", {"a", too_long, Json::object()}}}), "prompt[1]"},
      {post("/generate", {{"input_ids", {{1}, {1}, std::vector<int>(32769, 1)}}}), "input_ids[2]"}};
  for (const auto& [reply, param] : refusals) {
    const Json error = error_of(reply);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["message"],
              "This model's maximum context length is 32768 tokens; the request needs 32769 for "
              "its prompt alone. Shorten the prompt.");
  }
}

TEST_F(CompletionsTest, BeyondTwiceTheContextATextIsNotCounted) {
  start();
  const std::string hopeless(65537, 'x');
  const std::pair<Reply, const char*> refusals[] = {
      {post("/v1/completions", {{"prompt", hopeless}}), "prompt"},
      {post("/v1/completions", {{"prompt", {"a", hopeless}}}), "prompt[1]"},
      {post("/generate", {{"text", hopeless}}), "text"}};
  for (const auto& [reply, param] : refusals) {
    const Json error = error_of(reply);
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(error["code"], "context_length_exceeded");
    EXPECT_EQ(error["param"], param);
    EXPECT_EQ(error["message"],
              "This model's maximum context length is 32768 tokens; the request needs at least "
              "65537 for its prompt alone. Shorten the prompt.");
  }
  EXPECT_THAT(
      std::string(error_of(post("/v1/completions", {{"prompt", hopeless.substr(1)}}))["message"]),
      HasSubstr("(65536 prompt + "));
  EXPECT_EQ(post("/tokenize", {{"prompt", hopeless}}).json()["count"], 65537);
  EXPECT_EQ(post("/tokenize", {{"messages", {{{"role", "user"}, {"content", hopeless}}}}})
                .json()["count"],
            65537 + 18);
}

TEST_F(GenerateTest, TokenizeAndBack) {
  start();
  const Json tokens = post("/tokenize", {{"prompt", "Hi"}}).json();
  EXPECT_EQ(tokens["tokens"], Json::array({'H', 'i'}));
  EXPECT_EQ(tokens["count"], 2);
  EXPECT_EQ(tokens["max_model_len"], 32768);
  EXPECT_EQ(post("/tokenize", {{"prompt", {"a", "bc"}}}).json()["count"], Json::array({1, 2}));
  EXPECT_EQ(post("/tokenize", chat_body()).json()["count"], 20);
  EXPECT_EQ(post("/detokenize", {{"tokens", {'H', 'i'}}}).json()["text"], "Hi");
  EXPECT_EQ(post("/v1/detokenize", {{"tokens", Json::parse("[[72],[105]]")}}).json()["text"],
            Json::array({"H", "i"}));
  EXPECT_EQ(post("/detokenize", {{"tokens", {-1}}}).status, 400);
  EXPECT_EQ(post("/tokenize", Json::object()).status, 400);
}

}  // namespace
}  // namespace heddle::server
