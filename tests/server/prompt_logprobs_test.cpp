// SPDX-License-Identifier: Apache-2.0
// Logprobs of prompts: `logprob_start_len` of /generate and `echo` of /v1/completions.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "server/real_engine_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Token t, wherever it is listed, has -t / 4; token 0 is masked.
std::vector<float> listed_scores(const Request& request) {
  std::vector<float> scores;
  for (const TokenId token : request.logprob_tokens) {
    scores.push_back(token == 0 ? -std::numeric_limits<float>::infinity()
                                : -static_cast<float>(token) / 4);
  }
  return scores;
}

// Scores the prompt as the engine would: token t has -t / 8, and alternatives below it.
std::vector<TokenLogprob> scores_of(const Request& request) {
  std::vector<TokenLogprob> scores;
  if (!request.prompt_logprobs) return scores;
  for (size_t i = static_cast<size_t>(std::max<int64_t>(request.prompt_logprobs->from, 1));
       i < request.prompt.size(); ++i) {
    TokenLogprob& score = scores.emplace_back();
    score.token = request.prompt[i];
    score.logprob = -static_cast<float>(i) / 8;
    for (int32_t k = 0; k < request.prompt_logprobs->top; ++k) {
      score.top.emplace_back('p' + k, score.logprob - static_cast<float>(k));
    }
    score.listed = listed_scores(request);
  }
  return scores;
}

class PromptLogprobsTest : public ServerTest {
 protected:
  void start_scoring() {
    engine->script = [](const Request& request) {
      auto events = answer_events({"x", "y"}, finish_of(FinishReason::kLength));
      if (request.stop.max_new_tokens == 0) events = answer_events({}, *events.back().finish);
      events[0].prompt_logprobs = scores_of(request);
      for (RequestEvent& event : events) {
        for (const TokenId token : event.tokens) {
          event.logprobs.push_back({token, -0.5f, {}, listed_scores(request)});
        }
      }
      return events;
    };
    start();
  }

  static Json generate(int64_t from) {
    return {{"text", "abc"}, {"return_logprob", true}, {"logprob_start_len", from}};
  }
};

TEST_F(PromptLogprobsTest, GenerateShowsThemFromWhereTheyAreAskedFor) {
  start_scoring();
  const Json whole = post("/generate", generate(0)).json()["meta_info"];
  EXPECT_EQ(whole["input_token_logprobs"].dump(),
            "[[null,97,null],[-0.125,98,null],[-0.25,99,null]]");
  EXPECT_EQ(whole["input_top_logprobs"].dump(), "[null,[],[]]");
  EXPECT_EQ(whole["output_token_logprobs"].size(), 2u);
  EXPECT_EQ(engine->submitted().at(0).prompt_logprobs->from, 0);

  Json body = generate(2);
  body["top_logprobs_num"] = 2;
  body["return_text_in_logprobs"] = true;
  const Json last = post("/generate", body).json()["meta_info"];
  EXPECT_EQ(last["input_token_logprobs"].dump(), R"([[-0.25,99,"c"]])");
  EXPECT_EQ(last["input_top_logprobs"].dump(), R"([[[-0.25,112,"p"],[-1.25,113,"q"]]])");

  for (const int64_t none : {-1, 3}) {
    const Json meta = post("/generate", generate(none)).json()["meta_info"];
    EXPECT_EQ(meta["input_token_logprobs"], Json::array()) << none;
    EXPECT_EQ(meta["input_top_logprobs"], Json::array()) << none;
  }
  EXPECT_FALSE(engine->submitted().at(2).prompt_logprobs.has_value());
  EXPECT_FALSE(post("/generate", {{"text", "abc"}, {"logprob_start_len", 0}})
                   .json()["meta_info"]
                   .contains("input_token_logprobs"));
  EXPECT_FALSE(engine->submitted().back().prompt_logprobs.has_value());
}

TEST_F(PromptLogprobsTest, ListedTokensAreShownBesideEveryToken) {
  start_scoring();
  Json body = generate(1);
  body["token_ids_logprob"] = {2, 0};
  body["return_text_in_logprobs"] = true;
  const Json meta = post("/generate", body).json()["meta_info"];
  const std::string each = R"([[-0.5,2,"\u0002"],[-9999.0,0,"\u0000"]])";
  EXPECT_EQ(meta["input_token_ids_logprobs"].dump(), fmt::format("[{},{}]", each, each));
  EXPECT_EQ(meta["output_token_ids_logprobs"].dump(), fmt::format("[{},{}]", each, each));

  const Json batch = post("/generate", {{"text", {"ab", "cde", "f"}},
                                        {"return_logprob", true},
                                        {"logprob_start_len", 0},
                                        {"token_ids_logprob", {{4}, {8, 4}, nullptr}}})
                         .json();
  EXPECT_EQ(batch[0]["meta_info"]["input_token_ids_logprobs"].dump(), "[null,[[-1.0,4,null]]]");
  EXPECT_EQ(batch[1]["meta_info"]["output_token_ids_logprobs"][1].dump(),
            "[[-2.0,8,null],[-1.0,4,null]]");
  EXPECT_FALSE(batch[2]["meta_info"].contains("output_token_ids_logprobs"));
  const Json same =
      post("/generate",
           {{"text", {"ab", "cde"}}, {"return_logprob", true}, {"token_ids_logprob", {4}}})
          .json();
  for (const Json& answer : same) {
    EXPECT_EQ(answer["meta_info"]["output_token_ids_logprobs"][0].dump(), "[[-1.0,4,null]]");
    EXPECT_EQ(answer["meta_info"]["input_token_ids_logprobs"], Json::array());
  }
  // Nothing is listed where no logprobs are wanted.
  EXPECT_EQ(post("/generate", {{"text", "a"}, {"token_ids_logprob", {4}}}).status, 200);
  EXPECT_TRUE(engine->submitted().back().logprob_tokens.empty());
}

TEST_F(PromptLogprobsTest, WrongListsOfTokensAreRefusedByName) {
  start_scoring();
  for (const Json& wrong :
       {Json("x"), Json(4), Json({-1}), Json({1 << 20}), Json({1.5}), Json({"a"}), Json({{1}, {2}}),
        Json({{{1}}}), Json(std::vector<int>(129, 1))}) {
    const Reply reply =
        post("/generate", {{"text", "a"}, {"return_logprob", true}, {"token_ids_logprob", wrong}});
    EXPECT_EQ(reply.status, 400) << wrong.dump();
    EXPECT_EQ(error_of(reply)["param"], "token_ids_logprob") << wrong.dump();
  }
}

TEST_F(PromptLogprobsTest, EachPromptOfABatchHasItsOwn) {
  start_scoring();
  const Json batch = post("/generate", {{"text", {"ab", "cde"}},
                                        {"return_logprob", {true, true}},
                                        {"logprob_start_len", {0, 2}},
                                        {"sampling_params", {{"n", 2}}}})
                         .json();
  ASSERT_EQ(batch.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batch[i]["meta_info"]["input_token_logprobs"].dump(),
              i < 2 ? "[[null,97,null],[-0.125,98,null]]" : "[[-0.25,101,null]]");
  }
}

TEST_F(PromptLogprobsTest, StreamsOfGenerateShowThemInEveryEventOrInTheFirst) {
  for (const bool increments : {false, true}) {
    SCOPED_TRACE(increments);
    options.answers.stream_increments = increments;
    start_scoring();
    Json body = generate(0);
    body["stream"] = true;
    body["token_ids_logprob"] = {4};
    const std::vector<std::string> events = post("/generate", body).events();
    ASSERT_EQ(events.size(), 4u);
    for (size_t i = 0; i < 3; ++i) {
      const Json meta = Json::parse(events[i])["meta_info"];
      const bool shown = i == 0 || !increments;
      EXPECT_EQ(meta["input_token_logprobs"].dump(),
                shown ? "[[null,97,null],[-0.125,98,null],[-0.25,99,null]]" : "[]");
      EXPECT_EQ(meta["input_top_logprobs"].dump(), shown ? "[null,[],[]]" : "[]");
      const std::string listed = "[[-1.0,4,null]]";
      EXPECT_EQ(meta["input_token_ids_logprobs"].dump(),
                shown ? fmt::format("[null,{},{}]", listed, listed) : "[]");
      EXPECT_EQ(meta["output_token_ids_logprobs"].size(), meta["output_token_logprobs"].size());
      for (const Json& each : meta["output_token_ids_logprobs"]) EXPECT_EQ(each.dump(), listed);
    }
    server = nullptr;
    engine_to_be = std::make_unique<FakeEngine>();
    engine = engine_to_be.get();
  }
}

TEST_F(PromptLogprobsTest, CompletionsEchoThemBeforeTheOutputs) {
  start_scoring();
  const Json choice =
      post("/v1/completions", {{"prompt", "h\xc3\xa9llo"}, {"echo", true}, {"logprobs", 1}})
          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "h\xc3\xa9lloxy");
  const Json& logprobs = choice["logprobs"];
  EXPECT_EQ(logprobs["tokens"].dump(),
            R"(["h","bytes:\\xc3","bytes:\\xa9","l","l","o","\u0001","\u0002"])");
  EXPECT_EQ(logprobs["token_logprobs"].dump(), "[null,-0.125,-0.25,-0.375,-0.5,-0.625,-0.5,-0.5]");
  EXPECT_EQ(logprobs["top_logprobs"].dump(),
            R"([null,{"p":-0.125},{"p":-0.25},{"p":-0.375},{"p":-0.5},{"p":-0.625},{},{}])");
  EXPECT_EQ(logprobs["text_offset"].dump(), "[0,1,2,2,3,4,5,6]");
}

TEST_F(PromptLogprobsTest, WithEchoNoTokenNeedsToBeDrawn) {
  start_scoring();
  const Json body = {{"prompt", {"ab", "c"}}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 0}};
  const Json choices = post("/v1/completions", body).json()["choices"];
  EXPECT_EQ(choices[0]["text"], "ab");
  EXPECT_EQ(choices[0]["finish_reason"], "length");
  EXPECT_EQ(choices[0]["logprobs"]["tokens"].dump(), R"(["a","b"])");
  EXPECT_EQ(choices[0]["logprobs"]["token_logprobs"].dump(), "[null,-0.125]");
  EXPECT_EQ(choices[1]["logprobs"]["token_logprobs"].dump(), "[null]");
  EXPECT_EQ(engine->submitted().at(0).stop.max_new_tokens, 0);
  const Json plain =
      post("/v1/completions", {{"prompt", "ab"}, {"echo", true}, {"max_tokens", 0}}).json();
  EXPECT_EQ(plain["choices"][0]["text"], "ab");
  EXPECT_FALSE(engine->submitted().back().prompt_logprobs.has_value());
}

TEST_F(PromptLogprobsTest, AStreamedCompletionBeginsWithThem) {
  start_scoring();
  const std::vector<std::string> events =
      post("/v1/completions", {{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"stream", true}})
          .events();
  ASSERT_EQ(events.size(), 4u);
  const Json first = Json::parse(events[0])["choices"][0];
  EXPECT_EQ(first["text"], "abx");
  EXPECT_EQ(first["logprobs"]["token_logprobs"].dump(), "[null,-0.125,-0.5]");
  EXPECT_EQ(first["logprobs"]["text_offset"].dump(), "[0,1,2]");
  const Json second = Json::parse(events[1])["choices"][0];
  EXPECT_EQ(second["logprobs"]["token_logprobs"].dump(), "[-0.5]");
  EXPECT_EQ(second["logprobs"]["text_offset"].dump(), "[3]");
}

TEST_F(PromptLogprobsTest, WrongFieldsAreRefusedByName) {
  start_scoring();
  const auto expect_refused = [this](const char* path, const Json& body, const char* param) {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(error_of(reply).value("param", ""), param) << reply.body;
    return std::string(error_of(reply).value("message", ""));
  };
  EXPECT_EQ(expect_refused("/generate", generate(4), "logprob_start_len"),
            "`logprob_start_len` is 4; the prompt has 3 tokens.");
  for (const Json& wrong : {Json(-2), Json(0.5), Json("0"), Json(int64_t{1} << 62)}) {
    Json body = generate(0);
    body["logprob_start_len"] = wrong;
    expect_refused("/generate", body, "logprob_start_len");
  }
  expect_refused("/v1/completions", {{"prompt", "a"}, {"max_tokens", 0}}, "max_tokens");
  expect_refused("/v1/completions", {{"prompt", "a"}, {"max_tokens", -2}, {"echo", true}},
                 "max_tokens");
  expect_refused("/v1/completions", {{"prompt", "a"}, {"prompt_logprobs", 1}}, "prompt_logprobs");
  expect_refused("/v1/chat/completions", chat_body({{"prompt_logprobs", 1}}), "prompt_logprobs");
}

// About 35 bytes a logprob: of 30,000 tokens with 20 alternatives each, 22 MB.
TEST_F(PromptLogprobsTest, TheirSizeCountsInTheLimitsOfAnswersAndEvents) {
  engine->mutable_model_info().context_length = 1 << 20;
  start_scoring();
  const Json prompt(100000, 97);
  Json body = {
      {"prompt", prompt}, {"echo", true}, {"logprobs", 20}, {"max_tokens", 0}, {"stream", true}};
  Reply reply = post("/v1/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "echo");
  EXPECT_THAT(std::string(error_of(reply)["message"]),
              StartsWith("The logprobs of the prompt take about 70 MiB of JSON in one event of the "
                         "stream (100000 tokens, each with 21 logprobs); at most 64 MiB"));
  body["stream"] = false;
  body["n"] = 40;
  reply = post("/v1/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "echo") << "no limit of tokens would help";
  EXPECT_THAT(std::string(error_of(reply)["message"]),
              StartsWith("The logprobs of the prompts take about "));
  body["max_tokens"] = 900000;
  body["prompt"] = "ab";
  reply = post("/v1/completions", body);
  EXPECT_EQ(error_of(reply)["param"], "max_tokens");
  EXPECT_THAT(std::string(error_of(reply)["message"]),
              HasSubstr("beside the logprobs of the prompt"));
  reply = post("/generate", {{"input_ids", prompt},
                             {"return_logprob", true},
                             {"logprob_start_len", 0},
                             {"top_logprobs_num", 20},
                             {"stream", true}});
  EXPECT_EQ(error_of(reply).value("param", ""), "logprob_start_len") << reply.body.substr(0, 300);
  reply = post("/generate", {{"input_ids", prompt},
                             {"return_logprob", true},
                             {"logprob_start_len", 99000},
                             {"top_logprobs_num", 20},
                             {"stream", true}});
  EXPECT_EQ(reply.status, 200) << "few of them";
}

class RealPromptLogprobsTest : public RealEngineFixture {};

// As evaluation harnesses ask: how likely a continuation is, and whether it is what the model would
// have said.
TEST_F(RealPromptLogprobsTest, AContinuationIsScoredAsItWasDrawn) {
  engine_options.exact = true;
  start_real();
  const Json drawn = post("/v1/completions", {{"prompt", "Once upon a time"},
                                              {"temperature", 0},
                                              {"max_tokens", 8},
                                              {"ignore_eos", true},
                                              {"logprobs", 1},
                                              {"return_token_ids", true}})
                         .json()["choices"][0];
  Json ids = drawn["prompt_token_ids"];
  const size_t prompt_tokens = ids.size();
  for (const Json& id : drawn["token_ids"]) ids.push_back(id);
  for (int round = 0; round < 2; ++round) {  // the second one finds the prompt in the cache
    const Json echoed = post("/v1/completions", {{"prompt", ids},
                                                 {"temperature", 0},
                                                 {"max_tokens", 1},
                                                 {"echo", true},
                                                 {"logprobs", 1}})
                            .json()["choices"][0]["logprobs"];
    ASSERT_EQ(echoed["tokens"].size(), ids.size() + 1);
    EXPECT_EQ(echoed["token_logprobs"][0], nullptr);
    EXPECT_EQ(echoed["top_logprobs"][0], nullptr);
    for (size_t i = 0; i < 8; ++i) {
      const size_t at = prompt_tokens + i;
      EXPECT_EQ(echoed["tokens"][at], drawn["logprobs"]["tokens"][i]);
      EXPECT_EQ(echoed["token_logprobs"][at], drawn["logprobs"]["token_logprobs"][i]);
      EXPECT_EQ(echoed["top_logprobs"][at], drawn["logprobs"]["top_logprobs"][i])
          << "it is the best one";
    }
    const Json& offsets = echoed["text_offset"];
    EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  }
  const Json native = post("/generate", {{"input_ids", ids},
                                         {"sampling_params", {{"max_new_tokens", 0}}},
                                         {"return_logprob", true},
                                         {"logprob_start_len", prompt_tokens}})
                          .json()["meta_info"];
  ASSERT_EQ(native["input_token_logprobs"].size(), 8u);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(native["input_token_logprobs"][i][0], drawn["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(native["input_token_logprobs"][i][1], drawn["token_ids"][i]);
  }
  EXPECT_EQ(native["completion_tokens"], 0);
}

// The text shows no special tokens, so they take no place in it.
TEST_F(RealPromptLogprobsTest, TokensThatTheEchoLeavesOutTakeNoPlace) {
  start_real();
  const Json hello = post("/tokenize", {{"prompt", "Hello"}}).json()["tokens"];
  const Json special = post("/tokenize", {{"prompt", "<|im_start|>"}}).json()["tokens"];
  ASSERT_EQ(special.size(), 1u);
  Json ids = special;
  for (const Json& id : hello) ids.push_back(id);
  ids.push_back(special[0]);
  const Json choice =
      post("/v1/completions", {{"prompt", ids}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}})
          .json()["choices"][0];
  EXPECT_EQ(choice["text"], "Hello");
  const Json& offsets = choice["logprobs"]["text_offset"];
  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[1], 0);
  EXPECT_EQ(offsets.back(), 5);
  const Json written =
      post("/v1/completions",
           {{"prompt", "<|im_start|>Hello"}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}})
          .json()["choices"][0];
  EXPECT_EQ(written["text"], "<|im_start|>Hello");
  EXPECT_EQ(written["logprobs"]["text_offset"][1], 12) << "here they are shown";
}

}  // namespace
}  // namespace heddle::server
