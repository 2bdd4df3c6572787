// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_arguments.h"

#include <utility>

#include "parsers/call_cursor.h"

namespace heddle::parsers {

JsonArguments::JsonArguments(const CallHeader& header, std::string_view text, JsonScanner object)
    : object_(std::move(object)) {
  if (!header.lead.empty()) {
    size_t used = 0;
    (void)object_.scan(header.lead, used, &lead_, TextEnd::kStopped);
  } else if (text.front() != '{') {
    text_.emplace();
  }
  if (header.open_objects > 0) tail_ = JsonScanner::after_value(header.open_objects);
}

Progress JsonArguments::read(std::string_view text, TextEnd end, size_t& used, std::string& json) {
  if (text_) return read_text(text, used, json);
  json += std::exchange(lead_, {});
  JsonScanner::State state = object_.scan(text, used, &json, end);
  const Match ends =
      state == JsonScanner::State::kError ? begins_end(text.substr(used)) : Match::kNo;
  // the next bytes decide whether the arguments have ended
  if (ends == Match::kMore) state = JsonScanner::State::kMore;
  if (ends == Match::kYes && object_.close_all(&json)) state = JsonScanner::State::kDone;
  switch (state) {
    case JsonScanner::State::kMore:
      return Progress::kMore;
    case JsonScanner::State::kDone:
      return Progress::kDone;
    case JsonScanner::State::kError:
      break;
  }
  return Progress::kFailed;
}

// Whether a mark begins where the arguments cannot continue: it ends an object that lacks its
// closing brackets.
Match JsonArguments::begins_end(std::string_view text) {
  constexpr std::string_view kEnds[] = {"<", "`", "[TOOL_CALLS", "[/"};
  std::string_view ignored;
  return begins_with(text, kEnds, &ignored);
}

Progress JsonArguments::read_text(std::string_view text, size_t& used, std::string& json) {
  for (used = 0; used < text.size(); ++used) {
    const char c = text[used];
    *text_ += c;
    if (text_->size() > kMaxTextBytes) return Progress::kFailed;
    if (text_is_escaped_) {
      text_is_escaped_ = false;
    } else if (c == '\\') {
      text_is_escaped_ = true;
    } else if (text_->size() > 1 && c == text_->front()) {
      ++used;
      count_searched(used);
      std::string value;
      CallCursor cursor(*text_);
      const auto object =
          cursor.read_string(value) ? object_in_text(value, object_) : std::optional<std::string>();
      if (!object) return Progress::kFailed;
      json += *object;
      return Progress::kDone;
    }
  }
  count_searched(used);
  return Progress::kMore;
}

bool JsonArguments::finish(std::string& json) {
  json += std::exchange(lead_, {});
  return !text_ && object_.close_all(&json);
}

Closing JsonArguments::read_tail(std::string_view text) {
  if (!tail_) return {};
  // White space is never part of the tail: the text after it decides whether it is content.
  const std::string_view word = text.substr(0, text.find_first_of(" \t\n\r"));
  size_t used = 0;
  const JsonScanner::State state = tail_->scan(word, used, nullptr);
  if (state != JsonScanner::State::kMore) tail_.reset();  // a missing '}' is accepted
  if (used > 0) return {.match = Match::kYes, .size = used};
  return {.match = state == JsonScanner::State::kMore ? Match::kMore : Match::kNo};
}

std::optional<std::string> object_in_text(std::string_view text, JsonScanner scanner) {
  text.remove_prefix(space_size(text));
  if (text.empty()) return "{}";
  size_t used = 0;
  std::string copy;
  if (scanner.scan(text, used, &copy, TextEnd::kStopped) != JsonScanner::State::kDone) {
    return std::nullopt;
  }
  return space_size(text.substr(used)) == text.size() - used ? std::optional(std::move(copy))
                                                             : std::nullopt;
}

}  // namespace heddle::parsers
