// SPDX-License-Identifier: Apache-2.0
// The server alone under many streams: an engine that computes nothing gives every stream a token
// in each step, a second process reads them, and this prints as JSON
//
//   - the time of a whole small call on one connection, which bounds the cost of taking one in,
//   - from when an event left the engine to when the client had read it, while all streams run,
//   - how many streams were cut or out of order (none may be),
//   - resident memory of the server per stream.
//
//   heddle_streams_bench [STREAMS] [TOKENS_PER_SECOND] [TOKENS]       default: 2000 20 400
//
// Both processes share the machine's cores, so that the times are upper bounds.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/log.h"
#include "server/fake_codec.h"
#include "server/fake_engine.h"
#include "server/http_client.h"
#include "server/server.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCalls = 1000;

struct Load {
  int streams = 2000;
  int rate = 20;
  int tokens = 400;
};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

Json percentiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::ranges::sort(values);
  const auto at = [&values](double p) {
    return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"p999", at(0.999)}, {"max", values.back()}};
}

// ---- The client's process ----

struct Received {
  int64_t at_ns = 0;
  int64_t sent_ns = 0;
};

struct Stream {
  std::string rest;  // bytes that do not make an event yet
  std::vector<Received> tokens;
  bool disordered = false;

  void read(std::string_view bytes, int64_t at_ns) {
    constexpr std::string_view kContent = R"("content":")";
    rest += bytes;
    size_t begin = 0;
    for (size_t end; (end = rest.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
      const std::string_view event = std::string_view(rest).substr(begin, end - begin);
      const size_t content = event.find(kContent);
      if (content == std::string_view::npos) continue;
      int64_t sent = 0;
      const char* const text = event.data() + content + kContent.size();
      if (std::from_chars(text, event.data() + event.size(), sent).ec != std::errc()) continue;
      disordered |= !tokens.empty() && sent <= tokens.back().sent_ns;
      tokens.push_back({at_ns, sent});
    }
    rest.erase(0, begin);
  }
};

std::string chat(bool stream) {
  return Json{{"messages", Json::array({{{"role", "user"}, {"content", std::string(1024, 'a')}}})},
              {"stream", stream}}
      .dump();
}

Json time_calls(uint16_t port) {
  HttpClient client(port);
  std::vector<double> milliseconds;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t begin = now_ns();
    if (client.call("POST", "/v1/chat/completions", chat(false)).status != 200) std::abort();
    milliseconds.push_back(static_cast<double>(now_ns() - begin) / 1e6);
  }
  return percentiles(std::move(milliseconds));
}

Json read_streams(uint16_t port, const Load& load) {
  const int poll = ::epoll_create1(0);
  std::vector<std::unique_ptr<HttpClient>> clients;
  std::vector<Stream> streams(static_cast<size_t>(load.streams));
  for (int i = 0; i < load.streams; ++i) {
    clients.push_back(std::make_unique<HttpClient>(port));
    epoll_event wanted{.events = EPOLLIN, .data = {.u32 = static_cast<uint32_t>(i)}};
    ::epoll_ctl(poll, EPOLL_CTL_ADD, clients.back()->descriptor(), &wanted);
    clients.back()->send_request("POST", "/v1/chat/completions", chat(true));
  }
  std::vector<epoll_event> ready(256);
  std::vector<char> buffer(1 << 16);
  size_t num_open = streams.size();
  while (num_open > 0) {
    const int count = ::epoll_wait(poll, ready.data(), static_cast<int>(ready.size()), 60000);
    if (count <= 0) break;
    for (int i = 0; i < count; ++i) {
      const uint32_t index = ready[static_cast<size_t>(i)].data.u32;
      const int socket = clients[index]->descriptor();
      const ssize_t size = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
      Stream& stream = streams[index];
      if (size > 0) stream.read({buffer.data(), static_cast<size_t>(size)}, now_ns());
      if (size != 0 && stream.tokens.size() < static_cast<size_t>(load.tokens)) continue;
      clients[index]->close();  // the engine never ends a stream by itself
      --num_open;
    }
  }

  int64_t begin = 0;  // when the last stream began, and the first one ended
  int64_t end = INT64_MAX;
  int64_t num_incomplete = 0;
  int64_t num_disordered = 0;
  for (const Stream& stream : streams) {
    num_incomplete += stream.tokens.size() < static_cast<size_t>(load.tokens) ? 1 : 0;
    num_disordered += stream.disordered ? 1 : 0;
    if (stream.tokens.empty()) continue;
    begin = std::max(begin, stream.tokens.front().at_ns);
    end = std::min(end, stream.tokens.back().at_ns);
  }
  std::vector<double> latencies;
  for (const Stream& stream : streams) {
    for (const Received& token : stream.tokens) {
      if (token.at_ns < begin || token.at_ns > end) continue;
      latencies.push_back(static_cast<double>(token.at_ns - token.sent_ns) / 1e6);
    }
  }
  const double seconds = static_cast<double>(end - begin) / 1e9;
  return {{"seconds_with_all_streams", seconds},
          {"tokens_per_second_and_stream",
           static_cast<double>(latencies.size()) / seconds / static_cast<double>(load.streams)},
          {"incomplete_streams", num_incomplete},
          {"disordered_streams", num_disordered},
          {"added_latency_ms", percentiles(std::move(latencies))}};
}

// ---- The server's process ----

int run(const Load& load) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  set_log_level(LogLevel::kError);
  int to_client[2];
  int to_server[2];
  if (::pipe(to_client) != 0 || ::pipe(to_server) != 0) return 1;
  const pid_t client = ::fork();
  if (client == 0) {
    uint16_t port = 0;
    if (::read(to_client[0], &port, sizeof(port)) != sizeof(port)) std::_Exit(1);
    const Json calls = time_calls(port);
    if (::write(to_server[1], "s", 1) != 1) std::_Exit(1);
    char go = 0;
    if (::read(to_client[0], &go, 1) != 1) std::_Exit(1);
    Json result = read_streams(port, load);
    result["call_ms"] = calls;
    const std::string text = result.dump();
    const bool sent =
        ::write(to_server[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    std::_Exit(sent ? 0 : 1);
  }
  ::close(to_server[1]);

  auto engine = std::make_unique<FakeEngine>();
  FakeEngine* const fake = engine.get();
  // An end for the calls that are timed; streams go on until their client leaves.
  std::atomic<bool> ends{true};
  fake->script = [&ends](const Request&) {
    std::vector<RequestEvent> events = answer_events({"0"});
    if (!ends) events.pop_back();
    return events;
  };
  fake->touch = [](RequestEvent& event) {
    if (!event.text.empty()) event.text = std::to_string(now_ns());
  };
  ServerOptions options;
  options.http.port = 0;
  options.served_model_names = {"m"};
  options.unix_time = [] { return int64_t{1700000000}; };
  auto server = Server::listen(options);
  if (!server.ok()) return 1;
  (*server)->start_serving(std::move(engine), std::make_unique<FakeCodec>(), Json::object());
  const uint16_t port = (*server)->port();
  char ready = 0;
  if (::write(to_client[1], &port, sizeof(port)) != sizeof(port)) return 1;
  if (::read(to_server[0], &ready, 1) != 1) return 1;  // the calls were timed

  ends = false;
  fake->step_microseconds = 1000000 / load.rate;
  const double before_mib = resident_mib();
  if (::write(to_client[1], "g", 1) != 1) return 1;
  double with_streams_mib = 0;
  bool all = false;
  while (!all || fake->num_live() == static_cast<size_t>(load.streams)) {
    all |= fake->num_live() == static_cast<size_t>(load.streams);
    with_streams_mib = std::max(with_streams_mib, resident_mib());
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::string text(1 << 16, '\0');
  const ssize_t size = ::read(to_server[0], text.data(), text.size());
  int status = 1;
  ::waitpid(client, &status, 0);
  if (size <= 0 || status != 0) return 1;
  text.resize(static_cast<size_t>(size));
  Json report = {{"streams", load.streams},
                 {"wanted_tokens_per_second_and_stream", load.rate},
                 {"tokens_per_stream", load.tokens}};
  report.update(Json::parse(text));
  report["kib_per_stream"] = (with_streams_mib - before_mib) * 1024 / load.streams;
  std::puts(report.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace heddle::server

int main(int argc, char** argv) {
  heddle::server::Load load;
  int* const values[] = {&load.streams, &load.rate, &load.tokens};
  for (int i = 1; i < argc; ++i) {
    if (i > 3 || std::atoi(argv[i]) <= 0) {
      std::fputs("heddle_streams_bench [STREAMS] [TOKENS_PER_SECOND] [TOKENS]\n", stderr);
      return 2;
    }
    *values[i - 1] = std::atoi(argv[i]);
  }
  return heddle::server::run(load);
}
