// SPDX-License-Identifier: Apache-2.0
// ResumePlan: computes from a cache match where a sequence resumes, which pages it shares and which
// tokens it computes again. Pure functions, so that every rule is a unit test.
//
// Threading: pure. Cost: O(1).
#pragma once

#include <cstdint>

#include "cache/cache_options.h"
#include "cache/prefix_tree.h"
#include "request/sequence.h"

namespace heddle::cache {

struct ResumePlan {
  // The tokens end where those of an earlier sequence ended, and that one's hidden vector is kept:
  // the next token is drawn without computation.
  bool repeats = false;
  PrefixNode* node = nullptr;  // node whose state the sequence starts from; null: it starts before
                               // the first token
  int64_t start = 0;           // number of tokens that are reused

  // Number of tokens whose pages are shared with the tree: whole pages; more than `start` if the KV
  // up to a fork is known although no state is.
  int64_t shared = 0;

  // Token count at which the prompt leaves the cached tokens, rounded down to the grid, where a
  // snapshot would let a similar sequence resume.
  int64_t fork = 0;

  int64_t own_pages = 0;  // pages that the sequence must own to store all of its tokens
};

[[nodiscard]] ResumePlan plan_resume(const PrefixCacheOptions& options,
                                     const request::Sequence& sequence, const PrefixMatch& match);

// Number of matching tokens whose KV rows the sequence may use. Tokens that it must compute to
// score them do not count.
[[nodiscard]] int64_t known_of(const request::Sequence& sequence, const PrefixMatch& match);

// Counts, by cause, the tokens that the sequence computes although they were computed before.
// `usable_once`: how many tokens it could reuse if nothing had been evicted.
[[nodiscard]] CacheLoss explain_loss(const PrefixCacheOptions& options,
                                     const request::Sequence& sequence, const PrefixMatch& match,
                                     int64_t usable_once);

}  // namespace heddle::cache
