// SPDX-License-Identifier: Apache-2.0
// A SIMD lane computes a channel, with the channel's state in N vectors.
#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear_attention/selective_scan.h"
#include "ops/linear_attention/snapshot_rows.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/selective_scan_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/math-inl.h"

#ifndef HEDDLE_OPS_SELECTIVE_SCAN_BLOCK_
#define HEDDLE_OPS_SELECTIVE_SCAN_BLOCK_

namespace heddle::ops::scan {

constexpr int64_t kMostLanes = 16;  // channels of a block, for every instruction set
constexpr int64_t kStateFloats = kMaxScanStates * kMostLanes;

// Channels [first, first + count) for some tokens; the pointers point to the first of these
// channels.
struct ScanBlock {
  const float* x = nullptr;
  const float* dt = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  const float* z = nullptr;
  float* y = nullptr;
  int64_t x_stride = 0, dt_stride = 0, b_stride = 0, c_stride = 0, z_stride = 0, y_stride = 0;
  const float* decay = nullptr;  // [N, kMostLanes], in the layout of `state`: zeros beyond `count`
  const float* dt_bias = nullptr;
  const float* skip = nullptr;
  float* state = nullptr;  // states of the channels [N, kMostLanes]
  int64_t count = 0;       // number of channels, at most kMostLanes
  int64_t N = 0;
};

}  // namespace heddle::ops::scan
#endif

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::scan::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// Loads the first `left` lanes of `from`; the others are zero.
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const float* from, int64_t left) {
  if (left >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN std::array<float, static_cast<size_t>(kMostLanes)> padded{};
  std::copy_n(from, left, padded.begin());
  return hn::Load(d, padded.data());
}

template <class D>
HWY_INLINE void store_lanes(D d, hn::Vec<D> value, int64_t left, float* to) {
  if (left >= static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(value, d, to);
  HWY_ALIGN std::array<float, static_cast<size_t>(kMostLanes)> padded;
  hn::Store(value, d, padded.data());
  std::copy_n(padded.begin(), left, to);
}

// Computes tokens [begin, end). Lanes are independent, and a channel's sum runs over ascending n.
void scan_tokens(const ScanBlock& block, int64_t begin, int64_t end) {
  const hn::CappedTag<float, static_cast<size_t>(kMostLanes)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t t = begin; t < end; ++t) {
    const float* b = block.b + t * block.b_stride;
    const float* c = block.c + t * block.c_stride;
    for (int64_t lane = 0; lane < block.count; lane += lanes) {
      const int64_t left = block.count - lane;
      const auto load = [&](const float* from)
                            HWY_ATTR { return load_lanes(d, from + lane, left); };
      const auto x = load(block.x + t * block.x_stride);
      const auto dt =
          math::Softplus(d, hn::Add(load(block.dt + t * block.dt_stride), load(block.dt_bias)));
      const auto input = hn::Mul(dt, x);
      auto sum = hn::Mul(load(block.skip), x);
      for (int64_t n = 0; n < block.N; ++n) {
        float* state = block.state + n * kMostLanes + lane;
        const auto decay =
            math::Exp(d, hn::Mul(dt, hn::LoadU(d, block.decay + n * kMostLanes + lane)));
        const auto h = hn::MulAdd(decay, hn::LoadU(d, state), hn::Mul(input, hn::Set(d, b[n])));
        hn::StoreU(h, d, state);
        sum = hn::MulAdd(h, hn::Set(d, c[n]), sum);
      }
      const auto z = load(block.z + t * block.z_stride);
      store_lanes(d, hn::Mul(sum, math::Silu(d, z)), left, block.y + t * block.y_stride + lane);
    }
  }
}

}  // namespace heddle::ops::scan::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace scan {

HWY_EXPORT(scan_tokens);

namespace {

// Fewest state numbers for which a second thread is used.
constexpr int64_t kMinStatesToShare = 4096;

// Transposes rows [count, N] to columns [N, kMostLanes]; to_rows() does the reverse.
void to_columns(const float* rows, int64_t count, int64_t N, float* columns) {
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t n = 0; n < N; ++n) columns[n * kMostLanes + lane] = rows[lane * N + n];
  }
}

void to_rows(const float* columns, int64_t count, int64_t N, float* rows) {
  for (int64_t lane = 0; lane < count; ++lane) {
    for (int64_t n = 0; n < N; ++n) rows[lane * N + n] = columns[n * kMostLanes + lane];
  }
}

void run_block(const SelectiveScanArgs& args, int64_t b, int64_t first, int64_t count) {
  const ForwardContext& forward = *args.forward;
  const int64_t N = args.b.shape[1];
  const int64_t start = forward.query_start[static_cast<size_t>(b)];
  const int64_t num_rows = forward.num_rows(b);
  const int64_t num_chain = forward.num_chain_rows(b);  // the rows after these are nodes of a tree
  const int64_t slot = forward.state_slots[static_cast<size_t>(b)];
  std::array<float, static_cast<size_t>(kStateFloats)> decay{}, state{}, rows{};
  const auto state_rows = [&](int64_t of_slot) {
    return args.state.recurrent.row<float>(of_slot) + first * N;
  };
  to_columns(args.neg_exp_a_log.row<float>(first), count, N, decay.data());
  if (forward.context_lens[static_cast<size_t>(b)] > 0) {
    to_columns(state_rows(slot), count, N, state.data());
  }
  const ScanBlock block{.x = args.x.row<float>(start) + first,
                        .dt = args.dt.row<float>(start) + first,
                        .b = args.b.row<float>(start),
                        .c = args.c.row<float>(start),
                        .z = args.z.row<float>(start) + first,
                        .y = args.y.row<float>(start) + first,
                        .x_stride = args.x.row_stride,
                        .dt_stride = args.dt.row_stride,
                        .b_stride = args.b.row_stride,
                        .c_stride = args.c.row_stride,
                        .z_stride = args.z.row_stride,
                        .y_stride = args.y.row_stride,
                        .decay = decay.data(),
                        .dt_bias = args.dt_bias.as<float>() + first,
                        .skip = args.skip.as<float>() + first,
                        .state = state.data(),
                        .count = count,
                        .N = N};
  int64_t done = 0;
  for (const StateSnapshot& snapshot : forward.snapshots_of(b)) {
    HWY_DYNAMIC_DISPATCH(scan_tokens)(block, done, snapshot.num_tokens);
    done = snapshot.num_tokens;
    to_rows(state.data(), count, N, rows.data());
    encode_snapshot_rows(rows.data(), count, N,
                         snapshot_rows(args.snapshots, snapshot.slot, first));
  }
  HWY_DYNAMIC_DISPATCH(scan_tokens)(block, done, num_chain);
  to_rows(state.data(), count, N, state_rows(slot));
  for (int64_t t = num_chain; t < num_rows; ++t) {
    // A node starts from the state after its parent.
    const int64_t parent = forward.parent_row(b, t) - (num_chain - 1);
    to_columns(state_rows(slot + parent), count, N, state.data());
    HWY_DYNAMIC_DISPATCH(scan_tokens)(block, t, t + 1);
    to_rows(state.data(), count, N, state_rows(slot + 1 + t - num_chain));
  }
}

}  // namespace

}  // namespace scan

Status selective_scan_cpu(CpuContext& context, const SelectiveScanArgs& args) {
  const int64_t C = args.x.shape[1];
  const int64_t num_blocks = (C + scan::kMostLanes - 1) / scan::kMostLanes;
  const int64_t num_tasks = args.forward->num_sequences() * num_blocks;
  const auto run = [&](int64_t task, int /*worker*/) {
    const int64_t first = task % num_blocks * scan::kMostLanes;
    scan::run_block(args, task / num_blocks, first, std::min(scan::kMostLanes, C - first));
  };
  if (args.x.shape[0] * C * args.b.shape[1] < scan::kMinStatesToShare) {
    for (int64_t task = 0; task < num_tasks; ++task) run(task, 0);
  } else {
    context.pool.parallel_for(num_tasks, run);
  }
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
