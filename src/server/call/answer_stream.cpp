// SPDX-License-Identifier: Apache-2.0
#include "server/call/answer_stream.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "server/call/answer_log.h"
#include "server/call/text_codec.h"

namespace heddle::server {

using parsers::AnswerDelta;
using parsers::AnswerDeltas;
using parsers::AnswerParser;
using parsers::ReasoningDelta;
using parsers::TextEnd;
using parsers::ToolCallEnd;

namespace {

// U+FFFD, which the detokenizer writes for bytes that are no complete character.
constexpr std::string_view kBrokenCharacter = "\xEF\xBF\xBD";

}  // namespace

AnswerFormats find_answer_formats(const TextCodec& codec,
                                  std::optional<parsers::ToolCallFormat> tool_calls,
                                  std::optional<parsers::ReasoningFormat> reasoning,
                                  std::string_view family_format) {
  const std::string source = codec.chat_template_source();
  AnswerFormats formats{
      .tool_calls = tool_calls ? *tool_calls : parsers::detect_tool_call_format(source),
      .reasoning = reasoning ? *reasoning : parsers::detect_reasoning_format(source),
      .reasoning_end = std::nullopt};
  if (!tool_calls && formats.tool_calls == parsers::ToolCallFormat::kNone &&
      !family_format.empty()) {
    const auto named = parsers::tool_call_format(family_format);
    HEDDLE_CHECK(named.ok());
    formats.tool_calls = *named;
  }
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
      text_stops_(std::move(options.text_stops)),
      has_calls_alone_(options.has_calls_alone) {}

AnswerDeltas AnswerStream::add(const RequestEvent& event) {
  AnswerDeltas deltas;
  // Processed token by token, so that the count does not depend on how many tokens an event has.
  const std::string_view text = event.text;
  size_t begin = 0;
  const bool is_split = event.text_ends.size() == event.tokens.size();
  for (size_t i = 0; is_split && i + 1 < event.tokens.size(); ++i) {
    const size_t end = std::min<size_t>(event.text_ends[i], text.size());
    read({&event.tokens[i], 1}, text.substr(begin, end - begin), TextEnd::kNone, deltas);
    begin = end;
  }
  const bool is_one = is_split && !event.tokens.empty();
  const std::span<const TokenId> tokens(event.tokens);
  TextEnd end = TextEnd::kNone;
  if (event.finish) end = end_of(*event.finish);
  std::string_view rest = text.substr(begin);
  // An incomplete character at the end is not text: its bytes may begin a special mark.
  const bool may_be_cut_through = end == TextEnd::kCut && !event.finish->matched_text;
  while (may_be_cut_through && rest.ends_with(kBrokenCharacter)) {
    rest.remove_suffix(kBrokenCharacter.size());
  }
  read(is_one ? tokens.last(1) : tokens, rest, end, deltas);
  if (has_calls_alone_) {
    std::erase_if(deltas, [](const AnswerDelta& delta) {
      return std::holds_alternative<parsers::ContentDelta>(delta);
    });
  }
  for (const AnswerDelta& delta : deltas) {
    const auto* const call = std::get_if<ToolCallEnd>(&delta);
    called_ = called_ || (call != nullptr && call->complete);
  }
  if (!stream_reasoning_) gather_reasoning(event.finish.has_value(), deltas);
  return deltas;
}

// How the text ends. A client's stop text may match anywhere, even inside a value, so a call that
// is still open counts as cut off. If the stop text is the mark that ends calls, the call is
// complete.
TextEnd AnswerStream::end_of(const Finish& finish) const {
  if (finish.reason != FinishReason::kStop) return TextEnd::kCut;
  std::optional<std::string_view> stop = finish.matched_text;
  for (const auto& [token, text] : text_stops_) {
    if (!stop && finish.matched_token == token) stop = text;
  }
  return !stop || parser_->is_call_end(*stop) ? TextEnd::kStopped : TextEnd::kCut;
}

// Parses the text of `tokens` and counts the reasoning tokens among them.
void AnswerStream::read(std::span<const TokenId> tokens, std::string_view text, TextEnd end,
                        AnswerDeltas& deltas) {
  const AnswerParser::Part before = parser_->part();
  AnswerDeltas more;
  parser_->push(text, more);
  if (end != TextEnd::kNone) parser_->finish(end, more);
  const bool reasoned = std::ranges::any_of(
      more, [](const AnswerDelta& delta) { return std::holds_alternative<ReasoningDelta>(delta); });
  count(tokens, before, reasoned);
  if (deltas.empty()) {
    deltas = std::move(more);
    return;
  }
  for (AnswerDelta& delta : more) parsers::append(std::move(delta), deltas);
}

void AnswerStream::count(std::span<const TokenId> drawn, AnswerParser::Part before, bool reasoned) {
  if (reasoning_ended_) return;
  using Part = AnswerParser::Part;
  const Part after = parser_->part();
  if (before == Part::kContent && after == Part::kContent && !reasoned) return;
  auto tokens = std::ssize(drawn);
  if (after == Part::kUndecided) {
    undecided_tokens_ += tokens;
    return;
  }
  const auto end = reasoning_end_ ? std::ranges::find(drawn, *reasoning_end_) : drawn.end();
  if (end != drawn.end()) {
    tokens = end - drawn.begin() + 1;
    reasoning_ended_ = true;
  } else if (before == Part::kUndecided && after == Part::kContent && !reasoned) {
    tokens = 0;  // none of these tokens was reasoning
    undecided_tokens_ = 0;
  }
  reasoning_tokens_ += std::exchange(undecided_tokens_, 0) + tokens;
}

// Collects reasoning until something else follows it, and then emits it as one delta.
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
