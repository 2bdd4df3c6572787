// SPDX-License-Identifier: Apache-2.0
#include "server/delta_adapter.h"

#include <utility>
#include <variant>

namespace heddle::server {

namespace {

// With a seed of its own for the ids of calls.
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
  if (options_.streaming.stream) deliver(delta, out);
  answer_.add(std::move(delta));
}

void DeltaAdapter::end(std::string& out) { finish(out); }

}  // namespace heddle::server
