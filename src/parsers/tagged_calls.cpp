// SPDX-License-Identifier: Apache-2.0
#include "parsers/tagged_calls.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace heddle::parsers {
namespace {

// The most parameters outside the schema whose types are looked up; later ones have the type of a
// parameter without a schema.
constexpr size_t kMaxUnknownTypes = 64;
constexpr std::string_view kLineBreak = "\n";
constexpr std::string_view kLongLineBreak = "\r\n";

// Whether the bracket at the beginning of a value belongs to the tag, doubled: only a short word
// follows it, so that it cannot be text that begins with a bracket.
bool may_be_doubled(std::string_view value) {
  constexpr size_t kMaxWord = 48;
  if (value.size() > kMaxWord || value.find_first_of("\n>", 1) != std::string_view::npos) {
    return false;
  }
  const char first = value.size() > 1 ? value[1] : 'a';
  return (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z') ||
         static_cast<unsigned char>(first) >= 0x80;
}

CallMarks tagged_marks_of(const TagFormat& format) {
  return {.markers = format.markers,
          .opening_words = format.opening_words,
          .strays = format.strays,
          .other_ends = format.other_ends,
          .may_be_missing = format.may_be_missing};
}

}  // namespace

TaggedCallParser::TaggedCallParser(TaggedCallFormat format,
                                   std::shared_ptr<const nlohmann::ordered_json> tools,
                                   ToolCallParserOptions options)
    : ToolCallParser(tagged_marks_of(tag_format_of(format)), std::move(options)),
      tools_(std::move(tools)),
      tags_(format, names()),
      value_end_(tags_, names(), is_exact()) {}

CallHeader TaggedCallParser::read_header(std::string_view text, Place place, bool is_exact,
                                         bool at_end) const {
  if (place == Place::kNext) return {};  // each call has its own marks
  return tags_.read_header(text, place == Place::kMarker, is_exact, at_end);
}

Match TaggedCallParser::may_begin_line(std::string_view text) const {
  std::string_view name;
  return names().begins_with_name(text, name);
}

void TaggedCallParser::begin_format_call(const CallHeader& header) {
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
  const bool is_glm = tags_.format().has_keys;
  CallTag tag = tags_.read(rest);
  const bool is_bare = tag.match == Match::kNo && !is_exact() && !rest.starts_with('<');
  if (is_bare) tag = tags_.read_bare(rest);
  if (tag.match == Match::kMore && (!is_bare || end == TextEnd::kNone)) return Progress::kMore;
  if (tag.match == Match::kYes) {
    const bool is_call = tag.kind == TagKind::kCall || tag.kind == TagKind::kSection;
    if (is_call) {
      if (tag.closing) used += tag.size;  // an opening tag belongs to the next call
      end_arguments(out);
      return Progress::kDone;
    }
    const bool is_stray = is_glm ? tag.kind == TagKind::kValue : tag.kind == TagKind::kParameter;
    if (tag.closing && is_stray) {
      used += tag.size;
      return Progress::kMore;
    }
  }
  ParameterOpening opening = tags_.read_opening(rest, tool_);
  const bool is_parameter = tag.match == Match::kYes && tag.kind == TagKind::kParameter;
  if (is_bare && is_parameter && !is_glm && !tag.name.empty()) {
    opening = {
        .match = Match::kYes, .size = tag.size, .name = tag.name, .is_string = tag.is_string};
  } else if (is_bare && !is_glm) {
    opening = tags_.read_unopened(rest, tool_, names_);
  } else if (is_glm && tag.match == Match::kYes && tag.kind == TagKind::kValue && !is_exact()) {
    opening = tags_.read_unopened(rest.substr(tag.size), tool_, names_);
    opening.size = tag.size;
  }
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
  return used == 0 ? read_value(text, end, used, out) : Progress::kMore;
}

void TaggedCallParser::begin_value(const ParameterOpening& opening) {
  parameter_ = names().resolve_parameter(tool_, opening.name);
  if (parameter_ != opening.name && names_.contains(parameter_)) parameter_ = opening.name;
  dropped_ = !is_tag_name(parameter_) || names_.contains(parameter_);
  if (opening.is_string) {
    type_ = *opening.is_string ? ParameterType::text() : ParameterType::json();
  } else {
    type_ = type_of(parameter_);
  }
  is_string_ = type_.is_string();
  quote_open_ = false;
  value_begun_ = !tags_.format().has_value_lines;
  line_break_ = kLineBreak;
  value_end_.begin({.tool = tool_,
                    .name = opening.name,
                    .parameters = &names_,
                    .may_hold_call = type_.may_be_string() || type_.is_unsaid()});
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
    // The type of a parameter that the schema does not list requires a search of the whole schema.
    const bool is_known = names().has_parameter(tool_, parameter);
    if (is_known || num_unknown_types_++ < kMaxUnknownTypes) {
      place->second = ParameterType::of(*tools_, tool_, parameter);
    }
  }
  return place->second;
}

Progress TaggedCallParser::read_value(std::string_view text, TextEnd end, size_t& used,
                                      AnswerDeltas& out) {
  const TaggedValueEnd::Scan found = value_end_.find(text, end);
  const bool last = found.ends;
  std::string_view piece = text.substr(0, found.size);
  if (!value_begun_ && piece.starts_with(kLongLineBreak)) line_break_ = kLongLineBreak;
  if (type_.is_unsaid() && !quote_open_ && value_.empty()) {
    const size_t first = piece.find_first_not_of(" \t\n\r");
    if (first == std::string_view::npos && !last) return Progress::kMore;
    is_string_ = first == std::string_view::npos || !ParameterType::begins_structure(piece[first]);
  }
  if (is_string_ && !quote_open_ && piece.starts_with('>') && !is_exact()) {
    if (!last && may_be_doubled(piece)) {
      used = 0;
      return Progress::kMore;
    }
    if (last && piece.size() > 1 && may_be_doubled(piece)) piece.remove_prefix(1);
  }
  if (!last && is_string_ && !quote_open_ && type_.may_be_null()) {
    const bool newline = !value_begun_ && piece.starts_with(line_break_);
    if (may_become_null_word(piece.substr(newline ? line_break_.size() : 0))) {
      used = 0;
      return Progress::kMore;
    }
  }
  used = last ? found.behind : found.size;
  if (used == 0 && !last) return Progress::kMore;
  value_end_.pass(used, piece);
  const bool strips = tags_.format().has_value_lines || !found.is_closed;
  const size_t begun = value_begun_ ? 0 : line_break_.size();
  if (last && strips && piece.ends_with(line_break_) && piece.size() > begun) {
    piece.remove_suffix(line_break_.size());
  }
  if (!take_value(piece, last, out)) return Progress::kFailed;
  if (last) in_value_ = false;
  // An empty value ends without consuming a byte, which must not be confused with a wait for more
  // text.
  if (used == 0) return read_between(text, end, used, out);
  return Progress::kMore;
}

void TaggedCallParser::begin_string(AnswerDeltas& out) {
  emit_arguments(lead_ + '"', out);
  quote_open_ = true;
}

// Appends to the value. Returns false if it has become too long.
bool TaggedCallParser::take_value(std::string_view piece, bool last, AnswerDeltas& out) {
  if (dropped_) return true;
  if (!value_begun_ && !piece.empty()) {
    value_begun_ = true;
    if (piece.starts_with(line_break_)) piece.remove_prefix(line_break_.size());
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
    const std::string_view value = value_;
    const bool is_doubled = value.starts_with('>') && !type_.may_be_string() && !is_exact();
    emit_arguments(lead_ + type_.to_json(is_doubled ? value.substr(1) : value), out);
  }
  return true;
}

Closing TaggedCallParser::read_closing(std::string_view text) {
  return read_loose_closing(text, {}, tags_.format().words);
}

}  // namespace heddle::parsers
