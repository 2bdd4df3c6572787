// SPDX-License-Identifier: Apache-2.0
#include "server/http_server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>

#include "core/log.h"
#include "server/http_connection.h"
#include "server/listen_filter.h"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
constexpr auto kAcceptPause =
    std::chrono::milliseconds(100);  // after an accept failed: out of files
constexpr int kMaxTurnedAway = 64;   // at once
constexpr auto kStopPoll = std::chrono::milliseconds(5);
constexpr auto kHandshakeTime =
    std::chrono::milliseconds(200);  // for clients that are half way through connecting

void log_escaped(const char* where, const std::exception_ptr& failure) {
  if (!failure) return;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    log_error(fmt::format("{} ended by an exception: {}", where, error.what()));
  } catch (...) {
    log_error(fmt::format("{} ended by an unknown exception", where));
  }
}

class AsioHttpServer final : public HttpServer {
 public:
  explicit AsioHttpServer(const HttpServerOptions& options)
      : options_(options), acceptor_(io_), work_(io_.get_executor()) {}

  ~AsioHttpServer() override { stop(0); }

  Status bind() {
    tcp::endpoint endpoint;
    HEDDLE_RETURN_IF_ERROR(resolve(endpoint));
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error == asio::error::address_in_use) {
      return unavailable(fmt::format(
          "port {} of {} is in use by another program; stop it or choose another with --port",
          options_.port, options_.host));
    }
    if (error) {
      return unavailable(fmt::format("cannot listen on {}, port {}: {}", options_.host,
                                     options_.port, error.message()));
    }
    port_ = acceptor_.local_endpoint(error).port();
    return ok_status();
  }

  void start(HttpHandler& handler) override {
    handler_ = &handler;
    asio::co_spawn(io_, accept_loop(), [](const std::exception_ptr& failure) {
      log_escaped("the accept loop", failure);
    });
    thread_ = std::thread([this] { run(); });
  }

  [[nodiscard]] uint16_t port() const override { return port_; }

  void post(std::function<void()> work) override { asio::post(io_, std::move(work)); }

  void post_after(double seconds, std::function<void()> work) override {
    const auto timer = std::make_shared<asio::steady_timer>(io_);
    timer->expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(seconds)));
    timer->async_wait([timer, work = std::move(work)](const error_code& error) {
      if (!error) work();
    });
  }

  void stop(double grace_seconds) override {
    if (!thread_.joinable()) return;
    asio::post(io_, [this, grace_seconds] {
      begin_stop(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(grace_seconds)));
    });
    thread_.join();
  }

 private:
  Status resolve(tcp::endpoint& endpoint) {
    error_code error;
    const auto address = asio::ip::make_address(options_.host, error);
    if (!error) {
      endpoint = {address, options_.port};
      return ok_status();
    }
    tcp::resolver resolver(io_);
    const auto results = resolver.resolve(options_.host, std::to_string(options_.port), error);
    if (error || results.empty()) {
      return invalid_argument(
          fmt::format("--host {}: not an address of this machine ({}); try 127.0.0.1 or 0.0.0.0",
                      options_.host, error.message()));
    }
    endpoint = results.begin()->endpoint();
    return ok_status();
  }

  // A handler that throws loses its connection, never the thread.
  void run() {
    while (true) {
      try {
        io_.run();
        return;
      } catch (const std::exception& error) {
        log_error(fmt::format("the I/O thread caught an exception: {}", error.what()));
      }
    }
  }

  asio::awaitable<void> accept_loop() {
    asio::steady_timer pause(io_);
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(kAwait);
      if (!error) {
        serve(std::move(socket));
      } else if (acceptor_.is_open()) {
        log_warning(fmt::format("cannot accept a connection: {}", error.message()));
        pause.expires_after(kAcceptPause);
        const auto [ignored] = co_await pause.async_wait(kAwait);
        static_cast<void>(ignored);
      }
    }
    accepting_ = false;
  }

  void serve(tcp::socket socket) {
    if (static_cast<int64_t>(connections_.size()) >= options_.max_connections) {
      log_warning(fmt::format("{} connections are open, the limit; a new one is closed",
                              connections_.size()));
      turn_away(std::move(socket));
      return;
    }
    const auto connection = Connection::create(std::move(socket), options_, *handler_, budget_);
    if (stopping_) connection->stop_after_answer();
    connections_.insert(connection.get());
    asio::co_spawn(io_, connection->run(), [this, connection](const std::exception_ptr& failure) {
      log_escaped("a connection", failure);
      if (failure) connection->close();
      connections_.erase(connection.get());
    });
  }

  // Whoever has connected is served, also those that nobody has accepted yet.
  void begin_stop(std::chrono::steady_clock::duration grace) {
    stopping_ = true;
    stop_deadline_ = std::chrono::steady_clock::now() + grace;
    for (Connection* connection : copy_of_connections()) connection->stop_after_answer();
    drop_new_connections(acceptor_.native_handle());
    stop_timer_.expires_after(std::min<std::chrono::steady_clock::duration>(grace, kHandshakeTime));
    stop_timer_.async_wait([this](const error_code&) {
      close_acceptor();
      stop_when_idle();
    });
  }

  void close_acceptor() {
    error_code error;
    acceptor_.non_blocking(true, error);
    while (!error) {
      tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      if (!error) serve(std::move(socket));
    }
    acceptor_.close(error);
  }

  // Says why, as far as that takes little: who comes in a flood is only closed.
  void turn_away(tcp::socket socket) {
    if (num_turned_away_ >= kMaxTurnedAway) return;
    ++num_turned_away_;
    const auto connection = Connection::create(std::move(socket), options_, *handler_, budget_);
    asio::co_spawn(io_,
                   connection->turn_away(handler_->on_transport_error(
                       503, fmt::format("The server has {} connections open, its limit. Retry "
                                        "later.",
                                        options_.max_connections))),
                   [this, connection](const std::exception_ptr& failure) {
                     log_escaped("a connection", failure);
                     --num_turned_away_;
                   });
  }

  void stop_when_idle() {
    if ((connections_.empty() && !accepting_) ||
        std::chrono::steady_clock::now() >= stop_deadline_) {
      for (Connection* connection : copy_of_connections()) connection->close();
      io_.stop();
      return;
    }
    stop_timer_.expires_after(kStopPoll);
    stop_timer_.async_wait([this](const error_code&) { stop_when_idle(); });
  }

  [[nodiscard]] std::vector<Connection*> copy_of_connections() const {
    return {connections_.begin(), connections_.end()};
  }

  const HttpServerOptions options_;
  const std::shared_ptr<BodyBudget> budget_ =
      std::make_shared<BodyBudget>(BodyBudget{.limit_bytes = options_.max_held_body_bytes});
  HttpHandler* handler_ = nullptr;
  int num_turned_away_ = 0;                      // and still reading why
  std::unordered_set<Connection*> connections_;  // each kept alive by its coroutine
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer stop_timer_{io_};
  std::chrono::steady_clock::time_point stop_deadline_;
  bool stopping_ = false;
  bool accepting_ = true;  // the accept loop has not ended
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options) {
  auto server = std::make_unique<AsioHttpServer>(options);
  HEDDLE_RETURN_IF_ERROR(server->bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace heddle::server
