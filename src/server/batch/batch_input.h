// SPDX-License-Identifier: Apache-2.0
// The input file of a batch: a request a line, as OpenAI's clients write it:
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}
//
// and the lines of its output and error files.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace heddle::server {

inline constexpr size_t kMaxBatchLines = 50000;
inline constexpr size_t kMaxCustomIdBytes = 512;
inline constexpr size_t kMaxBatchErrors = 100;  // shown; the first ones

struct BatchLine {
  std::string custom_id;
  std::string body;  // JSON
};

struct BatchError {
  std::string code;
  std::string message;
  std::string param;  // "" without one
  int64_t line = 0;   // from 1; 0: of the whole file
};

// Whether a batch may ask for it.
[[nodiscard]] bool is_batch_endpoint(std::string_view path);

// The requests of a file, or everything that is wrong with its lines. Blank lines do not count.
// Cost: O(text).
std::variant<std::vector<BatchLine>, std::vector<BatchError>> read_batch_input(
    std::string_view text, std::string_view endpoint);

// {"object": "list", "data": [{"code", "message", "param", "line"}]}
[[nodiscard]] nlohmann::ordered_json errors_json(const std::vector<BatchError>& errors);

// A line for a request that was answered with `status`; `body` is JSON.
[[nodiscard]] std::string batch_output_line(const std::string& custom_id,
                                            const std::string& request_id, int status,
                                            std::string_view body);

// A line for a request that was not made.
[[nodiscard]] std::string batch_error_line(const std::string& custom_id, std::string_view code,
                                           std::string_view message);

// The codes of requests that were not made because their batch ended; they count as neither
// completed nor failed.
inline constexpr std::string_view kBatchCancelled = "batch_cancelled";
inline constexpr std::string_view kBatchExpired = "batch_expired";
inline constexpr std::string_view kBatchFailed = "batch_failed";

struct WrittenLine {
  std::string custom_id;
  bool is_answered = false;  // false: the batch ended before
};

// A line of an output or error file, without its line break. Nothing where it is not a whole one.
std::optional<WrittenLine> read_written_line(std::string_view text);

}  // namespace heddle::server
