// SPDX-License-Identifier: Apache-2.0
// One of two files in this folder that include Asio and Beast (server_stream.h), which are slow to
// compile.
#include "tools/load/load_client.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tools/load/load_answer.h"
#include "tools/load/server_stream.h"

namespace heddle::tools {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using nlohmann::ordered_json;
using LoadClock = std::chrono::steady_clock;

constexpr auto kLoadAwaitable = asio::as_tuple(asio::use_awaitable);
constexpr auto kProgressPause = std::chrono::milliseconds(200);
constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kMaxPlainBytes = 1 << 20;  // most bytes read of an answer that is no stream

LoadClock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<LoadClock::duration>(std::chrono::duration<double>(seconds));
}

LoadFailure transport_failure(const char* while_doing, const error_code& error) {
  if (error == beast::error::timeout) return {"timeout", "its time was up"};
  const bool cut = error == http::error::end_of_stream || error == http::error::partial_message ||
                   error == asio::error::eof || error == asio::error::connection_reset ||
                   error == asio::error::broken_pipe || error == asio::ssl::error::stream_truncated;
  if (cut) return {"cut", fmt::format("the connection ended while {}", while_doing)};
  const bool protocol =
      error.category() == http::make_error_code(http::error::bad_value).category();
  return {protocol ? "protocol" : "network", fmt::format("{}: {}", while_doing, error.message())};
}

}  // namespace

class LoadClient::Connections {
 public:
  explicit Connections(const LoadClientOptions& options)
      : options_(options), tls_(make_tls_context(options.address)) {}

  void stop() {
    asio::post(io_, [this] {
      stopped_ = true;
      io_.stop();
    });
  }

  Result<std::string> first_model() {
    HEDDLE_RETURN_IF_ERROR(resolve());
    Plain plain;
    spawn(get_models(plain));
    run_io();
    if (stopped_) return cancelled("stopped");
    const std::string shown = options_.address.url() + "/v1/models";
    if (plain.failure) {
      return unavailable(fmt::format("{}: {}", shown, plain.failure->message));
    }
    if (plain.status != 200) {
      return not_found(fmt::format(
          "{} answers {}: {}; {}", shown, plain.status, error_message(plain.body),
          plain.status == 401 ? "name a key with --api-key"
                              : fmt::format("name a model with {}", options_.model_option)));
    }
    const auto json = ordered_json::parse(plain.body, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("data") && json["data"].is_array() &&
        !json["data"].empty()) {
      const ordered_json& first = json["data"].front();
      if (first.is_object() && first.contains("id") && first["id"].is_string()) {
        return first["id"].get<std::string>();
      }
    }
    return not_found(
        fmt::format("{} names no model; name one with {}", shown, options_.model_option));
  }

  Result<std::vector<LoadRecord>> run(const LoadClient& client,
                                      std::span<const LoadRequest> requests,
                                      const std::function<void(const LoadProgress&)>& on_progress) {
    HEDDLE_RETURN_IF_ERROR(resolve());
    client_ = &client;
    requests_ = requests;
    records_.assign(requests.size(), {});
    ended_.assign(requests.size(), false);
    next_ = 0;
    progress_ = {};
    start_ = LoadClock::now();
    const auto workers = static_cast<size_t>(
        std::min(options_.concurrency.value_or(std::ssize(requests)), std::ssize(requests)));
    workers_ = workers;
    for (size_t i = 0; i < workers; ++i) spawn(work());
    progress_timer_.emplace(io_);
    if (on_progress) spawn(report(on_progress));
    run_io();
    std::vector<LoadRecord> records;
    for (size_t i = 0; i < records_.size(); ++i) {
      if (ended_[i]) records.push_back(std::move(records_[i]));
    }
    return records;
  }

 private:
  using Stream = ServerStream;

  // An answer that is no stream, read as a whole.
  struct Plain {
    int status = 0;
    std::string body;
    std::optional<LoadFailure> failure;
  };

  template <typename Task>
  void spawn(Task task) {
    asio::co_spawn(io_, std::move(task), asio::detached);
  }

  void run_io() {
    if (stopped_) return;
    io_.restart();
    io_.run();
  }

  [[nodiscard]] double now() const {
    return std::chrono::duration<double>(LoadClock::now() - start_).count();
  }

  Status resolve() {
    if (!endpoints_.empty()) return {};
    error_code error;
    asio::ip::tcp::resolver resolver(io_);
    const auto found = resolver.resolve(options_.address.host, options_.address.port, error);
    if (error) {
      return unavailable(fmt::format("the host {} has no address: {}; check its name in --url",
                                     options_.address.host, error.message()));
    }
    for (const auto& entry : found) endpoints_.push_back(entry.endpoint());
    return {};
  }

  http::request<http::string_body> request_to(http::verb verb, std::string_view target,
                                              std::string body) const {
    http::request<http::string_body> request(verb, options_.address.path + std::string(target), 11);
    request.set(http::field::host, options_.address.host_header());
    request.set(http::field::user_agent, "heddle-bench");
    if (!options_.api_key.empty()) {
      request.set(http::field::authorization, "Bearer " + options_.api_key);
    }
    if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
    request.body() = std::move(body);
    request.prepare_payload();
    return request;
  }

  // An idle connection that was kept open, or null.
  std::unique_ptr<Stream> take_idle() {
    if (idle_.empty()) return nullptr;
    auto stream = std::move(idle_.back());
    idle_.pop_back();
    return stream;
  }

  asio::awaitable<std::optional<LoadFailure>> connect(Stream& stream) {
    const auto [error, endpoint] = co_await stream.tcp().async_connect(endpoints_, kLoadAwaitable);
    if (error == beast::error::timeout) co_return transport_failure("connecting", error);
    if (error) co_return LoadFailure{"connect", error.message() + "; is the server up?"};
    error_code ignored;
    stream.tcp().socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    const error_code refused = co_await stream.async_handshake();
    if (!refused) co_return std::nullopt;
    if (refused == beast::error::timeout) co_return transport_failure("connecting", refused);
    co_return LoadFailure{"connect", stream.handshake_failure(refused)};
  }

  asio::awaitable<void> get_models(Plain& plain) {
    Stream stream(io_, options_.address, tls_);
    stream.tcp().expires_after(to_duration(std::min(options_.timeout_seconds, 30.0)));
    plain.failure = co_await connect(stream);
    if (plain.failure) co_return;
    const auto request = request_to(http::verb::get, "/v1/models", {});
    if (const auto [error, sent] = co_await http::async_write(stream, request, kLoadAwaitable);
        error) {
      plain.failure = transport_failure("asking", error);
      co_return;
    }
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxPlainBytes);
    const auto [error, read] = co_await http::async_read(stream, buffer, parser, kLoadAwaitable);
    if (error) {
      plain.failure = transport_failure("reading the answer", error);
      co_return;
    }
    plain.status = static_cast<int>(parser.get().result_int());
    plain.body = parser.get().body();
  }

  // Sends requests one after the other, each at its time.
  asio::awaitable<void> work() {
    asio::steady_timer timer(io_);
    while (next_ < requests_.size()) {
      const size_t index = next_++;
      LoadRecord& record = records_[index];
      record.scheduled = requests_[index].at_seconds.value_or(now());
      if (record.scheduled > now()) {
        timer.expires_at(start_ + to_duration(record.scheduled));
        co_await timer.async_wait(kLoadAwaitable);
      }
      ++progress_.in_flight;
      co_await send(requests_[index], record);
      if (record.ended <= 0) record.ended = now();
      ended_[index] = true;
      --progress_.in_flight;
      ++progress_.done;
      if (record.failure) ++progress_.failed;
    }
    if (--workers_ == 0) progress_timer_->cancel();
  }

  asio::awaitable<void> report(const std::function<void(const LoadProgress&)>& on_progress) {
    while (workers_ > 0) {
      progress_.seconds = now();
      on_progress(progress_);
      progress_timer_->expires_after(kProgressPause);
      co_await progress_timer_->async_wait(kLoadAwaitable);
    }
    progress_.seconds = now();
    on_progress(progress_);
  }

  asio::awaitable<void> send(const LoadRequest& request, LoadRecord& record) {
    const auto message = request_to(
        http::verb::post,
        options_.api == LoadApi::kChatCompletions ? "/v1/chat/completions" : "/v1/completions",
        client_->body_of(request));
    while (true) {
      auto stream = take_idle();
      const bool kept = stream != nullptr;
      if (!kept) stream = std::make_unique<Stream>(io_, options_.address, tls_);
      stream->tcp().expires_after(to_duration(options_.timeout_seconds));
      record.sent = now();
      if (!kept) {
        record.failure = co_await connect(*stream);
        if (record.failure) co_return;
        record.sent = now();
      }
      // A server may close a kept connection while the next request is being sent. That is no
      // failure of the request, which is sent again on a new connection.
      if (co_await exchange(std::move(stream), message, kept, record)) co_return;
    }
  }

  // Sends a request and reads the answer. Returns false if the connection was `kept` and no answer
  // arrived.
  asio::awaitable<bool> exchange(std::unique_ptr<Stream> stream,
                                 const http::request<http::string_body>& message, bool kept,
                                 LoadRecord& record) {
    const auto [write_error, sent] = co_await http::async_write(*stream, message, kLoadAwaitable);
    // The server may have refused the request before it was sent completely, so an answer may
    // exist.
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    const auto [head_error, head] =
        co_await http::async_read_header(*stream, buffer, parser, kLoadAwaitable);
    if (head_error) {
      if (kept && !parser.got_some() && head_error != beast::error::timeout) co_return false;
      record.failure = write_error ? transport_failure("the request was sent", write_error)
                                   : transport_failure("its answer was awaited", head_error);
      co_return true;
    }
    const int status = static_cast<int>(parser.get().result_int());
    const bool streams =
        status == 200 && parser.get()[http::field::content_type].starts_with("text/event-stream");
    LoadAnswer answer(record);
    std::string plain;
    std::array<char, kReadBytes> bytes;
    while (!parser.is_done()) {
      parser.get().body().data = bytes.data();
      parser.get().body().size = bytes.size();
      auto [error, count] = co_await http::async_read_some(*stream, buffer, parser, kLoadAwaitable);
      if (error == http::error::need_buffer) error = {};
      const double at = now();
      const std::string_view part(bytes.data(), bytes.size() - parser.get().body().size);
      const size_t before = record.arrivals.size();
      if (streams) {
        answer.feed(part, at);
      } else if (plain.size() < kMaxPlainBytes) {
        plain += part;
      }
      progress_.arrivals += static_cast<int64_t>(record.arrivals.size() - before);
      if (before == 0 && !record.arrivals.empty()) {
        progress_.last_ttft_ms = (at - record.sent) * 1e3;
      }
      if (error && !record.failure) {
        record.failure = transport_failure("its answer was read", error);
      }
      if (record.failure) {
        record.ended = now();
        co_return true;
      }
    }
    if (streams) {
      answer.end(now());
    } else if (status == 200) {
      record.failure = {"not a stream", error_message(plain)};
    } else {
      record.failure = {fmt::format("HTTP {}", status), error_message(plain)};
    }
    if (parser.keep_alive() && !write_error) {
      stream->tcp().expires_never();
      idle_.push_back(std::move(stream));
    }
    co_return true;
  }

  const LoadClientOptions& options_;
  const std::shared_ptr<TlsContext> tls_;
  const LoadClient* client_ = nullptr;
  std::vector<asio::ip::tcp::endpoint> endpoints_;
  std::span<const LoadRequest> requests_;
  std::vector<LoadRecord> records_;
  std::vector<bool> ended_;
  size_t next_ = 0;
  size_t workers_ = 0;
  LoadProgress progress_;
  LoadClock::time_point start_;
  bool stopped_ = false;

  // Declared after the members above, so that its waiting coroutines, which use these members, are
  // destroyed first.
  asio::io_context io_;
  std::vector<std::unique_ptr<Stream>> idle_;
  std::optional<asio::steady_timer> progress_timer_;
};

LoadClient::LoadClient(LoadClientOptions options)
    : options_(std::move(options)), connections_(std::make_unique<Connections>(options_)) {}

LoadClient::~LoadClient() = default;

Result<std::string> LoadClient::choose_model() {
  HEDDLE_ASSIGN_OR_RETURN(options_.model, connections_->first_model());
  return options_.model;
}

Result<std::vector<LoadRecord>> LoadClient::run(
    std::span<const LoadRequest> requests,
    const std::function<void(const LoadProgress&)>& on_progress) {
  return connections_->run(*this, requests, on_progress);
}

void LoadClient::stop() { connections_->stop(); }

std::string LoadClient::body_of(const LoadRequest& request) const {
  ordered_json body = {{"model", options_.model},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}},
                       {"max_tokens", request.output_tokens}};
  if (options_.ignore_eos) body["ignore_eos"] = true;
  if (options_.api == LoadApi::kChatCompletions) {
    body["messages"] =
        request.messages.empty()
            ? ordered_json::array({{{"role", "user"}, {"content", prompt_text(request)}}})
            : ordered_json::parse(request.messages, nullptr, /*allow_exceptions=*/false);
  } else if (options_.api == LoadApi::kCompletions && !request.segments.empty()) {
    body["prompt"] = prompt_ids(request, options_.vocab_size);
  } else {
    body["prompt"] = prompt_text(request);
  }
  if (!options_.extra_body.empty()) {
    body.update(ordered_json::parse(options_.extra_body, nullptr, /*allow_exceptions=*/false));
  }
  return body.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
}

}  // namespace heddle::tools
