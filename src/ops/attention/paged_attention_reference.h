// SPDX-License-Identifier: Apache-2.0
// Paged attention in plain loops and double: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/paged_attention.h"
#include "quant/small_floats.h"

namespace heddle::ops {

// One element of a KV page, dequantised.
inline double kv_element(const MutableTensorView& pool, double scale, int64_t page, int64_t index) {
  const int64_t at = page * pool.row_stride + index;
  switch (pool.dtype) {
    case DType::kBf16:
      return static_cast<double>(to_float(pool.as<Bf16>()[at]));
    case DType::kF16:
      return static_cast<double>(to_float(pool.as<F16>()[at]));
    case DType::kF8E4M3:
      return scale * static_cast<double>(to_float(pool.as<quant::E4M3>()[at]));
    default:
      return static_cast<double>(pool.as<float>()[at]);
  }
}

// The index of token j in its sequence's pages, for a row that sees it: nodes of a tree have
// consecutive ones.
inline int64_t place_of_token(const ForwardContext& forward, int64_t b, int64_t i, int64_t j) {
  if (j < forward.tree_start(b)) return j;
  int64_t node = -1;
  for (int64_t seen = forward.tree_start(b); seen <= j; ++seen) {
    do ++node;
    while ((forward.tree_mask(b, i) >> node & 1) == 0);
  }
  return forward.tree_start(b) + node;
}

// y [T, Nq * Dv]. The pages already hold the step's own keys and values.
inline std::vector<double> paged_attention_reference(const PagedAttentionArgs& args) {
  const ForwardContext& forward = *args.forward;
  const int64_t D = args.head_dim, Nkv = args.num_kv_heads, S = forward.page_size;
  const int64_t Nq = args.q.shape[1] / D, Dv = args.value_dim > 0 ? args.value_dim : D;
  const int64_t width = Nq * Dv;
  const bool latent = args.v.data == nullptr;
  const MutableTensorView& values = latent ? args.kv.k : args.kv.v;
  std::vector<double> y(static_cast<size_t>(args.q.shape[0] * width));
  for (int64_t b = 0; b < forward.num_sequences(); ++b) {
    for (int64_t i = 0; i < forward.num_rows(b); ++i) {
      const int64_t row = forward.query_start[static_cast<size_t>(b)] + i;
      const int64_t length = forward.position(b, i) + 1;
      for (int64_t h = 0; h < Nq; ++h) {
        const int64_t n = h * Nkv / Nq;
        const auto place = [&](int64_t token) { return place_of_token(forward, b, i, token); };
        const auto offset = [&](int64_t token, int64_t row_width, int64_t d) {
          return ((place(token) % S) * Nkv + n) * row_width + d;
        };
        const int64_t first = args.window > 0 ? std::max<int64_t>(0, length - args.window) : 0;
        std::vector<double> p(static_cast<size_t>(length));
        for (int64_t j = first; j < length; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < D; ++d) {
            dot += static_cast<double>(args.q.row<float>(row)[h * D + d]) *
                   kv_element(
                       args.kv.k,
                       static_cast<double>(latent && d < Dv ? args.kv.v_scale : args.kv.k_scale),
                       forward.pages(b, args.kv.table)[place(j) / S], offset(j, D, d));
          }
          p[static_cast<size_t>(j)] = dot * static_cast<double>(args.scale);
        }
        double max = *std::max_element(p.begin() + first, p.end());
        double sum = 0;
        if (args.sinks.data != nullptr) {
          const auto sink = static_cast<double>(args.sinks.as<float>()[h]);
          max = std::max(max, sink);
          sum = std::exp(sink - max);
        }
        for (int64_t j = first; j < length; ++j) {
          sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - max);
        }
        for (int64_t j = first; j < length; ++j) {
          for (int64_t d = 0; d < Dv; ++d) {
            y[static_cast<size_t>(row * width + h * Dv + d)] +=
                p[static_cast<size_t>(j)] / sum *
                kv_element(values, static_cast<double>(args.kv.v_scale),
                           forward.pages(b, args.kv.table)[place(j) / S],
                           offset(j, latent ? D : Dv, d));
          }
        }
      }
    }
  }
  return y;
}

}  // namespace heddle::ops
