// SPDX-License-Identifier: Apache-2.0
// OpChain: ops that follow one another in a program and that a device also computes together, in
// fewer launches, where a step is of the kind that this is faster for, of few rows mostly. The
// graph keeps the single ops: they are the exact mode, the way of all other steps, and what chains
// are tested against.
#pragma once

#include <span>
#include <string_view>

#include "ops/op_def.h"

namespace heddle::ops {

struct ChainedOp {
  const OpDef* op = nullptr;
  LaunchArgs args;
};

// One by one, for a chain that takes only some of its ops together.
Status launch_each(Context& context, std::span<const ChainedOp> ops);

struct OpChain {
  // Output `output` of op `from` is input `input` of op `to`.
  struct Link {
    int from = 0;
    int to = 0;
    int input = 0;
    int output = 0;
    bool shared = false;  // other nodes may read the output, too
  };

  std::span<const std::string_view> ops;  // names, in order
  std::span<const Link> links;  // connections between the ops that a program must have as well

  // Launches all of them, or none and answers false: they are to be launched one by one. Tensors
  // of links need not be written, unless they are shared. Memory of all inputs stays as it is, and
  // workspaces are the chain's, until its last launch. The answer depends on what a captured step
  // depends on.
  Result<bool> (*launch)(Context& context, std::span<const ChainedOp> chain) = nullptr;
};

// The chains of the context's device, the longest first; none in exact mode.
std::span<const OpChain> op_chains(const Context& context);

std::span<const OpChain> attention_chains();
std::span<const OpChain> gemm_chains();
std::span<const OpChain> linear_attention_chains();
std::span<const OpChain> moe_chains();
std::span<const OpChain> norm_chains();

}  // namespace heddle::ops
