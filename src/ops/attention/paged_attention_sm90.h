// SPDX-License-Identifier: Apache-2.0
// Paged attention on Hopper's tensor cores, for prompts in bf16 with heads of 64, 128 or 256. Fast
// mode only: products are of bf16 numbers with fp32 sums, and exp(score - maximum) is rounded to
// bf16 before it meets the values; a row's bits depend on which rows share its block, so on the
// chunking.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention.h"
#include "ops/context.h"

namespace heddle::ops {

// Rows (token, query head of one kv head) that a block computes.
inline constexpr int64_t kSm90AttentionRows = 128;

// Sequences with fewer new tokens than this are left to the plain form: they would fill less than a
// block, which walks all their keys alone.
[[nodiscard]] int64_t paged_attention_sm90_min_tokens(const PagedAttentionArgs& args);

// Whether this GPU has the fast form, where sequences have tokens enough: bf16 everywhere, keys and
// values of the same width of 64, 128 or 256, pages whose size divides 64 tokens (128 for narrow
// heads) or is a multiple, from 8 on.
[[nodiscard]] bool paged_attention_sm90_takes(const CudaContext& context,
                                              const AttentionForm& form);

// Whether the arguments, too, lie as the kernel reads them.
[[nodiscard]] bool paged_attention_sm90_fits(const CudaContext& context,
                                             const PagedAttentionArgs& args);

// Computes the sequences of at least paged_attention_sm90_min_tokens() rows, whose keys and values
// are in the pages, and leaves all other rows of y alone. `args` fits.
//
// A block takes 128 rows through all keys they see: the heads that share a key head lie side by
// side, so that one tile of keys serves them all. One warp loads, two warpgroups multiply 64 rows
// each; while the products of scores and values run, the softmax of the next tile waits only for
// its own scores. Per pair of a row and a token 4 * D flops.
//
// Floor for 8,192 tokens of 16 heads of 256 on 2 key heads: 550 GFLOP, 0.70 ms at 790 TFLOP/s.
// Measured on an H200: 1.05 ms.
Status paged_attention_sm90(CudaContext& context, const PagedAttentionArgs& args);

}  // namespace heddle::ops
