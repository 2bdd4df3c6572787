// SPDX-License-Identifier: Apache-2.0
#include "tools/generate_batch.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "server/fake_codec.h"
#include "server/fake_engine.h"

namespace heddle::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class GenerateBatchTest : public ::testing::Test {
 protected:
  [[nodiscard]] static std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // The answers to `input`, and what the engine was asked.
  std::vector<json> answers(std::string_view input, const SamplingSettings& sampling = {}) {
    std::filesystem::remove(output_);
    const BatchSettings settings = {.input = folder_.write("in.jsonl", input).string(),
                                    .output = output_.string(),
                                    .json_report = false,
                                    .sampling = sampling};
    const Result<Batch> batch = read_batch(settings);
    EXPECT_TRUE(batch.ok()) << batch.status().to_string();
    if (!batch.ok()) return {};
    server::FakeEngine engine;
    const server::FakeCodec codec;
    const auto to_tokens = [&codec](const std::string& prompt) {
      return codec.encode(prompt, true);
    };
    const Result<int> exit_code = generate_batch(*batch, engine, codec, to_tokens);
    EXPECT_TRUE(exit_code.ok()) << exit_code.status().to_string();
    exit_code_ = exit_code.ok() ? *exit_code : -1;
    submitted_ = engine.submitted();
    std::vector<json> lines;
    std::ifstream file(output_);
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }

  checkpoint::testing::TemporaryFolder folder_;
  const std::filesystem::path output_ = folder_.path() / "out.jsonl";
  std::vector<Request> submitted_;
  int exit_code_ = -1;
};

TEST_F(GenerateBatchTest, NothingThatExistsIsOverwritten) {
  const auto input = folder_.write("in.jsonl", "{\"prompt\": \"a\"}\n");
  const auto earlier = folder_.write("earlier.jsonl", "answers of a long night\n");
  const auto link = folder_.path() / "link.jsonl";
  std::filesystem::create_symlink(input, link);
  for (const auto& output : {input, earlier, link}) {
    const auto batch = read_batch({.input = input.string(), .output = output.string()});
    EXPECT_THAT(batch.status().message(),
                HasSubstr(output.string() + ": it exists; remove it or name another file"));
  }
  EXPECT_EQ(text_of(input), "{\"prompt\": \"a\"}\n");
  EXPECT_EQ(text_of(earlier), "answers of a long night\n");
}

TEST_F(GenerateBatchTest, AnOutputThatCannotBeIsFoundBeforeTheWork) {
  const auto input = folder_.write("in.jsonl", "{\"prompt\": \"a\"}\n").string();
  const auto error = [&](const std::filesystem::path& output) {
    return read_batch({.input = input, .output = output.string()}).status().message();
  };
  EXPECT_THAT(error(folder_.path() / "none" / "out.jsonl"), HasSubstr("its folder is not there"));
  EXPECT_THAT(error(folder_.path()), HasSubstr("it is a folder"));
  EXPECT_EQ(error("/dev/null"), "");
  EXPECT_EQ(error(folder_.write("empty.jsonl", "")), "");
}

TEST_F(GenerateBatchTest, AMissingInputIsNoPrompt) {
  const auto batch = read_batch({.input = (folder_.path() / "none.jsonl").string()});
  EXPECT_EQ(batch.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(batch.status().message(), HasSubstr("none.jsonl"));
}

TEST_F(GenerateBatchTest, AnswersStandInOrderWithTheIndexOfTheirLine) {
  const auto lines = answers("{\"prompt\": \"a\"}\n\n{\"prompt\": 7}\n  \n{\"prompt\": \"b\"}\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["index"], 0);
  EXPECT_EQ(lines[0]["text"], "Hello there");
  EXPECT_EQ(lines[1]["index"], 2);
  EXPECT_EQ(lines[1]["error"], "\"prompt\" must be a string");
  EXPECT_EQ(lines[2]["index"], 4);
  EXPECT_EQ(exit_code_, 1);
}

TEST_F(GenerateBatchTest, ACustomIdComesBackAsItWasAlsoWithAnError) {
  const auto lines = answers(
      "{\"custom_id\": \"first\", \"prompt\": \"a\"}\n"
      "{\"custom_id\": {\"row\": 7}, \"prompt\": \"\"}\n"
      "{\"prompt\": \"a\"}\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["custom_id"], "first");
  EXPECT_EQ(lines[1]["custom_id"], json({{"row", 7}}));
  EXPECT_EQ(lines[1]["error"], "the prompt is empty");
  EXPECT_FALSE(lines[2].contains("custom_id"));
}

TEST_F(GenerateBatchTest, ALineSaysHowItIsAnsweredAndTheCommandLineWhatItLeavesOpen) {
  SamplingSettings sampling;
  sampling.max_tokens = 9;
  sampling.temperature = 0.5f;
  sampling.stop = {"END"};
  answers(
      "{\"prompt\": \"a\", \"max_tokens\": 3, \"temperature\": 0, \"stop\": [\"x\"]}\n"
      "{\"prompt\": \"b\", \"max_tokens\": null}\n",
      sampling);
  EXPECT_EQ(exit_code_, 0);
  ASSERT_EQ(submitted_.size(), 2u);
  EXPECT_EQ(submitted_[0].stop.max_new_tokens, 3);
  EXPECT_EQ(submitted_[0].sampling.temperature, 0.0f);
  EXPECT_EQ(submitted_[0].stop.texts, std::vector<std::string>{"x"});
  EXPECT_EQ(submitted_[1].stop.max_new_tokens, 9);
  EXPECT_EQ(submitted_[1].sampling.temperature, 0.5f);
  EXPECT_EQ(submitted_[1].stop.texts, std::vector<std::string>{"END"});
}

TEST_F(GenerateBatchTest, WithoutALimitAnAnswerHasTheDefault) {
  answers("{\"prompt\": \"a\"}\n");
  ASSERT_EQ(submitted_.size(), 1u);
  EXPECT_EQ(submitted_[0].stop.max_new_tokens, kDefaultOutputTokens);
}

TEST_F(GenerateBatchTest, NullIsTheDefaultAndMessagesArePrompts) {
  const auto lines = answers(
      "{\"prompt\": \"a\", \"messages\": null}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"prompt\": null}\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].value("error", ""), "");
  ASSERT_EQ(submitted_.size(), 2u);
  const server::FakeCodec codec;
  EXPECT_EQ(codec.decode(submitted_[1].prompt, true), "user: hi|assistant: ");
  EXPECT_FALSE(submitted_[1].role_boundaries.empty());
}

TEST_F(GenerateBatchTest, ALineSaysWhenItRunsAndWithWhomItSharesTheCache) {
  answers(
      "{\"prompt\": \"a\", \"priority\": 7, \"user\": \"ann\", \"routing_key\": "
      "\"k\",\"deadline_ms\": "
      "1500, \"ttft_slo_ms\": 250, \"cache_salt\": \"s\"}\n{\"prompt\": \"a\"}\n");
  ASSERT_EQ(submitted_.size(), 2u);
  EXPECT_EQ(submitted_[0].priority, 7);
  EXPECT_EQ(submitted_[0].tenant, "ann");
  EXPECT_EQ(submitted_[0].routing_key, "k");
  EXPECT_EQ(submitted_[0].deadline_seconds, 1.5);
  EXPECT_EQ(submitted_[0].ttft_slo_seconds, 0.25);
  EXPECT_NE(submitted_[0].cache_namespace, "");
  EXPECT_FALSE(submitted_[1].priority.has_value());
  EXPECT_EQ(submitted_[1].tenant, "");
  EXPECT_EQ(submitted_[1].cache_namespace, "");
}

TEST_F(GenerateBatchTest, MessagesAreRenderedAsTheLineSaysAndIdsAreTakenAsTheyAre) {
  answers(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"add_generation_prompt\": "
      "false}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", "
      "\"content\": "
      "\"he\"}], \"continue_final_message\": true}\n"
      "{\"input_ids\": [5, 6, 7]}\n");
  ASSERT_EQ(submitted_.size(), 3u);
  const server::FakeCodec codec;
  EXPECT_EQ(codec.decode(submitted_[0].prompt, true), "user: hi|");
  EXPECT_EQ(codec.decode(submitted_[1].prompt, true), "user: hi|assistant: he");
  EXPECT_EQ(submitted_[2].prompt, (std::vector<TokenId>{5, 6, 7}));
}

TEST_F(GenerateBatchTest, ALineSaysWhatItsAnswerMustLookLike) {
  const auto lines = answers(
      "{\"prompt\": \"a\", \"regex\": \"yes|no\"}\n{\"prompt\": \"a\", \"regex\": \"(\"}\n"
      "{\"prompt\": \"a\", \"response_format\": {\"type\": \"text\"}}\n");
  ASSERT_EQ(submitted_.size(), 2u);
  EXPECT_NE(submitted_[0].constraint, nullptr);
  EXPECT_EQ(submitted_[1].constraint, nullptr);
  EXPECT_THAT(lines.at(1).value("error", ""), HasSubstr("regex"));
}

TEST_F(GenerateBatchTest, AFieldThatBatchesDoNotTakeIsAnErrorOfItsLine) {
  const auto error = [this](std::string_view line) {
    return answers(std::string(line) + "\n").at(0).value("error", "");
  };
  EXPECT_THAT(error("{\"prompt\": \"a\", \"n\": 2}"), HasSubstr("\"n\" is 2"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"max_tokens\": 0}"), HasSubstr("max_tokens"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"max_tokens\": 99999999}"), HasSubstr("context"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"logprobs\": true}"), HasSubstr("logprobs"));
  for (const char* field :
       {"\"echo\": true", "\"stream\": true", "\"stream_interval\": 4", "\"rid\": \"a\"",
        "\"return_token_ids\": true", "\"return_prompt_token_ids\": true", "\"best_of\": 2",
        "\"suffix\": \"b\"", "\"stream_options\": {\"include_usage\": true}", "\"functions\": [{}]",
        "\"tools\": [{}]", "\"tool_choice\": \"none\"", "\"chat_template_kwargs\": {\"a\": 1}",
        "\"reasoning_effort\": \"low\"", "\"reasoning\": {\"enabled\": true}",
        "\"continue_final_message\": true", "\"add_generation_prompt\": false"}) {
    const std::string name(field + 1, std::strchr(field + 1, '"'));
    for (const std::string prompt : {"\"prompt\": \"a\"", "\"input_ids\": [1]"}) {
      const std::string message = error("{" + prompt + ", " + field + "}");
      EXPECT_THAT(message, HasSubstr(name)) << prompt;
      EXPECT_THAT(message, Not(HasSubstr("server"))) << prompt;
      EXPECT_EQ(submitted_.size(), 0u) << field;
    }
  }
  EXPECT_EQ(error("{\"input_ids\": [1], \"tools\": [{}]}"),
            "\"tools\" belongs to \"messages\", of which the line has none");
  EXPECT_THAT(error("{\"input_ids\": [1], \"add_generation_prompt\": 1}"),
              HasSubstr("true or false"));
  EXPECT_EQ(error("{\"input_ids\": [1], \"tools\": [], \"add_generation_prompt\": true}"), "");
  EXPECT_EQ(error("{\"prompt\": \"a\", \"stream\": false, \"echo\": null, \"model\": \"b\"}"), "");
  EXPECT_THAT(error("{\"prompt\": \"a\", \"priority\": \"high\"}"), HasSubstr("priority"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"deadline_ms\": -1}"), HasSubstr("deadline_ms"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"input_ids\": [1]}"), HasSubstr("leave one out"));
  EXPECT_THAT(error("{\"custom_id\": \"1\", \"body\": {\"messages\": []}}"), HasSubstr("body"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"messages\": []}"), HasSubstr("leave one out"));
  EXPECT_THAT(error("{}"), HasSubstr("neither"));
}

}  // namespace
}  // namespace heddle::tools
