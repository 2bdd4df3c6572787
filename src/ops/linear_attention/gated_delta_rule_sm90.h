// SPDX-License-Identifier: Apache-2.0
// The chunked form of the gated delta rule on Hopper's tensor cores, for prompts in bf16 with heads
// of 128. Chunks have up to 64 tokens; each begins with the state after the previous one. Fast mode
// only: inside a chunk bf16 numbers are multiplied with fp32 sums; states stay fp32.
//
// A chunk ends at each multiple of 64 of its sequence's positions, at each snapshot and at the last
// row of the step (delta_rule_chunk_grid.h). A row's bits depend on its chunk and on the state
// before the chunk alone: a prompt has the same bits in one step and in several steps of this form
// that end at multiples of 64.
//
// With Gc the cumulative log decay inside a chunk, k and q not normalised, r_k and r_q the inverses
// of their norms, and A[i, j] = beta_i (k_i . k_j) r_k,i r_k,j for j < i:
//
//   T[i, j] = ((I + A)^-1)[i, j] beta_j exp(Gc_i - Gc_j)
//   P[i, j] = q^_i . k^_j exp(Gc_i - Gc_j)
//   d = T (v - exp(Gc) r_k S' k)
//   y = exp(Gc) r_q S' q + P d
//   S <- exp(Gc_last) S + k (exp(Gc_last - Gc) r_k d)'
//
// The decay changes the inverse by a similarity transform only, so that the inverse is computed
// without it: entries of (I + A)^-1 stay within [-1, 1] and every exponent is at most 0. Yang,
// Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464, section 3.3; the inverse by
// substitution, arXiv:2406.06484.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/linear_attention/gated_delta_rule.h"

namespace heddle::ops {

// Fewest rows of a sequence in a step for this form; shorter ones are faster token by token.
inline constexpr int64_t kSm90MinRows = 64;

// Whether this GPU and these arguments support this form, given sequences with enough rows.
[[nodiscard]] bool gated_delta_rule_sm90_fits(const CudaContext& context,
                                              const GatedDeltaRuleArgs& args);

// Bytes of workspace; 0 if no step of this size can use this form. Some 17 KiB for each chunk and
// value head: for one chunk per 22 rows, the most that sequences can have (66 rows in chunks of 1,
// 64 and 1), and for 16 more that snapshots may add.
[[nodiscard]] int64_t gated_delta_rule_sm90_workspace_bytes(const CudaContext& context,
                                                            const GatedDeltaRuleSizes& sizes);

// Computes the sequences of at least kSm90MinRows rows, and does not touch the rows of y and the
// state slots of the others. Advances slots and takes snapshots like gated_delta_rule(). `args`
// must satisfy gated_delta_rule_sm90_fits().
//
// A preparation kernel computes the factors of all chunks; then a scan goes through the chunks of
// each sequence. Floor for one sequence of 8,192 tokens, 16 key and 32 value heads: 208 MB (50 us
// on an H200) and 39 GFLOP (50 us); with the factors that are passed to the scan 350 MB. One
// sequence is bound by its chain of chunks: five products of a warpgroup, about 1.2 us a chunk. Its
// heads occupy 64 multiprocessors; the others prepare meanwhile. Measured on an H200, as a captured
// graph: 59 us for 2,048 tokens, 172 for 8,192, 613 for 32,768. With more sequences, all are
// prepared before the scan: 158 us for 8 of 1,024, of which the preparation takes 68 (too few
// warps, its shared memory at 63 %) and the scan 85 (the second-level cache at 84 %, memory at 71
// %).
Status gated_delta_rule_sm90(CudaContext& context, const GatedDeltaRuleArgs& args);

}  // namespace heddle::ops
