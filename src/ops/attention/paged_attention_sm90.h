// SPDX-License-Identifier: Apache-2.0
// Paged attention on Hopper's tensor cores, for prompts in bf16 with heads of 64, 128 or 256
// channels. Fast mode only: bf16 numbers are multiplied with fp32 sums, and exp(score - maximum) is
// rounded to bf16 before it is multiplied by the values. A row's bits depend on which rows share
// its block, and so on how the prompt is cut into chunks.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/context.h"

namespace heddle::ops {

// Number of rows (token, query head of one kv head) that a thread block computes.
inline constexpr int64_t kSm90AttentionRows = 128;

// Fewest new tokens that a sequence must have for this kernel. Shorter ones would not fill a block,
// which reads all their keys without help; the other kernels compute them.
[[nodiscard]] int64_t paged_attention_sm90_min_tokens(const PagedAttentionArgs& args);

// Whether this GPU has the Hopper kernel for this form, given sequences with enough tokens: bf16
// everywhere, keys and values of the same width of 64, 128 or 256, pages of at least 8 tokens whose
// size divides 64 (128 for narrow heads) or is a multiple of it.
[[nodiscard]] bool paged_attention_sm90_takes(const CudaContext& context,
                                              const AttentionForm& form);

// Whether memory is also aligned as the kernel needs it.
[[nodiscard]] bool paged_attention_sm90_fits(const CudaContext& context,
                                             const PagedAttentionArgs& args);

// Computes the sequences of at least paged_attention_sm90_min_tokens() rows, whose keys and values
// are in the pages, and does not touch the other rows of y. `args` must satisfy
// paged_attention_sm90_fits().
//
// A block computes 128 rows over all keys that they attend to. Its rows include all query heads
// that share a key head, so that one tile of keys serves them all. One warp loads, two warpgroups
// multiply 64 rows each. While the products of scores and values run, the softmax of the next tile
// waits only for its own scores. Per pair of a row and a token 4 * D flops.
//
// Floor for 8,192 tokens of 16 heads of 256 on 2 key heads: 550 GFLOP, 0.70 ms at 790 TFLOP/s.
// Measured on an H200: 1.05 ms.
Status paged_attention_sm90(CudaContext& context, const PagedAttentionArgs& args);

}  // namespace heddle::ops
