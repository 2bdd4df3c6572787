// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "ops/attention/segment_attention.h"
#include "ops/attention/segment_attention_unit.h"
#include "ops/cpu/scratch.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention/segment_attention_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"
#include "ops/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::segments::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;
namespace tile = heddle::ops::tile::HWY_NAMESPACE;

// Copies rows [first, first + count) of one head to `to`, multiplied by `scale` and padded with
// zeros to `padded` columns.
void GatherHead(const TensorView& x, int64_t first, int64_t count, int64_t column, int64_t width,
                int64_t padded, float scale, float* to) {
  for (int64_t i = 0; i < count; ++i, to += padded) {
    const float* from = x.row<float>(first + i) + column;
    for (int64_t c = 0; c < width; ++c) to[c] = from[c] * scale;
    std::fill(to + width, to + padded, 0.0f);
  }
}

// Replaces the scores of a row by exp(score - max), where max is the largest score so far, and
// updates *max and *sum. Returns the factor that adapts earlier sums to the new max.
float SoftmaxRow(float* scores, int64_t count, float* max, float* sum) {
  const tile::D d;
  constexpr auto kLanes = static_cast<int64_t>(tile::kLanes);
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(scores + count, scores + padded, kLowest);
  auto top = hn::Set(d, *max);
  for (int64_t j = 0; j < padded; j += kLanes) {
    top = hn::Max(top, hn::LoadU(d, scores + j));
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
  const auto base = hn::Set(d, largest);
  auto added = hn::Zero(d);
  for (int64_t j = 0; j < padded; j += kLanes) {
    const auto p = math::Exp(d, hn::Sub(hn::LoadU(d, scores + j), base));
    hn::StoreU(p, d, scores + j);
    added = hn::Add(added, p);
  }
  const float shrink = hn::GetLane(math::Exp(d, hn::Set(d, *max - largest)));
  *sum = *sum * shrink + hn::GetLane(hn::SumOfLanes(d, added));
  *max = largest;
  return shrink;
}

void AttendUnit(const SegmentAttentionArgs& args, const SegmentUnit& unit, int64_t head,
                const SegmentScratch& scratch) {
  constexpr auto kBlock = static_cast<size_t>(kSegmentBlock);
  const int64_t D = args.head_dim, padded = padded_segment_head(D), column = head * D;
  const auto width = static_cast<size_t>(padded);
  const int32_t* const bounds = args.segments.row<int32_t>(unit.first_row);
  const auto num_rows = static_cast<size_t>(unit.num_rows);
  GatherHead(args.q, unit.first_row, unit.num_rows, column, D, padded, args.scale, scratch.q);
  std::fill_n(scratch.output, num_rows * width, 0.0f);
  std::array<float, kBlock> max, sum{}, shrink;
  max.fill(-std::numeric_limits<float>::infinity());
  for (int64_t first = bounds[0]; first < bounds[1]; first += kSegmentBlock) {
    const int64_t count = std::min<int64_t>(kSegmentBlock, bounds[1] - first);
    GatherHead(args.k, first, count, column, D, padded, 1.0f, scratch.k);
    GatherHead(args.v, first, count, column, D, padded, 1.0f, scratch.v);
    std::array<const float*, kBlock> keys;
    for (size_t j = 0; j < kBlock; ++j) {
      keys[j] = scratch.k + std::min<int64_t>(static_cast<int64_t>(j), count - 1) * padded;
    }
    tile::DotRows(scratch.q, width, num_rows, keys.data(), static_cast<size_t>(count), width,
                  scratch.scores, kBlock);
    for (size_t r = 0; r < num_rows; ++r) {
      shrink[r] = SoftmaxRow(scratch.scores + r * kBlock, count, &max[r], &sum[r]);
    }
    constexpr auto kStep = static_cast<size_t>(tile::kTileRows);
    for (size_t r = 0; r < num_rows; r += kStep) {
      tile::AccumulateUpTo4<tile::Start::kScaled>(
          std::min(kStep, num_rows - r), {scratch.scores + r * kBlock, kBlock, 1},
          tile::StridedRows{scratch.v, width}, width, static_cast<size_t>(count), shrink.data() + r,
          scratch.output + r * width, width);
    }
  }
  for (size_t r = 0; r < num_rows; ++r) {
    float* y = args.y.row<float>(unit.first_row + static_cast<int64_t>(r)) + column;
    const float factor = 1.0f / sum[r];
    for (int64_t c = 0; c < D; ++c)
      y[c] = scratch.output[r * width + static_cast<size_t>(c)] * factor;
  }
}

}  // namespace heddle::ops::segments::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace segments {

HWY_EXPORT(AttendUnit);

static void attend_unit(const SegmentAttentionArgs& args, const SegmentUnit& unit, int64_t head,
                        const SegmentScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(AttendUnit)(args, unit, head, scratch);
}

}  // namespace segments

namespace {

using segments::kSegmentBlock;
using segments::padded_segment_head;
using segments::SegmentScratch;
using segments::SegmentUnit;

struct SegmentWorkspace {
  SegmentUnit* units = nullptr;
  SegmentScratch worker;  // memory of worker 0; that of the other workers follows
};

SegmentWorkspace lay_out_segments(Scratch& scratch, int64_t num_rows, int64_t head_dim,
                                  int num_threads) {
  const int64_t head = num_threads * kSegmentBlock * padded_segment_head(head_dim);
  return {.units = scratch.take<SegmentUnit>(num_rows),
          .worker = {.q = scratch.take<float>(head),
                     .k = scratch.take<float>(head),
                     .v = scratch.take<float>(head),
                     .output = scratch.take<float>(head),
                     .scores = scratch.take<float>(num_threads * kSegmentBlock * kSegmentBlock)}};
}

}  // namespace

int64_t segment_attention_workspace_bytes(const Context& context, int64_t num_rows,
                                          int64_t head_dim) {
  if (context.device != DeviceKind::kCpu) return 0;
  Scratch measure;
  const auto& cpu = static_cast<const CpuContext&>(context);
  lay_out_segments(measure, num_rows, head_dim, cpu.pool.num_threads());
  return measure.bytes();
}

Status segment_attention_cpu(CpuContext& context, const SegmentAttentionArgs& args) {
  const int64_t S = args.q.shape[0], D = args.head_dim, num_heads = args.q.shape[1] / D;
  Scratch scratch(args.workspace);
  const SegmentWorkspace workspace = lay_out_segments(scratch, S, D, context.pool.num_threads());
  int64_t num_units = 0;
  for (int64_t row = 0; row < S;) {
    const int64_t end = args.segments.row<int32_t>(row)[1];
    const int64_t count = std::min<int64_t>(kSegmentBlock, end - row);
    workspace.units[num_units++] = {.first_row = row, .num_rows = count};
    row += count;
  }
  const int64_t head = kSegmentBlock * padded_segment_head(D);
  const SegmentScratch& first = workspace.worker;
  context.pool.parallel_for(num_units * num_heads, [&](int64_t task, int worker) {
    const SegmentScratch own{.q = first.q + worker * head,
                             .k = first.k + worker * head,
                             .v = first.v + worker * head,
                             .output = first.output + worker * head,
                             .scores = first.scores + worker * kSegmentBlock * kSegmentBlock};
    segments::attend_unit(args, workspace.units[task / num_heads], task % num_heads, own);
  });
  return {};
}

}  // namespace heddle::ops

#endif
