// SPDX-License-Identifier: Apache-2.0
// The recurrent form of the delta rule, compiled for each instruction set. The state keeps the
// pool's layout, one row of Dk for each value channel. With s such a row before the token,
//
//   e = v - alpha (s.k)     y = alpha (s.q) + beta e (k.q)     s <- alpha s + beta e k
//
// where alpha may be one number per channel; then alpha (s.k) is computed as s.(alpha k). Both dot
// products need only the old row. Therefore one pass over a row applies a token's update and
// computes the next token's dot products. Sixteen rows share their horizontal sums, and a slab of
// kDeltaSlabRows rows stays in the first-level cache.
#if defined(HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_RECURRENT_INL_H_
#undef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_RECURRENT_INL_H_
#else
#define HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_RECURRENT_INL_H_
#endif

#include "ops/linear_attention/delta_rule_common-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::delta::HWY_NAMESPACE {

inline constexpr int64_t kSetRows = static_cast<int64_t>(tile::kDotGroup);
inline constexpr int64_t kMaxSets = kDeltaSlabRows / kSetRows;

// The contribution of a token to the update of the state.
struct DeltaToken {
  const float* k = nullptr;
  // Vector multiplied with the old rows: k, or alpha k with a decay per channel.
  const float* read_k = nullptr;
  const float* read_q = nullptr;
  const float* alphas = nullptr;  // exp(g), the decay of each channel
  float alpha = 0;                // exp(g), the decay, if it is one number for all channels
  float beta = 0;
  float kq = 0;
};

// Sixteen rows of the state and the weights of the update that is still to be applied to them.
struct DeltaSet {
  // Pointers to the rows; a row of zeros stands for missing ones.
  std::array<float*, static_cast<size_t>(kSetRows)> rows{};
  // beta e of the last token, by row
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> weights{};
  int64_t num_rows = 0;
};

// First s <- alpha s + weight k with token `last`, for four rows; then their dot products with
// token `now`.
template <bool kChannels, bool kUpdate, bool kDots>
HWY_INLINE void pass_rows(float* const* rows, const float* weights, const DeltaToken& last,
                          const DeltaToken& now, int64_t padded, float* dots_k, float* dots_q) {
  const D d;
  V sum_k[4];
  V sum_q[4];
  V weight[4];
  HEDDLE_UNROLL
  for (int r = 0; r < 4; ++r) {
    sum_k[r] = hn::Zero(d);
    sum_q[r] = hn::Zero(d);
    if constexpr (kUpdate) weight[r] = hn::Set(d, weights[r]);
  }
  float* const row[4] = {rows[0], rows[1], rows[2], rows[3]};
  V alpha = hn::Set(d, last.alpha);
  for (int64_t c = 0; c < padded; c += kLanes) {
    V last_k, k, q;
    if constexpr (kUpdate) last_k = hn::LoadU(d, last.k + c);
    if constexpr (kUpdate && kChannels) alpha = hn::LoadU(d, last.alphas + c);
    if constexpr (kDots) {
      k = hn::LoadU(d, now.read_k + c);
      q = hn::LoadU(d, now.read_q + c);
    }
    HEDDLE_UNROLL
    for (int r = 0; r < 4; ++r) {
      V s = hn::LoadU(d, row[r] + c);
      if constexpr (kUpdate) {
        s = hn::MulAdd(weight[r], last_k, hn::Mul(alpha, s));
        hn::StoreU(s, d, row[r] + c);
      }
      if constexpr (kDots) {
        sum_k[r] = hn::MulAdd(s, k, sum_k[r]);
        sum_q[r] = hn::MulAdd(s, q, sum_q[r]);
      }
    }
  }
  if constexpr (kDots) {
#if HWY_TARGET == HWY_SCALAR
    for (int r = 0; r < 4; ++r) {
      hn::Store(sum_k[r], d, dots_k + r);
      hn::Store(sum_q[r], d, dots_q + r);
    }
#else
    hn::Store(tile::FoldLanes(d, sum_k[0], sum_k[1], sum_k[2], sum_k[3]), d, dots_k);
    hn::Store(tile::FoldLanes(d, sum_q[0], sum_q[1], sum_q[2], sum_q[3]), d, dots_q);
#endif
  }
}

// Applies token `last` (if any) to the rows of a set, then computes the outputs of token `now`.
template <bool kChannels, bool kUpdate>
HWY_INLINE void step_set(DeltaSet& set, const DeltaToken& last, const DeltaToken& now,
                         int64_t padded, const float* v, float* y) {
  const D d;
  constexpr size_t kUnit = tile::kLanes < 4 ? 4 : tile::kLanes;
  HWY_ALIGN float dots_k[4 * kUnit];
  HWY_ALIGN float dots_q[4 * kUnit];
  for (size_t r = 0; r < 4; ++r) {
    pass_rows<kChannels, kUpdate, true>(set.rows.data() + 4 * r, set.weights.data() + 4 * r, last,
                                        now, padded, dots_k + r * kUnit, dots_q + r * kUnit);
  }
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> values{};
  HWY_ALIGN std::array<float, static_cast<size_t>(kSetRows)> outputs;
  std::copy_n(v, set.num_rows, values.data());
  const V alpha = hn::Set(d, kChannels ? 1.0f : now.alpha);
  for (size_t j = 0; j < static_cast<size_t>(kSetRows); j += tile::kLanes) {
    const size_t at = tile::kLanes < 4 ? j : j / 4 * kUnit;
    const V sk = tile::FoldBlocks(d, dots_k + at);
    const V sq = tile::FoldBlocks(d, dots_q + at);
    const V error = hn::NegMulAdd(alpha, sk, hn::Load(d, values.data() + j));
    const V weight = hn::Mul(hn::Set(d, now.beta), error);
    hn::Store(weight, d, set.weights.data() + j);
    hn::Store(hn::MulAdd(weight, hn::Set(d, now.kq), hn::Mul(alpha, sq)), d, outputs.data() + j);
  }
  std::copy_n(outputs.data(), set.num_rows, y);
}

// Applies all tokens of the head to up to kDeltaSlabRows value rows at `rows`, `padded` floats each
// and `stride` apart.
template <bool kChannels>
HWY_INLINE void recur_slab(const DeltaRuleHead& head, const DeltaScratch& scratch, float* rows,
                           int64_t stride, int64_t first_row, int64_t num_rows) {
  const int64_t padded = padded_key_dim(head.key_dim);
  float* zeros = scratch.slab + kDeltaSlabRows * padded;
  std::fill_n(zeros, padded, 0.0f);
  std::array<DeltaSet, static_cast<size_t>(kMaxSets)> sets;
  const int64_t num_sets = (num_rows + kSetRows - 1) / kSetRows;
  for (int64_t i = 0; i < num_sets * kSetRows; ++i) {
    DeltaSet& set = sets[static_cast<size_t>(i / kSetRows)];
    set.rows[static_cast<size_t>(i % kSetRows)] = i < num_rows ? rows + i * stride : zeros;
    set.num_rows = std::min(kSetRows, num_rows - i / kSetRows * kSetRows);
  }
  const float* v = head.v + first_row;
  float* y = head.y + first_row;
  for (int64_t block = 0; block < head.num_tokens; block += kDeltaTokenBlock) {
    const int64_t count = std::min(kDeltaTokenBlock, head.num_tokens - block);
    normalise_block(head, block, count, scratch);
    if constexpr (kChannels) {
      channel_log_decays(head, block, count, scratch.decay);
      exp_all(scratch.decay, count * padded, scratch.decay);
      multiply(scratch.decay, scratch.k, count * padded, scratch.faded_k);
      multiply(scratch.decay, scratch.q, count * padded, scratch.faded_q);
    } else {
      std::copy_n(head.g + block, count, scratch.weights);
      exp_all(scratch.weights, count, scratch.weights);
    }
    DeltaToken last;
    for (int64_t t = 0; t < count; ++t) {
      const float* k = scratch.k + t * padded;
      const float* q = scratch.q + t * padded;
      DeltaToken now{.k = k,
                     .read_k = kChannels ? scratch.faded_k + t * padded : k,
                     .read_q = kChannels ? scratch.faded_q + t * padded : q,
                     .alphas = scratch.decay + t * padded,
                     .alpha = kChannels ? 1.0f : scratch.weights[t],
                     .beta = head.beta[block + t],
                     .kq = dot(k, q, padded)};
      for (int64_t i = 0; i < num_sets; ++i) {
        DeltaSet& set = sets[static_cast<size_t>(i)];
        const float* set_v = v + (block + t) * head.v_stride + i * kSetRows;
        float* set_y = y + (block + t) * head.y_stride + i * kSetRows;
        if (t == 0) {
          step_set<kChannels, false>(set, last, now, padded, set_v, set_y);
        } else {
          step_set<kChannels, true>(set, last, now, padded, set_v, set_y);
        }
        if (t + 1 == count) {  // now, while the rows are still in the first-level cache
          for (size_t r = 0; r < static_cast<size_t>(kSetRows); r += 4) {
            pass_rows<kChannels, true, false>(set.rows.data() + r, set.weights.data() + r, now, now,
                                              padded, nullptr, nullptr);
          }
        }
      }
      last = now;
    }
  }
}

template <bool kChannels>
void recurrent_as(const DeltaRuleHead& head, float* memory) {
  const DeltaScratch scratch(memory, head.key_dim, head.value_dim, kChannels);
  const int64_t padded = padded_key_dim(head.key_dim);
  const int64_t Dk = head.key_dim;
  for (int64_t first = 0; first < head.value_dim; first += kDeltaSlabRows) {
    const int64_t num_rows = std::min(kDeltaSlabRows, head.value_dim - first);
    float* rows = head.state + first * Dk;
    if (Dk == padded) {
      recur_slab<kChannels>(head, scratch, rows, Dk, first, num_rows);
      continue;
    }
    std::fill_n(scratch.slab, num_rows * padded, 0.0f);
    for (int64_t r = 0; r < num_rows; ++r)
      std::copy_n(rows + r * Dk, Dk, scratch.slab + r * padded);
    recur_slab<kChannels>(head, scratch, scratch.slab, padded, first, num_rows);
    for (int64_t r = 0; r < num_rows; ++r)
      std::copy_n(scratch.slab + r * padded, Dk, rows + r * Dk);
  }
}

void recurrent(const DeltaRuleHead& head, float* memory) {
  if (head.channel.f != nullptr) {
    recurrent_as<true>(head, memory);
  } else {
    recurrent_as<false>(head, memory);
  }
}

}  // namespace heddle::ops::delta::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_RECURRENT_INL_H_
