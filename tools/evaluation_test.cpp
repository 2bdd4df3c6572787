// SPDX-License-Identifier: Apache-2.0
#include "tools/evaluation.h"

#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

ModelInfo chatty_model() {
  ModelInfo model;
  model.context_length = 2000;
  model.default_sampling.temperature = 0.7f;
  model.default_sampling.top_p = 0.8f;
  return model;
}

TEST(EvaluationRequestTest, IsGreedyByDefaultWhateverTheModelPrefers) {
  const auto request = evaluation_request({}, chatty_model(), {1, 2, 3});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 0.0f);
  EXPECT_EQ(request->sampling.top_p, SamplingParams{}.top_p);
  EXPECT_EQ(request->stop.max_new_tokens, kDefaultAnswerTokens);
}

TEST(EvaluationRequestTest, UsesTheGivenOptionsWithinTheContext) {
  EvaluationOptions options;
  options.sampling.temperature = 0.5f;
  options.sampling.max_tokens = 1000;
  EXPECT_EQ(evaluation_request(options, chatty_model(), {1})->stop.max_new_tokens, 1000);
  EXPECT_EQ(evaluation_request(options, chatty_model(), {1})->sampling.temperature, 0.5f);
  const std::vector<TokenId> prompt(1900, 1);
  EXPECT_EQ(evaluation_request(options, chatty_model(), prompt)->stop.max_new_tokens, 100);
  EXPECT_EQ(evaluation_request({}, chatty_model(), prompt)->stop.max_new_tokens, 100);
}

}  // namespace
}  // namespace heddle::tools
