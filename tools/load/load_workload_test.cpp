// SPDX-License-Identifier: Apache-2.0
#include "tools/load/load_workload.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoadWorkloadTest : public ::testing::Test {
 protected:
  ~LoadWorkloadTest() override { std::filesystem::remove(file_); }

  std::string write(std::string_view text) {
    std::ofstream(file_) << text;
    return file_;
  }

 private:
  std::string file_ = ::testing::TempDir() + "load_workload_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

LoadWorkload made(const LoadWorkloadOptions& options) {
  auto workload = make_load_workload(options);
  EXPECT_TRUE(workload.ok()) << workload.status().to_string();
  return workload.ok() ? std::move(workload).value() : LoadWorkload{};
}

TEST_F(LoadWorkloadTest, RandomPromptsHaveTheirLengthsAndSeed) {
  LoadWorkloadOptions options{.requests = 20, .input_tokens = 100, .output_tokens = 10};
  const LoadWorkload exact = made(options);
  ASSERT_EQ(exact.requests.size(), 20u);
  EXPECT_FALSE(exact.open_loop);
  std::set<std::vector<int64_t>> different;
  for (const LoadRequest& request : exact.requests) {
    const auto ids = prompt_ids(request, 50);
    EXPECT_EQ(ids.size(), 100u);
    EXPECT_EQ(request.output_tokens, 10);
    EXPECT_FALSE(request.at_seconds);
    EXPECT_GE(std::ranges::min(ids), 3);
    EXPECT_LT(std::ranges::max(ids), 50);
    const std::string text = prompt_text(request);
    EXPECT_EQ(std::ranges::count(text, ' '), 99);
    different.insert(ids);
  }
  EXPECT_EQ(different.size(), 20u);
  EXPECT_EQ(prompt_ids(made(options).requests[7], 50), prompt_ids(exact.requests[7], 50));
  options.seed = 2;
  EXPECT_NE(prompt_ids(made(options).requests[7], 50), prompt_ids(exact.requests[7], 50));
  options.length_ratio = 0.5;
  std::set<size_t> lengths;
  for (const LoadRequest& request : made(options).requests) {
    lengths.insert(prompt_ids(request, 50).size());
  }
  EXPECT_GE(*lengths.begin(), 50u);
  EXPECT_LE(*lengths.rbegin(), 100u);
  EXPECT_GT(lengths.size(), 5u);
}

TEST_F(LoadWorkloadTest, RequestsOfAGroupShareTheirPrefix) {
  const LoadWorkload workload =
      made({.requests = 4, .input_tokens = 8, .prefix_tokens = 32, .groups = 2});
  const auto prefix = [&](size_t i) {
    auto ids = prompt_ids(workload.requests[i], 1000);
    EXPECT_EQ(ids.size(), 40u);
    ids.resize(32);
    return ids;
  };
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(3));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(prompt_ids(workload.requests[0], 1000), prompt_ids(workload.requests[2], 1000));
}

TEST_F(LoadWorkloadTest, ARateOpensTheLoop) {
  const LoadWorkload workload = made({.requests = 3, .rate = 2, .arrivals = "uniform"});
  EXPECT_TRUE(workload.open_loop);
  EXPECT_EQ(workload.requests[2].at_seconds, 1.0);
}

TEST_F(LoadWorkloadTest, PromptsComeFromAFile) {
  const std::string file = write(
      "{\"prompt\": \"Hello\"}\r\n\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"output_tokens\": 5}\n");
  const LoadWorkload workload = made({.output_tokens = 7, .prompts_file = file});
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_EQ(prompt_text(workload.requests[0]), "Hello");
  EXPECT_EQ(workload.requests[0].output_tokens, 7);
  EXPECT_THAT(workload.requests[1].messages, HasSubstr("\"Hi\""));
  EXPECT_EQ(workload.requests[1].output_tokens, 5);
  EXPECT_EQ(made({.requests = 1, .prompts_file = file}).requests.size(), 1u);
}

TEST_F(LoadWorkloadTest, WrongPromptsNameTheirLine) {
  for (const char* line :
       {"x", "[]", "{}", R"({"prompt": 3})", R"({"prompt": "a", "messages": []})",
        R"({"messages": "a"})", R"({"prompt": "a", "output_tokens": 0})",
        R"({"prompt": "a", "output_tokens": -1})", R"({"prompt": "a", "output_tokens": "b"})"}) {
    const std::string file = write(std::string("{\"prompt\": \"a\"}\n") + line + "\n");
    const auto workload = make_load_workload({.prompts_file = file});
    ASSERT_FALSE(workload.ok()) << line;
    EXPECT_THAT(workload.status().message(), HasSubstr("line 2: "));
  }
  EXPECT_FALSE(make_load_workload({.prompts_file = write("\n")}).ok());
  EXPECT_EQ(make_load_workload({.prompts_file = "/nowhere"}).status().code(),
            StatusCode::kNotFound);
  EXPECT_FALSE(make_load_workload({.prompts_file = ::testing::TempDir()}).ok());
}

TEST_F(LoadWorkloadTest, ReadsAzuresTrace) {
  const std::string file = write(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 23:59:59.5000000,374,44\r\n"
      "2023-11-17 00:00:01.2500000,10,0\r\n");
  const LoadWorkload workload = made({.trace_file = file, .speed = 2, .scale = 0.5});
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_TRUE(workload.open_loop);
  EXPECT_EQ(workload.requests[0].at_seconds, 0.0);
  EXPECT_NEAR(*workload.requests[1].at_seconds, 0.875, 1e-6);
  EXPECT_EQ(prompt_ids(workload.requests[0], 100).size(), 187u);
  EXPECT_EQ(workload.requests[0].output_tokens, 22);
  EXPECT_EQ(workload.requests[1].output_tokens, 1) << "none is no request";
}

TEST_F(LoadWorkloadTest, EqualHashesOfMooncakeAreEqualText) {
  const std::string file =
      write(R"({"timestamp": 500, "input_length": 1030, "output_length": 3, "hash_ids": [7, 8, 9]})"
            "\n"
            R"({"timestamp": 1500, "input_length": 600, "output_length": 4, "hash_ids": [7, 11]})"
            "\n");
  const LoadWorkload workload = made({.trace_file = file});
  ASSERT_EQ(workload.requests.size(), 2u);
  EXPECT_NEAR(*workload.requests[1].at_seconds, 1, 1e-9);
  auto first = prompt_ids(workload.requests[0], 100);
  auto second = prompt_ids(workload.requests[1], 100);
  EXPECT_EQ(first.size(), 1030u);
  EXPECT_EQ(second.size(), 600u);
  first.resize(600);
  EXPECT_NE(first, second);
  first.resize(512);
  second.resize(512);
  EXPECT_EQ(first, second);
}

TEST_F(LoadWorkloadTest, WrongTracesNameTheirLine) {
  const std::string good = "2023-11-16 18:15:46.68,1,1\n";
  for (
      const char* line :
      {"x", "2023-11-16 18:15:47,1", "2023-11-16 18:15:47,1,x", "2023-13-16 18:15:47,1,1",
       "2023-11-16 18:15:4,1,1", "2023-11-16 18:15:47,-1,1", "2023-11-16 18:15:45,1,1", "{}",
       R"({"timestamp": "x", "input_length": 1, "output_length": 1})",
       R"({"timestamp": 99999999999999, "input_length": 1, "output_length": 1, "hash_ids": [-1]})"}) {
    const auto workload = make_load_workload({.trace_file = write(good + line + "\n")});
    ASSERT_FALSE(workload.ok()) << line;
    EXPECT_THAT(workload.status().message(), HasSubstr("line 2: ")) << line;
  }
}

TEST_F(LoadWorkloadTest, ReadsTheRecordedTraces) {
  const auto folder = testing::shared_path("data/traces");
  if (!folder) GTEST_SKIP() << "the traces are not here";
  for (const char* name : {"AzureLLMInferenceTrace_code.csv", "AzureLLMInferenceTrace_conv.csv",
                           "mooncake_conversation_trace.jsonl", "mooncake_synthetic_trace.jsonl"}) {
    const LoadWorkload workload = made({.trace_file = *folder / name});
    EXPECT_GT(workload.requests.size(), 1000u) << name;
    EXPECT_GT(workload.requests.back().at_seconds, 1000) << name;
  }
}

TEST(Arrivals, UniformOnesHaveEqualGaps) {
  EXPECT_THAT(arrival_times({.kind = ArrivalKind::kUniform, .requests_per_second = 4}, 4),
              ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_TRUE(arrival_times({}, 0).empty());
}

TEST(Arrivals, PoissonOnesKeepTheirRateAndSpread) {
  constexpr int64_t kCount = 20'000;
  const auto times = arrival_times({.requests_per_second = 5, .seed = 3}, kCount);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_EQ(times.front(), 0);
  EXPECT_NEAR(times.back() / kCount, 0.2, 0.01);
  int64_t long_gaps = 0;  // exp(-1) of the gaps are longer than their mean
  for (size_t i = 1; i < times.size(); ++i) long_gaps += times[i] - times[i - 1] > 0.2 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(long_gaps) / kCount, 0.3679, 0.02);
}

TEST(Arrivals, BurstsComeTogetherAtTheSameRate) {
  const auto times = arrival_times(
      {.kind = ArrivalKind::kBurst, .requests_per_second = 10, .burst_size = 4}, 20'000);
  for (size_t i = 0; i < times.size(); ++i) ASSERT_EQ(times[i], times[i / 4 * 4]);
  EXPECT_LT(times[3], times[4]);
  EXPECT_NEAR(times.back() / 20'000, 0.1, 0.01);
}

TEST(Arrivals, ASeedSaysWhichOnes) {
  const auto with_seed = [](uint64_t seed) {
    return arrival_times({.requests_per_second = 2, .seed = seed}, 50);
  };
  EXPECT_EQ(with_seed(7), with_seed(7));
  EXPECT_NE(with_seed(7), with_seed(8));
}

}  // namespace
}  // namespace heddle::tools
