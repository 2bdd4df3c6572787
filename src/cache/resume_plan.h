// SPDX-License-Identifier: Apache-2.0
// ResumePlan: from what the tree knows of a sequence to where it resumes, which pages it shares and
// what it computes again. Pure functions, so that every rule is a unit test.
//
// Threading: pure. Cost: O(1).
#pragma once

#include <cstdint>

#include "cache/cache_options.h"
#include "cache/prefix_tree.h"
#include "request/sequence.h"

namespace heddle::cache {

struct ResumePlan {
  // The tokens end where those of an earlier sequence ended, whose hidden vector is kept: nothing
  // is computed before the next token is drawn.
  bool repeats = false;
  PrefixNode* node = nullptr;  // whose state the sequence starts from; null: none
  int64_t start = 0;           // tokens that are reused

  // Tokens whose pages are shared with the tree: whole pages, or more than `start` where the KV of
  // a fork is known beyond the state.
  int64_t shared = 0;

  // Where the prompt diverges from cached tokens, if a similar sequence could resume there.
  int64_t fork = 0;

  int64_t own_pages = 0;  // pages that the sequence must own to hold all of its tokens
};

[[nodiscard]] ResumePlan plan_resume(const PrefixCacheOptions& options,
                                     const request::Sequence& sequence, const PrefixMatch& match);

// Number of matching tokens with KV rows that the sequence may use: not those that it computes for
// its scores.
[[nodiscard]] int64_t known_of(const request::Sequence& sequence, const PrefixMatch& match);

// Counts, by cause, the tokens that the sequence computes although they were computed before.
// `usable_once`: how deep it could resume if nothing had been evicted.
[[nodiscard]] CacheLoss explain_loss(const PrefixCacheOptions& options,
                                     const request::Sequence& sequence, const PrefixMatch& match,
                                     int64_t usable_once);

}  // namespace heddle::cache
