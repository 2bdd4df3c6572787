// SPDX-License-Identifier: Apache-2.0
#include "server/http/web_origin.h"

#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace heddle::server {
namespace {

// "host|port", with "!" behind an address; "" where it is none.
std::string read(std::string_view text) {
  const auto host = parse_host(text);
  return host ? host->host + "|" + host->port + (host->is_ip_address ? "!" : "") : "";
}

TEST(WebOriginTest, AHostIsANameOrAnAddressAndMayHaveAPort) {
  const std::pair<const char*, const char*> cases[] = {
      {"localhost", "localhost|"},
      {"LocalHost:30000", "localhost|30000"},
      {"localhost.:80", "localhost|80"},
      {"localhost:", "localhost|"},
      {"a:00080", "a|80"},
      {"127.0.0.1:1", "127.0.0.1|1!"},
      {"127.0.0.1.", "127.0.0.1|!"},
      {"[::1]", "::1|!"},
      {"[0:0:0:0:0:0:0:1]:30000", "::1|30000!"},
      {"[FE80::1%eth0]:1", "fe80::1|1!"},
      {"[::ffff:127.0.0.1]", "::ffff:127.0.0.1|!"},
      {"heddle_server", "heddle_server|"},
      {"127.1", "127.1|"},
      {"0x7f000001", "0x7f000001|"},
      {"127.0.0.1.evil.example", "127.0.0.1.evil.example|"},
      {"", ""},
      {".", ""},
      {":30000", ""},
      {"::1", ""},
      {"[::1", ""},
      {"[::1]x", ""},
      {"[localhost]", ""},
      {"[127.0.0.1]", ""},
      {"a:b", ""},
      {"a:65536", ""},
      {"a:-1", ""},
      {"a b", ""},
      {"a,b", ""},
      {"a,", ""},
      {"a:1,b:1", ""},
      {"a;b", ""},
      {"a@b", ""},
      {"a/b", ""},
      {"http://a", ""},
      {"a\\b", ""}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(read(text), expected) << text;
  EXPECT_EQ(read(std::string(300, 'a')), "");
  EXPECT_EQ(read(std::string_view("localhost\0.evil.example", 23)), "");
}

TEST(WebOriginTest, SpellingsOfOneOriginAreOne) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://a.example", "https://a.example"},
      {"HTTPS://A.Example.:443", "https://a.example"},
      {"http://a:80", "http://a"},
      {"http://a:443", "http://a:443"},
      {"http://[0::1]:30000", "http://[::1]:30000"},
      {"app://obsidian.md", "app://obsidian.md"},
      {"chrome-extension://abc", "chrome-extension://abc"},
      {"null", "null"},
      {"*", "*"}};
  for (const auto& [text, expected] : cases) EXPECT_EQ(canonical_origin(text), expected) << text;
  for (const char* text :
       {"null", "", "a.example", "//a", "://a", "http:/a", "http://", "http://a/", "http://a/b",
        "http://u@a", "http://a b", "1http://a", "http://a, http://b", "file://"}) {
    EXPECT_FALSE(parse_origin(text)) << text;
  }
}

bool is_own(std::string_view origin, std::string_view host, bool speaks_tls = false) {
  return is_own_origin(*parse_origin(origin), *parse_host(host), speaks_tls);
}

TEST(WebOriginTest, AServersOwnPagesHaveItsHostAndPort) {
  EXPECT_TRUE(is_own("http://localhost:30000", "localhost:30000"));
  EXPECT_TRUE(is_own("http://LOCALHOST:30000", "localhost.:30000"));
  EXPECT_TRUE(is_own("http://[::1]:30000", "[0::1]:30000"));
  EXPECT_TRUE(is_own("http://a", "a"));
  EXPECT_TRUE(is_own("http://a", "a:80"));
  EXPECT_TRUE(is_own("https://a", "a")) << "a proxy in front speaks TLS";
  EXPECT_TRUE(is_own("https://a", "a:443"));
  EXPECT_TRUE(is_own("https://a", "a", /*speaks_tls=*/true));
  EXPECT_FALSE(is_own("http://a", "a", /*speaks_tls=*/true));
  EXPECT_FALSE(is_own("http://localhost:8080", "localhost:30000"));
  EXPECT_FALSE(is_own("http://localhost", "localhost:30000"));
  EXPECT_FALSE(is_own("http://localhost:30000", "127.0.0.1:30000"));
  EXPECT_FALSE(is_own("http://a.evil.example", "a"));
  EXPECT_FALSE(is_own("app://a:80", "a:80"));
}

}  // namespace
}  // namespace heddle::server
