// SPDX-License-Identifier: Apache-2.0
// CachedSequence: what the cache keeps for a running sequence beside its pages and its working
// slot, which are in request::Sequence. Plain data that PrefixCache fills and empties; empty while
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
    bool middle = false;  // not requested; kept in case another sequence forks
  };

  PrefixLock path;             // KV of the deepest node the sequence shares or published
  PrefixLock source;           // the state it starts from, until its first step is done
  bool has_published = false;  // `path` holds its own tokens, to the end of its edge
  int64_t shared_tokens = 0;   // the tree owns the pages of these tokens
  int64_t kv_tokens = 0;       // tokens with KV rows
  int64_t dead_pages = 0;      // leading pages, released because no layer reads them any more
  std::vector<PinnedWindow> windows;   // by page table, from table 1 on
  std::vector<Pending> pending;        // ascending
  std::vector<int64_t> forks;          // positions at which other sequences fork off
  PrefixNode* decode_node = nullptr;   // the last decode snapshot
  bool publishes_only_at_end = false;  // nothing enters the tree before the end
  bool publishes_prefix = false;       // models without state: a prefill step is in flight

  uint64_t began = 0;  // on the tree's clock

  // Work at the head of the first step.
  bool starts = false;
  int32_t copy_state_from = 0;
  ops::IdCopy copy_page;
  int32_t hidden_slot = 0;
};

}  // namespace heddle::cache
