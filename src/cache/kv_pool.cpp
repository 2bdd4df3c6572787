// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_pool.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {

Result<KvPool> KvPool::create(device::Device& device, const KvLayout& layout, int64_t num_pages) {
  HEDDLE_RETURN_IF_ERROR(layout.validate());
  if (num_pages < 0 || num_pages >= std::numeric_limits<int32_t>::max()) {
    return invalid_argument(fmt::format("KV pool: {} pages cannot be numbered", num_pages));
  }
  KvPool pool;
  pool.layout_ = layout;
  pool.num_pages_ = num_pages;
  if (layout.num_layers == 0) return pool;
  const int64_t page_bytes = layout.bytes_per_page() / layout.num_layers;
  const int64_t most = std::numeric_limits<int64_t>::max() / 8 / layout.num_layers;
  if (page_bytes > most / (num_pages + 1)) {
    return resource_exhausted(fmt::format("KV pool: {} pages of {} bytes in {} layers are too many",
                                          num_pages, page_bytes, layout.num_layers));
  }
  pool.k_region_bytes_ = region_bytes(layout.k_bytes_per_layer_page() * (num_pages + 1));
  pool.v_region_bytes_ = region_bytes(layout.v_bytes_per_layer_page() * (num_pages + 1));
  Result<device::Buffer> memory =
      device.allocate(layout.num_layers * (pool.k_region_bytes_ + pool.v_region_bytes_));
  if (!memory.ok()) return memory.status().with_context("KV pool");
  pool.memory_ = std::move(memory).value();
  return pool;
}

KvPool::Region KvPool::k_region(int64_t layer) const {
  HEDDLE_CHECK(layer >= 0 && layer < layout_.num_layers);
  return {.base = memory_.data() + layer * (k_region_bytes_ + v_region_bytes_),
          .page_bytes = layout_.k_bytes_per_layer_page()};
}

KvPool::Region KvPool::v_region(int64_t layer) const {
  return {.base = k_region(layer).base + k_region_bytes_,
          .page_bytes = layout_.v_bytes_per_layer_page()};
}

MutableTensorView KvPool::k(int64_t layer) {
  return {k_region(layer).base, layout_.dtype,
          Shape{num_pages_ + 1, layout_.page_size, layout_.num_kv_heads, layout_.head_dim}};
}

MutableTensorView KvPool::v(int64_t layer) {
  const Region region = v_region(layer);
  if (region.page_bytes == 0) return {};
  return {region.base, layout_.dtype,
          Shape{num_pages_ + 1, layout_.page_size, layout_.num_kv_heads,
                layout_.value_dim.value_or(layout_.head_dim)}};
}

Status KvPool::discard_pages(device::Stream& stream, std::span<const int32_t> pages) {
  for (size_t first = 0; first < pages.size();) {
    size_t end = first + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
    HEDDLE_CHECK(pages[first] >= 1 && pages[end - 1] <= num_pages_);
    const auto count = static_cast<int64_t>(end - first);
    for (int64_t layer = 0; layer < layout_.num_layers; ++layer) {
      for (const Region& region : {k_region(layer), v_region(layer)}) {
        if (region.page_bytes == 0) continue;  // no V: values are a part of the keys
        HEDDLE_RETURN_IF_ERROR(stream.discard(region.base + pages[first] * region.page_bytes,
                                              count * region.page_bytes));
      }
    }
    first = end;
  }
  return {};
}

}  // namespace heddle::cache
