// SPDX-License-Identifier: Apache-2.0
// Paged attention with keys split among blocks against the plain loops of its reference.
#include "ops/attention/paged_attention_split.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/attention/paged_attention_fixture.h"

namespace heddle::ops {
namespace {

using testing::Conversation;
using testing::Geometry;
using testing::SequencePart;

class SplitAttentionTest : public testing::AttentionTest {
 protected:
  static Geometry fast(Geometry geometry) {
    geometry.dtype = DType::kBf16;
    geometry.activations = DType::kBf16;
    geometry.exact = false;
    return geometry;
  }

  // Reads all but the last tokens of every sequence, then compares steps of one, of three and of
  // one row each.
  void decode(const Geometry& geometry, const std::vector<int64_t>& lengths,
              bool check_prompts = false) {
    SCOPED_TRACE(fmt::format("Nq {} Nkv {} D {} S {} window {} sinks {}", geometry.Nq, geometry.Nkv,
                             geometry.D, geometry.S, geometry.window, geometry.sinks));
    Conversation conversation(*this, geometry, lengths);
    std::vector<int64_t> done(lengths.size());
    const auto step = [&](const auto& rows_of) {
      std::vector<SequencePart> parts;
      for (size_t b = 0; b < lengths.size(); ++b) {
        const int64_t rows = std::min(rows_of(b), lengths[b] - done[b]);
        if (rows == 0) continue;
        parts.push_back({.sequence = static_cast<int>(b), .first = done[b], .num_rows = rows});
        done[b] += rows;
      }
      conversation.step(parts);
    };
    conversation.check_against_reference(check_prompts);
    step([&](size_t b) { return std::max<int64_t>(0, lengths[b] - 5); });
    conversation.check_against_reference(true);
    step([](size_t) { return int64_t{1}; });
    step([](size_t) { return int64_t{3}; });
    step([](size_t) { return int64_t{1}; });
    conversation.expect_foreign_pages_untouched();
  }
};

INSTANTIATE_TEST_SUITE_P(Cuda, SplitAttentionTest, ::testing::Values(device::DeviceKind::kCuda));

TEST_P(SplitAttentionTest, SmallestDecodeMatchesTheReference) {
  for (const int64_t D : {64, 128, 256, 512}) {
    decode(fast({.Nq = 4, .Nkv = 2, .D = D, .S = 16}), {80, 1});  // several shares, and one
  }
}

TEST_P(SplitAttentionTest, MatchesTheReferenceForAnyGeometry) {
  const Geometry geometries[] = {
      {.Nq = 16, .Nkv = 2, .D = 256, .S = 16}, {.Nq = 7, .Nkv = 1, .D = 256, .S = 1},
      {.Nq = 3, .Nkv = 3, .D = 128, .S = 7},   {.Nq = 28, .Nkv = 4, .D = 128, .S = 64},
      {.Nq = 71, .Nkv = 1, .D = 64, .S = 16},  {.Nq = 64, .Nkv = 8, .D = 64, .S = 128},
      {.Nq = 16, .Nkv = 2, .D = 512, .S = 16}, {.Nq = 3, .Nkv = 3, .D = 512, .S = 7}};
  for (const Geometry& geometry : geometries) {
    decode(fast(geometry), {700, 1, 17, 256, 257, 261, 512, 63, 300, 6});
  }
}

TEST_P(SplitAttentionTest, MatchesTheReferenceWithWindowsAndSinks) {
  for (const int64_t D : {64, 256, 512}) {
    for (const int64_t window : {1, 17, 128, 300}) {
      decode(fast({.Nq = 8, .Nkv = 2, .D = D, .S = 16, .window = window, .sinks = window % 2 == 0}),
             {700, 40, 129});
    }
  }
}

// No other form has such heads.
TEST_P(SplitAttentionTest, PromptsOfWideHeadsMatchTheReference) {
  for (const int64_t window : {0, 17}) {
    decode(fast({.Nq = 16, .Nkv = 2, .D = 512, .S = 16, .window = window, .sinks = window > 0}),
           {150, 6, 40, 261}, /*check_prompts=*/true);
  }
}

// More sequences than a warp has lanes.
TEST_P(SplitAttentionTest, ManySequencesFindTheirResults) {
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < 150; ++b) lengths.push_back(b * 37 % 400 + 1);
  decode(fast({.Nq = 4, .Nkv = 2, .D = 64, .S = 16}), lengths);
}

// Units that keep the blocks busy as they are, two for each of 264 blocks, are not cut
// (paged_attention_plan_test.cpp).
TEST_P(SplitAttentionTest, ManySequencesOfOneLengthMatchTheReference) {
  decode(fast({.Nq = 2, .Nkv = 2, .D = 64, .S = 16}), std::vector<int64_t>(260, 262));
}

// A block computes the end of one sequence, all of others and the beginning of the next one.
TEST_P(SplitAttentionTest, SharesOfSeveralSequencesMatchTheReference) {
  const std::vector<int64_t> lengths{3000, 7, 900, 1, 33, 1700, 16, 128, 5, 64, 2100, 48};
  for (const int64_t D : {64, 128, 256, 512})
    decode(fast({.Nq = 8, .Nkv = 2, .D = D, .S = 16}), lengths);
  decode(fast({.Nq = 24, .Nkv = 8, .D = 64, .S = 16, .window = 700, .sinks = true}), lengths);
}

// More parts than the threads of a block take at once, in steps of few rows and of many.
TEST_P(SplitAttentionTest, JoinsManyPartsOfOneSequence) {
  decode(fast({.Nq = 8, .Nkv = 1, .D = 64, .S = 16}), {12'000});
  std::vector<int64_t> lengths(20, 10);
  lengths[7] = 3000;
  decode(fast({.Nq = 16, .Nkv = 2, .D = 256, .S = 16}), lengths);
}

TEST_P(SplitAttentionTest, GivesTheSameBitsAgain) {
  const Geometry geometry = fast({.Nq = 16, .Nkv = 2, .D = 128, .S = 16});
  Conversation conversation(*this, geometry, {1500, 90});
  conversation.step(
      {{.sequence = 0, .first = 0, .num_rows = 1499}, {.sequence = 1, .first = 0, .num_rows = 89}});
  const std::vector<SequencePart> last{{.sequence = 0, .first = 1499, .num_rows = 1},
                                       {.sequence = 1, .first = 89, .num_rows = 1}};
  conversation.step(last);
  const auto once = conversation.outputs();
  conversation.step(last);
  EXPECT_EQ(once, conversation.outputs());
}

}  // namespace
}  // namespace heddle::ops
