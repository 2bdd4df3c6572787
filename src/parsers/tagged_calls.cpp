// SPDX-License-Identifier: Apache-2.0
#include "parsers/tagged_calls.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBetweenTags = 64;

CallTags tags_of(TaggedCallFormat format) {
  CallTags tags;
  switch (format) {
    case TaggedCallFormat::kQwen3Coder:
      tags = {.markers = {"<tool_call>", "<function="},
              .parameter_begin = {"<parameter="},
              .value_end = {"</parameter>"},
              .call_end = {"</function>", "</tool_call>"},
              .closing = {"</tool_call>"},
              .after_value = {},
              .strips_newlines = true};
      break;
    case TaggedCallFormat::kGlm:
      tags = {.markers = {"<tool_call>"},
              .parameter_begin = {"<arg_key>"},
              .value_end = {"</arg_value>"},
              .call_end = {"</tool_call>"},
              .closing = {},
              .after_value = {},
              .strips_newlines = false};
      break;
    case TaggedCallFormat::kDeepseekV32:
      tags = {.markers = {"<｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "<function_calls>",
                          "<｜DSML｜invoke ", "<invoke "},
              .parameter_begin = {"<｜DSML｜parameter ", "<parameter "},
              .value_end = {"</｜DSML｜parameter>", "</parameter>"},
              .call_end = {"</｜DSML｜invoke>", "</invoke>"},
              .closing = {"</｜DSML｜invoke>", "</invoke>", "</｜DSML｜function_calls>",
                          "</｜DSML｜tool_calls>", "</function_calls>"},
              .after_value = {},
              .strips_newlines = false};
      break;
  }
  tags.after_value = tags.parameter_begin;
  tags.after_value.insert(tags.after_value.end(), tags.call_end.begin(), tags.call_end.end());
  return tags;
}

bool is_name(std::string_view name) {
  return !name.empty() && name.find_first_of(" \t\n\r<>") == std::string_view::npos;
}

// White space and then one of `tags`; `size` is all of it.
Match space_then(std::string_view text, std::span<const std::string_view> tags, size_t& size) {
  const size_t space = space_size(text);
  if (space > kMaxSpaceBetweenTags) return Match::kNo;
  std::string_view found;
  const Match match = begins_with(text.substr(space), tags, &found);
  size = space + found.size();
  return match;
}

// Reads the text before `end`, which must come soon.
Match read_up_to(std::string_view text, std::string_view end, std::string_view& value) {
  const size_t limit = ToolCallParser::kMaxNameBytes + end.size();
  const size_t size = text.substr(0, limit).find(end);
  if (size != std::string_view::npos) {
    value = text.substr(0, size);
    return Match::kYes;
  }
  return text.size() >= limit ? Match::kNo : Match::kMore;
}

}  // namespace

TaggedCallParser::TaggedCallParser(TaggedCallFormat format,
                                   std::shared_ptr<const nlohmann::ordered_json> tools,
                                   ToolCallParserOptions options)
    : ToolCallParser(tags_of(format).markers, /*may_start_unmarked=*/false, std::move(options)),
      format_(format),
      tags_(tags_of(format)),
      tools_(std::move(tools)) {}

CallHeader TaggedCallParser::read_header(std::string_view text, Place place) const {
  if (place != Place::kMarker) return {};  // calls have marks of their own
  switch (format_) {
    case TaggedCallFormat::kQwen3Coder:
      return read_coder_header(text);
    case TaggedCallFormat::kGlm:
      return read_glm_header(text);
    case TaggedCallFormat::kDeepseekV32:
      return read_dsml_header(text);
  }
  return {};
}

bool TaggedCallParser::is_tool(std::string_view name) const {
  if (tools_ == nullptr || !tools_->is_array()) return false;
  return std::any_of(tools_->begin(), tools_->end(), [name](const nlohmann::ordered_json& tool) {
    const auto function = tool.find("function");
    if (function == tool.end() || !function->is_object()) return false;
    const auto its_name = function->find("name");
    return its_name != function->end() && its_name->is_string() &&
           its_name->get_ref<const std::string&>() == name;
  });
}

CallHeader TaggedCallParser::read_coder_header(std::string_view text) const {
  constexpr std::string_view kFunction[] = {"<function="};
  size_t begin = 0;
  const bool marked = text.starts_with("<tool_call>");
  if (marked) begin = std::string_view("<tool_call>").size();
  size_t size = 0;
  if (const Match match = space_then(text.substr(begin), kFunction, size); match != Match::kYes) {
    return {.match = match};
  }
  begin += size;
  std::string_view name;
  if (const Match match = read_up_to(text.substr(begin), ">", name); match != Match::kYes) {
    return {.match = match};
  }
  if (!is_name(name) || (!marked && !is_tool(name))) return {};
  begin += name.size() + 1;
  const Match match = space_then(text.substr(begin), tags_.after_value, size);
  if (match != Match::kYes) return {.match = match};
  return {.match = Match::kYes, .size = begin, .name = std::string(name)};
}

CallHeader TaggedCallParser::read_glm_header(std::string_view text) const {
  size_t begin = tags_.markers.front().size();
  const size_t space = space_size(text.substr(begin));
  if (space > kMaxSpaceBetweenTags) return {};
  begin += space;
  const std::string_view rest = text.substr(begin);
  const size_t size = rest.find_first_of("< \t\n\r");
  if (std::min(size, rest.size()) > kMaxNameBytes) return {};
  if (size == std::string_view::npos) return {.match = Match::kMore};
  const std::string_view name = rest.substr(0, size);
  if (!is_name(name)) return {};
  size_t ignored = 0;
  const Match match = space_then(rest.substr(size), tags_.after_value, ignored);
  if (match != Match::kYes) return {.match = match};
  return {.match = Match::kYes, .size = begin + size, .name = std::string(name)};
}

CallHeader TaggedCallParser::read_dsml_header(std::string_view text) const {
  const std::span<const std::string_view> markers(tags_.markers);
  const auto sections = markers.first(3);
  const auto invokes = markers.last(2);
  std::string_view section;
  size_t begin = 0;
  if (begins_with(text, sections, &section) == Match::kYes) begin = section.size();
  size_t size = 0;
  if (const Match match = space_then(text.substr(begin), invokes, size); match != Match::kYes) {
    return {.match = match};
  }
  begin += size;
  std::string_view attributes;
  if (const Match match = read_up_to(text.substr(begin), ">", attributes); match != Match::kYes) {
    return {.match = match};
  }
  begin += attributes.size() + 1;
  if (!attributes.starts_with("name=\"") || !attributes.ends_with('"')) return {};
  attributes.remove_prefix(6);
  if (attributes.empty()) return {};
  attributes.remove_suffix(1);
  if (!is_name(attributes)) return {};
  const std::string_view rest = text.substr(begin);
  const size_t space = space_size(rest);
  Match match = space_then(rest, tags_.after_value, size);
  if (match != Match::kYes && space <= kMaxSpaceBetweenTags &&
      rest.substr(space).starts_with('{')) {
    match = Match::kYes;
  }
  if (match != Match::kYes) return {.match = match};
  return {.match = Match::kYes, .size = begin, .name = std::string(attributes)};
}

void TaggedCallParser::begin_call(const CallHeader& header, std::string_view) {
  tool_ = header.name;
  names_.clear();
  json_.reset();
  in_value_ = false;
}

ToolCallParser::Progress TaggedCallParser::read_arguments(std::string_view text, size_t& used,
                                                          AnswerDeltas& out) {
  if (in_value_) return read_value(text, used, out);
  if (!json_) return read_between(text, used, out);
  std::string json;
  const JsonScanner::State state = json_->scan(text, used, &json);
  emit_arguments(json, out);
  if (state == JsonScanner::State::kMore) return Progress::kMore;
  return state == JsonScanner::State::kDone ? Progress::kDone : Progress::kFailed;
}

ToolCallParser::Progress TaggedCallParser::read_between(std::string_view text, size_t& used,
                                                        AnswerDeltas& out) {
  used = space_size(text);
  const std::string_view rest = text.substr(used);
  if (rest.empty()) return Progress::kMore;
  if (format_ == TaggedCallFormat::kDeepseekV32 && names_.empty() && rest.front() == '{') {
    json_.emplace();
    size_t size = 0;
    const Progress progress = read_arguments(rest, size, out);
    used += size;
    return progress;
  }
  std::string_view found;
  Match match = begins_with(rest, tags_.call_end, &found);
  if (match == Match::kYes) {
    emit_last_arguments(names_.empty() ? "{}" : "}", out);
    used += found.size();
    return Progress::kDone;
  }
  const Match opens = begins_with(rest, tags_.parameter_begin, &found);
  if (opens != Match::kYes) {
    return match == Match::kMore || opens == Match::kMore ? Progress::kMore : Progress::kFailed;
  }
  Opening opening = read_opening(rest, found);
  if (opening.match != Match::kYes) {
    return opening.match == Match::kMore ? Progress::kMore : Progress::kFailed;
  }
  used += opening.size;
  dropped_ = !is_name(opening.name) ||
             std::find(names_.begin(), names_.end(), opening.name) != names_.end();
  type_ = std::move(opening.type);
  is_string_ = type_.is_string();
  quote_open_ = false;
  value_begun_ = !tags_.strips_newlines;
  value_.clear();
  in_value_ = true;
  if (!dropped_) {
    lead_ = names_.empty() ? "{\"" : ", \"";
    append_escaped(opening.name, lead_);
    lead_ += "\": ";
    names_.push_back(std::move(opening.name));
  }
  return Progress::kMore;
}

TaggedCallParser::Opening TaggedCallParser::read_opening(std::string_view text,
                                                         std::string_view tag) const {
  const std::string_view rest = text.substr(tag.size());
  std::string_view name;
  Opening opening;
  switch (format_) {
    case TaggedCallFormat::kQwen3Coder:
      opening.match = read_up_to(rest, ">", name);
      opening.size = tag.size() + name.size() + 1;
      break;
    case TaggedCallFormat::kGlm: {
      constexpr std::string_view kKeyEnd = "</arg_key>";
      constexpr std::string_view kValueBegin[] = {"<arg_value>"};
      opening.match = read_up_to(rest, kKeyEnd, name);
      if (opening.match != Match::kYes) break;
      const size_t key = name.size() + kKeyEnd.size();
      size_t size = 0;
      opening.match = space_then(rest.substr(key), kValueBegin, size);
      opening.size = tag.size() + key + size;
      break;
    }
    case TaggedCallFormat::kDeepseekV32: {
      std::string_view attributes;
      opening.match = read_up_to(rest, ">", attributes);
      if (opening.match != Match::kYes) break;
      opening.size = tag.size() + attributes.size() + 1;
      opening.match = Match::kNo;
      if (!attributes.starts_with("name=\"")) break;
      attributes.remove_prefix(6);
      const size_t quote = attributes.find('"');
      if (quote == std::string_view::npos) break;
      opening.match = Match::kYes;
      name = attributes.substr(0, quote);
      opening.type = attributes.find("string=\"true\"") != std::string_view::npos
                         ? ParameterType::text()
                         : ParameterType::json();
      break;
    }
  }
  if (opening.match != Match::kYes) return opening;
  opening.name = name;
  if (format_ != TaggedCallFormat::kDeepseekV32 && tools_ != nullptr) {
    opening.type = ParameterType::of(*tools_, tool_, name);
  }
  return opening;
}

ToolCallParser::Progress TaggedCallParser::read_value(std::string_view text, size_t& used,
                                                      AnswerDeltas& out) {
  const MarkerHit hit = find_marker(text, tags_.value_end);
  size_t sure = hit.position;  // bytes that belong to the value
  bool last = false;
  if (!hit.marker.empty()) {
    size_t ignored = 0;
    const Match match = space_then(text.substr(hit.end()), tags_.after_value, ignored);
    if (match == Match::kNo) {  // the tag is text
      used = hit.end();
      return take_value(text.substr(0, used), false, out) ? Progress::kMore : Progress::kFailed;
    }
    last = match == Match::kYes;
  }
  // A line break before what may be the end waits for it.
  if (!last && tags_.strips_newlines && sure > 0 && text[sure - 1] == '\n') --sure;
  std::string_view piece = text.substr(0, sure);
  if (type_.is_unsaid() && !quote_open_ && value_.empty()) {
    const size_t first = piece.find_first_not_of(" \t\n\r");
    if (first == std::string_view::npos && !last) return Progress::kMore;
    is_string_ = first == std::string_view::npos || !ParameterType::begins_structure(piece[first]);
  }
  if (!last && is_string_ && !quote_open_ && type_.may_be_null()) {
    const bool newline = !value_begun_ && piece.starts_with('\n');
    if (may_become_null_word(piece.substr(newline ? 1 : 0))) return Progress::kMore;
  }
  used = last ? hit.end() : sure;
  if (used == 0 && !last) return Progress::kMore;
  if (!take_value(piece, last, out)) return Progress::kFailed;
  if (last) in_value_ = false;
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
  if (last && tags_.strips_newlines && piece.ends_with('\n')) piece.remove_suffix(1);
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

ToolCallParser::Closing TaggedCallParser::read_closing(std::string_view text) {
  size_t size = 0;
  const Match match = space_then(text, tags_.closing, size);
  return {.match = match, .size = match == Match::kYes ? size : 0};
}

}  // namespace heddle::parsers
