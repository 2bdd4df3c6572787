// SPDX-License-Identifier: Apache-2.0
#include "request/validate.h"

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::request {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr RequestLimits kLimits{.vocab_size = 100, .context_length = 256};

Request good_request() {
  Request request;
  request.id = "one";
  request.prompt = {1, 2, 3};
  return request;
}

std::string message_after(const std::function<void(Request&)>& change) {
  Request request = good_request();
  change(request);
  const Status status = validate_request(request, kLimits);
  if (status.ok()) return "accepted";
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

TEST(ValidateRequestTest, AcceptsTheDefaultsAndTheEdgesOfEveryRange) {
  EXPECT_EQ(message_after([](Request&) {}), "accepted");
  EXPECT_EQ(message_after([](Request& r) {
              r.sampling = {.temperature = 0,
                            .top_p = 1,
                            .top_k = 1,
                            .min_p = 1,
                            .frequency_penalty = -2,
                            .presence_penalty = 2,
                            .repetition_penalty = 2,
                            .logit_bias = {{0, -100.0f}, {99, 100.0f}}};
              r.stop.max_new_tokens = 253;
              r.stop.min_new_tokens = 253;
              r.stop.token_ids = {0, 99};
              r.return_logprobs = true;
              r.top_logprobs = 20;
            }),
            "accepted");
  EXPECT_EQ(message_after([](Request& r) { r.stop.max_new_tokens = 0; }), "accepted");
}

TEST(ValidateRequestTest, NamesTheFieldItsValueAndTheRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message_after([](Request& r) { r.sampling.top_p = 1.5f; }),
            "top_p is 1.5; it must be from 0 to 1");
  EXPECT_EQ(message_after([](Request& r) { r.sampling.top_p = 0; }), "accepted");
  EXPECT_THAT(message_after([](Request& r) { r.sampling.top_p = -0.1f; }),
              HasSubstr("top_p is -0.1"));
  for (const float bad : {nan, infinity, -0.5f}) {
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.temperature = bad; }),
                HasSubstr("temperature is"));
  }
  for (const float bad : {nan, infinity, -3.0f, 101.0f}) {
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.top_p = bad; }), HasSubstr("top_p is"));
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.min_p = bad; }), HasSubstr("min_p is"));
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.frequency_penalty = bad; }),
                HasSubstr("frequency_penalty is"));
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.presence_penalty = bad; }),
                HasSubstr("presence_penalty is"));
    EXPECT_THAT(message_after([=](Request& r) { r.sampling.repetition_penalty = bad; }),
                HasSubstr("repetition_penalty is"));
  }
  EXPECT_THAT(message_after([](Request& r) { r.sampling.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty is 0"));
  EXPECT_THAT(message_after([](Request& r) { r.sampling.repetition_penalty = 1e-38f; }),
              HasSubstr("repetition_penalty is 1e-38; it must be from 0.01 to 2"));
  EXPECT_EQ(message_after([](Request& r) { r.sampling.repetition_penalty = 0.01f; }), "accepted");
  EXPECT_EQ(message_after([](Request& r) { r.sampling.top_k = 0; }), "accepted");
  EXPECT_THAT(message_after([](Request& r) { r.sampling.top_k = -2; }), HasSubstr("top_k is -2"));
  EXPECT_THAT(message_after([](Request& r) { r.sampling.logit_bias = {{100, 1.0f}}; }),
              HasSubstr("logit_bias names token 100"));
  EXPECT_THAT(message_after([=](Request& r) { r.sampling.logit_bias = {{5, nan}}; }),
              HasSubstr("logit_bias of token 5"));
  EXPECT_THAT(
      message_after([](Request& r) { r.sampling.logit_bias = {{7, 1.0f}, {5, 1.0f}, {7, 2.0f}}; }),
      HasSubstr("logit_bias names token 7 twice"));
  EXPECT_THAT(message_after([](Request& r) { r.sampling.logit_bias.resize(5000); }),
              HasSubstr("logit_bias has 5000 entries; at most 4096"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.max_new_tokens = -1; }),
              HasSubstr("max_new_tokens is -1"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.min_new_tokens = 129; }),
              HasSubstr("min_new_tokens is 129; it must be from 0 to max_new_tokens = 128"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.texts = {"a", ""}; }),
              HasSubstr("stop[1] is empty"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.texts = {std::string(5000, 'a')}; }),
              HasSubstr("stop[0] has 5000 bytes"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.patterns = {nullptr}; }),
              HasSubstr("a pattern that is null"));
  const auto pattern = StopPattern::compile("a{600}").value();
  EXPECT_EQ(message_after([&](Request& r) { r.stop.patterns = {pattern}; }), "accepted");
  EXPECT_THAT(message_after([&](Request& r) { r.stop.patterns = {pattern, pattern}; }),
              HasSubstr("needs 1202 states"));
  EXPECT_THAT(message_after([&](Request& r) { r.stop.patterns.assign(17, pattern); }),
              HasSubstr("stop_regex has 17"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.texts.assign(129, "a"); }),
              HasSubstr("stop has 129 entries"));
  EXPECT_THAT(message_after([](Request& r) { r.stop.token_ids = {3, -1}; }),
              HasSubstr("stop_token_ids[1] is -1"));
  EXPECT_THAT(message_after([](Request& r) { r.prompt = {1, 100}; }),
              HasSubstr("prompt[1] is 100; token ids of this model go from 0 to 99"));
  EXPECT_THAT(message_after([](Request& r) { r.prompt.clear(); }), HasSubstr("prompt is empty"));
  EXPECT_THAT(message_after([](Request& r) { r.id.clear(); }), HasSubstr("no id"));
  EXPECT_THAT(message_after([](Request& r) { r.id = std::string(600, 'x'); }),
              HasSubstr("id has 600 bytes"));
  EXPECT_THAT(message_after([](Request& r) {
                r.return_logprobs = true;
                r.top_logprobs = 21;
              }),
              HasSubstr("top_logprobs is 21"));
  EXPECT_THAT(message_after([](Request& r) { r.top_logprobs = 2; }),
              HasSubstr("logprobs were not asked for"));
  EXPECT_THAT(message_after([](Request& r) { r.prompt_logprobs = {.from = -1}; }),
              HasSubstr("prompt_logprobs.from is -1; it must be from 0"));
  EXPECT_THAT(
      message_after([](Request& r) { r.prompt_logprobs = {.from = std::ssize(r.prompt) + 1}; }),
      HasSubstr("prompt_logprobs.from is "));
  EXPECT_THAT(message_after([](Request& r) { r.prompt_logprobs = {.from = 0, .top = 21}; }),
              HasSubstr("prompt_logprobs.top is 21; it must be from 0 to 20"));
  EXPECT_THAT(message_after([](Request& r) { r.logprob_tokens = {1, 100}; }),
              HasSubstr("logprob_tokens[1] is 100"));
  EXPECT_THAT(message_after([](Request& r) { r.logprob_tokens.assign(129, 1); }),
              HasSubstr("logprob_tokens has 129 tokens; at most 128"));
  EXPECT_THAT(message_after([](Request& r) { r.choice_index = 128; }),
              HasSubstr("choice_index is 128"));
}

TEST(ValidateRequestTest, RefusesWhatTheContextCannotHoldWithoutOverflowing) {
  EXPECT_THAT(message_after([](Request& r) { r.stop.max_new_tokens = 254; }),
              AllOf(HasSubstr("maximum context length is 256 tokens"), HasSubstr("3 in the prompt"),
                    HasSubstr("max_new_tokens = 254"), HasSubstr("lower max_new_tokens to 253")));
  EXPECT_THAT(message_after(
                  [](Request& r) { r.stop.max_new_tokens = std::numeric_limits<int64_t>::max(); }),
              HasSubstr("maximum context length is 256 tokens"));
  EXPECT_THAT(message_after([](Request& r) { r.prompt.assign(300, 1); }),
              HasSubstr("maximum context length is 256 tokens"));
}

}  // namespace
}  // namespace heddle::request
