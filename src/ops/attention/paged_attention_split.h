// SPDX-License-Identifier: Apache-2.0
// Paged attention for sequences with few new tokens, in bf16 with heads of 64, 128, 256 or 512
// channels. The keys of a sequence are split among blocks, so that a decode step reads them at
// memory speed whatever its batch size. Fast mode only: bf16 numbers are multiplied with fp32 sums,
// and where keys are split depends on the lengths of all sequences.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/context.h"

namespace heddle::ops {

// Most blocks of a step, and the rows of partial results that they store for the join: two parts a
// block, eight rows (token, query head) a part.
inline constexpr int kSplitBlocks = 512;
inline constexpr int64_t kSplitParts = int64_t{2} * kSplitBlocks * 8;

// Most sequences of a step that the split kernel computes.
inline constexpr int64_t kSplitSequences = 512;

// Whether the GPU has split kernels for this form: bf16 everywhere, keys and values of the same
// width of 64, 128, 256 or 512.
[[nodiscard]] bool paged_attention_split_takes(const CudaContext& context,
                                               const AttentionForm& form);

// Whether the split kernel can run with these arguments: memory is aligned as it needs, there are
// at most kSplitSequences sequences, and the tiles of all units (paged_attention_plan.h) can be
// counted in 32 bits.
[[nodiscard]] bool paged_attention_split_fits(const CudaContext& context,
                                              const PagedAttentionArgs& args);

// Upper bound of the bytes of a step's plan (paged_attention_plan.h).
inline constexpr int64_t kSplitPlanBytes = (5 + kSplitSequences) * 4;

// Bytes of the partial results that are stored for the join, and of the plan.
[[nodiscard]] constexpr int64_t paged_attention_split_workspace_bytes(int64_t value_dim) {
  return kSplitParts * (value_dim + 2) * 4 + kSplitPlanBytes;
}

// Computes the sequences with at most `most_tokens` new tokens, whose keys and values are in the
// pages, and does not touch the other rows of y. `args` must satisfy paged_attention_split_fits().
// The launch does not depend on lengths: it can be captured for a batch that grows.
//
// Two blocks for each multiprocessor (one with heads of 512) compute equal shares of the step's
// tokens (paged_attention_plan.h), for eight rows and one kv head at a time. A warp processes 16
// keys at a time: keys are the rows of the first product, channels the rows of the second, and
// query heads the eight columns of both, so that nothing is padded where eight query heads share a
// key head. A second kernel joins the partial results of rows that several blocks computed, in the
// order of the shares.
//
// Floor: the bytes of keys and values, 4 * D per token and kv head. With 2 kv heads of 256, 64
// sequences of 4,096 tokens: 537 MB, 128 us at 4.2 TB/s; one of 32,768: 16 us; one of 131,072: 63
// us. Equal shares replaced splits by powers of two. Predicted for 131,072 tokens: 76 to 80 us
// instead of 88, because a block begins once instead of four times and a quarter of the results is
// joined. Measured on an H200 for the three cases: 140 us (before: 145), 26.5 (26.1) and 73 (87).
Status paged_attention_split(CudaContext& context, const PagedAttentionArgs& args,
                             int64_t most_tokens);

}  // namespace heddle::ops
