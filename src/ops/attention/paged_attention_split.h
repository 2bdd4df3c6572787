// SPDX-License-Identifier: Apache-2.0
// Paged attention for sequences with few new tokens, in bf16 with heads of 64, 128 or 256: keys are
// split among blocks, so that a decode step reads them at the speed of memory whatever its batch.
// Fast mode only: products are of bf16 numbers with fp32 sums, and where keys are split depends on
// how many the step has.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/context.h"

namespace heddle::ops {

// Pairs of a row (token, query head of one kv head) and a split whose results are kept until they
// are joined; no step has more.
inline constexpr int64_t kSplitParts = 16384;

// Sequences of a step, at most.
inline constexpr int64_t kSplitSequences = 512;

// Whether GPUs have the form: bf16 everywhere, keys and values of the same width of 64, 128 or 256.
[[nodiscard]] bool paged_attention_split_takes(const CudaContext& context,
                                               const AttentionForm& form);

// And whether the arguments lie as it reads them, with at most kSplitSequences.
[[nodiscard]] bool paged_attention_split_fits(const CudaContext& context,
                                              const PagedAttentionArgs& args);

// Results of the splits, and where they lie.
[[nodiscard]] constexpr int64_t paged_attention_split_workspace_bytes(int64_t value_dim) {
  return kSplitParts * (value_dim + 2) * 4 + (1 + kSplitSequences) * 4;
}

// Computes the sequences of at most `most_tokens` new tokens, whose keys and values are in the
// pages, and leaves all other rows of y alone. `args` fits. The launch does not depend on lengths:
// it can be captured for a batch that grows.
//
// Two blocks for each multiprocessor take items of at least 64 tokens, one kv head and eight rows
// in turn. A warp has 16 keys at a time: keys are the rows of the first product and channels those
// of the second, query heads the eight columns of both, so that nothing is padded where eight query
// heads share a key head. Results of a sequence that was split are joined in order.
//
// Floor: the bytes of keys and values, 4 * D a token and kv head. 64 sequences of 4,096 tokens, 2
// kv heads of 256: 537 MB, 128 us at 4.2 TB/s; one of 32,768: 16 us. Measured on an H200: 146
// and 26.
Status paged_attention_split(CudaContext& context, const PagedAttentionArgs& args,
                             int64_t most_tokens);

}  // namespace heddle::ops
