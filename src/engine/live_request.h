// SPDX-License-Identifier: Apache-2.0
// LiveRequest: a request that the engine has accepted and not yet answered to the end. It joins the
// sequence with the detokenizer and the stop conditions.
//
// Threading: made by the submitting thread, from the inbox on confined to the engine thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <heddle/engine.h>

#include "request/sequence.h"
#include "request/stop_text_matcher.h"
#include "tokenizer/detokenizer.h"

namespace heddle::engine {

class LiveRequest {
 public:
  // `tokenizer` is null for engines without one: tokens only.
  LiveRequest(Request request, uint64_t seed, std::span<const TokenId> eos_token_ids,
              const tokenizer::Tokenizer* tokenizer, Engine::EventCallback callback)
      : sequence(0, std::move(request), seed, eos_token_ids),
        on_event(std::move(callback)),
        matcher_(sequence.request.stop) {
    if (tokenizer != nullptr) {
      // Output continues the prompt: its first word keeps its space.
      detokenizer_.emplace(
          *tokenizer,
          tokenizer::DetokenizeOptions{.skip_special_tokens = sequence.request.skip_special_tokens,
                                       .at_text_start = false});
    }
  }

  // Takes the next token of the output, which the sequence has already; it may have more, unless a
  // constraint holds it. Appends the text that is certain to `text` and returns why the request
  // ends here, if it does. The order of the tests: length, token, text, constraint; but a stop text
  // that the last token completes counts, because clients must not see it, and so does an answer
  // that the last token completes by its constraint.
  std::optional<Finish> take_token(TokenId token, int64_t context_length, std::string& text);

  // Appends the text that was held back; for requests that take_token() did not end.
  void flush(std::string& text);

  request::Sequence sequence;
  Engine::EventCallback on_event;
  std::vector<TokenLogprob> prompt_logprobs;  // kept until the first event, which carries them
  int64_t call = 0;                           // sequence id of the call's first request
  int64_t num_delivered = 0;                  // output tokens returned by take_token()
  double last_token_seconds = -1;             // engine clock; negative: no token yet

 private:
  [[nodiscard]] Finish stopped_by_text(int match) const;

  // The constraint lets nothing follow the token that was delivered last.
  [[nodiscard]] bool is_complete() const;

  // Returns what StopTextMatcher::push() does.
  int append_text(TokenId token, bool may_stop, std::string& text);

  std::optional<tokenizer::IncrementalDetokenizer> detokenizer_;
  request::StopTextMatcher matcher_;
};

}  // namespace heddle::engine
