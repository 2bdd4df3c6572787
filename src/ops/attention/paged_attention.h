// SPDX-License-Identifier: Apache-2.0
// Causal attention over a paged KV cache. First appends the step's keys and values to the pages,
// except those that are there already (ForwardContext::kv_lens). Then each row attends to the
// tokens of its sequence up to itself, read from the pages: all of them or the last `window`.
//
//   s[j] = scale * q[t, h] . k[j, n],   n = floor(h * Nkv / Nq)
//   y[t, h] = sum over visible j of exp(s[j]) v[j, n] / (exp(sink[h]) + sum over visible j of
//   exp(s[j]))
//   visible j: max(0, position(t) - window + 1) <= j <= position(t)
//
// Nodes of a draft tree are stored in the pages one after another, so that their index there is not
// their position. A row attends to the tokens of its own branch, in the order of their positions,
// wherever they are stored (ForwardContext::tree_starts).
//
// A sink is one more logit of the softmax, neither scaled nor masked, whose value is zero; without
// sinks its term is absent. A window includes the row itself: with 1 a row attends to nothing else.
//
// Pages of E4M3 hold k / k_scale and v / v_scale, one scale each for the layer, rounded to nearest
// even; numbers beyond +-448 become +-448. Scores are multiplied by k_scale and outputs by v_scale,
// so that the sums themselves run over stored numbers.
//
// The values may be a part of the keys: latent attention (DeepSeek-AI, "DeepSeek-V2",
// arXiv:2405.04434) in its absorbed form keeps one row [c | k_pe] per token, all heads attend to it
// as to a single key head, and c is the value. Then there is no v, and the cache has only key
// pages. c comes from a norm and k_pe from a projection, so no single scale fits both: in pages of
// E4M3 the first Dv channels, which are the value, hold c / v_scale and the others k_pe / k_scale.
// Queries are multiplied by these scales, channel by channel, and the output by v_scale.
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
  TensorView q;  // queries [T, Nq * D], of a dtype in activations(context)
  // Keys [T, Nkv * D] as q; k and v without memory: their rows are in the pages already.
  TensorView k;
  // [T, Nkv * Dv] as q; without memory while k has some: values are the first Dv channels of k.
  TensorView v;
  // Outputs [T, Nq * Dv] as q; may be q itself where Dv = D, on CUDA up to 512.
  MutableTensorView y;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;   // D, channels of a query or key head
  int64_t value_dim = 0;  // Dv, channels of a value head; 0: D
  float scale = 0;
  int64_t window = 0;  // number of tokens that a row attends to, itself included; 0: all
  TensorView sinks;    // [Nq] f32; no memory: the layer has no sinks
  // The layer's pages: k [P, S, Nkv, D] f32, bf16, f16 or e4m3; v [P, S, Nkv, Dv], without memory
  // where values are a part of the keys. Appended rows are rounded to the dtype of the pages.
  KvLayer kv;
  const ForwardContext* forward = nullptr;
  std::span<std::byte> workspace;  // of paged_attention_workspace_bytes()
};

// Keys are processed in blocks of kAttentionBlock tokens. Blocks form segments, whose results are
// joined in order. Both begin at fixed absolute positions, and every row goes through the same fp32
// operations whichever rows share its step, on either device: this kernel serves exact mode as well
// (docs/numerics.md). A row's bits do not depend on chunking, batch, threads or page size, only on
// the pool's dtype, to which k and v are rounded. That does not hold for two kernels of the default
// mode on GPUs: those for decode steps (paged_attention_split.h) and for prompts on Hopper's tensor
// cores (paged_attention_sm90.h). With a window, blocks and segments that no row of a step sees are
// skipped, and of the others only visible tokens are read: pages before the window may hold
// anything, their ids need only be ids of the pool.
inline constexpr int64_t kAttentionBlock = 128;
inline constexpr int64_t kAttentionSegment = 1024;

// Bytes of workspace for steps of at most `max_tokens` rows on the context's device.
int64_t paged_attention_workspace_bytes(const Context& context, int64_t max_tokens,
                                        int64_t head_dim, int64_t value_dim);

// Softmax and sums are in fp32. Prefill is bound by D + Dv multiply-adds per pair of row and token,
// decode by reading each cached key and value once; a window limits both. Allocates nothing. Work
// is spread over rows and kv heads, and over segments when there are few rows. Error:
// kInvalidArgument, naming the tensor that does not fit; the ids of the batch must have been
// checked (check_batch()).
Status paged_attention(Context& context, const PagedAttentionArgs& args);
Status paged_attention_cpu(CpuContext& context, const PagedAttentionArgs& args);    // args checked
Status paged_attention_cuda(CudaContext& context, const PagedAttentionArgs& args);  // args checked

// The properties of a layer that, together with a step's lengths, decide which kernels a GPU uses.
struct AttentionForm {
  DType activations = DType::kF32;
  DType pages = DType::kF32;
  int64_t head_dim = 0;
  int64_t value_dim = 0;
  bool is_latent = false;  // true: values are a part of the keys
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

// Names the attention kernels that a GPU uses for layers of this form, for the log.
[[nodiscard]] std::string describe_attention_cuda(const CudaContext& context,
                                                  const AttentionForm& form);

// As paged_attention_cuda() without the append: the keys and values of the step are in the pages
// already.
Status attend_to_pages_cuda(CudaContext& context, const PagedAttentionArgs& args);  // args checked

}  // namespace heddle::ops
