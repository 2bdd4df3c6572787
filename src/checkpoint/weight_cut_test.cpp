// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_cut.h"

#include <gmock/gmock.h>

namespace heddle::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CutRange> ranges(const std::vector<CutPart>& parts, int64_t rank, int64_t num_ranks) {
  const auto result = ranges_of_rank(parts, rank, num_ranks);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *result : std::vector<CutRange>();
}

// 16 query heads and 2 heads of keys and of values, 256 wide.
const std::vector<CutPart> kQkv = {
    {4096, 256}, {512, 256, PartCut::kCopied}, {512, 256, PartCut::kCopied}};

TEST(WeightCut, GivesARankItsHeadsOfEveryPart) {
  EXPECT_THAT(ranges(kQkv, 1, 2),
              ElementsAre(CutRange{2048, 2048}, CutRange{4352, 256}, CutRange{4864, 256}));
}

TEST(WeightCut, CopiesHeadsOfKeysWhereThereAreFewerThanRanks) {
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_THAT(ranges(kQkv, rank, 8),
                ElementsAre(CutRange{512 * rank, 512}, CutRange{4096 + rank / 4 * 256, 256},
                            CutRange{4608 + rank / 4 * 256, 256}));
  }
  EXPECT_FALSE(ranges_of_rank({{3 * 64, 64, PartCut::kCopied}}, 0, 4).ok());
}

TEST(WeightCut, LeavesWholePartsToEveryRank) {
  const std::vector<CutPart> entry = {{512}, {512}, {60, 1, PartCut::kWhole}};
  EXPECT_THAT(ranges(entry, 3, 4),
              ElementsAre(CutRange{384, 128}, CutRange{896, 128}, CutRange{1024, 60}));
}

// Every rank has as many rows of a table that is padded to a multiple of 64 rows a rank.
TEST(WeightCut, SharesAVocabularyWithTheLastRankShort) {
  const std::vector<CutPart> table = {{151936, 64, PartCut::kRagged}};
  EXPECT_THAT(ranges(table, 1, 2), ElementsAre(CutRange{75968, 75968}));
  EXPECT_THAT(ranges(table, 3, 4), ElementsAre(CutRange{114048, 37888}));
  EXPECT_THAT(ranges({{70, 64, PartCut::kRagged}}, 1, 4), ElementsAre(CutRange{64, 6}));
  EXPECT_THAT(ranges({{70, 64, PartCut::kRagged}}, 3, 4), ElementsAre(CutRange{70, 0}));
}

TEST(WeightCut, NamesAPartThatTheRanksDoNotDivide) {
  EXPECT_THAT(ranges_of_rank({{768}, {6 * 128, 128}}, 0, 4).status().message(),
              HasSubstr("768 rows or columns have 6 units of 128, which 4 ranks do not divide"));
  EXPECT_FALSE(ranges_of_rank({{28 * 128, 128}}, 0, 8).ok());
  EXPECT_FALSE(ranges_of_rank({{100, 64}}, 0, 2).ok());
}

}  // namespace
}  // namespace heddle::checkpoint
