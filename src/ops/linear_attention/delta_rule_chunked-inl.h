// SPDX-License-Identifier: Apache-2.0
// The chunked form of the delta rule, compiled for each instruction set: the tokens of a chunk act
// on the state together, as matrix products. With G the cumulative log decay inside the chunk and
// E_ij = exp(G_i - G_j) for j <= i,
//
//   N = (I + A)^-1 diag(beta) (V - diag(exp G) K S)      A_ij = beta_i (k_i . k_j) E_ij, j < i
//   Y = diag(exp G) Q S + P N                            P_ij = (q_i . k_j) E_ij, j <= i
//   S <- exp(G_last) S + K' diag(exp(G_last - G)) N
//
// With a decay per channel c, G and E have an index c and are inside the sums over c:
//
//   A_ij = beta_i sum over c of k_i k_j E_ij, P likewise;  K S and Q S use exp(G) K and exp(G) Q;
//   S <- diag(exp(G_last)) S + (exp(G_last - G) K)' N
//
// The triangular system is solved by substitution; the inverse is never formed. Only differences of
// G are exponentiated: exp(-G) alone would overflow for strongly decaying heads. The state is kept
// in panels [Dk, 64] with value rows as columns, so that no product needs horizontal sums.
#if defined(HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_CHUNKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_CHUNKED_INL_H_
#undef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_CHUNKED_INL_H_
#else
#define HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_CHUNKED_INL_H_
#endif

#include "ops/linear_attention/chunk_products-inl.h"
#include "ops/linear_attention/delta_rule_common-inl.h"
#include "ops/linear_attention/snapshot_rows.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::delta::HWY_NAMESPACE {

// fade += step, then to = exp(fade) * from, for `count` channels in whole vectors; to may be from.
HWY_INLINE void fade_row(const float* step, const float* from, int64_t count, float* fade,
                         float* to) {
  const D d;
  for (int64_t c = 0; c < count; c += kLanes) {
    const V sum = hn::Add(hn::LoadU(d, fade + c), hn::LoadU(d, step + c));
    hn::StoreU(sum, d, fade + c);
    hn::StoreU(hn::Mul(hn::LoadU(d, from + c), math::Exp(d, sum)), d, to + c);
  }
}

// Computes what a chunk with a decay per channel needs that does not depend on the state: exp(G) K
// and exp(G) Q, which read the state, in faded_k and faded_q; exp(G_last - G) K, which updates it,
// in k; exp(G_last) in the slab, which the chunked form does not use otherwise. A chunk is so short
// that all pairs (i, j) are computed one by one: no common offset would keep all exponents at or
// below 0. E_ij is summed up from i back to j, because the difference G_i - G_j would be inexact
// after a strong decay before j.
// leaves of them.
HWY_INLINE void prepare_channel_chunk(const DeltaRuleHead& head, const DeltaScratch& scratch,
                                      const Chunk& chunk) {
  const D d;
  const int64_t padded = chunk.padded;
  const int64_t last = chunk.count - 1;
  normalise_block(head, chunk.first, chunk.count, scratch);
  channel_log_decays(head, chunk.first, chunk.count, scratch.decay);
  const auto g = [&](int64_t i) { return scratch.decay + i * padded; };
  const auto k = [&](int64_t i) { return scratch.k + i * padded; };
  const auto q = [&](int64_t i) { return scratch.q + i * padded; };
  float* fade = scratch.slab;
  float* faded = scratch.slab + padded;
  for (int64_t i = 0; i <= last; ++i) {
    std::fill_n(fade, padded, 0.0f);
    scratch.qk[i * kDeltaChunk + i] = dot(q(i), k(i), padded);
    for (int64_t j = i - 1; j >= 0; --j) {
      fade_row(g(j + 1), k(j), padded, fade, faded);
      scratch.kk[i * kDeltaChunk + j] = -head.beta[chunk.first + i] * dot(k(i), faded, padded);
      scratch.qk[i * kDeltaChunk + j] = dot(q(i), faded, padded);
    }
  }
  std::fill_n(fade, padded, 0.0f);
  for (int64_t i = 0; i <= last; ++i) {
    fade_row(g(i), k(i), padded, fade, scratch.faded_k + i * padded);
    for (int64_t c = 0; c < padded; c += kLanes) {
      const V read = math::Exp(d, hn::LoadU(d, fade + c));
      hn::StoreU(hn::Mul(hn::LoadU(d, q(i) + c), read), d, scratch.faded_q + i * padded + c);
    }
  }
  exp_all(fade, padded, fade);
  float* to_end = scratch.slab + padded;
  std::fill_n(to_end, padded, 0.0f);
  for (int64_t i = last - 1; i >= 0; --i) fade_row(g(i + 1), k(i), padded, to_end, k(i));
}

// Computes what a chunk with one decay per token needs that does not depend on the state.
HWY_INLINE void prepare_chunk(const DeltaRuleHead& head, const DeltaScratch& scratch,
                              Chunk& chunk) {
  const D d;
  normalise_block(head, chunk.first, chunk.count, scratch);
  lower_products(scratch.k, scratch.k, chunk.count, chunk.padded, scratch.kk);
  lower_products(scratch.q, scratch.k, chunk.count, chunk.padded, scratch.qk);

  HWY_ALIGN std::array<float, static_cast<size_t>(kDeltaChunk)> G{};
  fill_decays(head.g + chunk.first, chunk, G.data());
  for (int64_t i = 0; i < chunk.count; ++i) {
    const V row_G = hn::Set(d, G[static_cast<size_t>(i)]);
    const V minus_beta = hn::Set(d, -head.beta[chunk.first + i]);
    for (int64_t j = 0; j <= i; j += kLanes) {
      // For j > i the difference is positive and exp may overflow: it is limited to 0, and the
      // result is never read.
      const V difference = hn::Min(hn::Sub(row_G, hn::LoadU(d, G.data() + j)), hn::Zero(d));
      const V E = math::Exp(d, difference);
      float* kk = scratch.kk + i * kDeltaChunk + j;
      float* qk = scratch.qk + i * kDeltaChunk + j;
      hn::StoreU(hn::Mul(hn::Mul(minus_beta, hn::LoadU(d, kk)), E), d, kk);
      hn::StoreU(hn::Mul(hn::LoadU(d, qk), E), d, qk);
    }
  }
}

// values = beta (v - exp(G) K S) for the columns of a panel; with kChannels, K contains exp(G)
// already.
template <bool kChannels>
HWY_INLINE void start_values(const DeltaRuleHead& head, const Chunk& chunk,
                             const DeltaScratch& scratch, int64_t first_column,
                             int64_t num_columns) {
  const D d;
  HWY_ALIGN std::array<float, kPanelWidth> v{};
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::copy_n(head.v + (chunk.first + i) * head.v_stride + first_column, num_columns, v.data());
    const V decay = hn::Set(d, kChannels ? 1.0f : chunk.decay[static_cast<size_t>(i)]);
    const V beta = hn::Set(d, head.beta[chunk.first + i]);
    float* row = scratch.values + i * kPanel;
    for (int64_t c = 0; c < kPanel; c += kLanes) {
      const V error = hn::NegMulAdd(decay, hn::LoadU(d, row + c), hn::Load(d, v.data() + c));
      hn::StoreU(hn::Mul(beta, error), d, row + c);
    }
  }
}

// Applies one chunk to one panel of the state.
template <bool kChannels>
HWY_NOINLINE void advance_panel(const DeltaRuleHead& head, const Chunk& chunk,
                                const DeltaScratch& scratch, float* state, int64_t first_column,
                                int64_t num_columns) {
  const D d;
  const auto width = static_cast<size_t>(chunk.padded);
  const tile::StridedRows state_rows{state, kPanelWidth};
  for (int64_t i = 0; i < chunk.count; i += tile::kTileRows) {
    const auto n = static_cast<size_t>(std::min<int64_t>(tile::kTileRows, chunk.count - i));
    const tile::Coefficients k{(kChannels ? scratch.faded_k : scratch.k) + i * chunk.padded, width,
                               1};
    const tile::Coefficients q{(kChannels ? scratch.faded_q : scratch.q) + i * chunk.padded, width,
                               1};
    tile::AccumulateUpTo4<tile::Start::kZero>(n, k, state_rows, kPanelWidth, width, nullptr,
                                              scratch.values + i * kPanel, kPanelWidth);
    tile::AccumulateUpTo4<tile::Start::kZero>(n, q, state_rows, kPanelWidth, width, nullptr,
                                              scratch.outputs + i * kPanel, kPanelWidth);
  }
  start_values<kChannels>(head, chunk, scratch, first_column, num_columns);
  add_lower<tile::Start::kValue>(scratch.kk, scratch.values, chunk.count, 0, nullptr,
                                 scratch.values);
  if constexpr (kChannels) {
    add_lower<tile::Start::kValue>(scratch.qk, scratch.values, chunk.count, 1, nullptr,
                                   scratch.outputs);
  } else {
    add_lower<tile::Start::kScaled>(scratch.qk, scratch.values, chunk.count, 1, chunk.decay.data(),
                                    scratch.outputs);
  }
  for (int64_t i = 0; i < chunk.count; ++i) {
    std::copy_n(scratch.outputs + i * kPanel, num_columns,
                head.y + (chunk.first + i) * head.y_stride + first_column);
    // k contains exp(G_last - G) already, so the values are not multiplied by it
    if constexpr (kChannels) continue;
    const V to_end = hn::Set(d, chunk.to_end[static_cast<size_t>(i)]);
    float* row = scratch.values + i * kPanel;
    for (int64_t c = 0; c < kPanel; c += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + c), to_end), d, row + c);
    }
  }
  std::array<float, static_cast<size_t>(tile::kTileRows)> decay;
  if constexpr (!kChannels) decay.fill(chunk.decay[static_cast<size_t>(chunk.count - 1)]);
  for (int64_t c = 0; c < chunk.padded; c += tile::kTileRows) {
    tile::AccumulateRows<tile::kTileRows, tile::Start::kScaled>(
        {scratch.k + c, 1, width}, tile::StridedRows{scratch.values, kPanelWidth}, kPanelWidth,
        static_cast<size_t>(chunk.count), kChannels ? scratch.slab + c : decay.data(),
        state + c * kPanel, kPanelWidth);
  }
}

template <bool kChannels>
void chunked_as(const DeltaRuleHead& head, const DeltaSnapshots& snapshots, float* memory) {
  const DeltaScratch scratch(memory, head.key_dim, head.value_dim, kChannels);
  const int64_t padded = padded_key_dim(head.key_dim);
  const int64_t num_panels = num_delta_panels(head.value_dim);
  const auto for_panels = [&](const auto& body) {
    for (int64_t p = 0; p < num_panels; ++p) {
      const int64_t first = p * kPanel;
      body(scratch.panels + p * padded * kPanel, first, std::min(kPanel, head.value_dim - first));
    }
  };
  for_panels([&](float* panel, int64_t first, int64_t columns) {
    if (columns < kPanel || padded != head.key_dim) std::fill_n(panel, padded * kPanel, 0.0f);
    transpose(head.state + first * head.key_dim, head.key_dim, columns, head.key_dim, panel,
              kPanel);
  });
  const auto write_state = [&](float* state) {
    for_panels([&](const float* panel, int64_t first, int64_t columns) {
      transpose(panel, kPanel, head.key_dim, columns, state + first * head.key_dim, head.key_dim);
    });
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
  Chunk chunk{.padded = padded};
  for (int64_t first = 0; first < head.num_tokens; first += chunk.count) {
    const int64_t uncut_end = (first / kDeltaChunk + 1) * kDeltaChunk;
    int64_t chunk_end = std::min(uncut_end, head.num_tokens);
    if (snapshot != end) chunk_end = std::min<int64_t>(chunk_end, snapshot->num_tokens);
    chunk.first = first;
    chunk.count = chunk_end - first;
    if constexpr (kChannels) {
      prepare_channel_chunk(head, scratch, chunk);
    } else {
      prepare_chunk(head, scratch, chunk);
    }
    for_panels([&](float* panel, int64_t first_column, int64_t columns) {
      advance_panel<kChannels>(head, chunk, scratch, panel, first_column, columns);
    });
    for (; snapshot != end && snapshot->num_tokens == chunk_end; ++snapshot) {
      save(snapshot->slot);
    }
  }
  write_state(head.state);
}

void chunked(const DeltaRuleHead& head, const DeltaSnapshots& snapshots, float* memory) {
  if (head.channel.f != nullptr) {
    chunked_as<true>(head, snapshots, memory);
  } else {
    chunked_as<false>(head, snapshots, memory);
  }
}

}  // namespace heddle::ops::delta::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_CHUNKED_INL_H_
