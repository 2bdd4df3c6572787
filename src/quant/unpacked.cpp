// SPDX-License-Identifier: Apache-2.0
#include "quant/unpacked.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"

namespace heddle::quant {

namespace {

void pack_four_bits(const uint8_t* codes, int64_t K, uint8_t* target) {
  for (int64_t k = 0; k < K; k += 128, target += 64) {
    const int64_t low = std::min<int64_t>(64, K - k);
    const int64_t high = std::clamp<int64_t>(K - k - 64, 0, 64);
    std::memset(target, 0, 64);
    for (int64_t i = 0; i < low; ++i) target[i] = codes[k + i];
    for (int64_t i = 0; i < high; ++i) {
      target[i] = static_cast<uint8_t>(target[i] | (codes[k + 64 + i] << 4));
    }
  }
}

}  // namespace

void pack_rows(const UnpackedMatrix& source, int64_t source_row, int64_t count,
               const PackedRows& target, int64_t target_row) {
  const RowFormat& format = source.format;
  HEDDLE_CHECK(format.same_layout(target.format));
  HEDDLE_CHECK(source_row >= 0 && source_row + count <= source.N);
  HEDDLE_CHECK(target_row >= 0 && target_row + count <= target.num_rows);
  const int64_t code_bytes = format.code_bytes();
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* const codes = source.codes.data() + (source_row + row) * format.K;
    auto* const to = reinterpret_cast<uint8_t*>(target.codes) + (target_row + row) * code_bytes;
    if (format.four_bits()) {
      pack_four_bits(codes, format.K, to);
    } else {
      std::memcpy(to, codes, static_cast<size_t>(format.K));
      std::memset(to + format.K, 0, static_cast<size_t>(code_bytes - format.K));
    }
  }
  const int64_t scale_bytes = format.scale_bytes();
  std::memcpy(target.scales + target_row * scale_bytes,
              source.scales.data() + source_row * scale_bytes,
              static_cast<size_t>(count * scale_bytes));
  if (format.has_zeros) {
    const int64_t groups = format.num_groups();
    std::memcpy(target.zeros + target_row * groups, source.zeros.data() + source_row * groups,
                static_cast<size_t>(count * groups));
  }
}

}  // namespace heddle::quant
