// SPDX-License-Identifier: Apache-2.0
#include "parsers/tagged_calls.h"

#include <algorithm>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBetweenTags = 64;
constexpr size_t kMaxAttributeBytes = kMaxNameBytes + 64;
constexpr size_t kMaxUnknownTypes = 64;  // looked up one by one
constexpr int kMaxRepeats = 3;           // of a tag that is doubled

// In TagScan::open_tags.
constexpr char kOpenSection = 's';
constexpr char kOpenCall = 'c';

// The words of a format's tags (loose_tag.h), each a section's, a call's, a parameter's or a
// value's: of the first `sections` the words are a section's, and so on.
struct TagWords {
  std::span<const std::string_view> words;
  size_t sections = 0;
  size_t calls = 0;
  size_t parameters = 0;
};

constexpr std::string_view kCoderWords[] = {"toolcall", "toolcalls", "function",
                                            "func",     "parameter", "param"};
constexpr std::string_view kGlmWords[] = {"toolcall", "toolcalls", "argkey", "argname", "argvalue"};
constexpr std::string_view kDsmlWords[] = {"dsmlfunctioncalls", "dsmltoolcalls", "functioncalls",
                                           "toolcalls",         "dsmlinvoke",    "invoke",
                                           "dsmlparameter",     "parameter"};

TagWords words_of(TaggedCallFormat format) {
  switch (format) {
    case TaggedCallFormat::kQwen3Coder:
      return {.words = kCoderWords, .sections = 2, .calls = 2, .parameters = 2};
    case TaggedCallFormat::kGlm:
      return {.words = kGlmWords, .sections = 0, .calls = 2, .parameters = 2};
    case TaggedCallFormat::kDeepseekV32:
      break;
  }
  return {.words = kDsmlWords, .sections = 4, .calls = 2, .parameters = 2};
}

CallMarks tagged_marks_of(TaggedCallFormat format) {
  switch (format) {
    case TaggedCallFormat::kQwen3Coder:
      return {.markers = {"<tool_call>", "<function="},
              .opening_words = {"toolcall", "toolcalls", "function", "functioncall", "tools"},
              .strays = {"</tool_call>"}};
    case TaggedCallFormat::kGlm:
      return {.markers = {"<tool_call>"},
              .opening_words = {"toolcall", "toolcalls", "functioncall", "tools"},
              .strays = {"</tool_call>"},
              .may_be_missing = true};
    case TaggedCallFormat::kDeepseekV32:
      break;
  }
  return {.markers = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<function_calls>",
                      "<｜DSML｜invoke ", "<invoke "},
          .opening_words = {"dsmlfunctioncalls", "dsmltoolcalls", "functioncalls", "dsmlinvoke",
                            "invoke"},
          .strays = {"</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜invoke>",
                     "</function_calls>"}};
}

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\n\r<>(") == std::string_view::npos;
}

std::string_view trimmed_of(std::string_view text, std::string_view what) {
  const size_t begin = text.find_first_not_of(what);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(what) - begin + 1);
}

// The value of an attribute, with or without quotes; nothing where it is not there.
std::optional<std::string_view> attribute(std::string_view attributes, std::string_view name) {
  size_t place = attributes.find(name);
  if (place == std::string_view::npos) return std::nullopt;
  std::string_view value = attributes.substr(place + name.size());
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  if (!value.starts_with('=')) return std::nullopt;
  value.remove_prefix(1);
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  if (value.starts_with('"') || value.starts_with('\'')) {
    return value.substr(1, std::min(value.find(value.front(), 1), value.size()) - 1);
  }
  return value.substr(0, std::min(value.find_first_of(" \t/"), value.size()));
}

// The value of the first attribute that says no type: <parameter key="city" string="true">.
std::optional<std::string_view> other_attribute(std::string_view attributes) {
  while (true) {
    attributes.remove_prefix(std::min(attributes.find_first_not_of(" \t"), attributes.size()));
    const std::string_view word = attributes.substr(0, attributes.find_first_of(" \t=:\"'"));
    if (word.empty()) return std::nullopt;
    const auto value = attribute(attributes, word);
    if (!value) return std::nullopt;
    if (word != "string" && word != "type" && word != "id") return value;
    const auto end = static_cast<size_t>(value->data() + value->size() - attributes.data());
    attributes.remove_prefix(std::min(end + 1, attributes.size()));
  }
}

// The header of `size` bytes before `rest`: a JSON object may stand in place of parameters.
CallHeader header_before(std::string_view rest, size_t size, std::string name) {
  const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
  const bool is_json = rest.substr(space).starts_with('{');
  return {.match = Match::kYes,
          .size = size + (is_json ? space : 0),
          .name = std::move(name),
          .kind = is_json ? ArgumentsKind::kJson : ArgumentsKind::kFormat};
}

}  // namespace

TaggedCallParser::TaggedCallParser(TaggedCallFormat format,
                                   std::shared_ptr<const nlohmann::ordered_json> tools,
                                   ToolCallParserOptions options)
    : ToolCallParser(tagged_marks_of(format), std::move(options)),
      format_(format),
      tools_(std::move(tools)) {}

// Where the format is kept to the letter: its closing tag, and behind it what it has there.
TaggedCallParser::ValueEnd TaggedCallParser::exact_value_end(TaggedCallFormat format,
                                                             std::string_view text) {
  constexpr std::string_view kCoderEnds[] = {"</parameter>"};
  constexpr std::string_view kGlmEnds[] = {"</arg_value>"};
  constexpr std::string_view kDsmlEnds[] = {"</｜DSML｜parameter>", "</parameter>"};
  std::span<const std::string_view> ends = kDsmlEnds;
  if (format == TaggedCallFormat::kQwen3Coder) ends = kCoderEnds;
  if (format == TaggedCallFormat::kGlm) ends = kGlmEnds;
  std::string_view found;
  const Match match = begins_with(text, ends, &found);
  if (match != Match::kYes) return {.match = match};
  const std::string_view behind = text.substr(found.size());
  const size_t space = space_size(behind.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return {};
  return {.match = begins_next_tag(format, behind.substr(space)), .size = found.size()};
}

Match TaggedCallParser::begins_next_tag(TaggedCallFormat format, std::string_view text) {
  constexpr std::string_view kCoderNext[] = {"<parameter=", "</function>", "</tool_call>"};
  constexpr std::string_view kGlmNext[] = {"<arg_key>", "</tool_call>"};
  constexpr std::string_view kDsmlNext[] = {"<｜DSML｜parameter ", "<parameter ",
                                            "</｜DSML｜invoke>", "</invoke>"};
  std::span<const std::string_view> next = kDsmlNext;
  if (format == TaggedCallFormat::kQwen3Coder) next = kCoderNext;
  if (format == TaggedCallFormat::kGlm) next = kGlmNext;
  std::string_view ignored;
  return begins_with(text, next, &ignored);
}

// Reads the text between a tag's word and its bracket: "=f", " name=\"f\"", "=\"f\"", ": f".
Match TaggedCallParser::read_tag_name(std::string_view text, CallTag& tag) const {
  const std::string_view rest = text.substr(tag.size, kMaxAttributeBytes);
  const size_t size = std::min(rest.find_first_of(">\n<"), rest.size());
  count_searched(size);
  if (size == rest.size()) {
    return rest.size() < kMaxAttributeBytes ? Match::kMore : Match::kNo;
  }
  const std::string_view said = rest.substr(0, size);
  tag.size += size + (rest[size] == '>' ? 1 : 0);
  const auto name = attribute(said, "name");
  if (const auto named = name ? name : other_attribute(said)) {
    tag.name = *named;
  } else {
    tag.name = trimmed_of(said, " \t\r=:/\"'");
  }
  if (const auto string = attribute(said, "string")) {
    const std::string word = bare_word(*string);
    if (word == "true" || word == "false") tag.is_string = word == "true";
  }
  return Match::kYes;
}

TaggedCallParser::CallTag TaggedCallParser::read_tag(std::string_view text) const {
  if (text.empty()) return {.match = Match::kMore};
  if (text.front() != '<') return {};
  const LooseTag loose = read_loose_tag(text);
  if (loose.match != Match::kYes) return {.match = loose.match, .closing = loose.closing};
  const TagWords words = words_of(format_);
  const auto meant = meant_word(loose.word, words.words);
  if (!meant) return {};
  CallTag tag{.match = Match::kYes, .closing = loose.closing, .size = loose.size};
  tag.is_exact = words.words[*meant] == loose.word;
  tag.kind = *meant < words.sections                                    ? TagKind::kSection
             : *meant < words.sections + words.calls                    ? TagKind::kCall
             : *meant < words.sections + words.calls + words.parameters ? TagKind::kParameter
                                                                        : TagKind::kValue;
  if (loose.closed) return tag;
  const char behind = text[loose.size];
  const bool is_named = format_ != TaggedCallFormat::kGlm && tag.kind != TagKind::kSection &&
                        (behind == '=' || behind == ' ' || behind == ':');
  if (is_named || (tag.closing && behind != '\n' && behind != '<' && behind != '{')) {
    tag.match = read_tag_name(text, tag);
  }
  return tag;
}

CallHeader TaggedCallParser::read_header(std::string_view text, Place place, bool is_exact,
                                         bool at_end) const {
  if (place == Place::kNext) return {};  // calls have marks of their own
  return format_ == TaggedCallFormat::kGlm ? read_glm_header(text, place, is_exact, at_end)
                                           : read_call_header(text, place, is_exact, at_end);
}

Match TaggedCallParser::may_begin_line(std::string_view text) const {
  std::string_view name;
  return names().begins_with_name(text, name);
}

// Whether white space and then parameters, an object or the call's end come.
Match TaggedCallParser::begins_parameters(std::string_view text, bool at_end) const {
  const size_t space = space_size(text.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return Match::kNo;
  const std::string_view rest = text.substr(space);
  if (rest.empty()) return at_end ? Match::kYes : Match::kMore;
  if (rest.front() == '{') return Match::kYes;
  const CallTag tag = read_tag(rest);
  if (tag.match != Match::kYes) return tag.match;
  return tag.kind == TagKind::kNone ? Match::kNo : Match::kYes;
}

CallHeader TaggedCallParser::read_call_header(std::string_view text, Place place, bool is_exact,
                                              bool at_end) const {
  std::string_view rest = text;
  bool in_section = false;
  std::string name;
  for (int count = 0; count < 2 * kMaxRepeats; ++count) {
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags + 1));
    if (space > kMaxSpaceBetweenTags) return {};
    const CallTag tag = read_tag(rest.substr(space));
    if (tag.match == Match::kMore) {
      if (name.empty() || !at_end) return {.match = Match::kMore};
      break;
    }
    if (tag.match == Match::kNo || tag.closing) break;
    const bool is_section = tag.kind == TagKind::kSection && name.empty();
    const bool is_call = tag.kind == TagKind::kCall && (name.empty() || name == tag.name);
    if (!is_section && !is_call) break;
    in_section = in_section || is_section;
    if (is_call) name = tag.name;
    if (is_call && name.empty()) return {};
    rest.remove_prefix(space + tag.size);
    if (rest.starts_with('>')) rest.remove_prefix(1);  // doubled
  }
  if (name.empty() && in_section) {  // its parameters may say whose they are
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    const CallTag tag = read_tag(rest.substr(space));
    if (tag.match == Match::kMore) return {.match = Match::kMore};
    if (tag.kind == TagKind::kParameter && !tag.closing) name = names().only_tool_with(tag.name);
  }
  name = names().resolve(name);
  const bool is_marked = place == Place::kMarker && is_exact &&
                         (in_section || format_ == TaggedCallFormat::kDeepseekV32);
  if (!is_name(name) || name.size() > kMaxNameBytes || (!is_marked && !names().has(name))) {
    return {};
  }
  const Match match = begins_parameters(rest, at_end);
  if (match != Match::kYes) return {.match = match};
  return header_before(rest, text.size() - rest.size(), std::move(name));
}

CallHeader TaggedCallParser::read_glm_header(std::string_view text, Place place, bool is_exact,
                                             bool at_end) const {
  std::string_view rest = text;
  const auto skip_space = [&rest] {
    rest.remove_prefix(space_size(rest.substr(0, kMaxSpaceBetweenTags)));
  };
  for (int count = 0; place == Place::kMarker && count < kMaxRepeats; ++count) {
    const CallTag tag = read_tag(rest);
    if (tag.match == Match::kMore) return {.match = Match::kMore};
    if (tag.match != Match::kYes || tag.kind != TagKind::kCall || tag.closing) break;
    rest.remove_prefix(tag.size);
    if (rest.starts_with('>')) rest.remove_prefix(1);  // doubled
    skip_space();
  }
  size_t size = rest.find_first_of("<{( \t\n\r");
  count_searched(std::min(size, rest.size()));
  if (std::min(size, rest.size()) > kMaxNameBytes) return {};
  if (size == std::string_view::npos && !at_end) return {.match = Match::kMore};
  size = std::min(size, rest.size());
  std::string name = names().resolve(rest.substr(0, size));
  rest.remove_prefix(size);
  if (rest.starts_with("()")) rest.remove_prefix(2);
  if (rest.starts_with('(') && rest.size() > 1) return {};
  if (name.empty()) {  // its parameters may say whose they are
    const Opening opening = read_glm_opening(rest, {});
    if (opening.match == Match::kMore) return {.match = Match::kMore};
    if (opening.match == Match::kYes) name = names().only_tool_with(opening.name);
  }
  const bool is_known = names().has(name);
  const bool is_marked = place == Place::kMarker && is_exact;
  if (!is_name(name) || (!is_marked && !is_known)) return {};
  Match match = begins_parameters(rest, at_end && is_marked && is_known);
  if (match == Match::kNo && is_marked && is_known) match = read_glm_opening(rest, name).match;
  if (match != Match::kYes) return {.match = match};
  skip_space();
  if (!is_marked && !rest.empty()) {  // a tag has to say that it is a call
    const CallTag tag = read_tag(rest);
    const bool says =
        tag.kind == TagKind::kParameter || (tag.kind == TagKind::kCall && tag.closing);
    if (!says) return {};
  }
  return header_before(rest, text.size() - rest.size(), std::move(name));
}

void TaggedCallParser::begin_call(const CallHeader& header) {
  tool_ = header.name;
  names_.clear();
  in_value_ = false;
}

Progress TaggedCallParser::read_arguments(std::string_view text, TextEnd end, size_t& used,
                                          AnswerDeltas& out) {
  if (in_value_) return read_value(text, end, used, out);
  return read_between(text, end, used, out);
}

bool TaggedCallParser::finish_arguments(AnswerDeltas& out) {
  if (in_value_) return false;
  end_arguments(out);
  return true;
}

void TaggedCallParser::end_arguments(AnswerDeltas& out) {
  emit_last_arguments(names_.empty() ? "{}" : "}", out);
}

Progress TaggedCallParser::read_between(std::string_view text, TextEnd end, size_t& used,
                                        AnswerDeltas& out) {
  used = space_size(text);
  const std::string_view rest = text.substr(used);
  if (rest.empty()) return Progress::kMore;
  const bool is_glm = format_ == TaggedCallFormat::kGlm;
  const CallTag tag = read_tag(rest);
  if (tag.match == Match::kMore) return Progress::kMore;
  if (tag.match == Match::kYes) {
    const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
    if (is_call) {
      if (tag.closing) used += tag.size;  // else the next call begins
      end_arguments(out);
      return Progress::kDone;
    }
    const bool is_stray = is_glm ? tag.kind == TagKind::kValue : tag.kind == TagKind::kParameter;
    if (tag.closing && is_stray) {
      used += tag.size;
      return Progress::kMore;
    }
  }
  const Opening opening = read_opening(rest);
  if (opening.match == Match::kMore && end == TextEnd::kNone) return Progress::kMore;
  if (opening.match != Match::kYes) {
    if (end != TextEnd::kNone && opening.match == Match::kMore) {
      used = text.size();
      return Progress::kMore;
    }
    return Progress::kFailed;
  }
  used += opening.size;
  begin_value(opening);
  return Progress::kMore;
}

void TaggedCallParser::begin_value(const Opening& opening) {
  parameter_ = names().resolve_parameter(tool_, opening.name);
  if (parameter_ != opening.name && names_.contains(parameter_)) parameter_ = opening.name;
  dropped_ = !is_name(parameter_) || names_.contains(parameter_);
  if (opening.is_string) {
    type_ = *opening.is_string ? ParameterType::text() : ParameterType::json();
  } else {
    type_ = type_of(parameter_);
  }
  is_string_ = type_.is_string();
  quote_open_ = false;
  value_begun_ = format_ != TaggedCallFormat::kQwen3Coder;
  scan_ = {};
  line_begins_ = false;
  value_.clear();
  in_value_ = true;
  if (dropped_) return;
  lead_ = names_.empty() ? "{\"" : ", \"";
  append_escaped(parameter_, lead_);
  lead_ += "\": ";
  names_.insert(parameter_);
}

const ParameterType& TaggedCallParser::type_of(const std::string& parameter) {
  const auto [place, is_new] = types_.try_emplace({tool_, parameter});
  if (is_new && tools_ != nullptr) {
    // One that the schema does not list costs a search of all of it.
    const bool is_known = names().has_parameter(tool_, parameter);
    if (is_known || num_unknown_types_++ < kMaxUnknownTypes) {
      place->second = ParameterType::of(*tools_, tool_, parameter);
    }
  }
  return place->second;
}

TaggedCallParser::Opening TaggedCallParser::read_opening(std::string_view text) const {
  if (format_ == TaggedCallFormat::kGlm) return read_glm_opening(text, tool_);
  CallTag tag = read_tag(text);
  if (tag.match != Match::kYes) return {.match = tag.match};
  if (tag.kind != TagKind::kParameter || tag.closing || tag.name.empty()) return {};
  Opening opening{.match = Match::kYes,
                  .size = tag.size,
                  .name = std::move(tag.name),
                  .is_string = tag.is_string};
  for (int count = 0; count < kMaxRepeats; ++count) {  // doubled
    const std::string_view rest = text.substr(opening.size);
    const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    const CallTag again = read_tag(rest.substr(space));
    if (again.match == Match::kMore) return {.match = Match::kMore};
    const bool is_same = again.match == Match::kYes && again.kind == TagKind::kParameter &&
                         !again.closing && again.name == opening.name;
    if (!is_same) break;
    opening.size += space + again.size;
  }
  return opening;
}

// "<arg_key>p</arg_key>\n<arg_value>", of which one of the key's tags, or the value's, may be
// missing.
TaggedCallParser::Opening TaggedCallParser::read_glm_opening(std::string_view text,
                                                             std::string_view tool) const {
  std::string_view rest = text;
  const auto skip_space = [&rest] {
    const size_t size = space_size(rest.substr(0, kMaxSpaceBetweenTags));
    rest.remove_prefix(size);
    return size;
  };
  const auto skip_tags = [&](TagKind kind, bool closing, int& found) {
    for (int count = 0; count < kMaxRepeats; ++count) {
      const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags));
      const CallTag tag = read_tag(rest.substr(space));
      if (tag.match == Match::kMore) return Match::kMore;
      if (tag.match != Match::kYes || tag.kind != kind || tag.closing != closing) break;
      rest.remove_prefix(space + tag.size);
      ++found;
    }
    return Match::kYes;
  };
  int keys = 0;
  int key_ends = 0;
  int values = 0;
  skip_space();
  if (skip_tags(TagKind::kParameter, false, keys) == Match::kMore) return {.match = Match::kMore};
  const std::string_view seen = rest.substr(0, kMaxAttributeBytes);
  const size_t size = std::min(seen.find_first_of("<\n"), seen.size());
  count_searched(size);
  if (size == seen.size()) {
    return {.match = seen.size() < kMaxAttributeBytes ? Match::kMore : Match::kNo};
  }
  Opening opening{.name = std::string(trimmed_of(seen.substr(0, size), " \t\r"))};
  rest.remove_prefix(size);
  if (opening.name.empty()) return {};
  if (skip_tags(TagKind::kParameter, true, key_ends) == Match::kMore) {
    return {.match = Match::kMore};
  }
  const std::string_view behind_key = rest;
  if (skip_tags(TagKind::kValue, false, values) == Match::kMore) return {.match = Match::kMore};
  const bool is_named = keys > 0 || names().has_parameter(tool, opening.name) || values > 0;
  if (keys + key_ends == 0 || key_ends + values == 0 || !is_named) return {};
  if (values == 0) {
    rest = behind_key;
    if (rest.starts_with('\n')) rest.remove_prefix(1);
  }
  opening.match = Match::kYes;
  opening.size = text.size() - rest.size();
  return opening;
}

// Whether a call has ended before `text`, which follows one of its closing tags (all of them if
// `closed`): another call begins, nothing follows, or the last closing tag and nothing after it.
Match TaggedCallParser::ends_call(std::string_view text, bool closed, TextEnd end) const {
  const size_t space = space_size(text.substr(0, kMaxSpaceBetweenTags + 1));
  if (space > kMaxSpaceBetweenTags) return Match::kNo;
  const std::string_view rest = text.substr(space);
  if (rest.empty()) return end == TextEnd::kNone ? Match::kMore : Match::kYes;
  const CallTag tag = read_tag(rest);
  if (tag.match == Match::kMore) return end == TextEnd::kNone ? Match::kMore : Match::kYes;
  if (tag.match == Match::kNo) return Match::kNo;
  if (tag.kind != TagKind::kSection && tag.kind != TagKind::kCall) return Match::kNo;
  if (!tag.closing) return Match::kYes;
  return closed ? Match::kNo : ends_call(rest.substr(tag.size), true, end);
}

TaggedCallParser::ValueEnd TaggedCallParser::value_ends_at(const CallTag& tag,
                                                           std::string_view text, bool line_begins,
                                                           bool one_line, TextEnd end) const {
  const bool is_glm = format_ == TaggedCallFormat::kGlm;
  const TagKind value = is_glm ? TagKind::kValue : TagKind::kParameter;
  const bool is_own =
      tag.closing && (tag.kind == value || (is_glm && tag.kind == TagKind::kParameter));
  std::string_view rest = text.substr(tag.size);
  if (is_own) {
    for (int count = 0; count <= kMaxRepeats; ++count) {
      const size_t space = space_size(rest.substr(0, kMaxSpaceBetweenTags + 1));
      if (space > kMaxSpaceBetweenTags) return {};
      rest.remove_prefix(space);
      // As the format spells it, the next tag is certain before its name is there.
      if (begins_next_tag(format_, rest) == Match::kYes) {
        return {.match = Match::kYes, .size = tag.size};
      }
      const CallTag next = read_tag(rest);
      const bool is_more = rest.empty() || next.match == Match::kMore;
      if (is_more && end == TextEnd::kNone) return {.match = Match::kMore};
      if (is_more) return {.match = Match::kYes, .size = tag.size};
      if (next.match == Match::kYes && next.closing && next.kind == value) {  // doubled
        rest.remove_prefix(next.size);
        continue;
      }
      if (next.match == Match::kYes) {
        const bool goes_on = next.kind != TagKind::kParameter || is_glm || !next.name.empty();
        return {.match = goes_on && next.kind != TagKind::kValue ? Match::kYes : Match::kNo,
                .size = tag.size};
      }
      if (!is_glm) return {};
      const Opening opening = read_glm_opening(rest, tool_);  // whose first tag is missing
      if (opening.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
      return {.match = opening.match == Match::kYes ? Match::kYes : Match::kNo, .size = tag.size};
    }
    return {};
  }
  const bool begins = line_begins || one_line;
  if (tag.kind == TagKind::kParameter && !tag.closing) {
    std::string name = tag.name;
    if (is_glm) {
      const Opening opening = read_glm_opening(text, tool_);
      if (opening.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
      if (opening.match != Match::kYes) return {};
      name = opening.name;
    }
    name = names().resolve_parameter(tool_, name);
    const bool is_next = (begins || is_glm) && tag.is_exact && names().has_parameter(tool_, name) &&
                         !names_.contains(name);
    return {.match = is_next ? Match::kYes : Match::kNo};
  }
  const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
  if (!is_call || !tag.closing) return {};
  const Match match = ends_call(rest, is_glm || tag.kind == TagKind::kSection, end);
  if (match != Match::kNo) return {.match = match};
  const bool line_ends = rest.empty() || rest.front() == '\n' || rest.front() == '\r';
  const bool may_end = begins && tag.is_exact && line_ends;
  return {.match = may_end ? Match::kYes : Match::kNo, .in_doubt = true};
}

// The header of a call that is quoted in a value. A bare mark followed by the value's own closing
// tag is not a call.
CallHeader TaggedCallParser::read_inner_header(const CallTag& tag, std::string_view text,
                                               TextEnd end) const {
  const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
  if (!is_call || tag.closing || !tag.is_exact) return {};
  CallHeader header = read_header(text, Place::kMarker, true, end == TextEnd::kStopped);
  if (header.match != Match::kYes) return header;
  const std::string_view rest = text.substr(header.size);
  const CallTag next = read_tag(rest.substr(space_size(rest.substr(0, kMaxSpaceBetweenTags))));
  const TagKind value = format_ == TaggedCallFormat::kGlm ? TagKind::kValue : TagKind::kParameter;
  if (next.match == Match::kMore && end == TextEnd::kNone) return {.match = Match::kMore};
  if (next.match == Match::kYes && next.closing && next.kind == value) return {};
  return header;
}

// Notes the tag at the scan's position as uncertain; the first one counts.
void TaggedCallParser::doubt(const ValueEnd& end) {
  if (!scan_.doubt) scan_.doubt = Doubt{.position = scan_.position, .size = end.size};
}

// Removes the quoted calls that a closing tag of this kind ends.
void TaggedCallParser::close_inner_call(TagKind kind) {
  std::string& open = scan_.open_tags;
  size_t left = open.size() - (open.back() == kOpenCall ? 1 : 0);
  if (kind == TagKind::kSection) {
    const size_t section = open.rfind(kOpenSection);
    left = section == std::string::npos ? 0 : section;
  }
  scan_.num_open_calls -= std::ranges::count(std::string_view(open).substr(left), kOpenCall);
  open.resize(left);
}

// Decides the tag at the front of `text`. kYes: the value ends there. kNo: the tag is the value's,
// `size` bytes of it are passed over.
TaggedCallParser::ValueEnd TaggedCallParser::decide_tag(std::string_view text, bool line_begins,
                                                        TextEnd end) {
  const ValueEnd passed{.match = Match::kNo, .size = 1};
  const CallTag tag = read_tag(text);
  if (tag.match == Match::kMore && end == TextEnd::kStopped) {
    // Its beginning is all there is of the closing tag.
    const bool ends = tag.closing || text.size() == 1;
    return ends ? ValueEnd{.match = Match::kYes, .size = text.size()} : passed;
  }
  if (tag.match == Match::kMore) return {.match = Match::kMore};
  if (tag.match == Match::kNo) return passed;
  const CallHeader inner = read_inner_header(tag, text, end);
  if (inner.match == Match::kMore) {
    return {.match = end == TextEnd::kNone ? Match::kMore : Match::kNo, .size = 1};
  }
  if (inner.match == Match::kYes) {
    const bool begins = (line_begins || scan_.one_line) && names().has(inner.name);
    const bool may_hold_call = type_.may_be_string() || type_.is_unsaid();
    if (begins && (!may_hold_call || doubts_end_)) return {.match = Match::kYes};
    if (begins && scan_.open_tags.empty()) doubt({.match = Match::kYes});
    if (tag.kind == TagKind::kSection) scan_.open_tags += kOpenSection;
    scan_.open_tags += kOpenCall;
    ++scan_.num_open_calls;
    return {.match = Match::kNo, .size = inner.size};
  }
  const ValueEnd found = value_ends_at(tag, text, line_begins, scan_.one_line, end);
  if (found.match == Match::kMore) return found;
  const bool is_end_of_call =
      tag.closing && (tag.kind == TagKind::kCall || tag.kind == TagKind::kSection);
  const bool is_inner = is_end_of_call ? !scan_.open_tags.empty() : scan_.num_open_calls > 0;
  const bool is_sure = doubts_end_ || (!is_inner && !found.in_doubt);
  if (found.match == Match::kYes && is_sure) return found;
  if (found.match == Match::kYes) doubt(found);
  if (is_inner && is_end_of_call) close_inner_call(tag.kind);
  return passed;
}

Progress TaggedCallParser::read_value(std::string_view text, TextEnd end, size_t& used,
                                      AnswerDeltas& out) {
  size_t sure = text.size();  // bytes that belong to the value
  size_t behind = 0;          // where the text after its end begins
  bool last = false;
  bool is_closed = false;  // by its own tag
  const auto end_at = [&](size_t place, size_t size) {
    sure = place;
    last = true;
    behind = place + size;
    is_closed = size > 0;
  };
  while (!last && scan_.position < text.size()) {
    const size_t from = scan_.position;
    const size_t place = std::min(text.find('<', from), text.size());
    count_searched(place - from);
    const std::string_view passed = text.substr(from, place - from);
    scan_.one_line = scan_.one_line && passed.find('\n') == std::string_view::npos;
    scan_.position = place;
    if (scan_.doubt && place - scan_.doubt->position > kMaxDoubtBytes) scan_.doubt.reset();
    if (place == text.size()) break;
    const bool line_begins = place == 0 ? line_begins_ : text[place - 1] == '\n';
    ValueEnd ends = is_exact() ? exact_value_end(format_, text.substr(place))
                               : decide_tag(text.substr(place), line_begins, end);
    if (is_exact() && ends.match == Match::kNo) ends.size = 1;
    if (ends.match == Match::kYes) {
      end_at(place, ends.size);
    } else if (ends.match == Match::kNo) {
      scan_.position = place + ends.size;
      const std::string_view tag = text.substr(place, ends.size);
      scan_.one_line = scan_.one_line && tag.find('\n') == std::string_view::npos;
    } else {
      sure = place;
      break;
    }
  }
  if (!last && scan_.doubt && end == TextEnd::kStopped) {
    end_at(scan_.doubt->position, scan_.doubt->size);
    doubts_end_ = true;
  } else if (!last && scan_.doubt && end == TextEnd::kNone) {
    sure = scan_.doubt->position;
  }
  if (!last && end == TextEnd::kStopped && sure == text.size()) end_at(sure, 0);
  // A line break before what may be the end waits for it.
  if (!last && sure > 0 && text[sure - 1] == '\n') --sure;
  std::string_view piece = text.substr(0, sure);
  if (type_.is_unsaid() && !quote_open_ && value_.empty()) {
    const size_t first = piece.find_first_not_of(" \t\n\r");
    if (first == std::string_view::npos && !last) return Progress::kMore;
    is_string_ = first == std::string_view::npos || !ParameterType::begins_structure(piece[first]);
  }
  if (!last && is_string_ && !quote_open_ && type_.may_be_null()) {
    const bool newline = !value_begun_ && piece.starts_with('\n');
    if (may_become_null_word(piece.substr(newline ? 1 : 0))) {
      used = 0;
      return Progress::kMore;
    }
  }
  used = last ? behind : sure;
  if (used == 0 && !last) return Progress::kMore;
  if (!piece.empty()) line_begins_ = piece.back() == '\n';
  scan_.position -= std::min(used, scan_.position);
  if (scan_.doubt && scan_.doubt->position < used) scan_.doubt.reset();
  if (scan_.doubt) scan_.doubt->position -= used;
  const bool strips = format_ == TaggedCallFormat::kQwen3Coder || !is_closed;
  if (last && strips && piece.ends_with('\n') && piece.size() > (value_begun_ ? 0U : 1U)) {
    piece.remove_suffix(1);
  }
  if (!take_value(piece, last, out)) return Progress::kFailed;
  if (last) in_value_ = false;
  // An empty value ends here without a byte read, which must not look like a wait for more text.
  if (used == 0) return read_between(text, end, used, out);
  return Progress::kMore;
}

void TaggedCallParser::begin_string(AnswerDeltas& out) {
  emit_arguments(lead_ + '"', out);
  quote_open_ = true;
}

// False when it has become too long.
bool TaggedCallParser::take_value(std::string_view piece, bool last, AnswerDeltas& out) {
  if (dropped_) return true;
  if (!value_begun_ && !piece.empty()) {
    value_begun_ = true;
    if (piece.starts_with('\n')) piece.remove_prefix(1);
  }
  if (is_string_) {
    const bool is_null = last && !quote_open_ && type_.may_be_null() && is_null_word(piece);
    if (is_null) {
      emit_arguments(lead_ + "null", out);
      return true;
    }
    if (!quote_open_) begin_string(out);
    std::string json;
    append_escaped(piece, json);
    if (last) json += '"';
    emit_arguments(json, out);
    return true;
  }
  value_ += piece;
  if (value_.size() > kMaxValueBytes) return false;
  if (last) {
    emit_arguments(lead_ + type_.to_json(value_), out);
  }
  return true;
}

Closing TaggedCallParser::read_closing(std::string_view text) {
  constexpr std::string_view kOtherWords[] = {"functioncall", "tools"};
  const Closing closing = read_loose_closing(text, {}, words_of(format_).words);
  return closing.match == Match::kNo ? read_loose_closing(text, {}, kOtherWords) : closing;
}

}  // namespace heddle::parsers
