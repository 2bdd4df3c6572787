// SPDX-License-Identifier: Apache-2.0
// check_ownership: checks that running sequences and the tree together own exactly the ids that are
// not free, and that the memory of each sequence agrees with the tokens it has computed. It only
// reads. The numbers of the invariants are those of prefix_tree.h.
#pragma once

#include <span>

#include "cache/cache_options.h"
#include "cache/cache_pools.h"
#include "cache/cached_sequence.h"
#include "cache/prefix_tree.h"
#include "request/sequence.h"

namespace heddle::cache {

struct AdmittedSequence {
  const request::Sequence* sequence = nullptr;
  const CachedSequence* cached = nullptr;
};

// Aborts with the values that disagree. `running` are all sequences that have been admitted and not
// released. Cost: O(ids).
void check_ownership(const PrefixCacheOptions& options, const CachePools& pools,
                     const PrefixTree& tree, std::span<const AdmittedSequence> running);

}  // namespace heddle::cache
