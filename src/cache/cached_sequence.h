// SPDX-License-Identifier: Apache-2.0
// CachedSequence: the cache's data about a running sequence, besides its pages and its working
// slot, which are in request::Sequence. Plain data that PrefixCache fills and clears; empty while
// the sequence waits.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/prefix_tree.h"
#include "cache/window_pages.h"
#include "request/batch_plan.h"

namespace heddle::cache {

struct CachedSequence {
  // A snapshot that a step in flight writes.
  struct Pending {
    int64_t tokens = 0;
    int32_t slot = 0;
    bool keeps_hidden = false;
    bool decode = false;
    bool middle = false;  // taken without a request, in case another sequence forks there
  };

  PrefixLock path;             // lock on the KV of the deepest node that the sequence shares or
                               // published
  PrefixLock source;           // lock on the state from which it starts, until its first step is
                               // done
  bool has_published = false;  // the node of `path` was published by this sequence, and the edge
                               // ends there
  int64_t shared_tokens = 0;   // the tree owns the pages of the first `shared_tokens` tokens
  int64_t kv_tokens = 0;       // tokens whose KV rows existed at admission
  int64_t dead_pages = 0;      // first pages of the list that were released because no layer reads
                               // them any more
  std::vector<PinnedWindow> windows;   // its pages in each table with a window, from page table 1
                                       // on
  std::vector<Pending> pending;        // snapshots that steps in flight write, ascending by their
                                       // tokens
  std::vector<int64_t> forks;          // token counts at which other sequences fork off
  PrefixNode* decode_node = nullptr;   // node of the last decode snapshot
  bool publishes_only_at_end = false;  // publishes nothing before the sequence has ended
  bool publishes_prefix = false;       // for models without state: a prefill step to be published
                                       // is in flight

  uint64_t began = 0;  // tick of the tree's clock at admission

  // Moves for the head of the first step.
  bool starts = false;
  int32_t copy_state_from = 0;
  ops::IdCopy copy_page;
  int32_t hidden_slot = 0;
};

}  // namespace heddle::cache
