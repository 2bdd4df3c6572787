// SPDX-License-Identifier: Apache-2.0
// Conversations with Heddle's own server, whose engine is scripted.
#include "served_chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/server_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json kHello = {{{"role", "user"}, {"content", "hello"}}};

class ServedChatTest : public server::ServerTest {
 protected:
  std::unique_ptr<ChatModel> connect(ServedChatOptions asked = {}) {
    asked.url = fmt::format("http://127.0.0.1:{}", server->port());
    auto model = make_served_chat(std::move(asked));
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return model.ok() ? std::move(model).value() : nullptr;
  }
};

TEST_F(ServedChatTest, AnswersComeInPartsAndWithTheirSpeed) {
  start();
  const auto model = connect({.sampling = {.max_tokens = 7, .temperature = 0.5F, .top_k = 3}});
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(model->description(), HasSubstr("m at http://127.0.0.1:"));
  std::string shown;
  int parts = 0;
  const auto answer = model->answer(kHello, [&](std::string_view text) {
    shown += text;
    ++parts;
  });
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(shown, answer->text);
  EXPECT_FALSE(shown.empty());
  EXPECT_GT(parts, 1);
  EXPECT_THAT(answer->speed, HasSubstr(" tokens"));
  const Request request = engine->submitted().at(0);
  EXPECT_EQ(request.stop.max_new_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.sampling.top_k, 3);
  EXPECT_FALSE(model->cancel()) << "no answer is under way";
}

TEST_F(ServedChatTest, AnAnswerThatIsCancelledEndsEarly) {
  engine->script = [](const Request&) {
    auto events = server::answer_events({"again"});
    events.pop_back();
    return events;
  };
  engine->step_microseconds = 100;
  start();
  const auto model = connect();
  ASSERT_NE(model, nullptr);
  const auto answer =
      model->answer(kHello, [&](std::string_view) { EXPECT_TRUE(model->cancel()); });
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_THAT(answer->text, ::testing::StartsWith("again"));
}

TEST_F(ServedChatTest, RefusalsSayWhatTheServerSays) {
  start();
  const auto model = connect();
  ASSERT_NE(model, nullptr);
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  const auto answer = model->answer(kHello, [](std::string_view) {});
  EXPECT_THAT(answer.status().message(), AllOf(HasSubstr(" answers "), HasSubstr("queue")));
}

TEST(ServedChat, BadAddressesAreRefused) {
  const auto message = [](const char* url) {
    return make_served_chat({.url = url}).status().message();
  };
  EXPECT_THAT(message("ftp://host"), HasSubstr("write http://HOST:PORT"));
  EXPECT_THAT(message("https://host"), HasSubstr("only http is spoken"));
  EXPECT_THAT(message("http://127.0.0.1:1"), HasSubstr("is the server up?"));
}

}  // namespace
}  // namespace heddle::tools
