// SPDX-License-Identifier: Apache-2.0
// delta_step: computes few tokens of each sequence through everything in a Gated DeltaNet layer
// that is between its projections: convolution, delta rule and gated norm in one launch. For decode
// and the verification of drafts in bf16 with heads of 128 on Hopper. The numbers are those of the
// three separate ops: intermediate results are rounded as they are there.
//
// A block computes a value head of a sequence, or if there are few sequences a part of its rows,
// for all of the sequence's tokens. The blocks that share a key head form a cluster: each of them
// convolves the key head, and one stores its window when all have read it. Blocks with parts of the
// same head exchange the sums that the norm needs. States and windows are loaded while the
// preceding product still runs. It supports only as many blocks as can run at once: with more, the
// blocks of a cluster load, compute and store at the same time, and memory is idle in between.
#pragma once

#include "ops/context.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

// Arguments of the three ops. The tensors between the ops are neither read nor written: conv.y,
// rule.qkv, rule.y and norm.x.
struct DeltaStepArgs {
  CausalConv1dArgs conv;
  GatedDeltaRuleArgs rule;
  GatedRmsNormArgs norm;
};

// Whether the kernel supports these arguments: every sequence has the same number of rows, at most
// 8, and no tree of drafts; bf16, a convolution of width four, key and value heads of 128, at most
// 8 value heads for a key head, one decay for a head, rows 16-byte aligned, and few sequences (8 of
// 32 heads on an H200). The answer depends on the step's shape alone.
[[nodiscard]] bool delta_step_fits(const CudaContext& context, const DeltaStepArgs& args);

// Reads and writes each state once, 8 * 128 * 128 bytes a head and sequence, half as many for each
// snapshot, and the windows of the convolution, 24 bytes a channel: 34 MB for 8 sequences of 32
// heads, 8 us at 4.2 TB/s. For one sequence the time is the latency of loading, summing and
// storing. The squares for the norm are sent from block to block by asynchronous stores, and blocks
// with parts of a head store their states after that: a second barrier of the cluster would wait
// for all stores before it. Measured on an H200 as the time that the kernel adds between the
// products of a layer: one token of 1, 2, 4 and 8 sequences of 32 heads 5.3, 5.4, 7.9 and 12.9 us
// (before the asynchronous stores 5.9, 5.9, 7.9 and 12.8); with 16 value heads, each with a key
// head of its own, 4.5, 4.9, 5.7 and 7.4 us (5.2, 5.5, 6.3 and 8.0). An empty kernel adds 0.9.
Status delta_step_cuda(CudaContext& context, const DeltaStepArgs& args);

}  // namespace heddle::ops
