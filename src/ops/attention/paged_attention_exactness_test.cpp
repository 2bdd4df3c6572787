// SPDX-License-Identifier: Apache-2.0
// A row of paged attention has the same bits in any chunks, company, threads and pages, and what is
// kept in pages is left as it is.
#include <algorithm>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/attention/paged_attention.h"
#include "ops/attention/paged_attention_fixture.h"

namespace heddle::ops {
namespace {

using testing::Conversation;
using testing::Geometry;
using testing::run_in_pieces;
using testing::with_pages;

class PagedAttentionExactnessTest : public testing::AttentionTest {};

HEDDLE_ON_EVERY_DEVICE(PagedAttentionExactnessTest);

TEST_P(PagedAttentionExactnessTest, AWindowAsLongAsTheSequenceAndASinkWithoutWeightChangeNoBit) {
  const Geometry plain{.Nq = 6, .Nkv = 2, .D = 40, .S = 16};
  Conversation all(*this, plain, {300});
  all.run_whole();
  Geometry geometry = plain;
  geometry.window = 300;
  geometry.sinks = true;
  Conversation windowed(*this, geometry, {300});
  windowed.set_sinks(-1e30f);
  windowed.run_whole();
  EXPECT_EQ(all.outputs(), windowed.outputs());
}

TEST_P(PagedAttentionExactnessTest, GivesTheSameBitsForAnyChunkingBatchThreadsAndPages) {
  const std::vector<int64_t> lengths{300, 33, 129};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16, DType::kF8E4M3}) {
    for (const int64_t D : {64, 24}) {
      const Geometry plain = with_pages({.Nq = 6, .Nkv = 2, .D = D, .S = 16}, dtype);
      Conversation whole(*this, plain, lengths);
      whole.run_whole();
      for (const int64_t S : {1, 16, 128}) {
        SCOPED_TRACE(fmt::format("{} D {} S {}", to_string(dtype), D, S));
        Geometry geometry = plain;
        geometry.S = S;
        Conversation pieces(*this, geometry, lengths, 99);
        run_in_pieces(pieces, lengths, static_cast<uint64_t>(S + D));
        EXPECT_EQ(whole.outputs(), pieces.outputs());
        pieces.expect_foreign_pages_untouched();
      }
    }
  }
}

TEST_P(PagedAttentionExactnessTest, ReplaysRowsOnKeysAndValuesThatAreThereWithoutWritingThem) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF8E4M3}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} {} threads", to_string(dtype), threads));
      const Geometry geometry = with_pages({.Nq = 6, .Nkv = 2, .D = 24, .S = 16}, dtype);
      Conversation whole(*this, geometry, {120, 9});
      whole.run_whole();
      Conversation replayed(*this, geometry, {120, 9});
      replayed.step({{.sequence = 0, .first = 0, .num_rows = 100}});
      const std::vector<uint8_t> before = replayed.page_bytes(0, 6);
      // Rows 33 to 119 again, those before 96 on what is there; company that writes all of its own.
      replayed.step({{.sequence = 1, .first = 0, .num_rows = 9},
                     {.sequence = 0, .first = 33, .num_rows = 87, .kv_len = 96}},
                    threads);
      EXPECT_EQ(replayed.page_bytes(0, 6), before);
      // All rows of a step lie before kv_len.
      replayed.step({{.sequence = 0, .first = 40, .num_rows = 8, .kv_len = 120}}, threads);
      EXPECT_EQ(replayed.page_bytes(0, 6), before);
      EXPECT_EQ(replayed.outputs(), whole.outputs());
      replayed.expect_foreign_pages_untouched();
    }
  }
}

TEST_P(PagedAttentionExactnessTest, LeavesPagesSharedWithAnotherSequenceAsTheyAre) {
  const Geometry geometry{.Nq = 4, .Nkv = 2, .D = 32, .S = 16};
  Conversation conversation(*this, geometry, {80, 80});
  conversation.step({{.sequence = 0, .first = 0, .num_rows = 80}});
  conversation.share_pages(0, 1, 4);
  const std::vector<uint8_t> before = conversation.page_bytes(0, 5);
  conversation.check_against_reference(true);  // reads the pages
  conversation.step({{.sequence = 1, .first = 20, .num_rows = 60, .kv_len = 64}}, 2);
  EXPECT_EQ(conversation.page_bytes(0, 5), before);
  EXPECT_NE(conversation.page_bytes(1, 5), before) << "its own last page is another";
}

TEST_P(PagedAttentionExactnessTest, GivesTheSameBitsInPiecesWithWindowsAndSinks) {
  const std::vector<int64_t> lengths{300, 33, 129};
  for (const int64_t window : {1, 24, 127, 128, 130}) {
    for (const int64_t Nq : {2, 6, 16}) {  // rows of one tile share a token, or do not
      SCOPED_TRACE(fmt::format("window {} Nq {}", window, Nq));
      const DType dtype = window == 24      ? DType::kF8E4M3
                          : window % 2 == 0 ? DType::kF32
                                            : DType::kBf16;
      Geometry geometry =
          with_pages({.Nq = Nq, .Nkv = 2, .D = 48, .S = 8, .window = window, .sinks = true}, dtype);
      Conversation whole(*this, geometry, lengths);
      whole.run_whole();
      geometry.S = 16;
      Conversation pieces(*this, geometry, lengths, 99);
      run_in_pieces(pieces, lengths, static_cast<uint64_t>(window + Nq));
      EXPECT_EQ(whole.outputs(), pieces.outputs());
      pieces.expect_foreign_pages_untouched();
    }
  }
}

// A window that is never, just and far longer than a segment, at every place where segments meet.
TEST_P(PagedAttentionExactnessTest, GivesTheSameBitsWhereAWindowCrossesSegments) {
  const int64_t length = 2 * kAttentionSegment + 140;
  for (const int64_t window : {int64_t{130}, kAttentionSegment, kAttentionSegment + 3}) {
    const Geometry geometry{.Nq = 3, .Nkv = 1, .D = 16, .S = 64, .window = window, .sinks = true};
    Conversation whole(*this, geometry, {length});
    whole.check_against_reference(window == 130);
    whole.run_whole();
    for (const int threads : {1, 4}) {
      SCOPED_TRACE(fmt::format("window {} threads {}", window, threads));
      Conversation pieces(*this, geometry, {length}, 5);
      for (int64_t first = 0; first < length;) {
        const int64_t in_segment = first % kAttentionSegment;
        const bool alone = in_segment < 4 || (in_segment >= 128 && in_segment < 136);
        const int64_t rows = alone ? 1 : in_segment < 128 ? 128 - in_segment : 300;
        const int64_t to_join = kAttentionSegment - in_segment;
        const int64_t num_rows = std::min({rows, to_join, length - first});
        pieces.step({{.first = first, .num_rows = num_rows}}, threads);
        first += num_rows;
      }
      EXPECT_EQ(whole.outputs(), pieces.outputs());
    }
  }
}

TEST_P(PagedAttentionExactnessTest, GivesTheSameBitsWhereSegmentsAreJoined) {
  const int64_t length = 2 * kAttentionSegment + 5;
  const Geometry geometry{.Nq = 2, .Nkv = 1, .D = 16, .S = 64};
  Conversation whole(*this, geometry, {length});
  whole.run_whole();
  for (const int threads : {1, 4}) {
    Conversation pieces(*this, geometry, {length}, 5);
    for (int64_t first = 0; first < length;) {
      const bool at_join = first % kAttentionSegment >= kAttentionSegment - 2 ||
                           first % kAttentionSegment <= 1 || length - first < 5;
      const int64_t to_join = (first / kAttentionSegment + 1) * kAttentionSegment - 2 - first;
      const int64_t rows =
          at_join ? 1 : std::min(std::max<int64_t>(to_join, 1), length - 4 - first);
      pieces.step({{.sequence = 0, .first = first, .num_rows = std::max<int64_t>(rows, 1)}},
                  threads);
      first += std::max<int64_t>(rows, 1);
    }
    EXPECT_EQ(whole.outputs(), pieces.outputs()) << threads << " threads";
  }
  Conversation checked(*this, geometry, {length});
  checked.run_whole();
  checked.check_against_reference(true);
  checked.step({{.sequence = 0, .first = length - 1, .num_rows = 1}}, 2);
}

// Of a tree over the end of blocks and segments, in pages of any size, beside sequences without
// one.
TEST_P(PagedAttentionExactnessTest, ANodeOfATreeHasTheBitsOfItsPathAlone) {
  for (const int64_t context : {5, 126, 250, 1018}) {
    for (const int64_t window : {0, 1, 3, 40}) {
      if (window > 1 && context > 250) continue;
      const DType dtype = window == 3 ? DType::kF8E4M3 : window == 40 ? DType::kBf16 : DType::kF32;
      const int64_t num_nodes = window == 0 ? 30 : 9;
      Geometry geometry =
          with_pages({.Nq = 6, .Nkv = 2, .D = 24, .S = 16, .window = window}, dtype);
      geometry.latent = context == 5;
      geometry.Dv = geometry.latent ? 16 : 0;
      const int64_t first = context + 2;  // of the nodes, behind two rows of a chain
      const heddle::testing::Parents parents =
          heddle::testing::random_parents(num_nodes, static_cast<uint64_t>(context + window));
      for (const int64_t S : {1, 16, 64}) {
        SCOPED_TRACE(fmt::format("context {} window {} S {}", context, window, S));
        geometry.S = S;
        Conversation tree(*this, geometry, {first + num_nodes, 40}, 99);
        tree.step({{.sequence = 0, .first = 0, .num_rows = context}});
        tree.step({{.sequence = 1, .first = 0, .num_rows = 20}});
        tree.check_against_reference(true);
        tree.step(
            {{.sequence = 1, .first = 20, .num_rows = 20},
             {.sequence = 0, .first = context, .num_rows = 2 + num_nodes, .parents = parents}},
            3);
        tree.expect_foreign_pages_untouched();
        Conversation plain(*this, geometry, {first + num_nodes, 40});
        plain.run_whole();
        EXPECT_EQ(tree.outputs()[1], plain.outputs()[1]);
        const auto row = [&](const Conversation& from, int64_t token) {
          const int64_t width = geometry.Nq * geometry.value_dim();
          const auto begin = from.outputs()[0].begin() + token * width;
          return std::vector<float>(begin, begin + width);
        };
        for (int32_t node = 0; node < num_nodes; node += S == 16 ? 1 : 5) {
          Conversation alone(*this, geometry, {first + num_nodes});
          alone.step({{.sequence = 0, .first = 0, .num_rows = first}});
          int64_t position = first;
          for (const int32_t passed : heddle::testing::path_to(parents, node)) {
            alone.step(
                {{.sequence = 0, .first = position++, .num_rows = 1, .tokens = {first + passed}}});
          }
          ASSERT_EQ(row(tree, first + node), row(alone, position - 1)) << "node " << node;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle::ops
