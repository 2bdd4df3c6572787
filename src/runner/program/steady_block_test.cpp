// SPDX-License-Identifier: Apache-2.0
#include "runner/program/steady_block.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "ops/device_fixture.h"

namespace heddle::runner {
namespace {

class SteadyBlockTest : public ops::DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(SteadyBlockTest);

// Memory that launches wrote stays where nothing changed, and is zero where something did.
TEST_P(SteadyBlockTest, SmallestArraysAreCopiedWhereTheyChange) {
  SteadyBlock block(device(), 2);
  const auto downloaded = [&](int64_t where, int64_t count) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    EXPECT_TRUE(
        stream()
            .copy(values.data(), block.at<const int32_t>(where), bytes_of(DType::kI32, count))
            .ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return values;
  };
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    const int content = round / 2;  // every second round is as the one before
    std::vector<int32_t> numbers(static_cast<size_t>(1 + content * 700));
    std::iota(numbers.begin(), numbers.end(), content);
    const std::vector<uint64_t> words(3, static_cast<uint64_t>(content));
    block.begin();
    const int64_t numbers_at = block.add(std::span<const int32_t>(numbers));
    const int64_t words_at = block.add(std::span<const uint64_t>(words));
    const int64_t room_at = block.add_zeros<int32_t>(5);
    EXPECT_EQ(words_at % 16, 0);
    ASSERT_TRUE(block.upload(stream()).ok());
    EXPECT_EQ(downloaded(numbers_at, std::ssize(numbers)), numbers);
    EXPECT_EQ(downloaded(words_at, 2), (std::vector<int32_t>{content, 0}));
    EXPECT_EQ(downloaded(room_at, 5), std::vector<int32_t>(5, round % 2 == 0 ? 0 : 9));
    const std::vector<int32_t> written(5, 9);
    EXPECT_TRUE(
        stream().copy(block.at<int32_t>(room_at), written.data(), bytes_of(DType::kI32, 5)).ok());
    EXPECT_TRUE(stream().synchronize().ok());
  }
}

}  // namespace
}  // namespace heddle::runner
