// SPDX-License-Identifier: Apache-2.0
// The input file of a batch: one request per line, as OpenAI's clients write it:
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
// Errors that are reported, the first ones of a file.
inline constexpr size_t kMaxBatchErrors = 100;

struct BatchLine {
  std::string custom_id;
  std::string body;  // body of the request, as JSON
};

struct BatchError {
  std::string code;
  std::string message;
  std::string param;  // field at fault; "" if there is none
  int64_t line = 0;   // line number from 1; 0: the error concerns the whole file
};

// Whether the requests of a batch may use this path.
[[nodiscard]] bool is_batch_endpoint(std::string_view path);

// Parses a file into its requests, or returns all errors in its lines. Blank lines are skipped.
// Cost: O(text).
std::variant<std::vector<BatchLine>, std::vector<BatchError>> read_batch_input(
    std::string_view text, std::string_view endpoint);

// The errors as {"object": "list", "data": [{"code", "message", "param", "line"}]}.
[[nodiscard]] nlohmann::ordered_json errors_json(const std::vector<BatchError>& errors);

// The output line for a request that was answered with `status`; `body` is JSON.
[[nodiscard]] std::string batch_output_line(const std::string& custom_id,
                                            const std::string& request_id, int status,
                                            std::string_view body);

// The error line for a request that was not sent.
[[nodiscard]] std::string batch_error_line(const std::string& custom_id, std::string_view code,
                                           std::string_view message);

// Error codes of requests that were not sent because their batch ended; they count as neither
// completed nor failed.
inline constexpr std::string_view kBatchCancelled = "batch_cancelled";
inline constexpr std::string_view kBatchExpired = "batch_expired";
inline constexpr std::string_view kBatchFailed = "batch_failed";

struct WrittenLine {
  std::string custom_id;
  bool is_answered = false;  // false: the batch ended before the request was sent
};

// Parses a line of an output or error file, without its line break. None if the line is incomplete.
std::optional<WrittenLine> read_written_line(std::string_view text);

}  // namespace heddle::server
