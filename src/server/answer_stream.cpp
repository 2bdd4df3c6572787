// SPDX-License-Identifier: Apache-2.0
#include "server/answer_stream.h"

#include <algorithm>
#include <utility>

#include "server/answer_log.h"
#include "server/text_codec.h"

namespace heddle::server {

using parsers::AnswerDelta;
using parsers::AnswerDeltas;
using parsers::AnswerParser;
using parsers::ReasoningDelta;
using parsers::ToolCallEnd;

AnswerFormats find_answer_formats(const TextCodec& codec,
                                  std::optional<parsers::ToolCallFormat> tool_calls,
                                  std::optional<parsers::ReasoningFormat> reasoning) {
  const std::string source = codec.chat_template_source();
  AnswerFormats formats{
      .tool_calls = tool_calls ? *tool_calls : parsers::detect_tool_call_format(source),
      .reasoning = reasoning ? *reasoning : parsers::detect_reasoning_format(source),
      .reasoning_end = std::nullopt};
  const std::string_view close = parsers::tags_of(formats.reasoning).close;
  if (close.empty()) return formats;
  const auto ids = codec.encode(close, /*add_special_tokens=*/false);
  if (ids.ok() && ids->size() == 1) formats.reasoning_end = ids->front();
  return formats;
}

AnswerStream::AnswerStream(AnswerStreamOptions options)
    : parser_(parsers::make_answer_parser(std::move(options.parser))),
      reasoning_end_(options.reasoning_end),
      stream_reasoning_(options.stream_reasoning),
      has_calls_alone_(options.has_calls_alone) {}

AnswerDeltas AnswerStream::add(const RequestEvent& event) {
  AnswerDeltas deltas;
  const AnswerParser::Part before = parser_->part();
  parser_->push(event.text, deltas);
  if (event.finish) parser_->finish(deltas);
  if (has_calls_alone_) {
    std::erase_if(deltas, [](const AnswerDelta& delta) {
      return std::holds_alternative<parsers::ContentDelta>(delta);
    });
  }
  bool reasoned = false;
  for (const AnswerDelta& delta : deltas) {
    reasoned = reasoned || std::holds_alternative<ReasoningDelta>(delta);
    const auto* const end = std::get_if<ToolCallEnd>(&delta);
    called_ = called_ || (end != nullptr && end->complete);
  }
  count(event, before, reasoned);
  if (!stream_reasoning_) gather_reasoning(event.finish.has_value(), deltas);
  return deltas;
}

void AnswerStream::count(const RequestEvent& event, AnswerParser::Part before, bool reasoned) {
  if (reasoning_ended_) return;
  using Part = AnswerParser::Part;
  const Part after = parser_->part();
  if (before == Part::kContent && after == Part::kContent && !reasoned) return;
  auto tokens = static_cast<int64_t>(event.tokens.size());
  if (after == Part::kUndecided) {
    undecided_tokens_ += tokens;
    return;
  }
  const auto end =
      reasoning_end_ ? std::ranges::find(event.tokens, *reasoning_end_) : event.tokens.end();
  if (end != event.tokens.end()) {
    tokens = end - event.tokens.begin() + 1;
    reasoning_ended_ = true;
  } else if (before == Part::kUndecided && after == Part::kContent && !reasoned) {
    tokens = 0;  // it did not begin with reasoning
    undecided_tokens_ = 0;
  }
  reasoning_tokens_ += std::exchange(undecided_tokens_, 0) + tokens;
}

// Keeps reasoning until something else follows it.
void AnswerStream::gather_reasoning(bool ended, AnswerDeltas& deltas) {
  AnswerDeltas emitted;
  for (AnswerDelta& delta : deltas) {
    if (auto* const reasoning = std::get_if<ReasoningDelta>(&delta)) {
      reasoning_ += reasoning->text;
      continue;
    }
    parsers::add_reasoning(std::exchange(reasoning_, {}), emitted);
    emitted.push_back(std::move(delta));
  }
  if (ended) parsers::add_reasoning(std::exchange(reasoning_, {}), emitted);
  deltas = std::move(emitted);
}

std::string_view AnswerStream::finish_name(const Finish& finish) const {
  if (finish.reason == FinishReason::kStop && called_) return "tool_calls";
  return server::finish_name(finish.reason);
}

}  // namespace heddle::server
