// SPDX-License-Identifier: Apache-2.0
// PageAllocator: which KV pages are free. A page holds `page_size` consecutive tokens of one
// sequence, in every full-attention layer.
//
// A sequence's pages cover all of its stored tokens and no more than one page beyond: page of token
// t is pages[t / page_size]. Degradation when the pool is short: allocation fails as a whole,
// nothing is taken; the scheduler leaves the request waiting or retracts a running one.
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
  // `page_size` is valid (checked).
  PageAllocator(int64_t num_pages, int32_t page_size)
      : ids_("KV page", num_pages), page_size_(page_size) {
    HEDDLE_CHECK(valid_page_size(page_size));
  }

  [[nodiscard]] int32_t page_size() const { return page_size_; }

  // Pages that hold `num_tokens` tokens.
  [[nodiscard]] int64_t pages_for(int64_t num_tokens) const {
    return (num_tokens + page_size_ - 1) / page_size_;
  }

  // Appends what `pages` lacks to hold `num_tokens` tokens: all of it, or nothing and false.
  [[nodiscard]] bool grow(int64_t num_tokens, std::vector<int32_t>& pages) {
    const int64_t missing = pages_for(num_tokens) - static_cast<int64_t>(pages.size());
    return missing <= 0 || ids_.allocate(missing, pages);
  }

  // Appends `count` pages: all of them, or nothing and false.
  [[nodiscard]] bool allocate(int64_t count, std::vector<int32_t>& pages) {
    return ids_.allocate(count, pages);
  }

  // Frees all pages and empties the vector (its capacity stays).
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
