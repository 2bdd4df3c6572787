// SPDX-License-Identifier: Apache-2.0
#include "quant/block_formats.h"

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
      ASSERT_EQ(format.ok(), packed_format(type, kColumns).has_value());
      if (!format.ok()) continue;
      const UnpackedMatrix unpacked = unpack(matrix, *format).value();
      std::vector<std::byte> codes(static_cast<size_t>(N * format->code_bytes()));
      std::vector<std::byte> scales(static_cast<size_t>(N * format->scale_bytes()));
      const PackedRows rows{
          .format = *format, .num_rows = N, .codes = codes.data(), .scales = scales.data()};
      pack_rows(unpacked, 0, N, rows, 0);
      for (int64_t n = 0; n < N; ++n) {
        for (int64_t k = 0; k < kColumns; ++k) {
          const std::byte* const row =
              bytes.data() + order.stored_row(n) * matrix.blocks.row_bytes();
          ASSERT_EQ(dequantised_element(rows, n, k),
                    static_cast<float>(block_element(type, row, k)))
              << "type " << static_cast<int>(type) << ", row " << n << ", column " << k;
        }
      }
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

TEST(BlockFormats, AScaleThatIsNotFiniteIsAnError) {
  for (const BlockType type : kBlockTypes) {
    if (!packed_format(type, kColumns)) continue;
    std::vector<std::byte> bytes = random_blocks(type, blocks_of(type), 9);
    std::byte* const block = bytes.data() + 3 * size_of(type).bytes;
    if (type == BlockType::kMxfp4) {
      block[0] = std::byte{255};
    } else {
      testing::put_half(block + testing::half_places(type).scale,
                        std::numeric_limits<float>::infinity());
    }
    const StoredMatrix matrix{.layout = FileLayout::kBlocks,
                              .N = kRows,
                              .K = kColumns,
                              .blocks = {.type = type, .K = kColumns, .data = bytes.data()}};
    const auto unpacked = unpack(matrix, row_format(matrix).value());
    ASSERT_FALSE(unpacked.ok());
    EXPECT_EQ(unpacked.status().code(), StatusCode::kDataLoss);
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
