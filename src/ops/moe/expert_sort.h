// SPDX-License-Identifier: Apache-2.0
// Sorts (token, slot) pairs by expert: a stable counting sort, O(T * A + E).
#pragma once

#include <algorithm>
#include <cstdint>

namespace heddle::ops {

struct ExpertOrder {
  int32_t* row_offsets = nullptr;  // [E + 1]: first row of each expert
  int32_t* row_token = nullptr;    // [T * A]: the token of each row
  int32_t* slot_row = nullptr;     // [T, A]: the row of each (token, slot) pair
};

// Makes ids of `count` experts from `first` on begin at 0; all others become `count`.
inline void renumber_experts(int32_t* experts, int64_t num_slots, int64_t first, int64_t count) {
  for (int64_t i = 0; i < num_slots; ++i) {
    const int64_t own = experts[i] - first;
    experts[i] = static_cast<int32_t>(own >= 0 && own < count ? own : count);
  }
}

// `experts` [T, A] are ids in [0, E). Rows of one expert are in token order.
inline void sort_by_expert(const int32_t* experts, int64_t T, int64_t A, int64_t E,
                           const ExpertOrder& order) {
  std::fill_n(order.row_offsets, E + 1, 0);
  for (int64_t i = 0; i < T * A; ++i) ++order.row_offsets[experts[i] + 1];
  for (int64_t e = 0; e < E; ++e) order.row_offsets[e + 1] += order.row_offsets[e];
  // While rows are assigned, row_offsets[e] grows from the start of e to the start of e + 1;
  // afterwards the array is shifted back by one.
  for (int64_t i = 0; i < T * A; ++i) {
    const int32_t row = order.row_offsets[experts[i]]++;
    order.row_token[row] = static_cast<int32_t>(i / A);
    order.slot_row[i] = row;
  }
  for (int64_t e = E; e > 0; --e) order.row_offsets[e] = order.row_offsets[e - 1];
  order.row_offsets[0] = 0;
}

}  // namespace heddle::ops
