// SPDX-License-Identifier: Apache-2.0
#include "parsers/tool_call_parser.h"

#include <utility>

namespace heddle::parsers {

ToolCallParser::ToolCallParser(std::vector<std::string_view> markers, bool may_start_unmarked,
                               ToolCallParserOptions options)
    : markers_(std::move(markers)), options_(std::move(options)), at_start_(may_start_unmarked) {}

// Looks at a bounded part of the text however much there is, or the cuts would matter.
CallHeader ToolCallParser::header_at(std::string_view text, Place place) const {
  CallHeader header = read_header(text.substr(0, kMaxHeaderBytes), place);
  if (header.match == Match::kMore && text.size() >= kMaxHeaderBytes) header.match = Match::kNo;
  return header;
}

CallHeader ToolCallParser::read_marked_header(std::string_view text) const {
  return header_at(text, Place::kMarker);
}

void ToolCallParser::push(std::string_view text, AnswerDeltas& out) {
  unread_.append(text);
  run(/*at_end=*/false, out);
}

void ToolCallParser::finish(AnswerDeltas& out) {
  run(/*at_end=*/true, out);
  if (state_ == State::kCall) {
    if (options_.keep_call_text) call_text_ += unread_.text();
    end_call(/*complete=*/false, out);
  }
  if (!blank_since_call_) add_content(space_, out);
}

void ToolCallParser::run(bool at_end, AnswerDeltas& out) {
  unread_.read(state_, [&](std::string_view text) { return step(text, at_end, out); });
}

size_t ToolCallParser::step(std::string_view text, bool at_end, AnswerDeltas& out) {
  switch (state_) {
    case State::kText:
      return at_start_ ? read_start(text, at_end, out) : read_text(text, at_end, out);
    case State::kCall:
      return read_call(text, out);
    case State::kAfterCall:
      return read_after_call(text, at_end, out);
  }
  return 0;
}

size_t ToolCallParser::read_call(std::string_view text, AnswerDeltas& out) {
  size_t used = 0;
  const Progress progress = read_arguments(text, used, out);
  if (options_.keep_call_text) call_text_ += text.substr(0, used);
  if (progress != Progress::kMore) end_call(progress == Progress::kDone, out);
  return used;
}

size_t ToolCallParser::read_start(std::string_view text, bool at_end, AnswerDeltas& out) {
  const size_t space = space_size(text);
  if (space == text.size() && !at_end && space <= kMaxSpaceBytes) return 0;
  CallHeader header = header_at(text, Place::kStart);
  if (header.match == Match::kMore && !at_end) return 0;
  at_start_ = false;
  if (header.match == Match::kYes) return start_call(std::move(header), text, out);
  return read_text(text, at_end, out);
}

size_t ToolCallParser::read_text(std::string_view text, bool at_end, AnswerDeltas& out) {
  const MarkerHit hit = find_marker(text, markers_);
  if (hit.position > 0) {
    emit_text(text.substr(0, hit.position), out);
    return hit.position;
  }
  if (text.empty() || (hit.marker.empty() && !at_end)) return 0;
  if (!hit.marker.empty()) {
    CallHeader header = read_marked_header(text);
    if (header.match == Match::kMore && !at_end) return 0;
    if (header.match == Match::kYes) return start_call(std::move(header), text, out);
  }
  const size_t size = hit.marker.empty() ? text.size() : hit.marker.size();
  emit_text(text.substr(0, size), out);
  return size;
}

size_t ToolCallParser::start_call(CallHeader header, std::string_view text, AnswerDeltas& out) {
  const size_t index = num_calls_++;
  if (options_.keep_call_text) {
    call_text_ = space_;
    call_text_ += text.substr(0, header.size);
  }
  space_.clear();
  long_space_ = false;
  at_start_ = false;
  begin_call(header, text);
  if (!dropped()) {
    if (header.id.empty()) header.id = options_.make_id(header.name, index);
    out.emplace_back(ToolCallBegin{index, std::move(header.id), std::move(header.name)});
  }
  state_ = State::kCall;
  if (header.arguments) {
    emit_arguments(*header.arguments, out);
    end_call(/*complete=*/true, out);
  }
  return header.size;
}

size_t ToolCallParser::read_after_call(std::string_view text, bool at_end, AnswerDeltas& out) {
  const Closing closing = read_closing(text);
  if (closing.match == Match::kYes) return closing.size;
  if (closing.match == Match::kMore) return at_end ? text.size() : 0;
  CallHeader header = header_at(text, Place::kNext);
  if (header.match == Match::kMore && !at_end) return 0;
  if (header.match == Match::kYes) return start_call(std::move(header), text, out);
  state_ = State::kText;
  return 0;
}

// White space waits for what comes after it: a call swallows it.
void ToolCallParser::emit_text(std::string_view text, AnswerDeltas& out) {
  const size_t end = text.find_last_not_of(" \t\n\r") + 1;  // 0 for a blank text
  if (end > 0) {
    add_content(space_, out);
    add_content(text.substr(0, end), out);
    space_.clear();
    long_space_ = false;
    blank_since_call_ = false;
  }
  space_ += text.substr(end);
  if (!long_space_ && space_.size() <= kMaxSpaceBytes) return;
  add_content(space_, out);
  space_.clear();
  long_space_ = true;
  blank_since_call_ = false;
}

void ToolCallParser::emit_arguments(std::string_view json, AnswerDeltas& out) {
  if (!dropped()) add_arguments(num_calls_ - 1, json, out);
}

void ToolCallParser::emit_last_arguments(std::string_view json, AnswerDeltas& out) {
  if (!dropped()) out.emplace_back(ArgumentsDelta{num_calls_ - 1, std::string(json)});
}

void ToolCallParser::end_call(bool complete, AnswerDeltas& out) {
  ToolCallEnd end{.index = num_calls_ - 1, .complete = complete, .text = {}};
  if (!complete) end.text = std::move(call_text_);
  call_text_.clear();
  if (!dropped()) out.emplace_back(std::move(end));
  state_ = complete ? State::kAfterCall : State::kText;
  blank_since_call_ = complete;
}

}  // namespace heddle::parsers
