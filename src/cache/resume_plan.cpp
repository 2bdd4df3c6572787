// SPDX-License-Identifier: Apache-2.0
#include "cache/resume_plan.h"

#include <algorithm>

namespace heddle::cache {

ResumePlan plan_resume(const PrefixCacheOptions& options, const request::Sequence& sequence,
                       const PrefixMatch& match) {
  const int64_t page_size = options.pools.page_size;
  ResumePlan plan;
  plan.repeats = match.exact != nullptr && options.pools.keeps_hidden && sequence.wants_tokens();
  plan.node = plan.repeats ? match.exact : match.resume;
  plan.start = plan.repeats ? sequence.num_tokens() : match.usable_tokens;

  // If the whole prompt is known, a similar sequence could resume at most before the last token.
  const int64_t known = std::min(match.kv_tokens, sequence.num_tokens() - 1);
  plan.fork = known - known % options.grid;

  // KV rows after the resume point are shared up to the fork. The snapshot there creates a node,
  // which the sequence locks instead of the whole other branch.
  plan.shared = plan.start - plan.start % page_size;
  if (options.pools.has_states() && chunks_on_grid(options.policy)) {
    plan.shared = std::max(plan.shared, plan.fork);
  }
  plan.own_pages = (sequence.num_tokens() + page_size - 1) / page_size - plan.shared / page_size;
  return plan;
}

int64_t known_of(const request::Sequence& sequence, const PrefixMatch& match) {
  return sequence.wants_scores() ? std::min(match.kv_tokens, sequence.max_cached_tokens())
                                 : match.kv_tokens;
}

CacheLoss explain_loss(const PrefixCacheOptions& options, const request::Sequence& sequence,
                       const PrefixMatch& match, int64_t usable_once) {
  const int64_t most = sequence.max_cached_tokens();
  const int64_t grid = !options.pools.has_states()      ? options.pools.page_size
                       : chunks_on_grid(options.policy) ? options.grid
                                                        : 1;
  const int64_t known = std::min(match.kv_tokens, most);
  const int64_t on_grid = known - known % grid;
  return {.eviction = usable_once - match.usable_tokens,
          .missing_state = std::max<int64_t>(on_grid - usable_once, 0),
          .grid = std::max<int64_t>(known - std::max(usable_once, on_grid), 0),
          .last_token = known_of(sequence, match) > most ? 1 : 0};
}

}  // namespace heddle::cache
