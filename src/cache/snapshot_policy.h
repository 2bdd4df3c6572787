// SPDX-License-Identifier: Apache-2.0
// The snapshot policy: which recurrent states a step saves. A pure function of the tokens that the
// step computes, so that every rule is a unit test.
//
// G is the snapshot grid, T the decode interval; a step computes the tokens [begin, end) of a
// sequence that has `num_tokens` tokens to prefill.
//
//   multi: in prefill always the forks and the tail floor((N-1)/G)*G; while slots are free also
//     message boundaries (rounded down to G), the end N with the hidden vector, and every 256th
//     token, every 128th while more than half of the pool is free. If no slot is free, every 256th
//     only if it evicts a less valuable snapshot: chains to which no sequence returned are thinned
//     for new ones. In decode every T tokens. The exact end is kept without a copy.
//
//   extra_buffer: in prefill one per step, at the last multiple of G, or at the fork if one lies
//     inside the step; none in steps below G tokens. In decode every T tokens.
//
//   no_buffer: in prefill the end of every step, wherever it is; none in decode. The exact end is
//     kept without a copy.
//
// Threading: pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/options.h>

namespace heddle::cache {

// Whether the working slot of a finished sequence becomes a snapshot.
[[nodiscard]] constexpr bool keeps_exact_end(SnapshotPolicy policy) {
  return policy != SnapshotPolicy::kExtraBuffer;
}

// Whether chunks that are not a prompt's last end on multiples of the grid.
[[nodiscard]] constexpr bool chunks_on_grid(SnapshotPolicy policy) {
  return policy != SnapshotPolicy::kNoBuffer;
}

struct PrefillStep {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t num_tokens = 0;                    // N, the number of tokens that the sequence has to
                                             // prefill
  std::span<const int64_t> forks;            // token counts at which other sequences part from this
                                             // one, in any order
  std::span<const int64_t> role_boundaries;  // token counts at which messages begin, ascending
  int64_t free_slots = 0;
  int64_t num_slots = 0;
  bool keeps_hidden = false;
};

struct SnapshotRequest {
  int64_t tokens = 0;
  bool evicts = false;  // may evict any unlocked snapshot, however valuable
  int64_t spacing = 0;  // without `evicts`: may evict a snapshot that is worth less than this one
                        // with the next one this many tokens above it; 0: it uses a free slot only
  bool keeps_hidden = false;

  friend bool operator==(const SnapshotRequest&, const SnapshotRequest&) = default;
};

// Replaces `requests` by those of the step, the most wanted first, each token count once, all
// within (begin, end].
void request_snapshots(SnapshotPolicy policy, int64_t grid, const PrefillStep& step,
                       std::vector<SnapshotRequest>& requests);

// Whether a snapshot is wanted after decoding the token that makes the sequence `num_tokens` long.
[[nodiscard]] constexpr bool wants_decode_snapshot(SnapshotPolicy policy, int64_t interval,
                                                   int64_t num_tokens) {
  return policy != SnapshotPolicy::kNoBuffer && num_tokens % interval == 0;
}

}  // namespace heddle::cache
