// SPDX-License-Identifier: Apache-2.0
// Decayed linear attention of a head in two forms, compiled for each instruction set. Token by
// token, the state keeps the layout of the pool, one row of Dk for each value channel: one pass
// over a row updates it and multiplies it with q. In chunks, with G the cumulative log decay inside
// the chunk and E_ij = exp(G_i - G_j) for j <= i,
//
//   Y = diag(exp G) Q S + P V + skip V'        P_ij = (q_i . k_j) E_ij, j <= i;  V = dt V'
//   S <- exp(G_last) S + K' diag(exp(G_last - G)) V
//
// over panels of the state (chunk_products-inl.h). Unlike the delta rule, it has no triangular
// system to solve: a token's value does not depend on the state.
#if defined(HEDDLE_OPS_LINEAR_ATTENTION_DECAYED_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LINEAR_ATTENTION_DECAYED_HEAD_INL_H_
#undef HEDDLE_OPS_LINEAR_ATTENTION_DECAYED_HEAD_INL_H_
#else
#define HEDDLE_OPS_LINEAR_ATTENTION_DECAYED_HEAD_INL_H_
#endif

#include "ops/linear_attention/chunk_products-inl.h"
#include "ops/linear_attention/decayed_head.h"
#include "ops/linear_attention/snapshot_rows.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::decayed::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;
namespace tile = heddle::ops::tile::HWY_NAMESPACE;
namespace chunks = heddle::ops::delta::HWY_NAMESPACE;

using D = tile::D;
using V = tile::V;
using chunks::kLanes;
using chunks::kPanel;
using chunks::kPanelWidth;

inline constexpr auto kSetRows = static_cast<int64_t>(tile::kDotGroup);

// dt[t] = clamp(softplus(a[t] + bias), low, high).
void time_steps(const float* a, int64_t stride, int64_t num_tokens, float bias, float low,
                float high, float* dt) {
  const D d;
  for (int64_t t = 0; t < num_tokens; t += kLanes) {
    const int64_t count = std::min(kLanes, num_tokens - t);
    HWY_ALIGN std::array<float, tile::kLanes> x{};
    for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] = a[(t + i) * stride];
    const V soft = math::Softplus(d, hn::Add(hn::Load(d, x.data()), hn::Set(d, bias)));
    hn::Store(hn::Min(hn::Max(soft, hn::Set(d, low)), hn::Set(d, high)), d, x.data());
    std::copy_n(x.begin(), count, dt + t);
  }
}

HWY_INLINE void copy_rows(const float* from, int64_t stride, int64_t num_rows, int64_t width,
                          float* to) {
  const int64_t padded = padded_key_dim(width);
  for (int64_t t = 0; t < num_rows; ++t) {
    std::copy_n(from + t * stride, width, to + t * padded);
    std::fill(to + t * padded + width, to + (t + 1) * padded, 0.0f);
  }
}

// Copies keys, queries and log decays of tokens [first, first + count) into `scratch`.
HWY_INLINE void copy_tokens(const DecayedHead& head, int64_t first, int64_t count,
                            const DecayedScratch& scratch) {
  copy_rows(head.k + first * head.stride, head.stride, count, head.key_dim, scratch.k);
  copy_rows(head.q + first * head.stride, head.stride, count, head.key_dim, scratch.q);
  for (int64_t t = 0; t < count; ++t) scratch.g[t] = head.dt[first + t] * head.decay;
}

// s <- alpha s + weight k for four rows s of the state, and the rows' dot products with q.
HWY_INLINE void pass_rows(float* const* rows, const float* weights, float alpha, const float* k,
                          const float* q, int64_t padded, float* dots) {
  const D d;
  V sum[4];
  V weight[4];
  HEDDLE_UNROLL
  for (int r = 0; r < 4; ++r) {
    sum[r] = hn::Zero(d);
    weight[r] = hn::Set(d, weights[r]);
  }
  float* const row[4] = {rows[0], rows[1], rows[2], rows[3]};
  const V fade = hn::Set(d, alpha);
  for (int64_t c = 0; c < padded; c += kLanes) {
    const V key = hn::LoadU(d, k + c);
    const V query = hn::LoadU(d, q + c);
    HEDDLE_UNROLL
    for (int r = 0; r < 4; ++r) {
      const V s = hn::MulAdd(weight[r], key, hn::Mul(fade, hn::LoadU(d, row[r] + c)));
      hn::StoreU(s, d, row[r] + c);
      sum[r] = hn::MulAdd(s, query, sum[r]);
    }
  }
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < 4; ++r) hn::Store(sum[r], d, dots + r);
#else
  hn::Store(tile::FoldLanes(d, sum[0], sum[1], sum[2], sum[3]), d, dots);
#endif
}

// Applies one token to up to sixteen rows of the state; `v` and `y` have the elements of these
// rows.
HWY_INLINE void step_set(float* const* rows, int64_t num_rows, float dt, float alpha, float skip,
                         const float* k, const float* q, int64_t padded, const float* v, float* y) {
  const D d;
  constexpr size_t kUnit = tile::kLanes < 4 ? 4 : tile::kLanes;
  HWY_ALIGN float dots[4 * kUnit];
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> values{};
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> weights;
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> outputs;
  std::copy_n(v, num_rows, values.data());
  for (size_t j = 0; j < static_cast<size_t>(kSetRows); j += tile::kLanes) {
    hn::Store(hn::Mul(hn::Set(d, dt), hn::Load(d, values.data() + j)), d, weights.data() + j);
  }
  for (size_t r = 0; r < 4; ++r) {
    pass_rows(rows + 4 * r, weights.data() + 4 * r, alpha, k, q, padded, dots + r * kUnit);
  }
  for (size_t j = 0; j < static_cast<size_t>(kSetRows); j += tile::kLanes) {
    const size_t at = tile::kLanes < 4 ? j : j / 4 * kUnit;
    const V read = tile::FoldBlocks(d, dots + at);
    hn::Store(hn::MulAdd(hn::Set(d, skip), hn::Load(d, values.data() + j), read), d,
              outputs.data() + j);
  }
  std::copy_n(outputs.data(), num_rows, y);
}

// Applies all tokens of the head to up to kDeltaSlabRows rows of the state at `rows`, `stride`
// floats apart.
HWY_INLINE void recur_slab(const DecayedHead& head, const DecayedScratch& scratch, float* rows,
                           int64_t stride, int64_t first_row, int64_t num_rows) {
  const int64_t padded = padded_key_dim(head.key_dim);
  float* zeros = scratch.slab + kDeltaSlabRows * padded;
  std::fill_n(zeros, padded, 0.0f);
  std::array<float*, static_cast<size_t>(kDeltaSlabRows)> pointers;
  for (int64_t i = 0; i < kDeltaSlabRows; ++i) {
    pointers[static_cast<size_t>(i)] = i < num_rows ? rows + i * stride : zeros;
  }
  for (int64_t block = 0; block < head.num_tokens; block += kDeltaTokenBlock) {
    const int64_t count = std::min(kDeltaTokenBlock, head.num_tokens - block);
    copy_tokens(head, block, count, scratch);
    chunks::exp_all(scratch.g, count, scratch.g);
    for (int64_t t = 0; t < count; ++t) {
      const float* v = head.v + (block + t) * head.stride + first_row;
      float* y = head.y + (block + t) * head.y_stride + first_row;
      for (int64_t i = 0; i < num_rows; i += kSetRows) {
        step_set(pointers.data() + i, std::min(kSetRows, num_rows - i), head.dt[block + t],
                 scratch.g[t], head.skip, scratch.k + t * padded, scratch.q + t * padded, padded,
                 v + i, y + i);
      }
    }
  }
}

void recurrent(const DecayedHead& head, float* memory) {
  const DecayedScratch scratch(memory, head.key_dim, head.value_dim);
  const int64_t padded = padded_key_dim(head.key_dim);
  const int64_t Dk = head.key_dim;
  for (int64_t first = 0; first < head.value_dim; first += kDeltaSlabRows) {
    const int64_t num_rows = std::min(kDeltaSlabRows, head.value_dim - first);
    float* rows = head.state + first * Dk;
    if (Dk == padded) {
      recur_slab(head, scratch, rows, Dk, first, num_rows);
      continue;
    }
    copy_rows(rows, Dk, num_rows, Dk, scratch.slab);
    recur_slab(head, scratch, scratch.slab, padded, first, num_rows);
    for (int64_t r = 0; r < num_rows; ++r)
      std::copy_n(scratch.slab + r * padded, Dk, rows + r * Dk);
  }
}

// Computes what a chunk needs that does not depend on the state.
HWY_INLINE void prepare_chunk(const DecayedHead& head, const DecayedScratch& scratch,
                              chunks::Chunk& chunk) {
  const D d;
  copy_tokens(head, chunk.first, chunk.count, scratch);
  chunks::lower_products(scratch.q, scratch.k, chunk.count, chunk.padded, scratch.qk);
  HWY_ALIGN std::array<float, static_cast<size_t>(kDeltaChunk)> G{};
  chunks::fill_decays(scratch.g, chunk, G.data());
  for (int64_t i = 0; i < chunk.count; ++i) {
    const V row_G = hn::Set(d, G[static_cast<size_t>(i)]);
    for (int64_t j = 0; j <= i; j += kLanes) {
      // For j > i the difference is positive and exp may overflow: it is limited to 0, and the
      // result is never read.
      const V difference = hn::Min(hn::Sub(row_G, hn::LoadU(d, G.data() + j)), hn::Zero(d));
      float* qk = scratch.qk + i * kDeltaChunk + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, qk), math::Exp(d, difference)), d, qk);
    }
  }
}

// to = from * factor for `count` numbers, in whole vectors.
HWY_INLINE void scale_row(const float* from, float factor, int64_t count, float* to) {
  const D d;
  const V factors = hn::Set(d, factor);
  for (int64_t c = 0; c < count; c += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + c), factors), d, to + c);
  }
}

// Applies one chunk to one panel of the state.
HWY_NOINLINE void advance_panel(const DecayedHead& head, const chunks::Chunk& chunk,
                                const DecayedScratch& scratch, float* state, int64_t first_column,
                                int64_t num_columns) {
  const D d;
  const auto width = static_cast<size_t>(chunk.padded);
  const tile::StridedRows state_rows{state, kPanelWidth};
  HWY_ALIGN std::array<float, kPanelWidth> v{};
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::copy_n(head.v + (chunk.first + i) * head.stride + first_column, num_columns, v.data());
    scale_row(v.data(), head.dt[chunk.first + i], kPanel, scratch.values + i * kPanel);
  }
  for (int64_t i = 0; i < chunk.count; i += tile::kTileRows) {
    const auto n = static_cast<size_t>(std::min<int64_t>(tile::kTileRows, chunk.count - i));
    tile::AccumulateUpTo4<tile::Start::kZero>(
        n, tile::Coefficients{scratch.q + i * chunk.padded, width, 1}, state_rows, kPanelWidth,
        width, nullptr, scratch.outputs + i * kPanel, kPanelWidth);
  }
  chunks::add_lower<tile::Start::kScaled>(scratch.qk, scratch.values, chunk.count, 1,
                                          chunk.decay.data(), scratch.outputs);
  const V skip = hn::Set(d, head.skip);
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::copy_n(head.v + (chunk.first + i) * head.stride + first_column, num_columns, v.data());
    float* out = scratch.outputs + i * kPanel;
    for (int64_t c = 0; c < kPanel; c += kLanes) {
      hn::StoreU(hn::MulAdd(skip, hn::Load(d, v.data() + c), hn::LoadU(d, out + c)), d, out + c);
    }
    std::copy_n(out, num_columns, head.y + (chunk.first + i) * head.y_stride + first_column);
    float* row = scratch.values + i * kPanel;
    scale_row(row, chunk.to_end[static_cast<size_t>(i)], kPanel, row);
  }
  std::array<float, static_cast<size_t>(tile::kTileRows)> decay;
  decay.fill(chunk.decay[static_cast<size_t>(chunk.count - 1)]);
  for (int64_t c = 0; c < chunk.padded; c += tile::kTileRows) {
    tile::AccumulateRows<tile::kTileRows, tile::Start::kScaled>(
        {scratch.k + c, 1, width}, tile::StridedRows{scratch.values, kPanelWidth}, kPanelWidth,
        static_cast<size_t>(chunk.count), decay.data(), state + c * kPanel, kPanelWidth);
  }
}

void chunked(const DecayedHead& head, const DeltaSnapshots& snapshots, float* memory) {
  const DecayedScratch scratch(memory, head.key_dim, head.value_dim);
  const int64_t padded = padded_key_dim(head.key_dim);
  const int64_t num_panels = num_delta_panels(head.value_dim);
  const auto panel_of = [&](int64_t p) { return scratch.panels + p * padded * kPanel; };
  const auto columns_of = [&](int64_t p) { return std::min(kPanel, head.value_dim - p * kPanel); };
  for (int64_t p = 0; p < num_panels; ++p) {
    if (columns_of(p) < kPanel || padded != head.key_dim) {
      std::fill_n(panel_of(p), padded * kPanel, 0.0f);
    }
    chunks::transpose(head.state + p * kPanel * head.key_dim, head.key_dim, columns_of(p),
                      head.key_dim, panel_of(p), kPanel);
  }
  const auto write_state = [&](float* state) {
    for (int64_t p = 0; p < num_panels; ++p) {
      chunks::transpose(panel_of(p), kPanel, head.key_dim, columns_of(p),
                        state + p * kPanel * head.key_dim, head.key_dim);
    }
  };
  const auto save = [&](int64_t slot) {
    const SnapshotRows to = snapshot_rows(snapshots.layer, slot, snapshots.first_row);
    if (to.dtype == DType::kF32) {
      write_state(static_cast<float*>(to.data));
    } else {
      write_state(head.state);
      encode_snapshot_rows(head.state, head.value_dim, head.key_dim, to);
    }
  };
  auto snapshot = snapshots.wanted.begin();
  const auto end = snapshots.wanted.end();
  chunks::Chunk chunk{.padded = padded};
  for (int64_t first = 0; first < head.num_tokens; first += chunk.count) {
    int64_t chunk_end = std::min((first / kDeltaChunk + 1) * kDeltaChunk, head.num_tokens);
    if (snapshot != end) chunk_end = std::min<int64_t>(chunk_end, snapshot->num_tokens);
    chunk.first = first;
    chunk.count = chunk_end - first;
    prepare_chunk(head, scratch, chunk);
    for (int64_t p = 0; p < num_panels; ++p) {
      advance_panel(head, chunk, scratch, panel_of(p), p * kPanel, columns_of(p));
    }
    for (; snapshot != end && snapshot->num_tokens == chunk_end; ++snapshot) save(snapshot->slot);
  }
  write_state(head.state);
}

}  // namespace heddle::ops::decayed::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_LINEAR_ATTENTION_DECAYED_HEAD_INL_H_
