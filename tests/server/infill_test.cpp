// SPDX-License-Identifier: Apache-2.0
#include "server/call/infill_marks.h"
#include "server/server_fixture.h"
#include "support/test_data.h"
#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tokenizer::testing::added_token;
using tokenizer::testing::byte_level_json;

std::unique_ptr<tokenizer::Tokenizer> tokenizer_with(const std::vector<const char*>& marks) {
  nlohmann::json json = byte_level_json();
  TokenId id = 300;
  for (const char* const mark : marks) json["added_tokens"].push_back(added_token(id++, mark));
  return tokenizer::parse_tokenizer_json(json.dump(), {}).value();
}

TEST(InfillMarksTest, AreThoseOfAFamilyThatAreAllThere) {
  const auto qwen = find_infill_marks(
      *tokenizer_with({"<|fim_middle|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_pad|>"}));
  ASSERT_TRUE(qwen);
  EXPECT_EQ(qwen->prefix, 301);
  EXPECT_EQ(qwen->suffix, 302);
  EXPECT_EQ(qwen->middle, 300);
  EXPECT_FALSE(qwen->suffix_first);
  const auto codestral = find_infill_marks(*tokenizer_with({"[SUFFIX]", "[PREFIX]"}));
  ASSERT_TRUE(codestral);
  EXPECT_TRUE(codestral->suffix_first);
  EXPECT_FALSE(codestral->middle);
  EXPECT_FALSE(find_infill_marks(*tokenizer_with({"<fim_prefix>", "<fim_suffix>"})));
  EXPECT_FALSE(find_infill_marks(*tokenizer_with({})));
}

TEST(InfillMarksTest, AreFoundInPublishedTokenizers) {
  HEDDLE_SHARED_PATH_OR_SKIP(tokenizers, "data/tokenizers");
  const auto marks_of = [&](const char* name) {
    return find_infill_marks(*tokenizer::load_tokenizer(tokenizers / name).value());
  };
  EXPECT_EQ(marks_of("qwen3").value().middle, 151660);
  EXPECT_EQ(marks_of("deepseek-v3").value().suffix, 128800);
  EXPECT_FALSE(marks_of("llama3"));
}

class InfillTest : public ServerTest {};

TEST_F(InfillTest, TheAnswerStandsBetweenPromptAndSuffix) {
  codec_gate->fills_gaps = true;
  start();
  const Json body = post("/v1/completions", {{"prompt", "ab"}, {"suffix", "yz"}}).json();
  EXPECT_EQ(body["choices"][0]["text"], "Hello there");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(post("/v1/completions", {{"prompt", ""}, {"suffix", "z"}}).status, 200);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {"suffix", ""}}).status, 200);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "a"}, {"suffix", nullptr}}).status, 200);
  const std::vector<Request> requests = engine->submitted();
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_THAT(requests[0].prompt, ElementsAre(1, 'a', 'b', 2, 'y', 'z', 3));
  EXPECT_THAT(requests[1].prompt, ElementsAre(1, 2, 'z', 3));
  EXPECT_THAT(requests[2].prompt, ElementsAre('a'));
  EXPECT_THAT(requests[3].prompt, ElementsAre('a'));
}

TEST_F(InfillTest, WrongRequestsAreRefusedByName) {
  codec_gate->fills_gaps = true;
  start();
  const std::pair<Json, const char*> refusals[] = {
      {{{"prompt", {"a", "b"}}, {"suffix", "z"}}, "prompt"},
      {{{"prompt", {1, 2}}, {"suffix", "z"}}, "prompt"},
      {{{"prompt", "a"}, {"suffix", 5}}, "suffix"},
      {{{"prompt", "a"}, {"suffix", "z"}, {"echo", true}}, "echo"},
      {{{"prompt", "a"}, {"suffix", std::string(100000, 'z')}}, "suffix"},
      {{{"prompt", std::string(20000, 'a')}, {"suffix", std::string(20000, 'z')}}, "prompt"},
  };
  for (const auto& [body, param] : refusals) {
    const Reply reply = post("/v1/completions", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(error_of(reply).value("param", ""), param) << reply.body;
  }
  EXPECT_TRUE(engine->submitted().empty());
}

TEST_F(InfillTest, AModelWithoutMarksSaysSo) {
  start();
  const Reply reply = post("/v1/completions", {{"prompt", "a"}, {"suffix", "b"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply)["param"], "suffix");
  EXPECT_THAT(error_of(reply)["message"].get<std::string>(), HasSubstr("has no tokens that mark"));
}

}  // namespace
}  // namespace heddle::server
