// SPDX-License-Identifier: Apache-2.0
// routed_moe: the routed experts of a mixture-of-experts block. Each expert is a SwiGLU network:
//     y[t] = sum over the A experts e of token t of  weight[t, e] * (W2_e f(g, u) + b2_e)
//     [g; u] = W13_e x[t] + b13_e,   f(g, u) = silu(g) * u
// or, with a limit on the inputs of the activation (gpt-oss),
//     f(g, u) = (u' + 1) * g' * sigmoid(alpha * g'),  g' = min(g, limit), u' = clamp(u, -limit,
//     limit)
// or, with a limit on both factors (Step 3.5),
//     f(g, u) = min(silu(g), limit) * clamp(u, -limit, limit)
// or f(g, u) = gelu(g) * u with the GELU of elementwise.h (Gemma 4). Experts without a gate have
// one matrix less, f = max(u, 0)^2 of u = W1_e x[t] + b1_e (Nemotron-H). Scores and choice of
// experts are those of moe_route. A shared expert, which all tokens use, is added by separate ops
// of the model; on CUDA it may also be a part of this call:
//     y[t] += sigmoid(s_t) * W2_s (silu(g_t) * u_t)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/moe/moe_route.h"

namespace heddle::ops {

enum class ExpertForm : uint8_t { kSwiglu, kBoundedSwiglu, kGeglu, kSquaredRelu };

// Number of outputs of an expert's first product for each input of its second product.
[[nodiscard]] constexpr int64_t rows_per_hidden(ExpertForm form) {
  return form == ExpertForm::kSquaredRelu ? 1 : 2;
}

// The experts that one rank of several has; the router's logits are of all.
struct OwnExperts {
  int64_t first = 0;  // w13 and w2 have the experts from this one on
  // y [T, A * H]: the A terms of a token apart, in the router's order, those of other ranks'
  // experts +0. Otherwise y is the sum of the terms of own experts.
  bool in_terms = false;
};

struct ExpertActivation {
  ExpertForm form = ExpertForm::kSwiglu;
  // kSwiglu: limit of the activation's inputs, 0: none; kBoundedSwiglu: limit of both factors
  float limit = 0;
  float alpha = 0;  // factor inside the sigmoid; kSwiglu with a limit only
};

// The expert that all tokens use. Its first product was computed together with the router's scores.
struct SharedExpert {
  TensorView gate_up;        // [T, 2I]  g | u, fp32 or as x; rows may be a column range
  TensorView down;           // [H, I]   W2_s, fp32, bf16 or fp16; for few tokens also quantised
  TensorView gate = {};      // [T, 1]   s, fp32; without memory: the expert's output is not gated
  MutableTensorView hidden;  // [T, I]   as x: scratch for the activation
  MutableTensorView y;       // [T, H]   as x: scratch for the expert's output
};

struct RoutedMoeArgs {
  TensorView x;              // [T, H]      activations(context); rows may be a column range
  TensorView router_logits;  // [T, E]      fp32; rows may be a column range
  // [E, 2I, H] fp32, bf16 or fp16, read in place: the rows of the gate, then those of up; or
  // quantised in the same format for all experts, in memory of the device. Without a gate: [E, I,
  // H], and its bias [E, I].
  TensorView w13;
  TensorView w2;             // [E, H, I]   dtype of w13, or one of the two is quantised
  TensorView w13_bias = {};  // [E, 2I]     fp32, or without memory
  TensorView w2_bias = {};   // [E, H]      fp32, or without memory
  MutableTensorView y;       // [T, H]      as x; rows may be a column range; must not overlap x
  ExpertActivation activation = {};
  int64_t experts_per_token = 1;            // A, experts that each token uses
  bool renormalize = true;                  // true: a token's weights are divided by their sum
  RouterScoring scoring = {};               // how experts are scored and chosen (moe_route.h)
  TensorView correction = {};               // [E] fp32, or without memory
  TensorView expert_scales = {};            // [E] fp32, or without memory
  std::optional<SharedExpert> shared = {};  // CUDA only
  std::optional<OwnExperts> own = {};       // CPU only; w13, w2, biases [e, ..] of e experts
  MutableTensorView residual = {};          // [T, H] bf16, or without memory; CUDA only, and few
                                            // tokens (few_experts.h): y is added, not written
  TensorView read_next = {};                // a weight, or without memory: few tokens on CUDA have
                                            // its beginning fetched while their experts are found
  const int32_t* row_sequences = nullptr;   // CUDA only: moe_route.h; y of padding may be anything
  std::span<std::byte> workspace;           // routed_moe_workspace_bytes(...) bytes, any alignment
};

struct RoutedMoeShape {
  int64_t H = 0;
  int64_t I = 0;
  int64_t E = 0;
  int64_t A = 0;
  DType weight = DType::kBf16;  // dtype of w13 and w2; kPacked if one of them is quantised
  DType x = DType::kF32;
};

// The dtype to use for RoutedMoeShape::weight with weights of these two dtypes.
[[nodiscard]] constexpr DType expert_dtype(DType w13, DType w2) {
  return w2 == DType::kPacked ? w2 : w13;
}

// Bytes of workspace for every T up to max_T. Beyond the number of tokens that are computed at
// once, 1024 on the CPU and 2048 on CUDA, it does not grow. Depends on the context's instructions.
[[nodiscard]] int64_t routed_moe_workspace_bytes(const Context& context, int64_t max_T,
                                                 const RoutedMoeShape& shape);
[[nodiscard]] int64_t routed_moe_workspace_bytes_cpu(const CpuContext& context, int64_t max_T,
                                                     const RoutedMoeShape& shape);

// The A terms of a token are added in the router's order (best expert first), in fp32; the shared
// expert's term is rounded as by separate ops. On CUDA the activation is rounded to x's dtype
// before the second product, as in the reference models, and both modes have the same sums
// (cuda/row_products.cuh). Exact mode: a token's bits do not depend on the batch, its order or the
// threads (linear.h). A NaN in a token's x or logits makes that token's y NaN and no other's.
//
// Cost: streams w13 and w2 of the chosen experts once. Allocates nothing. Error: kInvalidArgument,
// naming the tensor and the dimension that disagree.
Status routed_moe(Context& context, const RoutedMoeArgs& args);
Status routed_moe_cpu(CpuContext& context, const RoutedMoeArgs& args);    // args already checked
Status routed_moe_cuda(CudaContext& context, const RoutedMoeArgs& args);  // args already checked

}  // namespace heddle::ops
