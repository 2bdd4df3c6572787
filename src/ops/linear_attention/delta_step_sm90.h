// SPDX-License-Identifier: Apache-2.0
// Few tokens of each sequence through a whole gated delta net between its products: convolution,
// delta rule and gated norm in one launch, for decode and the verification of drafts in bf16 with
// heads of 128 on Hopper. The same numbers as the three ops have: what goes from one to the next is
// rounded where they round it.
//
// A block has a value head of a sequence, or where there are few a part of its rows, and takes it
// through the sequence's tokens. The blocks that share a key head are a cluster, since each of them
// convolves it and one keeps its window when all have read it; parts of a head tell each other what
// the norm needs. States and windows are loaded while the product before still runs. For as many
// blocks as run at once: beyond, those of a cluster load, compute and store in step, and memory
// idles in between.
#pragma once

#include "ops/context.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

// The tensors between them are not read or written: conv.y, rule.qkv, rule.y and norm.x.
struct DeltaStepArgs {
  CausalConv1dArgs conv;
  GatedDeltaRuleArgs rule;
  GatedRmsNormArgs norm;
};

// Whether the arguments have this form: every sequence has the same number of rows, at most 8, and
// no tree of drafts, bf16, a convolution of four, key and value heads of 128, at most 8 value heads
// for a key head, one decay for a head, rows on 16 bytes, and few sequences (8 of 32 heads on an
// H200). Depends on the step's shape alone.
[[nodiscard]] bool delta_step_fits(const CudaContext& context, const DeltaStepArgs& args);

// Moves a state in and out, 8 * 128 * 128 bytes a head and sequence, half as many for each
// snapshot, and the windows of the convolution, 24 bytes a channel: 34 MB for 8 sequences of 32
// heads, 8 us at 4.2 TB/s; for one sequence what takes time is to load, add up and store. The
// squares of the norm are sent from block to block by asynchronous stores, and split heads store
// their states after that: a second barrier of the cluster would wait for all stores before it.
// Measured on an H200 as what the kernel adds between the products of a layer: one token of 1, 2, 4
// and 8 sequences of 32 heads 5.3, 5.4, 7.9 and 12.9 us (5.9, 5.9, 7.9 and 12.8 before); of 16
// heads with keys of their own 4.5, 4.9, 5.7 and 7.4 us (5.2, 5.5, 6.3 and 8.0). A kernel that does
// nothing adds 0.9.
Status delta_step_cuda(CudaContext& context, const DeltaStepArgs& args);

}  // namespace heddle::ops
