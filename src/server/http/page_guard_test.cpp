// SPDX-License-Identifier: Apache-2.0
#include "server/http/page_guard.h"

#include <array>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class PageGuardTest : public ::testing::Test {
 protected:
  GateOptions options;

  // The code of the refusal; "" where there is none.
  [[nodiscard]] std::string refusal(HttpHeaders headers) const {
    const HttpRequest request{.method = "GET", .path = "/v1/files", .headers = std::move(headers)};
    const auto error = PageGuard(options).refusal_of(request);
    if (!error) return "";
    EXPECT_EQ(error->status, 403);
    EXPECT_THAT(error->message, HasSubstr(error->code == "unknown_host" ? "--allowed-hosts"
                                                                        : "--cors-allow-origins"));
    return error->code;
  }

  [[nodiscard]] std::string refusal_of_host(const std::string& host) const {
    return refusal({{"host", host}});
  }

  [[nodiscard]] std::string refusal_of_origin(const std::string& origin) const {
    return refusal({{"host", "localhost:30000"}, {"origin", origin}});
  }

  [[nodiscard]] std::string refusal_of_site(const std::string& site) const {
    return refusal({{"host", "localhost:30000"}, {"sec-fetch-site", site}});
  }
};

TEST_F(PageGuardTest, AHostIsAnAddressOrANameOfTheServer) {
  options.http.host = "Box.lan";
  options.allowed_hosts = {"llm.example", "*.inner.example"};
  std::array<char, 256> machine{};
  ASSERT_EQ(gethostname(machine.data(), machine.size() - 1), 0);
  for (const std::string& host : std::vector<std::string>{
           "127.0.0.1", "127.0.0.1:30000", "192.168.1.7:1", "[::1]:30000", "[fe80::1]", "localhost",
           "LOCALHOST:30000", "localhost.", "box.lan:1", "llm.example", "LLM.Example.:443",
           "a.inner.example", "a.b.inner.example:80", machine.data(),
           std::string(machine.data()) + ":30000"}) {
    EXPECT_EQ(refusal_of_host(host), "") << host;
  }
  for (const char* host : {"",
                           "evil.example",
                           "evil.example:30000",
                           "localhost.evil.example",
                           "evil-localhost",
                           "127.0.0.1.evil.example",
                           "127.0.0.1.nip.io",
                           "llm.example.evil.example",
                           "xllm.example",
                           "inner.example",
                           "evilinner.example",
                           "box.lan.evil.example",
                           "foo.localhost",
                           "0x7f.1",
                           "a b",
                           "localhost:x",
                           "localhost, evil.example",
                           "[::1",
                           "*",
                           "%6cocalhost"}) {
    EXPECT_EQ(refusal_of_host(host), "unknown_host") << host;
  }
  EXPECT_EQ(refusal({}), "unknown_host");
  options.allowed_hosts = {"*"};
  EXPECT_EQ(refusal_of_host("evil.example"), "");
  options.allowed_hosts = {};
  options.http.host = "unix:/run/heddle.sock";
  for (const char* host : {"", "evil.example", "%2Frun%2Fheddle.sock", "/run/heddle.sock"}) {
    EXPECT_EQ(refusal_of_host(host), "") << host;
  }
  EXPECT_EQ(refusal({}), "");
}

TEST_F(PageGuardTest, APageIsTheServersOwnOrNamed) {
  options.cors.origins = {"*", "https://Page.example", "app://obsidian.md", "null"};
  for (const char* origin :
       {"http://localhost:30000", "http://LocalHost:30000", "https://localhost:30000",
        "https://page.example", "https://PAGE.example:443", "app://obsidian.md"}) {
    EXPECT_EQ(refusal_of_origin(origin), "") << origin;
  }
  for (const char* origin :
       {"null", "", "http://other.example", "http://localhost", "http://localhost:30001",
        "http://127.0.0.1:30000", "https://page.example:8443", "http://page.example",
        "https://sub.page.example", "https://page.example.evil.example", "localhost:30000",
        "http://localhost:30000.evil.example", "http://localhost:30000/", "file://",
        "http://localhost:30000, http://evil.example", "*"}) {
    EXPECT_EQ(refusal_of_origin(origin), "cross_origin") << origin;
  }
  EXPECT_EQ(refusal({{"host", "localhost:30000"},
                     {"origin", "http://localhost:30000"},
                     {"origin", "http://evil.example"}}),
            "cross_origin");
  options.cors.origins = {};
  EXPECT_EQ(refusal_of_origin("https://page.example"), "cross_origin");
  EXPECT_EQ(refusal_of_origin("http://localhost:30000"), "");
}

TEST_F(PageGuardTest, ABrowserSaysFromWhichSiteARequestComes) {
  for (const char* site : {"same-origin", "none", "Same-Origin", ""}) {
    EXPECT_EQ(refusal_of_site(site), "") << site;
  }
  for (const char* site : {"cross-site", "same-site", "CROSS-SITE", "anything"}) {
    EXPECT_EQ(refusal_of_site(site), "cross_origin") << site;
  }
  options.cors.origins = {"https://page.example"};
  EXPECT_EQ(refusal({{"host", "localhost"},
                     {"origin", "https://page.example"},
                     {"sec-fetch-site", "cross-site"}}),
            "");
  EXPECT_EQ(refusal({{"host", "localhost"},
                     {"origin", "http://localhost"},
                     {"sec-fetch-site", "cross-site"}}),
            "cross_origin");
}

TEST_F(PageGuardTest, AServerThatSpeaksTlsHasNoPlainPages) {
  EXPECT_EQ(refusal_of_origin("http://localhost:30000"), "");
  options.http.certificate_file = "cert.pem";
  EXPECT_EQ(refusal_of_origin("http://localhost:30000"), "cross_origin");
  EXPECT_EQ(refusal_of_origin("https://localhost:30000"), "");
}

TEST(PageGuardOptionsTest, HostsAndOriginsAreChecked) {
  for (const char* host : {"a", "llm.example", "*.llm.example", "*", "10.0.0.1", "[::1]"}) {
    EXPECT_TRUE(check_allowed_host(host).ok()) << host;
  }
  for (const char* host : {"", "http://a", "a:30000", "a/b", "*.", "a.*", "**", "*a", "*.*.a"}) {
    EXPECT_THAT(check_allowed_host(host).message(), HasSubstr("is no name of a host")) << host;
  }
  for (const char* origin :
       {"*", "null", "https://a", "http://a:1", "app://a", "https://[::1]:1"}) {
    EXPECT_TRUE(check_allowed_origin(origin).ok()) << origin;
  }
  for (const char* origin : {"", "a.example", "https://a/", "https://*.a", "https://a/b", "any"}) {
    EXPECT_FALSE(check_allowed_origin(origin).ok()) << origin;
  }
}

}  // namespace
}  // namespace heddle::server
