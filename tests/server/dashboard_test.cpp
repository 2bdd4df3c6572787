// SPDX-License-Identifier: Apache-2.0
// The pages of the dashboard as they are served. tests/clients/dashboard.mjs looks at them in a
// browser.
#include "server/admin/dashboard.h"

#include <fstream>
#include <regex>
#include <sstream>

#include "server/server_fixture.h"
#include "support/test_data.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class DashboardTest : public ServerTest {
 protected:
  [[nodiscard]] Reply get_as(std::string_view path, std::string_view headers) const {
    return connect().call("GET", path, {}, headers);
  }
};

constexpr const char* kBrowser =
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";

// The lexer of the system's package, whose comments name addresses.
constexpr std::string_view kPackaged = "marked.js";

TEST_F(DashboardTest, BrowsersGetThePageAndOthersALine) {
  start();
  const Reply page = get_as("/", kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, StartsWith("<!doctype html>"));
  EXPECT_EQ(page.headers.at("vary"), "Accept");
  for (const char* headers : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const Reply line = get_as("/", headers);
    EXPECT_EQ(line.body, "Ollama is running") << headers;
    EXPECT_EQ(line.headers.at("vary"), "Accept");
  }
}

TEST_F(DashboardTest, EveryFileIsServedAsItIsWithItsType) {
  start();
  EXPECT_GE(dashboard_files().size(), 8u);
  for (const DashboardFile& file : dashboard_files()) {
    const Reply reply = get(fmt::format("/dashboard/{}", file.name));
    EXPECT_EQ(reply.status, 200) << file.name;
    if (file.name != kPackaged) {
      std::ifstream source(testing::repository_path(fmt::format("web/{}", file.name)));
      std::stringstream content;
      content << source.rdbuf();
      EXPECT_TRUE(reply.body == content.str()) << file.name;
    }
    EXPECT_THAT(reply.headers.at("content-type"), Not(HasSubstr("octet-stream"))) << file.name;
    EXPECT_EQ(reply.headers.at("x-content-type-options"), "nosniff");
    const std::string policy = reply.headers.at("content-security-policy");
    EXPECT_THAT(policy, StartsWith("default-src 'none'; script-src 'self'; style-src 'self';"));
    EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  }
}

TEST_F(DashboardTest, FilesAreOpenAndDataIsNot) {
  options.api_key = "secret";
  start();
  EXPECT_THAT(get_as("/", kBrowser).body, StartsWith("<!doctype html>"));
  EXPECT_EQ(get("/dashboard/app.js").status, 200);
  EXPECT_EQ(get("/inspect").status, 401);
  EXPECT_EQ(get("/get_server_info").status, 401);
}

TEST_F(DashboardTest, ThereAreNoOtherFiles) {
  start();
  for (const char* path : {"/dashboard/", "/dashboard/nothing.js", "/dashboard/../server.cpp",
                           "/dashboard/%2e%2e/routes.h"}) {
    const Reply reply = get(path);
    EXPECT_EQ(reply.status, 404) << path;
    EXPECT_EQ(error_of(reply)["code"], "not_found") << path;
  }
  EXPECT_EQ(post("/dashboard/app.js", Json::object()).status, 405);
}

// The page works offline and under its own policy: it names nothing of other servers, and has
// neither styles nor scripts in the markup.
TEST_F(DashboardTest, ThePageNeedsNothingButTheServer) {
  for (const DashboardFile& file : dashboard_files()) {
    if (file.name == kPackaged) continue;
    std::string content(file.content);
    content = std::regex_replace(content, std::regex("http://www\\.w3\\.org/2000/svg"), "");
    EXPECT_THAT(content, Not(HasSubstr("://"))) << file.name;
    EXPECT_THAT(content, Not(HasSubstr("eval("))) << file.name;
    EXPECT_THAT(content, Not(HasSubstr("innerHTML"))) << file.name;
    if (!file.name.ends_with(".html")) continue;
    EXPECT_THAT(content, Not(HasSubstr(" style="))) << file.name;
    EXPECT_THAT(content, Not(HasSubstr("<style"))) << file.name;
    EXPECT_FALSE(std::regex_search(content, std::regex("<script[^>]*>[^<]"))) << file.name;
  }
}

}  // namespace
}  // namespace heddle::server
