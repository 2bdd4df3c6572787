// SPDX-License-Identifier: Apache-2.0
// PrefixTreeOptions: what the prefix tree has to know about the model and the pools.
#pragma once

#include <cstdint>

namespace heddle::cache {

enum class EvictionPolicy {
  kFlops,  // by the work a state saves, per byte it takes, and how lately it was of use
  kLru,
};

struct PrefixTreeOptions {
  bool needs_state = true;  // false: sequences resume at page boundaries, states do not exist
  EvictionPolicy eviction = EvictionPolicy::kFlops;

  // Work to compute a prefix of L tokens: flops_per_token * L + flops_per_pair * L * L.
  double flops_per_token = 6e9;
  double flops_per_pair = 98304;

  int64_t expected_states = 0;  // that fit at once; 0: every slot. How fast uses fade depends on it

  int64_t page_bytes = 1;
  int64_t state_bytes = 1;
};

}  // namespace heddle::cache
