// SPDX-License-Identifier: Apache-2.0
#include "cache/kv_pool.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::cache {
namespace {

constexpr int64_t kRegionAlignment = 4096;

}  // namespace

Result<KvPool> KvPool::create(device::Device& device, const KvLayout& layout, int64_t num_pages) {
  HEDDLE_RETURN_IF_ERROR(layout.validate());
  if (num_pages < 0 || num_pages >= std::numeric_limits<int32_t>::max()) {
    return invalid_argument(fmt::format("KV pool: {} pages cannot be numbered", num_pages));
  }
  KvPool pool;
  pool.layout_ = layout;
  pool.num_pages_ = num_pages;
  if (layout.num_layers == 0) return pool;
  const int64_t page_bytes = layout.bytes_per_layer_page();
  const int64_t most = std::numeric_limits<int64_t>::max() / 8 / layout.num_layers;
  if (page_bytes > most / (num_pages + 1)) {
    return resource_exhausted(fmt::format("KV pool: {} pages of {} bytes in {} layers are too many",
                                          num_pages, 2 * page_bytes, layout.num_layers));
  }
  pool.region_bytes_ =
      (page_bytes * (num_pages + 1) + kRegionAlignment - 1) / kRegionAlignment * kRegionAlignment;
  Result<device::Buffer> memory = device.allocate(2 * layout.num_layers * pool.region_bytes_);
  if (!memory.ok()) return memory.status().with_context("KV pool");
  pool.memory_ = std::move(memory).value();
  return pool;
}

MutableTensorView KvPool::view(int64_t region) {
  HEDDLE_CHECK(region >= 0 && region < 2 * layout_.num_layers);
  return {memory_.data() + region * region_bytes_, layout_.dtype,
          Shape{num_pages_ + 1, layout_.page_size, layout_.num_kv_heads, layout_.head_dim}};
}

Status KvPool::copy_page(device::Stream& stream, int32_t from, int32_t to) {
  HEDDLE_CHECK(from >= 1 && from <= num_pages_ && to >= 1 && to <= num_pages_);
  if (from == to) return {};
  const int64_t bytes = layout_.bytes_per_layer_page();
  for (int64_t region = 0; region < 2 * layout_.num_layers; ++region) {
    std::byte* const base = memory_.data() + region * region_bytes_;
    HEDDLE_RETURN_IF_ERROR(stream.copy(base + to * bytes, base + from * bytes, bytes));
  }
  return {};
}

Status KvPool::discard_pages(device::Stream& stream, std::span<const int32_t> pages) {
  const int64_t bytes = layout_.bytes_per_layer_page();
  for (size_t first = 0; first < pages.size();) {
    size_t end = first + 1;
    while (end < pages.size() && pages[end] == pages[end - 1] + 1) ++end;
    HEDDLE_CHECK(pages[first] >= 1 && pages[end - 1] <= num_pages_);
    const auto count = static_cast<int64_t>(end - first);
    for (int64_t region = 0; region < 2 * layout_.num_layers; ++region) {
      std::byte* const base = memory_.data() + region * region_bytes_;
      HEDDLE_RETURN_IF_ERROR(stream.discard(base + pages[first] * bytes, count * bytes));
    }
    first = end;
  }
  return {};
}

}  // namespace heddle::cache
