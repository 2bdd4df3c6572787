// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_server.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <unordered_set>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fmt/format.h>
#include <grp.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/folder_lock.h"
#include "core/log.h"
#include "server/http/http_connection.h"
#include "server/http/tls_terminator.h"

namespace heddle::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);
// Pause after a failed accept, which means that no more files can be opened.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr int kMaxTurnedAway = 64;  // connections that are refused with an answer at one time

// Open files that are not connections: 64 connections being turned away, and 192 for the engine,
// the log and the model.
constexpr uint64_t kOtherFiles = 256;
constexpr uint64_t kFilesOfTls = 3;  // open files per TLS connection (tls_terminator.h)

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

// Raises the soft limit of open files to `num_files`, or as far as the hard limit allows. Returns
// the new limit.
uint64_t raise_file_limit(uint64_t num_files) {
  rlimit limit{};
  // Unknown limit: accept() will fail if it is too low.
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return num_files;
  if (limit.rlim_cur >= num_files) return limit.rlim_cur;
  const rlim_t before = std::exchange(limit.rlim_cur, std::min<rlim_t>(num_files, limit.rlim_max));
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
}

// The text for HttpRequest::client: "192.0.2.7", "2001:db8::7", "unix"; "" if the socket is closed.
std::string address_of_client(const ByteSocket& socket) {
  error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return {};
  if (endpoint.protocol().family() == AF_UNIX) return "unix";
  char address[NI_MAXHOST] = "";
  const auto* const name = static_cast<const sockaddr*>(endpoint.data());
  const int failed = ::getnameinfo(name, static_cast<socklen_t>(endpoint.size()), address,
                                   sizeof(address), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? std::string(address) : std::string();
}

class AsioHttpServer final : public HttpServer {
 public:
  explicit AsioHttpServer(const HttpServerOptions& options)
      : options_(options), acceptor_(io_), work_(io_.get_executor()) {}

  ~AsioHttpServer() override { stop(0); }

  Status bind() {
    if (!options_.certificate_file.empty()) {
      const TlsOptions tls{.certificate_file = options_.certificate_file,
                           .key_file = options_.key_file,
                           .handshake_seconds = options_.header_timeout_seconds,
                           .write_timeout_seconds = options_.write_timeout_seconds};
      HEDDLE_ASSIGN_OR_RETURN(tls_, TlsTerminator::create(io_, tls));
    }
    return options_.host.starts_with(kUnixPrefix) ? bind_path() : bind_port();
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
    timer->expires_after(server::seconds(seconds));
    timer->async_wait([timer, work = std::move(work)](const error_code& error) {
      if (!error) work();
    });
  }

  void begin_stop(double grace_seconds) override {
    asio::post(io_, [this, grace_seconds] { stop_on_io_thread(seconds(grace_seconds)); });
  }

  void stop(double grace_seconds) override {
    if (!thread_.joinable()) return;
    begin_stop(grace_seconds);
    thread_.join();
  }

 private:
  void bind(const asio::generic::stream_protocol::endpoint& endpoint, error_code& error) {
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
  }

  void listen(error_code& error) {
    acceptor_.listen(asio::socket_base::max_listen_connections, error);
  }

  // Binds a unix socket. Its file remains when a server is killed: a file without a listener is
  // replaced.
  Status bind_path() {
    const std::string path = options_.host.substr(kUnixPrefix.size());
    sockaddr_un longest{};
    if (path.empty() || path.size() >= sizeof(longest.sun_path)) {
      return invalid_argument(
          fmt::format("--host {}: the path of a unix socket has 1 to {} characters", options_.host,
                      sizeof(longest.sun_path) - 1));
    }
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<gid_t> owner, socket_group());
    // Between bind() and listen() the file refuses connections, like a file without a server; hence
    // the lock.
    constexpr double kMaxStartSeconds = 1;
    const FolderLock lock(std::filesystem::path(path).parent_path(), kMaxStartSeconds);
    if (lock.is_busy()) {
      return unavailable(fmt::format(
          "another server is starting in the folder of {}; try again, or choose another path with "
          "--host",
          path));
    }
    const asio::local::stream_protocol::endpoint endpoint(path);
    error_code error;
    bind(endpoint, error);
    if (error == asio::error::address_in_use) {
      asio::local::stream_protocol::socket other(io_);
      error_code refused;
      other.connect(endpoint, refused);
      std::error_code unknown;
      if (refused == asio::error::connection_refused &&
          !std::filesystem::is_socket(path, unknown)) {
        return invalid_argument(fmt::format(
            "--host {}: {} is there and is no socket; choose another path", options_.host, path));
      }
      if (refused == asio::error::connection_refused && ::unlink(path.c_str()) == 0) {
        error_code ignored;
        acceptor_.close(ignored);
        bind(endpoint, error);
      }
    }
    if (error == asio::error::address_in_use) {
      return unavailable(fmt::format(
          "{} is in use by another program; stop it or choose another path with --host", path));
    }
    if (error) return unavailable(fmt::format("cannot listen on {}: {}", path, error.message()));
    unix_path_ = path;  // from here on the file is removed at the end
    HEDDLE_RETURN_IF_ERROR(set_access(path, owner));
    listen(error);
    if (error) return unavailable(fmt::format("cannot listen on {}: {}", path, error.message()));
    return ok_status();
  }

  // The group id of options_.socket_group, which is a name or a number; none if it is empty.
  [[nodiscard]] Result<std::optional<gid_t>> socket_group() const {
    const std::string& name = options_.socket_group;
    if (name.empty()) return std::optional<gid_t>();
    if (const group* found = ::getgrnam(name.c_str())) return std::optional(found->gr_gid);
    gid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && end == name.data() + name.size()) return std::optional(number);
    return invalid_argument(fmt::format(
        "--socket-group {}: there is no such group; `getent group` lists those there are", name));
  }

  // Sets owner and permissions of the socket file. Called before clients can connect.
  [[nodiscard]] Status set_access(const std::string& path, std::optional<gid_t> owner) const {
    if (owner && ::lchown(path.c_str(), static_cast<uid_t>(-1), *owner) != 0) {
      return unavailable(fmt::format("--socket-group {}: {}: {}; be a member of the group, or root",
                                     options_.socket_group, path, std::strerror(errno)));
    }
    constexpr uint32_t kGroupMode = 0660;  // connecting to a unix socket needs permission to write
    if (!options_.socket_mode && !owner) return ok_status();
    const uint32_t mode = options_.socket_mode.value_or(kGroupMode);
    if (::chmod(path.c_str(), mode) != 0) {
      return unavailable(fmt::format(
          "{} {:o}: {}: {}", options_.socket_mode ? "--socket-mode" : "--socket-group, mode", mode,
          path, std::strerror(errno)));
    }
    return ok_status();
  }

  Status bind_port() {
    tcp::endpoint endpoint;
    HEDDLE_RETURN_IF_ERROR(resolve(endpoint));
    error_code error;
    bind(endpoint, error);
    if (!error) listen(error);
    if (error == asio::error::address_in_use) {
      return unavailable(fmt::format(
          "port {} of {} is in use by another program; stop it or choose another with --port",
          options_.port, options_.host));
    }
    if (error) {
      return unavailable(
          fmt::format("cannot listen on {}, port {}: {}; --host takes an address of this machine, "
                      "as 127.0.0.1, or 0.0.0.0 for all, and --port 0 any free port",
                      options_.host, options_.port, error.message()));
    }
    tcp::endpoint bound;
    const auto local = acceptor_.local_endpoint(error);
    std::memcpy(bound.data(), local.data(), std::min(local.size(), bound.capacity()));
    port_ = bound.port();
    return ok_status();
  }

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

  // Runs the I/O thread. If a handler throws, its connection is lost, but never the thread.
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
    end_if_idle();
  }

  void serve(ByteSocket accepted) {
    ByteSocket socket = std::move(accepted);
    std::string client = address_of_client(socket);  // read before TLS replaces the socket
    if (tls_ != nullptr) {
      ++num_tls_sessions_;
      auto plain = tls_->terminate(std::move(socket), client, [this] {
        --num_tls_sessions_;
        end_if_idle();
      });
      if (!plain.ok()) {
        --num_tls_sessions_;
        log_warning(fmt::format("a connection is closed: {}", plain.status().message()));
        return;
      }
      socket = std::move(plain).value();
    }
    if (static_cast<int64_t>(connections_.size()) >= options_.max_connections) {
      log_warning(fmt::format("{} connections are open, the limit; a new one is closed",
                              connections_.size()));
      turn_away(std::move(socket));
      return;
    }
    const auto connection = std::make_shared<Connection>(std::move(socket), std::move(client),
                                                         options_, *handler_, budget_);
    if (stopping_) connection->stop_after_answer();
    connections_.insert(connection.get());
    asio::co_spawn(io_, connection->run(), [this, connection](const std::exception_ptr& failure) {
      log_escaped("a connection", failure);
      if (failure) connection->close();
      connections_.erase(connection.get());
      end_if_idle();
    });
  }

  // Stops on the I/O thread. Clients that have connected are served, even those not accepted yet. A
  // client that connects between the last accept and the close is reset.
  void stop_on_io_thread(std::chrono::steady_clock::duration grace) {
    stop_timer_.expires_after(grace);  // also replaces the deadline of an earlier stop
    stop_timer_.async_wait([this](const error_code& error) {
      if (!error) end();
    });
    if (std::exchange(stopping_, true)) return;
    for (Connection* connection : copy_of_connections()) connection->stop_after_answer();
    error_code error;
    acceptor_.non_blocking(true, error);
    while (!error) {
      ByteSocket socket(io_);
      acceptor_.accept(socket, error);
      if (!error) serve(std::move(socket));
    }
    acceptor_.close(error);
    if (!unix_path_.empty()) ::unlink(unix_path_.c_str());
  }

  void end_if_idle() {
    if (stopping_ && connections_.empty() && num_tls_sessions_ == 0 && !accepting_) end();
  }

  void end() {
    for (Connection* connection : copy_of_connections()) connection->close();
    io_.stop();
  }

  // Answers that the server is full, to kMaxTurnedAway connections at a time; further ones are only
  // closed.
  void turn_away(ByteSocket socket) {
    if (num_turned_away_ >= kMaxTurnedAway) return;
    ++num_turned_away_;
    const auto connection =
        std::make_shared<Connection>(std::move(socket), "", options_, *handler_, budget_);
    asio::co_spawn(io_,
                   connection->turn_away(handler_->on_transport_error(
                       nullptr, 503,
                       fmt::format("The server has {} connections open, its limit. Retry "
                                   "later.",
                                   options_.max_connections))),
                   [this, connection](const std::exception_ptr& failure) {
                     log_escaped("a connection", failure);
                     --num_turned_away_;
                   });
  }

  [[nodiscard]] std::vector<Connection*> copy_of_connections() const {
    return {connections_.begin(), connections_.end()};
  }

  const HttpServerOptions options_;
  const std::shared_ptr<BodyBudget> budget_ =
      std::make_shared<BodyBudget>(options_.max_held_body_bytes);
  HttpHandler* handler_ = nullptr;
  int num_turned_away_ = 0;                      // refused connections that are still open
  std::unordered_set<Connection*> connections_;  // each one is kept alive by its coroutine
  asio::io_context io_{1};
  std::unique_ptr<TlsTerminator> tls_;  // null: clients speak plain HTTP
  int64_t num_tls_sessions_ = 0;
  std::string unix_path_;  // path of the socket's file, removed at the end; empty: a TCP port
  asio::basic_socket_acceptor<asio::generic::stream_protocol> acceptor_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  asio::steady_timer stop_timer_{io_};
  bool stopping_ = false;
  bool accepting_ = true;  // false once the accept loop has ended
  uint16_t port_ = 0;
  std::thread thread_;
};

}  // namespace

Result<int32_t> connections_within(int32_t wanted, uint64_t max_files, uint64_t files_each) {
  const uint64_t num_files = static_cast<uint64_t>(wanted) * files_each + kOtherFiles;
  if (max_files >= num_files) return wanted;
  if (max_files < kOtherFiles + files_each) {
    return resource_exhausted(
        fmt::format("the process may open {} files, and the server needs {} besides its "
                    "connections; raise the limit with `ulimit -n {}`",
                    max_files, kOtherFiles, num_files));
  }
  const auto fitting = static_cast<int32_t>((max_files - kOtherFiles) / files_each);
  log_warning(
      fmt::format("The server takes {} connections instead of {}, because the process may "
                  "open only {} files; `ulimit -n {}` allows all",
                  fitting, wanted, max_files, num_files));
  return fitting;
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerOptions& options) {
  HttpServerOptions fitting = options;
  const uint64_t files_each = options.certificate_file.empty() ? 1 : kFilesOfTls;
  const uint64_t max_files =
      raise_file_limit(static_cast<uint64_t>(options.max_connections) * files_each + kOtherFiles);
  HEDDLE_ASSIGN_OR_RETURN(fitting.max_connections,
                          connections_within(options.max_connections, max_files, files_each));
  auto server = std::make_unique<AsioHttpServer>(fitting);
  HEDDLE_RETURN_IF_ERROR(server->bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace heddle::server
