// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/drawn_weight.h"

#include <cstring>

#include <gtest/gtest.h>

#include "checkpoint/copy_job.h"
#include "checkpoint/dummy_weights.h"
#include "ops/device_fixture.h"

namespace heddle::checkpoint {
namespace {

class DrawnWeightTest : public ops::DeviceTest {
 protected:
  // The bytes of a memory of 4096 elements, poison where `job` writes none.
  [[nodiscard]] Tensor run_on_host(const StoredWeight& weight, const CopyJob& job) const {
    Tensor memory({4096}, job.dtype);
    heddle::testing::poison(memory);
    run_copy_job(source_, weight, job, static_cast<std::byte*>(memory.view().data));
    return memory;
  }

  [[nodiscard]] Tensor run_on_device(const StoredWeight& weight, const CopyJob& job) {
    ops::DeviceTensor memory = poisoned({4096}, job.dtype);
    auto* const arena = static_cast<std::byte*>(memory.view().data);
    WeightStage stage = WeightStage::create(device(), arena, job.num_bytes()).value();
    EXPECT_EQ(stage.can_draw(), on_cuda());
    EXPECT_TRUE(stage_copy_job(source_, weight, job, stage).ok());
    EXPECT_TRUE(stage.finish().ok());
    return download(memory);
  }

  DummyWeights source_{7};
};

HEDDLE_ON_EVERY_DEVICE(DrawnWeightTest);

TEST_P(DrawnWeightTest, SmallestJobsGiveADeviceTheBitsOfTheHost) {
  const CopyJob dense{
      .first = 2041, .num_rows = 1, .row_width = 3001, .row_step = 3001, .target_byte = 64};
  CopyJob beyond_32_bits = dense;
  beyond_32_bits.first = (int64_t{1} << 32) - 11;
  CopyJob rows_apart = dense;
  rows_apart.num_rows = 13;
  rows_apart.row_width = 37;
  rows_apart.row_step = 111;
  CopyJob columns = rows_apart;
  columns.row_step = 3;
  columns.element_step = 4099;
  for (CopyJob job : {dense, beyond_32_bits, rows_apart, columns}) {
    for (const Initial initial : {Initial::kSmall, Initial::kAroundOne, Initial::kLogDecay}) {
      const StoredWeight weight =
          *source_.find({.name = "w", .shape = {int64_t{1} << 33}, .initial = initial});
      for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
        job.dtype = dtype;
        job.offset = dtype == DType::kF32 ? 1.0f : 0.0f;
        const Tensor want = run_on_host(weight, job);
        const Tensor got = run_on_device(weight, job);
        ASSERT_EQ(
            std::memcmp(want.view().data, got.view().data, static_cast<size_t>(want.num_bytes())),
            0)
            << "first " << job.first << ", rows " << job.num_rows << ", " << to_string(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
