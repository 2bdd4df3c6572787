// SPDX-License-Identifier: Apache-2.0
#include "tools/gsm8k.h"

#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

// A file that is gone after the test.
class TemporaryFile {
 public:
  TemporaryFile(std::string_view name, std::string_view text)
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("heddle_tools_{}_{}", ::getpid(), name)) {
    std::ofstream(path_) << text;
  }

  ~TemporaryFile() { std::filesystem::remove(path_); }

  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Gsm8kTest, ReadsTheFileAsPublished) {
  const TemporaryFile file(
      "set.jsonl",
      "{\"question\": \"Janet\\u2019s eggs?\", \"answer\": \"16 - 3\\n#### 1,300\"}\n"
      "\n"
      "{\"question\": \"More?\", \"answer\": \"#### -2\"}\n");
  EXPECT_TRUE(is_gsm8k(file.path()));
  const auto examples = read_gsm8k(file.path());
  ASSERT_TRUE(examples.ok()) << examples.status().to_string();
  ASSERT_EQ(examples->size(), 2u);
  EXPECT_EQ((*examples)[0].question, "Janet\u2019s eggs?");
  EXPECT_EQ((*examples)[0].answer, "16 - 3\n#### 1,300");
}

TEST(Gsm8kTest, NamesTheLineThatIsWrong) {
  const auto error = [](std::string_view second_line) {
    const std::string good = "{\"question\": \"a\", \"answer\": \"#### 1\"}\n";
    const TemporaryFile file("bad.jsonl", good + std::string(second_line) + "\n");
    return read_gsm8k(file.path()).status().message();
  };
  EXPECT_THAT(error("{"), HasSubstr("bad.jsonl:2: not JSON"));
  EXPECT_THAT(error("[]"), HasSubstr(":2: lacks a \"question\""));
  EXPECT_THAT(error("{\"question\": \"a\"}"), HasSubstr(":2: lacks"));
  EXPECT_THAT(error("{\"question\": \"a\", \"answer\": 5}"), HasSubstr(":2: lacks"));
  EXPECT_THAT(error("{\"question\": \"a\", \"answer\": \"5\"}"),
              HasSubstr("no number behind ####"));
  EXPECT_THAT(error("{\"question\": \"a\", \"answer\": \"5 ####\"}"), HasSubstr("no number"));
  EXPECT_EQ(read_gsm8k("/no/such/file").status().code(), StatusCode::kNotFound);
  const TemporaryFile empty("empty.jsonl", "\n");
  EXPECT_THAT(read_gsm8k(empty.path()).status().message(), HasSubstr("has no questions"));
}

TEST(Gsm8kTest, TellsItsFilesFromSetsOfMessages) {
  EXPECT_FALSE(is_gsm8k(heddle::testing::repository_path("tests/golden/heddle_tiny/math.jsonl")));
  EXPECT_FALSE(is_gsm8k("/no/such/file"));
}

TEST(Gsm8kTest, ThePromptEndsWhereTheAnswerBegins) {
  const std::vector<Gsm8kExample> shots = {{"One?", "It is 1.\n#### 1"}, {"Two?", "#### 2"}};
  EXPECT_EQ(gsm8k_prompt(shots, "Three?"),
            "Question: One?\nAnswer: It is 1.\n#### 1\n\n"
            "Question: Two?\nAnswer: #### 2\n\n"
            "Question: Three?\nAnswer:");
  EXPECT_EQ(gsm8k_prompt({}, "Three?"), "Question: Three?\nAnswer:");
}

TEST(Gsm8kTest, TheFinalNumberStandsBehindTheMark) {
  EXPECT_THAT(final_number("2 + 3 = 5\n#### 5"), Optional(5.0));
  EXPECT_THAT(final_number("#### 1,234,567 dollars"), Optional(1234567.0));
  EXPECT_THAT(final_number("#### 7\n\n#### 8"), Optional(8.0));
  EXPECT_THAT(final_number("#### 18.00"), Optional(18.0));
  EXPECT_THAT(final_number("#### 18."), Optional(18.0));
  EXPECT_THAT(final_number("so -5\n#### $-5"), Optional(-5.0));
}

TEST(Gsm8kTest, WithoutTheMarkTheLastNumberCounts) {
  EXPECT_THAT(final_number("16-3"), Optional(3.0));
  EXPECT_THAT(final_number("first 4, then 2.5%"), Optional(2.5));
  EXPECT_THAT(final_number("it is 12\n####"), Optional(12.0));
  EXPECT_THAT(final_number("-7"), Optional(-7.0));
  EXPECT_EQ(final_number("no idea"), std::nullopt);
  EXPECT_EQ(final_number("#### none"), std::nullopt);
  EXPECT_EQ(final_number(""), std::nullopt);
}

TEST(Gsm8kTest, ANumberTooLargeIsANumber) {
  EXPECT_GT(final_number("#### " + std::string(400, '9')).value(), 1e308);
}

// The first two problems are the shots; heddle-tiny answers the others.
class Gsm8kEvaluationTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.model_dir = heddle::testing::repository_path("models/heddle-tiny");
    auto engine = Engine::create(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = std::move(*engine);
    auto codec = server::make_model_codec(options.model_dir, *engine_->tokenizer(), {});
    ASSERT_TRUE(codec.ok()) << codec.status().to_string();
    codec_ = std::move(*codec);
  }

  static void TearDownTestSuite() {
    codec_.reset();
    engine_.reset();
  }

  static std::string problems(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += fmt::format(
          "{{\"question\": \"Ivan fills {0} bags with {1} fish each. How many fish is that in "
          "all?\", "
          "\"answer\": \"{0} bags of {1} fish. {0} * {1} = {2}.\\n#### {2}\"}}\n",
          i + 2, 3 * i + 5, (i + 2) * (3 * i + 5));
    }
    return lines;
  }

  static Result<Gsm8kReport> score(const Gsm8kOptions& options) {
    EvaluationOptions evaluation;
    evaluation.sampling.max_tokens = 40;
    evaluation.ask.parallel = 1;  // prompts this short would all be computed in the first step
    return evaluate_gsm8k(ask_engine(*engine_, *codec_), set_.path(), options, evaluation);
  }

  static inline std::unique_ptr<Engine> engine_;
  static inline std::unique_ptr<server::TextCodec> codec_;
  static inline const TemporaryFile set_{"problems.jsonl", problems(8)};
};

TEST_F(Gsm8kEvaluationTest, AsksWhatComesBehindTheShotsAndReusesThem) {
  const auto report = score({.shots = 2, .num_questions = 4});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->total, 4);
  EXPECT_EQ(report->failed, 0);
  EXPECT_GT(report->output_tokens, 0);
  EXPECT_GT(report->cached_tokens, report->prompt_tokens / 3);
  const auto rest = score({.shots = 2, .num_questions = 200});
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  EXPECT_EQ(rest->total, 6);
}

TEST_F(Gsm8kEvaluationTest, ChatAnswersAreRightWhereTheModelKnowsTheShape) {
  const auto report = score({.shots = 0, .num_questions = 8, .chat = true});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->total, 8);
  EXPECT_EQ(report->invalid, 0);
  EXPECT_EQ(report->correct, 4);  // greedy: the same ones every time
}

TEST_F(Gsm8kEvaluationTest, ShotsMayComeFromAnotherFile) {
  const TemporaryFile shots("shots.jsonl", problems(1));
  const auto report = score({.shots = 1, .num_questions = 8, .shots_file = shots.path().string()});
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->total, 8);
  EXPECT_THAT(score({.shots = 2, .shots_file = shots.path().string()}).status().message(),
              HasSubstr("has 1 questions: --shots 2 needs at least 2"));
}

TEST_F(Gsm8kEvaluationTest, RefusesASetThatTheShotsUseUp) {
  EXPECT_THAT(score({.shots = 8}).status().message(),
              HasSubstr("has 8 questions: --shots 8 needs at least 9"));
  EXPECT_THAT(score({.shots = -1}).status().message(), HasSubstr("--shots -1"));
  EXPECT_THAT(score({.num_questions = 0}).status().message(), HasSubstr("--num-questions 0"));
}

}  // namespace
}  // namespace heddle::tools
