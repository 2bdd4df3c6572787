// SPDX-License-Identifier: Apache-2.0
// HostTeam: implements some operations of a team (sample_row_steps.h) on the CPU in terms of each()
// and tokens(). `Own` is the derived class, which has these two.
#pragma once

#include <cstdint>

namespace heddle::ops::sampling_steps {

template <typename Own>
class HostTeam {
 public:
  template <typename Value, typename Map, typename Store>
  void each_sum(int n, int m, const Map& map, const Store& store) {
    own().each(n, [&](int i) {
      Value value;
      for (int j = 0; j < m; ++j) map(value, i, j);
      store(i, value);
    });
  }

  template <typename TileAt, typename Holds, typename Take>
  void few_tokens(int n, const TileAt& tile_at, const float* logits, int V, const Holds& holds,
                  const Take& take) {
    struct Nothing {};

    const auto map = [&](Nothing&, int token, float logit) {
      if (holds(logit)) take(token, logit);
    };
    own().template tokens<Nothing>(n, tile_at, logits, V, map, [](Nothing&) {});
  }

  template <int kN, typename At>
  [[nodiscard]] int locate(const At& at, uint64_t target) const {
    uint64_t sum = 0;
    for (int i = 0; i < kN; ++i) {
      sum += at(i);
      if (sum > target) return i;
    }
    return kN;
  }

 private:
  [[nodiscard]] Own& own() { return static_cast<Own&>(*this); }
};

}  // namespace heddle::ops::sampling_steps
