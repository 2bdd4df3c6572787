// SPDX-License-Identifier: Apache-2.0
#include "chat/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "chat/golden_fixture.h"
#include "support/test_data.h"
#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::chat {
namespace {

const Json kHello = {{{"role", "user"}, {"content", "Hello"}}};

// A model folder that exists while the test runs.
class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              fmt::format("heddle_chat_{}_{}", test->name(), getpid());
    std::filesystem::create_directories(folder_);
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::filesystem::path& name, std::string_view text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  [[nodiscard]] std::string render(const Json& messages = kHello, const Json& tools = nullptr,
                                   const Json& extra = nullptr,
                                   bool add_generation_prompt = true) const {
    ChatTemplateOptions options;
    options.local_now = golden_time;
    const Result<ChatTemplate> loaded = ChatTemplate::load(folder_, options);
    if (!loaded.ok()) return loaded.status().to_string();
    return shown(loaded.value().render(messages, tools, add_generation_prompt, extra));
  }

  std::filesystem::path folder_;
};

TEST_F(ChatTemplateTest, ReadsTheTemplateAndTokensOfTheTokenizerConfig) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": null,
            "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"})");
  EXPECT_EQ(render(), "<s>Hello</s>");
  const ChatTemplate loaded = ChatTemplate::load(folder_).value();
  EXPECT_EQ(loaded.bos_token(), "<s>");
  EXPECT_EQ(loaded.eos_token(), "</s>");
}

TEST_F(ChatTemplateTest, TheJinjaFileWinsOverTheConfig) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config"})");
  EXPECT_EQ(render(), "config");
  write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(render(), "json");
  write("chat_template.jinja", "{{ bos_token }}file");
  EXPECT_EQ(render(), "<s>file");
}

TEST_F(ChatTemplateTest, AnEmptyTextIsNoTemplate) {
  write("chat_template.jinja", " \n");
  write("chat_template.json", R"({"chat_template": ""})");
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "\n"}]})");
  EXPECT_EQ(ChatTemplate::load(folder_).status().code(), StatusCode::kNotFound);
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(render(), "config");
}

TEST_F(ChatTemplateTest, AFileGivenByTheUserWinsOverAll) {
  write("chat_template.jinja", "model");
  write("mine/a.jinja", "mine");
  write("mine/b.json", R"({"chat_template": "mine too"})");
  write("mine/c.json", R"({"other": 1})");
  ChatTemplateOptions options;
  options.template_file = folder_ / "mine/a.jinja";
  EXPECT_EQ(shown(ChatTemplate::load(folder_, options)->render(kHello, nullptr, true, nullptr)),
            "mine");
  options.template_file = folder_ / "mine/b.json";
  EXPECT_EQ(shown(ChatTemplate::load(folder_, options)->render(kHello, nullptr, true, nullptr)),
            "mine too");
  options.template_file = folder_ / "mine/c.json";
  EXPECT_EQ(ChatTemplate::load(folder_, options).status().code(), StatusCode::kNotFound);
  options.template_file = folder_ / "mine/missing.jinja";
  EXPECT_EQ(ChatTemplate::load(folder_, options).status().code(), StatusCode::kNotFound);
}

TEST_F(ChatTemplateTest, ToolUseTemplatesServeRequestsWithTools) {
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "tool_use", "template": "tools: {{ tools|length }}"},
                              {"name": "default", "template": "plain {{ tools }}"}]})");
  EXPECT_EQ(render(), "plain None");
  EXPECT_EQ(render(kHello, Json::array()), "plain []");
  EXPECT_EQ(render(kHello, {{{"type", "function"}}}), "tools: 1");
  write("chat_template.jinja", "file");
  write("additional_chat_templates/tool_use.jinja", "file with tools");
  EXPECT_EQ(render(), "file");
  EXPECT_EQ(render(kHello, {{{"type", "function"}}}), "file with tools");
}

TEST_F(ChatTemplateTest, AModelWithoutATemplateNamesTheRemedies) {
  write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  const Status status = ChatTemplate::load(folder_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  for (const char* remedy :
       {"chat_template.jinja", "tokenizer_config.json", "--chat-template", "completions"}) {
    EXPECT_NE(status.message().find(remedy), std::string::npos) << status.message();
  }
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  EXPECT_NE(ChatTemplate::load(folder_).status().message().find("rag, tool_use"),
            std::string::npos);
}

TEST_F(ChatTemplateTest, BrokenFilesAreReported) {
  write("tokenizer_config.json", "{");
  EXPECT_EQ(ChatTemplate::load(folder_).status().code(), StatusCode::kDataLoss);
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_EQ(ChatTemplate::load(folder_).status().code(), StatusCode::kDataLoss);
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_EQ(ChatTemplate::load(folder_).status().code(), StatusCode::kDataLoss);
  write("tokenizer_config.json", R"({"chat_template": "{% if %}"})");
  EXPECT_EQ(ChatTemplate::load(folder_).status().message(),
            "chat_template:1:7: expected an expression, found end of block '%}'");
}

TEST_F(ChatTemplateTest, AGoodTemplateElsewhereIsUsed) {
  write("tokenizer_config.json", R"({"chat_template": "config"})");
  const std::pair<const char*, const char*> broken[] = {
      {"chat_template.json", "{"},
      {"chat_template.json", "[]"},
      {"chat_template.json", R"({"chat_template": 5})"},
      {"chat_template.json", R"({"chat_template": [{"name": "rag", "template": "a"},
                                                   {"name": "tool_use", "template": "b"}]})"},
      {"chat_template.json", R"({"chat_template": "{% if %}"})"},
      {"chat_template.jinja", "{% if %}"},
      {"chat_template.jinja", "<!DOCTYPE html><html>"},
      {"chat_template.jinja", "version https://git-lfs.github.com/spec/v1\nsize 9\n"},
  };
  for (const auto& [name, text] : broken) {
    write(name, text);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(render(), "config") << text;
    const std::string lines = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(
        lines.find(fmt::format("that of tokenizer_config.json; that of {} cannot be used: ", name)),
        std::string::npos)
        << lines;
    EXPECT_EQ(std::ranges::count(lines, '\n'), 1) << lines;
    std::filesystem::remove(folder_ / name);
  }
  std::filesystem::create_symlink("../blobs/5c", folder_ / "chat_template.jinja");
  EXPECT_EQ(render(), "config");
}

TEST_F(ChatTemplateTest, NamedTemplatesAreReadInEveryForm) {
  write("tokenizer_config.json",
        R"({"chat_template": {"default": "plain", "tool_use": "with tools"}})");
  EXPECT_EQ(render(), "plain");
  EXPECT_EQ(render(kHello, {{{"type", "function"}}}), "with tools");
  write("tokenizer_config.json",
        R"({"chat_template": [{"name": "default", "template": "first"}, {"name": "rag"}, 5,
                              {"name": "default", "template": "last"}]})");
  EXPECT_EQ(render(), "last");
}

TEST_F(ChatTemplateTest, DeveloperBecomesSystemUnlessTheTemplateKnowsIt) {
  const Json messages = {{{"role", "developer"}, {"content", "x"}},
                         {{"role", "user"}, {"content", "y"}}};
  write("chat_template.jinja", "{% for m in messages %}{{ m.role }}:{{ m.content }} {% endfor %}");
  EXPECT_EQ(render(messages), "system:x user:y ");
  write("chat_template.jinja",
        "{# developer #}{% for m in messages %}{{ m.role }}:{{ m.content }} {% endfor %}");
  EXPECT_EQ(render(messages), "developer:x user:y ");
}

TEST_F(ChatTemplateTest, ExtraVariablesReplaceAllButMessagesAndTools) {
  write("chat_template.jinja",
        "{{ enable_thinking }}{{ add_generation_prompt }}{{ documents }}{{ bos_token }}");
  EXPECT_EQ(render(), "TrueNone");
  EXPECT_EQ(render(kHello, nullptr,
                   {{"enable_thinking", false}, {"bos_token", "b"}, {"add_generation_prompt", 1}}),
            "False1Noneb");
  EXPECT_EQ(render(kHello, nullptr, {{"messages", 1}}),
            "error: the template's variable 'messages' cannot be replaced");
  EXPECT_EQ(render(kHello, nullptr, Json::array()),
            "error: the template's extra variables must be an object");
  EXPECT_EQ(render(Json{{"role", "user"}}), "error: messages must be a list");
  EXPECT_EQ(render(Json::array({"x"})), "error: messages[0] must be an object");
  EXPECT_EQ(render(kHello, 5), "error: tools must be a list or null");
}

TEST_F(ChatTemplateTest, TheDateIsTheGivenClocks) {
  write("chat_template.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  EXPECT_EQ(render(), "2025-07-10");
}

TEST_F(ChatTemplateTest, RaisedExceptionsAreMarked) {
  const ChatTemplate made =
      ChatTemplate::from_source("{{ raise_exception('no system role') }}").value();
  RenderReport report;
  const Result<std::string> text = made.render(kHello, nullptr, true, nullptr, &report);
  EXPECT_EQ(text.status().message(), "no system role");
  EXPECT_TRUE(report.raised_exception);
}

TEST(ChatTemplateSharedTest, PublishedTokenizerConfigsLoad) {
  HEDDLE_SHARED_PATH_OR_SKIP(folder, "data/tokenizers");
  for (const char* name : {"qwen3", "qwen3-coder", "qwen3-thinking-2507", "qwen2", "deepseek-v3",
                           "deepseek-v3.1", "deepseek-r1-distill-qwen", "glm-4.5"}) {
    SCOPED_TRACE(name);
    const Result<ChatTemplate> loaded = ChatTemplate::load(folder / name);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const Result<std::string> text = loaded.value().render(kHello, nullptr, true, nullptr);
    EXPECT_NE(shown(text).find("Hello"), std::string::npos) << shown(text);
  }
  EXPECT_EQ(shown(ChatTemplate::load(folder / "qwen3")
                      ->render(kHello, nullptr, true, {{"enable_thinking", false}})),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(ChatTemplate::load(folder / "kimi-k2").status().code(), StatusCode::kNotFound);
}

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
