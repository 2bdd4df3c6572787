// SPDX-License-Identifier: Apache-2.0
#include "cache/page_allocator.h"

#include "core/check.h"

namespace heddle::cache {

PageAllocator::PageAllocator(int64_t num_pages, int32_t page_size)
    : ids_("KV page", num_pages), page_size_(page_size) {
  HEDDLE_CHECK(valid_page_size(page_size));
}

bool PageAllocator::grow(int64_t num_tokens, std::vector<int32_t>& pages) {
  const int64_t missing = pages_for(num_tokens) - static_cast<int64_t>(pages.size());
  return missing <= 0 || ids_.allocate(missing, pages);
}

void PageAllocator::release(std::vector<int32_t>& pages) {
  ids_.free(pages);
  pages.clear();
}

}  // namespace heddle::cache
