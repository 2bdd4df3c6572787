// SPDX-License-Identifier: Apache-2.0
// The routes that steer the engine for everybody: who may use them, and what they say when too many
// do.
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class ControlTest : public ServerTest {
 protected:
  // Every control route with a body that it takes.
  static constexpr std::pair<const char*, const char*> kControls[] = {
      {"/flush_cache", ""},
      {"/reset_prefix_cache", ""},
      {"/pause_generation", R"({"mode": "in_place"})"},
      {"/continue_generation", ""},
      {"/abort_request", R"({"rid": "x"})"},
      {"/update_weight_version", R"({"new_version": "x"})"},
      {"/update_weights_from_disk", R"({"model_path": "x"})"},
      {"/configure_logging", ""},
      {"/set_internal_state", R"({"server_args": {}})"},
      {"/slow_down", "{}"}};

  [[nodiscard]] Reply call(const char* path, const char* body, std::string_view headers) const {
    return connect().call("POST", path, body, headers);
  }
};

TEST_F(ControlTest, FormsOfWebPagesAreRefused) {
  start();
  for (const auto& [path, body] : kControls) {
    for (const char* type : {"text/plain", "Text/Plain; charset=UTF-8", "multipart/form-data",
                             "application/x-www-form-urlencoded"}) {
      const Reply reply = call(path, body, fmt::format("Content-Type: {}\r\n", type));
      EXPECT_EQ(reply.status, 415) << path << " " << type;
      EXPECT_EQ(error_of(reply)["code"], "unsupported_media_type");
    }
    EXPECT_EQ(call(path, body, "").status, 200) << path;
  }
  EXPECT_EQ(engine->pauses().size(), 1u);
}

TEST_F(ControlTest, PagesOfOtherOriginsAreRefused) {
  start();
  const std::string own =
      fmt::format("Origin: http://LocalHost:{0}\r\nHost: localhost:{0}\r\n", server->port());
  for (const auto& [path, body] : kControls) {
    for (const char* header : {"Origin: http://example.com", "Origin: null",
                               "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"}) {
      const Reply reply = call(path, body, fmt::format("{}\r\n", header));
      EXPECT_EQ(reply.status, 403) << path << " " << header;
      EXPECT_EQ(error_of(reply)["code"], "cross_origin");
    }
    EXPECT_EQ(call(path, body, "Sec-Fetch-Site: none\r\n").status, 200) << path;
    HttpClient page(server->port());
    page.send(fmt::format("POST {} HTTP/1.1\r\n{}Content-Length: {}\r\n\r\n{}", path, own,
                          std::string_view(body).size(), body));
    EXPECT_EQ(page.read_reply().status, 200) << path << ": a page of the server's own";
  }
  EXPECT_EQ(connect().call("GET", "/flush_cache", {}, "Sec-Fetch-Site: cross-site\r\n").status, 403)
      << "an image of a page is enough for this one";
  EXPECT_EQ(connect().call("GET", "/health", {}, "Origin: http://example.com\r\n").status, 200);
}

TEST_F(ControlTest, WithAKeyAnyOriginMaySteer) {
  options.api_key = "secret";
  start();
  for (const auto& [path, body] : kControls) {
    EXPECT_EQ(call(path, body, "Origin: http://example.com\r\nx-api-key: secret\r\n").status, 200)
        << path;
  }
}

TEST_F(ControlTest, RefusesControlCallsBeyondTheirBound) {
  start();
  engine->set_control_refusal(
      resource_exhausted("control_queue_full: 64 requests to clear the cache wait already"));
  for (const char* path : {"/flush_cache", "/pause_generation", "/continue_generation"}) {
    const Reply reply = call(path, "", "");
    EXPECT_EQ(reply.status, 503) << path;
    EXPECT_EQ(error_of(reply)["code"], "control_queue_full");
    EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("64 requests"));
    EXPECT_TRUE(reply.headers.contains("retry-after"));
  }
}

}  // namespace
}  // namespace heddle::server
