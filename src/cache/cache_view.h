// SPDX-License-Identifier: Apache-2.0
// CacheView: copies what people look at out of the cache: pools, tree and the reuse of a prompt
// (heddle/inspection.h).
//
// Threading: as the cache: confined to the engine thread.
// Cost:      O(nodes shown and their children, log of that each), where of very wide trees 10,000
//            roots and children are looked at; with a prompt also one match.
#pragma once

#include <heddle/inspection.h>

#include "cache/prefix_cache.h"
#include "request/sequence.h"

namespace heddle::cache {

// Fills the pools, the tree and, with a prompt, its reuse. `prompt` is a sequence that was not
// submitted; null: none.
void view_cache(const PrefixCache& cache, const InspectionOptions& options,
                const request::Sequence* prompt, Inspection& inspection);

}  // namespace heddle::cache
