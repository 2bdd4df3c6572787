// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_answer.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"

namespace heddle::tools {
namespace {

constexpr size_t kMaxShownBytes = 300;
// Larger token counts of a server are treated as wrong.
constexpr uint64_t kMaxCount = 1'000'000'000;
// Larger counts for one event are treated as wrong.
constexpr int64_t kMaxTokensOfAnEvent = 1 << 12;

const nlohmann::json* member(const nlohmann::json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> count_of(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const value = member(object, name);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return static_cast<int64_t>(std::min<uint64_t>(value->get<uint64_t>(), kMaxCount));
}

bool carries_text(const nlohmann::json& object, const char* name) {
  const nlohmann::json* const value = member(object, name);
  return value != nullptr &&
         ((value->is_string() && !value->get_ref<const std::string&>().empty()) ||
          (value->is_array() && !value->empty()));
}

bool shows_text(const nlohmann::json& choice) {
  if (carries_text(choice, "text")) return true;
  const nlohmann::json* const delta = member(choice, "delta");
  return delta != nullptr &&
         std::ranges::any_of(std::initializer_list<const char*>{"content", "reasoning_content",
                                                                "reasoning", "tool_calls"},
                             [delta](const char* name) { return carries_text(*delta, name); });
}

}  // namespace

bool SseReader::feed(std::string_view bytes, const std::function<void(std::string_view)>& on_data) {
  while (!bytes.empty() && !too_long_) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    too_long_ = line_.size() + data_.size() > kMaxEventBytes;
    if (end == std::string_view::npos || too_long_) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line(on_data);
    line_.clear();
  }
  return !too_long_;
}

void SseReader::end_line(const std::function<void(std::string_view)>& on_data) {
  std::string_view line = line_;
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (first_line_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  first_line_ = false;
  if (line.empty()) {
    if (has_data_) on_data(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  const size_t colon = line.find(':');
  if (line.substr(0, colon) != "data") return;
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += value;
  has_data_ = true;
}

std::string error_message(std::string_view body) {
  const nlohmann::json parsed = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json* const error = member(parsed, "error");
  const nlohmann::json* const text =
      member(error != nullptr && error->is_object() ? *error : parsed, "message");
  const auto shown = [](std::string_view words) { return printable(words, kMaxShownBytes); };
  if (text != nullptr && text->is_string()) return shown(text->get_ref<const std::string&>());
  if (error != nullptr && error->is_string()) return shown(error->get_ref<const std::string&>());
  return shown(body);
}

void LoadAnswer::feed(std::string_view bytes, double at) {
  const bool readable =
      reader_.feed(bytes, [this, at](std::string_view data) { on_event(data, at); });
  if (!readable && !record_.failure) {
    record_.failure = {
        "protocol", fmt::format("an event is longer than {} MiB", SseReader::kMaxEventBytes >> 20)};
  }
}

void LoadAnswer::end(double at) {
  record_.ended = at;
  if (!finished_ && !record_.failure) {
    record_.failure = {"cut", "the stream ended before its answer did"};
  }
}

void LoadAnswer::on_event(std::string_view data, double at) {
  if (record_.failure) return;
  if (data == "[DONE]") {
    finished_ = true;
    return;
  }
  const nlohmann::json event = nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) {
    record_.failure = {
        "protocol", fmt::format("an event is no JSON object: {}", printable(data, kMaxShownBytes))};
    return;
  }
  if (member(event, "error") != nullptr) {
    record_.failure = {"error in the stream", error_message(data)};
    return;
  }
  bool text = false;
  if (const nlohmann::json* const choices = member(event, "choices");
      choices && choices->is_array()) {
    for (const nlohmann::json& choice : *choices) {
      text = text || shows_text(choice);
      finished_ = finished_ || member(choice, "finish_reason") != nullptr;
    }
  }
  int64_t tokens = 1;
  if (const nlohmann::json* const usage = member(event, "usage")) {
    record_.input_tokens = count_of(*usage, "prompt_tokens");
    record_.output_tokens = count_of(*usage, "completion_tokens");
    if (const nlohmann::json* const details = member(*usage, "prompt_tokens_details")) {
      record_.cached_tokens = count_of(*details, "cached_tokens").value_or(0);
    }
    const int64_t total = record_.output_tokens.value_or(0);
    tokens = std::clamp<int64_t>(total - counted_tokens_, 1, kMaxTokensOfAnEvent);
    counted_tokens_ = total;
  }
  if (text) record_.arrivals.push_back({.at = at, .tokens = tokens});
}

}  // namespace heddle::tools
