// SPDX-License-Identifier: Apache-2.0
#include "runner/step/host_draws.h"

namespace heddle::runner {

void HostDraws::draw(const StepSequence& sequence, int64_t position, std::span<const uint32_t> mask,
                     float* logits, request::SampledToken& sampled) {
  const request::BatchSlot& slot = *sequence.slot;
  const Result<TokenId> token =
      sampler_.sample({.logits = {logits, vocab_size_},
                       .params = &slot.start.sampling,
                       .output_tokens = slot.output_tokens,
                       .forbidden_tokens = slot.forbidden_tokens(position),
                       .mask = mask,
                       .seed = slot.start.seed,
                       .position = position,
                       .choice_index = slot.start.choice_index,
                       .top_logprobs = slot.start.top_logprobs,
                       .logprob_tokens = slot.logprob_tokens},
                      slot.start.return_logprobs ? &sampled.logprob : nullptr);
  sampled.token = token.ok() ? *token : 0;
  sampled.error = token.status();
}

void HostDraws::score(const StepSequence& sequence, int64_t position, TokenId token,
                      const float* logits, request::ScoredToken& scored) {
  scored.error = sampler_.score({logits, vocab_size_}, token, position,
                                sequence.slot->start.prompt_top_logprobs,
                                sequence.slot->logprob_tokens, scored.logprob);
}

}  // namespace heddle::runner
