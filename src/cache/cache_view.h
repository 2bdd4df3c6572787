// SPDX-License-Identifier: Apache-2.0
// CacheView: copies the state of the cache for display: its pools, its tree and how much of a
// prompt it could reuse (heddle/inspection.h).
//
// Threading: as the cache: confined to the engine thread.
// Cost:      O(n log n) for the nodes shown and their children; of very wide trees it examines at
//            most 10,000 roots and children. With a prompt also one match.
#pragma once

#include <heddle/inspection.h>

#include "cache/prefix_cache.h"
#include "request/sequence.h"

namespace heddle::cache {

// Fills in the pools, the tree and, with a prompt, its reuse. `prompt` is a sequence that was not
// submitted; null: no prompt.
void view_cache(const PrefixCache& cache, const InspectionOptions& options,
                const request::Sequence* prompt, Inspection& inspection);

}  // namespace heddle::cache
