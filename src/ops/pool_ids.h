// SPDX-License-Identifier: Apache-2.0
// Ids of pages and slots, as plans and ops name them.
#pragma once

#include <cstdint>

namespace heddle::ops {

// Which page table has the ids of a layer's pages. Where some layers slide and others do not, the
// sliding ones have ids of their own (kWindow), so that their pages can be freed when the window
// has left them. All other layers have the ids of kMain, whatever the shape of their rows.
enum class PageIds : uint8_t { kMain, kWindow };

// A page or slot, and the one that it is copied to.
struct IdCopy {
  int32_t from = 0;
  int32_t to = 0;
};

}  // namespace heddle::ops
