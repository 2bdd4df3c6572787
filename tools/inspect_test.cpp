// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "run_captured.h"
#include "support/test_data.h"

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// What `heddle inspect MODEL_DIR ...` prints.
std::string inspected(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), testing::repository_path("models/heddle-tiny").string());
  ::testing::internal::CaptureStdout();
  const Outcome outcome = run_captured(kInspect, std::move(arguments));
  std::string output = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  return output;
}

TEST(Inspect, TellsWhatTheModelIsAndWhatMemoryItGets) {
  const Json report = Json::parse(inspected({"--json", "--kv-cache-dtype", "bfloat16"}));
  EXPECT_EQ(report["architecture"], "Qwen3NextForCausalLM");
  EXPECT_EQ(report["layers"], 8);
  EXPECT_EQ(report["kv_cache_dtype"], "bfloat16");
  EXPECT_EQ(report["weight_bytes"], report["parameters"].get<int64_t>() * 2);
  const Json& plan = report["memory_plan"];
  ASSERT_FALSE(plan.contains("error")) << plan;
  EXPECT_GT(plan["pool_bytes"], 0);
  EXPECT_EQ(plan["kv_tokens"].get<int64_t>() % plan["page_size"].get<int64_t>(), 0);
  EXPECT_LE(plan["kv_tokens"].get<int64_t>() * report["kv_bytes_per_token"].get<int64_t>(),
            plan["pool_bytes"].get<int64_t>());
  EXPECT_LE(plan["state_slots"].get<int64_t>() * report["state_bytes_per_sequence"].get<int64_t>(),
            plan["pool_bytes"].get<int64_t>());
  EXPECT_EQ(plan["max_running_requests"], 64);
  EXPECT_THAT(inspected({}), AllOf(HasSubstr("memory plan"), HasSubstr("64 requests at once")));
}

TEST(Inspect, ListsTensors) {
  const Json tensors = Json::parse(inspected({"--tensors", "--json"}));
  const auto embedding = std::ranges::find(tensors, "model.embed_tokens.weight",
                                           [](const Json& tensor) { return tensor["name"]; });
  ASSERT_NE(embedding, tensors.end());
  EXPECT_EQ((*embedding)["dtype"], "BF16");
  EXPECT_EQ((*embedding)["shape"].size(), 2u);
  EXPECT_THAT(inspected({"--tensors"}), HasSubstr("model.embed_tokens.weight"));
}

TEST(Inspect, PrintsTheGraphAndTokens) {
  EXPECT_THAT(inspected({"--graph", "--load-format", "dummy", "--step-tokens", "64"}),
              AllOf(HasSubstr("for T = 64,"), HasSubstr("-- segment 1 (split)\n"),
                    HasSubstr("= gated_delta_rule(")));
  EXPECT_GE(Json::parse(inspected({"--tokenize", "Tell me a story.", "--json"})).size(), 3u);
}

TEST(Inspect, AnOptionWithoutEffectIsAnError) {
  const std::vector<std::vector<std::string>> cases = {{"--load-format", "dummy"},
                                                       {"--step-tokens", "64"},
                                                       {"--tensors", "--dtype", "float32"},
                                                       {"--tokenize", "a", "--dtype", "float32"},
                                                       {"--tensors", "--kv-cache-dtype", "auto"},
                                                       {"--graph", "--json"}};
  for (std::vector<std::string> arguments : cases) {
    const std::string option = arguments[0];
    arguments.insert(arguments.begin(), "FOLDER");
    const Outcome outcome = run_captured(kInspect, std::move(arguments));
    EXPECT_EQ(outcome.exit_code, kExitUsage) << option;
    EXPECT_THAT(outcome.errors, HasSubstr(option));
  }
}

TEST(Inspect, AFormatThatIsNoneIsRefusedByName) {
  const std::string folder = testing::repository_path("models/heddle-tiny").string();
  for (const char* what : {"--dtype", "--kv-cache-dtype"}) {
    const Outcome outcome = run_captured(kInspect, {folder, "--graph", what, "nonsense"});
    EXPECT_EQ(outcome.exit_code, kExitFailure);
    EXPECT_THAT(outcome.errors, HasSubstr("nonsense"));
  }
}

}  // namespace
}  // namespace heddle::tools
