// SPDX-License-Identifier: Apache-2.0
// Conversations with Heddle's own server, whose engine is scripted.
#include "tools/served_chat.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "server/certificate.h"
#include "server/server_fixture.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const Json kHello = {{{"role", "user"}, {"content", "hello"}}};

class ServedChatTest : public server::ServerTest {
 protected:
  [[nodiscard]] std::string url() const {
    return fmt::format("{}://127.0.0.1:{}",
                       options.http.certificate_file.empty() ? "http" : "https", server->port());
  }

  std::unique_ptr<ChatModel> connect(const SamplingSettings& sampling = {}) {
    auto model = make_served_chat({.url = url(), .insecure = true}, sampling);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return model.ok() ? std::move(model).value() : nullptr;
  }
};

TEST_F(ServedChatTest, AnswersComeInPartsAndWithTheirSpeed) {
  start();
  const auto model = connect({.max_tokens = 7, .temperature = 0.5F, .top_k = 3});
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

// A host that never takes the connection: the queue of a port that nobody serves is full.
TEST(ServedChat, AConnectionThatIsNotMadeCanBeCancelled) {
  const int port = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(port, generic, size), 0);
  ASSERT_EQ(::listen(port, 0), 0);
  ASSERT_EQ(::getsockname(port, generic, &size), 0);
  std::vector<int> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    static_cast<void>(::connect(clients.back(), generic, size));
  }
  ServerCall call({.host = "127.0.0.1", .port = fmt::format("{}", ntohs(address.sin_port))}, "",
                  "test");
  std::atomic<bool> ended = false;
  Result<ServerReply> reply = internal_error("");
  std::thread asking([&] {
    reply = call.post("/v1/chat/completions", "{}", [](std::string_view) {});
    ended = true;
  });
  while (!ended) {
    call.cancel();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  asking.join();
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_TRUE(reply->was_cancelled);
  EXPECT_FALSE(call.cancel());
  for (const int client : clients) ::close(client);
  ::close(port);
}

TEST_F(ServedChatTest, AnswersComeOverTlsToo) {
  options.http.certificate_file = ::testing::TempDir() + "served_chat_certificate.pem";
  options.http.key_file = ::testing::TempDir() + "served_chat_key.pem";
  server::write_certificate(options.http.certificate_file, options.http.key_file);
  start();
  const auto model = connect();
  ASSERT_NE(model, nullptr);
  const auto answer = model->answer(kHello, [](std::string_view) {});
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_FALSE(answer->text.empty());
  const auto checked = make_served_chat({.url = url(), .model = "m"}, {});
  ASSERT_TRUE(checked.ok());
  EXPECT_THAT((*checked)->answer(kHello, [](std::string_view) {}).status().message(),
              AllOf(HasSubstr("the certificate of 127.0.0.1"), HasSubstr("--insecure"),
                    Not(HasSubstr("is the server up?"))));
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
    return make_served_chat({.url = url}, {}).status().message();
  };
  EXPECT_THAT(message("ftp://host"), HasSubstr("write http://HOST:PORT"));
  EXPECT_THAT(message("ftp://host"), HasSubstr("--url: \"ftp://host\""));
  EXPECT_THAT(message("https://127.0.0.1:1"), HasSubstr("https://127.0.0.1:1/v1/models: "));
  EXPECT_THAT(message("http://127.0.0.1:1"), HasSubstr("is the server up?"));
}

}  // namespace
}  // namespace heddle::tools
