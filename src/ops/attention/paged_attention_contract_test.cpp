// SPDX-License-Identifier: Apache-2.0
// Arguments that paged attention refuses, and small steps whose answers are worked out by hand.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/attention/paged_attention.h"
#include "ops/device_fixture.h"
#include "quant/small_floats.h"
#include "support/tensors.h"

namespace heddle::ops {
namespace {

class PagedAttentionContractTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    forward_.query_start = query_start_;
    forward_.context_lens = context_lens_;
    forward_.page_tables[0] = pages_;
    forward_.page_table_width = 1;
    forward_.page_size = 4;
    workspace_.resize(static_cast<size_t>(paged_attention_workspace_bytes(context(), 2, 8, 8)));
  }

  [[nodiscard]] PagedAttentionArgs args() {
    return {.q = q_.view(),
            .k = k_.view(),
            .v = v_.view(),
            .y = y_.view(),
            .num_kv_heads = 1,
            .head_dim = 8,
            .scale = 1.0f,
            .kv = {k_pages_.view(), v_pages_.view()},
            .forward = &forward_,
            .workspace = workspace_};
  }

  // Runs a step of tensors of the host on the device, and brings back what it wrote.
  Status run(const PagedAttentionArgs& host) {
    PagedAttentionArgs args = host;
    std::vector<DeviceTensor> tensors;
    const auto on_device = [&](const TensorView& view) {
      tensors.push_back(view.data == nullptr ? DeviceTensor() : upload(view));
      return tensors.back().view();
    };
    args.q = on_device(host.q);
    args.k = on_device(host.k);
    if (host.v.data != nullptr) args.v = on_device(host.v);
    args.y = on_device(host.y);
    if (host.sinks.data != nullptr) args.sinks = on_device(host.sinks);
    args.kv.k = on_device(host.kv.k);
    if (host.kv.v.data != nullptr) args.kv.v = on_device(host.kv.v);
    const device::Buffer scratch = workspace(static_cast<int64_t>(host.workspace.size()));
    args.workspace = scratch.bytes();
    if (host.forward != nullptr) upload_batch(forward_);
    const Status status = paged_attention(context(), args);
    const auto fetch = [&](const MutableTensorView& from, const MutableTensorView& to) {
      if (to.data == nullptr) return;
      EXPECT_TRUE(stream().copy(to.data, from.data, to.num_bytes()).ok());
      EXPECT_TRUE(stream().synchronize().ok());
    };
    fetch(args.y, host.y);
    fetch(args.kv.k, host.kv.k);
    fetch(args.kv.v, host.kv.v);
    return status;
  }

  std::string message(const PagedAttentionArgs& wrong) { return run(wrong).to_string(); }

  Tensor q_{{2, 16}, DType::kF32}, k_{{2, 8}, DType::kF32}, v_{{2, 8}, DType::kF32};
  Tensor y_{{2, 16}, DType::kF32};
  Tensor k_pages_{{3, 4, 1, 8}, DType::kBf16}, v_pages_{{3, 4, 1, 8}, DType::kBf16};
  std::vector<int32_t> query_start_{0, 2}, context_lens_{1}, pages_{2};
  ForwardContext forward_;
  std::vector<std::byte> workspace_;
};

HEDDLE_ON_EVERY_DEVICE(PagedAttentionContractTest);

TEST_P(PagedAttentionContractTest, SaysWhatDoesNotFit) {
  ASSERT_TRUE(run(args()).ok());
  PagedAttentionArgs wrong = args();
  wrong.num_kv_heads = 3;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("Nkv"));
  wrong = args();
  wrong.window = -1;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("the window is -1"));
  wrong = args();
  const Tensor three({3}, DType::kF32);
  wrong.sinks = three.view();
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("Nq"));
  wrong = args();
  wrong.value_dim = 7;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("v has Nkv * Dv = 8"));
  wrong.v = {};
  wrong.kv.v = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("y has rows of 16, not 2 heads of 7"));
  wrong.value_dim = 9;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("value_dim is 9, it must lie within the keys"));
  wrong = args();
  wrong.v = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("the pages have values"));
  wrong = args();
  wrong.kv.v_scale = 2;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("v_scale is 2 with pages of bfloat16"));
  const Tensor e4m3({3, 4, 1, 8}, DType::kF8E4M3);
  const MutableTensorView pages(k_pages_.view().data, DType::kF8E4M3, e4m3.view().shape);
  for (const float scale : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity()}) {
    wrong.kv = {pages, pages, scale, 1};
    EXPECT_THAT(message(wrong), ::testing::HasSubstr("it must be positive and finite"));
  }
  wrong.kv = {pages, {}, 1, -1};
  wrong.v = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("v_scale is -1"));
  wrong = args();
  wrong.forward = nullptr;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("ForwardContext"));
  wrong = args();
  wrong.workspace = wrong.workspace.first(8);
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("workspace has 8 bytes"));
  query_start_[1] = 1;
  EXPECT_THAT(message(args()), ::testing::HasSubstr("covers rows 0 to 1, the tensors have 2"));
}

// Scores 1 and 2 beside a sink of 0.5: the probabilities sum to 0.85975562 (the sink takes the
// rest).
TEST_P(PagedAttentionContractTest, GivesASinkItsShare) {
  context_lens_[0] = 0;
  for (Tensor* tensor : {&q_, &k_, &v_}) std::ranges::fill(tensor->span<float>(), 0.0f);
  for (size_t h = 0; h < 4; ++h) q_.span<float>()[h * 8] = 1;
  k_.span<float>()[0] = 1;
  k_.span<float>()[8] = 2;
  v_.span<float>()[0] = 1;      // the first token's share in channel 0
  v_.span<float>()[8 + 1] = 1;  // the second's in channel 1
  Tensor sinks({2}, DType::kF32);
  sinks.span<float>()[0] = 0.5f;
  sinks.span<float>()[1] = -1e30f;
  PagedAttentionArgs step = args();
  step.sinks = sinks.view();
  ASSERT_TRUE(run(step).ok());
  const float* last = y_.view().row<float>(1);
  EXPECT_NEAR(last[0], 0.2312239f, 1e-7f);
  EXPECT_NEAR(last[1], 0.62853172f, 1e-7f);
  EXPECT_NEAR(last[8 + 0], 0.26894142f, 1e-7f);
  EXPECT_NEAR(last[8 + 1], 0.73105858f, 1e-7f);
}

// Rows that fill a batch up to a captured size belong to no sequence.
TEST_P(PagedAttentionContractTest, LeavesPagesAloneForPadding) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";
  const DeviceTensor q = upload(testing::random_tensor({2, 16}, DType::kBf16, 1));
  const DeviceTensor kv = upload(testing::random_tensor({2, 8}, DType::kBf16, 2));
  DeviceTensor y = poisoned({2, 16}, DType::kBf16);
  DeviceTensor k_pages = poisoned({3, 4, 1, 8}, DType::kBf16);
  DeviceTensor v_pages = poisoned({3, 4, 1, 8}, DType::kBf16);
  context_lens_[0] = 0;
  upload_batch(forward_);
  const std::vector<int32_t> rows{0, -1};
  forward_.batch.row_sequences = mirrored(rows).device;
  PagedAttentionArgs step = args();
  const device::Buffer scratch = workspace(static_cast<int64_t>(workspace_.size()));
  step.q = q.view(), step.k = kv.view(), step.v = kv.view(), step.y = y.view();
  step.kv = {k_pages.view(), v_pages.view()};
  step.workspace = scratch.bytes();
  ASSERT_TRUE(paged_attention(context(), step).ok());
  for (const DeviceTensor* pages : {&k_pages, &v_pages}) {
    const Tensor after = download(*pages);
    for (size_t i = 0; i < after.span<uint16_t>().size(); ++i) {
      const bool written = i >= 2 * 32 && i < 2 * 32 + 8;  // page 2, first token
      EXPECT_EQ(after.span<uint16_t>()[i] != 0xffff, written) << i;
    }
  }
}

TEST_P(PagedAttentionContractTest, RoundsKeysAndValuesAsTheScalarConversionsDo) {
  const float samples[] = {1.00585f, -3.14159f, 65519.0f, 1e-7f, 0.0f, -0.0f, 1.0009766f, 5.9e-8f};
  for (int64_t c = 0; c < 8; ++c) {
    k_.span<float>()[static_cast<size_t>(c)] = samples[c];
    v_.span<float>()[static_cast<size_t>(c)] = samples[7 - c];
  }
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    Tensor k_pages({3, 4, 1, 8}, dtype), v_pages({3, 4, 1, 8}, dtype);
    PagedAttentionArgs step = args();
    step.kv = {k_pages.view(), v_pages.view()};
    ASSERT_TRUE(run(step).ok());
    for (size_t c = 0; c < 8; ++c) {
      const size_t at = 2 * 32 + 8 + c;  // page 2, second token
      const uint16_t expected =
          dtype == DType::kBf16 ? to_bf16(samples[c]).bits : to_f16(samples[c]).bits;
      EXPECT_EQ(k_pages.span<uint16_t>()[at], expected) << samples[c];
      EXPECT_EQ(v_pages.span<uint16_t>()[at + 7 - 2 * c], expected) << samples[c];
    }
  }
}

// Numbers that a scale brings into range, that saturate, that fall below the smallest code, ties,
// and what is no number; at the start of a row, where vectors are stored, and behind it.
TEST_P(PagedAttentionContractTest, StoresE4M3AsTheScalarConversionDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float samples[] = {1.0f,   -336.1f,   23.5f,      24.5f, 1e4f,  -1e30f,
                           0.001f, kInfinity, -kInfinity, 0.0f,  -0.0f, 1e-8f};
  constexpr int64_t kWidth = 37;
  Tensor q({2, kWidth}, DType::kF32), k({2, kWidth}, DType::kF32), v({2, kWidth}, DType::kF32);
  Tensor y({2, kWidth}, DType::kF32);
  for (size_t i = 0; i < 2 * static_cast<size_t>(kWidth); ++i) {
    k.span<float>()[i] = samples[i % 12] * (i < 30 ? 1.0f : 1.37f);
    v.span<float>()[i] = samples[11 - i % 12] * (i < 30 ? 1.0f : 1.37f);
  }
  k.span<float>()[3] = k.span<float>()[kWidth - 1] = std::numeric_limits<float>::quiet_NaN();
  Tensor k_pages({3, 4, 1, kWidth}, DType::kF8E4M3), v_pages({3, 4, 1, kWidth}, DType::kF8E4M3);
  for (Tensor* pages : {&k_pages, &v_pages}) std::ranges::fill(pages->span<uint8_t>(), 0x55);
  for (const float v_scale : {1.0f, 0.0131f, 700.0f}) {
    PagedAttentionArgs step = args();
    workspace_.resize(
        static_cast<size_t>(paged_attention_workspace_bytes(context(), 2, kWidth, kWidth)));
    step.workspace = workspace_;
    step.q = q.view(), step.k = k.view(), step.v = v.view(), step.y = y.view();
    step.head_dim = kWidth;
    step.kv = {k_pages.view(), v_pages.view(), 0.7f, v_scale};
    ASSERT_TRUE(run(step).ok());
    const auto before = static_cast<size_t>(2 * 4 + 1) * kWidth;  // page 2, second token
    for (size_t i = 0; i < 3 * 4 * static_cast<size_t>(kWidth); ++i) {
      const bool written = i >= before && i < before + 2 * kWidth;
      const uint8_t k_code =
          written ? quant::float_to_e4m3(k.span<float>()[i - before] / 0.7f) : uint8_t{0x55};
      const uint8_t v_code =
          written ? quant::float_to_e4m3(v.span<float>()[i - before] / v_scale) : uint8_t{0x55};
      EXPECT_EQ(k_pages.span<uint8_t>()[i], k_code) << i;
      EXPECT_EQ(v_pages.span<uint8_t>()[i], v_code) << i;
    }
  }
}

}  // namespace
}  // namespace heddle::ops
