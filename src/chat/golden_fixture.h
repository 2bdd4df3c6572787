// SPDX-License-Identifier: Apache-2.0
// Reads the golden cases and renders them the way they were made.
#pragma once

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat/json.h"
#include "chat/template.h"
#include "support/test_data.h"

namespace heddle::chat {

using Json = nlohmann::ordered_json;

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline Json read_json(const std::filesystem::path& path) {
  Json json = Json::parse(read_text(path), nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << path;
  return json;
}

// Thursday, 10 July 2025, 12:34:56: the date the goldens were rendered at.
inline std::tm golden_time() {
  std::tm time{};
  time.tm_year = 125;
  time.tm_mon = 6;
  time.tm_mday = 10;
  time.tm_hour = 12;
  time.tm_min = 34;
  time.tm_sec = 56;
  time.tm_wday = 4;
  time.tm_yday = 190;
  return time;
}

inline Result<std::string> render_golden(const std::string& source, const Json& context,
                                         const ParseOptions& options = {},
                                         RenderReport* report = nullptr) {
  HEDDLE_ASSIGN_OR_RETURN(const Template parsed, Template::parse(source, "chat_template", options));
  HEDDLE_ASSIGN_OR_RETURN(const Value values, value_from_json(context));
  return parsed.render(values, options.limits, golden_time, report);
}

// The text, or "error: " and the message.
inline std::string shown(const Result<std::string>& result) {
  return result.ok() ? result.value() : "error: " + result.status().message();
}

}  // namespace heddle::chat
