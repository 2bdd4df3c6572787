// SPDX-License-Identifier: Apache-2.0
// Paged attention for sequences with few new tokens, in bf16 with heads of 64, 128, 256 or 512:
// keys are split among blocks, so that a decode step reads them at the speed of memory whatever its
// batch. Fast mode only: products are of bf16 numbers with fp32 sums, and where keys are split
// depends on how many the step has.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/context.h"

namespace heddle::ops {

// Most blocks of a step, and rows of results that they keep for the join: two parts a block, eight
// rows (token, query head) a part.
inline constexpr int kSplitBlocks = 512;
inline constexpr int64_t kSplitParts = int64_t{2} * kSplitBlocks * 8;

// Most sequences of a step.
inline constexpr int64_t kSplitSequences = 512;

// Whether GPUs have the form: bf16 everywhere, keys and values of the same width of 64, 128, 256 or
// 512.
[[nodiscard]] bool paged_attention_split_takes(const CudaContext& context,
                                               const AttentionForm& form);

// Whether the arguments, too, lie as the kernel reads them, with at most kSplitSequences and with
// units whose tiles (paged_attention_plan.h) can be counted in 32 bits.
[[nodiscard]] bool paged_attention_split_fits(const CudaContext& context,
                                              const PagedAttentionArgs& args);

// Most bytes of the plan of a step (paged_attention_plan.h).
inline constexpr int64_t kSplitPlanBytes = (5 + kSplitSequences) * 4;

// Bytes of the results kept for the join, and of the plan.
[[nodiscard]] constexpr int64_t paged_attention_split_workspace_bytes(int64_t value_dim) {
  return kSplitParts * (value_dim + 2) * 4 + kSplitPlanBytes;
}

// Computes the sequences of at most `most_tokens` new tokens, whose keys and values are in the
// pages, and leaves all other rows of y alone. `args` fits. The launch does not depend on lengths:
// it can be captured for a batch that grows.
//
// Two blocks for each multiprocessor, one with heads of 512, compute equal shares of the step's
// tokens (paged_attention_plan.h), for eight rows and one kv head at a time. A warp has 16 keys at
// a time: keys are the rows of the first product and channels those of the second, query heads the
// eight columns of both, so that nothing is padded where eight query heads share a key head. A
// second kernel joins the parts of a row that several blocks have, in the order of the shares.
//
// Floor: the bytes of keys and values, 4 * D a token and kv head. 64 sequences of 4,096 tokens, 2
// kv heads of 256: 537 MB, 128 us at 4.2 TB/s; one of 32,768: 16 us; one of 131,072: 63 us.
// Predicted for equal shares, with splits of powers of two before: 131,072 tokens 76 to 80 us of
// 88, because a block begins once instead of four times, and a quarter of the results is joined.
// Measured on an H200: 140 us of 145, 26.5 of 26.1 and 73 of 87.
Status paged_attention_split(CudaContext& context, const PagedAttentionArgs& args,
                             int64_t most_tokens);

}  // namespace heddle::ops
