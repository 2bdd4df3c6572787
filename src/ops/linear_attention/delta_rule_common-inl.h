// SPDX-License-Identifier: Apache-2.0
// Functions that both forms of the delta rule share, compiled for each instruction set: normalised
// queries and keys, gates.
#if defined(HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_COMMON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_COMMON_INL_H_
#undef HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_COMMON_INL_H_
#else
#define HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_COMMON_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "ops/linear_attention/chunk_products-inl.h"
#include "ops/linear_attention/delta_rule_scratch.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::delta::HWY_NAMESPACE {

// to[t] = from[t] / sqrt(sum of squares + 1e-6) * scale, padded with zeros.
HWY_INLINE void normalise_rows(const float* from, int64_t stride, int64_t num_rows, int64_t width,
                               float scale, float* to) {
  const D d;
  const int64_t padded = padded_key_dim(width);
  for (int64_t t = 0; t < num_rows; ++t) {
    float* row = to + t * padded;
    std::memcpy(row, from + t * stride, static_cast<size_t>(width) * sizeof(float));
    std::fill(row + width, row + padded, 0.0f);
    const V factor = hn::Set(d, scale / std::sqrt(dot(row, row, padded) + 1e-6f));
    for (int64_t c = 0; c < padded; c += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row + c), factor), d, row + c);
    }
  }
}

// Writes normalised queries and keys of tokens [first, first + count) of the head to `scratch`.
HWY_INLINE void normalise_block(const DeltaRuleHead& head, int64_t first, int64_t count,
                                const DeltaScratch& scratch) {
  normalise_rows(head.k + first * head.k_stride, head.k_stride, count, head.key_dim, 1.0f,
                 scratch.k);
  normalise_rows(head.q + first * head.q_stride, head.q_stride, count, head.key_dim,
                 1.0f / std::sqrt(static_cast<float>(head.key_dim)), scratch.q);
}

// to[t] = log decays per channel of tokens [first, first + count); 0 in the padding.
HWY_INLINE void channel_log_decays(const DeltaRuleHead& head, int64_t first, int64_t count,
                                   float* to) {
  const D d;
  const ChannelDecay& channel = head.channel;
  const int64_t padded = padded_key_dim(head.key_dim);
  for (int64_t t = 0; t < count; ++t) {
    const float* f = channel.f + (first + t) * channel.stride;
    float* row = to + t * padded;
    for (int64_t c = 0; c < head.key_dim; ++c) row[c] = f[c] + channel.dt_bias[c];
    std::fill(row + head.key_dim, row + padded, 0.0f);
    for (int64_t c = 0; c < padded; c += kLanes) {
      const V soft = math::Softplus(d, hn::LoadU(d, row + c));
      hn::StoreU(hn::Mul(hn::Set(d, channel.neg_exp_a_log), soft), d, row + c);
    }
    std::fill(row + head.key_dim, row + padded, 0.0f);
  }
}

// to = a * b, `count` elements in whole vectors.
HWY_INLINE void multiply(const float* a, const float* b, int64_t count, float* to) {
  const D d;
  for (int64_t c = 0; c < count; c += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + c), hn::LoadU(d, b + c)), d, to + c);
  }
}

void gates(const DeltaGates& from, float* g, float* beta) {
  const D d;
  for (int64_t t = 0; t < from.num_tokens; t += kLanes) {
    const int64_t count = std::min(kLanes, from.num_tokens - t);
    HWY_ALIGN std::array<float, tile::kLanes> a{};
    HWY_ALIGN std::array<float, tile::kLanes> b{};
    for (int64_t i = 0; i < count; ++i) {
      if (from.a != nullptr) a[static_cast<size_t>(i)] = from.a[(t + i) * from.a_stride];
      b[static_cast<size_t>(i)] = from.b[(t + i) * from.b_stride];
    }
    const V soft = math::Softplus(d, hn::Add(hn::Load(d, a.data()), hn::Set(d, from.dt_bias)));
    hn::Store(hn::Mul(hn::Set(d, from.neg_exp_a_log), soft), d, a.data());
    const V rate = math::Sigmoid(d, hn::Load(d, b.data()));
    hn::Store(hn::Mul(hn::Set(d, from.beta_scale), rate), d, b.data());
    if (from.a != nullptr) std::copy_n(a.begin(), count, g + t);
    std::copy_n(b.begin(), count, beta + t);
  }
}

}  // namespace heddle::ops::delta::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_LINEAR_ATTENTION_DELTA_RULE_COMMON_INL_H_
