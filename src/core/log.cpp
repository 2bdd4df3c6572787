// SPDX-License-Identifier: Apache-2.0
#include "core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace heddle {

namespace {

constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                 spdlog::level::warn, spdlog::level::err,
                                                 spdlog::level::off};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto created = std::make_shared<spdlog::logger>(
        "heddle", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
    return created;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(kLevels[static_cast<int>(level)]); }

bool logs(LogLevel level) { return logger().should_log(kLevels[static_cast<int>(level)]); }

void log_debug(std::string_view sentence) { logger().debug("{}", sentence); }

void log_info(std::string_view sentence) { logger().info("{}", sentence); }

void log_warning(std::string_view sentence) { logger().warn("{}", sentence); }

void log_error(std::string_view sentence) { logger().error("{}", sentence); }

}  // namespace heddle
