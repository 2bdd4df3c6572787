// SPDX-License-Identifier: Apache-2.0
#include "chat/role_boundaries.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/test_data.h"
#include "tokenizer/testing/synthetic_tokenizer.h"

namespace heddle::chat {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

constexpr const char* kHeaders =
    "{{ '<|bos|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{% endif %}";
constexpr const char* kTurns =
    "{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}";
constexpr const char* kPlainRoles =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";
constexpr const char* kNoGenerationPrompt =
    "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}";

const Json kConversation = {{{"role", "system"}, {"content", "Be kind."}},
                            {{"role", "user"}, {"content", "Hello"}},
                            {{"role", "assistant"}, {"content", "Hello you"}},
                            {{"role", "user"}, {"content", "Bye"}}};

std::unique_ptr<tokenizer::Tokenizer> tokenizer_with(const std::vector<std::string>& special) {
  namespace synthetic = tokenizer::testing;
  auto json = synthetic::byte_level_json();
  TokenId next = synthetic::kThink + 1;
  for (const std::string& token : special) {
    json["added_tokens"].push_back(synthetic::added_token(next++, token));
  }
  return synthetic::make(json);
}

// The text from each boundary to the next.
std::vector<std::string> messages_of(const ChatTemplate& chat_template,
                                     const tokenizer::Tokenizer& tokenizer, TokenId role_token) {
  const std::string text =
      chat_template.render(kConversation, nullptr, /*add_generation_prompt=*/true, nullptr).value();
  const auto prompt = tokenizer.encode(text, {.add_special_tokens = false}).value();
  std::vector<std::string> messages;
  auto boundaries = role_boundaries(prompt, role_token);
  boundaries.push_back(std::ssize(prompt));
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    messages.push_back(tokenizer.decode(
        std::span(prompt).subspan(static_cast<size_t>(boundaries[i]),
                                  static_cast<size_t>(boundaries[i + 1] - boundaries[i])),
        /*skip_special_tokens=*/false));
  }
  return messages;
}

TEST(RoleBoundariesTest, OfHeddleTinyAreItsMessages) {
  const auto folder = testing::repository_path("models/heddle-tiny");
  const auto tokenizer = tokenizer::load_tokenizer(folder).value();
  const ChatTemplate chat_template = ChatTemplate::load(folder).value();
  const auto role_token = find_role_token(chat_template, *tokenizer);
  ASSERT_EQ(role_token, tokenizer->token_to_id("<|im_start|>"));
  EXPECT_THAT(messages_of(chat_template, *tokenizer, *role_token),
              ElementsAre("<|im_start|>user\nHello<|im_end|>\n",
                          "<|im_start|>assistant\nHello you<|im_end|>\n",
                          "<|im_start|>user\nBye<|im_end|>\n", "<|im_start|>assistant\n"));
}

TEST(RoleBoundariesTest, OfHeadersAreEveryMessageAfterTheFirstToken) {
  const auto tokenizer = tokenizer_with({"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  const ChatTemplate chat_template = ChatTemplate::from_source(kHeaders).value();
  const auto role_token = find_role_token(chat_template, *tokenizer);
  ASSERT_EQ(role_token, tokenizer->token_to_id("<|start_header_id|>"));
  EXPECT_THAT(messages_of(chat_template, *tokenizer, *role_token),
              ElementsAre("<|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|>",
                          "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>",
                          "<|start_header_id|>assistant<|end_header_id|>\n\nHello you<|eot_id|>",
                          "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>",
                          "<|start_header_id|>assistant<|end_header_id|>\n\n"));
}

TEST(RoleBoundariesTest, OfTurnsAreFoundWhateverTheRoleIsCalled) {
  const auto tokenizer = tokenizer_with({"<start_of_turn>", "<end_of_turn>"});
  const ChatTemplate chat_template = ChatTemplate::from_source(kTurns).value();
  const auto role_token = find_role_token(chat_template, *tokenizer);
  ASSERT_EQ(role_token, tokenizer->token_to_id("<start_of_turn>"));
  EXPECT_EQ(messages_of(chat_template, *tokenizer, *role_token).back(), "<start_of_turn>model\n");
}

TEST(RoleBoundariesTest, WithoutARoleTokenThereAreNone) {
  const auto tokenizer = tokenizer_with({"[INST]", "[/INST]"});
  for (const char* source : {kPlainRoles, kNoGenerationPrompt,
                             "{{ raise_exception('no user alone') }}", "{{ messages | length }}"}) {
    EXPECT_EQ(find_role_token(ChatTemplate::from_source(source).value(), *tokenizer), std::nullopt)
        << source;
  }
}

TEST(RoleBoundariesTest, TheBeginningIsNoBoundary) {
  EXPECT_THAT(role_boundaries(std::vector<TokenId>{7, 1, 7, 7}, 7), ElementsAre(2, 3));
  EXPECT_THAT(role_boundaries(std::vector<TokenId>{7}, 7), IsEmpty());
  EXPECT_THAT(role_boundaries(std::vector<TokenId>{}, 7), IsEmpty());
}

}  // namespace
}  // namespace heddle::chat
