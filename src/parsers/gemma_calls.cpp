// SPDX-License-Identifier: Apache-2.0
#include "parsers/gemma_calls.h"

#include <string>
#include <utility>

#include "parsers/call_cursor.h"
#include "parsers/call_tags.h"
#include "parsers/loose_tag.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kGemmaCallBegin = "<|tool_call>";
constexpr std::string_view kGemmaLead = "call:";
constexpr std::string_view kGemmaNameEnds = "{(<[\n\"";
constexpr std::string_view kGemmaWords[] = {"toolcall", "toolcalls", "functioncall"};

CallMarks gemma_marks() {
  // After its calls the model may write the mark at which their results begin.
  return {.markers = {kGemmaCallBegin},
          .opening_words = {std::begin(kGemmaWords), std::end(kGemmaWords)},
          .strays = {kGemmaCallEnd, "<|tool_response>"},
          .are_special = true,
          .may_be_missing = true};
}

// Skips the line break before arguments on a separate line. Returns false if more text is needed to
// decide.
bool skip_line_end(CallCursor& cursor) {
  CallCursor behind = cursor;
  if (!behind.skip_space(CallCursor::kMaxSpaceBeforeObject)) {
    return behind.failure().match != Match::kMore || cursor.fail(Match::kMore);
  }
  if (behind.rest().starts_with('{')) cursor = behind;
  return true;
}

}  // namespace

GemmaCallParser::GemmaCallParser(ToolCallParserOptions options)
    : ToolCallParser(gemma_marks(), std::move(options)) {}

bool GemmaCallParser::takes_name(std::string_view tool) {
  return !tool.empty() && tool.size() <= kMaxNameBytes &&
         tool.find_first_of(kGemmaNameEnds) == std::string_view::npos;
}

Match GemmaCallParser::may_begin_line(std::string_view text) const {
  std::string_view ignored;
  return begins_with(text, {&kGemmaLead, 1}, &ignored);
}

CallHeader GemmaCallParser::read_header(std::string_view text, Place place, bool is_exact,
                                        bool at_end) const {
  CallCursor cursor(text);
  unsigned tags = 0;
  if (place == Place::kMarker && !cursor.skip_tags(kGemmaWords, tags)) return cursor.failure();
  std::string_view info;
  if (!cursor.skip_space(CallCursor::kMaxSpaceBeforeObject) || !cursor.skip_fence(info)) {
    return cursor.failure();
  }
  const bool has_lead = cursor.rest().starts_with(kGemmaLead);
  if (!cursor.allow(kGemmaLead)) return cursor.failure();
  if (!has_lead && place != Place::kMarker) return {};
  std::string_view written;
  if (!cursor.read_until(kGemmaNameEnds, written)) {
    const bool may_be_whole = at_end && has_lead && place == Place::kMarker;
    const std::string name = may_be_whole ? names().resolve(cursor.rest()) : std::string();
    if (!names().has(name)) return cursor.failure();
    cursor.advance(cursor.rest().size());
    return bare_header(cursor, name);
  }
  const std::string name = names().resolve(written);
  const bool is_marked = place == Place::kMarker && is_exact && has_lead;
  if (!names().has(name) && (!is_marked || !is_tag_name(name))) return {};
  if (cursor.rest().starts_with('\n') && !skip_line_end(cursor)) return cursor.failure();
  // the call has no arguments
  if (cursor.rest().starts_with('<') || cursor.rest().starts_with('\n')) {
    return has_lead && is_marked ? bare_header(cursor, name) : CallHeader{};
  }
  // After "call:" the arguments may also be in parentheses, as in Python.
  const bool is_python = has_lead && cursor.rest().starts_with('(') && takes_name(name);
  if (!cursor.rest().starts_with('{') && !is_python) return {};
  CallHeader header = header_of(cursor, name);
  header.kind = ArgumentsKind::kFormat;
  return header;
}

void GemmaCallParser::begin_format_call(const CallHeader& header) {
  arguments_.emplace(names(), header.name, key_reader(header.name), is_exact());
}

Progress GemmaCallParser::read_arguments(std::string_view text, TextEnd end, size_t& used,
                                         AnswerDeltas& out) {
  std::string json;
  const Progress progress = arguments_->read(text, end, used, json);
  emit_arguments(json, out);
  return progress;
}

bool GemmaCallParser::finish_arguments(AnswerDeltas& out) {
  std::string json;
  if (!arguments_->finish(json)) return false;
  emit_arguments(json, out);
  return true;
}

// The two marks differ only in the side on which their bar is.
Closing GemmaCallParser::read_closing(std::string_view text) {
  std::string_view ignored;
  const Match opens = begins_with(text, {&kGemmaCallBegin, 1}, &ignored);
  if (opens != Match::kNo) return {.match = opens == Match::kMore ? opens : Match::kNo};
  return read_loose_closing(text, {&kGemmaCallEnd, 1}, {kGemmaWords, 1}, /*needs_slash=*/false);
}

}  // namespace heddle::parsers
