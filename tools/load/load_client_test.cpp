// SPDX-License-Identifier: Apache-2.0
// The client against Heddle's own server, with a scripted engine, and against servers that
// misbehave on the wire.
#include "tools/load/load_client.h"

#include <functional>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include "server/certificate.h"
#include "server/server_fixture.h"
#include "tools/load/load_statistics.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LoadClientOptions options_for(uint16_t port) {
  LoadClientOptions options;
  options.address = {.host = "127.0.0.1", .port = fmt::format("{}", port), .path = {}};
  options.model = "m";
  options.timeout_seconds = 120;
  options.concurrency = 3;
  return options;
}

std::vector<LoadRequest> random_requests_of(int64_t count) {
  auto workload = make_load_workload({.requests = count, .input_tokens = 6, .output_tokens = 4});
  EXPECT_TRUE(workload.ok());
  return std::move(workload).value().requests;
}

class LoadClientTest : public server::ServerTest {};

TEST_F(LoadClientTest, MeasuresOurServer) {
  start();
  LoadClientOptions own = options_for(server->port());
  own.model.clear();
  LoadClient client(own);
  const auto model = client.choose_model();
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_EQ(*model, "m");
  LoadProgress last;
  const auto records =
      client.run(random_requests_of(20), [&last](const LoadProgress& now) { last = now; });
  ASSERT_TRUE(records.ok()) << records.status().to_string();
  const LoadStatistics statistics = summarize(*records, {});
  EXPECT_EQ(statistics.completed, 20);
  EXPECT_EQ(statistics.failed, 0);
  EXPECT_EQ(statistics.input_tokens, 20 * 6);
  EXPECT_EQ(statistics.output_tokens, 20 * 3) << "two texts and the end";
  EXPECT_EQ(statistics.without_usage, 0);
  EXPECT_EQ(statistics.ttft_ms.sorted.size(), 20u);
  EXPECT_LE(statistics.concurrency, 3.0);
  EXPECT_EQ(last.done, 20);
  EXPECT_EQ(last.in_flight, 0);
  for (const LoadRecord& record : *records) {
    ASSERT_EQ(record.arrivals.size(), 2u);
    EXPECT_LE(record.scheduled, record.sent);
    EXPECT_LE(record.sent, record.arrivals[0].at);
    EXPECT_LE(record.arrivals[1].at, record.ended);
  }
  const auto& submitted = engine->submitted();
  ASSERT_EQ(submitted.size(), 20u);
  EXPECT_EQ(submitted[0].stop.max_new_tokens, 4);
  EXPECT_TRUE(submitted[0].stop.ignore_eos);
}

TEST_F(LoadClientTest, ChatsAndWordsAreSentToo) {
  start();
  for (const LoadApi api : {LoadApi::kChatCompletions, LoadApi::kCompletionsText}) {
    LoadClientOptions words = options_for(server->port());
    words.api = api;
    words.extra_body = R"({"temperature": 0.5})";
    LoadClient client(words);
    const auto records = client.run(random_requests_of(2));
    ASSERT_TRUE(records.ok());
    EXPECT_EQ(summarize(*records, {}).completed, 2);
  }
  EXPECT_EQ(engine->submitted().at(3).sampling.temperature, 0.5f);
}

TEST_F(LoadClientTest, RefusalsAreCountedByStatus) {
  start();
  engine->set_refuse([](const Request&) { return resource_exhausted("the queue is full"); });
  LoadClient client(options_for(server->port()));
  const auto records = client.run(random_requests_of(5));
  ASSERT_TRUE(records.ok());
  const LoadStatistics statistics = summarize(*records, {});
  EXPECT_EQ(statistics.completed, 0);
  ASSERT_EQ(statistics.failures.size(), 1u);
  EXPECT_THAT(statistics.failures.begin()->first, ::testing::StartsWith("HTTP "));
  EXPECT_EQ(statistics.failures.begin()->second.count, 5);
  EXPECT_THAT(statistics.failures.begin()->second.example, HasSubstr("queue"));
}

TEST_F(LoadClientTest, StopEndsARunThatWouldNotEnd) {
  engine->script = [](const Request&) {
    auto events = server::answer_events({"again"});
    events.pop_back();
    return events;
  };
  engine->step_microseconds = 100;
  start();
  LoadClient client(options_for(server->port()));
  const auto records = client.run(random_requests_of(5), [&client](const LoadProgress& progress) {
    if (progress.arrivals > 0) client.stop();
  });
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE(records->empty());
  const auto after = client.run(random_requests_of(5));
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(after->empty());
}

// Says `answer` byte by byte to each connection after its first bytes came, then closes it.
class WireServer {
 public:
  explicit WireServer(std::string answer) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }

  ~WireServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }

  WireServer(const WireServer&) = delete;
  WireServer& operator=(const WireServer&) = delete;

  [[nodiscard]] uint16_t port() const { return port_; }

 private:
  void serve() {
    while (true) {
      const int connection = ::accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      const int on = 1;
      ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      std::string request;
      char buffer[4096];
      while (request.find("\"max_tokens\"") == std::string::npos) {
        const ssize_t count = ::recv(connection, buffer, sizeof(buffer), 0);
        if (count <= 0) break;
        request.append(buffer, static_cast<size_t>(count));
      }
      for (const char byte : answer_) {
        if (::send(connection, &byte, 1, MSG_NOSIGNAL) != 1) break;
      }
      ::shutdown(connection, SHUT_WR);
      while (::recv(connection, buffer, sizeof(buffer), 0) > 0) {
      }
      ::close(connection);
    }
  }

  std::string answer_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

constexpr std::string_view kEventStream =
    "data: {\"choices\":[{\"text\":\"a\"}]}\n\n"
    "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";

std::string with_length(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}", status,
                     type, body.size(), body);
}

LoadStatistics measure_wire(const std::string& answer) {
  const WireServer wire(answer);
  LoadClientOptions options = options_for(wire.port());
  options.concurrency = 1;
  LoadClient client(options);
  const auto records = client.run(random_requests_of(2));
  EXPECT_TRUE(records.ok());
  return summarize(*records, {});
}

std::string only_failure(const std::string& answer) {
  const LoadStatistics statistics = measure_wire(answer);
  EXPECT_EQ(statistics.failed, 2);
  return statistics.failures.size() == 1 ? statistics.failures.begin()->first : "several";
}

TEST(LoadClientOnTheWire, StreamsMayComeByteByByte) {
  const LoadStatistics length =
      measure_wire(with_length("200 OK", "text/event-stream", kEventStream));
  EXPECT_EQ(length.completed, 2);
  EXPECT_EQ(length.output_tokens, 4);
  EXPECT_EQ(length.without_usage, 2);
  std::string chunks =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (size_t at = 0; at < kEventStream.size(); at += 7) {
    const std::string_view part = kEventStream.substr(at, 7);
    chunks += fmt::format("{:x}\r\n{}\r\n", part.size(), part);
  }
  EXPECT_EQ(measure_wire(chunks + "0\r\n\r\n").completed, 2);
  // HTTP/1.0: the end of the connection is the end of the answer.
  EXPECT_EQ(measure_wire("HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" +
                         std::string(kEventStream))
                .completed,
            2);
}

TEST(LoadClientOnTheWire, CountsFaultsOfServersByKind) {
  const std::string whole = with_length("200 OK", "text/event-stream", kEventStream);
  EXPECT_EQ(only_failure(whole.substr(0, whole.size() - 20)), "cut");
  EXPECT_EQ(only_failure(""), "cut");
  EXPECT_EQ(only_failure("HTTP/1.1 200 OK\r\nContent-Ty"), "cut");
  EXPECT_EQ(only_failure("SSH-2.0-OpenSSH\r\n\r\n"), "protocol");
  EXPECT_EQ(only_failure(with_length("429 Too Many", "application/json", "{}")), "HTTP 429");
  EXPECT_EQ(only_failure(with_length("200 OK", "application/json", "{}")), "not a stream");
  EXPECT_EQ(only_failure(with_length("200 OK", "text/event-stream", "data: x\n\n")), "protocol");
}

class LoadClientTlsTest : public LoadClientTest {
 protected:
  void SetUp() override {
    options.http.certificate_file = ::testing::TempDir() + "load_client_certificate.pem";
    options.http.key_file = ::testing::TempDir() + "load_client_key.pem";
    options.http.host = "0.0.0.0";  // 127.0.0.2 is another name of this machine
    server::write_certificate(options.http.certificate_file, options.http.key_file);
    start();
  }

  void TearDown() override { ::unsetenv("SSL_CERT_FILE"); }

  // OpenSSL takes the certificates to check by from where this says.
  void trust_the_server() const {
    ::setenv("SSL_CERT_FILE", options.http.certificate_file.c_str(), 1);
  }

  [[nodiscard]] LoadClientOptions tls_options() const {
    LoadClientOptions own = options_for(server->port());
    own.address.tls = true;
    return own;
  }
};

TEST_F(LoadClientTlsTest, MeasuresAServerWithACertificateThatIsTrusted) {
  trust_the_server();
  for (const char* const host : {"127.0.0.1", "localhost"}) {
    LoadClientOptions own = tls_options();
    own.address.host = host;
    LoadClient client(own);
    EXPECT_EQ(client.choose_model().value(), "m");
    const auto records = client.run(random_requests_of(20));
    ASSERT_TRUE(records.ok()) << records.status().to_string();
    EXPECT_EQ(summarize(*records, {}).completed, 20) << host;
  }
}

TEST_F(LoadClientTlsTest, ACertificateThatIsNotTrustedIsNamedUnlessTheCheckIsOff) {
  LoadClientOptions own = tls_options();
  EXPECT_THAT(LoadClient(own).choose_model().status().message(),
              AllOf(HasSubstr("https://127.0.0.1:"), HasSubstr("the certificate of 127.0.0.1"),
                    HasSubstr("self-signed"), HasSubstr("--insecure skips the check"),
                    Not(HasSubstr("is the server up?"))));
  const auto refused = LoadClient(own).run(random_requests_of(2));
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(summarize(*refused, {}).failures.at("connect").count, 2);
  own.address.insecure = true;
  LoadClient client(own);
  EXPECT_EQ(client.choose_model().value(), "m");
  EXPECT_EQ(summarize(*client.run(random_requests_of(3)), {}).completed, 3);
}

TEST_F(LoadClientTlsTest, ACertificateOfAnotherHostIsNamed) {
  trust_the_server();
  LoadClientOptions own = tls_options();
  own.address.host = "127.0.0.2";
  EXPECT_THAT(LoadClient(own).choose_model().status().message(),
              AllOf(HasSubstr("127.0.0.2"), HasSubstr("IP address mismatch")));
}

// The zone of an address is no part of what a certificate names. Whether it is checked: by one that
// names the address, and one that does not.
class LoadClientZoneTest : public LoadClientTlsTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    options.http.certificate_file = ::testing::TempDir() + "load_client_zone_certificate.pem";
    options.http.key_file = ::testing::TempDir() + "load_client_zone_key.pem";
    options.http.host = "::1";
    server::write_certificate(options.http.certificate_file, options.http.key_file,
                              GetParam() ? "IP:::1" : "DNS:localhost,IP:127.0.0.1");
    if (!server::Server::listen(options).ok()) GTEST_SKIP() << "there is no IPv6";
    start();
    trust_the_server();
  }
};

TEST_P(LoadClientZoneTest, TheCertificateOfAnAddressWithAZoneIsChecked) {
  for (const char* const host : {"::1", "::1%1", "0:0:0:0:0:0:0:1%1"}) {
    LoadClientOptions own = tls_options();
    own.address.host = host;
    const auto model = LoadClient(own).choose_model();
    EXPECT_EQ(model.ok(), GetParam()) << host << ": " << model.status().message();
    if (!model.ok()) {
      EXPECT_THAT(model.status().message(), HasSubstr("IP address mismatch"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(NamedOrNot, LoadClientZoneTest, ::testing::Bool());

TEST_F(LoadClientTest, AServerWithoutTlsIsNamed) {
  start();
  LoadClientOptions own = options_for(server->port());
  own.address.tls = true;
  EXPECT_THAT(LoadClient(own).choose_model().status().message(),
              HasSubstr("does the server speak https?"));
}

TEST(LoadClientOnTheWire, WhereNothingListensEveryRequestFails) {
  uint16_t port = 0;
  {
    port = WireServer("").port();
  }
  LoadClient client(options_for(port));
  const auto model = client.choose_model();
  EXPECT_EQ(model.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(model.status().message(), HasSubstr("is the server up?"));
  const auto records = client.run(random_requests_of(3));
  ASSERT_TRUE(records.ok());
  EXPECT_EQ(summarize(*records, {}).failures.at("connect").count, 3);
}

TEST(ServerAddress, IsReadFromAUrl) {
  const auto read = [](std::string_view url) {
    const auto address = parse_server_address(url);
    return address.ok() ? fmt::format("{} {} {}", address->host, address->port, address->path)
                        : address.status().message();
  };
  EXPECT_EQ(read("http://127.0.0.1:30000"), "127.0.0.1 30000 ");
  EXPECT_EQ(read("localhost:8000/v1/"), "localhost 8000 ");
  EXPECT_EQ(read("http://host/models/v1"), "host 80 /models");
  EXPECT_EQ(read("http://[::1]:81"), "::1 81 ");
  EXPECT_EQ(read("http://[::1]"), "::1 80 ");
  EXPECT_EQ(read("https://host"), "host 443 ");
  EXPECT_EQ(read("https://[::1]:81/v1"), "::1 81 ");
  EXPECT_TRUE(parse_server_address("https://host")->tls);
  EXPECT_EQ(parse_server_address("https://[::1]:81/a/v1")->url(), "https://[::1]:81/a");
  EXPECT_THAT(read("ftp://host"), HasSubstr("only http"));
  for (const char* wrong : {"", "http://", "http://host:0", "http://host:x", "http://host:70000",
                            "http://a@b", "http://h?x", "http://a b", "http://[::1", ":80"}) {
    EXPECT_THAT(read(wrong), HasSubstr(fmt::format("\"{}\": ", wrong)));
  }
}

}  // namespace
}  // namespace heddle::tools
