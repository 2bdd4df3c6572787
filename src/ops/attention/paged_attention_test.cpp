// SPDX-License-Identifier: Apache-2.0
// Paged attention against the plain loops of its reference, for any geometry, dtype and instruction
// set.
#include "ops/attention/paged_attention.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "ops/attention/paged_attention_fixture.h"
#include "ops/simd/targets.h"

namespace heddle::ops {
namespace {

using testing::Conversation;
using testing::Geometry;
using testing::run_in_pieces;
using testing::with_pages;

class PagedAttentionTest : public testing::AttentionTest {};

HEDDLE_ON_EVERY_DEVICE(PagedAttentionTest);

// Prompts of 137 and 16 tokens; then the second sequence's only token beside three more and one;
// then one alone. For a conversation of 141, 1 and 17 tokens.
void run_mixed_steps(Conversation& conversation) {
  conversation.step(
      {{.sequence = 0, .first = 0, .num_rows = 137}, {.sequence = 2, .first = 0, .num_rows = 16}});
  conversation.step({{.sequence = 1, .first = 0, .num_rows = 1},
                     {.sequence = 0, .first = 137, .num_rows = 3},
                     {.sequence = 2, .first = 16, .num_rows = 1}});
  conversation.step({{.sequence = 0, .first = 140, .num_rows = 1}});
  conversation.expect_foreign_pages_untouched();
}

TEST_P(PagedAttentionTest, MatchesTheReferenceForAnyGeometry) {
  const Geometry geometries[] = {
      {.Nq = 1, .Nkv = 1, .D = 7, .S = 1},    {.Nq = 4, .Nkv = 2, .D = 128, .S = 16},
      {.Nq = 3, .Nkv = 3, .D = 80, .S = 8},   {.Nq = 6, .Nkv = 2, .D = 96, .S = 128},
      {.Nq = 16, .Nkv = 1, .D = 32, .S = 4},  {.Nq = 71, .Nkv = 1, .D = 16, .S = 16},
      {.Nq = 8, .Nkv = 1, .D = 256, .S = 64}, {.Nq = 20, .Nkv = 1, .D = 600, .S = 8}};
  for (Geometry geometry : geometries) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3}) {
      geometry = with_pages(geometry, dtype);
      geometry.activations =
          activation_dtypes()[static_cast<size_t>(geometry.D) % activation_dtypes().size()];
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} S {} {}, {}", geometry.Nq, geometry.Nkv,
                               geometry.D, geometry.S, to_string(dtype),
                               to_string(geometry.activations)));
      Conversation conversation(*this, geometry, {141, 1, 17});
      conversation.check_against_reference(true);
      run_mixed_steps(conversation);
    }
  }
}

// Values of another width than keys, and values that are the first channels of the keys; decode
// reads them in place or, where a width is ragged, from copies.
TEST_P(PagedAttentionTest, MatchesTheReferenceForLatentAndUnequalWidths) {
  const Geometry geometries[] = {
      {.Nq = 4, .Nkv = 1, .D = 40, .S = 16, .Dv = 32, .latent = true},
      {.Nq = 16, .Nkv = 1, .D = 80, .S = 8, .Dv = 64, .latent = true},
      {.Nq = 3, .Nkv = 1, .D = 7, .S = 1, .Dv = 5, .latent = true},
      {.Nq = 6, .Nkv = 2, .D = 48, .S = 4, .window = 20, .sinks = true, .Dv = 16, .latent = true},
      {.Nq = 2, .Nkv = 1, .D = 16, .S = 16, .latent = true},
      {.Nq = 8, .Nkv = 1, .D = 160, .S = 64, .Dv = 144, .latent = true},
      {.Nq = 20, .Nkv = 1, .D = 576, .S = 16, .Dv = 512, .latent = true},
      {.Nq = 6, .Nkv = 2, .D = 24, .S = 16, .Dv = 16},
      {.Nq = 4, .Nkv = 4, .D = 32, .S = 16, .Dv = 80}};
  const std::vector<int64_t> lengths{141, 1, 17};
  for (Geometry geometry : geometries) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3}) {
      geometry = with_pages(geometry, dtype);
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} Dv {} S {} {}", geometry.Nq, geometry.Nkv,
                               geometry.D, geometry.Dv, geometry.S, to_string(dtype)));
      Conversation whole(*this, geometry, lengths);
      whole.check_against_reference(true);
      whole.run_whole();
      whole.expect_foreign_pages_untouched();
      geometry.S = 2;
      Conversation pieces(*this, geometry, lengths, 99);
      run_in_pieces(pieces, lengths, static_cast<uint64_t>(geometry.D));
      for (int64_t t = 130; t < 141; ++t) pieces.step({{.first = t, .num_rows = 1}}, 2);
      EXPECT_EQ(whole.outputs(), pieces.outputs());
      pieces.expect_foreign_pages_untouched();
    }
  }
}

// A layer without keys and values of its own, behind one that wrote the step's.
TEST_P(PagedAttentionTest, ReadsThePagesOfAnotherLayerWithoutAppending) {
  const Geometry geometries[] = {{.Nq = 6, .Nkv = 2, .D = 96, .S = 16},
                                 {.Nq = 3, .Nkv = 3, .D = 7, .S = 1, .window = 17, .sinks = true},
                                 {.Nq = 8, .Nkv = 1, .D = 256, .S = 8, .window = 135},
                                 {.Nq = 6, .Nkv = 2, .D = 24, .S = 4, .Dv = 16}};
  for (Geometry geometry : geometries) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
      for (const bool exact : {true, false}) {
        geometry = with_pages(geometry, dtype);
        geometry.exact = exact;
        SCOPED_TRACE(fmt::format("D {} Dv {} window {}, {}, exact {}", geometry.D, geometry.Dv,
                                 geometry.window, to_string(dtype), exact));
        Conversation conversation(*this, geometry, {141, 1, 17});
        conversation.check_against_reference(exact);
        conversation.read_pages_again(true);
        run_mixed_steps(conversation);
      }
    }
  }
}

TEST_P(PagedAttentionTest, MatchesTheReferenceWithWindowsAndSinks) {
  const Geometry geometries[] = {{.Nq = 1, .Nkv = 1, .D = 7, .S = 1},
                                 {.Nq = 3, .Nkv = 3, .D = 80, .S = 8, .dtype = DType::kBf16},
                                 with_pages({.Nq = 6, .Nkv = 2, .D = 96, .S = 128}, DType::kF8E4M3),
                                 {.Nq = 16, .Nkv = 1, .D = 32, .S = 4, .dtype = DType::kF16},
                                 {.Nq = 71, .Nkv = 1, .D = 16, .S = 16},
                                 {.Nq = 8, .Nkv = 1, .D = 64, .S = 64, .sinks = true}};
  for (Geometry geometry : geometries) {
    for (const int64_t window : {1, 17, 128, 135}) {
      geometry.window = window;
      geometry.sinks = !geometry.sinks;
      SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} S {} window {} sinks {}", geometry.Nq,
                               geometry.Nkv, geometry.D, geometry.S, window, geometry.sinks));
      Conversation conversation(*this, geometry, {271, 1, 17});
      conversation.check_against_reference(true);
      conversation.step({{.sequence = 0, .first = 0, .num_rows = 137},
                         {.sequence = 2, .first = 0, .num_rows = 16}});
      conversation.step({{.sequence = 1, .first = 0, .num_rows = 1},
                         {.sequence = 0, .first = 137, .num_rows = 130},
                         {.sequence = 2, .first = 16, .num_rows = 1}});
      for (int64_t t = 267; t < 271; ++t) conversation.step({{.first = t, .num_rows = 1}});
      conversation.expect_foreign_pages_untouched();
    }
  }
}

TEST_P(PagedAttentionTest, SplitsALongDecodeIntoMoreSegmentsThanFitOneWave) {
  const int64_t length = 11 * kAttentionSegment + 3;  // one thread of a pool of two: 8 tasks a wave
  const Geometry geometry{.Nq = 2, .Nkv = 1, .D = 16, .S = 128};
  Conversation conversation(*this, geometry, {length});
  for (int64_t first = 0; first < length - 1; first += 2048) {
    conversation.step({{.first = first, .num_rows = std::min<int64_t>(2048, length - 1 - first)}});
  }
  conversation.step({{.first = length - 1, .num_rows = 1}}, 1);
  const auto alone = conversation.outputs();
  conversation.check_against_reference(true);
  conversation.step({{.first = length - 1, .num_rows = 1}}, 2);
  EXPECT_EQ(alone, conversation.outputs());
}

TEST_P(PagedAttentionTest, EveryInstructionSetMatchesTheReference) {
  if (on_cuda()) GTEST_SKIP() << "the CPU has instruction sets";
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3}) {
      for (const int64_t D : {64, 24}) {
        SCOPED_TRACE(fmt::format("{} {} D {}", hwy::TargetName(target), to_string(dtype), D));
        const int64_t window = D == 24 ? 37 : 0;
        const Geometry geometry = with_pages(
            {.Nq = 6, .Nkv = 2, .D = D, .S = 16, .window = window, .sinks = window > 0}, dtype);
        Conversation whole(*this, geometry, {140});
        whole.check_against_reference(true);
        whole.run_whole();
        Conversation pieces(*this, geometry, {140});
        pieces.step({{.first = 0, .num_rows = 130}});
        for (int64_t t = 130; t < 140; ++t) pieces.step({{.first = t, .num_rows = 1}});
        EXPECT_EQ(whole.outputs(), pieces.outputs());
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace heddle::ops
