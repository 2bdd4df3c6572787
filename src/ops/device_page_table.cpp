// SPDX-License-Identifier: Apache-2.0
#include "ops/device_page_table.h"

#include <algorithm>

namespace heddle::ops {

Result<DevicePageTable> DevicePageTable::create(device::Device& device, int64_t max_sequences,
                                                int64_t width, size_t num_tables) {
  DevicePageTable table;
  table.max_sequences_ = max_sequences;
  table.width_ = width;
  const int64_t num_entries = static_cast<int64_t>(num_tables) * max_sequences * width;
  const int64_t num_bytes = bytes_of(DType::kI32, num_entries);
  HEDDLE_ASSIGN_OR_RETURN(table.entries_, device.allocate(num_bytes));
  HEDDLE_ASSIGN_OR_RETURN(const auto stream, device.create_stream());
  HEDDLE_RETURN_IF_ERROR(stream->zero(table.entries_.data(), num_bytes));
  HEDDLE_RETURN_IF_ERROR(stream->synchronize());
  table.known_.resize(static_cast<size_t>(num_entries));
  return table;
}

int64_t DevicePageTable::list_changes(const ForwardContext& forward, std::span<PageWrite> changes) {
  if (!is_known_) std::ranges::fill(known_, -1);
  is_known_ = false;
  auto next = changes.begin();
  for (size_t table = 0; table < kMaxPageTables; ++table) {
    if (forward.page_tables[table].empty()) continue;
    for (int64_t b = 0; b < forward.num_sequences(); ++b) {
      static constexpr int32_t kSink = 0;
      const bool is_padding = b >= forward.num_real_sequences();
      const int32_t* const pages = is_padding ? &kSink : forward.pages(b, table);
      const int64_t count = is_padding ? 1 : forward.num_pages(b);
      const int64_t row = first_entry(table) + b * width_;
      int32_t* const known = known_.data() + row;
      if (std::equal(pages, pages + count, known)) continue;
      for (int64_t i = 0; i < count; ++i) {
        if (known[i] == pages[i]) continue;
        known[i] = pages[i];
        *next++ = {.place = static_cast<int32_t>(row + i), .page = pages[i]};
      }
    }
  }
  return next - changes.begin();
}

}  // namespace heddle::ops
