// SPDX-License-Identifier: Apache-2.0
// A real server on a free port with a FakeEngine behind it.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <heddle/constraint.h>

#include "core/log.h"
#include "server/fake_codec.h"
#include "server/fake_engine.h"
#include "server/http_client.h"
#include "server/server.h"

namespace heddle::server {

using Json = nlohmann::ordered_json;

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { set_log_level(LogLevel::kError); }

  ~ServerTest() override { set_log_level(LogLevel::kInfo); }

  // Change `options` and `engine` before start().
  ServerOptions options = [] {
    ServerOptions defaults;
    defaults.http.port = 0;
    defaults.served_model_names = {"m"};
    defaults.unix_time = [] { return int64_t{1700000000}; };
    return defaults;
  }();
  std::unique_ptr<FakeEngine> engine_to_be = std::make_unique<FakeEngine>();
  FakeEngine* engine = engine_to_be.get();  // owned by the server once it serves
  Json configuration = Json::object();
  std::shared_ptr<FakeCodec::Gate> codec_gate = std::make_shared<FakeCodec::Gate>();
  std::unique_ptr<Server> server;

  void listen() {
    auto result = Server::listen(options);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    server = std::move(result).value();
  }

  void serve() {
    server->start_serving(std::move(engine_to_be), std::make_unique<FakeCodec>(codec_gate),
                          configuration);
  }

  void start() {
    listen();
    serve();
  }

  [[nodiscard]] HttpClient connect() const { return HttpClient(server->port()); }

  // NOLINTNEXTLINE(modernize-use-nodiscard): some calls are made for what they do
  Reply post(std::string_view path, const Json& body) const {
    return HttpClient(server->port()).post(path, body);
  }

  // NOLINTNEXTLINE(modernize-use-nodiscard): likewise
  Reply get(std::string_view path) const { return HttpClient(server->port()).call("GET", path); }

  // The form of the last request's answer behind `text`; null where no answer begins with that.
  [[nodiscard]] std::unique_ptr<ConstraintState> form_after(std::string_view text) const {
    const auto constraint = engine->submitted().back().constraint;
    EXPECT_NE(constraint, nullptr);
    if (constraint == nullptr) return nullptr;
    auto state = constraint->start();
    for (const char byte : text) {
      if (!state->accept(static_cast<unsigned char>(byte))) return nullptr;
    }
    return state;
  }

  // Whether the last request lets `text` be a whole answer.
  [[nodiscard]] bool allows(std::string_view text) const {
    const auto form = form_after(text);
    return form != nullptr && form->is_complete();
  }

  // Waits until `condition` holds; false after two minutes: sanitized runs on a busy machine are
  // slow.
  template <typename Condition>
  static bool eventually(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (std::chrono::steady_clock::now() < deadline) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
};

inline constexpr const char* kChat = "/v1/chat/completions";

inline Json chat_body(const Json& extra = Json::object()) {
  Json body = {{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  body.update(extra);
  return body;
}

// The error of a reply, checked for the two spellings every error body carries.
inline Json error_of(const Reply& reply) {
  const Json body = reply.json();
  if (!body.is_object() || !body.contains("error")) return Json::object();
  EXPECT_EQ(body["object"], "error");
  EXPECT_EQ(body["code"], reply.status);
  EXPECT_EQ(body["message"], body["error"]["message"]);
  EXPECT_EQ(body["param"], body["error"]["param"]);
  return body["error"];
}

}  // namespace heddle::server
