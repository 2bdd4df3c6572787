// SPDX-License-Identifier: Apache-2.0
// KvPool: the memory of the KV pages. Per attention layer K is [P, S, Nkv, D] and V [P, S, Nkv,
// Dv], or V is not there because values are a part of the keys; P = num_pages + 1: page 0
// belongs to no sequence. Which pages are in use is the PageAllocator's business.
//
// Layer-major, so that a layer's attention sees one dense tensor. Memory is committed when a page
// is first written: resident memory follows the highest page ever used.
//
// Threading: views may be used from several threads at once as long as no page is written by one
// while another uses it.
// Cost: create() maps, it touches nothing.
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

  // A view without memory where values are a part of the keys.
  [[nodiscard]] MutableTensorView v(int64_t layer);

  [[nodiscard]] const KvLayout& layout() const { return layout_; }

  [[nodiscard]] int64_t num_pages() const { return num_pages_; }

  [[nodiscard]] int64_t bytes() const { return memory_.size(); }

  // The pages' memory may go back to the system; their contents are undefined afterwards. Pages
  // that follow each other in `pages` and in the pool are given back in one piece, which is what
  // lets memory go back where a layer's share of a page is less than a memory page.
  Status discard_pages(device::Stream& stream, std::span<const int32_t> pages);

 private:
  // One layer's K or V.
  struct Region {
    std::byte* base = nullptr;
    int64_t page_bytes = 0;
  };

  [[nodiscard]] Region k_region(int64_t layer) const;
  [[nodiscard]] Region v_region(int64_t layer) const;

  KvLayout layout_;
  int64_t num_pages_ = 0;
  int64_t k_region_bytes_ = 0;  // bytes of one layer's keys
  int64_t v_region_bytes_ = 0;
  device::Buffer memory_;  // by layer: K, then V
};

}  // namespace heddle::cache
