// SPDX-License-Identifier: Apache-2.0
#include "parsers/harmony_parser.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "parsers/marker_search.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>";

// A header's beginnings; the first message's role stands in the prompt.
constexpr std::string_view kHeaderBegins[] = {kStart, kChannel, " to=", kMessage};

constexpr std::string_view kWordEnds = " <\t\n\r";
constexpr size_t kMaxRecipientBytes = 512;  // leaves room for the rest of a header

std::string_view word_after(std::string_view text, std::string_view mark) {
  const size_t begin = text.find(mark);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = text.substr(begin + mark.size());
  return rest.substr(0, std::min(rest.find_first_of(kWordEnds), rest.size()));
}

}  // namespace

HarmonyParser::HarmonyParser(AnswerParserOptions options) : options_(std::move(options)) {}

bool HarmonyParser::takes_name(std::string_view tool) {
  return !tool.empty() && tool != "assistant" && tool.size() <= kMaxRecipientBytes &&
         tool.find_first_of(kWordEnds) == std::string_view::npos;
}

AnswerParser::Part HarmonyParser::part() const {
  switch (state_) {
    case State::kFirstHeader:
      return Part::kUndecided;
    case State::kReasoning:
      return Part::kReasoning;
    case State::kHeader:
    case State::kContent:
    case State::kCall:
    case State::kAfterCall:
      break;
  }
  return Part::kContent;
}

bool HarmonyParser::reads_calls() const {
  return options_.tool_calls == ToolCallFormat::kHarmony && options_.tools != nullptr &&
         !options_.tools->empty();
}

void HarmonyParser::push(std::string_view text, AnswerDeltas& out) {
  unread_.append(text);
  run(/*at_end=*/false, out);
}

void HarmonyParser::finish(AnswerDeltas& out) {
  run(/*at_end=*/true, out);
  if (state_ != State::kCall) return;
  if (options_.keep_call_text) call_text_ += unread_.text();
  end_call(/*complete=*/false, out);
}

void HarmonyParser::run(bool at_end, AnswerDeltas& out) {
  unread_.read(state_, [&](std::string_view text) { return step(text, at_end, out); });
}

size_t HarmonyParser::step(std::string_view text, bool at_end, AnswerDeltas& out) {
  switch (state_) {
    case State::kFirstHeader:
    case State::kHeader:
      return read_header(text, at_end, out);
    case State::kReasoning:
    case State::kContent:
      return read_body(text, at_end, out);
    case State::kAfterCall:
      if (const size_t space = space_size(text); space > 0) return space;
      if (!text.empty()) state_ = State::kContent;
      return 0;
    case State::kCall:
      return read_call(text, out);
  }
  return 0;
}

// A header has no text of its own: the marks of one that the answer's end cuts off are dropped.
size_t HarmonyParser::read_header(std::string_view text, bool at_end, AnswerDeltas& out) {
  const size_t space = space_size(text);
  std::string_view found;
  const Match match = begins_with(text, kHeaderBegins, &found);
  const Match later = begins_with(text.substr(space), kHeaderBegins, &found);
  if (match == Match::kNo && later == Match::kNo) {
    state_ = State::kContent;
    return 0;
  }
  const std::string_view seen = text.substr(0, kMaxHarmonyHeaderBytes);
  const size_t end = seen.find(kMessage);
  if (end == std::string_view::npos) {
    const bool is_short = text.size() < kMaxHarmonyHeaderBytes;
    if (is_short && !at_end) return 0;
    if (is_short && text.substr(space).starts_with("<|")) return text.size();
    state_ = State::kContent;
    if (is_short) return 0;
    // The mark, too, is content, or the same header would begin there again.
    const size_t used = space > 0 && match != Match::kYes ? space : found.size();
    emit(text.substr(0, used), out);
    return used;
  }
  call_text_ = options_.keep_call_text ? text.substr(0, end + kMessage.size()) : "";
  begin_message(text.substr(0, end), out);
  return end + kMessage.size();
}

void HarmonyParser::begin_message(std::string_view header, AnswerDeltas& out) {
  const std::string_view channel = word_after(header, kChannel);
  std::string_view recipient = word_after(header, "to=");
  if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
  if (!recipient.empty() && recipient != "assistant" && reads_calls()) {
    const size_t index = num_calls_++;
    if (!dropped()) {
      out.emplace_back(ToolCallBegin{
          index, make_call_id(ToolCallFormat::kHarmony, options_.id_seed, recipient, index),
          std::string(recipient)});
    }
    arguments_ = {};
    state_ = State::kCall;
  } else {
    state_ = channel == "analysis" ? State::kReasoning : State::kContent;
  }
}

size_t HarmonyParser::read_body(std::string_view text, bool at_end, AnswerDeltas& out) {
  const MarkerHit hit = find_marker(text, kMessageEnds);
  if (hit.position > 0) {
    emit(text.substr(0, hit.position), out);
    return hit.position;
  }
  if (text.empty() || (hit.marker.empty() && !at_end)) return 0;
  if (hit.marker.empty()) {
    emit(text, out);
    return text.size();
  }
  state_ = State::kHeader;
  return hit.marker == kStart || hit.marker == kChannel ? 0 : hit.marker.size();
}

void HarmonyParser::emit(std::string_view text, AnswerDeltas& out) {
  if (state_ == State::kReasoning && options_.separate_reasoning) {
    add_reasoning(text, out);
  } else {
    add_content(text, out);
  }
}

size_t HarmonyParser::read_call(std::string_view text, AnswerDeltas& out) {
  size_t used = 0;
  std::string json;
  const JsonScanner::State state = arguments_.scan(text, used, &json);
  if (!dropped()) add_arguments(num_calls_ - 1, json, out);
  if (options_.keep_call_text) call_text_ += text.substr(0, used);
  if (state == JsonScanner::State::kDone) {
    end_call(/*complete=*/true, out);
  } else if (state == JsonScanner::State::kError) {
    end_call(/*complete=*/false, out);
  }
  return used;
}

void HarmonyParser::end_call(bool complete, AnswerDeltas& out) {
  ToolCallEnd end{.index = num_calls_ - 1, .complete = complete, .text = {}};
  if (!complete) end.text = std::move(call_text_);
  call_text_.clear();
  if (!dropped()) out.emplace_back(std::move(end));
  state_ = complete ? State::kAfterCall : State::kContent;
}

}  // namespace heddle::parsers
