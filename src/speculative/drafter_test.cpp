// SPDX-License-Identifier: Apache-2.0
#include "speculative/drafter.h"

#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

TEST(DraftAlgorithmTest, NamesComeBack) {
  for (const DraftAlgorithm algorithm :
       {DraftAlgorithm::kNone, DraftAlgorithm::kAuto, DraftAlgorithm::kNgram, DraftAlgorithm::kMtp,
        DraftAlgorithm::kEagle, DraftAlgorithm::kEagle3, DraftAlgorithm::kStandalone}) {
    EXPECT_EQ(parse_draft_algorithm(to_string(algorithm)).value(), algorithm);
  }
  EXPECT_EQ(parse_draft_algorithm("NGRAM").value(), DraftAlgorithm::kNgram);
  EXPECT_EQ(parse_draft_algorithm("NEXTN").value(), DraftAlgorithm::kMtp) << "SGLang's name";
}

TEST(DraftAlgorithmTest, UnknownNamesAreRefusedWithThoseThatThereAre) {
  const auto algorithm = parse_draft_algorithm("MEDUSA");
  EXPECT_EQ(algorithm.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(algorithm.status().message().find("auto, none, ngram, mtp, eagle, eagle3, standalone"),
            std::string::npos);
}

TEST(DraftAlgorithmTest, AlgorithmsWithoutAModelHaveADrafter) {
  EXPECT_EQ(make_drafter({.algorithm = DraftAlgorithm::kNone}), nullptr);
  EXPECT_NE(make_drafter({.algorithm = DraftAlgorithm::kNgram}), nullptr);
  EXPECT_EQ(make_drafter({.algorithm = DraftAlgorithm::kMtp}), nullptr);
  EXPECT_EQ(make_drafter({.algorithm = DraftAlgorithm::kAuto}), nullptr)
      << "it stands for a network, or none";
}

}  // namespace
}  // namespace heddle::speculative
