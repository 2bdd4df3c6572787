// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_calls.h"

#include <algorithm>
#include <iterator>
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

// The words of a format's tags (loose_tag.h).
constexpr std::string_view kQwenWords[] = {"toolcall", "toolcalls", "functioncall", "tools"};
constexpr std::string_view kPythonTagWords[] = {"pythontag"};
constexpr std::string_view kMistralWords[] = {"toolcalls"};

// A section's, in the order of SectionMarks.
enum SectionWord : size_t { kSectionBegin, kCallBegin, kSeparator, kCallEnd, kSectionEnd };

constexpr std::string_view kDeepseekWords[] = {"toolcallsbegin", "toolcallbegin", "toolsep",
                                               "toolcallend", "toolcallsend"};
constexpr std::string_view kKimiWords[] = {"toolcallssectionbegin", "toolcallbegin",
                                           "toolcallargumentbegin", "toolcallend",
                                           "toolcallssectionend"};

CallMarks marks_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
      return {.markers = {kToolCall},
              .opening_words = {std::begin(kQwenWords), std::end(kQwenWords)},
              .strays = {"</tool_call>"},
              .may_be_missing = true};
    case JsonCallFormat::kLlama3:
      return {.markers = {kPythonTag},
              .opening_words = {std::begin(kPythonTagWords), std::end(kPythonTagWords)},
              .strays = {},
              .are_special = true,
              .may_be_missing = true,
              .start_may_be_call = true};
    case JsonCallFormat::kMistral:
      return {.markers = {kMistralCalls},
              .opening_words = {std::begin(kMistralWords), std::end(kMistralWords)},
              .strays = {"[/TOOL_CALLS]"},
              .are_special = true,
              .may_be_missing = true};
    case JsonCallFormat::kDeepseek:
      return {.markers = {kDeepseekMarks.section_begin, kDeepseekMarks.call_begin},
              .opening_words = {kDeepseekWords[kSectionBegin], kDeepseekWords[kCallBegin]},
              .strays = {kDeepseekMarks.call_end, kDeepseekMarks.section_end},
              .are_special = true,
              .may_be_missing = true};
    case JsonCallFormat::kKimi:
      return {.markers = {kKimiMarks.section_begin, kKimiMarks.call_begin},
              .opening_words = {kKimiWords[kSectionBegin], kKimiWords[kCallBegin]},
              .strays = {kKimiMarks.call_end, kKimiMarks.section_end},
              .are_special = true,
              .may_be_missing = true};
  }
  return {};
}

std::vector<std::string_view> closers_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
      return {"</tool_call>", "```"};
    case JsonCallFormat::kLlama3:
      return {};
    case JsonCallFormat::kMistral:
      return {"[/TOOL_CALLS]"};
    case JsonCallFormat::kDeepseek:
      return {"```", kDeepseekMarks.call_end, kDeepseekMarks.section_end};
    case JsonCallFormat::kKimi:
      return {kKimiMarks.call_end, kKimiMarks.section_end};
  }
  return {};
}

// Of closing tags; those with a slash mean them by the opening word, too.
std::span<const std::string_view> closing_words_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
      return kQwenWords;
    case JsonCallFormat::kLlama3:
      return kPythonTagWords;
    case JsonCallFormat::kMistral:
      return kMistralWords;
    case JsonCallFormat::kDeepseek:
      return kDeepseekWords;
    case JsonCallFormat::kKimi:
      return kKimiWords;
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

  // A string in either quotes; `value` is what it says.
  bool read_string(std::string& value) {
    if (!at_string()) return fail(rest().empty() ? Match::kMore : Match::kNo);
    const char quote = rest().front();
    size_t end = 1;
    for (; end < rest().size() && rest()[end] != quote; ++end) {
      if (rest()[end] == '\\') ++end;
    }
    count_searched(end);
    if (end >= rest().size()) return fail(Match::kMore);
    const std::string_view written = rest().substr(0, end + 1);
    if (quote == '"') {
      const auto json = nlohmann::json::parse(written, nullptr, false);
      if (!json.is_string()) return fail();
      value = json.get<std::string>();
    } else {
      value = written.substr(1, written.size() - 2);
    }
    advance(end + 1);
    return true;
  }

  [[nodiscard]] bool at_string() const {
    return rest().starts_with('"') || rest().starts_with('\'');
  }

  // Tags that mean one of `words`, with white space around them. `found` has a bit for each word
  // that was there. Of one word no more than three.
  bool skip_tags(std::span<const std::string_view> words, unsigned& found) {
    for (size_t count = 0;; ++count) {
      if (!skip_space(kMaxSpaceBeforeObject)) return false;
      const LooseTag tag = read_loose_tag(rest());
      if (tag.match == Match::kMore) return fail(Match::kMore);
      const auto meant =
          tag.match == Match::kYes && !tag.closing ? meant_word(tag.word, words) : std::nullopt;
      if (!meant) return true;
      if (count == 3 * words.size()) return fail();
      found |= 1U << *meant;
      advance(tag.size);
      if (!tag.closed) continue;
      if (!allow(">")) return false;  // doubled
    }
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
    count_searched(std::min(size, rest().size()));
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

// A call that has no arguments.
CallHeader bare_header(const Cursor& cursor, std::string name, std::string id = {}) {
  CallHeader header = header_of(cursor, std::move(name), std::move(id));
  if (header.match == Match::kYes) header.arguments = "{}";
  return header;
}

// Mistral's templates take only ids of nine letters and digits.
bool is_mistral_id(std::string_view id) {
  return id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// The object that a text says, as JSON; of a blank one an empty object.
std::optional<std::string> object_in_text(std::string_view text) {
  text.remove_prefix(space_size(text));
  if (text.empty()) return "{}";
  JsonScanner scanner;
  size_t used = 0;
  std::string copy;
  if (scanner.scan(text, used, &copy) != JsonScanner::State::kDone) return std::nullopt;
  return space_size(text.substr(used)) == text.size() - used ? std::optional(std::move(copy))
                                                             : std::nullopt;
}

// A value that is passed over.
bool skip_value(Cursor& cursor) {
  std::string ignored;
  if (cursor.rest().starts_with('"')) return cursor.read_string(ignored);
  if (cursor.rest().starts_with('{')) return cursor.read_object(ignored);
  std::string_view word;
  return !cursor.rest().starts_with('[') && cursor.read_until(",}", word);
}

// Trust: how certain it is that a call object begins here.
enum class Trust {
  kMarked,  // a mark says that a call is meant
  kStart,   // the answer begins here: other keys than a call's make it something else
  kKnown,   // any JSON may stand here: it is a call of one of the request's tools, or none
};

bool is_name_key(std::string_view key, Trust trust) {
  return key == "name" || key == "function" ||
         (trust == Trust::kMarked &&
          (key == "tool" || key == "tool_name" || key == "function_name"));
}

bool is_arguments_key(std::string_view key, Trust trust) {
  return key == "arguments" || key == "parameters" ||
         (trust == Trust::kMarked && (key == "args" || key == "input" || key == "kwargs"));
}

// {"name": .., "arguments": {..}}, {"type": "function", "function": {"name": .., ..}} and the like.
class CallObjectReader {
 public:
  CallObjectReader(Cursor cursor, const ToolNames& names, Trust trust)
      : cursor_(cursor), names_(names), trust_(trust) {}

  CallHeader read() {
    if (!cursor_.expect("{")) return cursor_.failure();
    size_t depth = 1;
    bool first = true;
    while (true) {
      if (!cursor_.skip_space()) return cursor_.failure();
      if (cursor_.rest().starts_with('}')) {
        cursor_.advance(1);
        if (--depth == 0) return whole();
        first = false;
        continue;
      }
      std::string key;
      if (!first && (!cursor_.expect(",") || !cursor_.skip_space())) return cursor_.failure();
      first = false;
      if (cursor_.rest().starts_with('}')) continue;  // a comma too many
      if (!cursor_.read_string(key) || !cursor_.skip_space() || !cursor_.expect(":") ||
          !cursor_.skip_space()) {
        return cursor_.failure();
      }
      if (is_name_key(key, trust_) && cursor_.rest().starts_with('{')) {
        cursor_.advance(1);
        if (++depth > 3) return {};
        first = true;
        continue;
      }
      if (is_name_key(key, trust_)) {
        if (!cursor_.read_string(name_)) return cursor_.failure();
        name_ = names_.resolve(name_);
        if (!takes_name()) return {};
      } else if (is_arguments_key(key, trust_)) {
        const bool is_object = cursor_.rest().starts_with('{');
        if ((is_object || cursor_.at_string()) && !name_.empty() && !arguments_) {
          CallHeader header = header_of(cursor_, std::move(name_), std::move(id_));
          header.open_objects = depth;
          return header;
        }
        if (!read_early_arguments(is_object)) return cursor_.failure();
      } else if (key == "id" && cursor_.rest().starts_with('"')) {
        if (!cursor_.read_string(id_)) return cursor_.failure();
      } else if (trust_ != Trust::kMarked && key != "type") {
        return {};
      } else if (!skip_value(cursor_)) {
        return cursor_.failure();
      }
    }
  }

 private:
  [[nodiscard]] bool takes_name() const {
    if (name_.empty() || name_.size() > ToolCallParser::kMaxNameBytes) return false;
    return trust_ != Trust::kKnown || names_.has(name_);
  }

  // Arguments whose tool is not known yet, or null.
  bool read_early_arguments(bool is_object) {
    if (is_object) {
      arguments_.emplace();
      return cursor_.read_object(*arguments_);
    }
    if (!cursor_.at_string())
      return cursor_.expect("null") || cursor_.fail(cursor_.failure().match);
    std::string text;
    if (!cursor_.read_string(text)) return false;
    arguments_ = object_in_text(text);
    return arguments_.has_value() || cursor_.fail();
  }

  CallHeader whole() {
    if (trust_ != Trust::kMarked && !arguments_ && !names_.has(name_)) return {};
    CallHeader header = bare_header(cursor_, std::move(name_), std::move(id_));
    if (header.match == Match::kYes && arguments_) header.arguments = std::move(arguments_);
    return header;
  }

  Cursor cursor_;
  const ToolNames& names_;
  const Trust trust_;
  std::string name_;
  std::string id_;
  std::optional<std::string> arguments_;
};

CallHeader read_call_object(const Cursor& cursor, const ToolNames& names, Trust trust) {
  return CallObjectReader(cursor, names, trust).read();
}

// "```json" and the like, and space.
bool skip_fence(Cursor& cursor) {
  if (!cursor.rest().starts_with('`')) return true;
  return cursor.expect("```") && cursor.allow("json") && cursor.skip_space(kMaxSpaceBeforeObject);
}

CallHeader read_qwen_header(std::string_view text, Place place, bool is_exact,
                            const ToolNames& names) {
  Cursor cursor(text);
  unsigned tags = 0;
  if (place == Place::kMarker && !cursor.skip_tags(kQwenWords, tags)) return cursor.failure();
  if (place == Place::kNext && (!cursor.skip_space() || !cursor.allow(","))) {
    return cursor.failure();
  }
  if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
  if (place == Place::kMarker) {
    if (!skip_fence(cursor)) return cursor.failure();
    if (cursor.rest().starts_with('[')) {
      cursor.advance(1);
      if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
    }
  }
  const bool is_marked = place == Place::kNext || (place == Place::kMarker && is_exact);
  CallHeader header = read_call_object(cursor, names, is_marked ? Trust::kMarked : Trust::kKnown);
  header.id.clear();  // ids are ours
  return header;
}

// f(x=1), f.call(x=1) behind a mark.
CallHeader read_python_header(Cursor cursor, const ToolNames& names) {
  const CallHeader call = read_python_call(cursor.rest());
  if (call.match != Match::kYes) return {.match = call.match};
  std::string name = call.name;
  const bool is_call = name.ends_with(".call");
  if (is_call) name.resize(name.size() - 5);
  name = names.resolve(name);
  if (!is_call && !names.has(name)) return {};
  cursor.advance(call.size);
  CallHeader header = header_of(cursor, std::move(name));
  header.is_python = true;
  return header;
}

CallHeader read_llama_header(std::string_view text, Place place, const ToolNames& names) {
  Cursor cursor(text);
  unsigned tags = 0;
  if (place == Place::kMarker) {
    if (!cursor.skip_tags(kPythonTagWords, tags)) return cursor.failure();
  } else if (!cursor.skip_space()) {
    return cursor.failure();
  }
  if (place == Place::kNext) {
    if (!cursor.allow(";") || !cursor.allow(",")) return cursor.failure();
  }
  if (!cursor.skip_space()) return cursor.failure();
  if (!cursor.rest().starts_with('{')) {
    return place == Place::kMarker ? read_python_header(cursor, names) : CallHeader{};
  }
  CallHeader header =
      read_call_object(cursor, names, place == Place::kLine ? Trust::kKnown : Trust::kStart);
  header.id.clear();
  return header;
}

CallHeader read_mistral_header(std::string_view text, Place place, const ToolNames& names,
                               bool at_end) {
  constexpr std::string_view kIdWords[] = {"callid"};
  constexpr std::string_view kArgumentWords[] = {"args"};
  Cursor cursor(text);
  unsigned tags = 0;
  const bool is_marked = place == Place::kMarker;
  if (is_marked && !cursor.skip_tags(kMistralWords, tags)) return cursor.failure();
  if (!cursor.skip_space()) return cursor.failure();
  if (place == Place::kNext && (!cursor.expect(",") || !cursor.skip_space())) {
    return cursor.failure();
  }
  if (place != Place::kNext && cursor.rest().starts_with('[')) {
    cursor.advance(1);
    if (!cursor.skip_space()) return cursor.failure();
    if (!cursor.rest().starts_with('{')) return {};
  }
  CallHeader header;
  if (place == Place::kNext || cursor.rest().starts_with('{')) {
    const bool known = place == Place::kStart || place == Place::kLine;
    header = read_call_object(cursor, names, known ? Trust::kKnown : Trust::kMarked);
  } else {
    std::string_view written;
    std::string_view id;
    if (!cursor.read_until("[{ \t\r\n", written)) {
      const std::string name = at_end ? names.resolve(cursor.rest()) : std::string();
      if (!is_marked || !names.has(name)) return cursor.failure();
      cursor.advance(cursor.rest().size());
      return bare_header(cursor, name);
    }
    const std::string name = names.resolve(written);
    if (!is_marked && !names.has(name)) return {};
    unsigned ids = 0;
    unsigned arguments = 0;
    if (!cursor.skip_tags(kIdWords, ids)) return cursor.failure();
    if (ids != 0 && !cursor.rest().starts_with('[') && !cursor.rest().starts_with('{') &&
        !cursor.read_until("[{ \t\r\n", id)) {
      return cursor.failure();
    }
    if (!cursor.skip_tags(kArgumentWords, arguments)) return cursor.failure();
    if (!cursor.rest().starts_with('{')) return {};
    if (!is_marked && arguments == 0) return {};
    header = header_of(cursor, name, std::string(id));
  }
  if (!is_mistral_id(header.id)) header.id.clear();
  return header;
}

// "functions.f:0" is a name and an id.
void name_kimi_call(std::string_view text, const ToolNames& names, CallHeader& header) {
  header.id = text;
  const size_t colon = text.rfind(':');
  const bool numbered = colon != std::string_view::npos && colon + 1 < text.size() &&
                        text.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  if (numbered) text = text.substr(0, colon);
  const bool is_function = text.starts_with("functions.");
  if (is_function) text.remove_prefix(10);
  if (!numbered) header.id.clear();
  header.name = names.resolve(text);
  if (header.name != text || (numbered && !is_function)) header.id.clear();
  if (header.name.empty()) header = {};
}

// Reads one of a section's calls.
class SectionHeaderReader {
 public:
  SectionHeaderReader(std::string_view text, const ToolNames& names,
                      std::span<const std::string_view> words, bool is_kimi)
      : cursor_(text), names_(names), words_(words), is_kimi_(is_kimi) {}

  CallHeader read(Place place, bool at_end) {
    unsigned marks = 0;
    if (place == Place::kMarker && !cursor_.skip_tags(words_.first(2), marks)) {
      return cursor_.failure();
    }
    std::string_view written;
    unsigned separators = 0;
    if (!read_name(written, at_end) || !skip_separators(separators) || !skip_fence(cursor_)) {
      return cursor_.failure();
    }
    // It was the call's type.
    if (!is_kimi_ && !at_arguments() && (separators != 0 || written == "function")) {
      if (!read_name(written, at_end) || !skip_separators(separators) || !skip_fence(cursor_)) {
        return cursor_.failure();
      }
    }
    CallHeader header = at_arguments() ? header_of(cursor_, std::string(written))
                                       : bare_header(cursor_, std::string(written));
    if (header.match != Match::kYes) return header;
    if (is_kimi_) {
      name_kimi_call(written, names_, header);
    } else {
      header.name = names_.resolve(written);
    }
    // The marks around it say that it is a call, or its name does.
    const bool is_marked = (marks & (1U << kCallBegin)) != 0 && separators != 0;
    const Match closing = at_arguments() ? Match::kYes : at_closing();
    if (closing != Match::kYes) return {.match = closing};
    if (!(is_marked && at_arguments()) && !names_.has(header.name)) return {};
    // A name alone, or before a quotation, is prose.
    const bool says_call =
        written.starts_with("functions.") && !cursor_.rest().empty() && !cursor_.at_string();
    if (place != Place::kMarker && separators == 0 && !says_call) return {};
    return header;
  }

 private:
  bool read_name(std::string_view& name, bool at_end) {
    if (!cursor_.skip_space(kMaxSpaceBeforeObject)) return false;
    if (cursor_.read_until("<`{\" \t\r\n", name)) return true;
    if (!at_end) return false;
    name = cursor_.rest();
    cursor_.advance(name.size());
    return true;
  }

  bool skip_separators(unsigned& found) {
    return cursor_.rest().empty() || cursor_.skip_tags(words_.subspan(kSeparator, 1), found);
  }

  [[nodiscard]] bool at_arguments() const {
    return cursor_.rest().starts_with('{') || cursor_.at_string();
  }

  [[nodiscard]] Match at_closing() const {
    if (cursor_.rest().empty()) return Match::kYes;
    const LooseTag tag = read_loose_tag(cursor_.rest());
    if (tag.match != Match::kYes) return tag.match;
    return meant_word(tag.word, words_.subspan(kCallEnd)) ? Match::kYes : Match::kNo;
  }

  Cursor cursor_;
  const ToolNames& names_;
  const std::span<const std::string_view> words_;
  const bool is_kimi_;
};

// Whether a line that begins so may be a JSON object or a list of them, with keys.
Match may_begin_object(std::string_view text, bool in_list) {
  const char wanted[] = {'[', '{', '"'};
  for (size_t i = in_list && text.starts_with('[') ? 0 : 1; i < 3; ++i) {
    if (text.empty()) return Match::kMore;
    const bool quote = wanted[i] == '"' && text.front() == '\'';
    if (text.front() != wanted[i] && !quote) return Match::kNo;
    text.remove_prefix(1);
    text.remove_prefix(space_size(text.substr(0, kMaxSpaceBeforeObject)));
  }
  return Match::kYes;
}

}  // namespace

JsonCallParser::JsonCallParser(JsonCallFormat format, ToolCallParserOptions options)
    : ToolCallParser(marks_of(format), std::move(options)),
      format_(format),
      closers_(closers_of(format)) {}

CallHeader JsonCallParser::read_header(std::string_view text, Place place, bool is_exact,
                                       bool at_end) const {
  switch (format_) {
    case JsonCallFormat::kQwen:
      return read_qwen_header(text, place, is_exact, names());
    case JsonCallFormat::kLlama3:
      return read_llama_header(text, place, names());
    case JsonCallFormat::kMistral:
      return read_mistral_header(text, place, names(), at_end);
    case JsonCallFormat::kDeepseek:
      return SectionHeaderReader(text, names(), kDeepseekWords, /*is_kimi=*/false)
          .read(place, at_end);
    case JsonCallFormat::kKimi:
      return SectionHeaderReader(text, names(), kKimiWords, /*is_kimi=*/true).read(place, at_end);
  }
  return {};
}

Match JsonCallParser::may_begin_line(std::string_view text) const {
  std::string_view name;
  switch (format_) {
    case JsonCallFormat::kQwen:
    case JsonCallFormat::kLlama3:
      return may_begin_object(text, /*in_list=*/false);
    case JsonCallFormat::kMistral:
      if (text.front() == '[' || text.front() == '{') {
        return may_begin_object(text, /*in_list=*/true);
      }
      return names().begins_with_name(text, name);
    case JsonCallFormat::kDeepseek: {
      constexpr std::string_view kType[] = {"function<"};
      if (const Match match = begins_with(text, kType, &name); match != Match::kNo) return match;
      return names().begins_with_name(text, name);
    }
    case JsonCallFormat::kKimi: {
      constexpr std::string_view kPrefix[] = {"functions."};
      if (const Match match = begins_with(text, kPrefix, &name); match != Match::kNo) return match;
      return names().begins_with_name(text, name);
    }
  }
  return Match::kNo;
}

void JsonCallParser::begin_call(const CallHeader& header, std::string_view text) {
  arguments_ = {};
  tail_.reset();
  python_.reset();
  text_.reset();
  text_is_escaped_ = false;
  if (header.arguments) return;
  if (header.is_python) {
    python_.emplace(names().parameters(header.name));
    return;
  }
  if (text[header.size] != '{') text_.emplace();
  if (header.open_objects > 0) tail_ = JsonScanner::after_value(header.open_objects);
}

ToolCallParser::Progress JsonCallParser::read_arguments(std::string_view text, TextEnd,
                                                        size_t& used, AnswerDeltas& out) {
  if (text_) return read_text_arguments(text, used, out);
  if (python_) {
    std::string json;
    const PythonArguments::State state = python_->read(text, used, json);
    if (state == PythonArguments::State::kDone) {
      emit_last_arguments(json, out);
    } else {
      emit_arguments(json, out);
    }
    return state == PythonArguments::State::kMore   ? Progress::kMore
           : state == PythonArguments::State::kDone ? Progress::kDone
                                                    : Progress::kFailed;
  }
  std::string json;
  JsonScanner::State state = arguments_.scan(text, used, &json);
  const Match ends =
      state == JsonScanner::State::kError ? begins_end(text.substr(used)) : Match::kNo;
  if (ends == Match::kMore) state = JsonScanner::State::kMore;  // the next bytes decide
  if (ends == Match::kYes && arguments_.close_all(&json)) state = JsonScanner::State::kDone;
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

// Whether a mark begins where the arguments do not continue: it ends an object that lacks its
// closing brackets.
Match JsonCallParser::begins_end(std::string_view text) {
  constexpr std::string_view kEnds[] = {"<", "`", "[TOOL_CALLS", "[/"};
  std::string_view ignored;
  return begins_with(text, kEnds, &ignored);
}

// The arguments are a text that says what they are.
ToolCallParser::Progress JsonCallParser::read_text_arguments(std::string_view text, size_t& used,
                                                             AnswerDeltas& out) {
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
      Cursor cursor(*text_);
      const auto object =
          cursor.read_string(value) ? object_in_text(value) : std::optional<std::string>();
      if (!object) return Progress::kFailed;
      emit_arguments(*object, out);
      return Progress::kDone;
    }
  }
  count_searched(used);
  return Progress::kMore;
}

bool JsonCallParser::finish_arguments(std::string_view, AnswerDeltas& out) {
  if (text_) return false;
  std::string json;
  if (!(python_ ? python_->finish(json) : arguments_.close_all(&json))) return false;
  emit_arguments(json, out);
  return true;
}

ToolCallParser::Closing JsonCallParser::read_closing(std::string_view text) {
  if (tail_) {
    // White space is not the tail's, wherever it is: what follows it decides whether it is content.
    const std::string_view word = text.substr(0, text.find_first_of(" \t\n\r"));
    size_t used = 0;
    const JsonScanner::State state = tail_->scan(word, used, nullptr);
    if (state != JsonScanner::State::kMore) tail_.reset();  // a missing '}' is forgiven
    if (used > 0) return {.match = Match::kYes, .size = used};
    if (state == JsonScanner::State::kMore) return {.match = Match::kMore};
  }
  const bool is_section = format_ == JsonCallFormat::kDeepseek || format_ == JsonCallFormat::kKimi;
  const auto words = closing_words_of(format_);
  return read_loose_closing(text, closers_, is_section ? words.subspan(kCallEnd) : words,
                            /*needs_slash=*/!is_section);
}

}  // namespace heddle::parsers
