// SPDX-License-Identifier: Apache-2.0
// Logging: one sentence per line, with values at the end, as text or as JSON. Lines go to standard
// error, so that a command's output can be piped. spdlog is included only by log.cpp, because
// including it costs six seconds of compile time per file.
//
// Threading: thread-safe.
#pragma once

#include <string_view>

namespace heddle {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

void set_log_level(LogLevel level);  // lower levels are not shown; the default is kInfo

enum class LogFormat {
  kText,  // for example: 2026-11-29 12:00:00.000 info Sentence
  kJson,  // {"time":"2026-11-29T12:00:00.000+01:00","level":"info","message":"Sentence"}
};

void set_log_format(LogFormat format);  // the default is kText

// Whether messages of this level are shown. Check it before composing an expensive message.
[[nodiscard]] bool logs(LogLevel level);

void log_debug(std::string_view sentence);
void log_info(std::string_view sentence);
void log_warning(std::string_view sentence);
void log_error(std::string_view sentence);

}  // namespace heddle
