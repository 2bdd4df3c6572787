// SPDX-License-Identifier: Apache-2.0
// The options of the prefix cache and of its tree.
#pragma once

#include <cstdint>

#include <heddle/options.h>

#include "cache/pool_sizes.h"
#include "request/prefill_flops.h"

namespace heddle::cache {

struct PrefixTreeOptions {
  bool needs_state = true;  // the model has recurrent states; false: sequences resume at page
                            // boundaries, states do not exist
  EvictionPolicy eviction = EvictionPolicy::kFlops;
  request::PrefillFlops flops;  // cost of computing the served model's tokens; must be set for
                                // EvictionPolicy::kFlops (checked)

  int64_t expected_states = 0;  // states that fit in the memory at once; 0: as many as there are
                                // slots. Decides how fast uses fade

  int64_t page_bytes = 1;
  int64_t state_bytes = 1;
};

struct PrefixCacheOptions {
  PoolSizes pools;  // with states, every running sequence has a working slot

  bool enabled = true;  // false: nothing stays cached after the sequence that computed it has ended
  SnapshotPolicy policy = SnapshotPolicy::kMulti;
  int64_t grid = 64;
  int64_t decode_interval = 256;
  EvictionPolicy eviction = EvictionPolicy::kFlops;
};

}  // namespace heddle::cache
