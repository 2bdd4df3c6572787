// SPDX-License-Identifier: Apache-2.0
// Ids of pages and slots, as batch plans and ops use them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops {

// A page table lists the page ids of a sequence, for all layers that see equally far back, whatever
// the shape of their rows. Table 0 has the pages of all tokens. In a model in which only some
// layers have sliding windows, the sliding layers use tables 1 and up, one for each window width:
// their pages can be freed once the window has passed them. Each table has its own pool of ids.
inline constexpr size_t kMaxPageTables = 4;

// Copies page or slot `from` to `to`.
struct IdCopy {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace heddle::ops
