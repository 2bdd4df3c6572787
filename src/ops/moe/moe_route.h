// SPDX-License-Identifier: Apache-2.0
// moe_route: chooses the experts of each token and their weights.
//     p = softmax over all E of logits[t], or sigmoid(logits[t])
//     r = p + correction                                       only ranks the experts
//     the A largest r, in descending order, among the experts of the kept groups
//     weight = p of the chosen, optionally divided by their sum + `sum_epsilon`, times `scale` and
//     the expert's entry of `expert_scales`
// Groups are runs of E / G experts. A group is ranked by the sum of its `group_terms` largest r (1:
// its best), and the best `groups_kept` are kept. Sigmoid scores with a correction are those of
// DeepSeek-AI, "DeepSeek-V3", arXiv:2412.19437, section 2.1.2; groups those of "DeepSeek-V2",
// arXiv:2405.04434, section 2.1.3.
//
// Sparsemixer (Phi-3.5-MoE) ranks the experts by their logits. Let z be the logit of a chosen
// expert. Its weight is its softmax among the experts that were not chosen before it and whose
// logit l is close to z:
//     (z - l) / max(|l|, z) <= nearness
// Liu et al., "GRIN: GRadient-INformed MoE", arXiv:2409.12136.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

// Most experts per token; larger than any model needs. It bounds the kernel's local memory.
inline constexpr int64_t kMaxExpertsPerToken = 64;

// Most experts for scores other than a plain softmax; such scores are kept on the stack.
inline constexpr int64_t kMaxScoredExperts = 1024;

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSparsemixer };

struct RouterScoring {
  RouterScore score = RouterScore::kSoftmax;
  int64_t num_groups = 1;   // G, number of groups of experts
  int64_t groups_kept = 1;  // number of groups whose experts may be chosen
  int64_t group_terms = 1;
  float scale = 1.0f;
  // Avoids a division by zero; the value differs between model families.
  float sum_epsilon = 1e-20f;
  float nearness = 0;  // kSparsemixer only: the largest relative distance of a close logit

  friend bool operator==(const RouterScoring&, const RouterScoring&) = default;
};

struct MoeRouteArgs {
  TensorView logits;          // [T, E]  fp32; rows may be a column range
  MutableTensorView experts;  // [T, A]  int32, each row distinct ids in [0, E)
  MutableTensorView weights;  // [T, A]  fp32 weights of the chosen experts
  // Whether the weights of a token are divided by their sum before `scale`; not used by
  // kSparsemixer.
  bool renormalize = true;
  RouterScoring scoring = {};
  TensorView correction = {};     // correction of the ranks [E] fp32; without memory: none
  TensorView expert_scales = {};  // factors of the experts' weights [E] fp32; without memory: none

  // CUDA only: [T], DeviceBatch::row_sequences. Rows of padding get the experts of the first row,
  // so that no expert is computed for padding alone. Null: there is no padding.
  const int32_t* row_sequences = nullptr;
};

// Among equal logits (or r) the lower id comes first. A NaN logit is never preferred to a number; a
// token that has one (or an infinite one) gets valid, distinct ids and, with a softmax, NaN
// weights. Each token is computed alone, in one fixed order of operations: its bits are the same in
// any batch. If p is a softmax that is ranked by groups or with a correction, a NaN makes all of p
// NaN, and the ids are arbitrary. Allocates nothing. Error: kInvalidArgument when shapes disagree,
// A is not in [1, min(E, 64)] or does not fit the groups.
Status moe_route(Context& context, const MoeRouteArgs& args);

// Checks that A of E experts can be chosen with this scoring. Error: kInvalidArgument starting with
// the op's name.
Status check_scoring(const char* op, const RouterScoring& scoring, const TensorView& correction,
                     int64_t E, int64_t A);

Status moe_route_cpu(CpuContext& context, const MoeRouteArgs& args);    // args already checked
Status moe_route_cuda(CudaContext& context, const MoeRouteArgs& args);  // args already checked

}  // namespace heddle::ops
