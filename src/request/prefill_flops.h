// SPDX-License-Identifier: Apache-2.0
// PrefillFlops: how much work a model has to compute the first tokens of a sequence. Eviction
// compares prefixes by it (cache/eviction_score.h); models/count_prefill_flops.h computes it from a
// model.
//
//     F(L) = per_token * L + per_pair * L^2 + per_window_pair * min(L, W) * (2 L - min(L, W))
//
// Causal attention of L tokens computes L^2 / 2 pairs, so per_pair is half the multiplications and
// additions of a pair. Layers with a window of W tokens attend to no more than W tokens each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::request {

// The cost of a model. All values 0 mean that it was never set (is_set()).
struct PrefillFlops {
  double per_token = 0;
  double per_pair = 0;
  double per_window_pair = 0;
  int64_t window = 0;  // window of the layers with a window, in tokens; 0: no layer has one

  [[nodiscard]] double of(int64_t num_tokens) const {
    const auto length = static_cast<double>(num_tokens);
    const double flops = (per_token + per_pair * length) * length;
    if (window == 0) return flops;
    const double seen = std::min(length, static_cast<double>(window));
    return flops + per_window_pair * seen * (2 * length - seen);
  }

  [[nodiscard]] bool is_set() const { return of(1) > 0; }
};

}  // namespace heddle::request
