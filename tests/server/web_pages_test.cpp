// SPDX-License-Identifier: Apache-2.0
// Requests that browsers send for web pages of other origins, to a server without API keys: which
// routes accept them and which refuse.
#include <string>

#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class WebPagesTest : public ServerTest {
 protected:
  // As the browser of a visitor of https://evil.example sends it.
  [[nodiscard]] Reply as_page(std::string_view method, std::string_view path,
                              const Json& body = nullptr) const {
    return connect().call(method, path, body.is_null() ? "" : body.dump(),
                          "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n");
  }

  // As the same page does under a name of its own that it has pointed to this machine.
  [[nodiscard]] Reply as_rebound(std::string_view method, std::string_view path,
                                 std::string_view body = {}) const {
    HttpClient client(server->port());
    client.send(
        fmt::format("{} {} HTTP/1.1\r\nHost: evil.example:{}\r\nOrigin: "
                    "http://evil.example:{}\r\nSec-Fetch-Site: same-origin\r\n"
                    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                    method, path, server->port(), server->port(), body.size(), body));
    return client.read_reply();
  }
};

TEST_F(WebPagesTest, APageSeesAndChangesNothingThatIsStored) {
  start();
  const std::string kept = post("/v1/responses", {{"input", "Hi"}}).json()["id"];
  const std::string path = "/v1/responses/" + kept;
  for (const char* method : {"GET", "DELETE"}) {
    EXPECT_EQ(error_of(as_page(method, path))["code"], "cross_origin");
    EXPECT_EQ(error_of(as_rebound(method, path))["code"], "unknown_host");
  }
  EXPECT_EQ(as_page("POST", path + "/cancel").status, 403);
  EXPECT_EQ(get(path).status, 200) << "it is there still";
  for (const char* list : {"/v1/files", "/v1/batches"}) {
    const Reply page = as_page("GET", list);
    EXPECT_EQ(page.status, 403);
    EXPECT_THAT(page.body, HasSubstr("--cors-allow-origins"));
    EXPECT_THAT(as_rebound("GET", list).body, HasSubstr("--allowed-hosts"));
  }
  // An image or a link: no Origin, but the site.
  EXPECT_EQ(connect().call("GET", "/flush_cache", {}, "Sec-Fetch-Site: cross-site\r\n").status,
            403);
  EXPECT_EQ(as_rebound("POST", "/flush_cache").status, 403);
}

TEST_F(WebPagesTest, APageMayAskButNotGoOnFromWhatIsStored) {
  start();
  const std::string kept = post("/v1/responses", {{"input", "Hi"}}).json()["id"];
  ASSERT_EQ(post("/open_session", {{"capacity_of_str_len", 100}, {"session_id", "s"}}).status, 200);
  EXPECT_EQ(as_page("POST", kChat, chat_body()).status, 200);
  EXPECT_EQ(as_rebound("POST", kChat, chat_body().dump()).status, 200);
  EXPECT_EQ(as_page("GET", "/v1/models").status, 200);
  EXPECT_EQ(as_page("GET", "/health").status, 200);
  EXPECT_EQ(as_page("GET", "/metrics").status, 200);

  const Reply answered = as_page("POST", "/v1/responses", {{"input", "Hi"}});
  ASSERT_EQ(answered.status, 200) << answered.body;
  EXPECT_EQ(answered.json()["store"], false);
  EXPECT_EQ(get("/v1/responses/" + answered.json()["id"].get<std::string>()).status, 404);
  const Reply previous =
      as_page("POST", "/v1/responses", {{"input", "Hi"}, {"previous_response_id", kept}});
  EXPECT_EQ(previous.status, 403);
  EXPECT_EQ(error_of(previous)["param"], "previous_response_id");
  EXPECT_EQ(as_page("POST", "/v1/responses", {{"input", "Hi"}, {"background", true}}).status, 403);
  const Json session = {{"text", "a"}, {"session_params", {{"id", "s"}}}};
  EXPECT_EQ(error_of(as_page("POST", "/generate", session))["param"], "session_params");
  EXPECT_EQ(as_rebound("POST", "/generate", session.dump()).status, 403);
  EXPECT_EQ(post("/generate", session).status, 200);
}

TEST_F(WebPagesTest, ANamedPageAndANamedHostMayDoAll) {
  options.cors.origins = {"https://evil.example"};
  options.allowed_hosts = {"evil.example"};
  start();
  EXPECT_EQ(as_page("GET", "/v1/files").status, 200);
  EXPECT_EQ(as_page("POST", "/flush_cache").status, 200);
  EXPECT_EQ(as_rebound("GET", "/v1/files").status, 200);
  EXPECT_EQ(as_rebound("POST", "/flush_cache").status, 200);
  const Json kept = as_page("POST", "/v1/responses", {{"input", "Hi"}}).json();
  EXPECT_EQ(kept["store"], true);
}

TEST_F(WebPagesTest, AServerWithAKeyAsksForItAlone) {
  options.api_key = "sk-of-the-user";
  start();
  const std::string key = "Authorization: Bearer sk-of-the-user\r\n";
  EXPECT_EQ(as_page("GET", "/v1/files").status, 401);
  EXPECT_EQ(connect().call("GET", "/v1/files", {}, key + "Origin: https://evil.example\r\n").status,
            200);
}

// The target's host counts where it has one.
TEST_F(WebPagesTest, TheHostOfTheTargetGoesBeforeTheHeader) {
  start();
  const auto status_of = [this](std::string_view target, std::string_view host) {
    HttpClient client(server->port());
    client.send(fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", target, host));
    return client.read_reply().status;
  };
  EXPECT_EQ(status_of("http://evil.example/v1/files", "localhost"), 403);
  EXPECT_EQ(status_of("http://localhost/v1/files", "evil.example"), 200);
  EXPECT_EQ(status_of("/v1/files", "evil.example"), 403);
  EXPECT_EQ(status_of("/v1/files", "[::1]"), 200);
  EXPECT_EQ(status_of("/%76%31/files", "evil.example"), 403);
  EXPECT_EQ(status_of("/files", "evil.example"), 403);
}

TEST_F(WebPagesTest, TheServersOwnPageWorks) {
  start();
  const std::string own =
      fmt::format("Origin: http://localhost:{}\r\nSec-Fetch-Site: same-origin\r\n", server->port());
  HttpClient client(server->port());
  client.send(
      fmt::format("POST /inspect HTTP/1.1\r\nHost: localhost:{}\r\n{}Content-Type: "
                  "application/json\r\nContent-Length: 2\r\n\r\n{{}}",
                  server->port(), own));
  EXPECT_EQ(client.read_reply().status, 200);
  const Reply page = connect().call("GET", "/", {}, "Accept: text/html\r\n");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("frame-ancestors 'none'"));
}

}  // namespace
}  // namespace heddle::server
