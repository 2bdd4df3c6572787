// SPDX-License-Identifier: Apache-2.0
// moe_route: which experts each token goes to, and with what weight.
//     p = softmax over all E of logits[t], or sigmoid(logits[t])
//     r = p + correction                                       ranks experts, nothing else
//     the A largest r, in falling order, among the experts of the kept groups
//     weight = p of the chosen, divided by their sum + `sum_epsilon` or not, times `scale` and the
//     expert's own scale
// Groups are runs of E / G experts; a group is ranked by the sum of its `group_terms` largest r (1:
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

// More than any model asks for; bounds the kernel's own memory.
inline constexpr int64_t kMaxExpertsPerToken = 64;

// Scores are kept on the stack where they are not a plain softmax.
inline constexpr int64_t kMaxScoredExperts = 1024;

enum class RouterScore : uint8_t { kSoftmax, kSigmoid, kSparsemixer };

struct RouterScoring {
  RouterScore score = RouterScore::kSoftmax;
  int64_t num_groups = 1;   // G
  int64_t groups_kept = 1;  // groups whose experts may be chosen
  int64_t group_terms = 1;
  float scale = 1.0f;
  float sum_epsilon = 1e-20f;  // the families' own guard against dividing by zero
  float nearness = 0;          // kSparsemixer only: the largest relative distance of a close logit

  friend bool operator==(const RouterScoring&, const RouterScoring&) = default;
};

struct MoeRouteArgs {
  TensorView logits;          // [T, E]  fp32; rows may be a column range
  MutableTensorView experts;  // [T, A]  int32, each row distinct ids in [0, E)
  MutableTensorView weights;  // [T, A]  fp32
  // Weights of a token sum to 1, before `scale`; no effect on kSparsemixer.
  bool renormalize = true;
  RouterScoring scoring = {};
  TensorView correction = {};     // [E] fp32, or without memory
  TensorView expert_scales = {};  // [E] fp32, or without memory

  // CUDA only: [T], DeviceBatch's. Rows of padding go where the first row goes, so that no expert
  // is computed for them alone. Null: there are none.
  const int32_t* row_sequences = nullptr;
};

// Equal logits (or r): the lower id first. A NaN logit is never preferred to a number; a token that
// has one (or an infinite one) gets valid, distinct ids and, with a softmax, NaN weights. Each
// token alone, in one fixed order of operations: the same bits in any batch. Where p is a softmax
// that is ranked by groups or with a correction, a NaN spoils all of p, and the ids say nothing.
// Allocates nothing. Error: kInvalidArgument when shapes disagree, A is not in [1, min(E, 64)] or
// does not fit the groups.
Status moe_route(Context& context, const MoeRouteArgs& args);

// Whether choosing A of E experts is possible this way. Error: kInvalidArgument starting with the
// op's name.
Status check_scoring(const char* op, const RouterScoring& scoring, const TensorView& correction,
                     int64_t E, int64_t A);

Status moe_route_cpu(CpuContext& context, const MoeRouteArgs& args);    // args already checked
Status moe_route_cuda(CudaContext& context, const MoeRouteArgs& args);  // args already checked

}  // namespace heddle::ops
