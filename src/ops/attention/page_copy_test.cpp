// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/page_copy.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

constexpr int64_t kPages = 6;

class PageCopyTest : public DeviceTest {};

HEDDLE_ON_EVERY_DEVICE(PageCopyTest);

// Layers whose pages have a multiple of 16 bytes, an odd number of them, and no values.
TEST_P(PageCopyTest, CopiesPagesInAllLayersInTheOrderOfTheList) {
  const Tensor before[] = {testing::random_tensor({kPages, 16, 2, 8}, DType::kBf16, 1),
                           testing::random_tensor({kPages, 16, 2, 8}, DType::kBf16, 2),
                           testing::random_tensor({kPages, 5, 1, 3}, DType::kF16, 3),
                           testing::random_tensor({kPages, 5, 1, 7}, DType::kF16, 4),
                           testing::random_tensor({kPages, 4, 1, 40}, DType::kF32, 5)};
  DeviceTensor pools[] = {upload(before[0]), upload(before[1]), upload(before[2]),
                          upload(before[3]), upload(before[4])};
  const std::vector<KvLayer> layers = {{.k = pools[0].view(), .v = pools[1].view()},
                                       {.k = pools[2].view(), .v = pools[3].view()},
                                       {.k = pools[4].view(), .v = {}}};
  const std::vector<IdCopy> pages = {
      {.from = 2, .to = 5}, {.from = 5, .to = 1}, {.from = 3, .to = 3}};
  ASSERT_TRUE(copy_pages(context(), {.layers = mirrored(layers), .pages = mirrored(pages)}).ok());
  for (size_t i = 0; i < 5; ++i) {
    const Tensor after = download(pools[i]);
    const int64_t bytes = after.num_bytes() / kPages;
    for (int64_t page = 0; page < kPages; ++page) {
      const int64_t source = page == 5 || page == 1 ? 2 : page;
      EXPECT_EQ(std::memcmp(after.view().as<std::byte>() + page * bytes,
                            before[i].view().as<std::byte>() + source * bytes,
                            static_cast<size_t>(bytes)),
                0)
          << "pool " << i << ", page " << page;
    }
  }
}

// A row moves towards the front, over one that went before it: each is read before it is written.
TEST_P(PageCopyTest, CopiesRowsInAllLayersInTheOrderOfTheList) {
  for (const int64_t S : {1, 4, 16}) {
    SCOPED_TRACE(S);
    const int64_t num_rows = kPages * S;
    const Tensor before[] = {testing::random_tensor({kPages, S, 2, 8}, DType::kBf16, 1),
                             testing::random_tensor({kPages, S, 2, 8}, DType::kBf16, 2),
                             testing::random_tensor({kPages, S, 1, 3}, DType::kF16, 3)};
    DeviceTensor pools[] = {upload(before[0]), upload(before[1]), upload(before[2])};
    const std::vector<KvLayer> layers = {{.k = pools[0].view(), .v = pools[1].view()},
                                         {.k = pools[2].view(), .v = {}}};
    const std::vector<IdCopy> rows = {
        {.from = 3, .to = 1}, {.from = 4, .to = 3}, {.from = 5, .to = 4}};
    ASSERT_TRUE(copy_rows(context(), {.layers = mirrored(layers), .rows = mirrored(rows)}).ok());
    for (size_t i = 0; i < 3; ++i) {
      const Tensor after = download(pools[i]);
      const int64_t bytes = after.num_bytes() / num_rows;
      for (int64_t row = 0; row < num_rows; ++row) {
        const int64_t source = row == 1 ? 3 : row == 3 ? 4 : row == 4 ? 5 : row;
        EXPECT_EQ(std::memcmp(after.view().as<std::byte>() + row * bytes,
                              before[i].view().as<std::byte>() + source * bytes,
                              static_cast<size_t>(bytes)),
                  0)
            << "pool " << i << ", row " << row;
      }
    }
  }
}

TEST_P(PageCopyTest, SaysWhichRowIsNotThere) {
  DeviceTensor pool = upload(Tensor({kPages, 4, 1, 8}, DType::kF32));
  const std::vector<KvLayer> layers = {{.k = pool.view(), .v = pool.view()}};
  const std::vector<IdCopy> rows = {{.from = 24, .to = 6}};
  EXPECT_EQ(copy_rows(context(), {.layers = mirrored(layers), .rows = mirrored(rows)}).message(),
            "copy_rows: row 24 to row 6, the pool has 24");
}

TEST_P(PageCopyTest, SaysWhichPageIsNotThere) {
  DeviceTensor pool = upload(Tensor({kPages, 4, 1, 8}, DType::kF32));
  const std::vector<KvLayer> layers = {{.k = pool.view(), .v = pool.view()}};
  const std::vector<IdCopy> pages = {{.from = 1, .to = 6}};
  EXPECT_EQ(copy_pages(context(), {.layers = mirrored(layers), .pages = mirrored(pages)}).message(),
            "copy_pages: page 1 to page 6, the pool has 6");
}

}  // namespace
}  // namespace heddle::ops
