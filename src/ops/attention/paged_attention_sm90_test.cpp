// SPDX-License-Identifier: Apache-2.0
// Paged attention on tensor cores against the plain loops of its reference.
#include "ops/attention/paged_attention_sm90.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "device/cuda/cuda_device.h"
#include "ops/attention/paged_attention_fixture.h"
#include "ops/attention/paged_attention_split.h"

namespace heddle::ops {
namespace {

using testing::Conversation;
using testing::Geometry;
using testing::run_in_pieces;

class HopperAttentionTest : public testing::AttentionTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const device::CudaProperties& gpu = static_cast<CudaContext&>(context()).gpu.properties();
    if (gpu.major != 9) GTEST_SKIP() << gpu.name << " is no Hopper GPU";
  }

  // As the fast form takes it; where keys and values are rounded to bf16, so are activations.
  static Geometry fast(Geometry geometry) {
    geometry.dtype = DType::kBf16;
    geometry.activations = DType::kBf16;
    geometry.exact = false;
    return geometry;
  }

  static std::string name_of(const Geometry& g) {
    return fmt::format("Nq {} Nkv {} D {} S {} window {} sinks {}", g.Nq, g.Nkv, g.D, g.S, g.window,
                       g.sinks);
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, HopperAttentionTest, ::testing::Values(device::DeviceKind::kCuda));

TEST_P(HopperAttentionTest, SmallestPromptsMatchTheReference) {
  for (const int64_t D : {64, 128, 256}) {
    const Geometry geometry = fast({.Nq = 4, .Nkv = 2, .D = D, .S = 16});
    SCOPED_TRACE(name_of(geometry));
    Conversation conversation(*this, geometry, {70});
    conversation.check_against_reference(true);
    conversation.run_whole();
    conversation.expect_foreign_pages_untouched();
  }
}

TEST_P(HopperAttentionTest, LeavesAllToPlainKernelsWhereTheseAreAskedFor) {
  auto& of_test = static_cast<CudaContext&>(context());
  CudaContext fast(of_test.gpu, of_test.stream, /*dense_products=*/nullptr);
  const AttentionForm form{.activations = DType::kBf16,
                           .pages = DType::kBf16,
                           .head_dim = 128,
                           .value_dim = 128,
                           .page_size = 16};
  EXPECT_TRUE(paged_attention_sm90_takes(fast, form));
  EXPECT_TRUE(paged_attention_split_takes(fast, form));
  AttentionForm wide = form;
  wide.head_dim = wide.value_dim = 512;
  EXPECT_FALSE(paged_attention_sm90_takes(fast, wide));
  EXPECT_TRUE(paged_attention_split_takes(fast, wide));
  fast.plain_attention = true;
  EXPECT_FALSE(paged_attention_sm90_takes(fast, form));
  EXPECT_FALSE(paged_attention_split_takes(fast, form));
  EXPECT_EQ(describe_attention_cuda(fast, form), "plain kernels, asked for");
}

TEST_P(HopperAttentionTest, MatchesTheReferenceForAnyGeometry) {
  const Geometry geometries[] = {
      {.Nq = 16, .Nkv = 2, .D = 256, .S = 16}, {.Nq = 16, .Nkv = 2, .D = 256, .S = 64},
      {.Nq = 7, .Nkv = 1, .D = 256, .S = 8},   {.Nq = 3, .Nkv = 3, .D = 256, .S = 128},
      {.Nq = 8, .Nkv = 2, .D = 128, .S = 32},  {.Nq = 28, .Nkv = 4, .D = 128, .S = 64},
      {.Nq = 2, .Nkv = 2, .D = 128, .S = 256}, {.Nq = 71, .Nkv = 1, .D = 64, .S = 16},
      {.Nq = 8, .Nkv = 1, .D = 64, .S = 8},    {.Nq = 130, .Nkv = 1, .D = 64, .S = 16},
      {.Nq = 4, .Nkv = 2, .D = 128, .S = 4},   {.Nq = 4, .Nkv = 2, .D = 64, .S = 48}};
  for (const Geometry& plain : geometries) {
    const Geometry geometry = fast(plain);
    SCOPED_TRACE(name_of(geometry));
    Conversation conversation(*this, geometry, {600, 1, 17, 333});
    conversation.check_against_reference(true);
    conversation.step({{.sequence = 0, .first = 0, .num_rows = 257},
                       {.sequence = 2, .first = 0, .num_rows = 16},
                       {.sequence = 3, .first = 0, .num_rows = 129}});
    conversation.step({{.sequence = 1, .first = 0, .num_rows = 1},
                       {.sequence = 0, .first = 257, .num_rows = 340},
                       {.sequence = 2, .first = 16, .num_rows = 1},
                       {.sequence = 3, .first = 129, .num_rows = 204}});
    conversation.step({{.sequence = 0, .first = 597, .num_rows = 3}});
    conversation.expect_foreign_pages_untouched();
  }
}

TEST_P(HopperAttentionTest, MatchesTheReferenceWithWindowsAndSinks) {
  for (const int64_t D : {64, 128, 256}) {
    for (const int64_t window : {1, 17, 64, 128, 135}) {
      const Geometry geometry =
          fast({.Nq = 8, .Nkv = 2, .D = D, .S = 16, .window = window, .sinks = window % 2 == 1});
      SCOPED_TRACE(name_of(geometry));
      Conversation conversation(*this, geometry, {500, 40});
      conversation.check_against_reference(true);
      conversation.step({{.sequence = 0, .first = 0, .num_rows = 137},
                         {.sequence = 1, .first = 0, .num_rows = 40}});
      conversation.step({{.sequence = 0, .first = 137, .num_rows = 300}});
      conversation.step({{.sequence = 0, .first = 437, .num_rows = 63}});
      conversation.expect_foreign_pages_untouched();
    }
  }
}

// A sink larger than all scores takes nearly everything; a very small one takes nothing.
TEST_P(HopperAttentionTest, SinksBeyondAllScoresLeaveNumbers) {
  for (const float sink : {-1e30f, 60.0f}) {
    const Geometry geometry = fast({.Nq = 4, .Nkv = 1, .D = 64, .S = 16, .sinks = true});
    Conversation conversation(*this, geometry, {200});
    conversation.set_sinks(sink);
    conversation.check_against_reference(true);
    conversation.run_whole();
  }
}

TEST_P(HopperAttentionTest, MixesChunksAndDecodeOverShuffledPages) {
  const std::vector<int64_t> lengths{300, 90, 1, 210};
  const Geometry geometry = fast({.Nq = 16, .Nkv = 2, .D = 128, .S = 16});
  Conversation conversation(*this, geometry, lengths, 7);
  conversation.check_against_reference(true);
  run_in_pieces(conversation, lengths, 11);
  conversation.expect_foreign_pages_untouched();
}

// Rows already there are not written again: those given are NaN.
TEST_P(HopperAttentionTest, ReadsWhatWasStoredBefore) {
  const Geometry geometry = fast({.Nq = 8, .Nkv = 2, .D = 128, .S = 16});
  Conversation conversation(*this, geometry, {256});
  conversation.check_against_reference(true);
  conversation.step({{.first = 0, .num_rows = 200}});
  conversation.step({{.first = 64, .num_rows = 192, .kv_len = 200}});
}

}  // namespace
}  // namespace heddle::ops
