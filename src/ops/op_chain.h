// SPDX-License-Identifier: Apache-2.0
// OpChain: consecutive ops of a program that a device can also compute together, in fewer launches,
// in the steps for which this is faster, mostly steps of few rows. The graph keeps the single ops:
// exact mode and all other steps run them one by one, and tests compare chains with them.
#pragma once

#include <span>
#include <string_view>

#include "ops/op_def.h"

namespace heddle::ops {

struct ChainedOp {
  const OpDef* op = nullptr;
  LaunchArgs args;
};

// Launches the ops one by one; for a chain that computes only some of its ops together.
Status launch_each(Context& context, std::span<const ChainedOp> ops);

struct OpChain {
  // Says that output `output` of op `from` is input `input` of op `to`.
  struct Link {
    int from = 0;
    int to = 0;
    int input = 0;
    int output = 0;
    bool shared = false;  // true: nodes outside of the chain may read the output, too
  };

  std::span<const std::string_view> ops;  // names of the ops, in order
  // connections between the ops that a program must have for the chain to apply
  std::span<const Link> links;

  // Launches all ops and returns true, or launches none and returns false; the caller then launches
  // them one by one. Tensors on links need not be written unless they are shared. The memory of all
  // inputs stays unchanged and all workspaces belong to the chain until its last launch. The answer
  // may depend only on what the launches of a captured step depend on.
  Result<bool> (*launch)(Context& context, std::span<const ChainedOp> chain) = nullptr;
};

// The chains that the context's device supports, the longest first; none in exact mode.
std::span<const OpChain> op_chains(const Context& context);

std::span<const OpChain> attention_chains();
std::span<const OpChain> gemm_chains();
std::span<const OpChain> linear_attention_chains();
std::span<const OpChain> moe_chains();
std::span<const OpChain> norm_chains();

}  // namespace heddle::ops
