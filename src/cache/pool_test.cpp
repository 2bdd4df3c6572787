// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "cache/kv_pool.h"
#include "cache/state_pool.h"
#include "device/cpu_device.h"

namespace heddle::cache {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr KvLayout kKv{.num_layers = 2, .page_size = 4, .num_kv_heads = 2, .head_dim = 8};

StateLayout small_state(DType matrices = DType::kF32) {
  return {.num_layers = 3,
          .parts = {{.shape = {3, 5}}, {.shape = {2, 4, 6}, .dtype = matrices}, {.shape = {0, 9}}}};
}

std::span<float> row_of(const MutableTensorView& view, int64_t index) {
  return {view.row<float>(index), static_cast<size_t>(view.row_stride)};
}

class PoolTest : public ::testing::Test {
 protected:
  device::CpuDevice cpu_{1};
  std::unique_ptr<device::Stream> stream_ = cpu_.create_stream().value();
};

using KvPoolTest = PoolTest;
using StatePoolTest = PoolTest;

TEST_F(KvPoolTest, GivesEachLayerAZeroedTensorOfItsOwnWithRoomForTheSink) {
  Result<KvPool> pool = KvPool::create(cpu_, kKv, 10);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->k(1).shape, (Shape{11, 4, 2, 8}));
  std::vector<std::pair<const std::byte*, const std::byte*>> ranges;
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (const MutableTensorView& view : {pool->k(layer), pool->v(layer)}) {
      const std::span<float> all{view.as<float>(), static_cast<size_t>(view.num_elements())};
      EXPECT_THAT(all, Each(0.0f));
      std::fill(all.begin(), all.end(), 1.0f + static_cast<float>(ranges.size()));
      const auto* begin = static_cast<const std::byte*>(view.data);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0u);
      ranges.emplace_back(begin, begin + view.num_bytes());
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) EXPECT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST_F(KvPoolTest, KeepsOneRowPerTokenWhereValuesAreAPartOfTheKeys) {
  const KvLayout latent{
      .num_layers = 2, .page_size = 4, .num_kv_heads = 1, .head_dim = 24, .value_dim = 0};
  Result<KvPool> pool = KvPool::create(cpu_, latent, 300);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->k(1).shape, (Shape{301, 4, 1, 24}));
  EXPECT_EQ(pool->v(1).data, nullptr);
  EXPECT_EQ(pool->bytes(), 2 * 118784) << "301 pages of 4 * 24 floats, in whole memory pages";
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t page = 1; page <= 300; ++page) {
      std::ranges::fill(row_of(pool->k(layer), page), static_cast<float>(1000 * layer + page));
    }
  }
  const std::vector<int32_t> pages{1, 2, 3};
  ASSERT_TRUE(pool->discard_pages(*stream_, pages).ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_THAT(row_of(pool->k(layer), 300), Each(static_cast<float>(1000 * layer + 300)));
    EXPECT_THAT(row_of(pool->k(layer), 4), Each(static_cast<float>(1000 * layer + 4)));
  }
}

TEST_F(KvPoolTest, GivesValuesOfAnotherWidthTheirOwn) {
  KvLayout layout = kKv;
  layout.value_dim = 12;
  Result<KvPool> pool = KvPool::create(cpu_, layout, 5);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->k(1).shape, (Shape{6, 4, 2, 8}));
  EXPECT_EQ(pool->v(1).shape, (Shape{6, 4, 2, 12}));
  for (int64_t layer = 0; layer < 2; ++layer) {
    std::ranges::fill(row_of(pool->k(layer), 5), 1.0f);
    std::ranges::fill(row_of(pool->v(layer), 5), 2.0f);
  }
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_THAT(row_of(pool->k(layer), 5), Each(1.0f));
    EXPECT_THAT(row_of(pool->v(layer), 5), Each(2.0f));
    EXPECT_THAT(row_of(pool->k(layer), 4), Each(0.0f));
    EXPECT_THAT(row_of(pool->v(layer), 4), Each(0.0f));
  }
}

TEST_F(KvPoolTest, CommitsMemoryOnlyWhereItIsTouched) {
  const KvLayout layout{.num_layers = 2, .page_size = 16, .num_kv_heads = 2, .head_dim = 128};
  Result<KvPool> pool = KvPool::create(cpu_, layout, int64_t{1} << 16);  // 4 GiB
  ASSERT_TRUE(pool.ok());
  EXPECT_GT(pool->bytes(), int64_t{4} << 30);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pool->k(0).data) % (2 << 20), 0u);
  pool->k(0).as<float>()[0] = 1;
  std::vector<unsigned char> resident(1024);
  ASSERT_EQ(mincore(pool->k(0).row<float>(1 << 12), resident.size() * 4096, resident.data()), 0);
  EXPECT_THAT(resident, Each(0));
}

// How many of the memory pages of a row of a view hold memory.
int64_t resident_pages(const MutableTensorView& view, int64_t row) {
  const int64_t bytes = bytes_of(view.dtype, view.row_stride);
  std::vector<unsigned char> resident(static_cast<size_t>(bytes / 4096));
  EXPECT_EQ(mincore(view.row<float>(row), static_cast<size_t>(bytes), resident.data()), 0);
  return std::count_if(resident.begin(), resident.end(), [](unsigned char r) { return r & 1; });
}

TEST_F(KvPoolTest, GivesTheMemoryOfDiscardedPagesBackInAllLayersAndNoOther) {
  const KvLayout layout{.num_layers = 2, .page_size = 16, .num_kv_heads = 2, .head_dim = 128};
  Result<KvPool> pool = KvPool::create(cpu_, layout, 16);
  ASSERT_TRUE(pool.ok());
  const auto views = [&](auto visit) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      visit(pool->k(layer));
      visit(pool->v(layer));
    }
  };
  views([](const MutableTensorView& view) {
    for (int64_t page = 1; page <= 16; ++page) std::ranges::fill(row_of(view, page), 1.0f);
  });
  const std::vector<int32_t> pages = {9, 3, 4, 5, 16};
  ASSERT_TRUE(pool->discard_pages(*stream_, pages).ok());
  views([&](const MutableTensorView& view) {
    for (int32_t page = 1; page <= 16; ++page) {
      const bool kept = std::ranges::find(pages, page) == pages.end();
      EXPECT_EQ(resident_pages(view, page), kept ? 4 : 0) << "page " << page;
      if (kept) {
        EXPECT_THAT(row_of(view, page), Each(1.0f));
      }
    }
  });
}

TEST_F(KvPoolTest, KeepsTheNeighboursOfADiscardedPageThatIsNoWholeMemoryPage) {
  Result<KvPool> pool = KvPool::create(cpu_, kKv, 40);  // 256 bytes a layer and page
  ASSERT_TRUE(pool.ok());
  for (int32_t page = 1; page <= 40; ++page) {
    std::ranges::fill(row_of(pool->k(1), page), static_cast<float>(page));
  }
  std::vector<int32_t> pages(36);
  std::iota(pages.begin(), pages.end(), 2);
  ASSERT_TRUE(pool->discard_pages(*stream_, pages).ok());
  for (const int32_t page : {1, 38, 39, 40}) {
    EXPECT_THAT(row_of(pool->k(1), page), Each(static_cast<float>(page)));
  }
  EXPECT_THAT(row_of(pool->k(1), 20), Each(0.0f)) << "the memory page inside went back";
}

TEST_F(StatePoolTest, GivesTheMemoryOfADiscardedSlotBack) {
  const StateLayout layout{.num_layers = 2,
                           .parts = {{.shape = {4, 1024}}, {.shape = {2, 64, 64}}}};
  Result<StatePool> pool = StatePool::create(cpu_, layout, 3);
  ASSERT_TRUE(pool.ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t slot = 1; slot <= 3; ++slot) {
      std::ranges::fill(row_of(pool->part(layer, 0), slot), 1.0f);
      std::ranges::fill(row_of(pool->part(layer, 1), slot), 1.0f);
    }
  }
  ASSERT_TRUE(pool->discard_slot(*stream_, 2).ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t slot = 1; slot <= 3; ++slot) {
      EXPECT_EQ(resident_pages(pool->part(layer, 0), slot), slot == 2 ? 0 : 4);
      EXPECT_EQ(resident_pages(pool->part(layer, 1), slot), slot == 2 ? 0 : 8);
    }
  }
}

TEST_F(KvPoolTest, RefusesSizesThatCannotBeMapped) {
  EXPECT_EQ(KvPool::create(cpu_, kKv, -1).status().code(), StatusCode::kInvalidArgument);
  KvLayout huge = kKv;
  huge.num_layers = 4096;
  huge.num_kv_heads = 16384;
  huge.head_dim = 16384;
  const Status status = KvPool::create(cpu_, huge, 2000000000).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("KV pool"));
  huge.num_kv_heads = 1;
  EXPECT_EQ(KvPool::create(cpu_, huge, 2000000000).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(StatePoolTest, KeepsAllLayersAndPartsOfAllSlotsApart) {
  Result<StatePool> pool = StatePool::create(cpu_, small_state(), 3);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->part(2, 0).shape, (Shape{4, 3, 5}));
  EXPECT_EQ(pool->part(2, 1).shape, (Shape{4, 2, 4, 6}));
  EXPECT_EQ(pool->part(2, 2).shape, (Shape{4, 0, 9}));
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t slot = 0; slot < 4; ++slot) {
      std::ranges::fill(row_of(pool->part(layer, 0), slot),
                        static_cast<float>(100 * layer + slot + 1));
      std::ranges::fill(row_of(pool->part(layer, 1), slot),
                        static_cast<float>(-100 * layer - slot - 1));
    }
  }
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t slot = 0; slot < 4; ++slot) {
      const auto value = static_cast<float>(100 * layer + slot + 1);
      EXPECT_THAT(row_of(pool->part(layer, 0), slot), Each(value));
      EXPECT_THAT(row_of(pool->part(layer, 1), slot), Each(-value));
    }
  }
}

TEST_F(StatePoolTest, KeepsTheScalesOfInt8MatricesBehindThemInTheSlot) {
  Result<StatePool> pool = StatePool::create(cpu_, small_state(DType::kI8), 3);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->part(1, 1).shape, (Shape{4, 2, 4, 6}));
  EXPECT_EQ(pool->scales(1, 1).shape, (Shape{4, 2, 4}));
  for (int64_t slot = 1; slot < 4; ++slot) {
    std::fill_n(pool->part(1, 1).row<int8_t>(slot), 48, static_cast<int8_t>(slot));
    std::fill_n(pool->scales(1, 1).row<float>(slot), 8, static_cast<float>(10 * slot));
  }
  for (int64_t slot = 0; slot < 4; ++slot) {
    EXPECT_THAT(std::span(pool->part(1, 1).row<int8_t>(slot), 48), Each(slot));
    EXPECT_THAT(std::span(pool->scales(1, 1).row<float>(slot), 8),
                Each(10.0f * static_cast<float>(slot)));
    EXPECT_THAT(std::span(pool->scales(0, 1).row<float>(slot), 8), Each(0.0f)) << "another layer";
  }
}

TEST_F(StatePoolTest, IsEmptyForModelsWithoutState) {
  Result<StatePool> pool = StatePool::create(cpu_, {}, 0);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), 0);
}

}  // namespace
}  // namespace heddle::cache
