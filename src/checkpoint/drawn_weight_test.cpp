// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/drawn_weight.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/copy_job.h"
#include "checkpoint/dummy_weights.h"
#include "checkpoint/load_weights.h"
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

// Numbers that are rounded to codes on the host, as those of files are.
class UndrawnWeights final : public WeightSource {
 public:
  [[nodiscard]] std::optional<StoredWeight> find(const WeightRequest& request) const override {
    return source_.find(request);
  }

  [[nodiscard]] std::vector<std::string_view> names() const override { return {}; }

  void read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
            void* target) const override {
    source_.read(weight, first, count, dtype, target);
  }

 private:
  DummyWeights source_{7};
};

// Codes and scales survive the way to the device and back, those that are drawn there, too.
TEST_P(DrawnWeightTest, ADeviceHasTheCodesAndScalesOfTheHost) {
  const std::vector<WeightSpec> specs = {
      {.name = "w",
       .shape = {700, 2880},
       .alternatives = {concatenated({{"a.q_proj.weight", {300, 2880}},
                                      {"a.in_proj_ba.weight", {16, 2880}},
                                      {"a.k_proj.weight", {384, 2880}}})}},
      {.name = "experts",
       .shape = {3, 200, 96},
       .alternatives = {stacked(3, {{"m.experts.#.up_proj.weight", {200, 96}}})},
       .packing = Packing::kAlike}};
  for (const bool drawn : {true, false}) {
    for (const auto scheme : {quant::Scheme::kInt4, quant::Scheme::kInt8, quant::Scheme::kFp8,
                              quant::Scheme::kFp8Block, quant::Scheme::kMxfp4}) {
      SCOPED_TRACE(static_cast<int>(scheme));
      const auto source = [&]() -> std::unique_ptr<WeightSource> {
        if (drawn) return std::make_unique<DummyWeights>(7);
        return std::make_unique<UndrawnWeights>();
      };
      LoadOptions options{.dtype = DType::kBf16, .num_threads = 2};
      options.rounding = Rounding{.scheme = scheme, .group_size = 32};
      const Result<LoadedWeights> host = load_weights(source(), specs, options);
      options.device = &device();
      const Result<LoadedWeights> sent = load_weights(source(), specs, options);
      ASSERT_TRUE(host.ok() && sent.ok()) << sent.status().to_string();
      int64_t num_bytes = 0;
      for (const WeightSpec& spec : specs) {
        const TensorView &here = (*host)[spec.name], &there = (*sent)[spec.name];
        ASSERT_EQ(there.dtype, DType::kPacked);
        EXPECT_EQ(there.packed->on_gpu, on_cuda());
        ASSERT_EQ(there.packed->parts.size(), spec.name == "w" ? 3u : 1u);
        num_bytes += quant::stored_bytes(there);
        const auto expect_bytes = [&](const void* got, const void* want, int64_t count) {
          std::vector<std::byte> bytes(static_cast<size_t>(count));
          ASSERT_TRUE(stream().copy(bytes.data(), got, count).ok());
          ASSERT_TRUE(stream().synchronize().ok());
          EXPECT_EQ(std::memcmp(bytes.data(), want, bytes.size()), 0);
        };
        for (size_t i = 0; i < there.packed->parts.size(); ++i) {
          const quant::PackedWeight::Part& got = there.packed->parts[i];
          const quant::PackedWeight::Part& want = here.packed->parts[i];
          if (want.plain.data != nullptr) {
            expect_bytes(got.plain.data, want.plain.data, want.plain.num_bytes());
            continue;
          }
          const quant::PackedRows& rows = want.packed;
          ASSERT_EQ(got.packed.rows_per_scale, rows.rows_per_scale);
          expect_bytes(got.packed.codes, rows.codes, rows.num_rows * rows.format.code_bytes());
          expect_bytes(got.packed.scales, rows.scales,
                       rows.num_scale_rows() * rows.format.scale_bytes());
          if (!rows.format.has_zeros) continue;
          expect_bytes(got.packed.zeros, rows.zeros, rows.num_rows * rows.format.num_groups());
        }
      }
      EXPECT_LE(sent->bytes_copied(), num_bytes + 12 * 64) << "the arena holds packed bytes";
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
