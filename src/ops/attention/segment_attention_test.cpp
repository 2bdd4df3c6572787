// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/segment_attention.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "ops/attention/segment_attention_reference.h"
#include "ops/device_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

using testing::random_tensor;
using testing::relative_error;
using testing::to_doubles;

Tensor segments_of(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> bounds;
  int32_t first = 0;
  for (const int64_t length : lengths) {
    const int32_t end = first + static_cast<int32_t>(length);
    for (; std::ssize(bounds) / 2 < end;) bounds.insert(bounds.end(), {first, end});
    first = end;
  }
  Tensor segments({first, 2}, DType::kI32);
  std::ranges::copy(bounds, segments.span<int32_t>().begin());
  return segments;
}

// q, k and v side by side in rows of one tensor.
struct Heads {
  Heads(const std::vector<int64_t>& lengths, int64_t heads, int64_t D, uint64_t seed)
      : segments(segments_of(lengths)),
        num_heads(heads),
        head_dim(D),
        qkv(random_tensor({segments.shape()[0], 3 * heads * D}, DType::kF32, seed)) {
    for (float& value : qkv.span<float>()) value *= 3;
  }

  [[nodiscard]] TensorView part(int64_t i) const {
    const int64_t width = num_heads * head_dim;
    return {
        qkv.view().as<float>() + i * width, DType::kF32, {segments.shape()[0], width}, 3 * width};
  }

  [[nodiscard]] std::vector<double> reference() const {
    return segment_attention_reference(
        to_doubles(part(0)), to_doubles(part(1)), to_doubles(part(2)), segments.span<int32_t>(),
        static_cast<size_t>(num_heads), static_cast<size_t>(head_dim), 0.3);
  }

  Tensor segments;
  int64_t num_heads, head_dim;
  Tensor qkv;
};

class SegmentAttentionTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && on_cuda()) GTEST_SKIP() << "there is no CUDA kernel";
  }

  Tensor run(const Heads& heads, int num_threads = 2) {
    Context& here = context_on(num_threads, /*exact=*/false);
    const int64_t S = heads.segments.shape()[0];
    Tensor y({S, heads.num_heads * heads.head_dim}, DType::kF32);
    testing::poison(y);
    std::vector<std::byte> workspace(
        static_cast<size_t>(segment_attention_workspace_bytes(here, S, heads.head_dim)),
        std::byte{0xff});
    const Status status = segment_attention(here, {.q = heads.part(0),
                                                   .k = heads.part(1),
                                                   .v = heads.part(2),
                                                   .segments = heads.segments.view(),
                                                   .y = y.view(),
                                                   .head_dim = heads.head_dim,
                                                   .scale = 0.3f,
                                                   .workspace = workspace});
    EXPECT_TRUE(status.ok()) << status.message();
    return y;
  }
};

HEDDLE_ON_EVERY_DEVICE(SegmentAttentionTest);

TEST_P(SegmentAttentionTest, MatchesTheReferenceWhenSegmentsAndHeadsFillNoTile) {
  for (const int64_t D : {8, 24, 64, 72, 80, 96}) {
    for (const std::vector<int64_t>& lengths : std::vector<std::vector<int64_t>>{
             {1}, {63}, {64}, {65}, {1, 1, 1}, {16, 8, 64, 200, 3}, {129, 17}}) {
      SCOPED_TRACE(fmt::format("D = {}, segments of {}", D, fmt::join(lengths, ", ")));
      const Heads heads(lengths, 3, D, 5);
      EXPECT_LT(relative_error(run(heads).view(), heads.reference()), 1e-6);
    }
  }
}

TEST_P(SegmentAttentionTest, TakesNoRows) { EXPECT_EQ(run(Heads({}, 2, 8, 1)).num_elements(), 0); }

// A segment gets the same bits as when it is computed alone, at any position and by any thread.
TEST_P(SegmentAttentionTest, KeepsSegmentsApartBitForBit) {
  const std::vector<int64_t> lengths = {70, 5, 130, 64};
  const Heads together(lengths, 2, 72, 9);
  const Tensor all = run(together, 3);
  int64_t first = 0;
  for (const int64_t length : lengths) {
    Heads alone({length}, 2, 72, 1);
    const int64_t row_bytes = bytes_of(DType::kF32, alone.qkv.shape()[1]);
    std::memcpy(alone.qkv.view().data, together.qkv.view().row<float>(first),
                static_cast<size_t>(length * row_bytes));
    const TensorView here(all.view().row<float>(first), DType::kF32, Shape{length, all.shape()[1]});
    EXPECT_TRUE(testing::same_bits(run(alone, 1).view(), here)) << "segment at " << first;
    first += length;
  }
}

// One key has scores far larger than all others. It is in the first or in the last block of keys.
TEST_P(SegmentAttentionTest, StandsScoresFarApart) {
  for (const int64_t peak : {0, 150}) {
    Heads heads({160}, 1, 8, 3);
    for (int64_t c = 8; c < 16; ++c) heads.qkv.view().row<float>(peak)[c] *= 300;
    EXPECT_LT(relative_error(run(heads).view(), heads.reference()), 2e-6);
  }
}

TEST_P(SegmentAttentionTest, NamesWhatDoesNotFit) {
  Tensor y({4, 48}, DType::kF32);
  const auto complaint = [&](const std::vector<int32_t>& bounds, int64_t head_dim) {
    Tensor segments({4, 2}, DType::kI32);
    std::ranges::copy(bounds, segments.span<int32_t>().begin());
    const Tensor x({4, 48}, DType::kF32);
    return segment_attention(context(), {.q = x.view(),
                                         .k = x.view(),
                                         .v = x.view(),
                                         .segments = segments.view(),
                                         .y = y.view(),
                                         .head_dim = head_dim})
        .message();
  };
  const std::vector<int32_t> one = {0, 4, 0, 4, 0, 4, 0, 4};
  EXPECT_EQ(complaint(one, 12),
            "segment_attention: rows of 48 are not heads of 12, a multiple of 8");
  const auto row = [](int64_t at, int64_t first, int64_t end) {
    return fmt::format(
        "segment_attention: row {} of 4 has the segment from {} to {}, which does "
        "not follow the segment before it",
        at, first, end);
  };
  EXPECT_EQ(complaint({0, 5, 0, 5, 0, 5, 0, 5}, 8), row(0, 0, 5));
  EXPECT_EQ(complaint({0, 0, 0, 4, 0, 4, 0, 4}, 8), row(0, 0, 0));
  EXPECT_EQ(complaint({-1, 4, 0, 4, 0, 4, 0, 4}, 8), row(0, -1, 4));
  EXPECT_EQ(complaint({0, 2, 0, 2, 1, 4, 1, 4}, 8), row(2, 1, 4));
  EXPECT_EQ(complaint({0, 2, 0, 3, 2, 4, 2, 4}, 8), row(1, 0, 3));
  EXPECT_EQ(complaint({0, -3, 0, 4, 0, 4, 0, 4}, 8), row(0, 0, -3));
  EXPECT_TRUE(complaint(one, 8).starts_with("segment_attention: the workspace has 0 bytes"));
}

}  // namespace
}  // namespace heddle::ops
