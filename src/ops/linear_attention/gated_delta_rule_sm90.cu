// SPDX-License-Identifier: Apache-2.0
// Host code of the chunked gated delta rule: whether it supports a step, its workspace, its
// launches (docs/delta-rule.md). Its kernels are in the files
// delta_rule_{plan,prepare,scan,stream}_sm90.cu. Flops and bytes: gated_delta_rule_sm90.h. Used on
// Hopper in fast mode, bf16, Dk = Dv = 128, one decay a head, for sequences of at least
// kSm90MinRows rows of a step without trees.
#include <cstdint>

#include "device/cuda/cuda_device.h"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/linear_attention/delta_rule_chunks_sm90.cuh"
#include "ops/linear_attention/gated_delta_rule_sm90.h"

namespace heddle::ops {

namespace {

using chunked::Chunk;
using chunked::Factors;
using chunked::kTokens;
using chunked::kWidth;
using chunked::Span;

// Room for chunks that snapshots add to those of sequences of at least kSm90MinRows rows. A step
// with more snapshots than that does not use this form.
constexpr int64_t kCuts = 16;

static_assert(kSm90MinRows >= kTokens, "most_chunks() counts on it");

int64_t capacity_of(int64_t max_tokens) { return chunked::most_chunks(max_tokens) + kCuts; }

bool is_supported(const CudaContext& context, const GatedDeltaRuleSizes& sizes) {
  return context.gpu.properties().major == 9 && !context.exact && sizes.dtype == DType::kBf16 &&
         sizes.key_dim == kWidth && sizes.value_dim == kWidth && !sizes.channel_decay &&
         sizes.max_tokens >= kSm90MinRows;
}

// The number of sequences with enough rows, and of their chunks.
struct Work {
  int64_t sequences = 0;
  int64_t chunks = 0;
};

// Counts the chunks that plan_chunks() will list. The device reduces positions only for sequences
// of one row (drafting/feed_drawn.h), which have no chunks, so that the count stays right.
Work count_work(const ForwardContext& forward) {
  Work work;
  auto snapshot = forward.snapshots.begin();
  for (int64_t b = 0; b < forward.num_sequences(); ++b) {
    const auto rows = static_cast<int32_t>(forward.num_rows(b));
    while (snapshot != forward.snapshots.end() && snapshot->sequence < b) ++snapshot;
    if (rows < kSm90MinRows) continue;
    ++work.sequences;
    const int32_t context_len = forward.context_lens[static_cast<size_t>(b)];
    Span stretch{.begin = context_len};
    for (; snapshot != forward.snapshots.end() && snapshot->sequence == b; ++snapshot) {
      stretch.end = context_len + snapshot->num_tokens;
      work.chunks += stretch.num_chunks();
      stretch.begin = stretch.end;
    }
    stretch.end = context_len + rows;
    work.chunks += stretch.num_chunks();
  }
  return work;
}

}  // namespace

int64_t gated_delta_rule_sm90_workspace_bytes(const CudaContext& context,
                                              const GatedDeltaRuleSizes& sizes) {
  if (!is_supported(context, sizes)) return 0;
  const int64_t chunks = capacity_of(sizes.max_tokens);
  const int64_t sequences = sizes.max_tokens / kSm90MinRows;
  return chunks * (sizes.num_value_heads * static_cast<int64_t>(sizeof(Factors) + sizeof(int32_t)) +
                   static_cast<int64_t>(sizeof(Chunk))) +
         bytes_of(DType::kI32, 2 * sequences + 2) + 256;
}

bool gated_delta_rule_sm90_fits(const CudaContext& context, const GatedDeltaRuleArgs& args) {
  const int64_t num_value_heads = args.b.shape[1];
  return is_supported(context, {.max_tokens = args.qkv.shape[0],
                                .num_value_heads = num_value_heads,
                                .key_dim = args.key_dim,
                                .value_dim = args.value_dim,
                                .channel_decay = args.a.shape[1] != num_value_heads,
                                .dtype = args.qkv.dtype}) &&
         args.beta_scale == 1 &&
         num_value_heads / args.num_key_heads <= chunked::kMostHeadsPerKey &&
         sm90::can_map(args.qkv) && sm90::can_map(args.y) &&
         count_work(*args.forward).chunks <= capacity_of(args.qkv.shape[0]);
}

Status gated_delta_rule_sm90(CudaContext& context, const GatedDeltaRuleArgs& args) {
  const ForwardContext& forward = *args.forward;
  const Work work = count_work(forward);
  if (work.sequences == 0) return {};
  const int64_t num_value_heads = args.b.shape[1];
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  chunked::Params params{.batch = forward.batch,
                         .num_sequences = static_cast<int32_t>(forward.num_sequences()),
                         .num_scanned = static_cast<int32_t>(work.sequences),
                         .num_key_heads = static_cast<int32_t>(args.num_key_heads),
                         .num_value_heads = static_cast<int32_t>(num_value_heads),
                         .a = args.a.as<float>(),
                         .b = args.b.as<float>(),
                         .neg_exp_a_log = args.neg_exp_a_log.as<float>(),
                         .dt_bias = args.dt_bias.as<float>(),
                         .a_stride = args.a.row_stride,
                         .b_stride = args.b.row_stride,
                         .y = args.y.as<CudaBf16>(),
                         .y_stride = args.y.row_stride,
                         .state = args.state.recurrent.as<float>(),
                         .state_stride = args.state.recurrent.row_stride,
                         .snapshots = {.data = snapshots.data,
                                       .scales = args.snapshots.scales.as<float>(),
                                       .slot_stride = snapshots.row_stride,
                                       .scale_stride = args.snapshots.scales.row_stride,
                                       .Dk = kWidth,
                                       .dtype = snapshots.dtype}};
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(args.qkv, kTokens, params.qkv));
  const auto start = reinterpret_cast<uintptr_t>(args.workspace.data());
  std::byte* next = args.workspace.data() + (256 - start % 256) % 256;
  params.factors = reinterpret_cast<Factors*>(next);
  next += work.chunks * num_value_heads * static_cast<int64_t>(sizeof(Factors));
  params.chunks = reinterpret_cast<Chunk*>(next);
  next += work.chunks * static_cast<int64_t>(sizeof(Chunk));
  params.chunk_start = reinterpret_cast<int32_t*>(next);
  params.scanned = params.chunk_start + work.sequences + 1;
  params.num_listed = params.scanned + work.sequences;
  const bool streams = chunked::streams_chunks(context, work.sequences, num_value_heads);
  if (streams) params.prepared = params.num_listed + 1;

  HEDDLE_RETURN_IF_ERROR(chunked::plan_chunks(context, params));
  if (streams) return chunked::stream_chunks(context, params);
  HEDDLE_RETURN_IF_ERROR(chunked::prepare_chunks(context, params, work.chunks));
  return chunked::scan_chunks(context, params);
}

}  // namespace heddle::ops
