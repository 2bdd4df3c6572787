// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_calls.h"

#include <algorithm>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBeforeObject = 64;

constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";

// The marks of formats that frame a section of calls, each call, and its name.
struct SectionMarks {
  std::string_view section_begin;
  std::string_view call_begin;
  std::string_view separator;
  std::string_view call_end;
  std::string_view section_end;
};

constexpr SectionMarks kDeepseekMarks = {.section_begin = "<｜tool▁calls▁begin｜>",
                                         .call_begin = "<｜tool▁call▁begin｜>",
                                         .separator = "<｜tool▁sep｜>",
                                         .call_end = "<｜tool▁call▁end｜>",
                                         .section_end = "<｜tool▁calls▁end｜>"};
constexpr SectionMarks kKimiMarks = {.section_begin = "<|tool_calls_section_begin|>",
                                     .call_begin = "<|tool_call_begin|>",
                                     .separator = "<|tool_call_argument_begin|>",
                                     .call_end = "<|tool_call_end|>",
                                     .section_end = "<|tool_calls_section_end|>"};

std::vector<std::string_view> markers_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
      return {kToolCall};
    case JsonCallFormat::kLlama3:
      return {kPythonTag};
    case JsonCallFormat::kMistral:
      return {kMistralCalls};
    case JsonCallFormat::kDeepseek:
      return {kDeepseekMarks.section_begin, kDeepseekMarks.call_begin};
    case JsonCallFormat::kKimi:
      return {kKimiMarks.section_begin, kKimiMarks.call_begin};
  }
  return {};
}

std::vector<std::string_view> closers_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
      return {"</tool_call>", "]"};
    case JsonCallFormat::kLlama3:
      return {};
    case JsonCallFormat::kMistral:
      return {"]", "[/TOOL_CALLS]"};
    case JsonCallFormat::kDeepseek:
      return {"```", kDeepseekMarks.call_end, kDeepseekMarks.section_end};
    case JsonCallFormat::kKimi:
      return {kKimiMarks.call_end, kKimiMarks.section_end};
  }
  return {};
}

// Reads what may stand at the front of a text that goes on. A read that fails says whether more
// text could help; all later ones fail, too.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  [[nodiscard]] size_t position() const { return position_; }

  [[nodiscard]] std::string_view rest() const { return text_.substr(position_); }

  [[nodiscard]] CallHeader failure() const { return {.match = failure_}; }

  bool fail(Match failure = Match::kNo) {
    failure_ = failure;
    return false;
  }

  void advance(size_t size) { position_ += size; }

  // White space, and at least one byte after it.
  bool skip_space(size_t most = ToolCallParser::kMaxHeaderBytes) {
    const size_t size = space_size(rest());
    if (size > most) return fail();
    advance(size);
    return !rest().empty() || fail(Match::kMore);
  }

  bool expect(std::string_view wanted) {
    if (rest().starts_with(wanted)) {
      advance(wanted.size());
      return true;
    }
    return fail(wanted.starts_with(rest()) ? Match::kMore : Match::kNo);
  }

  // Takes `wanted` if it is there. False when it takes more text to tell.
  bool allow(std::string_view wanted) {
    if (rest().starts_with(wanted)) {
      advance(wanted.size());
      return true;
    }
    return !wanted.starts_with(rest()) || fail(Match::kMore);
  }

  // A JSON string; `value` is what it says.
  bool read_string(std::string& value) {
    if (!rest().starts_with('"')) return fail(rest().empty() ? Match::kMore : Match::kNo);
    size_t end = 1;
    for (; end < rest().size() && rest()[end] != '"'; ++end) {
      if (rest()[end] == '\\') ++end;
    }
    if (end >= rest().size()) return fail(Match::kMore);
    const auto json = nlohmann::json::parse(rest().substr(0, end + 1), nullptr, false);
    if (!json.is_string()) return fail();
    value = json.get<std::string>();
    advance(end + 1);
    return true;
  }

  // A JSON object, copied to `copy`.
  bool read_object(std::string& copy) {
    JsonScanner scanner;
    size_t used = 0;
    const JsonScanner::State state = scanner.scan(rest(), used, &copy);
    if (state != JsonScanner::State::kDone) {
      return fail(state == JsonScanner::State::kMore ? Match::kMore : Match::kNo);
    }
    advance(used);
    return true;
  }

  // Up to, not including, one of `stops`.
  bool read_until(std::string_view stops, std::string_view& value) {
    const size_t size = rest().find_first_of(stops);
    if (size > ToolCallParser::kMaxNameBytes && rest().size() > ToolCallParser::kMaxNameBytes) {
      return fail();
    }
    if (size == std::string_view::npos) return fail(Match::kMore);
    value = rest().substr(0, size);
    advance(size);
    return true;
  }

 private:
  std::string_view text_;
  size_t position_ = 0;
  Match failure_ = Match::kMore;
};

CallHeader header_of(const Cursor& cursor, std::string name, std::string id = {}) {
  if (name.empty() || name.size() > ToolCallParser::kMaxNameBytes) return {};
  return {.match = Match::kYes,
          .size = cursor.position(),
          .name = std::move(name),
          .id = std::move(id)};
}

// Mistral's templates take only ids of nine letters and digits.
bool is_mistral_id(std::string_view id) {
  return id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// A value that is passed over.
bool skip_value(Cursor& cursor) {
  std::string ignored;
  if (cursor.rest().starts_with('"')) return cursor.read_string(ignored);
  if (cursor.rest().starts_with('{')) return cursor.read_object(ignored);
  std::string_view word;
  return !cursor.rest().starts_with('[') && cursor.read_until(",}", word);
}

// {"name": .., "arguments": {..}}. With `strict` other keys than a call's make it something else:
// where no mark says that a call is meant, any JSON may stand.
CallHeader read_call_object(Cursor cursor, bool strict) {
  std::string name;
  std::string id;
  std::optional<std::string> arguments;
  if (!cursor.expect("{")) return cursor.failure();
  for (bool first = true;; first = false) {
    if (!cursor.skip_space()) return cursor.failure();
    if (cursor.rest().starts_with('}')) {
      cursor.advance(1);
      CallHeader header = header_of(cursor, std::move(name), std::move(id));
      header.arguments = arguments ? std::move(arguments) : std::optional<std::string>("{}");
      if (strict && *header.arguments == "{}") return {};
      return header;
    }
    std::string key;
    if (!first && (!cursor.expect(",") || !cursor.skip_space())) return cursor.failure();
    if (!cursor.read_string(key) || !cursor.skip_space() || !cursor.expect(":") ||
        !cursor.skip_space()) {
      return cursor.failure();
    }
    if (key == "name") {
      if (!cursor.read_string(name)) return cursor.failure();
      if (name.empty() || name.size() > ToolCallParser::kMaxNameBytes) return {};
    } else if (key == "arguments" || key == "parameters") {
      if (cursor.rest().starts_with('{')) {
        if (!name.empty() && !arguments) return header_of(cursor, std::move(name), std::move(id));
        arguments.emplace();
        if (!cursor.read_object(*arguments)) return cursor.failure();
      } else if (!cursor.expect("null")) {
        return cursor.failure();
      }
    } else if (key == "id" && cursor.rest().starts_with('"')) {
      if (!cursor.read_string(id)) return cursor.failure();
    } else if (strict && key != "type") {
      return {};
    } else if (!skip_value(cursor)) {
      return cursor.failure();
    }
  }
}

CallHeader read_qwen_header(std::string_view text, Place place) {
  Cursor cursor(text);
  if (place == Place::kMarker) cursor.advance(kToolCall.size());
  if (place == Place::kNext && (!cursor.skip_space() || !cursor.allow(","))) {
    return cursor.failure();
  }
  if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
  if (place == Place::kMarker && cursor.rest().starts_with('[')) {
    cursor.advance(1);
    if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
  }
  CallHeader header = read_call_object(cursor, /*strict=*/false);
  header.id.clear();  // ids are ours
  return header;
}

CallHeader read_llama_header(std::string_view text, Place place) {
  Cursor cursor(text);
  if (place == Place::kMarker) {
    cursor.advance(kPythonTag.size());
  } else if (!cursor.skip_space()) {
    return cursor.failure();
  }
  if (place == Place::kNext) {
    if (!cursor.allow(";") || !cursor.allow(",")) return cursor.failure();
  }
  if (!cursor.skip_space()) return cursor.failure();
  CallHeader header = read_call_object(cursor, /*strict=*/true);
  header.id.clear();
  return header;
}

CallHeader read_mistral_header(std::string_view text, Place place) {
  Cursor cursor(text);
  if (place == Place::kMarker) cursor.advance(kMistralCalls.size());
  if (!cursor.skip_space()) return cursor.failure();
  if (place == Place::kNext && (!cursor.expect(",") || !cursor.skip_space())) {
    return cursor.failure();
  }
  if (place == Place::kMarker && cursor.rest().starts_with('[')) {
    cursor.advance(1);
    if (!cursor.skip_space()) return cursor.failure();
  }
  CallHeader header;
  if (place == Place::kNext || cursor.rest().starts_with('{')) {
    header = read_call_object(cursor, /*strict=*/false);
  } else {
    std::string_view name;
    std::string_view id;
    if (!cursor.read_until("[{ \t\r\n", name) || !cursor.allow("[CALL_ID]")) {
      return cursor.failure();
    }
    if (cursor.rest().starts_with('[') || cursor.rest().starts_with('{') ||
        space_size(cursor.rest()) > 0) {
      id = {};
    } else if (!cursor.read_until("[{ \t\r\n", id)) {
      return cursor.failure();
    }
    if (!cursor.allow("[ARGS]") || !cursor.skip_space()) return cursor.failure();
    if (!cursor.rest().starts_with('{')) return {};
    header = header_of(cursor, std::string(name), std::string(id));
  }
  if (!is_mistral_id(header.id)) header.id.clear();
  return header;
}

// "functions.f:0" is a name and an id.
void name_kimi_call(std::string_view text, CallHeader& header) {
  header.id = text;
  const size_t colon = text.rfind(':');
  const bool numbered = colon != std::string_view::npos && colon + 1 < text.size() &&
                        text.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  if (numbered) text = text.substr(0, colon);
  if (text.starts_with("functions.")) text.remove_prefix(10);
  if (!numbered) header.id.clear();
  header.name = text;
  if (header.name.empty()) header = {};
}

CallHeader read_section_header(std::string_view text, Place place, const SectionMarks& marks,
                               bool kimi) {
  Cursor cursor(text);
  if (place == Place::kNext) return {};  // calls have marks of their own
  if (cursor.rest().starts_with(marks.section_begin)) {
    cursor.advance(marks.section_begin.size());
    if (!cursor.skip_space()) return cursor.failure();
  }
  if (!cursor.expect(marks.call_begin) || !cursor.skip_space()) return cursor.failure();
  std::string_view name;
  if (!cursor.read_until("< \t\r\n", name) || !cursor.skip_space() ||
      !cursor.expect(marks.separator) || !cursor.skip_space()) {
    return cursor.failure();
  }
  if (!cursor.rest().starts_with('{')) {  // it was the call's type
    if (kimi || !cursor.read_until("`{ \t\r\n", name) || !cursor.skip_space()) {
      return kimi ? CallHeader{} : cursor.failure();
    }
    if (cursor.rest().starts_with('`')) {
      if (!cursor.expect("```") || !cursor.allow("json") || !cursor.skip_space()) {
        return cursor.failure();
      }
    }
    if (!cursor.rest().starts_with('{')) return {};
  }
  CallHeader header = header_of(cursor, std::string(name));
  if (kimi && header.match == Match::kYes) name_kimi_call(name, header);
  return header;
}

}  // namespace

JsonCallParser::JsonCallParser(JsonCallFormat format, ToolCallParserOptions options)
    : ToolCallParser(markers_of(format), format == JsonCallFormat::kLlama3, std::move(options)),
      format_(format),
      closers_(closers_of(format)) {}

CallHeader JsonCallParser::read_header(std::string_view text, Place place) const {
  switch (format_) {
    case JsonCallFormat::kQwen:
      return read_qwen_header(text, place);
    case JsonCallFormat::kLlama3:
      return read_llama_header(text, place);
    case JsonCallFormat::kMistral:
      return read_mistral_header(text, place);
    case JsonCallFormat::kDeepseek:
      return read_section_header(text, place, kDeepseekMarks, /*kimi=*/false);
    case JsonCallFormat::kKimi:
      return read_section_header(text, place, kKimiMarks, /*kimi=*/true);
  }
  return {};
}

void JsonCallParser::begin_call(const CallHeader& header, std::string_view text) {
  arguments_ = {};
  tail_.reset();
  // Inside of an object the arguments follow a colon.
  if (header.arguments) return;
  const size_t before = text.substr(0, header.size).find_last_not_of(" \t\n\r");
  if (before != std::string_view::npos && text[before] == ':') tail_ = JsonScanner::after_value();
}

ToolCallParser::Progress JsonCallParser::read_arguments(std::string_view text, size_t& used,
                                                        AnswerDeltas& out) {
  std::string json;
  const JsonScanner::State state = arguments_.scan(text, used, &json);
  emit_arguments(json, out);
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

ToolCallParser::Closing JsonCallParser::read_closing(std::string_view text) {
  if (tail_) {
    size_t used = 0;
    const JsonScanner::State state = tail_->scan(text, used, nullptr);
    if (state != JsonScanner::State::kMore) tail_.reset();  // a missing '}' is forgiven
    if (used > 0) return {.match = Match::kYes, .size = used};
    if (state == JsonScanner::State::kMore) return {.match = Match::kMore};
  }
  // Bounded: blank text that goes on and on is no closing mark.
  const std::string_view seen = text.substr(0, kMaxSpaceBytes);
  const size_t space = space_size(seen);
  std::string_view found;
  Match match = begins_with(seen.substr(space), closers_, &found);
  if (match == Match::kMore && text.size() >= kMaxSpaceBytes) match = Match::kNo;
  return {.match = match, .size = match == Match::kYes ? space + found.size() : 0};
}

}  // namespace heddle::parsers
