// SPDX-License-Identifier: Apache-2.0
#include "server/api/openai/delta_adapter.h"

#include <utility>
#include <variant>

namespace heddle::server {

namespace {

// The options, with a new seed for the ids of calls.
AnswerStreamOptions stream_options_of(const ChatAnswerOptions& options) {
  AnswerStreamOptions stream = options.stream;
  stream.parser.id_seed = options.id;
  return stream;
}

}  // namespace

DeltaAdapter::DeltaAdapter(ChatAnswerOptions options)
    : options_(std::move(options)), stream_(stream_options_of(options_)) {}

void DeltaAdapter::event(size_t, const RequestEvent& event, std::string& out) {
  parsers::AnswerDeltas deltas = stream_.add(event);
  log_.add(event);
  log_.counts.reasoning_tokens = stream_.reasoning_tokens();
  LogprobLog waiting = std::exchange(log_.logprobs, {});
  log_.clear();
  first_token_seconds_ = event.first_token_seconds;
  if (options_.streaming.stream && !std::exchange(begun_, true)) begin(out);
  bool is_all_content = true;
  for (parsers::AnswerDelta& delta : deltas) {
    if (std::holds_alternative<parsers::ContentDelta>(delta)) {
      content_logprobs_.append(waiting);
      waiting.clear();
    } else {
      is_all_content = false;
    }
    add(std::move(delta), out);
  }
  if (is_all_content) log_.logprobs = std::move(waiting);
}

void DeltaAdapter::add(parsers::AnswerDelta delta, std::string& out) {
  const auto* const end = std::get_if<parsers::ToolCallEnd>(&delta);
  if (end != nullptr && end->complete) called_ = true;
  if (options_.streaming.stream) {
    deliver(delta, out);
  } else {
    add_part(std::move(delta));
  }
}

void DeltaAdapter::add_text(AnswerPart::Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().kind != kind) parts_.push_back({.kind = kind});
  parts_.back().text += text;
  parts_.back().logprobs_end = content_logprobs_.size();
}

void DeltaAdapter::add_part(parsers::AnswerDelta delta) {
  if (const auto* const more = std::get_if<parsers::ReasoningDelta>(&delta)) {
    add_text(AnswerPart::Kind::kReasoning, more->text);
  } else if (const auto* const text = std::get_if<parsers::ContentDelta>(&delta)) {
    add_text(AnswerPart::Kind::kContent, text->text);
  } else if (auto* const begin = std::get_if<parsers::ToolCallBegin>(&delta)) {
    parts_.push_back(
        {.kind = AnswerPart::Kind::kCall,
         .call = {.id = std::move(begin->id), .name = std::move(begin->name), .arguments = {}}});
  } else if (const auto* const arguments = std::get_if<parsers::ArgumentsDelta>(&delta)) {
    parts_.back().call.arguments += arguments->json;
  } else if (const auto& end = std::get<parsers::ToolCallEnd>(delta); !end.complete) {
    if (end.cut) {
      parts_.back().call.complete = false;
      return;
    }
    parts_.pop_back();
    add_text(AnswerPart::Kind::kContent, end.text);
  }
}

void DeltaAdapter::end(std::string& out) { finish(out); }

}  // namespace heddle::server
