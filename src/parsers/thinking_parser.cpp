// SPDX-License-Identifier: Apache-2.0
#include "parsers/thinking_parser.h"

#include <algorithm>
#include <utility>

#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

constexpr size_t kMaxSpaceBeforeTag = 64;

}  // namespace

ThinkingParser::ThinkingParser(const AnswerParserOptions& options,
                               std::unique_ptr<ToolCallParser> calls)
    : tags_(tags_of(options.reasoning)),
      separate_(options.separate_reasoning),
      calls_(std::move(calls)),
      state_(tags_.open.empty() ? State::kContent : State::kStart),
      inside_(options.starts_in_reasoning) {
  marks_.push_back(tags_.close);
  if (calls_ != nullptr) {
    marks_.insert(marks_.end(), calls_->markers().begin(), calls_->markers().end());
  }
}

AnswerParser::Part ThinkingParser::part() const {
  switch (state_) {
    case State::kStart:
      return inside_ ? Part::kReasoning : Part::kUndecided;
    case State::kAfterOpen:
    case State::kReasoning:
      return Part::kReasoning;
    case State::kAfterClose:
    case State::kContent:
      break;
  }
  return Part::kContent;
}

void ThinkingParser::push(std::string_view text, AnswerDeltas& out) {
  unread_.append(text);
  run(/*at_end=*/false, out);
}

void ThinkingParser::finish(AnswerDeltas& out) {
  run(/*at_end=*/true, out);
  if (calls_ != nullptr) calls_->finish(out);
}

void ThinkingParser::run(bool at_end, AnswerDeltas& out) {
  unread_.read(state_, [&](std::string_view text) { return step(text, at_end, out); });
}

size_t ThinkingParser::step(std::string_view text, bool at_end, AnswerDeltas& out) {
  switch (state_) {
    case State::kStart:
      return read_start(text, at_end, out);
    case State::kAfterOpen:
      return skip_newlines(text, State::kStart, out);
    case State::kReasoning:
      return read_reasoning(text, at_end, out);
    case State::kAfterClose:
      return skip_newlines(text, State::kContent, out);
    case State::kContent:
      if (calls_ != nullptr) {
        calls_->push(text, out);
      } else {
        add_content(text, out);
      }
      return text.size();
  }
  return 0;
}

size_t ThinkingParser::read_start(std::string_view text, bool at_end, AnswerDeltas& out) {
  const std::string_view open[] = {tags_.open};
  const size_t space = std::min(space_size(text), kMaxSpaceBeforeTag + 1);
  std::string_view found;
  const Match match =
      space > kMaxSpaceBeforeTag ? Match::kNo : begins_with(text.substr(space), open, &found);
  if (match == Match::kMore && !at_end) return 0;
  if (match == Match::kYes) {
    emit_tag(text.substr(0, space + found.size()), out);
    inside_ = true;
    state_ = State::kAfterOpen;
    return space + found.size();
  }
  state_ = inside_ ? State::kReasoning : State::kContent;
  return 0;
}

size_t ThinkingParser::skip_newlines(std::string_view text, State next, AnswerDeltas& out) {
  const size_t size = std::min(text.find_first_not_of("\n\r"), text.size());
  emit_tag(text.substr(0, size), out);
  if (size < text.size()) state_ = next;
  return size;
}

size_t ThinkingParser::read_reasoning(std::string_view text, bool at_end, AnswerDeltas& out) {
  const MarkerHit hit = find_marker(text, marks_);
  if (hit.position > 0) {
    emit_reasoning(text.substr(0, hit.position), out);
    return hit.position;
  }
  if (text.empty() || (hit.marker.empty() && !at_end)) return 0;
  if (hit.marker == tags_.close) {
    emit_tag(hit.marker, out);
    state_ = State::kAfterClose;
    return hit.marker.size();
  }
  if (!hit.marker.empty()) {
    const CallHeader header = calls_->read_marked_header(text);
    if (header.match == Match::kMore && !at_end) return 0;
    if (header.match == Match::kYes) {
      state_ = State::kContent;
      return 0;
    }
  }
  const size_t size = hit.marker.empty() ? text.size() : hit.marker.size();
  emit_reasoning(text.substr(0, size), out);
  return size;
}

void ThinkingParser::emit_reasoning(std::string_view text, AnswerDeltas& out) const {
  if (separate_) {
    add_reasoning(text, out);
  } else {
    add_content(text, out);
  }
}

void ThinkingParser::emit_tag(std::string_view text, AnswerDeltas& out) const {
  if (!separate_) add_content(text, out);
}

}  // namespace heddle::parsers
