// SPDX-License-Identifier: Apache-2.0
#include "server/server.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/log.h"
#include "core/mutex.h"
#include "server/admin/profiler.h"
#include "server/api_handler.h"
#include "server/call/request_log.h"
#include "server/call/speed_log.h"
#include "server/http/key_ring.h"
#include "server/storage/file_store.h"

namespace heddle::server {
namespace {

constexpr double kFlushSeconds = 5;        // time to send the last bytes of finished answers
constexpr double kNoTimeoutSeconds = 1e9;  // stands for no time limit: thirty years

int64_t system_unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string describe(const SpeculativeOptions& options) {
  if (options.algorithm == DraftAlgorithm::kNone) return "none";
  const std::string_view name = to_string(options.algorithm);
  return options.adapts() ? fmt::format("{}, as many as pay", name)
                          : fmt::format("{}, {} a step", name, options.num_draft_tokens - 1);
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.") ||
         host.starts_with(kUnixPrefix);
}

// Warns if every key may control the server: with several named keys, one holder could end the
// requests of another.
void warn_of_keys_that_steer(const ServerOptions& options, size_t num_named_keys) {
  const size_t num_keys = num_named_keys + (options.api_key.empty() ? 0 : 1);
  if (num_keys < 2 || !options.admin_api_key.empty()) return;
  log_warning(
      fmt::format("Each of the {} API keys may steer the server: pause it, exchange its "
                  "weights, end the requests of others; --admin-api-key keeps that to "
                  "one key",
                  num_keys));
}

class HeddleServer final : public Server {
 public:
  explicit HeddleServer(const ServerOptions& options) : options_(options), handler_(options) {}

  ~HeddleServer() override { stop(0, 0); }

  Status open() {
    if (!options_.profile_path.empty()) {
      HEDDLE_RETURN_IF_ERROR(
          make_profile_folder(options_.profile_path).with_context("--profile-path"));
    }
    auto request_log = RequestLog::open(options_.request_log, options_.unix_time);
    if (!request_log.ok()) return request_log.status().with_context("--log-requests-target");
    handler_.set_request_log(std::move(request_log).value());
    HEDDLE_ASSIGN_OR_RETURN(http_, HttpServer::listen(options_.http));
    handler_.set_post([this](std::function<void()> work) { http_->post(std::move(work)); },
                      [this](double seconds, std::function<void()> work) {
                        http_->post_after(seconds, std::move(work));
                      });
    auto files = FileStore::open(options_.file_storage_path, options_.file_storage_bytes,
                                 options_.storage_share(), options_.disk_faults);
    if (!files.ok()) return files.status().with_context("--file-storage-path");
    handler_.set_files(std::move(files).value());
    http_->start(handler_);
    return ok_status();
  }

  [[nodiscard]] uint16_t port() const override { return http_->port(); }

  [[nodiscard]] std::string address() const override {
    const std::string& host = options_.http.host;
    if (host.starts_with(kUnixPrefix)) return host;
    const char* scheme = options_.http.certificate_file.empty() ? "http" : "https";
    return host.find(':') == std::string::npos ? fmt::format("{}://{}:{}", scheme, host, port())
                                               : fmt::format("{}://[{}]:{}", scheme, host, port());
  }

  void set_load_progress(int64_t done_bytes, int64_t total_bytes) override {
    handler_.health().set_load_progress(done_bytes, total_bytes);
  }

  void start_serving(std::unique_ptr<Engine> engine, std::unique_ptr<TextCodec> codec,
                     nlohmann::ordered_json configuration,
                     std::vector<ServedAdapter> adapters) override {
    const ModelInfo& model = engine->model_info();
    const MemoryPlan& plan = engine->memory_plan();
    const std::string name =
        options_.served_model_names.empty() ? model.name : options_.served_model_names.front();
    log_info(fmt::format("Model: {}, {} parameters, {} on {} ({}), context of {} tokens",
                         model.architecture, model.num_parameters, model.dtype, model.device,
                         model.device_reason, model.context_length));
    log_info(fmt::format("Cache granularity: {} tokens; drafts: {}", plan.page_size,
                         describe(engine->options().speculative)));
    serving_ = engine.get();
    for (const ServedAdapter& adapter : adapters) {
      log_info(fmt::format("Adapter: {} from {}, rank {}", adapter.name, adapter.path,
                           adapter.adapter->rank));
    }
    handler_.serve(std::move(engine), std::move(codec), std::move(configuration),
                   std::move(adapters));
    log_info("The server is fired up and ready to roll!");
    log_info(
        fmt::format("Serving {} at {}: the APIs, and a dashboard for browsers", name, address()));
    last_summary_ = std::chrono::steady_clock::now();
    summarise_later();
  }

  [[nodiscard]] bool reads_keys_again() const override { return !options_.api_keys_file.empty(); }

  Status reload_keys() override {
    HEDDLE_ASSIGN_OR_RETURN(std::vector<ApiKey> keys, read_api_keys(options_.api_keys_file));
    log_info(fmt::format("{} API keys were read from {}", keys.size(), options_.api_keys_file));
    warn_of_keys_that_steer(options_, keys.size());
    handler_.replace_keys(std::move(keys));
    return ok_status();
  }

  void announce_shutdown(double seconds) override {
    handler_.health().announce_shutdown();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  int64_t shutdown() override {
    const double timeout = options_.shutdown_timeout_seconds;
    return stop(timeout < 0 ? kNoTimeoutSeconds : timeout, kFlushSeconds);
  }

 private:
  void summarise_later() {
    http_->post_after(SpeedSummary::kSummarySeconds, [this] {
      const auto now = std::chrono::steady_clock::now();
      const std::chrono::duration<double> passed = now - std::exchange(last_summary_, now);
      const auto line =
          summary_.next(serving_->stats(), serving_->memory_plan().kv_tokens, passed.count());
      if (line) log_info(*line);
      summarise_later();
    });
  }

  int64_t stop(double drain_seconds, double flush_seconds) HEDDLE_EXCLUDES(stop_mutex_) {
    const MutexLock lock(stop_mutex_);
    if (std::exchange(stopped_, true) || http_ == nullptr) return 0;
    Engine* engine = handler_.begin_drain();
    const int64_t num_aborted = engine == nullptr ? 0 : engine->drain(drain_seconds);
    http_->stop(flush_seconds);
    handler_.tear_down();
    return num_aborted;
  }

  const ServerOptions options_;
  ApiHandler handler_;
  std::unique_ptr<HttpServer> http_;

  // After start_serving() only the I/O thread uses the objects below.
  const Engine* serving_ = nullptr;  // null once the engine has stopped
  SpeedSummary summary_;
  std::chrono::steady_clock::time_point last_summary_;

  Mutex stop_mutex_;
  bool stopped_ HEDDLE_GUARDED_BY(stop_mutex_) = false;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options) {
  if (!options.unix_time) options.unix_time = system_unix_time;
  if (options.api_key.empty() && options.api_keys.empty() && !is_loopback(options.http.host)) {
    log_warning(fmt::format("Everyone who reaches {} may use this server; --api-key asks for a key",
                            options.http.host));
  }
  warn_of_keys_that_steer(options, options.api_keys.size());
  auto server = std::make_unique<HeddleServer>(options);
  HEDDLE_RETURN_IF_ERROR(server->open());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace heddle::server
