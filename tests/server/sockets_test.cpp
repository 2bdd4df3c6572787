// SPDX-License-Identifier: Apache-2.0
// Clients over a unix socket and over TLS: the same server, the same answers.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/folder_lock.h"
#include "server/certificate.h"
#include "server/server_fixture.h"

namespace heddle::server {
namespace {

using ::testing::HasSubstr;

class SocketsTest : public ServerTest {
 protected:
  static std::string temporary(std::string_view name) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return fmt::format("{}heddle_{}_{}", ::testing::TempDir(), test->name(), name);
  }
};

// Sends a request over a unix socket and returns all that comes until the server closes.
std::string ask_unix(const std::string& path, std::string_view request) {
  const int file = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  std::string answer;
  if (::connect(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::send(file, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char bytes[4096];
    for (ssize_t count; (count = ::recv(file, bytes, sizeof(bytes), 0)) > 0;) {
      answer.append(bytes, static_cast<size_t>(count));
    }
  }
  ::close(file);
  return answer;
}

constexpr std::string_view kHealthRequest =
    "GET /health HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";

TEST_F(SocketsTest, AUnixSocketIsServedAndItsFileRemoved) {
  const std::string path = temporary("socket");
  options.http.host = "unix:" + path;
  start();
  EXPECT_EQ(server->address(), "unix:" + path);
  EXPECT_THAT(ask_unix(path, kHealthRequest), HasSubstr("200 OK"));
  // Any host may be named: no page of another origin reaches the socket under a name of its own.
  const std::string files = "GET /v1/files HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n";
  EXPECT_THAT(ask_unix(path, files + "\r\n"), HasSubstr("200 OK"));
  EXPECT_THAT(ask_unix(path, files + "Origin: http://b.example\r\n\r\n"), HasSubstr("403"));
  server->shutdown();
  struct stat status{};
  EXPECT_NE(::stat(path.c_str(), &status), 0);
}

TEST_F(SocketsTest, AUnixSocketInUseIsNamedAndOneLeftBehindReplaced) {
  const std::string path = temporary("socket");
  options.http.host = "unix:" + path;
  start();
  const auto second = Server::listen(options);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.status().message(), HasSubstr(path + " is in use"));
  server->shutdown();

  // As a server that was killed leaves it.
  const int file = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ::close(file);
  auto third = Server::listen(options);
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  EXPECT_THAT(ask_unix(path, kHealthRequest), HasSubstr("503"));
}

// Another server that has made its file and does not listen yet is no file left behind.
TEST_F(SocketsTest, AUnixSocketOfAServerThatStartsIsNotTaken) {
  const std::filesystem::path folder = temporary("folder");
  std::filesystem::remove_all(folder);  // of an earlier run
  std::filesystem::create_directories(folder);
  const std::string path = folder / "starting";
  options.http.host = "unix:" + path;
  const int file = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  auto starting = std::make_optional<FolderLock>(folder, 60);
  ASSERT_EQ(::bind(file, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  for (const std::string& name : {path, std::string(folder / "other")}) {
    options.http.host = "unix:" + name;
    EXPECT_THAT(Server::listen(options).status().message(),
                HasSubstr("another server is starting in the folder of " + name));
    EXPECT_EQ(std::filesystem::exists(name), name == path) << "nothing is removed or made";
  }
  ASSERT_EQ(::listen(file, 1), 0);
  starting.reset();
  options.http.host = "unix:" + path;
  EXPECT_THAT(Server::listen(options).status().message(), HasSubstr(path + " is in use"));
  ::close(file);
}

TEST_F(SocketsTest, AUnixSocketHasTheModeAndTheGroupAskedFor) {
  const std::string path = temporary("shared_socket");
  options.http.host = "unix:" + path;
  // Root may give any group, others their own.
  const gid_t owner = ::geteuid() == 0 ? 12345 : ::getegid();
  for (const uint32_t mode : {0600U, 0660U, 0666U}) {
    options.http.socket_mode = mode;
    options.http.socket_group = std::to_string(owner);
    const auto shared = Server::listen(options);
    ASSERT_TRUE(shared.ok()) << shared.status().to_string();
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
    EXPECT_EQ(status.st_gid, owner);
  }
  options.http.socket_mode.reset();
  {
    const auto shared = Server::listen(options);
    ASSERT_TRUE(shared.ok()) << shared.status().to_string();
    struct stat status{};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0660U) << "its members connect";
  }
  options.http.socket_group = "no-such-group";
  const auto unknown = Server::listen(options);
  EXPECT_THAT(unknown.status().message(),
              HasSubstr("--socket-group no-such-group: there is no such group"));
  struct stat status{};
  EXPECT_NE(::stat(path.c_str(), &status), 0) << "nothing was made";
}

TEST_F(SocketsTest, AFileThatIsNoSocketIsLeftAlone) {
  const std::string path = temporary("file");
  std::ofstream(path) << "precious";
  for (const std::string& name : {path, temporary("link")}) {
    if (name != path) {
      std::filesystem::remove(name);  // of an earlier run
      std::filesystem::create_symlink(path, name);
    }
    options.http.host = "unix:" + name;
    const auto result = Server::listen(options);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr(name + " is there and is no socket"));
  }
  std::string content;
  std::getline(std::ifstream(path), content);
  EXPECT_EQ(content, "precious");
}

TEST_F(SocketsTest, APathThatIsNoPathIsAnError) {
  for (const std::string& path : {std::string(), std::string(200, 'x')}) {
    options.http.host = "unix:" + path;
    const auto result = Server::listen(options);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.status().message(), HasSubstr("1 to 107 characters"));
  }
}

// A client that speaks TLS and trusts everybody.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port) : context_(SSL_CTX_new(TLS_client_method())) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval timeout{.tv_sec = 120, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return;
    ssl_ = SSL_new(context_);
    SSL_set_fd(ssl_, socket_);
    connected_ = SSL_connect(ssl_) == 1;
  }

  ~TlsClient() {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
    if (socket_ >= 0) ::close(socket_);
  }

  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    return SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }

  // Until the server says that it has nothing more; sets `in_order` when it says so.
  std::string read_all() {
    std::string answer;
    char bytes[4096];
    int count = 0;
    while ((count = SSL_read(ssl_, bytes, sizeof(bytes))) > 0) {
      answer.append(bytes, static_cast<size_t>(count));
    }
    in_order = SSL_get_error(ssl_, count) == SSL_ERROR_ZERO_RETURN;
    return answer;
  }

  std::string read_some() {
    char bytes[4096];
    const int count = SSL_read(ssl_, bytes, sizeof(bytes));
    return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : "";
  }

  bool in_order = false;

 private:
  SSL_CTX* context_;
  SSL* ssl_ = nullptr;
  int socket_ = -1;
  bool connected_ = false;
};

class TlsTest : public SocketsTest {
 protected:
  void SetUp() override {
    options.http.certificate_file = temporary("certificate.pem");
    options.http.key_file = temporary("key.pem");
    write_certificate(options.http.certificate_file, options.http.key_file);
  }

  static std::string chat_request(const Json& extra) {
    const std::string body = chat_body(extra).dump();
    return fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        body.size(), body);
  }
};

TEST_F(TlsTest, AStreamComesWholeAndEndsInOrder) {
  start();
  EXPECT_THAT(server->address(), HasSubstr("https://"));
  TlsClient client(server->port());
  ASSERT_TRUE(client.connected());
  ASSERT_TRUE(client.send(chat_request({{"stream", true}})));
  const std::string answer = client.read_all();
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr(" there"));
  EXPECT_THAT(answer, HasSubstr("data: [DONE]"));
  EXPECT_TRUE(client.in_order);
}

TEST_F(TlsTest, ALargeAnswerComesWhole) {
  engine->script = [](const Request&) { return answer_events({std::string(3 << 20, 'x')}); };
  start();
  TlsClient client(server->port());
  ASSERT_TRUE(client.send(chat_request(Json::object())));
  EXPECT_GT(client.read_all().size(), size_t{3} << 20);
  EXPECT_TRUE(client.in_order);
}

TEST_F(TlsTest, AClientThatLeavesIsNoticed) {
  engine->script = [](const Request&) {
    std::vector<RequestEvent> events = answer_events({"x"});
    events.pop_back();
    return events;  // without an end
  };
  engine->step_microseconds = 1000;
  start();
  {
    TlsClient client(server->port());
    ASSERT_TRUE(client.send(chat_request({{"stream", true}})));
    EXPECT_THAT(client.read_some(), HasSubstr("200 OK"));
  }
  EXPECT_TRUE(eventually([this] { return engine->num_live() == 0; }));
}

TEST_F(TlsTest, TellsAPlainHttpClientToUseHttpsAndServesOn) {
  set_log_level(LogLevel::kInfo);
  start();
  ::testing::internal::CaptureStderr();
  for (const auto& [method, path, body] :
       {std::tuple{"GET", "/health", ""}, std::tuple{"HEAD", "/", ""},
        std::tuple{"DELETE", "/v1/files/x", ""}, std::tuple{"OPTIONS", "/v1/models", ""},
        std::tuple{"PATCH", "/", ""},
        std::tuple{"POST", "/v1/chat/completions", "{\"model\": \"m\"}"}}) {
    HttpClient plain(server->port());
    plain.send_request(method, path, body);
    const Reply reply = plain.read_reply();
    EXPECT_EQ(reply.status, 400) << method;
    EXPECT_TRUE(reply.complete) << method;
    EXPECT_EQ(Json::parse(reply.body)["error"]["code"], "use_https") << method;
  }
  HttpClient other(server->port());
  other.send("SSH-2.0-OpenSSH_9.2\r\n");
  EXPECT_TRUE(other.at_end());
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("127.0.0.1: plain HTTP at a port that speaks TLS; use https://"));
  EXPECT_THAT(log, HasSubstr("127.0.0.1: no TLS connection: "));
  TlsClient client(server->port());
  ASSERT_TRUE(client.send(kHealthRequest));
  EXPECT_THAT(client.read_all(), HasSubstr("200 OK"));
}

TEST_F(TlsTest, AShutdownAnswersWhatIsUnderWay) {
  engine->held = true;
  start();
  TlsClient client(server->port());
  ASSERT_TRUE(client.send(chat_request(Json::object())));
  ASSERT_TRUE(eventually([this] { return engine->num_live() == 1; }));
  std::thread stopping([this] { server->shutdown(); });
  engine->held = false;
  EXPECT_THAT(client.read_all(), HasSubstr("Hello there"));
  EXPECT_TRUE(client.in_order);
  stopping.join();
}

TEST_F(TlsTest, FilesThatAreNoCertificateOrNotItsKeyAreNamed) {
  ServerOptions wrong = options;
  wrong.http.certificate_file = temporary("missing");
  EXPECT_THAT(Server::listen(wrong).status().message(), HasSubstr("is no certificate"));
  wrong = options;
  std::ofstream(temporary("garbage")) << "not a key";
  wrong.http.key_file = temporary("garbage");
  EXPECT_THAT(Server::listen(wrong).status().message(), HasSubstr("is not the private key"));
  wrong = options;
  wrong.http.key_file = temporary("other.pem");
  write_certificate(temporary("unused.pem"), wrong.http.key_file);
  EXPECT_THAT(Server::listen(wrong).status().message(), HasSubstr("is not the private key"));
}

}  // namespace
}  // namespace heddle::server
