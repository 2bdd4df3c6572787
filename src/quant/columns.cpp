// SPDX-License-Identifier: Apache-2.0
#include "quant/columns.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "core/check.h"
#include "quant/dequantise.h"

namespace heddle::quant {

namespace {

// Bytes before a row's byte-sized scales: an fp32 factor, or the fp16 scales of 256 columns each.
int64_t front_bytes(const RowFormat& format) {
  return has_factor(format.scale) ? kFactorBytes : 2 * format.num_wide_scales();
}

// Copies the scales and minima of a row to a row that has only some of its columns.
class ScaleCut {
 public:
  ScaleCut(const UnpackedMatrix& matrix, const RowFormat& to, int64_t first)
      : from_(matrix.format),
        to_(to),
        first_(first),
        rows_{.format = matrix.format, .num_rows = matrix.N} {
    rows_.scales = const_cast<std::byte*>(matrix.scales.data());
  }

  void copy(int64_t row, std::byte* target) const {
    const std::byte* const source = rows_.row_scales(row);
    if (from_.group_index != nullptr) {
      std::memcpy(target, source, static_cast<size_t>(from_.scale_bytes()));
      return;
    }
    copy_run(row, source, target, scale_of);
    if (!from_.has_minima) return;
    copy_run(row, source + from_.minima_begin(), target + to_.minima_begin(), minimum_of);
  }

 private:
  void copy_run(int64_t row, const std::byte* source, std::byte* target,
                float (*value)(const PackedRows&, int64_t, int64_t)) const {
    const int64_t groups = to_.num_groups();
    if (from_.scale != to_.scale) {
      for (int64_t g = 0; g < groups; ++g) {
        const float scale = value(rows_, row, from_.group_of(first_ + g * to_.group_size));
        std::memcpy(target + 4 * g, &scale, sizeof(scale));
      }
      return;
    }
    const int64_t begin = has_factor(from_.scale) ? 0 : 2 * (first_ / kWideScaleColumns);
    std::memcpy(target, source + begin, static_cast<size_t>(front_bytes(to_)));
    const int64_t width = bytes_of(to_.scale);
    const std::byte* const scales = source + front_bytes(from_);
    std::byte* to = target + front_bytes(to_);
    for (int64_t g = 0; g < groups; ++g, to += width) {
      const int64_t group = from_.group_of(first_ + g * to_.group_size);
      std::memcpy(to, scales + group * width, static_cast<size_t>(width));
    }
  }

  const RowFormat& from_;
  const RowFormat& to_;
  int64_t first_;
  PackedRows rows_;
};

}  // namespace

RowFormat columns_of(const RowFormat& format, int64_t first, int64_t count) {
  HEDDLE_CHECK(first >= 0 && count > 0 && first + count <= format.K);
  RowFormat cut = format;
  cut.K = count;
  if (format.group_index != nullptr) {
    const auto begin = format.group_index->begin() + first;
    cut.group_index = std::make_shared<const std::vector<int32_t>>(begin, begin + count);
    return cut;
  }
  cut.group_size =
      format.group_size >= format.K ? count : std::gcd(std::gcd(format.group_size, first), count);
  const bool splits_wide_scales = first % kWideScaleColumns != 0 || count % kWideScaleColumns != 0;
  if (has_wide_scales(format.scale) && splits_wide_scales) cut.scale = ScaleType::kF32;
  return cut;
}

UnpackedMatrix columns_of(const UnpackedMatrix& matrix, int64_t first, int64_t count) {
  const RowFormat& from = matrix.format;
  UnpackedMatrix cut{.format = columns_of(from, first, count), .N = matrix.N};
  const RowFormat& to = cut.format;
  const int64_t groups = to.num_groups();
  cut.codes.resize(static_cast<size_t>(cut.N * count));
  cut.scales.resize(static_cast<size_t>(cut.N * to.scale_bytes()));
  if (to.has_zeros) cut.zeros.resize(static_cast<size_t>(cut.N * groups));
  const ScaleCut scales(matrix, to, first);
  for (int64_t n = 0; n < cut.N; ++n) {
    std::memcpy(cut.codes.data() + n * count, matrix.codes.data() + n * from.K + first,
                static_cast<size_t>(count));
    scales.copy(n, cut.scales.data() + n * to.scale_bytes());
    if (!to.has_zeros) continue;
    const uint8_t* const zeros = matrix.zeros.data() + n * from.num_groups();
    uint8_t* const own = cut.zeros.data() + n * groups;
    for (int64_t g = 0; g < groups; ++g) {
      own[g] = zeros[to.group_index != nullptr ? g : from.group_of(first + g * to.group_size)];
    }
  }
  return cut;
}

}  // namespace heddle::quant
