// SPDX-License-Identifier: Apache-2.0
// Causal attention over a paged KV cache: appends the step's keys and values (but those that
// ForwardContext::kv_lens says are there), then lets every row see the tokens of its sequence up to
// itself, as they lie in the pages: all of them or the last `window`.
//
//   s[j] = scale * q[t, h] . k[j, n],   n = floor(h * Nkv / Nq)
//   y[t, h] = sum over visible j of exp(s[j]) v[j, n] / (exp(sink[h]) + sum over visible j of
//   exp(s[j]))
//   visible j: max(0, position(t) - window + 1) <= j <= position(t)
//
// Nodes of a tree lie in the pages beside each other and not at their positions; a row sees the
// tokens of its text up to its position wherever they lie (ForwardContext::tree_starts), in the
// order of their positions.
//
// A sink is one more logit, neither scaled nor masked, that takes a share and gives nothing;
// without sinks its term is absent. A window counts the row itself: with 1 a row sees nothing else.
//
// Pages of E4M3 hold k / k_scale and v / v_scale, one scale each for the layer, rounded to nearest
// even and beyond +-448 to that. k_scale joins the scale of the scores and v_scale the division by
// the sum, so that the sums run over stored numbers.
//
// The values may be a part of the keys: latent attention (DeepSeek-AI, "DeepSeek-V2",
// arXiv:2405.04434) in its absorbed form keeps one row [c | k_pe] per token, all heads attend to it
// as to a single key head, and c is the value. Then there is no v, and one region of pages. c comes
// from a norm and k_pe from a projection, so no single scale fits both: in pages of E4M3 the
// channels that are values, the first Dv, hold c / v_scale and the others k_pe / k_scale. The
// scales join the queries, channel by channel, and v_scale the output as well.
//
// Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; the
// blocking is that of Dao et al., "FlashAttention", arXiv:2205.14135.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct PagedAttentionArgs {
  TensorView q;  // [T, Nq * D] activations(context)
  TensorView k;  // [T, Nkv * D] as q; without memory, and v too: both lie in the pages already
  TensorView v;  // [T, Nkv * Dv] as q, or without memory: the first Dv channels of each key
  MutableTensorView y;  // [T, Nq * Dv] as q; may be q itself where Dv = D, on CUDA up to 512
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;   // D
  int64_t value_dim = 0;  // Dv; 0: D
  float scale = 0;
  int64_t window = 0;  // tokens a row sees, its own included; 0: all
  TensorView sinks;    // [Nq] f32, or without memory
  KvLayer kv;  // k [P, S, Nkv, D] f32, bf16, f16 or e4m3, v [P, S, Nkv, Dv] or, as v, without
               // memory: rows of k and v are rounded to it
  const ForwardContext* forward = nullptr;
  std::span<std::byte> workspace;  // paged_attention_workspace_bytes()
};

// Keys are taken in blocks of this many tokens, and blocks in segments whose results are joined in
// order. Both lie at fixed absolute positions, and every row goes through the same fp32 operations
// whichever rows share its step, on either device: this kernel serves exact mode as well
// (docs/numerics.md). A row's bits depend on neither chunking, batch, threads nor page size, only
// on the pool's dtype, to which k and v are rounded. That does not hold for two kernels of the
// default mode on GPUs: those for decode steps (paged_attention_split.h) and for prompts on
// Hopper's tensor cores (paged_attention_sm90.h). With a window, blocks and segments that no row of
// a step sees are skipped, and of the others only visible tokens are read: pages before the window
// may hold anything, their ids need only be ids of the pool.
inline constexpr int64_t kAttentionBlock = 128;
inline constexpr int64_t kAttentionSegment = 1024;

// Scratch for steps of at most `max_tokens` rows on the context's device.
int64_t paged_attention_workspace_bytes(const Context& context, int64_t max_tokens,
                                        int64_t head_dim, int64_t value_dim);

// Softmax and sums in fp32. Prefill is bound by D + Dv multiply-adds per pair of row and token,
// decode by reading each cached key and value once; a window bounds both. Allocates nothing. Work
// is spread over rows and kv heads, and over segments when those are few. Error: kInvalidArgument,
// naming the tensor that does not fit; the
// ids of the batch are taken for checked (check_batch()).
Status paged_attention(Context& context, const PagedAttentionArgs& args);
Status paged_attention_cpu(CpuContext& context, const PagedAttentionArgs& args);    // args checked
Status paged_attention_cuda(CudaContext& context, const PagedAttentionArgs& args);  // args checked

// Decides, with a step's lengths, which attention kernels a GPU uses.
struct AttentionForm {
  DType activations = DType::kF32;
  DType pages = DType::kF32;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  bool is_latent = false;  // values are a part of the keys
  int64_t page_size = 0;

  [[nodiscard]] static AttentionForm of(const PagedAttentionArgs& args) {
    return {.activations = args.q.dtype,
            .pages = args.kv.k.dtype,
            .head_dim = args.head_dim,
            .value_dim = args.value_dim > 0 ? args.value_dim : args.head_dim,
            .is_latent = args.kv.v.data == nullptr,
            .page_size = args.forward->page_size};
  }
};

// Describes the kernels that this form takes, for a log.
[[nodiscard]] std::string describe_attention_cuda(const CudaContext& context,
                                                  const AttentionForm& form);

// paged_attention_cuda() without the append: the keys and values of the step are in the pages
// already.
Status attend_to_pages_cuda(CudaContext& context, const PagedAttentionArgs& args);  // args checked

}  // namespace heddle::ops
