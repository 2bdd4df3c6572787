// SPDX-License-Identifier: Apache-2.0
#include "parsers/json_calls.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "parsers/call_cursor.h"
#include "parsers/call_object.h"
#include "parsers/loose_tag.h"
#include "parsers/python_arguments.h"

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBeforeObject = CallCursor::kMaxSpaceBeforeObject;
constexpr std::string_view kNameEnds = "[{( \t\r\n";

constexpr std::string_view kToolCall = "<tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kMistralCalls = "[TOOL_CALLS]";

// The marks of formats that have marks around a section of calls, around each call, and after its
// name.
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
constexpr std::string_view kFunctionWords[] = {"function"};
constexpr std::string_view kLlamaWords[] = {"pythontag", "function"};
constexpr std::string_view kMistralWords[] = {"toolcalls"};
constexpr std::string_view kCohereWords[] = {"startaction", "toolcall", "toolcalls"};
constexpr std::string_view kCohereEndWords[] = {"endaction"};

// Indices of the words in the order of SectionMarks.
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
              .opening_words = {std::begin(kLlamaWords), std::end(kLlamaWords)},
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
    case JsonCallFormat::kGranite:
      return {.markers = {"<|tool_call|>"},
              .opening_words = {std::begin(kQwenWords), std::end(kQwenWords)},
              .strays = {"<|/tool_call|>"},
              .are_special = true,
              .may_be_missing = true};
    case JsonCallFormat::kNemotron:
      return {.markers = {"<TOOLCALL>"},
              .opening_words = {std::begin(kQwenWords), std::end(kQwenWords)},
              .strays = {"</TOOLCALL>"},
              .may_be_missing = true};
    case JsonCallFormat::kCohere:
      return {.markers = {"<|START_ACTION|>"},
              .opening_words = {std::begin(kCohereWords), std::end(kCohereWords)},
              .strays = {"<|END_ACTION|>"},
              .are_special = true,
              .may_be_missing = true};
  }
  return {};
}

// Whether the format has a mark before a list of calls; the mark may be missing.
bool is_list_format(JsonCallFormat format) {
  return format == JsonCallFormat::kGranite || format == JsonCallFormat::kNemotron ||
         format == JsonCallFormat::kCohere;
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
    case JsonCallFormat::kGranite:
      return {"<|/tool_call|>", "```"};
    case JsonCallFormat::kNemotron:
      return {"</TOOLCALL>", "```"};
    case JsonCallFormat::kCohere:
      return {"<|END_ACTION|>", "```"};
  }
  return {};
}

// The words of closing tags. Tags with a slash may also have the opening word.
std::span<const std::string_view> closing_words_of(JsonCallFormat format) {
  switch (format) {
    case JsonCallFormat::kQwen:
    case JsonCallFormat::kGranite:
    case JsonCallFormat::kNemotron:
      return kQwenWords;
    case JsonCallFormat::kCohere:
      return kCohereEndWords;
    case JsonCallFormat::kLlama3:
      return kLlamaWords;
    case JsonCallFormat::kMistral:
      return kMistralWords;
    case JsonCallFormat::kDeepseek:
      return kDeepseekWords;
    case JsonCallFormat::kKimi:
      return kKimiWords;
  }
  return {};
}

// Whether the id consists of nine letters and digits, as Mistral's templates require.
bool is_mistral_id(std::string_view id) {
  return id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
         });
}

// Whether the object at the cursor begins with a key that occurs only in Cohere's calls.
Match begins_cohere_call(CallCursor cursor) {
  return cursor.expect("{") && cursor.skip_space() && cursor.expect("\"tool_")
             ? Match::kYes
             : cursor.failure().match;
}

// Reads the header of a call that is an object after a mark, alone or in a list.
CallHeader read_list_header(std::string_view text, JsonCallFormat format, Place place,
                            bool is_exact, const ToolNames& names) {
  const bool is_cohere = format == JsonCallFormat::kCohere;
  std::span<const std::string_view> words = kQwenWords;
  if (is_cohere) words = kCohereWords;
  CallCursor cursor(text);
  unsigned tags = 0;
  if (place == Place::kMarker && !cursor.skip_tags(words, tags)) return cursor.failure();
  if (place == Place::kNext && (!cursor.skip_space() || !cursor.allow(","))) {
    return cursor.failure();
  }
  if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
  if (place == Place::kMarker) {
    std::string_view info;
    if (!cursor.skip_fence(info)) return cursor.failure();
  }
  const bool may_be_list =
      place == Place::kMarker || (is_list_format(format) && place != Place::kNext);
  if (may_be_list && cursor.rest().starts_with('[')) {
    cursor.advance(1);
    if (!cursor.skip_space(kMaxSpaceBeforeObject)) return cursor.failure();
  }
  const bool is_marked = place == Place::kNext || (place == Place::kMarker && is_exact);
  Match says_call = Match::kNo;  // kYes: the text shows that it is a call although it has no mark
  if (is_cohere && !is_marked) says_call = begins_cohere_call(cursor);
  if (says_call == Match::kMore) return {.match = Match::kMore};
  const bool is_known = !is_marked && says_call == Match::kNo;
  CallHeader header = read_call_object(cursor, names, is_known ? Trust::kKnown : Trust::kMarked);
  if (header.match == Match::kYes && !is_marked && !names.has(header.name)) return {};
  header.id.clear();  // the parser generates the ids
  return header;
}

// Reads f.call(x=1), for any tool.
CallHeader read_python_header(CallCursor cursor, const ToolNames& names) {
  const CallHeader call = read_python_call(cursor.rest());
  if (call.match != Match::kYes) return {.match = call.match};
  if (!call.name.ends_with(".call")) return {};
  cursor.advance(call.size);
  const std::string name = names.resolve(call.name);
  CallHeader header = header_of(cursor, name.substr(0, name.rfind(".call")));
  header.kind = ArgumentsKind::kPython;
  return header;
}

// Reads <function=f>{..}</function>, for one of the request's tools.
CallHeader read_function_tag(CallCursor cursor, const ToolNames& names) {
  const LooseTag tag = read_loose_tag(cursor.rest());
  if (tag.match != Match::kYes || tag.closing || !meant_word(tag.word, kFunctionWords)) {
    return {.match = tag.match == Match::kMore ? Match::kMore : Match::kNo};
  }
  cursor.advance(tag.size);
  std::string_view said;
  if (!cursor.read_until(">\n{<", said)) return cursor.failure();
  if (said.find("name") < said.find('=')) said.remove_prefix(said.find('='));
  said.remove_prefix(std::min(said.find_first_not_of(" ="), said.size()));
  const std::string name = names.resolve(said);
  if (!names.has(name)) return {};
  if (cursor.rest().starts_with('>')) cursor.advance(1);
  if (!cursor.skip_space()) return cursor.failure();
  if (cursor.rest().starts_with('{')) return header_of(cursor, name);
  const LooseTag next = read_loose_tag(cursor.rest());
  if (next.match == Match::kMore) return {.match = Match::kMore};
  const bool is_closed = next.match == Match::kYes && next.closing &&
                         meant_word(next.word, kFunctionWords).has_value();
  return is_closed ? bare_header(cursor, name) : CallHeader{};
}

CallHeader read_llama_header(std::string_view text, Place place, const ToolNames& names) {
  CallCursor cursor(text);
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
    if (place != Place::kMarker) return {};
    return cursor.rest().starts_with('<') ? read_function_tag(cursor, names)
                                          : read_python_header(cursor, names);
  }
  CallHeader header =
      read_call_object(cursor, names, place == Place::kLine ? Trust::kKnown : Trust::kStart);
  header.id.clear();
  return header;
}

// The header of calls whose arguments are the list of objects at the cursor.
CallHeader listed_header(CallCursor cursor, std::string name, std::string id) {
  std::vector<std::string> objects;
  if (!cursor.read_listed_objects(objects)) return cursor.failure();
  CallHeader header = header_of(cursor, std::move(name), std::move(id));
  header.arguments = std::move(objects.front());
  header.more_arguments.assign(objects.begin() + 1, objects.end());
  return header;
}

CallHeader read_mistral_header(std::string_view text, Place place, const ToolNames& names,
                               bool at_end) {
  constexpr std::string_view kIdWords[] = {"callid"};
  constexpr std::string_view kArgumentWords[] = {"args"};
  CallCursor cursor(text);
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
    if (!cursor.read_until(kNameEnds, written)) {
      const std::string name = at_end ? names.resolve(cursor.rest()) : std::string();
      if (!is_marked || !names.has(name)) return cursor.failure();
      cursor.advance(cursor.rest().size());
      return bare_header(cursor, name);
    }
    const bool has_bare_tag = CallCursor::strip_bare_tag(written, "[ARGS]");
    const std::string name = names.resolve(written);
    if (!is_marked && !names.has(name)) return {};
    unsigned ids = 0;
    unsigned arguments = has_bare_tag ? 1 : 0;
    if (!cursor.skip_tags(kIdWords, ids)) return cursor.failure();
    if (ids != 0 && !cursor.rest().starts_with('[') && !cursor.rest().starts_with('{') &&
        !cursor.read_until(kNameEnds, id)) {
      return cursor.failure();
    }
    if (!cursor.skip_tags(kArgumentWords, arguments)) return cursor.failure();
    if (is_marked && arguments > 0 && cursor.rest().starts_with('[')) {
      return listed_header(cursor, name, std::string(id));
    }
    const bool is_text = is_marked && arguments > 0 && cursor.at_string();
    if (!cursor.rest().starts_with('{') && !is_text) return {};
    if (!is_marked && arguments == 0) return {};
    header = header_of(cursor, name, std::string(id));
  }
  if (!is_mistral_id(header.id)) header.id.clear();
  return header;
}

// Splits "functions.f:0" into name and id.
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

// Reads the header of one call in a section.
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
    std::string_view info;
    unsigned separators = 0;
    if (!read_name(written, at_end)) return cursor_.failure();
    const SectionMarks& exact = is_kimi_ ? kKimiMarks : kDeepseekMarks;
    if (CallCursor::strip_bare_tag(written, exact.separator)) separators = 1;
    if (!skip_separators(separators) || !cursor_.skip_fence(info)) return cursor_.failure();
    // The word was the call's type, not its name.
    const bool is_listed = separators != 0 && cursor_.rest().starts_with('[');
    if (!is_kimi_ && !at_arguments() && !is_listed && (separators != 0 || written == "function")) {
      if (!read_name(written, at_end) || !skip_separators(separators) ||
          !cursor_.skip_fence(info)) {
        return cursor_.failure();
      }
    }
    CallHeader header = is_listed        ? listed_header(cursor_, std::string(written), {})
                        : at_arguments() ? header_of(cursor_, std::string(written))
                                         : bare_header(cursor_, std::string(written));
    if (header.match != Match::kYes) return header;
    if (is_kimi_) {
      name_kimi_call(written, names_, header);
    } else {
      header.name = names_.resolve(written);
    }
    if (bare_word(header.name).empty()) return {};
    // The call counts if its marks or its name show that it is a call.
    const bool is_marked = (marks & (1U << kCallBegin)) != 0 && separators != 0;
    const Match closing = at_arguments() || is_listed ? Match::kYes : at_closing();
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
    if (cursor_.read_until("<`{(\" \t\r\n", name)) return true;
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

  CallCursor cursor_;
  const ToolNames& names_;
  const std::span<const std::string_view> words_;
  const bool is_kimi_;
};

// Whether a line with this beginning may be a JSON object with keys, or a list of such objects.
Match may_begin_object(std::string_view text, bool in_list) {
  const char wanted[] = {'[', '{', '"'};
  for (size_t i = in_list && text.starts_with('[') ? 0 : 1; i < 3; ++i) {
    if (text.empty()) return Match::kMore;
    const bool quote = wanted[i] == '"' && text.front() == '\'';
    if (text.front() != wanted[i] && !quote) return Match::kNo;
    text.remove_prefix(1);
    text.remove_prefix(space_size(text.substr(0, kMaxSpaceBeforeObject)));
    // ignores a doubled opening brace
    if (wanted[i] == '{' && text.starts_with('{')) text.remove_prefix(1);
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
    case JsonCallFormat::kGranite:
    case JsonCallFormat::kNemotron:
    case JsonCallFormat::kCohere:
      return read_list_header(text, format_, place, is_exact, names());
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
    case JsonCallFormat::kGranite:
    case JsonCallFormat::kNemotron:
    case JsonCallFormat::kCohere:
      return may_begin_object(text, /*in_list=*/text.front() == '[');
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

Closing JsonCallParser::read_closing(std::string_view text) {
  const bool is_section = format_ == JsonCallFormat::kDeepseek || format_ == JsonCallFormat::kKimi;
  const auto words = closing_words_of(format_);
  return read_loose_closing(text, closers_, is_section ? words.subspan(kCallEnd) : words,
                            /*needs_slash=*/!is_section && format_ != JsonCallFormat::kCohere);
}

}  // namespace heddle::parsers
