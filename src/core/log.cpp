// SPDX-License-Identifier: Apache-2.0
#include "core/log.h"

#include <memory>
#include <string>

#include <nlohmann/json.hpp>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace heddle {

namespace {

constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                 spdlog::level::warn, spdlog::level::err,
                                                 spdlog::level::off};

constexpr const char* kTextPattern = "%Y-%m-%d %H:%M:%S.%e %^%l%$ %v";

// Formats a message as a JSON string.
class QuotedSentence : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& line) override {
    const nlohmann::json sentence(std::string(message.payload.begin(), message.payload.end()));
    const std::string quoted =
        sentence.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    line.append(quoted.data(), quoted.data() + quoted.size());
  }

  [[nodiscard]] std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<QuotedSentence>();
  }
};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>(
        "heddle", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern(kTextPattern);
    return created;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(kLevels[static_cast<int>(level)]); }

void set_log_format(LogFormat format) {
  if (format == LogFormat::kText) return logger().set_pattern(kTextPattern);
  auto lines = std::make_unique<spdlog::pattern_formatter>();
  lines->add_flag<QuotedSentence>('*').set_pattern(
      R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%*})");
  logger().set_formatter(std::move(lines));
}

bool logs(LogLevel level) { return logger().should_log(kLevels[static_cast<int>(level)]); }

void log_debug(std::string_view sentence) { logger().debug("{}", sentence); }

void log_info(std::string_view sentence) { logger().info("{}", sentence); }

void log_warning(std::string_view sentence) { logger().warn("{}", sentence); }

void log_error(std::string_view sentence) { logger().error("{}", sentence); }

}  // namespace heddle
