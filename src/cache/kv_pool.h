// SPDX-License-Identifier: Apache-2.0
// KvPool: the memory of the KV pages. Per attention layer K is [P, S, Nkv, D] and V is [P, S, Nkv,
// Dv]; V does not exist if values are a part of the keys. P = num_pages + 1, because page 0 belongs
// to no sequence. PageAllocator records which pages are in use.
//
// The memory is ordered by layer, so that a layer's attention reads one dense tensor. It is
// committed when a page is first written: resident memory follows the highest page ever used.
//
// Threading: views may be used from several threads at once as long as no page is written by one
//            while another uses it.
// Cost:      create() maps the memory and touches none of it.
#pragma once

#include <cstdint>
#include <span>

#include <heddle/status.h>

#include "cache/kv_layout.h"
#include "core/tensor.h"
#include "device/device.h"

namespace heddle::cache {

class KvPool {
 public:
  KvPool() = default;

  // Errors: kInvalidArgument for a bad layout, kResourceExhausted when the system refuses the
  // mapping.
  static Result<KvPool> create(device::Device& device, const KvLayout& layout, int64_t num_pages);

  [[nodiscard]] MutableTensorView k(int64_t layer);

  // Empty if values are a part of the keys.
  [[nodiscard]] MutableTensorView v(int64_t layer);

  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  [[nodiscard]] int64_t num_pages() const { return num_pages_; }

  [[nodiscard]] int64_t bytes() const { return memory_.size(); }

  // Lets the memory of the pages return to the system; their contents are undefined afterwards.
  // Pages that are consecutive both in `pages` and in the pool are discarded in one call. That
  // allows memory to return where a layer's part of a page is smaller than a memory page.
  Status discard_pages(device::Stream& stream, std::span<const int32_t> pages);

 private:
  // The memory of one layer's K or V.
  struct Region {
    std::byte* base = nullptr;
    int64_t page_bytes = 0;
  };

  [[nodiscard]] Region k_region(int64_t layer) const;
  [[nodiscard]] Region v_region(int64_t layer) const;

  KvLayout layout_;
  int64_t num_pages_ = 0;
  int64_t k_region_bytes_ = 0;  // bytes of one layer's keys in all pages
  int64_t v_region_bytes_ = 0;
  device::Buffer memory_;  // the keys and then the values of each layer
};

}  // namespace heddle::cache
