// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_limits.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TreeShapeTest, RefusesWhatNoTreeHas) {
  const auto message = [](const SpeculativeOptions& options) {
    return std::string(check_tree_shape(options).message());
  };
  SpeculativeOptions options{
      .algorithm = DraftAlgorithm::kEagle3, .num_draft_tokens = 8, .num_steps = 3, .eagle_topk = 4};
  EXPECT_EQ(message(options), "");
  EXPECT_EQ(tree_shape(options).num_drafts, 7);
  options.num_draft_tokens = 38;
  EXPECT_THAT(message(options), AllOf(HasSubstr("num_draft_tokens 38"), HasSubstr("the 36 that")));
  options.num_draft_tokens = 37;
  EXPECT_EQ(message(options), "");
  options.num_steps = 18;
  EXPECT_THAT(message(options), HasSubstr("go on from 68 branches, at most 64 fit"));
  options.num_steps = 0;
  EXPECT_THAT(message(options),
              HasSubstr("eagle_topk 4 needs speculative.num_steps and num_draft_tokens"));
  options.algorithm = DraftAlgorithm::kNgram;
  EXPECT_EQ(message(options), "");
  options.num_draft_tokens = 0;
  EXPECT_THAT(message(options), HasSubstr("with ngram it needs num_draft_tokens"));
  options.algorithm = DraftAlgorithm::kAuto;
  options.eagle_topk = 2;
  options.num_steps = 1;
  options.num_draft_tokens = 8;
  EXPECT_THAT(message(options), HasSubstr("num_draft_tokens 8 is more than the next token and"));
  options.algorithm = DraftAlgorithm::kStandalone;
  EXPECT_THAT(message(options), HasSubstr("a standalone model drafts chains"));
  options.eagle_topk = 17;
  EXPECT_THAT(message(options), HasSubstr("eagle_topk 17 is not within 1 to 16"));
  EXPECT_EQ(message({}), "");
}

// How many rows a step may verify is known before memory is planned, so that their logits are part
// of it (draft_pass_test.cpp).
TEST(DraftRowsTest, HaveABoundThatFollowsFromTheOptionsAlone) {
  EXPECT_EQ(max_draft_rows({.algorithm = DraftAlgorithm::kNone}), kMostForcedRows);
  for (const DraftAlgorithm algorithm : {DraftAlgorithm::kMtp, DraftAlgorithm::kNgram}) {
    for (const int32_t num_draft_tokens : {0, 4, kMostDraftRows}) {
      EXPECT_EQ(max_draft_rows({.algorithm = algorithm, .num_draft_tokens = num_draft_tokens}),
                kMostDraftRows);
    }
  }
}

}  // namespace
}  // namespace heddle::speculative
