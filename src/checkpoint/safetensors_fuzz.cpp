// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: parsing must end in a header whose every entry lies inside the
// file.
#include <cstddef>
#include <cstdint>

#include "checkpoint/safetensors.h"
#include "core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace heddle::checkpoint;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto check = [&](std::span<const std::byte> file) {
    const auto file_size = static_cast<int64_t>(file.size());
    const heddle::Result<SafetensorsHeader> header = parse_safetensors_header(file, file_size);
    if (!header.ok()) return;
    for (const TensorEntry& entry : header->tensors) {
      HEDDLE_CHECK(entry.begin >= 0 && entry.begin <= entry.end);
      HEDDLE_CHECK_LE(header->data_offset + entry.end, file_size);
      if (!entry.dtype) continue;
      HEDDLE_CHECK_EQ(heddle::bytes_of(*entry.dtype, entry.shape.num_elements()),
                      entry.end - entry.begin);
      HEDDLE_CHECK(heddle::TensorView(nullptr, *entry.dtype, entry.shape).row_stride >= 0);
    }
  };
  check(bytes);

  // Also as a header with a matching length and some data, which random lengths rarely give.
  if (size == 0) return 0;
  std::vector<std::byte> file(8);
  const size_t length = size - 1;
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<std::byte>((length >> (8 * i)) & 0xff);
  file.insert(file.end(), bytes.begin() + 1, bytes.end());
  file.resize(file.size() + data[0]);
  check(file);
  return 0;
}
