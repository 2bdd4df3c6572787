// SPDX-License-Identifier: Apache-2.0
// Ids of pages and slots, as plans and ops name them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops {

// A page table lists the pages of a sequence by their ids, for all layers that see equally far
// back, whatever the shape of their rows. Table 0 has the pages of every token. Where some layers
// slide and others do not, the sliding ones have tables of their own, 1 and up, one for each width
// of their windows: its pages can be freed when the window has left them. Each table has a pool of
// ids of its own.
inline constexpr size_t kMaxPageTables = 4;

// A page or slot, and the one that it is copied to.
struct IdCopy {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace heddle::ops
