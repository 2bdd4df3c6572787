// SPDX-License-Identifier: Apache-2.0
// LiveRequest: a request that the engine has accepted and not yet answered to the end. It joins the
// sequence with the detokenizer and the stop conditions.
//
// Threading: created by the submitting thread; confined to the engine thread once in the inbox.
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
  // `tokenizer` is null for engines without one: the request gets tokens and no text.
  LiveRequest(Request request, uint64_t seed, std::span<const TokenId> eos_token_ids,
              const tokenizer::Tokenizer* tokenizer, Engine::EventCallback callback)
      : sequence(0, std::move(request), seed, eos_token_ids),
        on_event(std::move(callback)),
        matcher_(sequence.request.stop) {
    if (tokenizer != nullptr) {
      // The output continues the prompt, so its first word keeps its leading space.
      detokenizer_.emplace(
          *tokenizer,
          tokenizer::DetokenizeOptions{.skip_special_tokens = sequence.request.skip_special_tokens,
                                       .at_text_start = false});
    }
  }

  // Processes the next token of the output. The sequence has it already and may have more, unless a
  // constraint is set. Appends to `text` the text that is final. Returns why the request ends with
  // this token, or nullopt. The tests are made in the order length, token, text, constraint, with
  // two exceptions at the length limit: a stop text that the last token completes still counts,
  // because clients must not see it, and so does an answer that the last token completes by its
  // constraint.
  std::optional<Finish> take_token(TokenId token, int64_t context_length, std::string& text);

  // Appends the text that was held back, for requests that take_token() did not end.
  void flush(std::string& text);

  request::Sequence sequence;
  Engine::EventCallback on_event;
  std::vector<TokenLogprob> prompt_logprobs;  // held until the first event, which carries them
  int64_t call = 0;                           // sequence id of the first request of the same call
  int64_t num_delivered = 0;                  // number of output tokens processed by take_token()
  // When the last token was delivered, on the engine's clock; negative: no token yet.
  double last_token_seconds = -1;

 private:
  [[nodiscard]] Finish stopped_by_text(int match) const;

  // Whether the constraint allows no token after the last delivered one.
  [[nodiscard]] bool is_complete() const;

  // Detokenizes a token, appends its final text, and returns the result of StopTextMatcher::push().
  int append_text(TokenId token, bool may_stop, std::string& text);

  std::optional<tokenizer::IncrementalDetokenizer> detokenizer_;
  request::StopTextMatcher matcher_;
};

}  // namespace heddle::engine
