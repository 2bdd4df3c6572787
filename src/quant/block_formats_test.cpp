// SPDX-License-Identifier: Apache-2.0
#include "quant/block_formats.h"

#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "quant/block_fixture.h"
#include "quant/dequantise.h"
#include "quant/file_formats.h"

namespace heddle::quant {
namespace {

using testing::block_element;
using testing::kBlockTypes;
using testing::random_blocks;

constexpr int64_t kRows = 12;
constexpr int64_t kColumns = 512;

int64_t blocks_of(BlockType type) { return kRows * kColumns / size_of(type).columns; }

TEST(BlockFormats, EveryColumnIsWhatTheFormatSaysRoundedOnce) {
  for (const BlockType type : kBlockTypes) {
    const std::vector<std::byte> bytes = random_blocks(type, blocks_of(type), 7);
    std::vector<float> values(kRows * kColumns);
    dequantise_blocks(type, bytes.data(), blocks_of(type), values.data());
    for (int64_t k = 0; k < kRows * kColumns; ++k) {
      ASSERT_EQ(values[static_cast<size_t>(k)],
                static_cast<float>(block_element(type, bytes.data(), k)))
          << "type " << static_cast<int>(type) << ", column " << k;
    }
  }
}

TEST(BlockFormats, PackedRowsHoldTheSameNumbersInAnyOrderOfRows) {
  const RowOrder orders[] = {
      {},
      {.middle = 2, .inner = 3, .group_step = 6, .middle_step = 1, .inner_step = 2},
      {.first = 2, .inner = 2, .group_step = 4, .inner_step = 1}};
  for (const BlockType type : kBlockTypes) {
    const std::vector<std::byte> bytes = random_blocks(type, blocks_of(type), 8);
    for (const RowOrder& order : orders) {
      const int64_t N = order.first > 0 ? kRows / 2 : kRows;
      const StoredMatrix matrix{
          .layout = FileLayout::kBlocks,
          .N = N,
          .K = kColumns,
          .blocks = {.type = type, .K = kColumns, .data = bytes.data(), .order = order}};
      const Result<RowFormat> format = row_format(matrix);
      ASSERT_TRUE(format.ok()) << format.status().to_string();
      const UnpackedMatrix unpacked = unpack(matrix, *format).value();
      std::vector<std::byte> codes(static_cast<size_t>(N * format->code_bytes()));
      std::vector<std::byte> scales(static_cast<size_t>(N * format->scale_bytes()));
      const PackedRows rows{
          .format = *format, .num_rows = N, .codes = codes.data(), .scales = scales.data()};
      pack_rows(unpacked, 0, N, rows, 0);
      std::vector<float> whole(kColumns);
      for (int64_t n = 0; n < N; ++n) {
        dequantise_row(rows, n, 0, kColumns, whole.data());
        for (int64_t k = 0; k < kColumns; ++k) {
          const std::byte* const row =
              bytes.data() + order.stored_row(n) * matrix.blocks.row_bytes();
          const auto expected = static_cast<float>(block_element(type, row, k));
          ASSERT_EQ(dequantised_element(rows, n, k), expected)
              << "type " << static_cast<int>(type) << ", row " << n << ", column " << k;
          ASSERT_EQ(whole[static_cast<size_t>(k)], expected);
        }
      }
    }
  }
}

// Bytes of 256 columns: codes of half a byte or one, and the scales.
TEST(BlockFormats, PackedRowsTakeWhatTheirCodesAndScalesTake) {
  const std::map<BlockType, int64_t> bytes = {
      {BlockType::kQ4_0, 128 + 16}, {BlockType::kQ4_1, 128 + 32}, {BlockType::kQ5_0, 256 + 16},
      {BlockType::kQ5_1, 256 + 32}, {BlockType::kQ8_0, 256 + 16}, {BlockType::kMxfp4, 128 + 8},
      {BlockType::kQ4K, 128 + 20},  {BlockType::kQ5K, 256 + 20},  {BlockType::kQ6K, 256 + 18}};
  for (const BlockType type : kBlockTypes) {
    const RowFormat format = packed_format(type, kColumns).value();
    EXPECT_EQ(format.row_bytes(), kColumns / 256 * bytes.at(type)) << static_cast<int>(type);
  }
  EXPECT_EQ(packed_format(BlockType::kQ4K, 256)->to_string(),
            "int4, groups of 32, uint8 times float16 scales, minima");
  EXPECT_EQ(packed_format(BlockType::kQ6K, 256)->to_string(),
            "int8, groups of 16, int8 times float16 scales");
}

TEST(BlockFormats, AGpuGetsFormsWithoutMinimaAndWithPlainScales) {
  for (const BlockType type : kBlockTypes) {
    const std::optional<RowFormat> format = packed_format(type, kColumns, /*on_gpu=*/true);
    EXPECT_EQ(format.has_value(), !packed_format(type, kColumns)->has_minima);
    if (!format) continue;
    EXPECT_FALSE(has_wide_scales(format->scale));
    const std::vector<std::byte> bytes = random_blocks(type, blocks_of(type), 8);
    const StoredMatrix matrix{.layout = FileLayout::kBlocks,
                              .N = kRows,
                              .K = kColumns,
                              .blocks = {.type = type, .K = kColumns, .data = bytes.data()},
                              .on_gpu = true};
    UnpackedMatrix unpacked = unpack(matrix, row_format(matrix).value()).value();
    std::vector<std::byte> codes(static_cast<size_t>(kRows * format->code_bytes()));
    const PackedRows rows{.format = *format,
                          .num_rows = kRows,
                          .codes = codes.data(),
                          .scales = unpacked.scales.data()};
    pack_rows(unpacked, 0, kRows, rows, 0);
    for (int64_t k = 0; k < kRows * kColumns; ++k) {
      ASSERT_EQ(dequantised_element(rows, k / kColumns, k % kColumns),
                static_cast<float>(block_element(type, bytes.data(), k)));
    }
  }
}

TEST(BlockFormats, RowsOfAHeadAreTakenFromWhereTheirPairLies) {
  // Two heads of six rows, stored as pairs of the same row of both halves.
  const RowOrder order{.middle = 2, .inner = 3, .group_step = 6, .middle_step = 1, .inner_step = 2};
  std::vector<int64_t> stored;
  for (int64_t row = 0; row < 12; ++row) stored.push_back(order.stored_row(row));
  EXPECT_THAT(stored, ::testing::ElementsAre(0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11));
}

TEST(BlockFormats, AScaleOrMinimumThatIsNotFiniteIsAnError) {
  for (const BlockType type : kBlockTypes) {
    const testing::HalfPlaces places = testing::half_places(type);
    for (const int64_t place : {places.scale, places.minimum}) {
      if (place < 0) continue;
      std::vector<std::byte> bytes = random_blocks(type, blocks_of(type), 9);
      std::byte* const block = bytes.data() + blocks_of(type) / kRows * size_of(type).bytes;
      if (type == BlockType::kMxfp4) {
        block[0] = std::byte{255};
      } else {
        testing::put_half(block + place, std::numeric_limits<float>::infinity());
      }
      const StoredMatrix matrix{.layout = FileLayout::kBlocks,
                                .N = kRows,
                                .K = kColumns,
                                .blocks = {.type = type, .K = kColumns, .data = bytes.data()}};
      const auto unpacked = unpack(matrix, row_format(matrix).value());
      ASSERT_FALSE(unpacked.ok());
      EXPECT_EQ(unpacked.status().code(), StatusCode::kDataLoss);
      EXPECT_THAT(unpacked.status().message(),
                  ::testing::HasSubstr(place == places.scale ? "the scale of row 1"
                                                             : "the minimum of row 1"));
    }
  }
}

TEST(BlockFormats, RowsThatAreNoWholeBlocksAreRefused) {
  const StoredMatrix matrix{.layout = FileLayout::kBlocks,
                            .N = 1,
                            .K = 48,
                            .blocks = {.type = BlockType::kQ8_0, .K = 48}};
  EXPECT_FALSE(row_format(matrix).ok());
}

}  // namespace
}  // namespace heddle::quant
