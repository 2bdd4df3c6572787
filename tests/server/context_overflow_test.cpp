// SPDX-License-Identifier: Apache-2.0
// Requests that the context cannot hold: in the words of each API, by the names of its fields.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A route, a body whose prompt has as many tokens as its text plus some, and the limit's field.
struct Limited {
  const char* path;
  Json body;
  std::vector<std::string> field;
  std::string shown;  // in errors
};

class ContextOverflowTest : public ServerTest {
 protected:
  static constexpr int64_t kContext = 100;

  ContextOverflowTest() { engine->mutable_model_info().context_length = kContext; }

  static Json messages_of(const std::string& text) {
    return Json::array({{{"role", "user"}, {"content", text}}});
  }

  // Every route that generates, with every name that it has for the limit.
  static std::vector<Limited> every_limit(const std::string& text = "Hi") {
    return {
        {kChat, {{"messages", messages_of(text)}}, {"max_tokens"}, "max_tokens"},
        {kChat,
         {{"messages", messages_of(text)}},
         {"max_completion_tokens"},
         "max_completion_tokens"},
        {"/v1/completions", {{"prompt", text}}, {"max_tokens"}, "max_tokens"},
        {"/v1/responses", {{"input", text}}, {"max_output_tokens"}, "max_output_tokens"},
        {"/v1/responses", {{"input", text}}, {"max_tokens"}, "max_tokens"},
        {"/generate",
         {{"text", text}},
         {"sampling_params", "max_new_tokens"},
         "sampling_params.max_new_tokens"},
        {"/v1/messages", {{"messages", messages_of(text)}}, {"max_tokens"}, "max_tokens"},
        {"/api/chat",
         {{"messages", messages_of(text)}, {"stream", false}},
         {"options", "num_predict"},
         "options.num_predict"},
        {"/api/generate",
         {{"prompt", text}, {"stream", false}},
         {"options", "num_predict"},
         "options.num_predict"},
    };
  }

  Reply ask(const Limited& limited, int64_t limit) const {
    Json body = limited.body;
    Json* place = &body;
    for (const std::string& name : limited.field) place = &(*place)[name];
    *place = limit;
    return post(limited.path, body);
  }

  [[nodiscard]] int64_t prompt_tokens() const {
    return std::ssize(engine->submitted().back().prompt);
  }

  [[nodiscard]] int64_t granted_tokens() const {
    return engine->submitted().back().stop.max_new_tokens;
  }

  static std::string message_of(const Reply& reply) {
    const Json error = reply.json()["error"];
    return error.is_string() ? error.get<std::string>() : error["message"].get<std::string>();
  }
};

TEST_F(ContextOverflowTest, ErrorsNameTheFieldThatWasSentAndTheNumberThatFits) {
  options.answers.max_tokens_overflow = MaxTokensOverflow::kError;
  start();
  for (const Limited& limited : every_limit()) {
    SCOPED_TRACE(fmt::format("{} {}", limited.path, limited.shown));
    ASSERT_EQ(ask(limited, 5).status, 200);
    const int64_t room = kContext - prompt_tokens();
    EXPECT_EQ(ask(limited, room).status, 200) << "what fits to the last token";
    EXPECT_EQ(granted_tokens(), room);
    const Reply reply = ask(limited, room + 1);
    ASSERT_EQ(reply.status, 400) << reply.body;
    if (std::string_view(limited.path) == "/v1/messages") {
      EXPECT_EQ(message_of(reply),
                fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}, "
                            "decrease input length or `max_tokens` and try again",
                            kContext - room, room + 1, kContext));
      continue;
    }
    EXPECT_EQ(message_of(reply),
              fmt::format("This model's maximum context length is {} tokens; the request needs {} "
                          "({} prompt + {} output). Shorten the prompt, or lower `{}` to {}.",
                          kContext, kContext + 1, kContext - room, room + 1, limited.shown, room));
    if (!std::string_view(limited.path).starts_with("/api/")) {
      EXPECT_EQ(error_of(reply)["param"], limited.shown);
      EXPECT_EQ(error_of(reply)["code"], "context_length_exceeded");
    }
  }
}

TEST_F(ContextOverflowTest, TheNumberThatFitsFitsEveryPromptOfAList) {
  start();
  const auto ids = [](size_t count) { return Json(count, 5); };
  const std::string five(5, 'x');
  const std::string twenty(20, 'x');
  const std::string forty(40, 'x');
  const std::vector<std::pair<const char*, Json>> calls = {
      {"/v1/completions", {{"prompt", {five, twenty, forty, five}}}},
      {"/v1/completions", {{"prompt", {forty, five}}}},
      {"/v1/completions", {{"prompt", {ids(5), ids(40), ids(20)}}}},
      {"/v1/completions", {{"prompt", {five, forty}}, {"n", 2}}},
      {"/v1/completions", {{"prompt", {five, forty}}, {"echo", true}}},
      {"/generate", {{"text", {five, twenty, forty}}}},
      {"/generate", {{"input_ids", {ids(5), ids(40)}}}}};
  for (const auto& [path, call] : calls) {
    SCOPED_TRACE(path + call.dump());
    const bool is_native = std::string_view(path) == "/generate";
    const auto with = [&](int64_t limit) {
      Json body = call;
      is_native ? body["sampling_params"]["max_new_tokens"] = limit : body["max_tokens"] = limit;
      return post(path, body);
    };
    for (const int64_t limit : {61, 90, 500}) {
      const Reply reply = with(limit);
      ASSERT_EQ(reply.status, 400) << reply.body;
      EXPECT_THAT(message_of(reply), HasSubstr("` to 60.")) << limit;
    }
    EXPECT_EQ(with(60).status, 200);
  }
  // Limits of their own.
  const Reply reply =
      post("/generate", {{"text", {five, twenty}},
                         {"sampling_params", {{{"max_new_tokens", 96}}, {{"max_new_tokens", 1}}}}});
  EXPECT_THAT(message_of(reply), HasSubstr("` to 95."));
}

TEST_F(ContextOverflowTest, TheLimitIsCutToWhatFitsWhereThatIsWanted) {
  options.answers.max_tokens_overflow = MaxTokensOverflow::kClamp;
  start();
  for (const Limited& limited : every_limit()) {
    SCOPED_TRACE(fmt::format("{} {}", limited.path, limited.shown));
    EXPECT_EQ(ask(limited, 32000).status, 200);
    EXPECT_EQ(granted_tokens(), kContext - prompt_tokens());
    EXPECT_EQ(ask(limited, 3).status, 200);
    EXPECT_EQ(granted_tokens(), 3);
  }
  EXPECT_EQ(post(kChat, chat_body({{"max_tokens", 500}, {"min_tokens", 400}})).status, 200);
  EXPECT_EQ(engine->submitted().back().stop.min_new_tokens, granted_tokens());
}

TEST_F(ContextOverflowTest, OllamasRoutesCutUnlessToldOtherwise) {
  start();
  for (const Limited& limited : every_limit()) {
    SCOPED_TRACE(fmt::format("{} {}", limited.path, limited.shown));
    const bool is_ollama = std::string_view(limited.path).starts_with("/api/");
    EXPECT_EQ(ask(limited, 32000).status, is_ollama ? 200 : 400);
    if (!is_ollama) continue;
    EXPECT_EQ(granted_tokens(), kContext - prompt_tokens());
  }
}

TEST_F(ContextOverflowTest, AnInputThatDoesNotFitIsAnErrorWhateverIsCut) {
  for (const MaxTokensOverflow overflow : {MaxTokensOverflow::kByApi, MaxTokensOverflow::kClamp}) {
    server.reset();
    if (engine_to_be == nullptr) {
      engine_to_be = std::make_unique<FakeEngine>();
      engine = engine_to_be.get();
      engine->mutable_model_info().context_length = kContext;
    }
    options.answers.max_tokens_overflow = overflow;
    start();
    for (const int num_bytes : {120, 900}) {  // the longer one is not counted to its end
      for (const Limited& limited : every_limit(std::string(static_cast<size_t>(num_bytes), 'x'))) {
        SCOPED_TRACE(fmt::format("{} {}", limited.path, limited.shown));
        const Reply reply = ask(limited, 5);
        EXPECT_EQ(reply.status, 400) << reply.body;
        EXPECT_THAT(message_of(reply), Not(HasSubstr(limited.shown)));
        const bool is_anthropic = std::string_view(limited.path) == "/v1/messages";
        EXPECT_THAT(message_of(reply),
                    HasSubstr(is_anthropic ? "prompt is too long: "
                                           : "maximum context length is 100 tokens"));
        EXPECT_THAT(message_of(reply),
                    HasSubstr(is_anthropic ? " tokens > 100 maximum" : "Shorten the prompt."));
      }
    }
  }
}

TEST_F(ContextOverflowTest, AnthropicsClientsFindTheNumbersTheyLookFor) {
  start();
  const auto message = [this](size_t num_bytes, Json more) {
    Json body = {{"max_tokens", 5}, {"messages", messages_of(std::string(num_bytes, 'x'))}};
    body.update(more);
    const Reply reply = post("/v1/messages", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error");
    return message_of(reply);
  };
  const size_t around = std::string("user: |assistant: ").size();
  const auto too_long = "prompt is too long: 101 tokens > 100 maximum";
  EXPECT_EQ(message(101 - around, Json::object()), too_long);
  EXPECT_EQ(message(101 - around, {{"stream", true}}), too_long);
  EXPECT_EQ(message(100 - around, Json::object()), "prompt is too long: 100 tokens > 99 maximum")
      << "there is no room for a token of output";
  EXPECT_EQ(message(99 - around, {{"stream", true}}),
            "input length and `max_tokens` exceed context limit: 99 + 5 > 100, decrease input "
            "length or `max_tokens` and try again");
  Json body = {{"messages", messages_of(std::string(500, 'x'))}};
  EXPECT_EQ(post("/v1/messages/count_tokens", body).json()["input_tokens"], 500 + around)
      << "counting has no limit";
}

TEST_F(ContextOverflowTest, ALimitThatNoNumberHoldsIsReported) {
  start();
  const Reply reply = post(kChat, chat_body({{"max_tokens", 9223372036854775807}}));
  EXPECT_THAT(message_of(reply), HasSubstr("needs 9223372036854775807 ("));
  EXPECT_THAT(message_of(reply), HasSubstr("lower `max_tokens` to 80."));
}

}  // namespace
}  // namespace heddle::server
