// SPDX-License-Identifier: Apache-2.0
// PageAllocator: records which KV pages are free. A page holds `page_size` consecutive tokens of
// one sequence, in every full-attention layer.
//
// A sequence's pages cover all of its stored tokens and at most one page more: the page of token t
// is pages[t / page_size]. If the pool is short, an allocation fails and takes no page; the
// scheduler then leaves the request waiting or retracts a running one.
//
// Threading, invariants and cost: as IdPool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/id_pool.h"
#include "core/check.h"

namespace heddle::cache {

// Page sizes are powers of two from 1 to 128.
[[nodiscard]] constexpr bool valid_page_size(int64_t page_size) {
  return page_size >= 1 && page_size <= 128 && (page_size & (page_size - 1)) == 0;
}

class PageAllocator {
 public:
  // `page_size` must be valid (checked).
  PageAllocator(int64_t num_pages, int32_t page_size)
      : ids_("KV page", num_pages), page_size_(page_size) {
    HEDDLE_CHECK(valid_page_size(page_size));
  }

  [[nodiscard]] int32_t page_size() const { return page_size_; }

  // Number of pages that `num_tokens` tokens need.
  [[nodiscard]] int64_t pages_for(int64_t num_tokens) const {
    return (num_tokens + page_size_ - 1) / page_size_;
  }

  // Appends the pages that `pages` lacks for `num_tokens` tokens. If there are too few it returns
  // false and appends none.
  [[nodiscard]] bool grow(int64_t num_tokens, std::vector<int32_t>& pages) {
    const int64_t missing = pages_for(num_tokens) - static_cast<int64_t>(pages.size());
    return missing <= 0 || ids_.allocate(missing, pages);
  }

  // Appends `count` pages. If fewer are free it returns false and appends none.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& pages) {
    return ids_.allocate(count, pages);
  }

  // Frees all pages and empties the vector, which keeps its capacity.
  void release(std::vector<int32_t>& pages) {
    ids_.free(pages);
    pages.clear();
  }

  [[nodiscard]] int64_t num_pages() const { return ids_.size(); }

  [[nodiscard]] int64_t num_free() const { return ids_.num_free(); }

  [[nodiscard]] int64_t num_used() const { return ids_.num_used(); }

  [[nodiscard]] IdPool& ids() { return ids_; }

  [[nodiscard]] const IdPool& ids() const { return ids_; }

  void check_invariants() const { ids_.check_invariants(); }

 private:
  IdPool ids_;
  int32_t page_size_;
};

}  // namespace heddle::cache
