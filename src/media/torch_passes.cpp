// SPDX-License-Identifier: Apache-2.0
#include "media/torch_passes.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "media/torch_passes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace heddle::media::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

bool ScaleRows(const uint8_t*, int64_t, int64_t, const WeightPairs&, uint8_t*) { return false; }

bool ScaleColumns(const uint8_t*, int64_t, const WeightPairs&, uint8_t*) { return false; }

#else

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kBlock = 16;  // 16 bytes: four RGB pixels and the four bytes after them

// Loads a vector whose block r has the 16 bytes at p + r * stride.
template <class D>
hn::Vec<D> LoadBlocks(D d, const uint8_t* p, int64_t stride) {
  constexpr auto kRows = static_cast<int64_t>(hn::MaxLanes(D())) / kBlock;
  if constexpr (kRows == 1) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadBlocks(half, p + kRows / 2 * stride, stride),
                       LoadBlocks(half, p, stride));
  }
}

// Scales as many rows as D has blocks. May read up to 16 bytes after each row.
template <class D>
void ScaleSomeRows(D d8, const uint8_t* rows, int64_t stride, const WeightPairs& pairs,
                   uint8_t* out, int64_t out_stride) {
  constexpr auto kRows = static_cast<int64_t>(hn::MaxLanes(D())) / kBlock;
  const hn::Repartition<int16_t, D> d16;
  const hn::Repartition<int32_t, D> d32;
  const hn::Rebind<uint8_t, decltype(d32)> quarter;
  // Rearranges two pixels r0 g0 b0 r1 g1 b1 to 16-bit numbers: r0 r1 g0 g1 b0 b1 0 0.
  alignas(kBlock) static constexpr uint8_t kFirstTwo[kBlock] = {
      0, 0x80, 3, 0x80, 1, 0x80, 4, 0x80, 2, 0x80, 5, 0x80, 0x80, 0x80, 0x80, 0x80};
  alignas(kBlock) static constexpr uint8_t kNextTwo[kBlock] = {
      6, 0x80, 9, 0x80, 7, 0x80, 10, 0x80, 8, 0x80, 11, 0x80, 0x80, 0x80, 0x80, 0x80};
  const auto first_two = hn::LoadDup128(d8, kFirstTwo);
  const auto next_two = hn::LoadDup128(d8, kNextTwo);
  const auto half = hn::Set(d32, 1 << (pairs.shift() - 1));
  const int64_t m = pairs.num_outputs();
  for (int64_t i = 0; i < m; ++i) {
    const int32_t* const weights = pairs.of(i);
    const uint8_t* p = rows + pairs.first(i) * 3;
    const int64_t num_pairs = (pairs.count(i) + 1) / 2;
    auto sums = half;
    auto more_sums = hn::Zero(d32);
    for (int64_t j = 0; j < num_pairs; j += 2, p += 12) {
      const auto pixels = LoadBlocks(d8, p, stride);
      const auto a = hn::BitCast(d16, hn::TableLookupBytesOr0(pixels, first_two));
      const auto b = hn::BitCast(d16, hn::TableLookupBytesOr0(pixels, next_two));
      const auto a_weights = hn::BitCast(d16, hn::Set(d32, weights[j]));
      const auto b_weights = hn::BitCast(d16, hn::Set(d32, weights[j + 1]));
      sums = hn::ReorderWidenMulAccumulate(d32, a, a_weights, sums, more_sums);
      sums = hn::ReorderWidenMulAccumulate(d32, b, b_weights, sums, more_sums);
    }
    sums = hn::RearrangeToOddPlusEven(sums, more_sums);
    uint8_t bytes[4 * kRows];  // of each row: red, green, blue and an unused byte
    hn::StoreU(hn::DemoteTo(quarter, hn::ShiftRightSame(sums, pairs.shift())), quarter, bytes);
    for (int64_t r = 0; r < kRows; ++r) {
      std::memcpy(out + r * out_stride + i * 3, bytes + r * 4, 3);
    }
  }
}

bool ScaleRows(const uint8_t* rgb, int64_t height, int64_t width, const WeightPairs& pairs,
               uint8_t* out) {
  const hn::CappedTag<uint8_t, 64> wide;
  const hn::FixedTag<uint8_t, kBlock> narrow;
  constexpr auto kRows = static_cast<int64_t>(hn::MaxLanes(wide)) / kBlock;
  const int64_t stride = width * 3;
  const int64_t out_stride = pairs.num_outputs() * 3;
  // For these rows the bytes after the row still belong to the picture.
  const int64_t num_safe = std::max<int64_t>(height - 1 - kBlock / stride, 0);
  int64_t row = 0;
  for (; row + kRows <= num_safe; row += kRows) {
    ScaleSomeRows(wide, rgb + row * stride, stride, pairs, out + row * out_stride, out_stride);
  }
  std::vector<uint8_t> padded(static_cast<size_t>(stride + 2 * kBlock));
  for (; row < height; ++row) {
    std::copy_n(rgb + row * stride, stride, padded.begin());
    ScaleSomeRows(narrow, padded.data(), stride, pairs, out + row * out_stride, out_stride);
  }
  return true;
}

// Bytes [begin, begin + lanes) of output row i. Each pair of 16-bit numbers has a byte of one input
// row and the byte of the next row.
template <class D>
void ScaleColumnPart(D d16, const uint8_t* rgb, int64_t row_bytes, int64_t begin,
                     const WeightPairs& pairs, int64_t i, uint8_t* out) {
  const hn::Repartition<int32_t, D> d32;
  const hn::Rebind<uint8_t, D> d8;
  const int32_t* const weights = pairs.of(i);
  const int64_t count = pairs.count(i);
  const uint8_t* p = rgb + pairs.first(i) * row_bytes + begin;
  const auto half = hn::Set(d32, 1 << (pairs.shift() - 1));
  auto lower = half;
  auto upper = half;
  auto more_lower = hn::Zero(d32);
  auto more_upper = hn::Zero(d32);
  for (int64_t j = 0; j < count; j += 2, p += 2 * row_bytes) {
    const auto a = hn::PromoteTo(d16, hn::LoadU(d8, p));
    const auto b = hn::PromoteTo(d16, hn::LoadU(d8, j + 1 < count ? p + row_bytes : p));
    const auto w = hn::BitCast(d16, hn::Set(d32, weights[j / 2]));
    lower =
        hn::ReorderWidenMulAccumulate(d32, hn::InterleaveLower(d16, a, b), w, lower, more_lower);
    upper =
        hn::ReorderWidenMulAccumulate(d32, hn::InterleaveUpper(d16, a, b), w, upper, more_upper);
  }
  lower = hn::ShiftRightSame(hn::RearrangeToOddPlusEven(lower, more_lower), pairs.shift());
  upper = hn::ShiftRightSame(hn::RearrangeToOddPlusEven(upper, more_upper), pairs.shift());
  // Interleaving and this narrowing both work within blocks of 16 bytes, so the order is correct
  // again.
  const auto sums = hn::ReorderDemote2To(d16, lower, upper);
  hn::StoreU(hn::DemoteTo(d8, sums), d8, out + begin);
}

bool ScaleColumns(const uint8_t* rgb, int64_t row_bytes, const WeightPairs& pairs, uint8_t* out) {
  const hn::CappedTag<int16_t, 32> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d16));
  if (row_bytes < lanes) return false;
  for (int64_t i = 0; i < pairs.num_outputs(); ++i, out += row_bytes) {
    for (int64_t begin = 0; begin < row_bytes; begin += lanes) {
      // The last part has full width, too: it computes some bytes a second time.
      ScaleColumnPart(d16, rgb, row_bytes, std::min(begin, row_bytes - lanes), pairs, i, out);
    }
  }
  return true;
}

#endif

}  // namespace heddle::media::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::media {

HWY_EXPORT(ScaleRows);
HWY_EXPORT(ScaleColumns);

WeightPairs::WeightPairs(const AxisWeights& axis, const IntegerWeights& integers)
    : axis_(axis), shift_(integers.shift), pairs_each_((axis.taps + 3) / 4 * 2) {
  pairs_.assign(static_cast<size_t>(num_outputs() * pairs_each_), 0);
  for (int64_t i = 0; i < num_outputs(); ++i) {
    for (int64_t j = 0; j < count(i); ++j) {
      const auto weight =
          static_cast<uint16_t>(integers.weights[static_cast<size_t>(i * axis.taps + j)]);
      pairs_[static_cast<size_t>(i * pairs_each_ + j / 2)] |= j % 2 == 0 ? weight : weight << 16;
    }
  }
}

bool scale_rows(const uint8_t* rgb, int64_t height, int64_t width, const WeightPairs& pairs,
                uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(ScaleRows)(rgb, height, width, pairs, out);
}

bool scale_columns(const uint8_t* rgb, int64_t row_bytes, const WeightPairs& pairs, uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(ScaleColumns)(rgb, row_bytes, pairs, out);
}

}  // namespace heddle::media

#endif
