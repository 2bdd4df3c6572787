// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tokenizer {
namespace {

using ::testing::ElementsAre;

SplitStep split_on(std::string_view pattern, SplitBehavior behavior, bool invert = false) {
  Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().to_string();
  return {.pattern = std::move(regex).value(), .behavior = behavior, .invert = invert};
}

std::vector<std::string> pieces(const PreTokenizer& pre_tokenizer, std::string_view text,
                                bool at_text_start = true, size_t max_pieces = 1000) {
  RegexScratch scratch;
  CancellationPoll poll;
  std::vector<std::string> found;
  pre_tokenizer.split(text, at_text_start, scratch, poll, [&](std::string_view piece) {
    found.emplace_back(piece);
    return found.size() < max_pieces;
  });
  EXPECT_TRUE(scratch.status.ok());
  return found;
}

std::vector<std::string> split_dashes(SplitBehavior behavior, bool invert = false) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(split_on("-", behavior, invert));
  return pieces(pre_tokenizer, "the-final--countdown");
}

TEST(PreTokenizer, HasFiveWaysToTreatADelimiter) {
  EXPECT_THAT(split_dashes(SplitBehavior::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(split_dashes(SplitBehavior::kIsolated),
              ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(split_dashes(SplitBehavior::kMergedWithPrevious),
              ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(split_dashes(SplitBehavior::kMergedWithNext),
              ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(split_dashes(SplitBehavior::kContiguous),
              ElementsAre("the", "-", "final", "--", "countdown"));
}

TEST(PreTokenizer, InvertKeepsTheMatchesInstead) {
  EXPECT_THAT(split_dashes(SplitBehavior::kRemoved, /*invert=*/true), ElementsAre("-", "-", "-"));
}

TEST(PreTokenizer, EachStepSplitsThePiecesOfTheOneBefore) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(split_on(R"(\p{N}{1,3})", SplitBehavior::kIsolated));
  pre_tokenizer.add(split_on(R"([a-z]+|\s+)", SplitBehavior::kIsolated));
  EXPECT_THAT(pieces(pre_tokenizer, "ab12345 !cd"), ElementsAre("ab", "123", "45", " ", "!", "cd"));
}

TEST(PreTokenizer, LookBehindDoesNotSeeTheNeighbourPiece) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(split_on("1", SplitBehavior::kIsolated));
  pre_tokenizer.add(split_on("(?<=1)a", SplitBehavior::kIsolated));
  EXPECT_THAT(pieces(pre_tokenizer, "1ab"), ElementsAre("1", "ab"));
}

TEST(PreTokenizer, WithoutStepsTheTextIsOnePiece) {
  EXPECT_THAT(pieces({}, "a b"), ElementsAre("a b"));
  EXPECT_THAT(pieces({}, ""), ElementsAre());
}

TEST(PreTokenizer, PrefixesASpaceOnlyWhereNoneIs) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(PrefixSpaceStep{});
  EXPECT_THAT(pieces(pre_tokenizer, "a"), ElementsAre(" a"));
  EXPECT_THAT(pieces(pre_tokenizer, " a"), ElementsAre(" a"));
}

TEST(PreTokenizer, EndsWhenTheFunctionReturnsFalse) {
  for (const auto behavior :
       {SplitBehavior::kIsolated, SplitBehavior::kRemoved, SplitBehavior::kMergedWithNext}) {
    PreTokenizer pre_tokenizer;
    pre_tokenizer.add(split_on("-", behavior));
    pre_tokenizer.add(MetaspaceStep{.replacement = "_"});
    pre_tokenizer.add(PrefixSpaceStep{});
    EXPECT_THAT(pieces(pre_tokenizer, "a b-c", true, 1), ElementsAre(" _a"));
    EXPECT_THAT(pieces(pre_tokenizer, "a b-c", true, 2), ElementsAre(" _a", " _b"));
    EXPECT_GT(pieces(pre_tokenizer, "a b-c").size(), 2u);
  }
}

std::vector<std::string> metaspace(std::string_view text, MetaspaceStep::Prepend prepend,
                                   bool split = true, bool at_text_start = true) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(MetaspaceStep{.replacement = "▁", .prepend = prepend, .split = split});
  return pieces(pre_tokenizer, text, at_text_start);
}

TEST(PreTokenizer, MetaspaceMarksSpacesAndStartsPiecesThere) {
  using Prepend = MetaspaceStep::Prepend;
  EXPECT_THAT(metaspace("Hey  friend", Prepend::kAlways), ElementsAre("▁Hey", "▁", "▁friend"));
  EXPECT_THAT(metaspace(" Hey", Prepend::kAlways), ElementsAre("▁Hey"));
  EXPECT_THAT(metaspace("Hey you", Prepend::kNever), ElementsAre("Hey", "▁you"));
  EXPECT_THAT(metaspace("Hey you", Prepend::kAlways, /*split=*/false), ElementsAre("▁Hey▁you"));
  EXPECT_THAT(metaspace("Hey", Prepend::kFirst), ElementsAre("▁Hey"));
  EXPECT_THAT(metaspace("Hey", Prepend::kFirst, true, /*at_text_start=*/false), ElementsAre("Hey"));
}

}  // namespace
}  // namespace heddle::tokenizer
