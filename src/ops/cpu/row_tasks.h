// SPDX-License-Identifier: Apache-2.0
// for_row_ranges: splits rows among the pool's threads, or runs them inline when there is too
// little work to pay for waking a worker (about two microseconds).
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/thread_pool.h"

namespace heddle::ops {

// Calls body(begin, end) on ranges that cover [0, num_rows) once. `row_elements` is the cost of a
// row, counted in elements of a simple pass over memory.
template <typename Body>
void for_row_ranges(device::ThreadPool& pool, int64_t num_rows, int64_t row_elements, Body&& body) {
  constexpr int64_t kElementsPerTask = 16384;
  const int64_t wanted = num_rows * row_elements / kElementsPerTask + 1;
  const int64_t num_tasks =
      std::min({wanted, num_rows, static_cast<int64_t>(pool.num_threads()) * 4});
  if (num_tasks <= 1) {
    if (num_rows > 0) body(int64_t{0}, num_rows);
    return;
  }
  pool.parallel_for(num_tasks, [&](int64_t task, int) {
    body(num_rows * task / num_tasks, num_rows * (task + 1) / num_tasks);
  });
}

}  // namespace heddle::ops
