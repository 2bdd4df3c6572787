// SPDX-License-Identifier: Apache-2.0
// The options of the prefix cache and of its tree.
#pragma once

#include <cstdint>

#include <heddle/options.h>

#include "cache/pool_sizes.h"
#include "request/prefill_flops.h"

namespace heddle::cache {

struct PrefixTreeOptions {
  bool needs_state = true;  // false: sequences resume at page boundaries, states do not exist
  EvictionPolicy eviction = EvictionPolicy::kFlops;
  request::PrefillFlops flops;  // cost of the served model; EvictionPolicy::kFlops needs them
                                // (checked)

  int64_t expected_states = 0;  // that fit at once; 0: every slot. How fast uses fade depends on it

  int64_t page_bytes = 1;
  int64_t state_bytes = 1;
};

struct PrefixCacheOptions {
  PoolSizes pools;  // with states, every running sequence has a working slot

  bool enabled = true;  // false: nothing is kept beyond the sequence that computed it
  SnapshotPolicy policy = SnapshotPolicy::kMulti;
  int64_t grid = 64;
  int64_t decode_interval = 256;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
};

}  // namespace heddle::cache
